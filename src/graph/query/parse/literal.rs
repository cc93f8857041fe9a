//! Literals: texts, numbers, days and moments.

use pest::iterators::Pair;

use super::{Builder, Rule, span};
use crate::graph::query::ast::Span;
use crate::graph::query::params::{date, datetime};
use crate::graph::value::Value;

impl Builder<'_> {
    /// The text of a literal, its escapes read.
    pub(super) fn text(&mut self, pair: &Pair<'_, Rule>) -> String {
        let place = span(pair);
        let quoted = pair.as_str();
        let inner = quoted.get(1..quoted.len().saturating_sub(1));
        let mut chars = inner.unwrap_or_default().char_indices();
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            if c != '\\' {
                text.push(c);
                continue;
            }
            let escaped = chars.next().map(|(_, c)| c);
            match escaped {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some(same @ ('"' | '\\')) => text.push(same),
                other => {
                    let start = place.start + 1 + at;
                    let length = 1 + other.map_or(0, char::len_utf8);
                    let message = "this escape is not one of `\\\"`, `\\\\`, `\\n`, `\\r`, `\\t`";
                    let fix = "write `\\\\` for a backslash";
                    self.add("Q008", &(start..start + length), message, fix);
                }
            }
        }
        text
    }

    pub(super) fn number(&mut self, pair: &Pair<'_, Rule>) -> Value {
        let digits = pair.as_str();
        if digits.contains(['.', 'e', 'E']) {
            let value = digits.parse::<f64>().ok().filter(|value| value.is_finite());
            return value.map(Value::Float).unwrap_or_else(|| {
                let fix = "write a number that a 64-bit float holds";
                self.add("Q008", &span(pair), "this float is not finite", fix);
                Value::Float(0.0)
            });
        }
        let held = i128::from(i64::MIN)..=i128::from(u64::MAX);
        let value = digits
            .parse::<i128>()
            .ok()
            .filter(|value| held.contains(value));
        value.map(Value::Int).unwrap_or_else(|| {
            let fix = format!("write an integer from {} to {}", i64::MIN, u64::MAX);
            self.add(
                "Q008",
                &span(pair),
                "no integer type holds this number",
                fix,
            );
            Value::Int(0)
        })
    }

    pub(super) fn date(&mut self, text: &str, place: &Span) -> Value {
        date(text).map(Value::Date).unwrap_or_else(|reason| {
            self.add("Q008", place, reason, "write it as `date(\"2024-02-29\")`");
            Value::Date(0)
        })
    }

    pub(super) fn datetime(&mut self, text: &str, place: &Span) -> Value {
        datetime(text)
            .map(Value::DateTime)
            .unwrap_or_else(|reason| {
                let fix = "write it as `datetime(\"2024-02-29T12:00:00Z\")`";
                self.add("Q008", place, reason, fix);
                Value::DateTime(0)
            })
    }
}
