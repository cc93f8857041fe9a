//! A fragment opened for reading: metadata checked against its manifest entry, dead rows loaded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use roaring::RoaringBitmap;

use super::file::{FragmentFile, ReadCount, read_error};
use super::guard::decode;
use super::manifest::{Column, Entry, Fragment, RidShift, TableManifest};
use super::schema::{arrow_schema, check_stored, id};
use crate::store::Store;
use crate::{Error, Result};

pub(crate) struct OpenFragment {
    /// Number of its entry.
    pub(crate) entry: u64,
    /// Physical rows.
    pub(crate) rows: u32,
    pub(crate) file: FragmentFile,
    pub(crate) meta: ArrowReaderMetadata,
    /// Columns in file order.
    pub(crate) columns: Vec<Column>,
    /// Positions of each row group.
    pub(crate) groups: Vec<Range<u32>>,
    /// Dead positions.
    pub(crate) dead: Arc<RoaringBitmap>,
    shifts: BTreeMap<u64, RidShift>,
}

impl OpenFragment {
    /// Reads metadata and bitmap; errors with `Corrupt` where the file is not what `entry` says.
    pub(crate) async fn open(
        store: &Arc<Store>,
        table: &TableManifest,
        entry: &Entry,
        fragment: &Fragment,
        count: &Arc<ReadCount>,
    ) -> Result<Self> {
        let key = &fragment.file.object.key;
        let rows = u32::try_from(fragment.rows).ok().filter(|r| *r < u32::MAX);
        let rows = rows.ok_or_else(|| wrong(key, "fewer than 2^32 rows", fragment.rows))?;
        let schema = table.schema(fragment.schema);
        let schema = schema.ok_or_else(|| wrong(key, "a known schema id", fragment.schema))?;
        check_stored(table.layout, schema, key)?;
        let file = FragmentFile::new(Arc::clone(store), Arc::new(fragment.file.clone()));
        let file = file.with_count(Arc::clone(count));
        let (metadata, dead) =
            futures::try_join!(file.metadata(), fragment.dead.load(store, fragment.rows))?;
        let groups = group_ranges(&metadata, rows)
            .ok_or_else(|| wrong(key, format!("{rows} rows"), "another number in its footer"))?;
        // The supplied schema makes the reader compare names, types and field ids with the file's.
        let options = ArrowReaderOptions::new().with_schema(arrow_schema(schema)?);
        let meta = decode("fragment", key, || {
            ArrowReaderMetadata::try_new(metadata, options).map_err(|e| read_error(key, e))
        })?;
        Ok(Self {
            entry: entry.id,
            rows,
            meta,
            columns: schema.columns.clone(),
            groups,
            dead: Arc::new(dead),
            shifts: shifts(table, fragment)?,
            file,
        })
    }

    /// All positions.
    pub(crate) fn positions(&self) -> Range<u32> {
        0..self.rows
    }

    /// Place of a property in the file.
    pub(crate) fn root(&self, property: u64) -> Option<usize> {
        self.columns.iter().position(|c| c.id == property)
    }

    /// The first leaf of a root column.
    pub(crate) fn leaf(&self, root: usize) -> Option<usize> {
        let schema = self.meta.parquet_schema();
        (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root)
    }

    /// What must be added to the stored ids of a row-id column.
    pub(crate) fn shift(&self, property: u64) -> Option<RidShift> {
        self.shifts.get(&property).copied()
    }

    /// The row id that a stored one of a column stands for; ids keep their order.
    pub(crate) fn shifted(&self, property: u64, stored: u64) -> u64 {
        match self.shift(property) {
            Some(shift) if stored >= shift.base => stored.saturating_add(shift.shift),
            _ => stored,
        }
    }

    /// Uncompressed bytes of a row in a row group, over the leaves of `roots`.
    pub(crate) fn row_bytes(&self, group: usize, roots: &[usize]) -> u64 {
        let schema = self.meta.parquet_schema();
        let Some(meta) = self.meta.metadata().row_groups().get(group) else {
            return 0;
        };
        let leaves = meta.columns().iter().enumerate();
        let bytes: u64 = leaves
            .filter(|(leaf, _)| roots.contains(&schema.get_column_root_idx(*leaf)))
            .map(|(_, c)| u64::try_from(c.uncompressed_size()).unwrap_or(0))
            .fold(0, u64::saturating_add);
        bytes / u64::try_from(meta.num_rows()).unwrap_or(1).max(1)
    }

    /// Stored bytes of the pages of a leaf column in a row group that hold rows of `ranges`.
    pub(crate) fn stored_bytes(&self, group: usize, leaf: usize, ranges: &[Range<u32>]) -> u64 {
        let offsets = self.meta.metadata().offset_index();
        let offsets = offsets.and_then(|o| o.get(group)?.get(leaf));
        let (Some(offsets), Some(all)) = (offsets, self.groups.get(group)) else {
            return u64::MAX;
        };
        let locations = offsets.page_locations();
        let Some(pages) = page_ranges(locations, all) else {
            return u64::MAX;
        };
        let meets = |p: &Range<u32>| ranges.iter().any(|r| r.start < p.end && p.start < r.end);
        let met = pages.iter().zip(locations).filter(|(page, _)| meets(page));
        met.map(|(_, l)| u64::try_from(l.compressed_page_size).unwrap_or(0))
            .sum()
    }

