//! The delta of a refresh: made for a base version, and made again when another commit has touched
//! the same keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int8Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int8Type;
use async_trait::async_trait;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::embed::Embedder;
use stratagraph::env::Env;
use stratagraph::publish::definition::Definition;
use stratagraph::publish::{Deletes, DeltaSource, StagedDelta};
use stratagraph::store::Stager;
use stratagraph::table::ledger::{Ledger, LedgerChange, Reject};
use stratagraph::table::manifest::{Entry, Fragment, SourceFold};
use stratagraph::{Error, Result};
use stratagraph_providers::{StatementPin, VersionedTableProvider, from_datafusion};

use super::diff::{ADDED, CARRIED, CHANGED, Classes, DELETED, Diff, FORGOTTEN, READMITTED};
use super::earlier::{Earlier, EarlierReader};
use super::fold;
use super::included::Included;
use super::infer::{Pipeline, Reused};
use super::scan::{self, Scanned};
use super::sink::Inferred;
use crate::engine::{Run, has_unique_keys};
use crate::source::{self, Source};
use crate::spool::Spool;

/// What a refresh found out; of the last attempt, except where it says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) classes: Classes,
    /// Rows given to the model, by all attempts.
    pub(crate) inferred: u64,
    /// Rows of the delta that got no vector.
    pub(crate) dropped: u64,
    /// Rows of which the model read only the beginning, by all attempts.
    pub(crate) truncated: u64,
}

/// Refreshes one table from its source.
pub(crate) struct RefreshSource {
    run: Run,
    env: Env,
    definition: Definition,
    included: Included,
    model: Arc<dyn Embedder>,
    deletes: Deletes,
    earlier: Earlier,
    /// Keeps sweeps of this process away from the base.
    pin: Option<Arc<StatementPin>>,
    /// Holds the memory of the keys in the delta at hand.
    keys_memory: Option<MemoryReservation>,
    pub(crate) tally: Tally,
}

impl std::fmt::Debug for RefreshSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RefreshSource({:?})", self.definition.source.name)
    }
}

/// A base version as a refresh sees it.
struct Base {
    diff_rows: Arc<VersionedTableProvider>,
    ledger: Ledger,
    unique: bool,
}

impl RefreshSource {
    pub(crate) fn new(
        run: &Run,
        definition: Definition,
        included: Included,
        model: Arc<dyn Embedder>,
        deletes: Deletes,
    ) -> Self {
        let store = Arc::clone(run.catalog().store());
        Self {
            env: run.host.env(run.catalog().env()),
            earlier: Earlier::new(&run.host, store),
            run: run.clone(),
            definition,
            included,
            model,
            deletes,
            pin: None,
            keys_memory: None,
            tally: Tally::default(),
        }
    }

    /// Pins the snapshot of a base, if this process still knows it.
    fn pin(&mut self, base: &TableSnapshot) {
        let catalog = self.run.catalog();
        let head = catalog
            .cached()
            .filter(|head| head.version == base.catalog_version);
        let pin = head.and_then(|head| catalog.try_pin(head));
        self.pin = pin.map(|pin| StatementPin::resolved(Arc::new(pin)));
    }

    /// Scans the source once, to its end.
    async fn scan(&self, base: &TableSnapshot) -> Result<Scanned> {
        let name = base.name.as_str();
        let source = Source::recorded(&self.run.host, name, &self.definition.source).await?;
        scan::scan_with_files(&self.run, &source, &self.definition, &self.included).await
    }

    /// Whether the base was made from exactly these rows, and holds nothing else.
    fn is_current(&self, base: &TableSnapshot, scanned: &Scanned) -> bool {
        let table = &base.table;
        let Some(fold) = &table.fold else {
            return false;
        };
        // A tombstone refresh removes what an earlier one retained.
        let exact = table.live_rows + table.rejects == fold.rows;
        fold.unique
            && *fold == scanned.folder.finish(true)
            && (exact || self.deletes == Deletes::Retain)
    }

    /// Whether the rows of the source are those that the base was made from, keys that repeat included.
    fn has_equal_fold(&self, base: &TableSnapshot, current: &SourceFold) -> bool {
        let recorded = base.table.fold;
        recorded.is_some_and(|fold| {
            !fold.unique && fold.sum == current.sum && fold.rows == current.rows
        })
    }

    async fn base(&self, base: &TableSnapshot) -> Result<Base> {
        let store = self.run.catalog().store();
        let entries = base.table.entries.entries(store).await?;
        let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
        let ledger = Ledger::load(store, &self.env.budget, &entries).await?;
        let metadata = Arc::clone(&self.run.engine.metadata);
        let (snapshot, pin) = (Arc::new(base.clone()), self.pin.clone());
        let rows = VersionedTableProvider::of_snapshot(metadata, snapshot, pin)?;
        Ok(Base {
            diff_rows: Arc::new(rows),
            ledger,
            unique: has_unique_keys(base),
        })
    }

