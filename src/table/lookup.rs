//! Finds keys among the live rows of a table.
//!
//! Fragments are pruned by key range, pages by their bounds, then by bloom filter where that is less to
//! read than the pages; what is left of a fragment is read once for all keys.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt};
use parquet::data_type::AsBytes;
use roaring::RoaringBitmap;

use super::manifest::{Column, Entry, Fragment};
use super::open::OpenFragment;
use super::projection::Projection;
use super::read::TableReader;
use super::schema::{id, key_column};
use super::stream::stream;
use crate::{Error, Result};

/// Rows of a batch of keys that is compared at once.
const BATCH_ROWS: usize = 8_192;
/// Fragments that are searched at once.
const CONCURRENT_FRAGMENTS: usize = 8;

/// A live row of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Place of the key among the keys that were asked for.
    pub key: usize,
    /// Number of the entry whose fragment holds the row.
    pub entry: u64,
    /// Physical position in the fragment.
    pub position: u32,
    /// Row id; nodes and edges.
    pub rid: Option<u64>,
    /// Content hash; embedding tables, where the row has one.
    pub hash: Option<[u8; 32]>,
}

impl TableReader {
    /// All live rows of `keys`, sorted by key, then by stamp order of entries, then by position. A key
    /// of an embedding table can have several rows, a key that is not there has none.
    ///
    /// # Errors
    /// `InvalidArgument` unless `keys` are sorted by their bytes, each once; `Corrupt` or `Parquet`
    /// for a fragment that is not what its entry says.
    pub async fn lookup(&self, keys: &[&str]) -> Result<Vec<Found>> {
        let entries = self.entries().await?;
        self.lookup_entries(&entries, keys).await
    }

    /// As [`TableReader::lookup`], in some entries.
    pub async fn lookup_entries(&self, entries: &[Entry], keys: &[&str]) -> Result<Vec<Found>> {
        if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::InvalidArgument {
                function: "lookup".to_owned(),
                argument: "keys".to_owned(),
                reason: "expected sorted keys, each once".to_owned(),
            });
        }
        // Boxed one by one: a closure that borrows its argument is not general enough for callers
        // whose futures must be Send.
        let mut searches = Vec::with_capacity(entries.len());
        for entry in entries.iter().filter(|_| !keys.is_empty()) {
            if let Some(fragment) = &entry.fragment {
                searches.push(self.search(entry, fragment, keys).boxed());
            }
        }
        let found = futures::stream::iter(searches).buffered(CONCURRENT_FRAGMENTS);
        let mut found: Vec<Found> = found.try_concat().await?;
        // Stable: rows of a key stay in the order of entries and positions.
        found.sort_by_key(|f| f.key);
        Ok(found)
    }

    async fn search(
        &self,
        entry: &Entry,
        fragment: &Fragment,
        keys: &[&str],
    ) -> Result<Vec<Found>> {
        let in_range = candidates(fragment, keys);
        if in_range.is_empty() || fragment.dead.rows >= fragment.rows {
            return Ok(Vec::new());
        }
        let Some(open) = self.open(entry).await? else {
            return Ok(Vec::new());
        };
        let mut wanted = vec![key_column(self.table().layout)];
        wanted.extend(
            [id::RID, id::CONTENT_HASH]
                .iter()
                .filter(|c| open.root(**c).is_some()),
        );
        let columns = self.columns(Some(&wanted))?;
        let dead = Arc::clone(&open.dead);
        let (offset, slice) = (in_range.start, &keys[in_range.clone()]);
        let mut found = Vec::new();
        self.locate(&open, slice, dead, &columns, &mut |batch| {
            collect(offset, slice, open.entry, batch, &mut found)
        })
        .await?;
        Ok(found)
    }

    /// Positions of all rows of a fragment, dead ones included, whose key is among `keys` (sorted).
    ///
    /// # Errors
    /// As [`TableReader::lookup`].
    pub async fn positions_of(&self, entry: &Entry, keys: &[&str]) -> Result<RoaringBitmap> {
        let mut positions = RoaringBitmap::new();
        let Some(fragment) = &entry.fragment else {
            return Ok(positions);
        };
        let in_range = candidates(fragment, keys);
        let Some(open) = self.open(entry).await?.filter(|_| !in_range.is_empty()) else {
            return Ok(positions);
        };
        let slice = &keys[in_range];
        let columns = self.columns(Some(&[key_column(self.table().layout)]))?;
        self.locate(&open, slice, Arc::default(), &columns, &mut |batch| {
            each_match(slice, batch, &mut |_key, _row, position| {
                positions.insert(position);
                Ok(())
            })
        })
        .await?;
        Ok(positions)
    }

    /// Hands every batch that can hold rows of `keys` to `each`: `columns`, the key first, and the
    /// position columns.
    async fn locate(
        &self,
        open: &Arc<OpenFragment>,
        keys: &[&str],
        dead: Arc<RoaringBitmap>,
        columns: &[Column],
        each: &mut (dyn FnMut(&RecordBatch) -> Result<()> + Send),
    ) -> Result<()> {
        let ranges = page_ranges(open, key_column(self.table().layout), keys).await?;
        if ranges.is_empty() {
            return Ok(());
        }
        let projection = Projection::new(open, columns, true)?;
        let mut rows = stream(open, projection, &ranges, dead, BATCH_ROWS, self.budget())?;
        while let Some(batch) = rows.try_next().await? {
            each(&batch)?;
        }
        Ok(())
    }
}

