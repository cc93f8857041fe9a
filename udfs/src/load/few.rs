//! Few rows, sorted and joined in memory: making and running a plan takes longer than the work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{
    SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch,
};
use arrow::datatypes::{SchemaRef, UInt64Type};
use futures::TryStreamExt;
use stratagraph::{Error, Result, limits};

use crate::spool::Spool;

/// Rows that are worked on in memory.
const ROWS: u64 = 8_192;

/// The rows of a spool as one batch, if they are few.
pub(super) async fn few(rows: &Spool) -> Result<Option<RecordBatch>> {
    if rows.rows() > ROWS || rows.bytes() > limits::HELD_BYTES as u64 {
        return Ok(None);
    }
    let batches: Vec<RecordBatch> = rows.read().try_collect().await?;
    Ok(Some(concat_batches(rows.schema(), &batches)?))
}

/// The rows in the order of some columns, NULLs last.
pub(super) fn sorted(rows: &RecordBatch, by: &[usize]) -> Result<RecordBatch> {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let columns = by.iter().map(|column| SortColumn {
        values: Arc::clone(rows.column(*column)),
        options: Some(options),
    });
    let order = lexsort_to_indices(&columns.collect::<Vec<_>>(), None)?;
    Ok(take_record_batch(rows, &order)?)
}

/// The ids of a column `k`, or another of texts.
pub(super) fn ids(rows: &RecordBatch, column: &str) -> Result<BTreeSet<String>> {
    let ids = texts(rows, column)?;
    Ok(ids.iter().flatten().map(str::to_owned).collect())
}

fn texts<'a>(rows: &'a RecordBatch, column: &str) -> Result<&'a StringArray> {
    let found = rows.column_by_name(column);
    let found = found.and_then(|array| array.as_string_opt::<i32>());
    found.ok_or_else(|| Error::corrupt("spooled rows", column, "texts", "none"))
}

/// Row ids by id, from columns `k` and `x`, of rows that are few.
pub(super) async fn row_ids(spools: &[Spool]) -> Result<Option<BTreeMap<String, u64>>> {
    let mut known = BTreeMap::new();
    for spool in spools {
        let Some(rows) = few(spool).await? else {
            return Ok(None);
        };
        let rids = rows.column_by_name("x");
        let rids = rids.and_then(|array| array.as_primitive_opt::<UInt64Type>());
        let rids = rids.ok_or_else(|| Error::corrupt("spooled rows", "x", "row ids", "none"))?;
        let ids = texts(&rows, "k")?.iter().flatten();
        known.extend(ids.map(str::to_owned).zip(rids.values().iter().copied()));
    }
    Ok(Some(known))
}

/// Edges with the row ids of their ends as two more columns, in the order of a fragment.
pub(super) fn with_ends(
    edges: &RecordBatch,
    schema: &SchemaRef,
    [from, to]: [&BTreeMap<String, u64>; 2],
) -> Result<RecordBatch> {
    let rids = |column, known: &BTreeMap<String, u64>| -> Result<ArrayRef> {
        let ends = texts(edges, column)?.iter();
        let rids = ends.map(|end| end.and_then(|end| known.get(end).copied()));
        Ok(Arc::new(rids.collect::<UInt64Array>()))
    };
    let mut columns = edges.columns().to_vec();
    columns.extend([rids("s", from)?, rids("d", to)?]);
    let rows = RecordBatch::try_new(Arc::clone(schema), columns)?;
    let own = rows.num_columns() - 2;
    sorted(&rows, &[own, own + 1, 1])
}
