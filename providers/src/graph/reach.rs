//! All nodes that seeds reach, with their distances.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, Operator, cast, lit,
};
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::TraversalMode;

use super::inner::plan_inner;
use super::names::{column, column_expr};
use super::sources::GraphSources;
use crate::error::ResultExt;
use crate::exec::{ExpandNode, ExpandSpec};
use crate::function::Wanted;
use crate::metadata::Metadata;
use crate::pin::StatementPin;

/// Ids that are searched one by one from both ends; more of them are found on the way.
const PAIRS: usize = 8;

/// Where to begin.
pub enum Seeds {
    /// These ids.
    Ids(Vec<String>),
    /// The ids that a query of one column gives.
    Plan(Arc<LogicalPlan>),
}

/// What is reached from some nodes along the edges of one type.
pub struct GraphReach {
    /// Type id of the edges.
    pub edge: u64,
    /// Where to begin; ids of no node reach nothing, repeated ones count once.
    pub seeds: Seeds,
    /// Least distance, from 1.
    pub min: u32,
    /// Greatest distance.
    pub max: u32,
    /// Which way edges are followed.
    pub direction: Direction,
    /// How neighbours are looked up.
    pub mode: TraversalMode,
}

impl GraphReach {
    /// The columns of the answer: `seed`, `id`, `distance`.
    pub fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("seed", DataType::Utf8View, true),
            Field::new("id", DataType::Utf8View, true),
            Field::new("distance", DataType::Int64, true),
        ]))
    }

    /// The logical plan of the whole answer, or of its rows with these ids.
    fn lower(
        &self,
        sources: &GraphSources,
        ends: (u64, u64),
        ids: Option<Vec<Expr>>,
    ) -> Result<LogicalPlan> {
        let seeds = self.seeds(node(sources, ends.0, ("from", "seed"))?)?;
        let spec = ExpandSpec::bounded(self.direction, self.min, self.max, "to")
            .with_hops("hops")
            .with_mode(self.mode);
        let edges = sources.edges(self.edge).df()?;
        if let Some(ids) = ids {
            // Both ends are known.
            let nodes = node(sources, ends.1, ("reached", "id"))?;
            let wanted = nodes.filter(column_expr("id").in_list(ids, false))?;
            let pairs = seeds.cross_join(wanted.build()?)?.build()?;
            let node = ExpandNode::try_new(pairs, column_expr("from"), edges, spec)?;
            let node = node.with_target(column_expr("reached"))?;
            let reached = LogicalPlan::Extension(Extension {
                node: Arc::new(node),
            });
            return shown(LogicalPlanBuilder::from(reached));
        }
        let node_of = ExpandNode::try_new(seeds.build()?, column_expr("from"), edges, spec)?;
        let reached = LogicalPlan::Extension(Extension {
            node: Arc::new(node_of),
        });
        let nodes = node(sources, ends.1, ("reached", "id"))?;
        let keys = (vec![column("to")], vec![column("reached")]);
        let joined = LogicalPlanBuilder::from(reached);
        shown(joined.join(nodes.build()?, JoinType::Inner, keys, None)?)
    }

    /// The nodes to begin with.
    fn seeds(&self, nodes: LogicalPlanBuilder) -> Result<LogicalPlanBuilder> {
        match &self.seeds {
            Seeds::Ids(ids) => {
                let ids: BTreeSet<&String> = ids.iter().collect();
                let ids = ids.into_iter().map(|id| lit(id.as_str())).collect();
                nodes.filter(column_expr("seed").in_list(ids, false))
            }
            Seeds::Plan(plan) => {
                let given = LogicalPlanBuilder::from(plan.as_ref().clone());
                let Some((qualifier, field)) = plan.schema().iter().next() else {
                    return datafusion::common::plan_err!("the seeds have no column");
                };
                let first = Expr::Column(Column::from((qualifier, field)));
                let given = given
                    .project(vec![cast(first, DataType::Utf8View).alias("given")])?
                    .build()?;
                let keys = (vec![column("seed")], vec![column("given")]);
                nodes.join(given, JoinType::LeftSemi, keys, None)
            }
        }
    }

    /// The physical plan of what a statement wants, in one state of a graph.
    ///
    /// # Errors
    /// Those of reading metadata and of planning; `InvalidArgument` for bounds that the edges have not.
    pub async fn plan(
        &self,
        state: &dyn Session,
        metadata: &Arc<Metadata>,
        snapshot: &GraphSnapshot,
        pin: &Arc<StatementPin>,
        wanted: Wanted<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let edge = snapshot
            .schema
            .by_id(self.edge)
            .and_then(|t| t.edge.as_ref());
        let ends = match (edge, self.direction) {
            (Some(edge), Direction::In) => (edge.to, edge.from),
            (Some(edge), _) => (edge.from, edge.to),
            (None, _) => (0, 0),
        };
        let types = BTreeSet::from([self.edge, ends.0, ends.1]);
        let sources = GraphSources::of(metadata, snapshot, pin, &types)
            .await
            .df()?;
        let held = match self.mode {
            TraversalMode::Auto => sources.held().await.df()?.contains(&self.edge),
            mode => mode == TraversalMode::Adjacency,
        };
        let few = matches!(&self.seeds, Seeds::Ids(ids) if ids.len() <= PAIRS);
        let ids = wanted_ids(wanted.filters).filter(|_| held && few);
        let plan = LogicalPlanBuilder::from(self.lower(&sources, ends, ids)?);
        let plan = apply(plan, wanted)?;
        plan_inner(state, &plan.build()?).await
    }
}

