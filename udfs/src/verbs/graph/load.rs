//! `graph_load` and `graph_load_table`: records from files or from a query as one commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::DataFrame;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::input::{Grammar, InputOptions, OnError};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::Requester;
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction, from_datafusion,
};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::load::{self, LoadMode, Loaded, Request};
use crate::report::{GraphLoadReport, ViolationRow};
use crate::source::Source;
use crate::verbs::finished;

const LOAD: &str = "graph_load";
const LOAD_TABLE: &str = "graph_load_table";

/// Where the records of a load are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadSource {
    /// A path, a URL or a glob of JSONL files, `.gz` and `.zst` too.
    Files(String),
    /// JSONL itself.
    Text(String),
}

/// A load of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLoad {
    /// The graph.
    pub graph: String,
    /// The records.
    pub source: LoadSource,
    /// What becomes of rows that exist.
    pub mode: LoadMode,
    /// The branch.
    pub branch: String,
    /// The branch to make it from, if there is none of its name.
    pub base: Option<String>,
    /// How records are written.
    pub grammar: Grammar,
    /// What becomes of a value of a wrong type.
    pub on_error: OnError,
    /// Whether vectors with `@embed` that are missing are made from their text.
    pub fill: bool,
    /// Types that an overwrite replaces though the input has none of them.
    pub types: Vec<String>,
    /// Who asks; with a request id the load is done once.
    pub requester: Requester,
}

impl GraphLoad {
    /// A load of the files of a path, a URL or a glob, in the strict grammar.
    pub fn new(graph: impl Into<String>, files: impl Into<String>, mode: LoadMode) -> Self {
        Self {
            graph: graph.into(),
            source: LoadSource::Files(files.into()),
            mode,
            branch: BranchName::main().to_string(),
            base: None,
            grammar: Grammar::Strict,
            on_error: OnError::Fail,
            fill: false,
            types: Vec::new(),
            requester: Requester::default(),
        }
    }

    /// A load of JSONL that is in memory.
    pub fn of_text(graph: impl Into<String>, text: impl Into<String>, mode: LoadMode) -> Self {
        Self {
            source: LoadSource::Text(text.into()),
            ..Self::new(graph, "", mode)
        }
    }
}

/// A load of rows of one type from the session.
#[derive(Debug, Clone)]
pub struct GraphLoadTable {
    /// The graph.
    pub graph: String,
    /// The type.
    pub type_name: String,
    /// The rows: columns by name, of edges `from` and `to`.
    pub source: TableSource,
    /// What becomes of rows that exist.
    pub mode: LoadMode,
    /// The branch.
    pub branch: String,
    /// Whether vectors with `@embed` that are missing are made from their text.
    pub fill: bool,
    /// Who asks; with a request id the load is done once.
    pub requester: Requester,
}

/// Rows of the session.
#[derive(Debug, Clone)]
pub enum TableSource {
    /// A table by name.
    Table(String),
    /// A query.
    Query(Arc<LogicalPlan>),
}

impl GraphLoadTable {
    /// A load of a table of the session.
    pub fn new(
        graph: impl Into<String>,
        type_name: impl Into<String>,
        table: impl Into<String>,
        mode: LoadMode,
    ) -> Self {
        Self {
            graph: graph.into(),
            type_name: type_name.into(),
            source: TableSource::Table(table.into()),
            mode,
            branch: BranchName::main().to_string(),
            fill: false,
            requester: Requester::default(),
        }
    }
}

fn invalid(function: &str, argument: &str, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: function.to_owned(),
        argument: argument.to_owned(),
        reason: reason.into(),
    }
}

/// The id of a type by its name: a node type, else an edge type.
fn type_id(schema: &GraphSchema, function: &str, argument: &str, name: &str) -> Result<u64> {
    let found = schema.node(name).or_else(|| schema.edge(name));
    found.map(|of| of.id).ok_or_else(|| {
        let all: Vec<&str> = schema.types.iter().map(|t| t.name.as_str()).collect();
        let reason = format!("the graph has no type {name:?}; it has {}", all.join(", "));
        invalid(function, argument, reason)
    })
}

fn type_ids(schema: &GraphSchema, load: &GraphLoad) -> Result<BTreeSet<u64>> {
    if !load.types.is_empty() && load.mode != LoadMode::Overwrite {
        let reason = "only mode 'overwrite' replaces types";
        return Err(invalid(LOAD, "types", reason));
    }
    let names = load.types.iter();
    names
        .map(|name| type_id(schema, LOAD, "types", name))
        .collect()
}

/// A load that is checked and read.
struct Ready {
    run: Run,
    request: Request,
    schema: Arc<GraphSchema>,
    loaded: Loaded,
}

