//! What a load is asked to do, and whether it was done before.

use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::store::Store;
use stratagraph::{Result, limits};

/// The commit that an earlier call with a request id has made, with its manifest. The newest
/// versions of the branch are asked.
pub(crate) async fn done_before(
    store: &Store,
    base: &GraphSnapshot,
    request_id: Option<&str>,
) -> Result<Option<BranchManifest>> {
    let Some(wanted) = request_id else {
        return Ok(None);
    };
    let current = &base.current;
    if current.commit.request_id.as_deref() == Some(wanted) {
        return Ok(Some(current.as_ref().clone()));
    }
    let most = usize::try_from(limits::REQUEST_ID_VERSIONS - 1).unwrap_or(usize::MAX);
    let entries = current.history.newest(store, most).await?;
    let found = entries
        .into_iter()
        .find(|entry| entry.request_id.as_deref() == Some(wanted));
    match found {
        Some(entry) => BranchManifest::load(store, &entry.manifest).await.map(Some),
        None => Ok(None),
    }
}
