//! Rows by position, in any order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use super::rows::position_columns;
use crate::table::projection::{Projection, output_schema};
use crate::table::read::TableReader;
use crate::table::stream::stream;
use crate::{Error, Result};

/// Rows of a batch that is read.
const BATCH_ROWS: usize = 8_192;

/// A row of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowAt {
    /// Entry number.
    pub entry: u64,
    /// Position in the entry's fragment.
    pub position: u32,
}

/// The columns `columns` (property ids) of `rows`, a row each, in their order. Reads the pages that
/// hold them and nothing else; a row may stand there twice.
///
/// # Errors
/// `Corrupt` for a row that the version does not have, and as [`TableReader::scan`].
pub async fn take(reader: &TableReader, rows: &[RowAt], columns: &[u64]) -> Result<RecordBatch> {
    let columns = reader.columns(Some(columns))?;
    let schema = output_schema(&columns, true)?;
    let mut wanted: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for row in rows {
        wanted.entry(row.entry).or_default().insert(row.position);
    }
    let mut read = Vec::new();
    for entry in reader.entries().await?.iter() {
        let Some(positions) = wanted.remove(&entry.id) else {
            continue;
        };
        let Some(open) = reader.open(entry).await? else {
            return Err(missing(entry.id));
        };
        if positions.max().is_some_and(|last| last >= open.rows) {
            return Err(missing(entry.id));
        }
        let projection = Projection::new(&open, &columns, true)?;
        let (ranges, none) = (ranges(&positions), Arc::new(RoaringBitmap::new()));
        let budget = reader.budget();
        let batches = stream(&open, projection, &ranges, none, BATCH_ROWS, budget)?;
        read.extend(batches.try_collect::<Vec<_>>().await?);
    }
    if let Some((entry, _)) = wanted.first_key_value() {
        return Err(missing(*entry));
    }
    let all = concat_batches(&schema, &read)?;
    let (entries, positions) = position_columns(&all)?;
    let mut places = BTreeMap::new();
    for (place, (entry, position)) in (0u32..).zip(entries.iter().zip(positions)) {
        let (entry, position) = (*entry, *position);
        places.insert(RowAt { entry, position }, place);
    }
    let order: Option<Vec<u32>> = rows.iter().map(|row| places.get(row).copied()).collect();
    let order = order.ok_or_else(|| missing(0))?;
    let taken = take_record_batch(&all, &UInt32Array::from(order))?;
    Ok(taken.project(&(0..columns.len()).collect::<Vec<_>>())?)
}

fn ranges(positions: &RoaringBitmap) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for position in positions {
        match ranges.last_mut() {
            Some(last) if last.end == position => last.end += 1,
            _ => ranges.push(position..position + 1),
        }
    }
    ranges
}

fn missing(entry: u64) -> Error {
    let expected = format!("the rows of entry {entry}");
    Error::corrupt("table manifest", "search", expected, "fewer rows")
}
