//! `graph_branch_create`, `graph_branch_delete` and `graph_branches`: branches of a graph.

use std::sync::Arc;

use stratagraph::catalog::branch::branches;
use stratagraph::catalog::graph::{At, graph, graph_dataset};
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::branch::{CreateBranch, create_branch, delete_branch};
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{BranchReport, BranchRow, Micros};
use crate::verbs::finished;

const CREATE: &str = "graph_branch_create";
const DELETE: &str = "graph_branch_delete";
const LIST: &str = "graph_branches";

/// What a branch is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BranchFrom {
    /// The head of the main branch.
    #[default]
    Main,
    /// The head of the branch of this name, else the commit of this id in any branch.
    Named(String),
    /// The main branch as it was at this catalog version.
    Catalog(u64),
}

/// Makes a branch. It shares everything with the state that it is made from.
pub(crate) async fn graph_branch_create(
    run: &Run,
    name: &Name,
    branch: &str,
    from: &BranchFrom,
) -> Result<BranchReport> {
    let span = tracing::info_span!("graph_branch_create", graph = %name, branch);
    let work = async {
        run.host.check_writes(CREATE)?;
        let branch = BranchName::parse(branch)?;
        let requester = run.requester();
        run.authorize(&requester, GraphAction::BranchCreate, name, &branch)?;
        let run = run.fresh().await?;
        let (from, at) = resolve(&run, name, from).await?;
        let request = CreateBranch {
            graph: name.clone(),
            branch: branch.clone(),
            from,
            at,
            requester,
        };
        let stage = run.begin().await?;
        let commit = create_branch(run.catalog(), stage, request).await?;
        run.learn_branch(name, &branch).await;
        Ok(finished(BranchReport {
            graph: name.to_string(),
            branch: branch.to_string(),
            commit_id: commit.commit_id,
            outcome: "created".to_owned(),
        }))
    };
    work.instrument(span).await
}

/// The branch and the state that a branch is made from.
async fn resolve(run: &Run, name: &Name, from: &BranchFrom) -> Result<(BranchName, At)> {
    let text = match from {
        BranchFrom::Main => return Ok((BranchName::main(), At::Head)),
        BranchFrom::Catalog(version) => return Ok((BranchName::main(), At::Catalog(*version))),
        BranchFrom::Named(text) => text,
    };
    let (store, head) = (run.catalog().store(), run.snapshot().await?);
    let dataset = graph_dataset(store, &head, name).await?;
    if let Ok(branch) = BranchName::parse(text)
        && dataset.branch(&branch).is_some()
    {
        return Ok((branch, At::Head));
    }
    let at = At::Commit(text.clone());
    for branch in dataset.branches.keys() {
        match graph(store, &head, name, branch, &at).await {
            Ok(_) => return Ok((branch.clone(), at)),
            Err(Error::NotFound { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Error::NotFound {
        what: "branch or commit",
        name: format!("{text} of {name}"),
    })
}

/// Deletes a branch.
pub(crate) async fn graph_branch_delete(
    run: &Run,
    name: &Name,
    branch: &str,
) -> Result<BranchReport> {
    let span = tracing::info_span!("graph_branch_delete", graph = %name, branch);
    let work = async {
        run.host.check_writes(DELETE)?;
        let branch = BranchName::parse(branch)?;
        let requester = run.requester();
        run.authorize(&requester, GraphAction::BranchDelete, name, &branch)?;
        let stage = run.begin().await?;
        let (catalog, graph) = (run.catalog(), name.clone());
        let commit = delete_branch(catalog, stage, graph, branch.clone(), requester).await?;
        run.learn_graph(name).await;
        Ok(finished(BranchReport {
            graph: name.to_string(),
            branch: branch.to_string(),
            commit_id: commit.commit_id,
            outcome: "deleted".to_owned(),
        }))
    };
    work.instrument(span).await
}

/// The branches of a graph in the statement's snapshot, by name.
pub(crate) async fn graph_branches(run: &Run, name: &Name) -> Result<Vec<BranchRow>> {
    let head = run.snapshot().await?;
    let all = branches(run.catalog().store(), &head, name).await?;
    let row = |info: stratagraph::catalog::branch::BranchInfo| BranchRow {
        branch: info.name.to_string(),
        head: info.commit_id,
        parent: info.parent.map(|parent| parent.to_string()),
        created_at: Micros(info.created_at),
    };
    Ok(all.into_iter().map(row).collect())
}

fn from_of(args: &BoundArgs) -> Result<BranchFrom> {
    match args.get("from") {
        ArgValue::Null => Ok(BranchFrom::Main),
        ArgValue::Text(text) => Ok(BranchFrom::Named(text.clone())),
        ArgValue::Int(version) => match u64::try_from(*version) {
            Ok(version) => Ok(BranchFrom::Catalog(version)),
            Err(_) => Err(args.invalid("from", "a catalog version is not negative")),
        },
        _ => Err(args.invalid(
            "from",
            "expected a branch, a commit id or a catalog version",
        )),
    }
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 3] {
    let graph = || ArgSpec::required("graph", ArgType::Name);
    let branch = || ArgSpec::required("branch", ArgType::Name);
    let from = ArgSpec::optional("from", ArgType::Snapshot);
    let create = FunctionSpec::verb(CREATE, vec![graph(), branch(), from]);
    let delete = FunctionSpec::verb(DELETE, vec![graph(), branch()]);
    let list = FunctionSpec::read(LIST, vec![graph()]);
    [
        ReportFunction::of::<BranchReport>(engine, create, |call| {
            Box::pin(async move {
                let (name, branch) = (call.name("graph")?, call.args.text("branch")?);
                let from = from_of(&call.args)?;
                answer(&[graph_branch_create(&call.run, &name, branch, &from).await?])
            })
        }),
        ReportFunction::of::<BranchReport>(engine, delete, |call| {
            Box::pin(async move {
                let (name, branch) = (call.name("graph")?, call.args.text("branch")?);
                answer(&[graph_branch_delete(&call.run, &name, branch).await?])
            })
        }),
        ReportFunction::of::<BranchRow>(engine, list, |call| {
            Box::pin(async move { answer(&graph_branches(&call.run, &call.name("graph")?).await?) })
        }),
    ]
}
