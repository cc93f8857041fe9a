//! What a schema may say, for the compiler and for the check of a stored schema.

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};

use super::findings::shown;
use super::{Bound, Member};
use crate::ann::Metric;
use crate::graph::value::{Scalar, ValueType};
use crate::limits;
use crate::text::Analyser;

/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1024 * 1024;
/// Groups within each other in a pattern.
const PATTERN_DEPTH: u32 = 64;
/// Names that loads and stored tables use themselves.
const RESERVED: [&str; 9] = [
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
    "_rid",
    "_src_rid",
    "_dst_rid",
    "_record",
];

/// Why a property may not have this name: what is wrong and what to do.
pub(super) fn reserved(name: &str, edge: bool) -> Option<(&'static str, String)> {
    let otherwise = |why: &str| format!("{why}; name the property otherwise: `own_{name}`");
    if RESERVED.contains(&name) {
        let fix = format!("name the property otherwise: `own{name}`");
        return Some(("tables and loads use it themselves", fix));
    }
    match name {
        "id" if edge => Some((
            "it is the id of the edge",
            otherwise("every edge has an `id`"),
        )),
        "id" => Some((
            "it is the id of the node",
            otherwise("the id of a node is its key"),
        )),
        "src" | "dst" | "from" | "to" if edge => Some((
            "it names an end of the edge",
            otherwise("every edge has a source and a destination"),
        )),
        _ => None,
    }
}

fn is_name(name: &str, first: fn(char) -> bool) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= limits::NAME_BYTES && name.starts_with(first) && name.chars().all(rest)
}

/// Whether a type or an interface may have this name.
pub(super) fn is_type_name(name: &str) -> bool {
    is_name(name, |c| c.is_ascii_uppercase())
}

/// Whether a property may have this name, reserved ones aside.
pub(super) fn is_property_name(name: &str) -> bool {
    is_name(name, |c| c.is_ascii_lowercase() || c == '_')
}

/// Whether a text may be a value of an enum.
pub(super) fn is_enum_value(value: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    value.chars().all(rest) && !value.is_empty() && !value.starts_with('-')
}

/// A constraint that names properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    Key,
    Unique,
    Index,
}

impl Listing {
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "`@key`",
            Self::Unique => "`@unique`",
            Self::Index => "`@index`",
        }
    }

    /// Whether a property of this type may be one of `members` members.
    pub fn fits(self, value_type: &ValueType, members: usize) -> bool {
        match value_type {
            ValueType::Scalar(_) | ValueType::Enum(_) => true,
            ValueType::Vector(_) => self == Self::Index && members == 1,
            ValueType::List(_) | ValueType::Blob => false,
        }
    }
}

/// Options of an index.
const OPTIONS: [&str; 3] = ["analyzer", "kind", "metric"];

/// Names of the options of an index.
pub(super) fn option_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter()
}

/// Values of an option of an index; `None` for an unknown option.
pub(super) fn option_values(option: &str) -> Option<Vec<&'static str>> {
    match option {
        "analyzer" => Some(Analyser::names().collect()),
        "kind" => Some(vec!["auto", "hnsw", "ivf"]),
        "metric" => Some(
            [Metric::Cosine, Metric::Dot, Metric::L2]
                .map(Metric::as_str)
                .to_vec(),
        ),
        _ => None,
    }
}

/// Whether an option means something for an index over these properties; `None` is an end.
pub(super) fn option_fits(option: &str, members: &[Option<&ValueType>]) -> bool {
    match option {
        "analyzer" => matches!(members, [Some(ValueType::Scalar(Scalar::String))]),
        _ => matches!(members, [Some(ValueType::Vector(_))]),
    }
}

/// Members without regard to their order.
pub(super) fn as_set(members: &[Member]) -> Vec<u64> {
    let number = |member: &Member| match member {
        Member::Src => 0,
        Member::Dst => 1,
        Member::Property(id) => *id,
    };
    let mut set: Vec<u64> = members.iter().map(number).collect();
    set.sort_unstable();
    set
}

/// Compiles the expression of a `@check`, within bounds of memory.
///
/// # Errors
/// What is wrong with the expression.
pub fn pattern(expression: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .size_limit(PATTERN_BYTES)
        .nest_limit(PATTERN_DEPTH)
        .build()
}

/// Least and greatest value of an integer type.
fn integers(scalar: Scalar) -> Option<(i128, i128)> {
    Some(match scalar {
        Scalar::I32 => (i32::MIN.into(), i32::MAX.into()),
        Scalar::I64 => (i64::MIN.into(), i64::MAX.into()),
        Scalar::U32 => (0, u32::MAX.into()),
        Scalar::U64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// The bound of a property that a number stands for: exact for integers, the nearest value of the
/// type for floats.
///
/// # Errors
/// What is wrong and what to do.
pub(super) fn bound(number: &str, scalar: Scalar) -> Result<Bound, (String, &'static str)> {
    let name = scalar.name();
    if let Some((least, greatest)) = integers(scalar) {
        if number.contains(['.', 'e', 'E']) {
            let message = format!("{name} has no value {}", shown(number));
            return Err((message, "write an integer"));
        }
        return match number.parse::<i128>() {
            Ok(value) if (least..=greatest).contains(&value) => Ok(Bound::Int(value.to_string())),
            _ => Err((
                format!(
                    "{} is not from {least} to {greatest}, as {name} is",
                    shown(number)
                ),
                "leave the bound out or write one within the type",
            )),
        };
    }
    let value = match scalar {
        Scalar::F32 => number.parse::<f32>().map(f64::from),
        _ => number.parse::<f64>(),
    };
    match value {
        // Adding zero makes a negative zero a positive one.
        Ok(value) if value.is_finite() => Ok(Bound::Float(format!("{:?}", value + 0.0))),
        _ => Err((
            format!("{} is more than {name} can hold", shown(number)),
            "leave the bound out or write one within the type",
        )),
    }
}

/// Whether a stored bound is one that [`bound`] makes for this type.
pub(super) fn is_bound(bound_: &Bound, scalar: Scalar) -> bool {
    let (Bound::Int(text) | Bound::Float(text)) = bound_;
    bound(text, scalar).is_ok_and(|made| made == *bound_)
}

/// The order of two bounds of one property.
pub(super) fn order(a: &Bound, b: &Bound) -> Option<Ordering> {
    match (a, b) {
        (Bound::Int(a), Bound::Int(b)) => Some(a.parse::<i128>().ok()?.cmp(&b.parse().ok()?)),
        (Bound::Float(a), Bound::Float(b)) => {
            a.parse::<f64>().ok()?.partial_cmp(&b.parse::<f64>().ok()?)
        }
        _ => None,
    }
}
