//! Searches as table functions: their columns are those of the table that is searched, and scores.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::future::BoxFuture;
use stratagraph::Result;
use stratagraph_providers::{
    ArgSpec, ArgType, BoundArgs, FunctionSpec, Metadata, PlannedArgs, RunContext, TableFunction,
};

use super::Scores;
use super::target::planned_schema;
use crate::engine::{Engine, Run};

/// What a search does with its arguments.
type Body = fn(Run, BoundArgs) -> BoxFuture<'static, Result<RecordBatch>>;

struct SearchFunction {
    engine: Arc<Engine>,
    spec: FunctionSpec,
    scores: Scores,
    body: Body,
}

impl fmt::Debug for SearchFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SearchFunction({:?})", self.spec)
    }
}

/// The search `name`: its first argument is the table, `args` are the others.
pub(crate) fn search_function(
    engine: &Arc<Engine>,
    name: &'static str,
    scores: Scores,
    args: Vec<ArgSpec>,
    body: Body,
) -> Arc<dyn TableFunction> {
    // The answer has its columns.
    let table = ArgSpec::required("table", ArgType::Name).literal();
    let args = std::iter::once(table).chain(args).collect();
    Arc::new(SearchFunction {
        engine: Arc::clone(engine),
        spec: FunctionSpec::read(name, args),
        scores,
        body,
    })
}

#[async_trait]
impl TableFunction for SearchFunction {
    fn spec(&self) -> &FunctionSpec {
        &self.spec
    }

    fn schema(&self, args: &PlannedArgs<'_>, metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        let table = planned_schema(metadata, args.text("table").unwrap_or_default())?;
        Ok(self.scores.schema(&table))
    }

    async fn run(
        self: Arc<Self>,
        args: BoundArgs,
        context: RunContext,
    ) -> Result<Vec<RecordBatch>> {
        let run = Run::of_statement(Arc::clone(&self.engine), &context);
        Ok(vec![(self.body)(run, args).await?])
    }
}
