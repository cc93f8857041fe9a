//! Deletion masks.
//!
//! The logical mask of an embedding table is a list of immutable deltas of (key, horizon): a key is
//! hidden in every fragment whose stamp is at or below its horizon. Readers use bitmaps of dead
//! positions, which follow from it.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringBuilder};
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringBitmap;

use super::delta::{BATCH_ROWS, DeltaKind, DeltaWriter, check_key};
use super::manifest::{DeltaObject, Entry};
use super::reservation::Reservation;
use super::schema::id;
use crate::digest::{Digest, Hasher};
use crate::env::Budget;
use crate::store::{Stager, Store};
use crate::{Error, Result};

/// The rows of a fragment that are not dead, for a Parquet reader; `None` if no row is dead. This is
/// the one place that turns dead positions into a selection.
pub fn selection(dead: &RoaringBitmap, rows: u32) -> Option<RowSelection> {
    dead.range(..rows).next()?;
    Some(select(live_ranges(dead, 0..rows), &(0..rows)))
}

/// A selection of `ranges`, which lie sorted and disjoint in `group`, counted from its start.
pub(crate) fn select(ranges: impl Iterator<Item = Range<u32>>, group: &Range<u32>) -> RowSelection {
    let start = group.start;
    let relative = ranges.map(|r| (r.start - start) as usize..(r.end - start) as usize);
    RowSelection::from_consecutive_ranges(relative, (group.end - start) as usize)
}

/// Ranges of positions in `within` that are not dead, ascending, not touching each other.
pub fn live_ranges(
    dead: &RoaringBitmap,
    within: Range<u32>,
) -> impl Iterator<Item = Range<u32>> + '_ {
    LiveRanges {
        dead: dead.range(within.clone()).peekable(),
        rest: within,
    }
}

struct LiveRanges<'a> {
    dead: Peekable<roaring::bitmap::Iter<'a>>,
    rest: Range<u32>,
}

impl Iterator for LiveRanges<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        while self.dead.next_if_eq(&self.rest.start).is_some() {
            self.rest.start += 1;
        }
        if self.rest.is_empty() {
            return None;
        }
        let end = self.dead.peek().copied().unwrap_or(self.rest.end);
        let live = self.rest.start..end;
        self.rest.start = end;
        Some(live)
    }
}

fn kind() -> Result<DeltaKind> {
    DeltaKind::new(
        "mask delta",
        &[
            (id::ROW_ID, "_row_id", "utf8", false),
            (id::DEAD_THROUGH, "_dead_through_version", "int64", false),
        ],
    )
}

/// Stages a mask delta of keys with the version through which they are dead; `None` without keys.
///
/// # Errors
/// `Corrupt` if the keys are not sorted and unique, `ResourceLimitExceeded` for a key that is too
/// long or a version above `i64::MAX`.
pub fn write_mask<'a>(
    stage: &mut Stager,
    keys: impl IntoIterator<Item = (&'a str, u64)>,
) -> Result<Option<DeltaObject>> {
    let kind = kind()?;
    let mut writer = DeltaWriter::new(&kind)?;
    let mut keys = keys.into_iter();
    loop {
        let (mut names, mut horizons) = (StringBuilder::new(), Vec::new());
        for (key, horizon) in keys.by_ref().take(BATCH_ROWS) {
            check_key(key)?;
            names.append_value(key);
            horizons.push(version(horizon)?);
        }
        if horizons.is_empty() {
            return writer.finish(stage);
        }
        let columns = [
            Arc::new(names.finish()) as _,
            Arc::new(Int64Array::from(horizons)) as _,
        ];
        let batch = RecordBatch::try_new(Arc::clone(kind.schema()), columns.into())?;
        writer.push(&batch)?;
    }
}

fn version(version: u64) -> Result<i64> {
    i64::try_from(version).map_err(|_| Error::ResourceLimitExceeded {
        what: "version of a mask",
        value: version,
        limit: i64::MAX as u64,
    })
}

/// The mask digest of a version that added a delta to the mask of its parent.
pub fn next_digest(parent: Option<&Digest>, delta: &Digest) -> Digest {
    let mut hasher = Hasher::new("stratagraph.mask.v1");
    hasher.part(parent.map_or(&[][..], |d| d.as_bytes()));
    hasher.part(delta.as_bytes());
    hasher.finish()
}

