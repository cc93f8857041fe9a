//! One view on the string and binary arrays of Arrow.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::{Error, Result};

/// A column of strings or of byte strings, whatever its layout.
#[derive(Debug)]
pub(super) enum Cells {
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    BinaryView(BinaryViewArray),
    FixedBinary(FixedSizeBinaryArray),
}

impl Cells {
    /// Views `array` without copying, except that dictionaries and runs are unpacked.
    ///
    /// A type that is neither string nor binary is [`Error::InvalidArgument`] of `function`.
    pub(super) fn new(function: &str, array: &ArrayRef) -> Result<Self> {
        if let Some(values) = packed_type(array.data_type()) {
            return Self::new(function, &cast(array, values)?);
        }
        Ok(match array.data_type() {
            DataType::Utf8 => Self::Utf8(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string::<i64>().clone()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view().clone()),
            DataType::Binary => Self::Binary(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Self::FixedBinary(array.as_fixed_size_binary().clone()),
            other => {
                return Err(Error::InvalidArgument {
                    function: function.to_owned(),
                    argument: "columns".to_owned(),
                    reason: format!("text or binary is expected, not {other}; render it first"),
                });
            }
        })
    }

    /// Whether the column holds strings.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Utf8(_) | Self::LargeUtf8(_) | Self::Utf8View(_))
    }

    /// The string at `row`; `None` for NULL, and everywhere in a column of byte strings.
    pub(super) fn text(&self, row: usize) -> Option<&str> {
        match self {
            Self::Utf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::LargeUtf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::Utf8View(a) => a.is_valid(row).then(|| a.value(row)),
            Self::Binary(_) | Self::LargeBinary(_) | Self::BinaryView(_) | Self::FixedBinary(_) => {
                None
            }
        }
    }

    /// The bytes at `row`, a string's UTF-8 included; `None` for NULL.
    pub(super) fn bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Utf8(_) | Self::LargeUtf8(_) | Self::Utf8View(_) => {
                self.text(row).map(str::as_bytes)
            }
            Self::Binary(a) => a.is_valid(row).then(|| a.value(row)),
            Self::LargeBinary(a) => a.is_valid(row).then(|| a.value(row)),
            Self::BinaryView(a) => a.is_valid(row).then(|| a.value(row)),
            Self::FixedBinary(a) => a.is_valid(row).then(|| a.value(row)),
        }
    }
}

/// The type of the values behind a dictionary or a run-end encoding.
pub(super) fn packed_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::RunEndEncoded(_, values) => Some(values.data_type()),
        _ => None,
    }
}

/// The common length of one or more columns, or [`Error::InvalidArgument`] of `function`.
pub(super) fn common_rows(function: &str, columns: &[ArrayRef]) -> Result<usize> {
    let refuse = |reason: &str| Error::InvalidArgument {
        function: function.to_owned(),
        argument: "columns".to_owned(),
        reason: reason.to_owned(),
    };
    let Some((first, others)) = columns.split_first() else {
        return Err(refuse("at least one column is expected"));
    };
    if others.iter().any(|column| column.len() != first.len()) {
        return Err(refuse("columns of equal length are expected"));
    }
    Ok(first.len())
}
