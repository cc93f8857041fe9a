//! Columns that values of JSON are put into.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, FixedSizeListArray, Float32Array, Float64Array,
    Int32Array, Int64Array, ListArray, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field};

use super::Grammar;
use super::scalar::{days, micros};
use super::scan::{Kind, Token, items};
use crate::graph::value::{Scalar, ValueType};
use crate::{Error, Result};

/// What is expected where something else was found.
pub(super) type Expected = String;

/// Texts behind one another.
#[derive(Debug)]
pub(super) struct Texts {
    offsets: Vec<i32>,
    data: String,
}

impl Texts {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            data: String::new(),
        }
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn push(&mut self, text: &str) {
        self.data.push_str(text);
        // Batches end long before: a line has at most LINE_BYTES_MOST bytes.
        self.offsets
            .push(i32::try_from(self.data.len()).unwrap_or(i32::MAX));
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data
            .truncate(self.offsets.last().map_or(0, |end| *end as usize));
    }

    fn finish(mut self, nulls: Option<NullBuffer>) -> Result<StringArray> {
        // A batch may wait for long; what growth left over does not wait with it.
        self.data.shrink_to_fit();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let data = Buffer::from_vec(self.data.into_bytes());
        Ok(StringArray::try_new(offsets, data, nulls)?)
    }
}

/// Texts of which some are missing.
#[derive(Debug)]
pub(super) struct TextColumn {
    texts: Texts,
    valid: Vec<bool>,
}

impl TextColumn {
    pub fn new() -> Self {
        Self {
            texts: Texts::new(),
            valid: Vec::new(),
        }
    }

    pub fn push(&mut self, text: Option<&str>) {
        self.texts.push(text.unwrap_or_default());
        self.valid.push(text.is_some());
    }

    pub fn finish(self) -> Result<ArrayRef> {
        Ok(Arc::new(self.texts.finish(nulls(self.valid))?))
    }
}

fn nulls(valid: Vec<bool>) -> Option<NullBuffer> {
    let nulls = NullBuffer::from(valid);
    (nulls.null_count() > 0).then_some(nulls)
}

/// Scalars of one type.
#[derive(Debug)]
enum Scalars {
    Text(Texts),
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Date(Vec<i32>),
    DateTime(Vec<i64>),
}

/// The same for every kind of vector.
macro_rules! each {
    ($self:expr, $values:ident => $body:expr) => {
        match $self {
            Scalars::Text($values) => $body,
            Scalars::Bool($values) => $body,
            Scalars::I32($values) | Scalars::Date($values) => $body,
            Scalars::I64($values) | Scalars::DateTime($values) => $body,
            Scalars::U32($values) => $body,
            Scalars::U64($values) => $body,
            Scalars::F32($values) => $body,
            Scalars::F64($values) => $body,
        }
    };
}

impl Scalars {
    fn new(scalar: Scalar) -> Self {
        match scalar {
            Scalar::String => Self::Text(Texts::new()),
            Scalar::Bool => Self::Bool(Vec::new()),
            Scalar::I32 => Self::I32(Vec::new()),
            Scalar::I64 => Self::I64(Vec::new()),
            Scalar::U32 => Self::U32(Vec::new()),
            Scalar::U64 => Self::U64(Vec::new()),
            Scalar::F32 => Self::F32(Vec::new()),
            Scalar::F64 => Self::F64(Vec::new()),
            Scalar::Date => Self::Date(Vec::new()),
            Scalar::DateTime => Self::DateTime(Vec::new()),
        }
    }

    fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    fn truncate(&mut self, len: usize) {
        each!(self, values => values.truncate(len));
    }

    /// Fills the place of a null.
    fn fill(&mut self, count: usize) {
        match self {
            Self::Text(texts) => (0..count).for_each(|_| texts.push("")),
            Self::Bool(values) => values.resize(values.len() + count, false),
            Self::I32(values) | Self::Date(values) => values.resize(values.len() + count, 0),
            Self::I64(values) | Self::DateTime(values) => values.resize(values.len() + count, 0),
            Self::U32(values) => values.resize(values.len() + count, 0),
            Self::U64(values) => values.resize(values.len() + count, 0),
            Self::F32(values) => values.resize(values.len() + count, 0.0),
            Self::F64(values) => values.resize(values.len() + count, 0.0),
        }
    }

