//! Values of parameters: from JSON or typed, checked against what the query declares.

mod json;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, NaiveDate};

use super::findings::{Findings, instead, shown};
use super::{Count, Param, Query};
use crate::graph::value::{Scalar, Value, ValueType};
use crate::{Result, limits};

/// Values in the order of `params`, from the text of a JSON object; blank text has none. Errors with
/// `QueryInvalid` or `ResourceLimitExceeded`.
pub fn from_json(text: &str, params: &[Param]) -> Result<Vec<Value>> {
    if text.trim().is_empty() {
        return check(Vec::new(), params);
    }
    check(json::members(text)?, params)
}

/// A number as one of a type, any other value as it is; errors with why it is none.
pub fn number(value: &Value, of: &ValueType) -> std::result::Result<Value, String> {
    match (of, value) {
        (ValueType::Scalar(scalar), Value::Int(_) | Value::Float(_)) if scalar.is_numeric() => {
            fit_scalar(value.clone(), *scalar)
        }
        _ => Ok(value.clone()),
    }
}

/// Values in the order of `params`, from values by name. A text stands for a day or a moment too.
/// Errors with `QueryInvalid`.
pub fn check(values: Vec<(String, Value)>, params: &[Param]) -> Result<Vec<Value>> {
    let mut findings = Findings::new("");
    let declared: HashSet<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let mut given = HashMap::new();
    for (name, value) in values {
        if findings.full() {
            break;
        }
        let shown = shown(&name);
        if !declared.contains(name.as_str()) {
            let known = params.iter().map(|param| param.name.as_str());
            let fix = instead(&name, known);
            let message = format!("the query declares no parameter {shown}");
            findings.add("Q102", &(0..0), message, fix);
        } else if given.insert(name, value).is_some() {
            let message = format!("parameter {shown} is given twice");
            findings.add("Q105", &(0..0), message, "give it once");
        }
    }
    let mut checked = Vec::with_capacity(params.len());
    for param in params {
        let value = given.remove(&param.name);
        match bound(value, param) {
            Ok(value) => checked.push(value),
            Err(Misfit { code, what, fix }) => {
                let message = format!("parameter {} {what}", shown(&param.name));
                findings.add(code, &(0..0), message, fix);
            }
        }
    }
    findings.into_result(Some(checked))
}

impl Query {
    /// Values of its parameters in their order, from values by name; numbers of rows are not
    /// negative. Errors with `QueryInvalid`.
    pub fn bind(&self, values: Vec<(String, Value)>) -> Result<Vec<Value>> {
        self.counted(check(values, &self.params)?)
    }

    /// [`Query::bind`] from the text of a JSON object. Errors with `QueryInvalid` or
    /// `ResourceLimitExceeded`.
    pub fn bind_json(&self, text: &str) -> Result<Vec<Value>> {
        self.counted(from_json(text, &self.params)?)
    }

    fn counted(&self, values: Vec<Value>) -> Result<Vec<Value>> {
        let mut findings = Findings::new("");
        for count in [&self.skip, &self.limit].into_iter().flatten() {
            if let Count::Param(at) = count
                && let Some(Value::Int(..0)) = values.get(*at)
            {
                let name = shown(&self.params[*at].name);
                let message = format!("parameter {name} is a negative number of rows");
                findings.add("Q104", &(0..0), message, "give a number from 0");
            }
        }
        findings.into_result(Some(values))
    }
}

impl Count {
    /// The number of rows, `values` from [`Query::bind`]; `None` for values of another query.
    pub fn rows(&self, values: &[Value]) -> Option<u64> {
        match self {
            Self::Literal(rows) => Some(*rows),
            Self::Param(at) => match values.get(*at) {
                Some(Value::Int(rows)) => u64::try_from(*rows).ok(),
                _ => None,
            },
        }
    }
}

/// Why a value does not fit, after the parameter's name.
struct Misfit {
    code: &'static str,
    what: String,
    fix: String,
}

fn bound(value: Option<Value>, param: &Param) -> std::result::Result<Value, Misfit> {
    let declared = &param.value_type;
    match value {
        None | Some(Value::Null) if param.nullable => Ok(Value::Null),
        None => Err(Misfit {
            code: "Q101",
            what: "has no value".to_owned(),
            fix: format!("give it a value of type {declared}"),
        }),
        Some(Value::Null) => Err(Misfit {
            code: "Q103",
            what: "is null".to_owned(),
            fix: format!("give it a value, or declare it as `{declared}?`"),
        }),
        Some(value) => fit(value, declared).map_err(|what| Misfit {
            code: "Q104",
            what,
            fix: format!("give it a value of type {declared}"),
        }),
    }
}

