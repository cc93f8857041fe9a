//! Ids of nodes from the values of their key.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;

use super::layout::Rows;
use super::{Findings, shown};
use crate::graph::schema::GraphType;
use crate::graph::violation::Violation;
use crate::{Error, Result, limits};

/// Appends the canonical text of one value: a string as it is, an integer in decimal, `true` or
/// `false`, a Date as days, a DateTime as milliseconds since 1970 (with a decimal fraction when
/// there are microseconds), a float in its shortest decimal form with `0` for both zeros.
fn write_value(out: &mut String, array: &ArrayRef, row: usize) -> Result<()> {
    let float = |value: f64, text: String| match value == 0.0 {
        true => "0".to_owned(),
        false => text,
    };
    // Writing to a String does not fail.
    let _ = match array.data_type() {
        DataType::Utf8 => write!(out, "{}", array.as_string::<i32>().value(row)),
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(row)),
        DataType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt32 => write!(out, "{}", array.as_primitive::<UInt32Type>().value(row)),
        DataType::UInt64 => write!(out, "{}", array.as_primitive::<UInt64Type>().value(row)),
        DataType::Date32 => write!(out, "{}", array.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            write!(out, "{}", millis(micros))
        }
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            write!(out, "{}", float(f64::from(value), value.to_string()))
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            write!(out, "{}", float(value, value.to_string()))
        }
        other => {
            return Err(Error::InvalidArgument {
                function: "graph_load".to_owned(),
                argument: "key".to_owned(),
                reason: format!("a value of type {other} cannot be part of a key"),
            });
        }
    };
    Ok(())
}

fn millis(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    let (whole, rest) = (micros / 1_000, micros % 1_000);
    match rest {
        0 => format!("{sign}{whole}"),
        rest => format!(
            "{sign}{whole}.{}",
            format!("{rest:03}").trim_end_matches('0')
        ),
    }
}

/// Canonical ids of rows from the columns of their key in the order of the property ids: the text
/// of the value, or for several a JSON array of the texts. A row with a null in its key has none.
///
/// # Errors
/// [`Error::InvalidArgument`] for a column that cannot be part of a key.
pub fn canonical_ids(key: &[ArrayRef], rows: usize) -> Result<StringArray> {
    let mut ids = StringBuilder::with_capacity(rows, rows * 16);
    let (mut text, mut part) = (String::new(), String::new());
    for row in 0..rows {
        text.clear();
        if key.is_empty() || key.iter().any(|column| column.is_null(row)) {
            ids.append_null();
            continue;
        }
        if let [column] = key {
            write_value(&mut text, column, row)?;
        } else {
            for (at, column) in key.iter().enumerate() {
                part.clear();
                write_value(&mut part, column, row)?;
                text.push(if at == 0 { '[' } else { ',' });
                text.push_str(&serde_json::Value::from(part.as_str()).to_string());
            }
            text.push(']');
        }
        ids.append_value(&text);
    }
    Ok(ids.finish())
}

/// The batch with the canonical ids of a keyed type in `id`, given or not. Rows whose given id is
/// another one, given ids that are empty, and texts longer than a key may be are found here.
///
/// `batch` has the columns of [`super::input_schema`]. Ids of edges and of types without a key stay.
///
/// # Errors
/// [`Error::InvalidArgument`] for other columns.
pub fn assign_ids(
    graph_type: &GraphType,
    batch: &RecordBatch,
    findings: &mut Findings,
) -> Result<RecordBatch> {
    let rows = Rows::new(graph_type, batch)?;
    let keyed = !graph_type.key.is_empty();
    let ids = if keyed {
        let mut key = graph_type.key.clone();
        key.sort_unstable();
        let columns = key.iter().filter_map(|id| rows.property(*id));
        let columns: Vec<ArrayRef> = columns.map(|(_, column)| Arc::clone(column)).collect();
        let ids = canonical_ids(&columns, batch.num_rows())?;
        find_other_ids(&rows, &ids, findings);
        ids
    } else {
        rows.ids.clone()
    };
    find_bad_texts(&rows, "the id", &ids, keyed, findings);
    if graph_type.is_edge() {
        for (at, what) in [(2, "the source"), (3, "the destination")] {
            let ends = batch.column(at).as_string::<i32>();
            find_bad_texts(&rows, what, ends, true, findings);
        }
    }
    let mut columns = batch.columns().to_vec();
    columns[1] = Arc::new(ids);
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

fn find_other_ids(rows: &Rows<'_>, ids: &StringArray, findings: &mut Findings) {
    if rows.ids.null_count() == ids.len() {
        return;
    }
    for row in 0..ids.len() {
        if !(rows.ids.is_valid(row) && ids.is_valid(row)) || rows.ids.value(row) == ids.value(row) {
            continue;
        }
        let record = rows.records.value(row);
        findings.add(record, || Violation {
            record,
            type_name: rows.graph_type.name.clone(),
            id: shown(ids.value(row)),
            rule: "key",
            message: format!(
                "the given id {:?} is not the id {:?} that the key makes; leave the id out",
                shown(rows.ids.value(row)),
                shown(ids.value(row))
            ),
        });
    }
}

/// Finds texts that are too long for a key, and empty ones where the text is no value of a key.
fn find_bad_texts(
    rows: &Rows<'_>,
    what: &str,
    texts: &StringArray,
    may_be_empty: bool,
    findings: &mut Findings,
) {
    for row in 0..texts.len() {
        let length = texts.value_length(row) as usize;
        let empty = length == 0 && !may_be_empty;
        if texts.is_null(row) || (length <= limits::KEY_BYTES && !empty) {
            continue;
        }
        let record = rows.records.value(row);
        findings.add(record, || Violation {
            record,
            type_name: rows.graph_type.name.clone(),
            id: shown(rows.id(row)),
            rule: "key",
            message: match empty {
                true => format!("{what} is empty; give it at least one character"),
                false => format!(
                    "{what} has {length} bytes, the limit is {}; use a shorter one",
                    limits::KEY_BYTES
                ),
            },
        });
    }
}