    fn push(&mut self, text: &str, token: &Token, grammar: Grammar) -> Result<(), Expected> {
        match self {
            Self::Text(texts) => {
                if token.kind != Kind::String {
                    return Err("a string".to_owned());
                }
                texts.push(&token.text(text));
            }
            Self::Bool(values) => match token.kind {
                Kind::Bool(value) => values.push(value),
                _ => return Err("true or false".to_owned()),
            },
            Self::I32(values) => values.push(integer(text, token, i32::MIN, i32::MAX)?),
            Self::I64(values) => values.push(integer(text, token, i64::MIN, i64::MAX)?),
            Self::U32(values) => values.push(integer(text, token, u32::MIN, u32::MAX)?),
            Self::U64(values) => values.push(integer(text, token, u64::MIN, u64::MAX)?),
            Self::F32(values) => values.push(float32(text, token)?),
            Self::F64(values) => {
                let value = number(token).and_then(|()| token.raw(text).parse::<f64>().ok());
                let value = value.filter(|value| value.is_finite());
                values.push(value.ok_or("a number that a 64-bit float can hold")?);
            }
            Self::Date(values) => values.push(date(text, token, grammar)?),
            Self::DateTime(values) => values.push(moment(text, token, grammar)?),
        }
        Ok(())
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        Ok(match self {
            Self::Text(texts) => Arc::new(texts.finish(nulls)?),
            Self::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            Self::I32(values) => Arc::new(Int32Array::try_new(values.into(), nulls)?),
            Self::I64(values) => Arc::new(Int64Array::try_new(values.into(), nulls)?),
            Self::U32(values) => Arc::new(UInt32Array::try_new(values.into(), nulls)?),
            Self::U64(values) => Arc::new(UInt64Array::try_new(values.into(), nulls)?),
            Self::F32(values) => Arc::new(Float32Array::try_new(values.into(), nulls)?),
            Self::F64(values) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            Self::Date(values) => Arc::new(Date32Array::try_new(values.into(), nulls)?),
            Self::DateTime(values) => {
                let array = TimestampMicrosecondArray::try_new(values.into(), nulls)?;
                Arc::new(array.with_timezone("UTC"))
            }
        })
    }
}

fn number(token: &Token) -> Option<()> {
    (token.kind == Kind::Number).then_some(())
}

/// An integer without a detour over floats, so `1.0` and `1e3` are none.
fn integer<T>(text: &str, token: &Token, least: T, most: T) -> Result<T, Expected>
where
    T: std::str::FromStr + TryFrom<i128> + std::fmt::Display,
{
    let raw = token.raw(text);
    let exact = || T::try_from(raw.parse::<i128>().ok()?).ok();
    number(token)
        .and_then(|()| raw.parse().ok().or_else(exact))
        .ok_or_else(|| format!("an integer from {least} to {most}, without a fraction or exponent"))
}

fn float32(text: &str, token: &Token) -> Result<f32, Expected> {
    number(token)
        .and_then(|()| token.raw(text).parse::<f32>().ok())
        .filter(|value| value.is_finite())
        .ok_or_else(|| "a number that a 32-bit float can hold".to_owned())
}

fn date(text: &str, token: &Token, grammar: Grammar) -> Result<i32, Expected> {
    match token.kind {
        Kind::String => {
            days(&token.text(text)).ok_or_else(|| "a day such as \"2024-05-01\"".to_owned())
        }
        Kind::Number if grammar == Grammar::Compatible => integer(text, token, i32::MIN, i32::MAX),
        _ => Err("a day such as \"2024-05-01\"".to_owned()),
    }
}

fn moment(text: &str, token: &Token, grammar: Grammar) -> Result<i64, Expected> {
    match token.kind {
        Kind::Number if grammar == Grammar::Compatible => {
            let (least, most) = (i64::MIN / 1_000, i64::MAX / 1_000);
            let millis: i64 = integer(text, token, least, most)?;
            millis
                .checked_mul(1_000)
                .ok_or_else(|| format!("milliseconds from {least} to {most}"))
        }
        Kind::String => micros(&token.text(text)).map_err(str::to_owned),
        _ => Err("a moment such as \"2024-05-01T12:00:00Z\"".to_owned()),
    }
}

#[derive(Debug)]
enum Shape {
    One,
    /// Ends of the lists, with the 0 before them.
    List(Vec<i32>),
    Vector(usize),
}

/// Values of one property.
#[derive(Debug)]
pub(super) struct Column {
    values: Scalars,
    shape: Shape,
    data_type: DataType,
    valid: Vec<bool>,
}

