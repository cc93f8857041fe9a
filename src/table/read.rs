//! The engine's reader of one table of one version: live rows, asked columns, key order.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt};
use roaring::RoaringBitmap;
use tokio::sync::OnceCell;

use super::file::ReadCount;
use super::manifest::{Column, Entry, KeyRange, Layout, TableManifest};
use super::merge::merge;
use super::open::OpenFragment;
use super::projection::{Projection, output_schema};
use super::schema::{check_stored, key_column, sort_columns};
use super::stream::{BatchStream, stream};
use crate::env::{Budget, Env};
use crate::store::Store;
use crate::{Error, Result};

/// Fragments that are opened at once.
const CONCURRENT_OPENS: usize = 8;

/// Bounds of the keys that a scan returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// The smallest key.
    pub from: Option<String>,
    /// All keys are smaller than this one.
    pub before: Option<String>,
}

impl KeyBounds {
    fn is_all(&self) -> bool {
        self.from.is_none() && self.before.is_none()
    }

    fn holds(&self, key: &str) -> bool {
        let from = self.from.as_deref().is_none_or(|from| from <= key);
        from && self.before.as_deref().is_none_or(|before| key < before)
    }

    /// Whether a key between `min` and `max`, or one that starts with `max`, can be in the bounds.
    fn meets(&self, range: &KeyRange) -> bool {
        let from = self
            .from
            .as_deref()
            .is_none_or(|f| f <= range.max.as_str() || f.starts_with(&range.max));
        from && self
            .before
            .as_deref()
            .is_none_or(|before| range.min.as_str() < before)
    }
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Property ids of the output's columns, in its order; `None` for all of the current schema.
    pub columns: Option<Vec<u64>>,
    /// Rows of a batch.
    pub batch_rows: usize,
    /// Whether two columns follow: [`super::ENTRY_COLUMN`] and [`super::POSITION_COLUMN`].
    pub positions: bool,
    /// Bounds of keys.
    pub keys: KeyBounds,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            batch_rows: 8_192,
            positions: false,
            keys: KeyBounds::default(),
        }
    }
}

impl ReadOptions {
    /// All keys, the given columns, no positions.
    pub fn columns(columns: &[u64]) -> Self {
        Self {
            columns: Some(columns.to_vec()),
            ..Self::default()
        }
    }

    /// Adds the position columns.
    pub fn with_positions(mut self) -> Self {
        self.positions = true;
        self
    }
}

/// Reads a table of a version. Cheap to clone; clones share loaded entries and counts.
#[derive(Debug, Clone)]
pub struct TableReader {
    store: Arc<Store>,
    table: Arc<TableManifest>,
    budget: Arc<dyn Budget>,
    count: Arc<ReadCount>,
    entries: Arc<OnceCell<Arc<[Entry]>>>,
}

impl TableReader {
    /// A reader that makes no store call yet and takes its memory from `env`.
    pub fn new(store: Arc<Store>, env: &Env, table: Arc<TableManifest>) -> Self {
        Self {
            store,
            table,
            budget: Arc::clone(&env.budget),
            count: Arc::default(),
            entries: Arc::default(),
        }
    }

