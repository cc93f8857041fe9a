//! Types and values of properties, parameters and literals.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use serde::{Deserialize, Serialize};

/// A scalar type of the languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scalar {
    /// UTF-8 text.
    String,
    /// A truth value.
    Bool,
    /// A signed 32-bit integer.
    I32,
    /// A signed 64-bit integer.
    I64,
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// A 32-bit float.
    F32,
    /// A 64-bit float.
    F64,
    /// A day.
    Date,
    /// A moment in UTC, to the microsecond.
    DateTime,
}

impl Scalar {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::String,
        Self::Bool,
        Self::I32,
        Self::I64,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Date,
        Self::DateTime,
    ];

    /// Its name in the languages.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "String",
            Self::Bool => "Bool",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::U32 => "U32",
            Self::U64 => "U64",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::Date => "Date",
            Self::DateTime => "DateTime",
        }
    }

    /// The scalar type of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scalar| scalar.name() == name)
    }

    /// Its Arrow type.
    pub fn arrow(self) -> DataType {
        match self {
            Self::String => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::I32 => DataType::Int32,
            Self::I64 => DataType::Int64,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::DateTime => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Whether it is a number.
    pub fn is_numeric(self) -> bool {
        self.is_integer() || matches!(self, Self::F32 | Self::F64)
    }

    /// Whether it is an integer.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::U32 | Self::U64)
    }
}

/// The type of a property or a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueType {
    /// One scalar.
    Scalar(Scalar),
    /// A list of scalars, none of them null.
    List(Scalar),
    /// A vector of this many 32-bit floats.
    Vector(u32),
    /// One of these texts, sorted.
    Enum(Vec<String>),
    /// Bytes beside the table.
    Blob,
}

impl ValueType {
    /// Its Arrow type; an enum is text, a blob is its description's text.
    pub fn arrow(&self) -> DataType {
        let item = |data_type| Arc::new(Field::new("item", data_type, false));
        match self {
            Self::Scalar(scalar) => scalar.arrow(),
            Self::List(scalar) => DataType::List(item(scalar.arrow())),
            Self::Vector(width) => DataType::FixedSizeList(
                item(DataType::Float32),
                i32::try_from(*width).unwrap_or(i32::MAX),
            ),
            Self::Enum(_) | Self::Blob => DataType::Utf8,
        }
    }

    /// The scalar that its values are compared as.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) => Some(*scalar),
            Self::Enum(_) => Some(Scalar::String),
            Self::List(_) | Self::Vector(_) | Self::Blob => None,
        }
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scalar(scalar) => f.write_str(scalar.name()),
            Self::List(scalar) => write!(f, "[{}]", scalar.name()),
            Self::Vector(width) => write!(f, "Vector({width})"),
            Self::Enum(values) => write!(f, "enum({})", values.join(", ")),
            Self::Blob => f.write_str("Blob"),
        }
    }
}

/// A value of a literal or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer within the ranges of I64 and U64.
    Int(i128),
    /// A finite float.
    Float(f64),
    /// Text.
    String(String),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 UTC.
    DateTime(i64),
    /// A list of scalars of one type.
    List(Vec<Value>),
}
