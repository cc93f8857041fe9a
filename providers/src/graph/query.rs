//! A query as a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::Error;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::query::{Expr, Query};
use stratagraph::graph::topology::TraversalMode;
use stratagraph::graph::value::Value;

use super::answer::answer_schema;
use super::expr::Scalars;
use super::inner::plan_inner;
use super::lower::Lowering;
use super::names::Names;
use super::needs::{deferred, late, needs};
use super::ranks::distances;
use super::reach::apply;
use super::reduce::Goal;
use super::sources::{GraphSources, types_of};
use crate::error::ResultExt;
use crate::exec::{PatternExec, QueryEmbedder};
use crate::function::Wanted;
use crate::metadata::Metadata;
use crate::pin::StatementPin;

/// A checked query with the values of its parameters, to be read in one state of a graph.
pub struct GraphQuery {
    /// The query.
    pub query: Arc<Query>,
    /// Values of its parameters, in their order.
    pub params: Vec<Value>,
    /// When the statement began, microseconds since 1970-01-01 UTC.
    pub now: i64,
    /// How neighbours are looked up.
    pub mode: TraversalMode,
    /// Makes the vectors of texts when the plan runs.
    pub embedder: Arc<dyn QueryEmbedder>,
    /// Whether indexes over vectors are left aside.
    pub exact: bool,
}

/// Whether two answers have the same columns; calls are marked in the metadata of theirs.
fn same_columns(a: &Schema, b: &Schema) -> bool {
    let column = |field: &Arc<Field>| (field.name().clone(), field.data_type().clone());
    a.fields()
        .iter()
        .map(column)
        .eq(b.fields().iter().map(column))
}

impl GraphQuery {
    /// The logical plan of the whole answer. The neighbours along the edge types `held` are in memory.
    ///
    /// # Errors
    /// `SchemaChanged` for a query of another schema, `InvalidArgument` for a search of a property that
    /// cannot be searched.
    pub fn lower(&self, sources: &GraphSources, held: BTreeSet<u64>) -> Result<LogicalPlan> {
        let lowering = Lowering {
            query: &self.query,
            scalars: Scalars {
                variables: &self.query.variables,
                declared: &self.query.params,
                schema: sources.schema(),
                params: &self.params,
                now: self.now,
            },
            sources,
            needs: needs(&self.query),
            names: Names::default(),
            mode: self.mode,
            deferred: deferred(&self.query, sources.schema()),
            distances: distances(&self.query),
            late: late(&self.query),
            embedder: &self.embedder,
            exact: self.exact,
            held,
        };
        let pattern = &self.query.pattern;
        let filters: Vec<&Expr> = pattern.filters.iter().collect();
        let goal = Goal::of(&self.query, lowering.deferred, lowering.first_rows()?);
        let row = lowering.wanted(pattern, &filters, &[], &goal)?;
        lowering.answer(row)?.build()
    }

    /// The physical plan of what a statement wants, in one state of a graph.
    ///
    /// # Errors
    /// As [`Self::lower`], and those of reading metadata and of planning.
    pub async fn plan(
        &self,
        state: &dyn Session,
        metadata: &Arc<Metadata>,
        snapshot: &GraphSnapshot,
        pin: &Arc<StatementPin>,
        wanted: Wanted<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let types = types_of(&self.query);
        let sources = GraphSources::of(metadata, snapshot, pin, &types)
            .await
            .df()?;
        let held = sources.held().await.df()?;
        let plan = LogicalPlanBuilder::from(self.lower(&sources, held)?);
        let answer = answer_schema(&self.query);
        if !same_columns(&answer, wanted.answer) {
            // The schema of the graph is another one than when the statement was planned.
            return Err(Error::SchemaChanged {
                table: snapshot.name.to_string(),
                detail: format!("the query {:?} gives other columns now", self.query.name),
            })
            .df();
        }
        let plan = apply(plan, wanted)?.build()?;
        let plan = plan_inner(state, &plan).await?;
        let text = self.query.explain(sources.schema());
        Ok(Arc::new(PatternExec::new(plan, &text)))
    }
}
