//! Values of the parameters of a query or a mutation.

use serde_json::{Value as Json, json};
use stratagraph::Result;
use stratagraph::graph::query::{Param, params};
use stratagraph::graph::value::Value;
use stratagraph_providers::{ArgValue, BoundArgs};

use super::literal::struct_fields;
use crate::mutate::json_of;

/// Values of the parameters of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryParams {
    /// The text of a JSON object.
    Json(String),
    /// Values by name.
    Values(Vec<(String, Value)>),
}

impl QueryParams {
    /// Those of the argument `params`.
    pub(super) fn of(args: &BoundArgs) -> Result<Self> {
        match args.get("params") {
            ArgValue::Null => Ok(Self::Values(Vec::new())),
            ArgValue::Text(json) => Ok(Self::Json(json.clone())),
            ArgValue::Struct(value) => {
                let fields =
                    struct_fields(value).map_err(|reason| args.invalid("params", reason))?;
                Ok(Self::Values(fields))
            }
            _ => Err(args.invalid("params", "expected a struct or a string of JSON")),
        }
    }

    /// The values of declared parameters, in their order.
    pub(super) fn bind(&self, declared: &[Param]) -> Result<Vec<Value>> {
        match self {
            Self::Json(text) => params::from_json(text, declared),
            Self::Values(values) => params::check(values.clone(), declared),
        }
    }

    /// One JSON for the same values, however they were written.
    pub(super) fn json(&self) -> Json {
        match self {
            // What is no JSON is refused when the parameters are bound.
            Self::Json(text) => serde_json::from_str(text).unwrap_or(json!(text)),
            Self::Values(values) => {
                let members = values
                    .iter()
                    .map(|(name, value)| (name.clone(), json_of(value)));
                Json::Object(members.collect())
            }
        }
    }
}