    async fn diff<'a>(
        &'a self,
        base: &'a TableSnapshot,
        scanned: &'a mut Scanned,
        known: &'a Base,
    ) -> Result<Diff<'a>> {
        let source_unique = match scanned.keys.take() {
            Some(keys) => keys.are_unique().await?,
            None => false,
        };
        Ok(Diff {
            host: &self.run.host,
            table: base.name.as_str(),
            source: &scanned.rows,
            source_unique,
            base: Arc::clone(&known.diff_rows) as _,
            base_rows: base.table.live_rows,
            ledger: &known.ledger,
            base_unique: known.unique,
            included: &self.included,
        })
    }

    /// Counts what a refresh of `base` would find. Nothing is inferred or staged.
    pub(crate) async fn plan(&self, base: &TableSnapshot) -> Result<Classes> {
        let mut scanned = self.scan(base).await?;
        if self.is_current(base, &scanned) {
            return Ok(Classes {
                unchanged: scanned.rows.rows(),
                rejected: base.table.rejects,
                ..Classes::default()
            });
        }
        let known = self.base(base).await?;
        let diff = self.diff(base, &mut scanned, &known).await?;
        diff.check_keys().await?;
        let mut classes = diff.count().await?;
        if self.deletes == Deletes::Retain {
            classes.deleted = 0;
        }
        Ok(classes)
    }

    /// Whether a refresh of `base` would change a row, and the fold of the source as it is. No model
    /// runs.
    pub(crate) async fn differs(&self, base: &TableSnapshot) -> Result<(bool, SourceFold)> {
        let mut scanned = self.scan(base).await?;
        let current = scanned.folder.finish(true);
        if self.is_current(base, &scanned) || self.has_equal_fold(base, &current) {
            return Ok((false, current));
        }
        let known = self.base(base).await?;
        let diff = self.diff(base, &mut scanned, &known).await?;
        match diff.check_keys().await {
            // Equal rows have equal folds, so rows whose keys repeat differ.
            Err(Error::NonUniqueKey { .. }) => return Ok((true, current)),
            other => other?,
        }
        let classes = diff.count().await?;
        let deleted = classes.deleted > 0 && self.deletes == Deletes::Tombstone;
        Ok((classes.added + classes.changed > 0 || deleted, current))
    }

    fn pipeline(&self, base: &TableSnapshot) -> Result<Pipeline> {
        let schema = base.table.current_schema().cloned().ok_or_else(|| {
            Error::corrupt("table manifest", base.name.as_str(), "a schema", "none")
        })?;
        Ok(Pipeline {
            host: self.run.host.clone(),
            env: self.env.clone(),
            store: Arc::clone(self.run.catalog().store()),
            model: Arc::clone(&self.model),
            schema,
            source_id: source::shown(&self.definition.source.name),
            model_id: self.definition.model.spec.clone(),
            included: self.included.len(),
        })
    }

    /// Vectors of the base by key and content hash, if rows keep theirs. Dead rows do no harm: a vector
    /// is a function of the content.
    async fn carried(
        &self,
        base: &TableSnapshot,
        changes: &Spool,
        rows: u64,
    ) -> Result<EarlierReader> {
        let store = Arc::clone(self.run.catalog().store());
        let mut vectors = Earlier::new(&self.run.host, Arc::clone(&store));
        if rows > 0
            && let Some((first, last)) = bounds(changes).await?
        {
            for (_, entry) in base.table.entries.entries(&store).await? {
                let near = |f: &Fragment| f.keys.min <= last && first <= f.keys.max;
                if let Some(fragment) = entry.fragment.filter(near) {
                    vectors.keep(fragment);
                }
            }
        }
        vectors.reader().await
    }

    /// Remembers what this attempt computed.
    fn keep(&mut self, inferred: &Inferred) -> Result<()> {
        if let Some(fragment) = &inferred.fragment {
            self.earlier.keep(fragment.clone());
        }
        for refusal in &inferred.refusals {
            self.earlier
                .refuse(&refusal.key, refusal.hash, refusal.reason)?;
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<String, i64> {
        let classes = &self.tally.classes;
        let counts = [
            ("added", classes.added),
            ("changed", classes.changed),
            ("deleted", classes.deleted),
            ("unchanged", classes.unchanged),
            ("dropped_rows", self.tally.dropped),
        ];
        let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        counts.map(|(name, n)| (name.to_owned(), int(n))).into()
    }
}

#[async_trait]
impl DeltaSource for RefreshSource {
    async fn delta(
        &mut self,
        base: &TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<StagedDelta>> {
        self.pin(base);
        let mut scanned = self.scan(base).await?;
        self.tally.dropped = 0;
        tracing::debug!(rows = scanned.rows.rows(), "the source is scanned");
        if self.is_current(base, &scanned) {
            self.tally.classes = Classes {
                unchanged: scanned.rows.rows(),
                ..Classes::default()
            };
            return Ok(None);
        }
        let known = self.base(base).await?;
        let diff = self.diff(base, &mut scanned, &known).await?;
        diff.check_keys().await?;
        let (changes, mut classes) = diff.changes().await?;
        tracing::debug!(?classes, "the difference is known");
        drop(known);
        if self.deletes == Deletes::Retain {
            classes.deleted = 0;
        }
        self.tally.classes = classes;
        let to_infer = classes.added + classes.changed;
        if to_infer == 0 && classes.deleted == 0 {
            // Rejects whose key left the source go with the next version; they do not cause one.
            return Ok(None);
        }
        let pipeline = self.pipeline(base)?;
        let reused = Reused {
            earlier: self.earlier.reader().await?,
            carried: self.carried(base, &changes, classes.carried).await?,
        };
        let rows = to_embed(&changes);
        let inferred = pipeline.run(rows, to_infer, reused, stage).await?;
        tracing::debug!(
            inferred = inferred.inferred,
            refused = inferred.refusals.len(),
            "the delta is staged"
        );
        self.keep(&inferred)?;
        self.tally.inferred += inferred.inferred;
        self.tally.truncated += inferred.truncated;
        self.tally.dropped = inferred.refusals.len() as u64;
        let keys = Keys::collect(&self.run, &changes, self.deletes).await?;
        self.keys_memory = keys.memory;
        Ok(Some(StagedDelta {
            fragment: inferred.fragment.clone(),
            superseded: keys.superseded,
            touched: keys.touched,
            ledger: ledger(&inferred, keys.forgotten),
            fold: Some(fold::without_passing(
                &scanned.folder,
                &inferred.refusals,
                true,
            )),
            source_files: scanned.files.filter(|_| !inferred.has_passing()),
            counts: self.counts(),
        }))
    }
}

/// The first and the last key whose row keeps its vector.
async fn bounds(changes: &Spool) -> Result<Option<(String, String)>> {
    let (mut bounds, mut rows) = (None, changes.read());
    while let Some(batch) = rows.try_next().await? {
        let keys = batch.column(0).as_string::<i32>();
        for (row, class) in class_of(&batch).values().iter().enumerate() {
            if *class == CARRIED {
                let key = keys.value(row).to_owned();
                let (_, last) = bounds.get_or_insert_with(|| (key.clone(), String::new()));
                *last = key;
            }
        }
    }
    Ok(bounds)
}

/// The class stands last.
fn class_of(batch: &RecordBatch) -> &Int8Array {
    batch
        .column(batch.num_columns() - 1)
        .as_primitive::<Int8Type>()
}

/// The added and changed rows, in key order.
fn to_embed(changes: &Spool) -> BoxStream<'static, Result<RecordBatch>> {
    changes
        .read()
        .and_then(|batch| async move {
            let classes = class_of(&batch);
            let wanted: BooleanArray = classes.iter().map(|c| c.map(|c| c <= CARRIED)).collect();
            Ok(filter_record_batch(&batch, &wanted)?)
        })
        .boxed()
}

/// Keys of a delta by what happens to them, each list sorted.
#[derive(Default)]
struct Keys {
    superseded: Vec<String>,
    touched: Vec<String>,
    /// Keys that leave the ledger, unless they are refused again.
    forgotten: Vec<String>,
    memory: Option<MemoryReservation>,
}

impl Keys {
    async fn collect(run: &Run, changes: &Spool, deletes: Deletes) -> Result<Self> {
        let memory = run.host.memory("changed keys");
        let mut keys = Self::default();
        let mut rows = changes.read();
        while let Some(batch) = rows.try_next().await? {
            let texts = batch.column(0).as_string::<i32>();
            let classes = class_of(&batch);
            let bytes = 2 * texts.value_data().len() + 2 * texts.len() * size_of::<String>();
            memory.try_grow(bytes).map_err(from_datafusion)?;
            for (key, class) in texts.iter().zip(classes.values()) {
                let key = key.unwrap_or_default().to_owned();
                match *class {
                    ADDED => {}
                    CHANGED | CARRIED => keys.superseded.push(key.clone()),
                    DELETED if deletes == Deletes::Tombstone => keys.superseded.push(key.clone()),
                    DELETED => continue,
                    FORGOTTEN | READMITTED => keys.forgotten.push(key.clone()),
                    _ => continue,
                }
                keys.touched.push(key);
            }
        }
        keys.memory = Some(memory);
        Ok(keys)
    }
}

/// Changes of the reject ledger by key: what is refused for good goes in; what left the source, and
/// what has another content now, goes out.
fn ledger(inferred: &Inferred, forgotten: Vec<String>) -> Vec<LedgerChange> {
    let gone = forgotten.into_iter().map(|key| (key, None));
    let mut changes: BTreeMap<String, Option<Reject>> = gone.collect();
    changes.extend(inferred.rejects().into_iter().map(|c| (c.key, c.reject)));
    let change = |(key, reject)| LedgerChange { key, reject };
    changes.into_iter().map(change).collect()
}
