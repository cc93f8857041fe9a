//! The members of a JSON object as values, numbers exact and names unique.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::graph::query::findings::{refuse, shown};
use crate::graph::query::tokens::within;
use crate::graph::value::Value;
use crate::{Result, limits};

/// The members of an object in their order. Errors with `QueryInvalid` or `ResourceLimitExceeded`.
pub(super) fn members(text: &str) -> Result<Vec<(String, Value)>> {
    within("bytes of parameters", text.len(), limits::PARAMETER_BYTES)?;
    let fix = "write them as `{\"name\": value}`";
    // Asked first, because the parser's own message would repeat a value.
    if !text.trim_start().starts_with('{') {
        let message = "the parameters are no JSON object";
        return refuse(text, "Q106", &(0..0), message, fix);
    }
    match serde_json::from_str::<Members>(text) {
        Ok(Members(members)) => Ok(members),
        Err(error) => {
            let line = text
                .split_inclusive('\n')
                .take(error.line().saturating_sub(1));
            let start = line.map(str::len).sum::<usize>();
            let at = (start + error.column().saturating_sub(1)).min(text.len());
            let at = (0..=at)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0);
            let message = format!("the parameters are no JSON object of values: {error}");
            refuse(text, "Q106", &(at..at), message, fix)
        }
    }
}

struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
        let mut names = HashSet::new();
        let mut members = Vec::new();
        while let Some((name, Json(value))) = map.next_entry::<String, Json>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!(
                    "the member {} is there twice",
                    shown(&name)
                )));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or an array of values")
    }

    fn visit_unit<E>(self) -> std::result::Result<Json, E> {
        Ok(Json(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Json, E> {
        Ok(Json(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Json, E> {
        Ok(Json(Value::Int(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Json, E> {
        Ok(Json(Value::Int(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Json, E> {
        Ok(Json(Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Json, E> {
        Ok(Json(Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Json, E> {
        Ok(Json(Value::String(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = seq.next_element::<Json>()? {
            if matches!(item, Value::List(_)) {
                return Err(A::Error::custom("an array within an array"));
            }
            items.push(item);
        }
        Ok(Json(Value::List(items)))
    }
}
