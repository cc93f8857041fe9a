//! `graph_mutate`: statements that change a graph, as one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::graph::query::{Mutation, compile_mutation};
use stratagraph::publish::{Requester, only_moved_since};
use stratagraph::store::Stager;
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::load::fill;
use super::params::QueryParams;
use super::query::graph_and_branch;
use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::load::{self, ATTEMPTS, LoadMode, Models, Request};
use crate::mutate::{Call, EDGES, NODES, Outcome, digest, evaluate, publish};
use crate::report::GraphMutateReport;
use crate::verbs::finished;

const VERB: &str = "graph_mutate";

/// What the call was, so that a repeated request id is known to be the same.
const BODY: &str = "request_body";

/// A mutation of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphMutate {
    /// The graph, or `graph@branch`.
    pub graph: String,
    /// Text of the query language.
    pub query: String,
    /// Which query, where the text has several.
    pub name: Option<String>,
    /// Values of its parameters.
    pub params: QueryParams,
    /// The branch.
    pub branch: Option<String>,
    /// The commit that the branch must be at.
    pub if_commit: Option<String>,
    /// Whether vectors with `@embed` that are missing are made from their text.
    pub fill: bool,
    /// Whether deletes may stand beside other statements.
    pub mixed: bool,
    /// Who asks; with a request id the mutation is done once.
    pub requester: Requester,
}

impl GraphMutate {
    /// The only query of a text, without parameters, on the branch that the graph's name says.
    pub fn new(graph: impl Into<String>, query: impl Into<String>) -> Self {
        Self {
            graph: graph.into(),
            query: query.into(),
            name: None,
            params: QueryParams::Values(Vec::new()),
            branch: None,
            if_commit: None,
            fill: false,
            mixed: false,
            requester: Requester::default(),
        }
    }

    /// A digest of what the call asks for, whoever asks.
    fn body(&self) -> i64 {
        digest(&json!([
            self.query,
            self.name,
            self.params.json(),
            self.fill,
            self.mixed
        ]))
    }
}

/// Runs `graph_mutate`.
pub(crate) async fn graph_mutate(run: &Run, call: GraphMutate) -> Result<GraphMutateReport> {
    let span = tracing::info_span!("graph_mutate", graph = %call.graph);
    let work = async {
        run.host.check_writes(VERB)?;
        let (graph, branch) = graph_and_branch(VERB, &call.graph, call.branch.as_deref())?;
        let now = run.catalog().env().clock.now_micros();
        let request = Request {
            graph,
            branch,
            from: None,
            mode: LoadMode::Merge,
            types: BTreeSet::new(),
            exact: call.if_commit.is_some(),
            fill: call.fill,
            requester: run.named(call.requester.clone()),
        };
        let (who, change) = (&request.requester, GraphAction::Change);
        run.authorize(who, change, &request.graph, &request.branch)?;
        let report = attempts(run, &call, &request, now).await?;
        if report.commit_id.is_some() {
            run.learn_branch(&request.graph, &request.branch).await;
        }
        Ok(finished(report))
    };
    work.instrument(span).await
}

async fn attempts(
    run: &Run,
    call: &GraphMutate,
    request: &Request,
    now: i64,
) -> Result<GraphMutateReport> {
    let mut models = None;
    for attempt in 1..=ATTEMPTS {
        // Begun first: what is read and staged after it is safe from a garbage collection.
        let stage = run.begin().await?;
        let run = run.fresh().await?;
        let base = run.graph(&request.graph, &request.branch, None).await?;
        if let Some(done) = done_before(&run, call, &base).await? {
            return Ok(done);
        }
        expect(&run, call, &base).await?;
        let schema = &base.schema;
        let mutation = compile_mutation(&call.query, call.name.as_deref(), schema, call.mixed)?;
        let this = Try {
            run: &run,
            call,
            request,
            base: &base,
            mutation: &mutation,
        };
        match this.commit(now, &mut models, stage).await {
            Err(Error::ReadSetChanged { .. })
                if call.if_commit.is_some() || mutation.inserts_only() =>
            {
                // With `if_commit` the next try finds another head, and says so.
                tracing::debug!(attempt, "another commit came first");
                run.back_off(attempt).await;
            }
            Err(lost @ Error::ReadSetChanged { .. }) => {
                // Unless it was this very request, by another call.
                let run = run.fresh().await?;
                let base = run.graph(&request.graph, &request.branch, None).await?;
                return done_before(&run, call, &base).await?.ok_or(lost);
            }
            other => return other,
        }
    }
    Err(Error::CommitConflict {
        dataset: request.graph.to_string(),
        attempts: ATTEMPTS,
    })
}

fn place(base: &GraphSnapshot) -> String {
    format!("{}@{}", base.name, base.branch)
}

