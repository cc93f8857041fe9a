//! The adjacency lists of one fragment.
//!
//! A fragment stands in the order of its sources, so its lists by source are two of its columns as they
//! lie, dead rows included: their places are positions, to which the bitmap of a version applies when
//! neighbours are looked up. The lists by destination are made of those by source under a bitmap, so
//! that another bitmap reads no file again.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use futures::TryStreamExt;

use super::lists::{Bits, Lists, ListsBuilder, narrow};
use super::pace::Pace;
use super::persist;
use super::stats::ReachStats;
use crate::digest::{Digest, canonical_json};
use crate::table::manifest::{Entry, Fragment, RidShift};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::{Error, Result};

/// Which end of an edge is the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Out,
    In,
}

/// Lists of one fragment as one version sees them.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    lists: Arc<Lists>,
    /// Dead positions of lists by source.
    dead: Option<Arc<Bits>>,
    key_shift: Option<RidShift>,
    end_shift: Option<RidShift>,
}

impl Layer {
    /// Lists as they are.
    pub(super) fn of(lists: Arc<Lists>) -> Self {
        Self {
            lists,
            dead: None,
            key_shift: None,
            end_shift: None,
        }
    }

    /// The ends of a key's edges as they lie, if no row is dead and no id shifted.
    #[inline]
    pub(super) fn slice(&self, key: u32) -> Option<&[u32]> {
        let plain = self.dead.is_none() && self.key_shift.is_none() && self.end_shift.is_none();
        plain.then(|| self.lists.ends(self.lists.range(key)))
    }

    /// Where the edges of a key lie, dead ones included.
    #[inline]
    pub(super) fn range(&self, key: u32) -> Range<usize> {
        unshift(self.key_shift, key).map_or(0..0, |key| self.lists.range(key))
    }

    /// Whether the ends at some places can be used as they lie: none of these rows is dead, no end shifted.
    #[inline]
    pub(super) fn is_plain(&self, range: &Range<usize>) -> bool {
        let dead = self.dead.as_ref();
        self.end_shift.is_none() && dead.is_none_or(|dead| !dead.any(range))
    }

    /// The ends at some places as they lie.
    #[inline]
    pub(super) fn ends(&self, range: Range<usize>) -> &[u32] {
        self.lists.ends(range)
    }

    /// Adds the ends of a key's edges, ascending.
    pub(super) fn append(&self, key: u32, out: &mut Vec<u32>) {
        let Some(stored) = unshift(self.key_shift, key) else {
            return;
        };
        let range = self.lists.range(stored);
        if self.is_plain(&range) {
            out.extend_from_slice(self.lists.ends(range));
            return;
        }
        let ends = self.lists.ends(range.clone()).iter().zip(range);
        let live =
            ends.filter(|(_, position)| self.dead.as_ref().is_none_or(|dead| !dead.get(*position)));
        out.extend(live.map(|(end, _)| shift(self.end_shift, *end)));
    }

    /// Calls `visit` with key and end of each edge.
    pub(super) fn each(&self, visit: &mut dyn FnMut(u32, u32)) {
        self.lists.each(&mut |position, key, end| {
            if self.dead.as_ref().is_none_or(|dead| !dead.get(position)) {
                visit(shift(self.key_shift, key), shift(self.end_shift, end));
            }
        });
    }

    /// Edges, dead ones included.
    pub(super) fn edges(&self) -> usize {
        self.lists.len()
    }

    /// Edges of a key, dead ones included.
    pub(super) fn degree(&self, key: u32) -> usize {
        unshift(self.key_shift, key).map_or(0, |key| self.lists.range(key).len())
    }

    /// The largest row id at either end.
    pub(super) fn largest(&self) -> u32 {
        let (key, end) = self.lists.largest();
        shift(self.key_shift, key).max(shift(self.end_shift, end))
    }

    /// Whether two edges may join the same nodes.
    pub(super) fn parallel(&self) -> bool {
        self.lists.parallel()
    }

    /// Whether two edges of a key may have the same end.
    #[inline]
    pub(super) fn parallel_at(&self, key: u32) -> bool {
        unshift(self.key_shift, key).is_some_and(|key| self.lists.parallel_at(key))
    }

    /// Keys that have edges, dead ones included.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.lists.keys().map(|key| shift(self.key_shift, key))
    }
}

