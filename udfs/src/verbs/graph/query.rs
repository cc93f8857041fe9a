//! `graph_query`: a read query of the language `.gq` as a table.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::catalog::graph::{At, GraphSnapshot};
use stratagraph::graph::query::{Query, compile};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::ident::{BranchName, Name};
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, GraphQuery, Metadata, PlannedArgs,
    QueryEmbedder, RunContext, TableFunction, Wanted, answer_schema, from_datafusion, split_branch,
};

use super::params::QueryParams;
use crate::engine::{Engine, Run};
use crate::search::embed_for_property;

const VERB: &str = "graph_query";

#[derive(Debug)]
struct Function {
    engine: Arc<Engine>,
    spec: FunctionSpec,
}

/// Graph and branch of a call: `'g', branch => 'b'` or `'g@b'`.
pub(super) fn graph_and_branch(
    function: &str,
    graph: &str,
    branch: Option<&str>,
) -> Result<(Name, BranchName)> {
    let (name, of_name) = split_branch(graph)?;
    let Some(branch) = branch.map(BranchName::parse).transpose()? else {
        return Ok((name, of_name));
    };
    match of_name == BranchName::main() || of_name == branch {
        true => Ok((name, branch)),
        false => Err(Error::InvalidArgument {
            function: function.to_owned(),
            argument: "branch".to_owned(),
            reason: format!("the graph's name says branch {of_name}"),
        }),
    }
}

/// The state that a call asks for, in the statement's snapshot.
pub(super) async fn state_of(run: &Run, args: &BoundArgs) -> Result<GraphSnapshot> {
    let (graph, branch) = (args.text("graph")?, args.opt_text("branch"));
    let (name, branch) = graph_and_branch(args.function(), graph, branch)?;
    let at = snapshot(args.get("snapshot")).map_err(|reason| args.invalid("snapshot", reason))?;
    run.graph(&name, &branch, at.as_ref()).await
}

/// The state that an argument names; the error is what is wrong with it.
fn snapshot(value: &ArgValue) -> std::result::Result<Option<At>, &'static str> {
    match value {
        ArgValue::Null => Ok(None),
        ArgValue::Text(commit) => Ok(Some(At::Commit(commit.clone()))),
        ArgValue::Int(version) => match u64::try_from(*version) {
            Ok(version) => Ok(Some(At::Catalog(version))),
            Err(_) => Err("a catalog version is not negative"),
        },
        _ => Err("expected a commit id or a catalog version"),
    }
}

/// The query of a text, compiled once for a schema while it stays in the cache: a statement asks when it
/// is planned and when it is scanned.
fn compiled(
    engine: &Engine,
    state: &GraphSnapshot,
    text: &str,
    name: Option<&str>,
) -> Result<Arc<Query>> {
    let cache = engine.catalog().store().cache();
    let schema = state.manifest.definition.as_ref().map_or("", |d| &d.key);
    let key = format!("query:{schema}:{name:?}:{text}");
    if let Some(known) = cache.get(&key) {
        return Ok(known);
    }
    let query = Arc::new(compile(text, name, &state.schema)?);
    cache.put(&key, Arc::clone(&query), key.len() * 8 + 1_024);
    Ok(query)
}

/// Embeds the texts of a query with the models that its properties were declared with.
struct Embedder {
    run: Run,
    schema: Arc<GraphSchema>,
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embedder")
    }
}

#[async_trait]
impl QueryEmbedder for Embedder {
    async fn embed(&self, type_id: u64, property: u64, text: &str) -> Result<Vec<f32>> {
        let of = self.schema.by_id(type_id);
        let of = of.and_then(|of| of.property_by_id(property));
        embed_for_property(&self.run, "nearest", of, text).await
    }
}

#[async_trait]
impl TableFunction for Function {
    fn spec(&self) -> &FunctionSpec {
        &self.spec
    }

    fn schema(&self, args: &PlannedArgs<'_>, metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        let graph = args.text("graph").unwrap_or_default();
        let (name, branch) = graph_and_branch(VERB, graph, args.text("branch"))?;
        // A query of the past is one of the schema that the graph had.
        let at = args.get("snapshot").and_then(|at| snapshot(at).ok()?);
        let past = at.and_then(|at| metadata.graph_past(&name, &branch, &at));
        let state = match past {
            Some(past) => Arc::new(past),
            None => metadata.graph_now(&name, &branch)?,
        };
        let text = args.text("query").unwrap_or_default();
        let query = compiled(&self.engine, &state, text, args.text("name"))?;
        Ok(answer_schema(&query))
    }

    fn owns_filters(&self) -> bool {
        true
    }

    async fn scan(
        &self,
        args: &BoundArgs,
        state: &dyn Session,
        wanted: Wanted<'_>,
        context: &RunContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let run = Run::of_statement(Arc::clone(&self.engine), context);
        let snapshot = state_of(&run, args).await?;
        let (text, name) = (args.text("query")?, args.opt_text("name"));
        let query = compiled(&self.engine, &snapshot, text, name)?;
        let query = GraphQuery {
            params: QueryParams::of(args)?.bind(&query.params)?,
            query,
            now: context.pin.now(&context.metadata),
            mode: run.host.settings().traversal,
            embedder: Arc::new(Embedder {
                run: run.clone(),
                schema: Arc::clone(&snapshot.schema),
            }),
            exact: false,
        };
        let metadata = &context.metadata;
        let plan = query.plan(state, metadata, &snapshot, run.pin(), wanted);
        plan.await.map_err(from_datafusion)
    }

    async fn run(self: Arc<Self>, args: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        // Every call is planned.
        Err(args.invalid("query", "cannot run without a plan"))
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name).literal(),
        ArgSpec::required("query", ArgType::Text).literal(),
        ArgSpec::optional("params", ArgType::Params),
        ArgSpec::optional("branch", ArgType::Name).literal(),
        ArgSpec::optional("snapshot", ArgType::Snapshot),
        ArgSpec::optional("name", ArgType::Text).literal(),
    ];
    Arc::new(Function {
        engine: Arc::clone(engine),
        spec: FunctionSpec::read(VERB, args),
    })
}
