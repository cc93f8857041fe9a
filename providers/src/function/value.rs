//! Types and values of arguments.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// The name of a table, graph, type, column or pin: an identifier or a string.
    Name,
    /// A string.
    Text,
    /// An integer.
    Int,
    /// A number.
    Float,
    /// TRUE or FALSE.
    Bool,
    /// A list of strings, or one string with commas.
    Names,
    /// A list of numbers.
    Vector,
    /// A string or a list of numbers.
    Query,
    /// A struct or a string of JSON.
    Params,
    /// A name or a subquery.
    Relation,
    /// A string or an integer.
    Snapshot,
    /// Ids: a list of strings, one string, or a subquery of one column.
    Ids,
}

impl ArgType {
    /// What it expects, for messages.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Name => "a name or a string",
            Self::Text => "a string",
            Self::Int => "an integer",
            Self::Float => "a number",
            Self::Bool => "TRUE or FALSE",
            Self::Names => "a list of strings, or one string with commas",
            Self::Vector => "a list of numbers",
            Self::Query => "a string or a list of numbers",
            Self::Params => "a struct or a string of JSON",
            Self::Relation => "a table name or a subquery",
            Self::Snapshot => "a commit id or a catalog version",
            Self::Ids => "a list of strings, a string, or a subquery of one column",
        }
    }

    /// Whether an identifier stands for its own text.
    pub(crate) fn takes_identifier(self) -> bool {
        matches!(self, Self::Name | Self::Relation | Self::Names)
    }

    /// Whether a subquery can be given.
    pub(crate) fn takes_subquery(self) -> bool {
        matches!(self, Self::Relation | Self::Ids)
    }

    /// A literal as this type; `None` if it is something else.
    pub(super) fn convert(self, value: &ScalarValue) -> Option<ArgValue> {
        if value.is_null() {
            return Some(ArgValue::Null);
        }
        let text = || value.try_as_str().flatten().map(str::to_owned);
        match self {
            Self::Name | Self::Text | Self::Relation => text().map(ArgValue::Text),
            Self::Int => integer(value).map(ArgValue::Int),
            Self::Float => number(value).map(ArgValue::Float),
            Self::Bool => match value {
                ScalarValue::Boolean(Some(flag)) => Some(ArgValue::Bool(*flag)),
                _ => None,
            },
            Self::Names => match text() {
                Some(text) => Some(ArgValue::Names(split(&text))),
                None => strings(value).map(ArgValue::Names),
            },
            Self::Vector => numbers(value).map(ArgValue::Vector),
            Self::Query => text()
                .map(ArgValue::Text)
                .or_else(|| numbers(value).map(ArgValue::Vector)),
            Self::Params => match value {
                ScalarValue::Struct(_) => Some(ArgValue::Struct(value.clone())),
                _ => text().map(ArgValue::Text),
            },
            Self::Snapshot => text()
                .map(ArgValue::Text)
                .or_else(|| integer(value).map(ArgValue::Int)),
            // An id may have commas.
            Self::Ids => match text() {
                Some(text) => Some(ArgValue::Names(vec![text])),
                None => strings(value).map(ArgValue::Names),
            },
        }
    }

    /// The text of a bound parameter as this type. Parameters travel as text, so that a number with
    /// a fraction is refused for an integer and not cut.
    pub(super) fn parse(self, text: &str) -> Option<ArgValue> {
        let list = || {
            let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
            let parts = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
            parts
                .map(|p| p.parse::<f32>().ok())
                .collect::<Option<Vec<_>>>()
        };
        match self {
            Self::Name | Self::Text | Self::Relation | Self::Params => {
                Some(ArgValue::Text(text.to_owned()))
            }
            Self::Int => text.parse().ok().map(ArgValue::Int),
            Self::Float => text.parse().ok().map(ArgValue::Float),
            Self::Bool => text.parse().ok().map(ArgValue::Bool),
            Self::Names => {
                let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
                Some(ArgValue::Names(split(inner.unwrap_or(text))))
            }
            Self::Vector => list().map(ArgValue::Vector),
            Self::Query => {
                let value = list().map(ArgValue::Vector);
                Some(value.unwrap_or_else(|| ArgValue::Text(text.to_owned())))
            }
            Self::Ids => {
                let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
                Some(ArgValue::Names(match inner {
                    Some(list) => split(list),
                    None => vec![text.to_owned()],
                }))
            }
            Self::Snapshot => match text.parse() {
                Ok(version) => Some(ArgValue::Int(version)),
                Err(_) => Some(ArgValue::Text(text.to_owned())),
            },
        }
    }
}

