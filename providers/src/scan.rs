//! The scan of one version of a table: one `DataSourceExec` over its live fragments.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::catalog::Session;
use datafusion::common::Statistics;
use datafusion::common::config::TableParquetOptions;
use datafusion::common::project_schema;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion_datasource::PartitionedFile;
use futures::future::try_join_all;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::store::Store;
use stratagraph::table::file::FragmentFile;
use stratagraph::table::manifest::Fragment;
use stratagraph::table::mask;

use crate::adapter::FieldIdAdapterFactory;
use crate::columns::{PlannedTable, all_columns, map_columns};
use crate::error::ResultExt;
use crate::masked_source::MaskedSource;
use crate::pin::StatementPin;
use crate::reader::{FragmentHandle, FragmentReaders, fragment_url};
use crate::settings::Settings;
use crate::statistics::{key_column, live_rows, of_files, of_fragment, prune_by_key};

/// Masks that are loaded at once.
const CONCURRENT_MASKS: usize = 16;

/// About the memory of a decoded fragment entry without its bitmap.
const FRAGMENT_BYTES: usize = 1_024;

/// Property ids in a snapshot of the planned columns.
pub(crate) fn property_ids(planned: &PlannedTable, snapshot: &TableSnapshot) -> Result<Vec<u64>> {
    let missing = || {
        let label = planned.label();
        stratagraph::Error::corrupt("table manifest", label, "a schema", "none")
    };
    let current = snapshot.table.current_schema().ok_or_else(missing).df()?;
    let pinned = all_columns(current).df()?;
    map_columns(planned, &snapshot.manifest.dataset, &pinned).df()
}

/// Everything a scan of a version needs.
pub(crate) struct FragmentScan<'a> {
    pub(crate) state: &'a dyn Session,
    pub(crate) store: &'a Arc<Store>,
    pub(crate) snapshot: &'a TableSnapshot,
    pub(crate) planned: &'a PlannedTable,
    pub(crate) pin: Arc<StatementPin>,
}