    /// The same reader with its memory taken from `budget`.
    pub fn with_budget(&self, budget: Arc<dyn Budget>) -> Self {
        Self {
            budget,
            ..self.clone()
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableManifest> {
        &self.table
    }

    /// Where its memory comes from.
    pub fn budget(&self) -> &Arc<dyn Budget> {
        &self.budget
    }

    /// What was read so far, by all clones.
    pub fn count(&self) -> &Arc<ReadCount> {
        &self.count
    }

    /// Entries of the manifest in stamp order; loaded once.
    ///
    /// # Errors
    /// `Corrupt` for a page that is not what its parent says, or entries out of number.
    pub async fn entries(&self) -> Result<Arc<[Entry]>> {
        let load = || async {
            let (mut ids, mut checked) = (BTreeSet::new(), Vec::new());
            for (key, entry) in self.table.entries.entries(&self.store).await? {
                self.check_entry(&key, &entry, ids.insert(entry.id))?;
                checked.push(entry);
            }
            Ok(checked.into())
        };
        self.entries.get_or_try_init(load).await.cloned()
    }

    fn check_entry(&self, key: &str, entry: &Entry, fresh: bool) -> Result<()> {
        let found = Entry::key(entry.stamp, entry.id);
        if found != key || entry.id >= self.table.next_entry || !fresh {
            let expected = format!("entry {key} below {}, once", self.table.next_entry);
            return Err(Error::corrupt("manifest page", key, expected, found));
        }
        Ok(())
    }

    /// The schema of what [`ReadOptions`] asks for.
    ///
    /// # Errors
    /// `InvalidArgument` for a property that the current schema has not.
    pub fn schema(&self, options: &ReadOptions) -> Result<SchemaRef> {
        output_schema(
            &self.columns(options.columns.as_deref())?,
            options.positions,
        )
    }

    /// Columns of the current schema by property id; all of them for `None`.
    pub(crate) fn columns(&self, ids: Option<&[u64]>) -> Result<Vec<Column>> {
        let path = format!("type {}", self.table.type_id);
        let current = self.table.current_schema();
        let current =
            current.ok_or_else(|| Error::corrupt("table manifest", &path, "a schema", "none"))?;
        check_stored(self.table.layout, current, &path)?;
        let Some(ids) = ids else {
            return Ok(current.columns.clone());
        };
        let find = |id: &u64| current.columns.iter().find(|c| c.id == *id).cloned();
        let missing = |id: &u64| Error::InvalidArgument {
            function: "read of a table".to_owned(),
            argument: "columns".to_owned(),
            reason: format!("property {id} is not in schema {}", current.id),
        };
        ids.iter()
            .map(|id| find(id).ok_or_else(|| missing(id)))
            .collect()
    }

    /// Opens the fragment of an entry; `None` if it has none.
    pub(crate) async fn open(&self, entry: &Entry) -> Result<Option<Arc<OpenFragment>>> {
        let Some(fragment) = &entry.fragment else {
            return Ok(None);
        };
        let open = OpenFragment::open(&self.store, &self.table, entry, fragment, &self.count);
        Ok(Some(Arc::new(open.await?)))
    }

    /// The dead positions of an entry's fragment; empty if it has none.
    pub async fn dead_rows(&self, entry: &Entry) -> Result<RoaringBitmap> {
        match &entry.fragment {
            Some(fragment) => fragment.dead.load(&self.store, fragment.rows).await,
            None => Ok(RoaringBitmap::new()),
        }
    }

    /// Live rows of one entry's fragment in file order. Empty if the entry has no fragment.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, also while it streams.
    pub async fn fragment_stream(
        &self,
        entry: &Entry,
        options: &ReadOptions,
    ) -> Result<BatchStream> {
        let columns = self.columns(options.columns.as_deref())?;
        self.stream(entry, &columns, options).await
    }

    async fn stream(
        &self,
        entry: &Entry,
        columns: &[Column],
        options: &ReadOptions,
    ) -> Result<BatchStream> {
        let meets = |e: &Entry| {
            e.fragment
                .as_ref()
                .is_some_and(|f| options.keys.meets(&f.keys))
        };
        let open = match meets(entry) {
            true => self.open(entry).await?,
            false => None,
        };
        let Some(open) = open else {
            return Ok(futures::stream::empty().boxed());
        };
        let dead = Arc::clone(&open.dead);
        let (batch_rows, budget) = (options.batch_rows, &self.budget);
        if options.keys.is_all() {
            let projection = Projection::new(&open, columns, options.positions)?;
            let all = open.positions();
            let all = std::slice::from_ref(&all);
            return stream(&open, projection, all, dead, batch_rows, budget);
        }
        // The key rides along as the first column for as long as it is needed to filter.
        let mut with_key = self.columns(Some(&[key_column(self.table.layout)]))?;
        with_key.extend_from_slice(columns);
        let projection = Projection::new(&open, &with_key, options.positions)?;
        let pages = bounded_pages(&open, self.table.layout, &options.keys);
        let rows = stream(&open, projection, &pages, dead, batch_rows, budget)?;
        let keys = options.keys.clone();
        let filtered = rows.map(move |batch| keep_bounded(&batch?, &keys));
        Ok(filtered.boxed())
    }

    /// Live rows of the table in key order (edges: by `_src_rid`, `_dst_rid`, `id`); equal keys in
    /// entry order. Holds one batch a fragment.
    ///
    /// # Errors
    /// As [`TableReader::fragment_stream`].
    pub async fn scan(&self, options: &ReadOptions) -> Result<BatchStream> {
        let entries = self.entries().await?;
        self.scan_entries(&entries, options).await
    }

    /// As [`TableReader::scan`], over some entries.
    pub async fn scan_entries(
        &self,
        entries: &[Entry],
        options: &ReadOptions,
    ) -> Result<BatchStream> {
        self.scan_with(entries, Vec::new(), options).await
    }

    /// As [`TableReader::scan_entries`], together with rows from elsewhere: each stream in the order of
    /// the table, with all columns of its schema.
    pub(crate) async fn scan_with(
        &self,
        entries: &[Entry],
        others: Vec<BatchStream>,
        options: &ReadOptions,
    ) -> Result<BatchStream> {
        let mut columns = self.columns(options.columns.as_deref())?;
        let wanted = columns.len();
        let unread = |id: &&u64| !columns.iter().any(|c| c.id == **id);
        let missing: Vec<u64> = sort_columns(self.table.layout)
            .iter()
            .filter(unread)
            .copied()
            .collect();
        columns.extend(self.columns(Some(&missing))?);
        // Boxed one by one: a closure that borrows its argument is not general enough for callers
        // whose futures must be Send.
        let mut opening = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.fragment.is_some() {
                opening.push(self.stream(entry, &columns, options).boxed());
            }
        }
        let streams = futures::stream::iter(opening).buffered(CONCURRENT_OPENS);
        let mut streams: Vec<BatchStream> = streams.try_collect().await?;
        streams.extend(others);
        let mut ids: Vec<u64> = columns.iter().map(|c| c.id).collect();
        let schema = output_schema(&columns, options.positions)?;
        ids.resize(schema.fields().len(), 0);
        let merged = merge(self.table.layout, schema, ids, streams, options.batch_rows);
        if missing.is_empty() {
            return Ok(merged);
        }
        // Sort columns that nobody asked for stand between the columns and the positions.
        let mut keep: Vec<usize> = (0..wanted).collect();
        keep.extend(
            (0..2)
                .filter(|_| options.positions)
                .map(|i| columns.len() + i),
        );
        Ok(merged
            .and_then(move |batch| std::future::ready(batch.project(&keep).map_err(Error::from)))
            .boxed())
    }
}

/// Pages that can hold a key in bounds. Edges are not sorted by key, but their pages have bounds too.
fn bounded_pages(
    open: &OpenFragment,
    layout: Layout,
    keys: &KeyBounds,
) -> Vec<std::ops::Range<u32>> {
    let Some(leaf) = open
        .root(key_column(layout))
        .and_then(|root| open.leaf(root))
    else {
        return std::iter::once(open.positions()).collect();
    };
    let mut may = |min: &[u8], max: &[u8]| {
        let from = keys
            .from
            .as_deref()
            .is_none_or(|from| from.as_bytes() <= max);
        from && keys
            .before
            .as_deref()
            .is_none_or(|before| min < before.as_bytes())
    };
    (0..open.groups.len())
        .flat_map(|group| open.pages(group, leaf, &mut may))
        .collect()
}

/// Rows with keys in bounds, without the first column, which is the key.
fn keep_bounded(batch: &RecordBatch, keys: &KeyBounds) -> Result<RecordBatch> {
    let names = batch.column(0).as_string::<i32>();
    let held: BooleanArray = names
        .iter()
        .map(|k| Some(k.is_some_and(|k| keys.holds(k))))
        .collect();
    let kept = filter_record_batch(batch, &held)?;
    let rest: Vec<usize> = (1..batch.num_columns()).collect();
    Ok(kept.project(&rest)?)
}