/// The branch is where the caller expects it, but for rows that moved.
async fn expect(run: &Run, call: &GraphMutate, base: &GraphSnapshot) -> Result<()> {
    let Some(expected) = &call.if_commit else {
        return Ok(());
    };
    match only_moved_since(run.catalog().store(), base, expected, None).await? {
        true => Ok(()),
        false => Err(Error::PreconditionFailed {
            branch: place(base),
            expected: expected.clone(),
            actual: base.commit_id().to_owned(),
        }),
    }
}

/// The report of an earlier call with the same request id.
async fn done_before(
    run: &Run,
    call: &GraphMutate,
    base: &GraphSnapshot,
) -> Result<Option<GraphMutateReport>> {
    let id = call.requester.request_id.as_deref();
    let store = run.catalog().store();
    let Some(manifest) = load::commit_before(store, base, id).await? else {
        return Ok(None);
    };
    if manifest.counts.get(BODY) != Some(&call.body()) {
        return Err(Error::RequestIdReused {
            branch: place(base),
            request_id: id.unwrap_or_default().to_owned(),
            commit_id: manifest.commit.id.clone(),
        });
    }
    Ok(Some(report_of(&manifest)))
}

fn report_of(manifest: &BranchManifest) -> GraphMutateReport {
    let count = |name: &str| {
        let count = manifest.counts.get(name).copied().unwrap_or(0);
        u64::try_from(count).unwrap_or(0)
    };
    GraphMutateReport {
        affected_nodes: count(NODES),
        affected_edges: count(EDGES),
        commit_id: Some(manifest.commit.id.clone()),
    }
}

/// One try on one state of the branch.
struct Try<'a> {
    run: &'a Run,
    call: &'a GraphMutate,
    request: &'a Request,
    base: &'a GraphSnapshot,
    mutation: &'a Mutation,
}

impl Try<'_> {
    async fn commit(
        &self,
        now: i64,
        models: &mut Option<Models>,
        stage: Stager,
    ) -> Result<GraphMutateReport> {
        let (run, request, base) = (self.run, self.request, self.base);
        let values = self.call.params.bind(&self.mutation.params)?;
        let call = Call {
            mutation: self.mutation,
            params: &values,
            now,
            fill: request.fill,
        };
        let outcome = evaluate(run, base, &call).await?;
        let loaded = &outcome.loaded;
        if loaded.is_empty() {
            return self.nothing(&outcome).await;
        }
        let counts = self.counts(&outcome);
        let published = publish(run, request, base, loaded, models, stage, |_| counts);
        match published.await?.commit {
            None => self.nothing(&outcome).await,
            Some(commit) => Ok(GraphMutateReport {
                commit_id: Some(commit.commit_id),
                ..without_commit(&outcome)
            }),
        }
    }

    fn counts(&self, outcome: &Outcome) -> BTreeMap<String, i64> {
        let mut counts = outcome.counts();
        if self.request.requester.request_id.is_some() {
            counts.insert(BODY.to_owned(), self.call.body());
        }
        counts
    }

    /// A call that changes nothing makes no commit; what it was told about the branch holds until
    /// it ends.
    async fn nothing(&self, outcome: &Outcome) -> Result<GraphMutateReport> {
        if self.call.if_commit.is_some() {
            let run = self.run.fresh().await?;
            let (graph, branch) = (&self.request.graph, &self.request.branch);
            let now = run.graph(graph, branch, None).await?;
            expect(&run, self.call, &now).await?;
        }
        Ok(without_commit(outcome))
    }
}

fn without_commit(outcome: &Outcome) -> GraphMutateReport {
    GraphMutateReport {
        affected_nodes: outcome.nodes,
        affected_edges: outcome.edges,
        commit_id: None,
    }
}

fn call_of(args: &BoundArgs) -> Result<GraphMutate> {
    let text = |name: &str| args.opt_text(name).map(str::to_owned);
    Ok(GraphMutate {
        name: text("name"),
        params: QueryParams::of(args)?,
        branch: text("branch"),
        if_commit: text("if_commit"),
        fill: fill(args)?,
        mixed: args.flag("mixed"),
        requester: Requester {
            actor: text("actor"),
            request_id: text("request_id"),
        },
        ..GraphMutate::new(args.text("graph")?, args.text("query")?)
    })
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("query", ArgType::Text),
        ArgSpec::optional("params", ArgType::Params),
        ArgSpec::optional("branch", ArgType::Name),
        ArgSpec::optional("if_commit", ArgType::Text),
        ArgSpec::or("embed", ArgType::Text, ArgValue::Text("none".to_owned())),
        ArgSpec::or("mixed", ArgType::Bool, ArgValue::Bool(false)),
        ArgSpec::optional("actor", ArgType::Text),
        ArgSpec::optional("name", ArgType::Text),
        ArgSpec::optional("request_id", ArgType::Text),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<GraphMutateReport>(engine, spec, |call| {
        Box::pin(async move {
            let mutate = call_of(&call.args)?;
            answer(&[graph_mutate(&call.run, mutate).await?])
        })
    })
}
