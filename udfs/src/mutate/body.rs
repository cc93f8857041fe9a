//! What makes two calls with one request id the same.

use serde_json::{Value as Json, json};
use stratagraph::graph::value::Value;
use twox_hash::XxHash3_128;

/// Bits of a digest that any reader of JSON holds exactly.
const BITS: u32 = 53;

/// A digest of the parts of a call, for the counts of its commit.
pub(crate) fn digest(parts: &Json) -> i64 {
    let hash = XxHash3_128::oneshot(parts.to_string().as_bytes());
    i64::try_from(hash >> (u128::BITS - BITS)).unwrap_or(0)
}

/// A parameter as JSON, with its kind where JSON has none.
pub(crate) fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::Int(n) => match i64::try_from(*n) {
            Ok(n) => json!(n),
            Err(_) => json!({ "int": n.to_string() }),
        },
        Value::Float(f) => json!(f),
        Value::String(text) => json!(text),
        Value::Date(days) => json!({ "date": days }),
        Value::DateTime(micros) => json!({ "datetime": micros }),
        Value::List(items) => Json::Array(items.iter().map(json_of).collect()),
    }
}
