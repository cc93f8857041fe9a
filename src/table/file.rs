//! A fragment's object as the Parquet readers see it: verified bytes and cached metadata.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::error::ArrowError;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::footer::nonsense;
use super::guard::{decode, decode_async};
use crate::store::{DataFile, Store, VerifiedFile};
use crate::{Error, Result};

/// Bytes and reads that readers asked for; shared by all readers of one scan.
#[derive(Debug, Default)]
pub struct ReadCount {
    bytes: AtomicU64,
    reads: AtomicU64,
}

impl ReadCount {
    /// Bytes asked for, cached ones included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Calls that asked for bytes.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads one fragment. Every byte is checked against the manifest's checksums; a mismatch arrives as
/// `ParquetError::External` around [`Error::Corrupt`], which [`read_error`] unwraps.
#[derive(Debug, Clone)]
pub struct FragmentFile {
    file: VerifiedFile,
    count: Arc<ReadCount>,
}

impl FragmentFile {
    /// Opens without any store call.
    pub fn new(store: Arc<Store>, file: Arc<DataFile>) -> Self {
        Self {
            file: VerifiedFile::new(store, file),
            count: Arc::default(),
        }
    }

    /// Counts into `count`.
    pub fn with_count(mut self, count: Arc<ReadCount>) -> Self {
        self.count = count;
        self
    }

    /// What was read so far.
    pub fn count(&self) -> &Arc<ReadCount> {
        &self.count
    }

    /// The object's key.
    pub fn key(&self) -> &str {
        &self.file.file().object.key
    }

    /// Metadata with the page index: one read of the end of the file, once per process while it stays
    /// in the cache.
    pub async fn metadata(&self) -> Result<Arc<ParquetMetaData>> {
        let (store, entry) = (self.file.store(), self.file.file());
        let cached = format!("meta:{}", entry.object.key);
        if let Some(metadata) = store.cache().get::<ParquetMetaData>(&cached) {
            return Ok(metadata);
        }
        let prefetch = usize::try_from(entry.footer.min(entry.object.size)).unwrap_or(0);
        let (mut input, key) = (self.clone(), &entry.object.key);
        let load = async {
            let reader = ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Optional)
                .with_prefetch_hint(Some(prefetch));
            let loaded = reader.load_and_finish(&mut input, entry.object.size).await;
            loaded.map_err(|e| read_error(key, e))
        };
        let metadata = decode_async("fragment", key, load).await?;
        if let Some(found) = nonsense(&metadata, entry.object.size) {
            return Err(Error::corrupt(
                "fragment",
                key,
                "a footer that fits its file",
                found,
            ));
        }
        let metadata = Arc::new(metadata);
        let bytes = metadata.memory_size() + cached.len() * 2 + 64;
        store.cache().put(&cached, Arc::clone(&metadata), bytes);
        Ok(metadata)
    }

    /// Bytes of the bloom filter of a leaf column in a row group; 0 if it has none.
    pub(crate) fn bloom_bytes(&self, metadata: &ParquetMetaData, group: usize, leaf: usize) -> u64 {
        let chunk = metadata
            .row_groups()
            .get(group)
            .and_then(|g| g.columns().get(leaf));
        let length = chunk.and_then(|c| c.bloom_filter_length());
        length.and_then(|l| u64::try_from(l).ok()).unwrap_or(0)
    }

    /// The bloom filter of a leaf column in a row group; `None` if it has none.
    pub(crate) async fn bloom(
        &self,
        metadata: &ParquetMetaData,
        group: usize,
        leaf: usize,
    ) -> Result<Option<Arc<Sbbf>>> {
        let cached = format!("bloom:{group}.{leaf}:{}", self.key());
        let store = self.file.store();
        if let Some(bloom) = store.cache().get::<Sbbf>(&cached) {
            return Ok(Some(bloom));
        }
        let chunk = metadata
            .row_groups()
            .get(group)
            .and_then(|g| g.columns().get(leaf));
        let place = chunk.and_then(|c| c.bloom_filter_offset().zip(c.bloom_filter_length()));
        let Some((offset, length)) = place else {
            return Ok(None);
        };
        let start = u64::try_from(offset).unwrap_or(u64::MAX);
        let end = start.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        let bytes = self.read(start..end).await?;
        let bloom = decode("fragment", self.key(), || {
            Sbbf::from_bytes(&bytes).map_err(|e| read_error(self.key(), e))
        })?;
        if bloom.num_blocks() == 0 {
            return Ok(None);
        }
        let (bloom, size) = (Arc::new(bloom), bytes.len() + cached.len() * 2 + 64);
        store.cache().put(&cached, Arc::clone(&bloom), size);
        Ok(Some(bloom))
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.count.add(range.end.saturating_sub(range.start));
        self.file.read(range).await
    }
}

fn external(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for FragmentFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { self.read(range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move {
            let bytes = ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum();
            self.count.add(bytes);
            self.file.read_many(ranges).await.map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        // The options choose how much metadata to load; the cached value always has all of it.
        async move { self.metadata().await.map_err(external) }.boxed()
    }
}

/// The engine's own error inside a Parquet error, or the Parquet error of the object `key`.
pub fn read_error(key: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(inner) => match inner.downcast::<ArrowError>() {
                Ok(arrow) => Error::Arrow { source: *arrow },
                Err(other) => parquet(key, ParquetError::External(other)),
            },
        },
        other => parquet(key, other),
    }
}

fn parquet(key: &str, source: ParquetError) -> Error {
    Error::Parquet {
        path: key.to_owned(),
        source,
    }
}