impl TableReader {
    /// Live rows by row id: of `rids`, which ascend, the row id itself and `columns`, in no order.
    ///
    /// # Errors
    /// `InvalidArgument` for a property that the current schema has not; `Corrupt` or `Parquet` for a
    /// fragment that is not what its entry says.
    pub async fn rows_of(&self, rids: &[u64], columns: &[u64]) -> Result<Vec<RecordBatch>> {
        let mut wanted = vec![id::RID];
        wanted.extend_from_slice(columns);
        let columns = self.columns(Some(&wanted))?;
        let entries = self.entries().await?;
        let mut reading = Vec::new();
        for entry in entries.iter() {
            let fragment = entry.fragment.as_ref();
            if fragment.is_some_and(|f| f.dead.rows < f.rows) && !rids.is_empty() {
                reading.push(self.rows_in(entry, rids, &columns).boxed());
            }
        }
        let found = futures::stream::iter(reading).buffered(CONCURRENT_FRAGMENTS);
        found.try_concat().await
    }

    async fn rows_in(
        &self,
        entry: &Entry,
        rids: &[u64],
        columns: &[Column],
    ) -> Result<Vec<RecordBatch>> {
        let Some(open) = self.open(entry).await? else {
            return Ok(Vec::new());
        };
        let leaf = open.root(id::RID).and_then(|root| open.leaf(root));
        let key = open.file.key();
        let leaf = leaf.ok_or_else(|| Error::corrupt("fragment", key, "row ids", "none"))?;
        let mut may = |min, max| {
            let bounds = open.shifted(id::RID, min)..=open.shifted(id::RID, max);
            let first = rids.partition_point(|rid| rid < bounds.start());
            rids.get(first).is_some_and(|rid| bounds.contains(rid))
        };
        let groups = 0..open.groups.len();
        let pages: Vec<Range<u32>> = groups
            .flat_map(|group| open.number_pages(group, leaf, &mut may))
            .collect();
        // The row ids of the pages first: of the other columns few rows are read.
        let projection = Projection::new(&open, &columns[..1], true)?;
        let dead = Arc::clone(&open.dead);
        let mut ids = stream(&open, projection, &pages, dead, BATCH_ROWS, self.budget())?;
        let mut rows: Vec<Range<u32>> = Vec::new();
        while let Some(batch) = ids.try_next().await? {
            let wrong = || Error::corrupt("fragment", "batch", "row ids", "other columns");
            let all = batch.column(0).as_primitive_opt::<UInt64Type>();
            let positions = batch.columns().last();
            let positions = positions.and_then(|c| c.as_primitive_opt::<UInt32Type>());
            let (all, positions) = all.zip(positions).ok_or_else(wrong)?;
            let all = all.values().iter().zip(positions.values());
            for (_, position) in all.filter(|(rid, _)| rids.binary_search(rid).is_ok()) {
                match rows.last_mut() {
                    Some(last) if last.end == *position => last.end += 1,
                    _ => rows.push(*position..*position + 1),
                }
            }
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let projection = Projection::new(&open, columns, false)?;
        let none = Arc::default();
        let rows = stream(&open, projection, &rows, none, BATCH_ROWS, self.budget())?;
        rows.try_collect().await
    }
}

/// The keys that lie in a fragment's key range.
fn candidates(fragment: &Fragment, keys: &[&str]) -> Range<usize> {
    let range = &fragment.keys;
    let start = keys.partition_point(|k| *k < range.min.as_str());
    let after = |k: &&str| *k <= range.max.as_str() || k.starts_with(&range.max);
    start..start + keys[start..].partition_point(after)
}

/// Positions of pages that can hold one of `keys`, over all row groups.
async fn page_ranges(open: &OpenFragment, column: u64, keys: &[&str]) -> Result<Vec<Range<u32>>> {
    let key = open.file.key();
    let leaf = open.root(column).and_then(|root| open.leaf(root));
    let leaf = leaf.ok_or_else(|| Error::corrupt("fragment", key, "a key column", "none"))?;
    let mut ranges = Vec::new();
    for group in 0..open.groups.len() {
        // Bounds come with the metadata; a bloom filter is another read, so it is asked second.
        let mut near: Vec<Range<usize>> = Vec::new();
        let bounded = open.pages(group, leaf, &mut |min, max| {
            let inside = between(keys, min, max);
            let some = !inside.is_empty();
            near.extend(some.then_some(inside));
            some
        });
        if bounded.is_empty() {
            continue;
        }
        // Where the bounds leave little to read, as in a sorted column, the filter would cost more.
        let filter = open.file.bloom_bytes(open.meta.metadata(), group, leaf);
        let worth_it = filter < open.stored_bytes(group, leaf, &bounded);
        let bloom = match worth_it {
            true => open.file.bloom(open.meta.metadata(), group, leaf).await?,
            false => None,
        };
        let Some(bloom) = bloom else {
            ranges.extend(bounded);
            continue;
        };
        if near.is_empty() {
            // No page had bounds.
            near.push(0..keys.len());
        }
        let near = union(near).into_iter().flat_map(|range| &keys[range]);
        let hits: Vec<&str> = near
            .filter(|k| bloom.check(k.as_bytes()))
            .copied()
            .collect();
        if !hits.is_empty() {
            ranges.extend(open.pages(group, leaf, &mut |min, max| {
                !between(&hits, min, max).is_empty()
            }));
        }
    }
    Ok(ranges)
}

/// Sorted, disjoint ranges over the same numbers.
fn union(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|r| r.start);
    let mut out: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// The keys from `min` to `max`, both included.
fn between(keys: &[&str], min: &[u8], max: &[u8]) -> Range<usize> {
    let start = keys.partition_point(|k| k.as_bytes() < min);
    start..start + keys[start..].partition_point(|k| k.as_bytes() <= max)
}

fn each_match(
    keys: &[&str],
    batch: &RecordBatch,
    each: &mut dyn FnMut(usize, usize, u32) -> Result<()>,
) -> Result<()> {
    let wrong = || Error::corrupt("fragment", "batch", "key and positions", "other columns");
    let names = batch.column(0).as_string_opt::<i32>().ok_or_else(wrong)?;
    let positions = batch
        .columns()
        .last()
        .and_then(|c| c.as_primitive_opt::<UInt32Type>());
    let positions = positions.ok_or_else(wrong)?;
    // Number of keys below the row's. Rows are nearly always in key order, where it only grows.
    let mut below = 0;
    for row in 0..batch.num_rows() {
        let name = names.value(row);
        if below > 0 && keys[below - 1] >= name {
            below = keys[..below].partition_point(|key| *key < name);
        } else if keys.get(below).is_some_and(|key| *key < name) {
            below += keys[below..].partition_point(|key| *key < name);
        }
        if keys.get(below).is_some_and(|key| *key == name) {
            each(below, row, positions.value(row))?;
        }
    }
    Ok(())
}

fn collect(
    offset: usize,
    keys: &[&str],
    entry: u64,
    batch: &RecordBatch,
    found: &mut Vec<Found>,
) -> Result<()> {
    let rids = batch
        .columns()
        .get(1)
        .and_then(|c| c.as_primitive_opt::<UInt64Type>());
    // The entry column is UInt64 too: it stands in the second place when nothing was added.
    let rids = rids.filter(|_| batch.num_columns() > 3);
    let hashes = batch
        .columns()
        .get(1)
        .and_then(|c| c.as_fixed_size_binary_opt());
    each_match(keys, batch, &mut |key, row, position| {
        let hash = hashes.filter(|h| h.is_valid(row)).map(|h| h.value(row));
        found.push(Found {
            key: offset + key,
            entry,
            position,
            rid: rids.map(|r| r.value(row)),
            hash: hash.and_then(|h| h.try_into().ok()),
        });
        Ok(())
    })
}
