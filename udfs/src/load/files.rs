//! The files that a load names.

use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::DataFusionError;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use stratagraph::graph::input::Source;
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use crate::host::Host;

/// The files of a path, a URL, a glob or a directory (with `/` at its end) through the session's
/// object stores, in the order of their names.
///
/// # Errors
/// `NotFound` for a file that is not there, and when nothing matches; the store's.
pub(crate) async fn find(host: &Host, text: &str) -> Result<Vec<Source>> {
    let missing = || Error::NotFound {
        what: "input file",
        name: text.to_owned(),
    };
    let url = ListingTableUrl::parse(text).map_err(from_datafusion)?;
    let store = host.runtime().object_store(&url).map_err(from_datafusion)?;
    // Listings that the session remembers are dropped here.
    let state = host.context().state();
    let list = async {
        let files = url.list_all_files(&state, store.as_ref(), "").await?;
        files.try_collect::<Vec<ObjectMeta>>().await
    };
    let mut files = match list.await {
        Ok(files) => files,
        Err(DataFusionError::ObjectStore(error))
            if matches!(*error, object_store::Error::NotFound { .. }) =>
        {
            return Err(missing());
        }
        Err(error) => return Err(from_datafusion(error)),
    };
    if files.is_empty() {
        return Err(missing());
    }
    files.sort_by(|a, b| a.location.cmp(&b.location));
    let sources = files.into_iter().map(|file| Source {
        store: Arc::clone(&store),
        path: file.location,
    });
    Ok(sources.collect())
}

/// A text as the one file of an input.
#[expect(
    clippy::disallowed_methods,
    reason = "a store of this call alone, in memory"
)]
pub(crate) async fn of_text(text: &str) -> Result<Vec<Source>> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let path = Path::from("input");
    let put = store.put(&path, text.to_owned().into()).await;
    put.map_err(|error| Error::storage("put", "input", error))?;
    Ok(vec![Source { store, path }])
}
