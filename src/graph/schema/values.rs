//! Ranges, patterns and embeddings of single properties.

use std::collections::BTreeMap;
use std::ops::Range as Span;

use super::annotations::{Target, repeated, wrong_arguments};
use super::ast::{Annotation, Argument, Bounds, ValueForm, Word};
use super::constraints::Builder;
use super::fields::{Attached, Place};
use super::findings::{code, shown};
use super::rules;
use super::text::limit;
use super::{Check, Embed, Range};
use crate::graph::value::{Scalar, ValueType};
use crate::{Result, limits};

/// Patterns that were compiled, with what is wrong with them.
#[derive(Default)]
pub(super) struct Patterns<'a>(BTreeMap<&'a str, Option<String>>);

impl<'a> Patterns<'a> {
    fn check(&mut self, pattern: &'a str) -> Result<Option<&str>> {
        if !self.0.contains_key(pattern) {
            limit(
                "patterns of a schema",
                self.0.len() + 1,
                limits::GRAPH_PATTERNS,
            )?;
            let wrong = match rules::pattern(pattern) {
                Ok(_) => None,
                Err(regex::Error::CompiledTooBig(_)) => Some("it is too big".to_owned()),
                // The last line says what is wrong; those before draw the place.
                Err(error) => error
                    .to_string()
                    .lines()
                    .last()
                    .map(|line| line.trim_start_matches("error: ").to_owned()),
            };
            self.0.insert(pattern, wrong);
        }
        Ok(self.0.get(pattern).and_then(Option::as_deref))
    }
}

impl<'a> Builder<'a, '_> {
    pub(super) fn range(&mut self, at: usize, attached: Attached<'a>, bounds: &Bounds) {
        let span = &attached.annotation.span;
        if !self.node_only("@range", span) {
            return;
        }
        let scalar = match &self.fields[at].value_type {
            Some(ValueType::Scalar(scalar)) if scalar.is_numeric() => *scalar,
            Some(other) => {
                let message = format!("`@range` does not take type {}", shown(&other.to_string()));
                let fix = "give it to a property of a numeric type";
                self.findings.add(code::PROPERTY_TYPE, span, message, fix);
                return;
            }
            None => return,
        };
        let mut bound = |word: &Option<Word>| {
            let word = word.as_ref()?;
            match rules::bound(&word.text, scalar) {
                Ok(bound) => Some(bound),
                Err((message, fix)) => {
                    self.findings.add(code::BOUNDS, &word.span, message, fix);
                    None
                }
            }
        };
        let range = Range {
            property: self.first + at as u64,
            min: bound(&bounds.min),
            max: bound(&bounds.max),
        };
        if bounds.min.is_none() && bounds.max.is_none() {
            let fix = "write at least one bound, or remove `@range`";
            self.findings
                .add(code::BOUNDS, &bounds.span, "a range without bounds", fix);
        }
        if let (Some(min), Some(max)) = (&range.min, &range.max)
            && rules::order(min, max).is_none_or(std::cmp::Ordering::is_gt)
        {
            let message = "a range that ends before it starts";
            let fix = "write the smaller bound first";
            self.findings.add(code::BOUNDS, &bounds.span, message, fix);
        }
        // A range of an interface holds beside the type's own one.
        let own = |(place, there): &(Place, Range)| place.0 && there.property == range.property;
        if !attached.inherited && self.ranges.iter().any(own) {
            repeated(attached.annotation, self.findings);
        }
        if !self.ranges.iter().any(|(_, there)| *there == range) {
            self.ranges.push((attached.place(), range));
        }
    }

    pub(super) fn check(
        &mut self,
        at: usize,
        attached: Attached<'a>,
        pattern: &'a Word,
        patterns: &mut Patterns<'a>,
    ) -> Result<()> {
        let span = &attached.annotation.span;
        if !self.node_only("@check", span) {
            return Ok(());
        }
        match &self.fields[at].value_type {
            None | Some(ValueType::Scalar(Scalar::String)) => {}
            Some(other) => {
                let message = format!("`@check` does not take type {}", shown(&other.to_string()));
                let fix = "give it to a property of type String";
                self.findings.add(code::PROPERTY_TYPE, span, message, fix);
                return Ok(());
            }
        }
        if let Some(wrong) = patterns.check(&pattern.text)? {
            let message = format!("the pattern does not compile: {}", shown(wrong));
            let fix = "write a regular expression of the Rust crate regex";
            self.findings
                .add(code::PATTERN, &pattern.span, message, fix);
        }
        let check = Check {
            property: self.first + at as u64,
            pattern: pattern.text.clone(),
        };
        if !self.checks.iter().any(|(_, there)| *there == check) {
            self.checks.push((attached.place(), check));
        }
        Ok(())
    }

    fn node_only(&mut self, name: &str, span: &Span<usize>) -> bool {
        let node = self.target != Target::Edge;
        if !node {
            let message = format!("`{name}` is for node types");
            let fix = "remove it; of an edge type, `@unique` and `@card` are checked";
            self.findings.add(code::PLACE, span, message, fix);
        }
        node
    }

    pub(super) fn embed(&mut self, at: usize, annotation: &'a Annotation) {
        let span = &annotation.span;
        if self.target == Target::Edge {
            let fix = "move the property to a node type";
            let message = "an edge type has no embeddings";
            self.findings.add(code::PLACE, span, message, fix);
            return;
        }
        match &self.fields[at].value_type {
            None | Some(ValueType::Vector(_)) => {}
            Some(other) => {
                let message = format!("`@embed` does not fill type {}", shown(&other.to_string()));
                let fix = "give it to a property of type Vector";
                self.findings.add(code::PROPERTY_TYPE, span, message, fix);
                return;
            }
        }
        let (source, model) = match annotation.arguments.as_slice() {
            [Argument::Value(source)] => (source, None),
            [Argument::Value(source), Argument::Named(name, model)]
                if name.text == "model"
                    && model.form == ValueForm::String
                    && !model.word.text.is_empty() =>
            {
                (source, Some(model.word.text.clone()))
            }
            _ => {
                let wanted = "`@embed(\"title\", model = \"static\")`; the model may be left out";
                wrong_arguments(annotation, wanted, self.findings);
                return;
            }
        };
        let word = &source.word;
        let Some(source_at) = self.names.get(word.text.as_str()).copied() else {
            // The type that implements an interface may bring the text.
            if self.target == Target::Node {
                let known = self.names.keys().copied();
                let otherwise = "name a String property of this type";
                let fix = self.findings.suggest(&word.text, known, otherwise);
                let message = format!("there is no property {}", shown(&word.text));
                self.findings.add(code::EMBED, &word.span, message, fix);
            }
            return;
        };
        match &self.fields[source_at].value_type {
            None | Some(ValueType::Scalar(Scalar::String)) => {
                self.properties[at].embed = Some(Embed {
                    source: self.first + source_at as u64,
                    model,
                });
            }
            Some(other) => {
                let message = format!(
                    "{} has type {}, and models read text",
                    shown(&word.text),
                    shown(&other.to_string())
                );
                let fix = "name a property of type String";
                self.findings.add(code::EMBED, &word.span, message, fix);
            }
        }
    }
}
