//! What differs between two states of a type: its rows by id and content.
//!
//! Fragments never change, so only rows are read that one state has and the other has not in the same
//! place. A row that only moved is read on both sides and is the same there.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt};

use super::merge::diff::{Compared, only_in};
use crate::Result;
use crate::graph::schema::{GraphType, table_columns};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::schema::{graph_schema, id};
use crate::table::stream::BatchStream;

/// Columns of [`marks`]: `k` the id, `m` a digest of the content.
pub fn marks_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, false),
        Field::new("m", DataType::FixedSizeBinary(32), false),
    ]))
}

/// Property ids of what counts as the content of a row: the ends of an edge, and the properties that
/// both states have. A property that only one of them has changes no row.
///
/// # Errors
/// None for schemas that were read: their columns have stored forms.
pub fn content_columns(a: &GraphType, b: &GraphType) -> Result<Vec<u64>> {
    let ends = [id::SRC, id::DST];
    let stored = graph_schema(b.layout(), 0, &table_columns(b)?)?;
    let columns = stored.columns.iter().map(|column| column.id);
    let both = columns.filter(|id| ends.contains(id) || a.property_by_id(*id).is_some());
    Ok(both.collect())
}

/// The rows of `ours` that `theirs` has not in the same place, with a digest of `content` each, in the
/// columns of [`marks_schema`]. Equal content has equal digests in both states; floats count by their
/// bits. Holds one batch a fragment.
///
/// # Errors
/// As [`TableReader::scan`], also while it streams.
pub async fn marks(
    ours: &TableReader,
    theirs: Option<&TableReader>,
    content: &[u64],
) -> Result<BatchStream> {
    let same = theirs.is_some_and(|theirs| theirs.table().entries == ours.table().entries);
    let entries = match theirs {
        _ if same => Vec::new(),
        Some(theirs) => only_in(ours, theirs).await?,
        None => ours.entries().await?.to_vec(),
    };
    let mut columns = vec![id::ID];
    columns.extend(content);
    let options = ReadOptions::columns(&columns);
    let compared = Compared::new(
        (1..columns.len()).collect(),
        ours.schema(&options)?.as_ref(),
    )?;
    let rows = ours.scan_entries(&entries, &options).await?;
    let schema = marks_schema();
    let marked = rows.and_then(move |batch| std::future::ready(mark(&compared, &batch, &schema)));
    Ok(marked.boxed())
}

fn mark(compared: &Compared, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let digests = compared.digests(batch)?;
    let digests = digests.iter().map(|digest| digest.as_bytes());
    let digests: ArrayRef = match batch.num_rows() {
        0 => arrow::array::new_empty_array(&DataType::FixedSizeBinary(32)),
        _ => Arc::new(FixedSizeBinaryArray::try_from_iter(digests)?),
    };
    let columns = vec![Arc::clone(batch.column(0)), digests];
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
