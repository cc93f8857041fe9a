//! Types of properties, from the tree.

use super::ast::{Shape, Type, Word};
use super::findings::{Findings, code, shown};
use super::text::limit;
use crate::graph::value::{Scalar, ValueType};
use crate::{Result, limits};

/// What other languages call our types.
const ELSEWHERE: [(&str, &str); 16] = [
    ("binary", "Blob"),
    ("boolean", "Bool"),
    ("bytes", "Blob"),
    ("double", "F64"),
    ("float", "F64"),
    ("float32", "F32"),
    ("float64", "F64"),
    ("int", "I64"),
    ("int32", "I32"),
    ("int64", "I64"),
    ("integer", "I64"),
    ("long", "I64"),
    ("text", "String"),
    ("timestamp", "DateTime"),
    ("uint32", "U32"),
    ("uint64", "U64"),
];

/// The type that is written; `None`, and a finding, for one that is not a type.
///
/// # Errors
/// `ResourceLimitExceeded` for the width of a vector.
pub(super) fn value_type(written: &Type, findings: &mut Findings) -> Result<Option<ValueType>> {
    Ok(match &written.shape {
        Shape::Name(name) => named(written, name, findings),
        Shape::Vector(digits) => {
            // More digits than a usize holds are more than any limit.
            let width = digits.parse().unwrap_or(usize::MAX);
            limit("dimensions", width, limits::DIMENSIONS)?;
            let width = u32::try_from(width).ok().filter(|width| *width > 0);
            if width.is_none() {
                let fix = "write the width that the model has, such as `Vector(384)`";
                let message = "a vector has at least one dimension";
                findings.add(code::VECTOR_WIDTH, &written.span, message, fix);
            }
            width.map(ValueType::Vector)
        }
        Shape::Enum(values) => Some(enumeration(values, findings)),
        Shape::List(item) => list(item, findings)?,
    })
}

fn named(written: &Type, name: &str, findings: &mut Findings) -> Option<ValueType> {
    if let Some(scalar) = Scalar::parse(name) {
        return Some(ValueType::Scalar(scalar));
    }
    match name {
        "Blob" => return Some(ValueType::Blob),
        "Vector" => {
            let fix = "write the width that the model has, such as `Vector(384)`";
            let message = "a vector has a width";
            findings.add(code::VECTOR_WIDTH, &written.span, message, fix);
            return None;
        }
        _ => {}
    }
    let folded = name.to_ascii_lowercase();
    let known = ELSEWHERE.iter().find(|(other, _)| *other == folded);
    let fix = match known {
        Some((_, ours)) => format!("write `{ours}`"),
        None => {
            let ours = Scalar::ALL.map(Scalar::name).into_iter().chain(["Blob"]);
            let all = "the types are String, Bool, I32, I64, U32, U64, F32, F64, Date, DateTime, \
                       Blob, Vector(n), [T] and enum(...)";
            findings.suggest(name, ours, all)
        }
    };
    let message = format!("there is no type {}", shown(name));
    findings.add(code::UNKNOWN_TYPE, &written.span, message, fix);
    None
}

fn enumeration(values: &[Word], findings: &mut Findings) -> ValueType {
    let mut sorted: Vec<&Word> = values.iter().collect();
    // A stable sort: of equal values the later one is the repetition.
    sorted.sort_by(|a, b| a.text.cmp(&b.text));
    for pair in sorted.windows(2) {
        if pair[0].text == pair[1].text {
            let message = format!("the value {} is listed twice", shown(&pair[1].text));
            findings.add(
                code::ENUM_VALUE,
                &pair[1].span,
                message,
                "remove one of them",
            );
        }
    }
    ValueType::Enum(sorted.iter().map(|value| value.text.clone()).collect())
}

fn list(item: &Type, findings: &mut Findings) -> Result<Option<ValueType>> {
    if item.nullable {
        let message = "an item of a list is never null";
        let fix = "remove the `?`; put it behind `]` if the list may be null";
        findings.add(code::LIST_ITEM, &item.span, message, fix);
    }
    Ok(match value_type(item, findings)? {
        Some(ValueType::Scalar(scalar)) => Some(ValueType::List(scalar)),
        Some(_) => {
            let (message, fix) = match item.shape {
                Shape::List(_) => (
                    "list of lists",
                    "make it one list, or a node type of its own",
                ),
                Shape::Vector(_) => ("list of vectors", "make each vector a node with an edge"),
                Shape::Enum(_) => ("list of an enum", "make it a list of String"),
                Shape::Name(_) => ("list of blobs", "make each blob a node with an edge"),
            };
            let message = format!("there is no {message}");
            findings.add(code::LIST_ITEM, &item.span, message, fix);
            None
        }
        None => None,
    })
}
