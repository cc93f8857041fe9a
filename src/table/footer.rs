//! Checks the metadata of a Parquet file before anything trusts it.
//!
//! The Parquet reader takes offsets, lengths and row counts of a footer as they are and panics on some
//! that make no sense. Checksums keep damaged footers away; this keeps forged ones away too.

use std::ops::Range;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;

/// The first thing that cannot be so in a file of `size` bytes.
pub(crate) fn nonsense(metadata: &ParquetMetaData, size: u64) -> Option<String> {
    let mut rows = 0i64;
    for (i, group) in metadata.row_groups().iter().enumerate() {
        let total = rows
            .checked_add(group.num_rows())
            .filter(|_| group.num_rows() > 0);
        match total {
            Some(total) => rows = total,
            None => return Some(format!("row group {i} of {} rows", group.num_rows())),
        }
        for (leaf, column) in group.columns().iter().enumerate() {
            let Some(chunk) = chunk(column, size) else {
                return Some(format!(
                    "row group {i}, column {leaf}: bytes outside of the file"
                ));
            };
            let offsets = metadata.offset_index().and_then(|o| o.get(i)?.get(leaf));
            if let Some(offsets) = offsets
                && !pages_fit(offsets.page_locations(), &chunk, group, column)
            {
                return Some(format!(
                    "row group {i}, column {leaf}: pages outside of their chunk"
                ));
            }
        }
    }
    let counted = metadata.file_metadata().num_rows();
    (counted != rows).then(|| format!("{counted} rows in row groups of {rows}"))
}

/// Bytes of a column chunk, if they and its bloom filter lie in the file.
fn chunk(column: &ColumnChunkMetaData, size: u64) -> Option<Range<u64>> {
    let unsigned = |n: i64| u64::try_from(n).ok();
    let data = unsigned(column.data_page_offset())?;
    let start = match column.dictionary_page_offset() {
        Some(dictionary) => unsigned(dictionary).filter(|d| *d < data)?,
        None => data,
    };
    let end = start.checked_add(unsigned(column.compressed_size())?)?;
    unsigned(column.num_values())?;
    unsigned(column.uncompressed_size())?;
    if let Some(bloom) = column.bloom_filter_offset() {
        let length = unsigned(i64::from(column.bloom_filter_length().unwrap_or(0)))?;
        unsigned(bloom)?
            .checked_add(length)
            .filter(|end| *end <= size)?;
    }
    (data < end && end <= size).then_some(start..end)
}

/// Whether pages stand in their chunk one after the other and cover its rows from the first.
fn pages_fit(
    pages: &[PageLocation],
    chunk: &Range<u64>,
    group: &RowGroupMetaData,
    column: &ColumnChunkMetaData,
) -> bool {
    let (mut next_byte, mut last_row) = (chunk.start, -1i64);
    for (i, page) in pages.iter().enumerate() {
        let length = u64::try_from(page.compressed_page_size).unwrap_or(0);
        let Ok(offset) = u64::try_from(page.offset) else {
            return false;
        };
        let first =
            i > 0 || (page.first_row_index == 0 && page.offset == column.data_page_offset());
        let end = offset.checked_add(length);
        let fits =
            first && length > 0 && offset >= next_byte && end.is_some_and(|e| e <= chunk.end);
        if !fits || page.first_row_index <= last_row || page.first_row_index >= group.num_rows() {
            return false;
        }
        (next_byte, last_row) = (end.unwrap_or(u64::MAX), page.first_row_index);
    }
    !pages.is_empty()
}
