//! `graph_branch_merge`: what one branch changed goes into another, all of it or nothing.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::merge::{MergeBranch, merge_branch};
use stratagraph_providers::{ArgSpec, ArgType, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{BranchReport, ConflictRow};
use crate::verbs::finished;

const VERB: &str = "graph_branch_merge";

/// A merge of a branch of a graph into another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphMerge {
    /// The graph.
    pub graph: String,
    /// The branch whose changes are taken.
    pub source: String,
    /// The branch that takes them.
    pub into: String,
    /// Whether the source is deleted in the same commit.
    pub delete_source: bool,
}

async fn request(run: &Run, merge: &GraphMerge, dry_run: bool) -> Result<MergeBranch> {
    run.host.check_writes(VERB)?;
    Ok(MergeBranch {
        graph: Name::parse(&merge.graph)?,
        source: BranchName::parse(&merge.source)?,
        into: BranchName::parse(&merge.into)?,
        delete_source: merge.delete_source,
        dry_run,
        requester: run.requester(),
    })
}

/// Runs the verb.
pub(crate) async fn graph_branch_merge(run: &Run, merge: &GraphMerge) -> Result<BranchReport> {
    let span = tracing::info_span!(
        "graph_branch_merge",
        graph = merge.graph,
        source = merge.source
    );
    let work = async {
        let request = request(run, merge, false).await?;
        let (who, graph) = (&request.requester, &request.graph);
        run.authorize(who, GraphAction::BranchMerge, graph, &request.into)?;
        if request.delete_source {
            run.authorize(who, GraphAction::BranchDelete, graph, &request.source)?;
        }
        let (name, into) = (request.graph.clone(), request.into.clone());
        let env = run.host.env(run.catalog().env());
        let stage = run.begin().await?;
        let outcome = merge_branch(run.catalog(), &env, stage, request).await?;
        run.learn_branch(&name, &into).await;
        let commit_id = match outcome.commit {
            Some(commit) => commit.commit_id,
            None => run
                .fresh()
                .await?
                .graph(&name, &into, None)
                .await?
                .commit_id()
                .to_owned(),
        };
        Ok(finished(BranchReport {
            graph: name.to_string(),
            branch: into.to_string(),
            commit_id,
            outcome: outcome.kind.as_str().to_owned(),
        }))
    };
    work.instrument(span).await
}

/// What keeps two branches from being merged; nothing is written.
pub(crate) async fn graph_merge_conflicts(
    run: &Run,
    merge: &GraphMerge,
) -> Result<Vec<ConflictRow>> {
    let request = request(run, merge, true).await?;
    let env = run.host.env(run.catalog().env());
    let stage = run.begin().await?;
    let outcome = merge_branch(run.catalog(), &env, stage, request).await?;
    let row = |conflict: stratagraph::graph::conflict::MergeConflict| ConflictRow {
        r#type: conflict.type_name,
        id: conflict.id,
        kind: conflict.kind.as_str().to_owned(),
        detail: conflict.detail,
    };
    Ok(outcome.conflicts.0.into_iter().map(row).collect())
}

fn merge_of(args: &BoundArgs) -> Result<GraphMerge> {
    Ok(GraphMerge {
        graph: args.text("graph")?.to_owned(),
        source: args.text("source")?.to_owned(),
        into: args.text("into")?.to_owned(),
        delete_source: args.flag("delete_source"),
    })
}

/// The SQL function: conflicts with `dry_run`, else the report.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("source", ArgType::Name),
        ArgSpec::required("into", ArgType::Name),
        ArgSpec::optional("delete_source", ArgType::Bool),
        // The answer has other columns.
        ArgSpec::optional("dry_run", ArgType::Bool).literal(),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::with_dry_run::<BranchReport, ConflictRow>(engine, spec, |call| {
        Box::pin(async move {
            let (run, merge) = (&call.run, merge_of(&call.args)?);
            match call.args.flag("dry_run") {
                true => answer(&graph_merge_conflicts(run, &merge).await?),
                false => answer(&[graph_branch_merge(run, &merge).await?]),
            }
        })
    })
}