/// The digest of a table's mask: its deltas folded in entry order, which is the order of their
/// commits; `None` without deltas.
pub fn mask_digest<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<Digest> {
    let deltas = entries.into_iter().filter_map(|e| e.mask.as_ref());
    deltas.fold(None, |parent, delta| {
        Some(next_digest(parent.as_ref(), &delta.object.sha256))
    })
}

struct Hidden {
    start: usize,
    end: usize,
    horizon: i64,
}

/// All deltas of a table merged: the greatest horizon of each key. Holds its keys in memory, which
/// it takes from a budget.
pub struct LogicalMask {
    bytes: Vec<u8>,
    hidden: Vec<Hidden>,
    memory: Reservation,
}

impl LogicalMask {
    /// Hides nothing.
    pub fn empty(budget: &Arc<dyn Budget>) -> Self {
        Self {
            bytes: Vec::new(),
            hidden: Vec::new(),
            memory: Reservation::new(budget),
        }
    }

    /// Loads and merges the mask deltas of `entries`.
    ///
    /// # Errors
    /// `Corrupt` for a delta that is not what its entry says, the budget's own when it runs out.
    pub async fn load(store: &Store, budget: &Arc<dyn Budget>, entries: &[Entry]) -> Result<Self> {
        let mut mask = Self::empty(budget);
        for delta in entries.iter().filter_map(|e| e.mask.as_ref()) {
            mask.add(store, delta).await?;
        }
        mask.settle();
        Ok(mask)
    }

    async fn add(&mut self, store: &Store, delta: &DeltaObject) -> Result<()> {
        let kind = kind()?;
        let before = self.memory.bytes();
        let size = usize::try_from(delta.object.size).unwrap_or(usize::MAX);
        self.memory.grow(size)?;
        let bytes = kind.load(store, delta).await?;
        kind.decode(delta, bytes, &mut |batch| self.push(&kind, delta, batch))?;
        let held = self.bytes.capacity() + self.hidden.capacity() * size_of::<Hidden>();
        self.memory.resize(before.max(held))
    }

    fn push(&mut self, kind: &DeltaKind, delta: &DeltaObject, batch: &RecordBatch) -> Result<()> {
        let keys = kind.keys(&delta.object.key, batch)?;
        let horizons = batch.column(1).as_primitive::<Int64Type>();
        self.memory
            .grow(keys.value_data().len() + keys.len() * size_of::<Hidden>())?;
        for (key, horizon) in keys.iter().zip(horizons.values()) {
            if *horizon < 0 {
                let (path, found) = (&delta.object.key, horizon);
                return Err(Error::corrupt(
                    kind.artifact,
                    path,
                    "versions from 0",
                    found,
                ));
            }
            let start = self.bytes.len();
            self.bytes
                .extend_from_slice(key.unwrap_or_default().as_bytes());
            let end = self.bytes.len();
            self.hidden.push(Hidden {
                start,
                end,
                horizon: *horizon,
            });
        }
        Ok(())
    }

    /// Sorts by key and keeps the greatest horizon of each. The sort finds the sorted deltas as runs.
    fn settle(&mut self) {
        let bytes = &self.bytes;
        let key = |h: &Hidden| &bytes[h.start..h.end];
        self.hidden
            .sort_by(|a, b| key(a).cmp(key(b)).then(b.horizon.cmp(&a.horizon)));
        self.hidden
            .dedup_by(|later, first| key(later) == key(first));
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.hidden.len()
    }

    /// Whether it hides nothing.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Whether `key` is dead in a fragment of `stamp`.
    pub fn hides(&self, key: &str, stamp: u64) -> bool {
        let found = self
            .hidden
            .binary_search_by(|h| self.bytes[h.start..h.end].cmp(key.as_bytes()));
        found.is_ok_and(|i| self.hidden[i].horizon as u64 >= stamp)
    }

    /// Keys with their horizons, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.hidden.iter().map(|h| {
            // The bytes came from an Arrow string array and are cut where it cuts.
            let key = std::str::from_utf8(&self.bytes[h.start..h.end]).unwrap_or_default();
            (key, h.horizon as u64)
        })
    }

    /// The keys that are dead in a fragment of `stamp`, in key order.
    pub fn dead_keys(&self, stamp: u64) -> impl Iterator<Item = &str> {
        self.iter()
            .filter(move |(_, h)| *h >= stamp)
            .map(|(key, _)| key)
    }
}