/// The id that a stored one stands for. Layers are made only where it fits.
#[inline]
fn shift(shift: Option<RidShift>, stored: u32) -> u32 {
    match shift {
        Some(shift) if u64::from(stored) >= shift.base => stored.wrapping_add(shift.shift as u32),
        _ => stored,
    }
}

/// The stored id that stands for one, if any does.
#[inline]
fn unshift(shift: Option<RidShift>, rid: u32) -> Option<u32> {
    let Some(shift) = shift else {
        return Some(rid);
    };
    match u64::from(rid) {
        rid if rid < shift.base => Some(rid as u32),
        rid => {
            let stored = rid.checked_sub(shift.shift)?;
            (stored >= shift.base).then_some(stored as u32)
        }
    }
}

/// Loads layers for one query.
pub(super) struct Loader<'a> {
    pub(super) reader: &'a TableReader,
    pub(super) stats: &'a mut ReachStats,
    pub(super) pace: &'a mut Pace,
    /// Of the edge table.
    pub(super) identity: &'a Digest,
    /// Whether only what is in memory may be used.
    pub(super) held_only: bool,
    /// Whether so many nodes will be looked up that merging the lists of several fragments pays.
    pub(super) many: bool,
}

impl Loader<'_> {
    /// The layer of an entry; `None` if all its rows are dead, or if it would have to be made and may
    /// not be.
    pub(super) async fn layer(&mut self, entry: &Entry, side: Side) -> Result<Loaded> {
        let Some(fragment) = entry.fragment.as_ref() else {
            return Ok(Loaded::Empty);
        };
        if fragment.dead.rows >= fragment.rows {
            return Ok(Loaded::Empty);
        }
        let (lists, dead) = match side {
            Side::Out => (self.out(entry, fragment).await?, self.dead(fragment).await?),
            Side::In => (self.reversed(entry, fragment).await?, None),
        };
        let Some(lists) = lists else {
            return Ok(Loaded::Missing);
        };
        let ends = self.reader.table().endpoints;
        let of = |type_id: Option<u64>| type_id.and_then(|t| fragment.shift.get(&t)).copied();
        let (src, dst) = (of(ends.map(|e| e.src)), of(ends.map(|e| e.dst)));
        let (key_shift, end_shift) = match side {
            Side::Out => (src, dst),
            Side::In => (dst, src),
        };
        let (max_key, max_end) = lists.largest();
        for (shift, largest) in [(key_shift, max_key), (end_shift, max_end)] {
            if let Some(shift) = shift.filter(|s| u64::from(largest) >= s.base) {
                narrow(u64::from(largest).saturating_add(shift.shift))?;
            }
        }
        Ok(Loaded::Layer(Layer {
            lists,
            dead,
            key_shift,
            end_shift,
        }))
    }

    /// Lists by source with all rows.
    async fn out(&mut self, entry: &Entry, fragment: &Fragment) -> Result<Option<Arc<Lists>>> {
        let key = format!("topology-out:{}", fragment.file.object.key);
        let store = Arc::clone(self.reader.store());
        if self.held_only {
            return Ok(self.note(store.indexes().get::<Lists>(&key)));
        }
        let (most, pace) = (store.indexes().most_made(), &mut *self.pace);
        let make = async {
            let (lists, memory) = match persist::open(self.reader, fragment).await {
                Some(opened) => opened,
                None => read_out(self.reader, entry, fragment, pace).await?,
            };
            Ok(finish(lists, memory, most))
        };
        let (lists, held) = store.indexes().get_or_make(&key, make).await?;
        self.stats.note_cache(held);
        Ok(Some(lists))
    }

    /// Lists by destination of the rows that are live.
    async fn reversed(&mut self, entry: &Entry, fragment: &Fragment) -> Result<Option<Arc<Lists>>> {
        let mut key = format!("topology-in:{}", fragment.file.object.key);
        if fragment.dead.rows > 0 {
            key.push_str(&format!(":{}", bitmap_digest(fragment)?));
        }
        let store = Arc::clone(self.reader.store());
        let held = store.indexes().get::<Lists>(&key);
        if self.held_only || held.is_some() {
            return Ok(self.note(held));
        }
        let Some(out) = self.out(entry, fragment).await? else {
            return Ok(None);
        };
        let dead = self.dead(fragment).await?;
        let (most, pace) = (store.indexes().most_made(), &mut *self.pace);
        let make = async {
            let mut memory = Reservation::new(self.reader.budget());
            let lists = out.reversed(dead.as_deref(), &mut memory, pace).await?;
            Ok(finish(lists, memory, most))
        };
        let (lists, held) = store.indexes().get_or_make(&key, make).await?;
        self.stats.note_cache(held);
        Ok(Some(lists))
    }

    /// The dead positions of a fragment; `None` if there are none.
    async fn dead(&mut self, fragment: &Fragment) -> Result<Option<Arc<Bits>>> {
        if fragment.dead.rows == 0 {
            return Ok(None);
        }
        let digest = bitmap_digest(fragment)?;
        let key = format!("topology-dead:{}:{digest}", fragment.file.object.key);
        let store = self.reader.store();
        let make = async {
            let rows = usize::try_from(fragment.rows).unwrap_or(usize::MAX);
            let bytes = Bits::bytes_for(rows);
            let mut memory = Reservation::new(self.reader.budget());
            memory.resize(bytes)?;
            let mut bits = Bits::new(rows);
            for position in fragment.dead.load(store, fragment.rows).await? {
                bits.insert(position as usize);
            }
            Ok((Arc::new(bits), bytes + key.len() * 2 + 64))
        };
        let (bits, _) = store.indexes().get_or_make(&key, make).await?;
        Ok(Some(bits))
    }

    fn note(&mut self, lists: Option<Arc<Lists>>) -> Option<Arc<Lists>> {
        if lists.is_some() {
            self.stats.note_cache(true);
        }
        lists
    }
}

