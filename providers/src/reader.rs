//! Readers of fragments: every byte that Parquet sees came through the engine's verifying reader.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_datasource::PartitionedFile;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::file::metadata::ParquetMetaData;
use stratagraph::table::file::FragmentFile;

/// What a scanned file carries: the open fragment.
#[derive(Debug, Clone)]
pub(crate) struct FragmentHandle(pub(crate) FragmentFile);

/// Makes the engine's reader for each file of a scan.
#[derive(Debug, Default)]
pub(crate) struct FragmentReaders;

impl ParquetFileReaderFactory for FragmentReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let Some(FragmentHandle(inner)) = file.extension::<FragmentHandle>() else {
            return Err(DataFusionError::Internal(format!(
                "file {} of a fragment scan has no fragment",
                file.object_meta.location
            )));
        };
        let location = file.object_meta.location.as_ref();
        Ok(Box::new(MeteredReader {
            inner: inner.clone(),
            size: file.object_meta.size as usize,
            metrics: ParquetFileMetrics::new(partition_index, location, metrics),
        }))
    }
}

/// The engine's reader with the counters that EXPLAIN ANALYZE shows for any Parquet file.
struct MeteredReader {
    inner: FragmentFile,
    size: usize,
    metrics: ParquetFileMetrics,
}

impl AsyncFileReader for MeteredReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.metrics
            .bytes_scanned
            .add((range.end - range.start) as usize);
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        let total: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        self.metrics.bytes_scanned.add(total as usize);
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        self.inner.get_metadata(options)
    }
}

impl Drop for MeteredReader {
    fn drop(&mut self) {
        let ratio = &self.metrics.scan_efficiency_ratio;
        ratio.add_part(self.metrics.bytes_scanned.value());
        ratio.set_total(self.size);
    }
}

/// The URL of fragment scans. DataFusion insists on a registered store behind it; the one that is
/// registered refuses every call, so no read can go round the verifying reader.
pub(crate) fn fragment_url(runtime: &RuntimeEnv) -> Result<ObjectStoreUrl> {
    let url = ObjectStoreUrl::parse("stratagraph://fragments")?;
    if runtime.object_store(&url).is_err() {
        runtime.register_object_store(url.as_ref(), Arc::new(NoStore));
    }
    Ok(url)
}

/// A store of nothing.
#[derive(Debug)]
struct NoStore;

impl NoStore {
    fn refuse<T>(operation: &str) -> object_store::Result<T> {
        Err(object_store::Error::NotSupported {
            source: format!("{operation} of a fragment outside of the verifying reader").into(),
        })
    }
}

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stratagraph fragments")
    }
}

#[async_trait::async_trait]
impl ObjectStore for NoStore {
    async fn put_opts(
        &self,
        _: &Path,
        _: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        Self::refuse("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Self::refuse("put")
    }

    async fn get_opts(&self, _: &Path, _: GetOptions) -> object_store::Result<GetResult> {
        Self::refuse("get")
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        use futures::StreamExt;
        locations.map(|_| Self::refuse("delete")).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        use futures::StreamExt;
        futures::stream::once(async { Self::refuse("list") }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        Self::refuse("list")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        Self::refuse("copy")
    }
}
