//! Changes as one commit: validation over the change set and the stored rows, vectors, fragments.

use std::collections::BTreeMap;

use stratagraph::Result;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::slot::CommitKind;
use stratagraph::publish::graph::GraphCommit;
use stratagraph::store::Stager;

use crate::engine::Run;
use crate::load::{self, Attempt, Loaded, Models, Request};

/// Counts of a commit.
pub(crate) const NODES: &str = "affected_nodes";
pub(crate) const EDGES: &str = "affected_edges";

/// The counts of a commit.
pub(crate) fn counts(nodes: u64, edges: u64) -> BTreeMap<String, i64> {
    let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    BTreeMap::from([
        (NODES.to_owned(), int(nodes)),
        (EDGES.to_owned(), int(edges)),
    ])
}

/// What became of some changes.
pub(crate) struct Published {
    /// `None` if nothing was to be written.
    pub(crate) commit: Option<GraphCommit>,
    /// Rows that were written.
    pub(crate) written: u64,
}

/// Checks changes of a state and commits them.
///
/// # Errors
/// `RecordsInvalid` or `KeyConflict` for what is wrong with the rows, `ReadSetChanged` when the branch
/// moved since `base` was read, and the commit's own. Nothing is changed then.
pub(crate) async fn publish(
    run: &Run,
    request: &Request,
    base: &GraphSnapshot,
    loaded: &Loaded,
    models: &mut Option<Models>,
    stage: Stager,
    counts: impl FnOnce(&Attempt<'_>) -> BTreeMap<String, i64> + Send,
) -> Result<Published> {
    // What a model has answered is kept for the next try.
    let models = match models {
        Some(models) => models,
        None => {
            let opened = load::open_models(run, request, &base.schema, loaded).await?;
            models.insert(opened)
        }
    };
    let mut attempt = Attempt::begin(run, request, loaded, models, base).await?;
    let found = attempt.check().await?;
    if let Some(error) = found.error(request.graph.as_str(), None) {
        return Err(error);
    }
    let written = attempt.written();
    if !attempt.writes() {
        let commit = None;
        return Ok(Published { commit, written });
    }
    let counts = counts(&attempt);
    let commit = attempt.commit(stage, CommitKind::Mutate, counts).await?;
    Ok(Published {
        commit: Some(commit),
        written,
    })
}
