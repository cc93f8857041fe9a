//! The file source of fragment scans: Parquet's own, behind a wrapper.
//!
//! The wrapper changes nothing about a scan. It exists because a plan that is serialised would lose
//! the deletion masks, which travel as per-file extensions: the wrapper has no serialised form, so
//! encoding such a plan fails instead of bringing dead rows back. It also keeps the snapshot pin of
//! the statement for as long as the plan lives.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::PartitionedFile;
use datafusion_datasource::morsel::Morselizer;
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use object_store::ObjectStore;

use crate::error::not_encoded;
use crate::pin::StatementPin;

/// Parquet's file source with a pin and without a serialised form.
#[derive(Clone)]
pub struct MaskedSource {
    inner: Arc<dyn FileSource>,
    pin: Option<Arc<StatementPin>>,
}

impl MaskedSource {
    /// Wraps a Parquet source; `pin` is released with the last plan that uses it.
    pub fn new(inner: ParquetSource, pin: Option<Arc<StatementPin>>) -> Self {
        Self {
            inner: Arc::new(inner),
            pin,
        }
    }

    fn rewrap(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self {
            inner,
            pin: self.pin.clone(),
        })
    }
}

impl FileSource for MaskedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        self.inner.create_morselizer(store, config, partition)
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        self.rewrap(self.inner.with_batch_size(batch_size))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(t, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        min_size: usize,
        ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        // The answer is a copy of `config`, so it keeps this wrapper.
        self.inner
            .repartitioned(target_partitions, min_size, ordering, config)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut answer = self.inner.try_pushdown_filters(filters, config)?;
        answer.updated_node = answer.updated_node.map(|inner| self.rewrap(inner));
        Ok(answer)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        let answer = self.inner.try_pushdown_sort(order, properties)?;
        Ok(answer.map(|inner| self.rewrap(inner)))
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let answer = self.inner.try_pushdown_projection(projection)?;
        Ok(answer.map(|inner| self.rewrap(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn try_to_proto(
        &self,
        _base: &FileScanConfig,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded("a scan of fragments"))
    }
}
