//! `graph_expire`: older states of a branch and what only they referenced, gone.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::graph::{self, At, GraphSnapshot};
use stratagraph::catalog::{Expire, Head};
use stratagraph::store::Store;
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::query::graph_and_branch;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::GraphExpireReport;
use crate::verbs::finished;

const VERB: &str = "graph_expire";

/// Which states of a branch expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpireBefore {
    /// Those that were no longer current at this catalog version.
    Catalog(u64),
    /// Those before this commit of the branch.
    Commit(String),
}

/// Runs the verb. The states go with one commit; only then are objects deleted.
pub(crate) async fn graph_expire(
    run: &Run,
    of: &str,
    before: &ExpireBefore,
    branch: Option<&str>,
) -> Result<GraphExpireReport> {
    let (name, branch) = graph_and_branch(VERB, of, branch)?;
    let span = tracing::info_span!("graph_expire", graph = %name, %branch);
    let work = async {
        run.host.check_writes(VERB)?;
        // Read without a pin, which would keep from deletion what is to go.
        let head = run.catalog().look().await?;
        let store = run.catalog().store();
        let now = graph::graph(store, &head, &name, &branch, &At::Head).await?;
        let expire = Expire {
            name: name.clone(),
            dataset: Some(now.dataset.id.clone()),
            branch_id: Some(now.manifest.branch.clone()),
            branch: branch.clone(),
            before: first_kept(store, &head, &now, before).await?,
            include_base: true,
            expired: Vec::new(),
        };
        let (expired, swept) = run.catalog().expire(expire).await?;
        run.learn_branch(&name, &branch).await;
        Ok(finished(GraphExpireReport {
            graph: name.to_string(),
            branch: branch.to_string(),
            expired: expired.len() as u64,
            objects_deleted: swept.objects,
        }))
    };
    work.instrument(span).await
}

/// The oldest version of the branch that stays.
async fn first_kept(
    store: &Store,
    head: &Head,
    now: &GraphSnapshot,
    before: &ExpireBefore,
) -> Result<u64> {
    let at = match before {
        ExpireBefore::Catalog(version) => At::Catalog(*version),
        ExpireBefore::Commit(id) => At::Commit(id.clone()),
    };
    if let At::Commit(_) = at {
        let state = graph::graph(store, head, &now.name, &now.branch, &at).await?;
        return Ok(state.manifest.version);
    }
    let version = graph::retained_version(store, &now.current, &at).await?;
    Ok(version.unwrap_or(0))
}

fn before_of(args: &BoundArgs) -> Result<ExpireBefore> {
    match args.get("before") {
        ArgValue::Text(id) => Ok(ExpireBefore::Commit(id.clone())),
        ArgValue::Int(version) => match u64::try_from(*version) {
            Ok(version) => Ok(ExpireBefore::Catalog(version)),
            Err(_) => Err(args.invalid("before", "a catalog version is not negative")),
        },
        _ => Err(args.invalid("before", "expected a commit id or a catalog version")),
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("before", ArgType::Snapshot),
        ArgSpec::optional("branch", ArgType::Name),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<GraphExpireReport>(engine, spec, |call| {
        Box::pin(async move {
            let (graph, branch) = (call.args.text("graph")?, call.args.opt_text("branch"));
            let before = before_of(&call.args)?;
            answer(&[graph_expire(&call.run, graph, &before, branch).await?])
        })
    })
}
