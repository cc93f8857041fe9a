//! Results as text, in the conventions of DataFusion's own suites.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::common::format::DEFAULT_FORMAT_OPTIONS;
use sqllogictest::ColumnType;

/// Digits behind the point that floats keep: sums differ behind them with the order of partitions.
const FLOAT_DIGITS: usize = 12;

/// The letter of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letter {
    /// `B`.
    Boolean,
    /// `D`: dates and times of day.
    Date,
    /// `I`: integers of any width.
    Integer,
    /// `P`: points in time.
    Timestamp,
    /// `R`: floats and decimals.
    Real,
    /// `T`: strings.
    Text,
    /// `?`: everything else, such as lists, vectors and binary.
    Other,
}

const LETTERS: [(char, Letter); 7] = [
    ('B', Letter::Boolean),
    ('D', Letter::Date),
    ('I', Letter::Integer),
    ('P', Letter::Timestamp),
    ('R', Letter::Real),
    ('T', Letter::Text),
    ('?', Letter::Other),
];

impl ColumnType for Letter {
    fn from_char(value: char) -> Option<Self> {
        let known = LETTERS.iter().find(|(letter, _)| *letter == value);
        known.map(|(_, letter)| letter.clone())
    }

    fn to_char(&self) -> char {
        let known = LETTERS.iter().find(|(_, letter)| letter == self);
        known.map_or('?', |(letter, _)| *letter)
    }
}

/// The letters of a result's columns.
pub fn letters(schema: &Schema) -> Vec<Letter> {
    schema
        .fields()
        .iter()
        .map(|field| letter(field.data_type()))
        .collect()
}

fn letter(data_type: &DataType) -> Letter {
    match data_type {
        DataType::Boolean => Letter::Boolean,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => {
            Letter::Date
        }
        DataType::Timestamp(_, _) => Letter::Timestamp,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Letter::Text,
        DataType::Dictionary(_, values) => letter(values),
        numeric if numeric.is_integer() => Letter::Integer,
        numeric if numeric.is_floating() || numeric.is_decimal() => Letter::Real,
        _ => Letter::Other,
    }
}

/// The rows of a result. A cell with line breaks in the last column, such as a plan, becomes a
/// numbered row a line.
///
/// # Errors
/// A type that Arrow cannot print.
pub fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| cells(column))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column[row].clone()).collect();
            push_split(&mut rows, cells);
        }
    }
    Ok(rows)
}

fn cells(column: &dyn Array) -> Result<Vec<String>, ArrowError> {
    let options = DEFAULT_FORMAT_OPTIONS.with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let cell = |row: usize| match column.data_type() {
        _ if column.is_null(row) => Ok("NULL".to_owned()),
        DataType::Float16 => Ok(float(column.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => Ok(float(column.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => Ok(float(column.as_primitive::<Float64Type>().value(row))),
        numeric if numeric.is_decimal() => formatter.value(row).try_to_string().map(shorten),
        _ => formatter.value(row).try_to_string().map(text),
    };
    (0..column.len()).map(cell).collect()
}

/// A float without an exponent, its digits behind the point bounded.
fn float(value: impl Into<f64> + std::fmt::Display + Copy) -> String {
    let wide: f64 = value.into();
    if wide.is_nan() {
        return "NaN".to_owned();
    }
    if wide.is_infinite() {
        return if wide > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let mut shown = value.to_string();
    let digits = shown.split_once('.').map_or(0, |(_, digits)| digits.len());
    if digits > FLOAT_DIGITS {
        shown = shorten(format!("{wide:.FLOAT_DIGITS$}"));
    }
    match shown.as_str() {
        "-0" => "0".to_owned(),
        _ => shown,
    }
}

/// A number without zeros at its end behind the point.
fn shorten(number: String) -> String {
    if !number.contains('.') {
        return number;
    }
    number
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

fn text(value: String) -> String {
    if value.is_empty() {
        return "(empty)".to_owned();
    }
    value.trim_end_matches('\n').replace('\0', "\\0")
}

fn push_split(rows: &mut Vec<Vec<String>>, mut cells: Vec<String>) {
    let Some(last) = cells.pop_if(|cell| cell.contains('\n')) else {
        rows.push(cells);
        return;
    };
    if !cells.is_empty() {
        rows.push(cells);
    }
    for (index, line) in last.lines().enumerate() {
        let content = line.trim_start();
        // Leading blanks do not survive in a suite, and they are the shape of a plan.
        let indent = "-".repeat(line.len() - content.len());
        rows.push(vec![format!("{:02}){indent}{content}", index + 1)]);
    }
}