/// A value in its declared type, or why it is none.
pub(super) fn fit(value: Value, declared: &ValueType) -> std::result::Result<Value, String> {
    match (declared, value) {
        (ValueType::Scalar(scalar), value) => fit_scalar(value, *scalar),
        (ValueType::List(scalar), Value::List(items)) => {
            let fitted = items.into_iter().enumerate().map(|(at, item)| {
                fit_scalar(item, *scalar).map_err(|what| format!("at item {} {what}", at + 1))
            });
            fitted
                .collect::<std::result::Result<_, _>>()
                .map(Value::List)
        }
        (ValueType::Vector(width), Value::List(items)) => {
            if items.len() != *width as usize {
                return Err(format!("has {} components instead of {width}", items.len()));
            }
            let fitted = items.into_iter().enumerate().map(|(at, item)| {
                fit_scalar(item, Scalar::F32)
                    .map_err(|what| format!("at component {} {what}", at + 1))
            });
            fitted
                .collect::<std::result::Result<_, _>>()
                .map(Value::List)
        }
        (ValueType::Enum(values), Value::String(text)) if values.contains(&text) => {
            Ok(Value::String(text))
        }
        (_, value) => Err(format!("is {}", kind(&value))),
    }
}

fn fit_scalar(value: Value, scalar: Scalar) -> std::result::Result<Value, String> {
    match (scalar, value) {
        (Scalar::String, value @ Value::String(_))
        | (Scalar::Bool, value @ Value::Bool(_))
        | (Scalar::Date, value @ Value::Date(_))
        | (Scalar::DateTime, value @ Value::DateTime(_)) => Ok(value),
        (Scalar::Date, Value::String(text)) => date(&text).map(Value::Date).map_err(said),
        (Scalar::DateTime, Value::String(text)) => {
            datetime(&text).map(Value::DateTime).map_err(said)
        }
        (_, Value::Int(value)) if scalar.is_integer() => match in_range(value, scalar) {
            true => Ok(Value::Int(value)),
            false => Err(format!("is {value}, which {} does not hold", scalar.name())),
        },
        (Scalar::F32 | Scalar::F64, Value::Int(value)) => fit_float(value as f64, scalar),
        (Scalar::F32 | Scalar::F64, Value::Float(value)) => fit_float(value, scalar),
        (_, value) => Err(format!("is {}", kind(&value))),
    }
}

fn said(reason: &str) -> String {
    format!("does not fit: {reason}")
}

fn in_range(value: i128, scalar: Scalar) -> bool {
    match scalar {
        Scalar::I32 => i32::try_from(value).is_ok(),
        Scalar::I64 => i64::try_from(value).is_ok(),
        Scalar::U32 => u32::try_from(value).is_ok(),
        _ => u64::try_from(value).is_ok(),
    }
}

/// A float as its type holds it: an F32 compares with columns of F32 as they store it.
fn fit_float(value: f64, scalar: Scalar) -> std::result::Result<Value, String> {
    let held = match scalar {
        Scalar::F32 => f64::from(value as f32),
        _ => value,
    };
    match held.is_finite() {
        true => Ok(Value::Float(held)),
        false => Err(format!("is no finite {}", scalar.name())),
    }
}

/// A value as a message calls it; never the value itself, which may be secret.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Int(_) => "an integer",
        Value::Float(_) => "a float",
        Value::String(_) => "a text",
        Value::Date(_) => "a day",
        Value::DateTime(_) => "a moment",
        Value::List(_) => "a list",
    }
}

/// Days since 1970-01-01 of `YYYY-MM-DD`.
pub(super) fn date(text: &str) -> std::result::Result<i32, &'static str> {
    let reason = "a day is `YYYY-MM-DD`";
    let shape = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    if text.len() != 10 || !text.bytes().enumerate().all(shape) {
        return Err(reason);
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| "there is no such day")?;
    let days = day.signed_duration_since(NaiveDate::default()).num_days();
    i32::try_from(days).map_err(|_| reason)
}

/// Microseconds since 1970-01-01 UTC of a moment in RFC 3339.
pub(super) fn datetime(text: &str) -> std::result::Result<i64, &'static str> {
    let reason = "a moment is RFC 3339 like `2024-02-29T12:00:00Z`";
    if text.len() > limits::NAME_BYTES {
        return Err(reason);
    }
    let moment = DateTime::parse_from_rfc3339(text).map_err(|_| reason)?;
    match moment.timestamp_subsec_nanos() {
        1_000_000_000.. => Err("a leap second has no moment of its own"),
        nanos if nanos % 1_000 != 0 => Err("a moment is no finer than a microsecond"),
        // The parser drops digits after the ninth.
        _ if fraction_digits(text) > 9 => Err("a moment is no finer than a microsecond"),
        _ => Ok(moment.timestamp_micros()),
    }
}

fn fraction_digits(text: &str) -> usize {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.bytes().take_while(u8::is_ascii_digit).count()
}