/// What came of an entry.
pub(super) enum Loaded {
    /// No live edge.
    Empty,
    /// Not in memory.
    Missing,
    Layer(Layer),
}

/// Bitmaps are named by what the manifest says of them.
fn bitmap_digest(fragment: &Fragment) -> Result<Digest> {
    Ok(Digest::of(&canonical_json(&fragment.dead)?))
}

/// Lists for the cache, with their bytes. What the cache will not keep keeps its memory reserved.
pub(super) fn finish(lists: Lists, mut memory: Reservation, most: usize) -> (Arc<Lists>, usize) {
    let bytes = lists.bytes();
    if bytes <= most {
        return (Arc::new(lists), bytes);
    }
    // Shrinking does not fail.
    _ = memory.resize(bytes.min(memory.bytes()));
    (Arc::new(lists.holding(memory)), bytes)
}

/// Reads the two columns of a fragment, dead rows and stored ids as they are.
pub(super) async fn read_out(
    reader: &TableReader,
    entry: &Entry,
    fragment: &Fragment,
    pace: &mut Pace,
) -> Result<(Lists, Reservation)> {
    let mut memory = Reservation::new(reader.budget());
    let rows = usize::try_from(fragment.rows).unwrap_or(usize::MAX);
    memory.resize(rows.saturating_mul(size_of::<u32>()))?;
    let mut raw = entry.clone();
    if let Some(fragment) = &mut raw.fragment {
        fragment.shift.clear();
        fragment.dead = Default::default();
    }
    let columns = ReadOptions::columns(&[id::SRC_RID, id::DST_RID]);
    let mut stream = reader.fragment_stream(&raw, &columns).await?;
    let mut builder: Option<ListsBuilder> = None;
    let key = &fragment.file.object.key;
    while let Some(batch) = stream.try_next().await? {
        // The footer has confirmed the number of rows by now.
        let builder = builder.get_or_insert_with(|| ListsBuilder::with_capacity(rows));
        let column = |i: usize| batch.column(i).as_primitive_opt::<UInt64Type>();
        let (Some(src), Some(dst)) = (column(0), column(1)) else {
            return Err(Error::corrupt(
                "fragment",
                key,
                "row ids of both ends",
                "other columns",
            ));
        };
        for (src, dst) in src.values().iter().zip(dst.values()) {
            if !builder.push(narrow(*src)?, narrow(*dst)?) {
                return Err(Error::corrupt(
                    "fragment",
                    key,
                    "edges sorted by the row ids of their ends",
                    format!("({src}, {dst}) after a larger pair"),
                ));
            }
        }
        memory.resize(memory.bytes().max(builder.bytes()))?;
        if pace.due(batch.num_rows() * 4) {
            Pace::rest().await;
        }
    }
    Ok((builder.unwrap_or_default().finish(), memory))
}
