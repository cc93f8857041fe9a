//! Brings batches of a host to the exact types of a schema.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::display::FormatOptions;

use super::schema::stored_type;
use crate::{Error, Result};

/// The batch with the fields of `schema`: same columns by position and name; views, large and
/// dictionary forms become the stored form.
///
/// # Errors
/// `InvalidArgument` for other columns, other types, or a NULL where the schema has none.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        let (expected, found) = (schema.fields().len(), batch.num_columns());
        return Err(refused(
            "columns",
            format!("expected {expected} columns, found {found}"),
        ));
    }
    let given = batch.schema();
    let pairs = schema
        .fields()
        .iter()
        .zip(given.fields())
        .zip(batch.columns());
    let columns = pairs
        .map(|((field, given), array)| conform_column(field, given, array))
        .collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| refused("columns", e.to_string()))
}

fn conform_column(field: &Field, given: &Field, array: &ArrayRef) -> Result<ArrayRef> {
    if field.name() != given.name() {
        return Err(refused(
            field.name(),
            format!("found column {:?} in its place", given.name()),
        ));
    }
    let array = if array.data_type() == field.data_type() {
        Arc::clone(array)
    } else if same_values(&stored_type(array.data_type())?, field.data_type()) {
        let options = CastOptions {
            safe: false,
            format_options: FormatOptions::default(),
        };
        cast_with_options(array, field.data_type(), &options)
            .map_err(|e| refused(field.name(), e.to_string()))?
    } else {
        let (expected, found) = (field.data_type(), array.data_type());
        return Err(refused(
            field.name(),
            format!("expected {expected}, found {found}"),
        ));
    };
    if !field.is_nullable() && array.null_count() > 0 {
        let reason = format!("{} NULLs where none are allowed", array.null_count());
        return Err(refused(field.name(), reason));
    }
    Ok(array)
}

/// Whether two stored types differ at most in whether list items may be NULL.
fn same_values(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (T::List(a), T::List(b)) => same_values(a.data_type(), b.data_type()),
        (T::FixedSizeList(a, n), T::FixedSizeList(b, m)) => {
            n == m && same_values(a.data_type(), b.data_type())
        }
        _ => from == to,
    }
}

fn refused(column: &str, reason: String) -> Error {
    Error::InvalidArgument {
        function: "write of a fragment".to_owned(),
        argument: column.to_owned(),
        reason,
    }
}