enum Prepared {
    /// A call with the same request id has made this commit.
    Done(GraphLoadReport),
    Ready(Box<Ready>),
}

/// The state that a load begins on. Whoever writes is asked for first.
async fn begin(run: &Run, request: &Request) -> Result<(Run, GraphSnapshot)> {
    let (who, graph, branch) = (&request.requester, &request.graph, &request.branch);
    run.authorize(who, GraphAction::Change, graph, branch)?;
    let run = run.fresh().await?;
    let base = load::base(&run, request).await?;
    if request.forks(&base) {
        run.authorize(who, GraphAction::BranchCreate, graph, branch)?;
    }
    Ok((run, base))
}

async fn prepare(run: &Run, load: &GraphLoad) -> Result<Prepared> {
    let mut request = Request {
        graph: Name::parse(&load.graph)?,
        branch: BranchName::parse(&load.branch)?,
        from: load.base.as_deref().map(BranchName::parse).transpose()?,
        mode: load.mode,
        types: BTreeSet::new(),
        exact: false,
        fill: load.fill,
        requester: run.named(load.requester.clone()),
    };
    let (run, base) = begin(run, &request).await?;
    if let Some(done) = load::done_before(&run, &request, &base).await? {
        return Ok(Prepared::Done(done));
    }
    request.types = type_ids(&base.schema, load)?;
    let sources = match &load.source {
        LoadSource::Files(text) => load::find(&run.host, text).await?,
        LoadSource::Text(text) => load::of_text(text).await?,
    };
    let options = InputOptions {
        grammar: load.grammar,
        on_error: load.on_error,
        fill_embeddings: load.fill,
        line_bytes: run.host.settings().line_bytes,
        ..InputOptions::default()
    };
    let schema = Arc::clone(&base.schema);
    let loaded = load::read_files(&run, &schema, sources, options).await?;
    Ok(Prepared::Ready(Box::new(Ready {
        run,
        request,
        schema,
        loaded,
    })))
}

impl Prepared {
    async fn commit(self) -> Result<GraphLoadReport> {
        let ready = match self {
            Self::Done(report) => return Ok(report),
            Self::Ready(ready) => ready,
        };
        let (run, request) = (&ready.run, &ready.request);
        let report = load::commit(run, request, &ready.schema, &ready.loaded).await?;
        run.learn_branch(&request.graph, &request.branch).await;
        Ok(finished(report))
    }
}

/// Runs `graph_load`.
pub(crate) async fn graph_load(run: &Run, load: GraphLoad) -> Result<GraphLoadReport> {
    let span = tracing::info_span!("graph_load", graph = %load.graph, mode = ?load.mode);
    let work = async {
        run.host.check_writes(LOAD)?;
        prepare(run, &load).await?.commit().await
    };
    work.instrument(span).await
}

/// What `graph_load` would refuse; nothing is written.
pub(crate) async fn graph_load_violations(run: &Run, load: GraphLoad) -> Result<Vec<ViolationRow>> {
    let ready = match prepare(run, &load).await? {
        Prepared::Done(_) => return Ok(Vec::new()),
        Prepared::Ready(ready) => ready,
    };
    let Ready {
        run,
        request,
        schema,
        loaded,
    } = ready.as_ref();
    let violations = load::violations(run, request, schema, loaded).await?;
    let row = |v: stratagraph::graph::violation::Violation| ViolationRow {
        record: v.record,
        r#type: v.type_name,
        id: v.id,
        rule: v.rule.to_owned(),
        message: v.message,
    };
    Ok(violations.0.into_iter().map(row).collect())
}

/// Runs `graph_load_table`.
pub(crate) async fn graph_load_table(run: &Run, load: GraphLoadTable) -> Result<GraphLoadReport> {
    let span = tracing::info_span!("graph_load_table", graph = %load.graph, mode = ?load.mode);
    let work = async {
        run.host.check_writes(LOAD_TABLE)?;
        let request = Request {
            graph: Name::parse(&load.graph)?,
            branch: BranchName::parse(&load.branch)?,
            from: None,
            mode: load.mode,
            types: BTreeSet::new(),
            exact: false,
            fill: load.fill,
            requester: run.named(load.requester.clone()),
        };
        let (run, base) = begin(run, &request).await?;
        if let Some(done) = load::done_before(&run, &request, &base).await? {
            return Ok(done);
        }
        let schema = Arc::clone(&base.schema);
        let type_id = type_id(&schema, LOAD_TABLE, "type", &load.type_name)?;
        let Some(of) = schema.by_id(type_id) else {
            return Err(invalid(LOAD_TABLE, "type", "the graph has no such type"));
        };
        let context = run.host.context();
        let frame = match &load.source {
            TableSource::Table(name) => {
                Source::find(&run.host, name).await?.table(&context).await?
            }
            TableSource::Query(plan) => DataFrame::new(context.state(), plan.as_ref().clone()),
        };
        let rows = frame.execute_stream().await.map_err(from_datafusion)?;
        let loaded = load::read_rows(&run, &schema, of, rows, load.fill).await?;
        let ready = Ready {
            run,
            request,
            schema: Arc::clone(&schema),
            loaded,
        };
        Prepared::Ready(Box::new(ready)).commit().await
    };
    work.instrument(span).await
}