/// The columns of the answer.
fn shown(reached: LogicalPlanBuilder) -> Result<LogicalPlan> {
    reached
        .project(vec![
            column_expr("seed"),
            column_expr("id"),
            cast(column_expr("hops"), DataType::Int64).alias("distance"),
        ])?
        .build()
}

/// The ids that a filter of a statement leaves, where it names few.
fn wanted_ids(filters: &[Expr]) -> Option<Vec<Expr>> {
    let is_id = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == "id");
    filters.iter().find_map(|filter| match filter {
        Expr::BinaryExpr(equal) if equal.op == Operator::Eq => {
            match (equal.left.as_ref(), equal.right.as_ref()) {
                (id, value @ Expr::Literal(..)) | (value @ Expr::Literal(..), id) if is_id(id) => {
                    Some(vec![value.clone()])
                }
                _ => None,
            }
        }
        Expr::InList(list) if !list.negated && is_id(&list.expr) => {
            let literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
            let few = list.list.len() <= PAIRS && list.list.iter().all(literal);
            few.then(|| list.list.clone())
        }
        _ => None,
    })
}

/// Row id and id of the nodes of a type.
fn node(
    sources: &GraphSources,
    type_id: u64,
    (rid, id): (&str, &str),
) -> Result<LogicalPlanBuilder> {
    let source = sources.get(type_id).df()?;
    let of = |name: &str| Expr::Column(Column::new(Some(source.name.as_str()), name));
    LogicalPlanBuilder::scan(source.name.as_str(), Arc::clone(&source.table), None)?
        .project(vec![of("_rid").alias(rid), of("id").alias(id)])
}

/// What a statement wants of an answer.
pub(super) fn apply(
    mut plan: LogicalPlanBuilder,
    wanted: Wanted<'_>,
) -> Result<LogicalPlanBuilder> {
    if let Some(filter) = conjunction(wanted.filters.iter().cloned()) {
        plan = plan.filter(filter)?;
    }
    if let Some(limit) = wanted.limit {
        plan = plan.limit(0, Some(limit))?;
    }
    let Some(columns) = wanted.projection else {
        return Ok(plan);
    };
    let shown = columns
        .iter()
        .map(|at| column_expr(wanted.answer.field(*at).name()));
    plan.project(shown.collect::<Vec<_>>())
}
