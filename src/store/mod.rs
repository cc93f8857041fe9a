//! Objects under one root: slots that are created once, and staged objects that never change.

mod cache;
pub mod disk;
pub mod layout;
pub mod local;
mod open;
mod pages;
mod stage;
mod verified;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, path::Path,
};
use serde::{Deserialize, Serialize};

pub use cache::{CacheStats, ObjectCache};
pub use local::{Blocking, LocalStore};
pub use open::redact_url;
pub use pages::{PageEntry, PageTree};
pub use stage::{Stager, format_runs, parse_runs};
pub use verified::{BlockSums, DataFile, FileSums, VerifiedFile};

use crate::digest::Digest;
use crate::{Error, Result, limits};

/// A reference to an immutable object or to a part of a pack: its key relative to the root, size in
/// bytes and SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjRef {
    /// Key relative to the root; of a part also where it begins ([`layout::part_key`]).
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Digest of these bytes.
    pub sha256: Digest,
}

/// The answer of a create-only put: only `Created` says anything about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object was created by this call.
    Created,
    /// Any other answer: taken, refused, timed out, reset. Read the slot to know.
    Unresolved,
}

/// The bytes of a slot and the e_tag that the store gave with them.
#[derive(Debug, Clone)]
pub struct SlotBytes {
    /// The whole object.
    pub bytes: Bytes,
    /// The store's e_tag without quotes, if it has any.
    pub e_tag: Option<String>,
}

/// One slot, as the store describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSlot {
    /// Catalog version.
    pub version: u64,
    /// The store's e_tag without quotes, if the description carries any.
    pub e_tag: Option<String>,
}

/// All objects under one root of an object store.
#[derive(Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: Path,
    display: String,
    atomic_list: bool,
    cache: ObjectCache,
    indexes: ObjectCache,
    local: Option<LocalStore>,
}

/// A slot whose bytes are on the medium already.
#[derive(Debug)]
pub(crate) struct ReadySlot(local::ReadyFile);

fn unquoted(e_tag: Option<String>) -> Option<String> {
    e_tag.map(|tag| tag.trim_matches('"').to_owned())
}