    /// Positions of the pages of a text column in a row group for whose bounds `may` holds; bounds are
    /// cut, so a page can lie inside them without holding the value. A page without bounds counts.
    pub(crate) fn pages(
        &self,
        group: usize,
        leaf: usize,
        may: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Vec<Range<u32>> {
        self.chosen(group, leaf, &mut |index, page| match index {
            ColumnIndexMetaData::BYTE_ARRAY(index) if page < index.num_pages() as usize => {
                let bounds = index.min_value(page).zip(index.max_value(page));
                bounds.is_none_or(|(min, max)| may(min, max))
            }
            _ => true,
        })
    }

    /// The same for a column of unsigned integers, whose bounds are whole.
    pub(crate) fn number_pages(
        &self,
        group: usize,
        leaf: usize,
        may: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Vec<Range<u32>> {
        self.chosen(group, leaf, &mut |index, page| match index {
            ColumnIndexMetaData::INT64(index) if page < index.num_pages() as usize => {
                let bounds = index.min_value(page).zip(index.max_value(page));
                bounds.is_none_or(|(min, max)| may(*min as u64, *max as u64))
            }
            _ => true,
        })
    }

    /// Positions of the pages of a leaf column in a row group that `choose` takes; all of the group where
    /// it has no index that makes sense.
    fn chosen(
        &self,
        group: usize,
        leaf: usize,
        choose: &mut dyn FnMut(&ColumnIndexMetaData, usize) -> bool,
    ) -> Vec<Range<u32>> {
        let Some(all) = self.groups.get(group).cloned() else {
            return Vec::new();
        };
        let metadata = self.meta.metadata();
        let index = metadata.column_index();
        let offsets = metadata.offset_index();
        let index = index.and_then(|i| i.get(group)?.get(leaf));
        let offsets = offsets.and_then(|o| o.get(group)?.get(leaf));
        let (Some(index), Some(offsets)) = (index, offsets) else {
            return vec![all];
        };
        let Some(pages) = page_ranges(offsets.page_locations(), &all) else {
            return vec![all];
        };
        let mut out: Vec<Range<u32>> = Vec::new();
        for (page, range) in pages.into_iter().enumerate() {
            if choose(index, page) {
                match out.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => out.push(range),
                }
            }
        }
        out
    }
}

fn group_ranges(metadata: &ParquetMetaData, rows: u32) -> Option<Vec<Range<u32>>> {
    let (mut start, mut groups) = (0u32, Vec::with_capacity(metadata.num_row_groups()));
    for group in metadata.row_groups() {
        let end = start.checked_add(u32::try_from(group.num_rows()).ok()?)?;
        groups.push(start..end);
        start = end;
    }
    (start == rows && metadata.file_metadata().num_rows() == i64::from(rows)).then_some(groups)
}

/// Positions of each page of a row group; `None` if the index makes no sense.
fn page_ranges(
    pages: &[parquet::file::page_index::offset_index::PageLocation],
    group: &Range<u32>,
) -> Option<Vec<Range<u32>>> {
    let first = |i: usize| match pages.get(i) {
        Some(page) => group
            .start
            .checked_add(u32::try_from(page.first_row_index).ok()?),
        None => Some(group.end),
    };
    let mut out = Vec::with_capacity(pages.len());
    for i in 0..pages.len() {
        let range = first(i)?..first(i + 1)?;
        let starts = i > 0 || range.start == group.start;
        if range.start > range.end || range.end > group.end || !starts {
            return None;
        }
        out.push(range);
    }
    (!out.is_empty()).then_some(out)
}

/// Shifts by row-id column; the manifest keeps them by the type whose ids a column holds.
fn shifts(table: &TableManifest, fragment: &Fragment) -> Result<BTreeMap<u64, RidShift>> {
    let mut types = BTreeMap::from([(id::RID, table.type_id)]);
    if let Some(ends) = table.endpoints {
        types.extend([(id::SRC_RID, ends.src), (id::DST_RID, ends.dst)]);
    }
    if let Some(foreign) = fragment
        .shift
        .keys()
        .find(|t| !types.values().any(|own| own == *t))
    {
        let expected = "shifts of the table's own types";
        return Err(wrong(
            &fragment.file.object.key,
            expected,
            format!("type {foreign}"),
        ));
    }
    let shift = |(column, of): (u64, u64)| Some((column, *fragment.shift.get(&of)?));
    Ok(types.into_iter().filter_map(shift).collect())
}

fn wrong(key: &str, expected: impl ToString, found: impl ToString) -> Error {
    Error::corrupt("fragment", key, expected, found)
}
