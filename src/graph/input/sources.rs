//! Files of an input.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::io::AsyncRead;
use tokio_util::io::StreamReader;

use crate::{Error, Result};

/// Decompressed bytes.
pub(super) type Bytes = Pin<Box<dyn AsyncRead + Send>>;

/// One file of an input, on any store.
#[derive(Debug, Clone)]
pub struct Source {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// Its key. `.gz` and `.zst` at the end say how it is compressed.
    pub path: Path,
}

impl Source {
    /// The name that messages give it.
    pub fn name(&self) -> &str {
        self.path.as_ref()
    }

    /// Its bytes, decompressed as they come.
    pub(super) async fn open(&self) -> Result<Bytes> {
        let got = self.store.get(&self.path).await;
        let got = got.map_err(|error| Error::storage("get", self.name(), error))?;
        let bytes = StreamReader::new(got.into_stream().map_err(io::Error::other));
        let name = self.name();
        Ok(if name.ends_with(".gz") {
            let mut decoder = GzipDecoder::new(bytes);
            decoder.multiple_members(true);
            Box::pin(decoder)
        } else if name.ends_with(".zst") {
            let mut decoder = ZstdDecoder::new(bytes);
            decoder.multiple_members(true);
            Box::pin(decoder)
        } else {
            Box::pin(bytes)
        })
    }

    /// The error of a read: the store's own, or damage that the decoder met.
    pub(super) fn failed(name: &str, error: io::Error) -> Error {
        let text = error.to_string();
        let inner = error.into_inner().map(|inner| inner.downcast());
        if let Some(Ok(store)) = inner {
            return Error::storage("get", name, *store);
        }
        Error::InvalidArgument {
            function: "graph_load".to_owned(),
            argument: "source".to_owned(),
            reason: format!(
                "the bytes of {name:?} cannot be decompressed: {text}; write the file again"
            ),
        }
    }
}

/// The files of `store` whose keys match `pattern`, sorted by their keys: `?` is one character and
/// `*` any number of them within one segment, `**` any number over segments. A pattern without any
/// of these is the key of one file, which is not looked up.
///
/// # Errors
/// The store's; [`Error::NotFound`] when no key matches.
pub async fn glob(store: &Arc<dyn ObjectStore>, pattern: &str) -> Result<Vec<Source>> {
    let source = |path| Source {
        store: Arc::clone(store),
        path,
    };
    let Some(wild) = pattern.find(['*', '?']) else {
        return Ok(vec![source(Path::from(pattern))]);
    };
    let folder = pattern[..wild].rfind('/').map_or("", |end| &pattern[..end]);
    let prefix = (!folder.is_empty()).then(|| Path::from(folder));
    let pattern = pattern.trim_start_matches('/');
    let mut paths: Vec<Path> = store
        .list(prefix.as_ref())
        .map_ok(|meta| meta.location)
        .try_filter(|path| futures::future::ready(matches(pattern, path.as_ref())))
        .try_collect()
        .await
        .map_err(|error| Error::storage("list", folder, error))?;
    if paths.is_empty() {
        return Err(Error::NotFound {
            what: "input file",
            name: pattern.to_owned(),
        });
    }
    paths.sort();
    Ok(paths.into_iter().map(source).collect())
}

/// Whether a key matches: for each prefix of the pattern, the prefixes of the key that it matches.
fn matches(pattern: &str, key: &str) -> bool {
    let key: Vec<char> = key.chars().collect();
    let mut reached = vec![false; key.len() + 1];
    reached[0] = true;
    let mut pattern = pattern.chars().peekable();
    while let Some(wanted) = pattern.next() {
        let over = wanted == '*' && pattern.next_if_eq(&'*').is_some();
        if wanted == '*' {
            for at in 0..key.len() {
                reached[at + 1] |= reached[at] && (over || key[at] != '/');
            }
            continue;
        }
        for at in (0..key.len()).rev() {
            let same = key[at] == wanted || (wanted == '?' && key[at] != '/');
            reached[at + 1] = reached[at] && same;
        }
        reached[0] = false;
    }
    reached[key.len()]
}
