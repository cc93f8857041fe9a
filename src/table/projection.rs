//! Columns of a fragment as a reader wants them: found by property id, NULL where an older fragment
//! has none, row ids shifted.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, UInt64Type};
use parquet::arrow::ProjectionMask;

use super::manifest::{Column, RidShift};
use super::open::OpenFragment;
use super::schema::arrow_field;
use super::types::null_bytes;
use crate::{Error, Result};

/// Name of the column that holds the entry number, UInt64.
pub const ENTRY_COLUMN: &str = "_entry";
/// Name of the column that holds the physical position in the fragment, UInt32.
pub const POSITION_COLUMN: &str = "_position";

/// The Arrow schema of `columns`, with the two position columns at the end if they are asked for.
pub(crate) fn output_schema(columns: &[Column], positions: bool) -> Result<SchemaRef> {
    let mut fields = columns
        .iter()
        .map(arrow_field)
        .collect::<Result<Vec<_>>>()?;
    if positions {
        fields.push(Field::new(ENTRY_COLUMN, DataType::UInt64, false));
        fields.push(Field::new(POSITION_COLUMN, DataType::UInt32, false));
    }
    Ok(Arc::new(Schema::new(Fields::from(fields))))
}

enum Output {
    Stored(usize, Option<RidShift>),
    Null(DataType),
}

pub(crate) struct Projection {
    /// Root columns that are read, ascending.
    pub(crate) roots: Vec<usize>,
    /// The same for the Parquet reader.
    pub(crate) mask: ProjectionMask,
    /// Bytes that a row takes in columns that the fragment lacks.
    pub(crate) null_bytes: u64,
    outputs: Vec<Output>,
    positions: bool,
    schema: SchemaRef,
    entry: u64,
    key: String,
}

impl Projection {
    /// Errors with `Corrupt` if a column has another type in the fragment, or is missing there and
    /// cannot be NULL.
    pub(crate) fn new(open: &OpenFragment, columns: &[Column], positions: bool) -> Result<Self> {
        let key = open.file.key();
        let found: Vec<Option<usize>> = columns.iter().map(|c| open.root(c.id)).collect();
        let mut roots: Vec<usize> = found.iter().flatten().copied().collect();
        roots.sort_unstable();
        roots.dedup();
        let mut outputs = Vec::with_capacity(columns.len());
        for (column, root) in columns.iter().zip(found) {
            let stored =
                root.and_then(|r| Some((open.columns.get(r)?, roots.binary_search(&r).ok()?)));
            outputs.push(match stored {
                Some((stored, _)) if stored.data_type != column.data_type => {
                    let expected = format!("{} of type {}", column.name, column.data_type);
                    return Err(Error::corrupt("fragment", key, expected, &stored.data_type));
                }
                Some((_, place)) => Output::Stored(place, open.shift(column.id)),
                None if column.nullable => Output::Null(arrow_field(column)?.data_type().clone()),
                None => {
                    let expected = format!("property {} ({})", column.id, column.name);
                    return Err(Error::corrupt("fragment", key, expected, "no such column"));
                }
            });
        }
        let null_bytes = outputs.iter().map(|output| match output {
            Output::Null(data_type) => null_bytes(data_type),
            Output::Stored(..) => 0,
        });
        Ok(Self {
            null_bytes: null_bytes.fold(0, u64::saturating_add),
            mask: ProjectionMask::roots(open.meta.parquet_schema(), roots.iter().copied()),
            roots,
            outputs,
            positions,
            schema: output_schema(columns, positions)?,
            entry: open.entry,
            key: key.to_owned(),
        })
    }

    /// The output of a batch of the file; `positions` holds the positions of its rows.
    pub(crate) fn apply(&self, batch: &RecordBatch, positions: Vec<u32>) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.outputs.len() + 2);
        for output in &self.outputs {
            columns.push(match output {
                Output::Null(data_type) => new_null_array(data_type, rows),
                Output::Stored(place, shift) => self.stored(batch, *place, *shift)?,
            });
        }
        if self.positions {
            columns.push(Arc::new(UInt64Array::from_value(self.entry, rows)) as ArrayRef);
            columns.push(Arc::new(UInt32Array::from(positions)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| Error::corrupt("fragment", &self.key, "columns of its schema", e))
    }

    fn stored(
        &self,
        batch: &RecordBatch,
        place: usize,
        shift: Option<RidShift>,
    ) -> Result<ArrayRef> {
        let missing = || Error::corrupt("fragment", &self.key, "a column of its schema", "none");
        let array = batch.columns().get(place).ok_or_else(missing)?;
        let Some(shift) = shift else {
            return Ok(Arc::clone(array));
        };
        let ids = array.as_primitive_opt::<UInt64Type>().ok_or_else(missing)?;
        let overflow = |id: u64| {
            let found = format!("id {id} with shift {}", shift.shift);
            Error::corrupt("fragment", &self.key, "row ids below 2^64", found)
        };
        let shifted = ids.iter().map(|id| match id {
            Some(id) if id >= shift.base => id
                .checked_add(shift.shift)
                .map(Some)
                .ok_or_else(|| overflow(id)),
            other => Ok(other),
        });
        let shifted = shifted.collect::<Result<UInt64Array>>()?;
        debug_assert_eq!(shifted.len(), array.len());
        Ok(Arc::new(shifted))
    }
}