fn split(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts.map(str::to_owned).collect()
}

fn integer(value: &ScalarValue) -> Option<i64> {
    if !value.data_type().is_integer() {
        return None;
    }
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(n)) => n,
        _ => None,
    }
}

fn number(value: &ScalarValue) -> Option<f64> {
    if !value.data_type().is_numeric() {
        return None;
    }
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(n)) => n.filter(|n| n.is_finite()),
        _ => None,
    }
}

/// The items of a list literal of any of the three list types.
fn items(value: &ScalarValue) -> Option<arrow::array::ArrayRef> {
    match value {
        ScalarValue::List(list) => Some(list.value(0)),
        ScalarValue::LargeList(list) => Some(list.value(0)),
        ScalarValue::FixedSizeList(list) => Some(list.value(0)),
        _ => None,
    }
}

fn strings(value: &ScalarValue) -> Option<Vec<String>> {
    let items = items(value)?;
    if items.is_empty() {
        return Some(Vec::new());
    }
    if !items.data_type().is_string() || items.null_count() > 0 {
        return None;
    }
    let texts = arrow::compute::cast(&items, &DataType::Utf8).ok()?;
    let texts = texts.as_string::<i32>().iter();
    Some(texts.flatten().map(str::to_owned).collect())
}

fn numbers(value: &ScalarValue) -> Option<Vec<f32>> {
    let items = items(value)?;
    if items.is_empty() {
        return Some(Vec::new());
    }
    if !items.data_type().is_numeric() || items.null_count() > 0 {
        return None;
    }
    // By way of f64, which holds every literal, so that a decimal is rounded once.
    let wide = arrow::compute::cast(&items, &DataType::Float64).ok()?;
    let wide = wide.as_primitive::<Float64Type>();
    Some(wide.values().iter().map(|v| *v as f32).collect())
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgValue {
    /// NULL, or not given and without a default.
    Null,
    /// A string or a name.
    Text(String),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A list of names.
    Names(Vec<String>),
    /// A vector.
    Vector(Vec<f32>),
    /// A struct literal.
    Struct(ScalarValue),
    /// A subquery.
    Plan(Arc<LogicalPlan>),
}

impl ArgValue {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[f64]) -> ScalarValue {
        let items: Vec<_> = values.iter().map(|v| ScalarValue::from(*v)).collect();
        ScalarValue::List(ScalarValue::new_list(&items, &DataType::Float64, true))
    }

    #[test]
    fn literals_are_typed() {
        let text = |t: &str| ScalarValue::from(t);
        let int = ScalarValue::Int64(Some(3));
        assert_eq!(ArgType::Int.convert(&int), Some(ArgValue::Int(3)));
        assert_eq!(ArgType::Int.convert(&ScalarValue::from(2.5)), None);
        assert_eq!(ArgType::Int.convert(&text("3")), None);
        assert_eq!(ArgType::Float.convert(&int), Some(ArgValue::Float(3.0)));
        assert_eq!(ArgType::Float.convert(&ScalarValue::from(f64::NAN)), None);
        let names = Some(ArgValue::Names(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(ArgType::Names.convert(&text("a, b,")), names);
        let both = [text("a"), text("b")];
        let both = ScalarValue::List(ScalarValue::new_list(&both, &DataType::Utf8, true));
        assert_eq!(ArgType::Names.convert(&both), names);
        let vector = Some(ArgValue::Vector(vec![1.0, 0.1]));
        assert_eq!(ArgType::Query.convert(&list(&[1.0, 0.1])), vector);
        assert_eq!(ArgType::Vector.convert(&text("[1]")), None);
        assert_eq!(ArgType::Snapshot.convert(&int), Some(ArgValue::Int(3)));
    }

    #[test]
    fn parameters_are_parsed_without_loss() {
        assert_eq!(ArgType::Int.parse("2.5"), None);
        assert_eq!(ArgType::Int.parse("25"), Some(ArgValue::Int(25)));
        assert_eq!(
            ArgType::Query.parse("[1.5, -2]"),
            Some(ArgValue::Vector(vec![1.5, -2.0]))
        );
        assert_eq!(
            ArgType::Query.parse("[sic]"),
            Some(ArgValue::Text("[sic]".to_owned()))
        );
        assert_eq!(ArgType::Bool.parse("maybe"), None);
    }
}