/// One of some words.
fn word<T: Copy>(args: &BoundArgs, name: &str, words: &[(&str, T)]) -> Result<T> {
    let text = args.text(name)?;
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
        args.invalid(
            name,
            format!("expected {}, found {text:?}", all.join(" or ")),
        )
    })
}

fn mode(args: &BoundArgs) -> Result<LoadMode> {
    let words = [
        ("overwrite", LoadMode::Overwrite),
        ("append", LoadMode::Append),
        ("merge", LoadMode::Merge),
    ];
    word(args, "mode", &words)
}

pub(super) fn fill(args: &BoundArgs) -> Result<bool> {
    word(args, "embed", &[("none", false), ("fill", true)])
}

fn load_of(args: &BoundArgs) -> Result<GraphLoad> {
    let text = |name: &str| args.opt_text(name).map(str::to_owned);
    let grammars = [
        ("strict", Grammar::Strict),
        ("compatible", Grammar::Compatible),
    ];
    let on_error = [("fail", OnError::Fail), ("null", OnError::Null)];
    Ok(GraphLoad {
        branch: args.text("branch")?.to_owned(),
        base: text("base"),
        grammar: word(args, "grammar", &grammars)?,
        on_error: word(args, "on_error", &on_error)?,
        fill: fill(args)?,
        types: args.names("types").to_vec(),
        requester: Requester {
            actor: text("actor"),
            request_id: text("request_id"),
        },
        ..GraphLoad::new(args.text("graph")?, args.text("source")?, mode(args)?)
    })
}

fn text_or(name: &'static str, default: &str) -> ArgSpec {
    ArgSpec::or(name, ArgType::Text, ArgValue::Text(default.to_owned()))
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 2] {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("source", ArgType::Text),
        ArgSpec::required("mode", ArgType::Text),
        text_or("branch", "main"),
        ArgSpec::optional("base", ArgType::Name),
        text_or("grammar", "strict"),
        text_or("embed", "none"),
        ArgSpec::optional("types", ArgType::Names),
        text_or("on_error", "fail"),
        ArgSpec::or("dry_run", ArgType::Bool, ArgValue::Bool(false)).literal(),
        ArgSpec::optional("actor", ArgType::Text),
        ArgSpec::optional("request_id", ArgType::Text),
    ];
    let spec = FunctionSpec::verb(LOAD, args);
    // The violations with `dry_run`, else the report.
    let load =
        ReportFunction::with_dry_run::<GraphLoadReport, ViolationRow>(engine, spec, |call| {
            Box::pin(async move {
                let (run, load) = (&call.run, load_of(&call.args)?);
                match call.args.flag("dry_run") {
                    true => answer(&graph_load_violations(run, load).await?),
                    false => answer(&[graph_load(run, load).await?]),
                }
            })
        });
    [load, table_function(engine)]
}

fn table_function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("type", ArgType::Name),
        ArgSpec::required("source", ArgType::Relation),
        ArgSpec::required("mode", ArgType::Text),
        text_or("branch", "main"),
        text_or("embed", "none"),
        ArgSpec::optional("actor", ArgType::Text),
        ArgSpec::optional("request_id", ArgType::Text),
    ];
    let spec = FunctionSpec::verb(LOAD_TABLE, args);
    ReportFunction::of::<GraphLoadReport>(engine, spec, |call| {
        Box::pin(async move {
            let args = &call.args;
            let text = |name: &str| args.opt_text(name).map(str::to_owned);
            let load = GraphLoadTable {
                source: match args.opt_plan("source") {
                    Some(plan) => TableSource::Query(Arc::clone(plan)),
                    None => TableSource::Table(args.text("source")?.to_owned()),
                },
                branch: args.text("branch")?.to_owned(),
                fill: fill(args)?,
                requester: Requester {
                    actor: text("actor"),
                    request_id: text("request_id"),
                },
                ..GraphLoadTable::new(args.text("graph")?, args.text("type")?, "", mode(args)?)
            };
            answer(&[graph_load_table(&call.run, load).await?])
        })
    })
}
