//! The text of columns that are not text.

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::FormatOptions;

use super::cells::packed_type;
use crate::{Error, Result};

/// Time zones are rendered in UTC: with a zone's rules, an update of the time-zone data (or a build
/// without it) would change the text of rows that nobody touched.
const UTC: &str = "+00:00";

/// Makes a column readable for [`super::assemble`] and [`super::content_hash`].
///
/// Strings and binary stay as they are; dictionaries and runs are unpacked; every other type becomes
/// Utf8 by Arrow's cast with fixed options (timestamps with a zone in UTC, `2024-05-06T07:08:09Z`).
/// A change of what this gives raises [`super::TEXT_RULE`].
///
/// A type that has no text is [`Error::InvalidArgument`]; so is a NULL that the cast would introduce,
/// because it would hide a value from the content hash.
pub fn render(column: &ArrayRef) -> Result<ArrayRef> {
    let from = column.data_type();
    if let Some(values) = packed_type(from) {
        return render(&convert(column, &values.clone())?);
    }
    match from {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Ok(ArrayRef::clone(column)),
        DataType::Timestamp(unit, Some(zone)) if zone.as_ref() != UTC => {
            let utc = DataType::Timestamp(*unit, Some(UTC.into()));
            convert(&convert(column, &utc)?, &DataType::Utf8)
        }
        _ => convert(column, &DataType::Utf8),
    }
}

fn convert(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = column.data_type();
    let refuse = |reason: String| Error::InvalidArgument {
        function: "text".to_owned(),
        argument: "columns".to_owned(),
        reason,
    };
    if !can_cast_types(from, to) {
        return Err(refuse(format!(
            "a column of type {from} has no text; cast it to text in the source"
        )));
    }
    let options = CastOptions {
        safe: false,
        format_options: FormatOptions::new().with_display_error(false).with_null(""),
    };
    let out = cast_with_options(column, to, &options)?;
    let (before, after) = (column.logical_null_count(), out.logical_null_count());
    if before != after {
        return Err(refuse(format!(
            "{after} values of a column of type {from} would be NULL as {to}, {before} are; cast it to text in the source"
        )));
    }
    Ok(out)
}