impl Column {
    pub fn new(value_type: &ValueType) -> Self {
        let (scalar, shape) = match value_type {
            ValueType::Scalar(scalar) => (*scalar, Shape::One),
            ValueType::List(scalar) => (*scalar, Shape::List(vec![0])),
            ValueType::Vector(width) => (Scalar::F32, Shape::Vector(*width as usize)),
            ValueType::Enum(_) | ValueType::Blob => (Scalar::String, Shape::One),
        };
        Self {
            values: Scalars::new(scalar),
            shape,
            data_type: value_type.arrow(),
            valid: Vec::new(),
        }
    }

    /// Bytes of a row beside what its text has.
    pub fn row_bytes(value_type: &ValueType) -> usize {
        match value_type {
            ValueType::Vector(width) => *width as usize * 4 + 1,
            _ => 9,
        }
    }

    pub fn push_null(&mut self) {
        match &mut self.shape {
            Shape::One => self.values.fill(1),
            Shape::List(ends) => ends.push(ends.last().copied().unwrap_or(0)),
            Shape::Vector(width) => self.values.fill(*width),
        }
        self.valid.push(false);
    }

    /// Appends a value, or nothing and what is expected in its place.
    pub fn push(&mut self, text: &str, token: &Token, grammar: Grammar) -> Result<(), Expected> {
        if matches!(self.shape, Shape::One) {
            self.values.push(text, token, grammar)?;
            self.valid.push(true);
            return Ok(());
        }
        let before = self.values.len();
        let pushed = self.push_items(text, token, grammar, before);
        match pushed {
            Ok(()) => self.valid.push(true),
            Err(_) => self.values.truncate(before),
        }
        pushed
    }

    fn push_items(
        &mut self,
        text: &str,
        token: &Token,
        grammar: Grammar,
        before: usize,
    ) -> Result<(), Expected> {
        let most = match &self.shape {
            Shape::Vector(width) => *width,
            _ => usize::MAX,
        };
        let values = &mut self.values;
        let mut count = 0;
        if token.kind == Kind::Array {
            items(text, token, |item| {
                count += 1;
                // A longer one is refused as a whole below; its rest needs no memory.
                if count > most {
                    return Ok(());
                }
                values.push(text, item, grammar).map_err(|expected| {
                    let found = item.describe(text);
                    format!("{expected} as item {count} of the array, not {found}")
                })
            })?;
        }
        match &mut self.shape {
            Shape::Vector(width) if token.kind != Kind::Array || count != *width => {
                let found = match token.kind {
                    Kind::Array => format!(", not {count}"),
                    _ => String::new(),
                };
                Err(format!("an array of {width} numbers{found}"))
            }
            Shape::List(ends) if token.kind == Kind::Array => {
                let end = ends.last().copied().unwrap_or(0);
                let grown = i32::try_from(values.len() - before)
                    .ok()
                    .and_then(|grown| end.checked_add(grown));
                ends.push(grown.ok_or("a shorter array")?);
                Ok(())
            }
            Shape::List(_) => Err("an array".to_owned()),
            Shape::Vector(_) | Shape::One => Ok(()),
        }
    }

    /// Takes back everything after the first `rows` rows.
    pub fn truncate(&mut self, rows: usize) {
        let values = match &mut self.shape {
            Shape::One => rows,
            Shape::List(ends) => {
                ends.truncate(rows + 1);
                ends.last().map_or(0, |end| *end as usize)
            }
            Shape::Vector(width) => rows * *width,
        };
        self.values.truncate(values);
        self.valid.truncate(rows);
    }

    pub fn finish(self) -> Result<ArrayRef> {
        let nulls = nulls(self.valid);
        let item = |data_type: &DataType| match data_type {
            DataType::List(item) | DataType::FixedSizeList(item, _) => Arc::clone(item),
            other => Arc::new(Field::new("item", other.clone(), false)),
        };
        match self.shape {
            Shape::One => self.values.finish(nulls),
            Shape::List(ends) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
                let values = self.values.finish(None)?;
                let item = item(&self.data_type);
                Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
            }
            Shape::Vector(width) => {
                let width = i32::try_from(width).map_err(|_| Error::ResourceLimitExceeded {
                    what: "width of a vector",
                    value: width as u64,
                    limit: crate::limits::DIMENSIONS as u64,
                })?;
                let item = item(&self.data_type);
                let values = self.values.finish(None)?;
                let array = FixedSizeListArray::try_new(item, width, values, nulls)?;
                Ok(Arc::new(array))
            }
        }
    }
}