impl FragmentScan<'_> {
    /// Plans the scan. `limit` is one on the rows of the table itself.
    pub(crate) async fn plan(
        self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::clone(&self.planned.schema);
        let adapter = self.adapter()?;
        let fragments = live_fragments(self.store, self.snapshot).await.df()?;
        let chosen = self.choose(fragments.iter().collect(), filters, limit);
        if chosen.is_empty() {
            let projected = project_schema(&schema, projection)?;
            return Ok(Arc::new(EmptyExec::new(projected)));
        }
        let files = self.files(chosen).await?;
        let statistics = if self.reports_statistics() {
            of_files(&schema, &files)
        } else {
            Statistics::new_unknown(&schema)
        };
        let url = fragment_url(self.state.runtime_env())?;
        let partitions = self.state.config().target_partitions();
        let source = self.source(project_schema(&schema, projection)?.as_ref());
        let config = FileScanConfigBuilder::new(url, source)
            .with_file_groups(group(files, partitions))
            .with_statistics(statistics)
            .with_expr_adapter(Some(Arc::new(adapter)))
            .with_limit(limit)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn reports_statistics(&self) -> bool {
        Settings::of(self.state.config_options()).statistics
    }

    /// Planned names of the snapshot's property ids.
    fn adapter(&self) -> Result<FieldIdAdapterFactory> {
        let ids = property_ids(self.planned, self.snapshot)?;
        let names = self.planned.columns.iter();
        let names = names.map(|column| column.field.name().clone());
        Ok(FieldIdAdapterFactory::new(ids.into_iter().zip(names)))
    }

    /// Fragments that can hold a row of the answer.
    fn choose<'f>(
        &self,
        fragments: Vec<&'f Fragment>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Vec<&'f Fragment> {
        let key = key_column(self.snapshot.table.layout);
        let schema = &self.planned.schema;
        let kept = if self.plans_key() {
            prune_by_key(self.state, schema, key, filters, &fragments)
        } else {
            vec![true; fragments.len()]
        };
        let mut left = limit.map(|n| n as u64);
        let mut chosen = Vec::with_capacity(fragments.len());
        for (fragment, _) in fragments.into_iter().zip(kept).filter(|(_, keep)| *keep) {
            if left == Some(0) && !chosen.is_empty() {
                break;
            }
            left = left.map(|n| n.saturating_sub(live_rows(fragment)));
            chosen.push(fragment);
        }
        chosen
    }

    /// Whether the plan's column with the key's name is the key: another table under the planned
    /// name might use it for something else.
    fn plans_key(&self) -> bool {
        let key = key_column(self.snapshot.table.layout);
        let is_key = |c: &crate::columns::PlannedColumn| c.field.name() == key;
        self.planned.dataset == self.snapshot.manifest.dataset
            && self.planned.columns.iter().any(is_key)
    }

    async fn files(&self, fragments: Vec<&Fragment>) -> Result<Vec<PartitionedFile>> {
        let mut files = Vec::with_capacity(fragments.len());
        for part in fragments.chunks(CONCURRENT_MASKS) {
            files.extend(try_join_all(part.iter().map(|f| self.file(f))).await?);
        }
        Ok(files)
    }

    async fn file(&self, fragment: &Fragment) -> Result<PartitionedFile> {
        let object = &fragment.file.object;
        let entry = Arc::new(fragment.file.clone());
        let file = FragmentFile::new(Arc::clone(self.store), entry);
        let mut scanned = PartitionedFile::new(object.key.clone(), object.size)
            .with_extension(FragmentHandle(file));
        if fragment.dead.rows > 0 {
            let dead = fragment.dead.load(self.store, fragment.rows).await.df()?;
            let rows = u32::try_from(fragment.rows).unwrap_or(u32::MAX);
            if let Some(selection) = mask::selection(&dead, rows) {
                scanned = scanned.with_extension(ParquetRowSelection::new(selection));
            }
        }
        if self.reports_statistics() {
            let key = key_column(self.snapshot.table.layout);
            let key = self.plans_key().then_some(key);
            let statistics = of_fragment(&self.planned.schema, fragment, key);
            scanned = scanned.with_statistics(Arc::new(statistics));
        }
        Ok(scanned)
    }

    fn source(&self, projected: &Schema) -> Arc<dyn FileSource> {
        // What fragments are is fixed by the format; of the host's Parquet options those count that
        // say how to read.
        let mut options = TableParquetOptions {
            global: self.state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        options.global.coerce_int96 = None;
        options.global.coerce_int96_tz = None;
        // Nested columns skip rows faster than they filter them (benches/README.md), whatever the share
        // of dead rows.
        if projected.fields().iter().any(|f| f.data_type().is_nested()) {
            options.global.force_filter_selections = true;
        }
        let source = ParquetSource::new(Arc::clone(&self.planned.schema))
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(FragmentReaders));
        Arc::new(MaskedSource::new(source, Some(Arc::clone(&self.pin))))
    }
}

/// The fragments of a version that have a live row, in manifest order. Decoded once for each version
/// while they stay in the cache.
pub(crate) async fn live_fragments(
    store: &Store,
    snapshot: &TableSnapshot,
) -> stratagraph::Result<Arc<Vec<Fragment>>> {
    let table = &snapshot.table;
    let key = format!("live:{}:{}", table.type_id, snapshot.manifest_ref.key);
    if let Some(known) = store.cache().get::<Vec<Fragment>>(&key) {
        return Ok(known);
    }
    let entries = table.entries.entries(store).await?;
    let live = entries
        .into_iter()
        .filter_map(|(_, entry)| entry.fragment)
        .filter(|fragment| live_rows(fragment) > 0);
    let live = Arc::new(live.collect::<Vec<_>>());
    let inline = live.iter().map(|f| f.dead.inline_bytes() + FRAGMENT_BYTES);
    let bytes = inline.sum::<usize>() + key.len() * 2;
    store.cache().put(&key, Arc::clone(&live), bytes);
    Ok(live)
}

/// At most `partitions` groups of about equal bytes, files in manifest order within a group.
fn group(files: Vec<PartitionedFile>, partitions: usize) -> Vec<FileGroup> {
    let count = partitions.clamp(1, files.len().max(1));
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = vec![(0, Vec::new()); count];
    for file in files {
        // The smallest so far takes the next; ties go to the first, so plans are repeatable.
        if let Some(smallest) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            smallest.0 += file.object_meta.size;
            smallest.1.push(file);
        }
    }
    let filled = groups.into_iter().filter(|(_, files)| !files.is_empty());
    filled.map(|(_, files)| FileGroup::new(files)).collect()
}