impl Store {
    /// A root at `prefix` of `inner`. `display` names it in messages and must hold no secret.
    /// `atomic_list` says that one LIST is one view of all names (not so for local directories).
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        prefix: Path,
        display: impl Into<String>,
        atomic_list: bool,
    ) -> Self {
        let cache = ObjectCache::default();
        Self {
            inner,
            prefix,
            display: display.into(),
            atomic_list,
            cache,
            indexes: ObjectCache::with_capacity(limits::INDEX_CACHE_BYTES),
            local: None,
        }
    }

    /// A root in a directory of local files.
    pub fn on_files(files: LocalStore, display: impl Into<String>) -> Self {
        let inner = Arc::new(files.clone());
        Self {
            local: Some(files),
            ..Self::new(inner, Path::default(), display, false)
        }
    }

    /// A root in this process's memory.
    pub fn memory() -> Self {
        let inner = Arc::new(object_store::memory::InMemory::new());
        Self::new(inner, Path::default(), "memory:///", true)
    }

    /// The object store below.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// The root's name for messages.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Whether one LIST is one view.
    pub fn has_atomic_list(&self) -> bool {
        self.atomic_list
    }

    /// What searches keep of fragments: vectors, indexes over them and over texts.
    pub fn indexes(&self) -> &ObjectCache {
        &self.indexes
    }

    /// The cache of immutable objects.
    pub fn cache(&self) -> &ObjectCache {
        &self.cache
    }

    /// The full path of a key; keys are made by [`layout`] or come from checked references.
    pub fn path(&self, key: &str) -> Path {
        Path::from_iter(
            self.prefix
                .parts()
                .chain(Path::from(key).parts())
                .map(|p| p.as_ref().to_owned()),
        )
    }

    fn key_of(&self, path: &Path) -> Option<String> {
        if self.prefix.as_ref().is_empty() {
            return Some(path.as_ref().to_owned());
        }
        let rest = path.as_ref().strip_prefix(self.prefix.as_ref())?;
        rest.strip_prefix('/').map(str::to_owned)
    }

    /// Puts an immutable staged object. The same bytes may be put again, so retries are harmless.
    pub async fn put_object(&self, key: &str, bytes: Bytes) -> Result<()> {
        let options = PutOptions {
            mode: PutMode::Overwrite,
            ..Default::default()
        };
        self.inner
            .put_opts(&self.path(key), bytes.into(), options)
            .await
            .map_err(|e| Error::storage("put", key, e))?;
        Ok(())
    }

    /// Brings the bytes of a slot to the medium before it is created, where the store can do that: on
    /// local files each step waits for the medium.
    pub(crate) async fn ready_slot(&self, version: u64, bytes: Bytes) -> Option<ReadySlot> {
        let path = self.path(&layout::slot_key(version));
        match self.local.as_ref()?.ready(&path, bytes).await {
            Ok(ready) => Some(ReadySlot(ready)),
            Err(error) => {
                tracing::debug!(version, %error, "a slot could not be made ready");
                None
            }
        }
    }

    /// As [`Store::create_slot`], of bytes that may be ready.
    pub(crate) async fn create_ready(
        &self,
        version: u64,
        bytes: Bytes,
        ready: Option<ReadySlot>,
    ) -> Created {
        let (Some(local), Some(ReadySlot(ready))) = (&self.local, ready) else {
            return self.create_slot(version, bytes).await;
        };
        let path = self.path(&layout::slot_key(version));
        match local.create(&path, ready).await {
            Ok(_) => Created::Created,
            Err(error) => {
                tracing::debug!(version, %error, "create of a slot is unresolved");
                Created::Unresolved
            }
        }
    }

    /// One create-only put of a slot.
    pub async fn create_slot(&self, version: u64, bytes: Bytes) -> Created {
        let options = PutOptions {
            mode: PutMode::Create,
            ..Default::default()
        };
        let path = self.path(&layout::slot_key(version));
        match self.inner.put_opts(&path, bytes.into(), options).await {
            Ok(_) => Created::Created,
            Err(error) => {
                tracing::debug!(version, %error, "create of a slot is unresolved");
                Created::Unresolved
            }
        }
    }

    /// Whether the backend refuses to create an object twice, tried at `key`, which is then deleted.
    ///
    /// # Errors
    /// `StoreNotSupported` where create-only puts are not implemented; any failure of the store.
    pub async fn honours_create(&self, key: &str) -> Result<bool> {
        let path = self.path(key);
        let options = || PutOptions {
            mode: PutMode::Create,
            ..Default::default()
        };
        let create = |text: &'static str| self.inner.put_opts(&path, text.into(), options());
        match create("first").await {
            // Taken: a retry inside the client met its own object.
            Ok(_) | Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
            Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
                let reason = "it has no create-only puts; commits need them";
                return Err(Error::StoreNotSupported {
                    root: self.display.clone(),
                    reason,
                });
            }
            Err(e) => return Err(Error::storage("create", key, e)),
        }
        let refused = match create("second").await {
            Ok(_) => false,
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => true,
            Err(e) => return Err(Error::storage("create", key, e)),
        };
        self.delete(key).await?;
        Ok(refused)
    }

    /// Reads a slot; `None` when it is not there.
    pub async fn read_slot(&self, version: u64) -> Result<Option<SlotBytes>> {
        let key = layout::slot_key(version);
        match self
            .inner
            .get_opts(&self.path(&key), GetOptions::default())
            .await
        {
            Ok(result) => {
                check_size("bytes of a catalog slot", result.meta.size)?;
                let e_tag = unquoted(result.meta.e_tag.clone());
                let bytes = result
                    .bytes()
                    .await
                    .map_err(|e| Error::storage("get", &key, e))?;
                Ok(Some(SlotBytes { bytes, e_tag }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(Error::storage("get", &key, e)),
        }
    }

    /// The description of a slot; `None` when it is not there.
    pub async fn slot(&self, version: u64) -> Result<Option<ListedSlot>> {
        let key = layout::slot_key(version);
        match self.inner.head(&self.path(&key)).await {
            Ok(meta) => {
                let e_tag = unquoted(meta.e_tag);
                Ok(Some(ListedSlot { version, e_tag }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(Error::storage("head", &key, e)),
        }
    }

    /// One LIST of all slots after `offset` (a key), read to its last page; the largest version.
    pub async fn last_slot_after(&self, offset: &str) -> Result<Option<ListedSlot>> {
        let prefix = self.path(layout::CATALOG);
        let offset = self.path(offset);
        let mut listing = self.inner.list_with_offset(Some(&prefix), &offset);
        let mut last: Option<ListedSlot> = None;
        while let Some(meta) = listing
            .try_next()
            .await
            .map_err(|e| Error::storage("list", layout::CATALOG, e))?
        {
            let version = self
                .key_of(&meta.location)
                .as_deref()
                .and_then(layout::parse_slot);
            if let Some(version) = version
                && last.as_ref().is_none_or(|l| l.version < version)
            {
                last = Some(ListedSlot {
                    version,
                    e_tag: unquoted(meta.e_tag),
                });
            }
        }
        Ok(last)
    }

    /// The numbers of all catalog directories, ascending.
    pub async fn slot_directories(&self) -> Result<Vec<u64>> {
        let prefix = self.path(layout::CATALOG);
        let listed = self
            .inner
            .list_with_delimiter(Some(&prefix))
            .await
            .map_err(|e| Error::storage("list", layout::CATALOG, e))?;
        let mut numbers: Vec<u64> = listed
            .common_prefixes
            .iter()
            .filter_map(|path| layout::parse_slot_directory(&self.key_of(path)?))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// All keys under a prefix with their sizes, sorted.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let path = self.path(prefix);
        let metas: Vec<ObjectMeta> = self
            .inner
            .list(Some(&path))
            .try_collect()
            .await
            .map_err(|e| Error::storage("list", prefix, e))?;
        let mut keys: Vec<(String, u64)> = metas
            .iter()
            .filter_map(|m| Some((self.key_of(&m.location)?, m.size)))
            .collect();
        keys.sort();
        Ok(keys)
    }

    /// Deletes an object; one that is already gone is no error.
    pub async fn delete(&self, key: &str) -> Result<()> {
        self.cache.forget(key);
        match self.inner.delete(&self.path(key)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(e) => Err(Error::storage("delete", key, e)),
        }
    }

    /// Reads a whole metadata object and checks size and digest. Cached: the object cannot change.
    pub async fn get(&self, artifact: &'static str, object: &ObjRef) -> Result<Bytes> {
        check_size("bytes of a metadata object", object.size)?;
        if let Some(bytes) = self.cache.bytes(&object.key) {
            return Ok(bytes);
        }
        let bytes = self.get_uncached(artifact, object).await?;
        self.cache.put_bytes(&object.key, bytes.clone());
        Ok(bytes)
    }

    /// As [`Store::get`], past the cache and of any size; for verification.
    pub async fn get_uncached(&self, artifact: &'static str, object: &ObjRef) -> Result<Bytes> {
        let corrupt = |expected, found| Error::corrupt(artifact, &object.key, expected, found);
        let result = self.open_object(object).await?;
        let (_, at) = layout::split_part(&object.key);
        let size = |bytes: u64| format!("{bytes} bytes");
        if at.is_none() && result.meta.size != object.size {
            return Err(corrupt(size(object.size), size(result.meta.size)));
        }
        let bytes = result
            .bytes()
            .await
            .map_err(|e| Error::storage("get", &object.key, e))?;
        if bytes.len() as u64 != object.size {
            return Err(corrupt(size(object.size), size(bytes.len() as u64)));
        }
        let found = Digest::of(&bytes);
        if found != object.sha256 {
            return Err(corrupt(object.sha256.to_string(), found.to_string()));
        }
        Ok(bytes)
    }

    /// Begins to read an object, or the bytes of its part, unverified.
    pub(crate) async fn open_object(&self, object: &ObjRef) -> Result<GetResult> {
        let (key, at) = layout::split_part(&object.key);
        let range = at.map(|at| GetRange::Bounded(at..at.saturating_add(object.size)));
        let options = GetOptions {
            range,
            ..GetOptions::default()
        };
        let opened = self.inner.get_opts(&self.path(key), options).await;
        opened.map_err(|e| Error::storage("get", &object.key, e))
    }

    /// Ranges of an object, unverified; only [`VerifiedFile`] calls it.
    async fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let parts = self.inner.get_ranges(&self.path(key), ranges).await;
        let parts = parts.map_err(|e| Error::storage("get", key, e))?;
        if parts.len() != ranges.len() {
            let found = format!("{} ranges", parts.len());
            let expected = format!("{} ranges", ranges.len());
            return Err(Error::corrupt("object", key, expected, found));
        }
        Ok(parts)
    }
}

fn check_size(what: &'static str, size: u64) -> Result<()> {
    if size > limits::METADATA_BYTES {
        return Err(Error::ResourceLimitExceeded {
            what,
            value: size,
            limit: limits::METADATA_BYTES,
        });
    }
    Ok(())
}
