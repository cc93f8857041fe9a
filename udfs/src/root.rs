//! From a root to a store: a directory, or the URL of an object store.

use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::store::local::LocalStore;
use stratagraph::store::{Store, redact_url};
use stratagraph::{Error, Result};
use url::Url;

/// Stores of this process by host of their `memory` URL.
static MEMORY: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

fn unsupported(root: &str, reason: &'static str) -> Error {
    Error::StoreNotSupported {
        root: redact_url(root),
        reason,
    }
}

/// Opens a root; no store call.
///
/// `memory://name` is one store per process and name. Any scheme but `file` and `memory` takes the
/// object store that the host registered for the URL: credentials are the host's affair.
pub(crate) fn open(root: &str, runtime: &RuntimeEnv) -> Result<Store> {
    let Some((scheme, _)) = root.split_once("://") else {
        return local(root, FilePath::new(root));
    };
    let url = Url::parse(root).map_err(|_| unsupported(root, "its URL cannot be read"))?;
    let display = redact_url(root);
    match scheme.to_ascii_lowercase().as_str() {
        "file" => {
            let path = url.to_file_path();
            let path =
                path.map_err(|()| unsupported(root, "a file URL names a local directory"))?;
            local(&display, &path)
        }
        "memory" => {
            let name = url.host_str().unwrap_or_default().to_owned();
            let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            let store = Arc::clone(stores.entry(name).or_default());
            Ok(Store::new(store, prefix(root, &url)?, display, true))
        }
        _ => {
            let store: Arc<dyn ObjectStore> = runtime
                .object_store_registry
                .get_store(&url)
                .map_err(|_| unsupported(root, "no object store is registered for its URL"))?;
            Ok(Store::new(store, prefix(root, &url)?, display, true))
        }
    }
}

fn prefix(root: &str, url: &Url) -> Result<Path> {
    Path::from_url_path(url.path()).map_err(|_| unsupported(root, "its path cannot be read"))
}

fn local(display: &str, directory: &FilePath) -> Result<Store> {
    if directory.as_os_str().is_empty() {
        return Err(unsupported(display, "an empty path is no directory"));
    }
    let directory: PathBuf = directory.to_path_buf();
    let store = LocalStore::new(directory)
        .map_err(|_| unsupported(display, "its path cannot be made absolute"))?;
    Ok(Store::on_files(store, display))
}
