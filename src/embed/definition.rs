//! What a model is, as far as its vectors are concerned.

use serde_json::{Map, Value, json};

use super::text::TEXT_RULE;
use crate::digest::{Digest, Hasher, canonical_json};
use crate::{Error, Result};

const DOMAIN: &str = "stratagraph.model.definition.v1";

/// The canonical description of a model and its hash.
///
/// It holds everything that changes a vector: the kind of model, the version of its algorithm
/// (raised by hand when the code gives other vectors, so that a release alone is no drift), the
/// width, and the rule that assembled the text. It holds nothing else: no path, address, device,
/// batch size or time-out, because none of them may turn a table stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDefinition {
    value: Value,
    canonical: String,
    hash: Digest,
}

impl ModelDefinition {
    /// The definition of a model of this build.
    ///
    /// `parameters` are the members that only this kind of model has, such as the digest of its
    /// weights. Fractions are refused there: their spelling is not canonical.
    pub fn new(
        kind: &str,
        algorithm: u32,
        dimensions: usize,
        normalised: bool,
        parameters: Map<String, Value>,
    ) -> Result<Self> {
        Self::from_value(json!({
            "kind": kind,
            "algorithm": algorithm,
            "dimensions": dimensions,
            "normalised": normalised,
            "text_rule": TEXT_RULE,
            "parameters": parameters,
        }))
    }

    /// A definition as it was recorded; members that this build does not know count like any other.
    pub fn from_value(value: Value) -> Result<Self> {
        if !value.is_object() || has_fraction(&value) {
            return Err(Error::InvalidArgument {
                function: "model definition".to_owned(),
                argument: "value".to_owned(),
                reason: "a JSON object whose numbers are integers is expected".to_owned(),
            });
        }
        let bytes = canonical_json(&value)?;
        let mut hasher = Hasher::new(DOMAIN);
        hasher.part(&bytes);
        let hash = hasher.finish();
        let canonical = String::from_utf8(bytes).map_err(|e| Error::Source {
            source: Box::new(e),
        })?;
        Ok(Self {
            value,
            canonical,
            hash,
        })
    }

    /// The description.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The description as canonical JSON, as a table records it.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// SHA-256 over the domain `stratagraph.model.definition.v1` and the canonical JSON, each with
    /// its length. Two models with equal hashes give equal vectors.
    pub fn hash(&self) -> Digest {
        self.hash
    }
}

/// The members by which two recorded definitions differ, as `parameters.files.config.json`, in order
/// and at most eight: what a [`crate::Error::DefinitionDrift`] names.
pub fn differences(recorded: &str, current: &str) -> Vec<String> {
    const SHOWN: usize = 8;
    let parse = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let mut out = Vec::new();
    compare("", &parse(recorded), &parse(current), &mut out);
    out.truncate(SHOWN);
    out
}

fn compare(path: &str, recorded: &Value, current: &Value, out: &mut Vec<String>) {
    if recorded == current {
        return;
    }
    let (Value::Object(a), Value::Object(b)) = (recorded, current) else {
        out.push(path.to_owned());
        return;
    };
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for name in names {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        let member = |object: &Map<String, Value>| object.get(name).cloned().unwrap_or(Value::Null);
        compare(&path, &member(a), &member(b), out);
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(members) => members.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(value: Value) -> Digest {
        ModelDefinition::from_value(value).unwrap().hash()
    }

    #[test]
    fn every_member_moves_the_hash_and_their_order_does_not() {
        let base = ModelDefinition::new("hash", 1, 384, true, Map::new()).unwrap();
        assert_eq!(base.hash(), hash_of(base.value().clone()));
        let recorded = serde_json::from_str(base.canonical()).unwrap();
        assert_eq!(base, ModelDefinition::from_value(recorded).unwrap());
        for (member, other) in [
            ("kind", json!("static")),
            ("algorithm", json!(2)),
            ("dimensions", json!(385)),
            ("normalised", json!(false)),
            ("text_rule", json!(TEXT_RULE + 1)),
            ("parameters", json!({"weights": "00"})),
            ("unknown", json!(null)),
        ] {
            let mut changed = base.value().clone();
            changed[member] = other;
            assert_ne!(base.hash(), hash_of(changed), "{member}");
        }
        assert_eq!(
            hash_of(json!({"a": 1, "b": {"c": 2, "d": 3}})),
            hash_of(json!({"b": {"d": 3, "c": 2}, "a": 1}))
        );
    }

    #[test]
    fn differences_are_named_by_their_path() {
        let recorded = r#"{"a":1,"b":{"c":2,"d":{"e":3}},"f":1}"#;
        let current = r#"{"a":1,"b":{"c":9,"d":{"e":4}},"g":1}"#;
        assert_eq!(differences(recorded, current), ["b.c", "b.d.e", "f", "g"]);
        assert!(differences(recorded, recorded).is_empty());
    }

    #[test]
    fn fractions_and_other_shapes_are_refused() {
        for bad in [json!(1), json!(null), json!({"a": [1, {"b": 0.5}]})] {
            let error = ModelDefinition::from_value(bad).unwrap_err();
            assert_eq!(error.code(), "InvalidArgument");
        }
    }
}
