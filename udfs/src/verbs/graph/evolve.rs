//! `graph_apply_schema`: another schema for a branch of a graph, in one commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::evolve::{Circumstances, Evolution, RefusedSteps, Step};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::publish::Requester;
use stratagraph::publish::evolve::{SchemaChange, change_schema};
use stratagraph::publish::graph::GraphCommit;
use stratagraph::store::Stager;
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::create::compile;
use super::query::graph_and_branch;
use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::load::{ATTEMPTS, Prover};
use crate::report::SchemaStepRow;
use crate::verbs::finished;

const VERB: &str = "graph_apply_schema";

/// Another schema for a branch of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySchema {
    /// The graph, or `graph@branch`.
    pub graph: String,
    /// Text of the schema language, or a path that ends in `.pg`.
    pub schema: String,
    /// The branch.
    pub branch: Option<String>,
    /// Whether the data of what is dropped goes from the files of the branch and from its history;
    /// else older versions keep it.
    pub allow_data_loss: bool,
    /// Whether to find out only.
    pub dry_run: bool,
    /// Who asks.
    pub requester: Requester,
}

impl ApplySchema {
    /// A schema for the branch that the graph's name says; dropped data stays in the history.
    pub fn new(graph: impl Into<String>, schema: impl Into<String>) -> Self {
        Self {
            graph: graph.into(),
            schema: schema.into(),
            branch: None,
            allow_data_loss: false,
            dry_run: false,
            requester: Requester::default(),
        }
    }
}

/// Runs the verb: the steps that were done, none if the branch has this schema already.
pub(crate) async fn graph_apply_schema(
    run: &Run,
    call: &ApplySchema,
) -> Result<Vec<SchemaStepRow>> {
    let span = tracing::info_span!("graph_apply_schema", graph = %call.graph);
    let work = async {
        run.host.check_writes(VERB)?;
        let (graph, branch) = graph_and_branch(VERB, &call.graph, call.branch.as_deref())?;
        let requester = run.named(call.requester.clone());
        run.authorize(&requester, GraphAction::SchemaApply, &graph, &branch)?;
        let wanted = compile(&run.host, VERB, &call.schema).await?;
        let steps = attempts(run, call, &wanted).await?;
        Ok(steps.into_iter().map(row).collect())
    };
    work.instrument(span).await
}

async fn attempts(run: &Run, call: &ApplySchema, wanted: &GraphSchema) -> Result<Vec<Step>> {
    let (graph, branch) = graph_and_branch(VERB, &call.graph, call.branch.as_deref())?;
    for attempt in 1..=ATTEMPTS {
        // Begun first: what is read and staged after it is safe from a garbage collection.
        let stage = run.begin().await?;
        let run = run.fresh().await?;
        let base = run.graph(&graph, &branch, None).await?;
        let this = Try {
            run: &run,
            call,
            base: &base,
        };
        let evolution = this.plan(wanted).await?;
        if evolution.steps.is_empty() || call.dry_run {
            return Ok(evolution.steps);
        }
        let steps = evolution.steps.clone();
        match this.commit(stage, evolution).await {
            Err(Error::ReadSetChanged { .. }) => {
                tracing::debug!(attempt, "another commit came first");
                run.back_off(attempt).await;
            }
            Err(other) => return Err(other),
            Ok(_) => {
                run.learn_branch(&graph, &branch).await;
                return Ok(finished(steps));
            }
        }
    }
    Err(Error::CommitConflict {
        dataset: graph.to_string(),
        attempts: ATTEMPTS,
    })
}

fn row(step: Step) -> SchemaStepRow {
    SchemaStepRow {
        step: step.text,
        kind: step.kind.as_str().to_owned(),
        supported: step.supported,
        code: step.code.map(str::to_owned),
    }
}

/// One try on one state of the branch.
struct Try<'a> {
    run: &'a Run,
    call: &'a ApplySchema,
    base: &'a GraphSnapshot,
}

impl Try<'_> {
    /// The way to the schema, and nothing that stored rows break: a dry run lists refused steps, any
    /// other call fails with them.
    async fn plan(&self, wanted: &GraphSchema) -> Result<Evolution> {
        let settings = self.run.host.settings();
        let circumstances = Circumstances {
            populated: self.populated().await?,
            hard: self.call.allow_data_loss,
            default_model: &settings.default_model,
        };
        let evolution = Evolution::plan(&self.base.schema, wanted.clone(), &circumstances)?;
        let refused: Vec<Step> = evolution.refused().cloned().collect();
        match (refused.is_empty(), self.call.dry_run) {
            (true, _) => {}
            (false, true) => return Ok(evolution),
            (false, false) => {
                return Err(Error::SchemaChangeRefused {
                    graph: format!("{}@{}", self.base.name, self.base.branch),
                    steps: RefusedSteps(refused),
                });
            }
        }
        let prover = Prover {
            run: self.run,
            base: self.base,
            schema: &evolution.schema,
        };
        let found = prover.run(&evolution.proofs).await?;
        match found.error(self.base.name.as_str(), None) {
            Some(error) => Err(error),
            None => Ok(evolution),
        }
    }

    async fn populated(&self) -> Result<BTreeSet<u64>> {
        let store = self.run.catalog().store();
        let mut populated = BTreeSet::new();
        for of in &self.base.schema.types {
            if self.base.table(store, of.id).await?.table.live_rows > 0 {
                populated.insert(of.id);
            }
        }
        Ok(populated)
    }

    async fn commit(&self, stage: Stager, evolution: Evolution) -> Result<GraphCommit> {
        let catalog = self.run.catalog();
        let env = self.run.host.env(catalog.env());
        let change = SchemaChange {
            base: self.base.clone(),
            schema: Arc::new(evolution.schema),
            hard: self.call.allow_data_loss,
            requester: self.run.named(self.call.requester.clone()),
        };
        change_schema(catalog, &env, stage, change).await
    }
}

fn call_of(args: &BoundArgs) -> Result<ApplySchema> {
    let text = |name: &str| args.opt_text(name).map(str::to_owned);
    Ok(ApplySchema {
        branch: text("branch"),
        allow_data_loss: args.flag("allow_data_loss"),
        dry_run: args.flag("dry_run"),
        requester: Requester {
            actor: text("actor"),
            request_id: None,
        },
        ..ApplySchema::new(args.text("graph")?, args.text("schema")?)
    })
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let flag = |name| ArgSpec::or(name, ArgType::Bool, ArgValue::Bool(false));
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("schema", ArgType::Text),
        ArgSpec::optional("branch", ArgType::Name),
        flag("allow_data_loss"),
        flag("dry_run"),
        ArgSpec::optional("actor", ArgType::Text),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<SchemaStepRow>(engine, spec, |call| {
        Box::pin(async move {
            let apply = call_of(&call.args)?;
            answer(&graph_apply_schema(&call.run, &apply).await?)
        })
    })
}
