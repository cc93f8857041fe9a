//! The text form of data types.
//!
//! A type in `list<..>` or `fixed_size_list<..>` cannot be NULL unless a `?` follows it:
//! `list<utf8?>`, `fixed_size_list<float32,384>`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};

use crate::{Error, Result, limits};

/// Lists within lists that a type may have.
const TYPE_DEPTH: usize = 4;
/// Bytes of a `fixed_size_binary` value.
const FIXED_BINARY_BYTES: i32 = 1 << 20;
/// Name of the field inside a list.
const ITEM: &str = "item";

fn unsupported(data_type: &DataType) -> Error {
    Error::NotYetSupported {
        feature: format!("a column of type {data_type}"),
    }
}

/// The type that values of `data_type` are stored as: views, large and dictionary forms lose their
/// form, not their values. Errors with `NotYetSupported` for a type that has no stored form.
pub fn stored_type(data_type: &DataType) -> Result<DataType> {
    stored(data_type, 0)
}

fn stored(data_type: &DataType, depth: usize) -> Result<DataType> {
    use DataType as T;
    let item = |field: &FieldRef| -> Result<FieldRef> {
        if depth == TYPE_DEPTH {
            return Err(unsupported(data_type));
        }
        let inner = stored(field.data_type(), depth + 1)?;
        Ok(Arc::new(Field::new(ITEM, inner, field.is_nullable())))
    };
    Ok(match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 => data_type.clone(),
        T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => data_type.clone(),
        T::Float32 | T::Float64 | T::Date32 => data_type.clone(),
        T::Utf8 | T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::Binary | T::LargeBinary | T::BinaryView => T::Binary,
        T::Timestamp(TimeUnit::Second, tz) => T::Timestamp(TimeUnit::Millisecond, tz.clone()),
        T::Timestamp(unit, tz) => T::Timestamp(*unit, tz.clone()),
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) => T::Decimal128(*p, *s),
        T::Dictionary(_, values) => stored(values, depth)?,
        T::List(f) | T::LargeList(f) | T::ListView(f) | T::LargeListView(f) => T::List(item(f)?),
        T::FixedSizeList(f, n) => T::FixedSizeList(item(f)?, *n),
        T::FixedSizeBinary(n) => T::FixedSizeBinary(*n),
        other => return Err(unsupported(other)),
    })
}

/// The text form of a type, after [`stored_type`].
pub fn type_text(data_type: &DataType) -> Result<String> {
    let stored = stored_type(data_type)?;
    let text = spell(&stored);
    // One grammar decides what exists: what cannot be read back is not written.
    match parse_type(&text) {
        Some(parsed) if parsed == stored => Ok(text),
        _ => Err(unsupported(data_type)),
    }
}

fn spell(data_type: &DataType) -> String {
    use DataType as T;
    let item = |f: &FieldRef| {
        let mark = if f.is_nullable() { "?" } else { "" };
        format!("{}{mark}", spell(f.data_type()))
    };
    match data_type {
        T::Boolean => "bool".to_owned(),
        T::Timestamp(unit, tz) => {
            let unit = match unit {
                TimeUnit::Second => "s",
                TimeUnit::Millisecond => "ms",
                TimeUnit::Microsecond => "us",
                TimeUnit::Nanosecond => "ns",
            };
            let tz = tz.as_ref().map(|tz| format!(",{tz}")).unwrap_or_default();
            format!("timestamp({unit}{tz})")
        }
        T::Decimal128(p, s) => format!("decimal128({p},{s})"),
        T::List(f) => format!("list<{}>", item(f)),
        T::FixedSizeList(f, n) => format!("fixed_size_list<{},{n}>", item(f)),
        T::FixedSizeBinary(n) => format!("fixed_size_binary<{n}>"),
        plain => plain.to_string().to_ascii_lowercase(),
    }
}

/// Reads the text form of a type; `None` for anything that [`type_text`] does not write.
pub fn parse_type(text: &str) -> Option<DataType> {
    let parsed = parse(text, 0)?;
    (spell(&parsed) == text && item_count(&parsed)? <= limits::DIMENSIONS).then_some(parsed)
}

/// Bytes that a NULL of a type takes in an array.
pub(crate) fn null_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(f, n) => {
            null_bytes(f.data_type()).saturating_mul(u64::try_from(*n).unwrap_or(0))
        }
        DataType::FixedSizeBinary(n) => u64::try_from(*n).unwrap_or(0),
        other => other.primitive_width().unwrap_or(8) as u64,
    }
}

/// Leaf values of one value of fixed size.
fn item_count(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(f, n) => {
            item_count(f.data_type())?.checked_mul(usize::try_from(*n).ok()?)
        }
        _ => Some(1),
    }
}

fn parse(text: &str, depth: usize) -> Option<DataType> {
    use DataType as T;
    let inner = |name: &str, open: char, close: char| {
        text.strip_prefix(name)?
            .strip_prefix(open)?
            .strip_suffix(close)
    };
    let item = |text: &str| {
        let (text, nullable) = match text.strip_suffix('?') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let inner = parse(text, depth + 1).filter(|_| depth < TYPE_DEPTH)?;
        Some(Arc::new(Field::new(ITEM, inner, nullable)))
    };
    if let Some(args) = inner("timestamp", '(', ')') {
        return parse_timestamp(args);
    }
    if let Some(args) = inner("decimal128", '(', ')') {
        let (precision, scale) = args.split_once(',')?;
        let (p, s): (u8, i8) = (precision.parse().ok()?, scale.parse().ok()?);
        return ((1..=38).contains(&p) && (0..=p as i8).contains(&s))
            .then_some(T::Decimal128(p, s));
    }
    if let Some(args) = inner("fixed_size_list", '<', '>') {
        let (element, n) = args.rsplit_once(',')?;
        let n: i32 = n.parse().ok().filter(|n| *n > 0)?;
        return Some(T::FixedSizeList(item(element)?, n));
    }
    if let Some(args) = inner("list", '<', '>') {
        return Some(T::List(item(args)?));
    }
    if let Some(n) = inner("fixed_size_binary", '<', '>') {
        let n = n
            .parse()
            .ok()
            .filter(|n| (1..=FIXED_BINARY_BYTES).contains(n))?;
        return Some(T::FixedSizeBinary(n));
    }
    parse_plain(text)
}

fn parse_plain(text: &str) -> Option<DataType> {
    use DataType as T;
    Some(match text {
        "bool" => T::Boolean,
        "int8" => T::Int8,
        "int16" => T::Int16,
        "int32" => T::Int32,
        "int64" => T::Int64,
        "uint8" => T::UInt8,
        "uint16" => T::UInt16,
        "uint32" => T::UInt32,
        "uint64" => T::UInt64,
        "float32" => T::Float32,
        "float64" => T::Float64,
        "utf8" => T::Utf8,
        "binary" => T::Binary,
        "date32" => T::Date32,
        _ => return None,
    })
}

fn parse_timestamp(args: &str) -> Option<DataType> {
    let (unit, tz) = match args.split_once(',') {
        Some((unit, tz)) => (unit, Some(tz)),
        None => (args, None),
    };
    let unit = match unit {
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'+' | b'-' | b':');
    let tz_ok = tz.is_none_or(|tz| (1..=64).contains(&tz.len()) && tz.bytes().all(plain));
    tz_ok.then(|| DataType::Timestamp(unit, tz.map(Arc::from)))
}
