//! Annotations of types, and what all annotations share.

use std::collections::BTreeSet;

use super::Annotation as Kept;
use super::ast::{Annotation, Argument, ValueForm, Word};
use super::findings::{Findings, code, shown};

/// What an annotation stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Interface,
    Node,
    Edge,
}

/// Fewest and most edges of a source.
pub(super) type Cardinality = (u64, Option<u64>);

/// The annotations of a type that are kept as written, and its `@card`.
pub(super) fn of_type(
    annotations: &[Annotation],
    target: Target,
    findings: &mut Findings,
) -> (Vec<Kept>, Cardinality) {
    let (mut out, mut card) = (Vec::new(), None);
    let mut seen = BTreeSet::new();
    for annotation in annotations {
        match annotation.name.text.as_str() {
            name @ ("key" | "unique" | "index" | "embed" | "range" | "check") => {
                let message = format!("`@{name}` is about properties, not about a type");
                let fix = "move it into the braces";
                findings.add(code::PLACE, &annotation.span, message, fix);
            }
            "card" if target == Target::Edge => {
                if card.is_some() {
                    repeated(annotation, findings);
                }
                card = card.or(Some(cardinality(annotation, findings)));
            }
            "card" => {
                let message = "`@card` counts edges, and this is no edge type";
                let fix = "put it behind the ends of an edge type";
                findings.add(code::PLACE, &annotation.span, message, fix);
            }
            name => {
                if !seen.insert(name) && is_known(name) {
                    repeated(annotation, findings);
                }
                out.extend(kept(annotation, findings));
            }
        }
    }
    (out, card.unwrap_or((0, None)))
}

/// Whether an annotation that is kept as written has a meaning that we know.
pub(super) fn is_known(name: &str) -> bool {
    matches!(name, "description" | "instruction" | "rename_from")
}

pub(super) fn repeated(annotation: &Annotation, findings: &mut Findings) {
    let name = shown(&format!("@{}", annotation.name.text));
    let message = format!("{name} is given twice");
    findings.add(
        code::REPEATED,
        &annotation.span,
        message,
        "remove one of them",
    );
}

/// A finding about the arguments of an annotation.
pub(super) fn wrong_arguments(annotation: &Annotation, wanted: &str, findings: &mut Findings) {
    let name = shown(&format!("@{}", annotation.name.text));
    let message = format!("{name} has other arguments than it takes");
    findings.add(
        code::ARGUMENTS,
        &annotation.span,
        message,
        format!("write {wanted}"),
    );
}

/// The one quoted text that an annotation takes.
pub(super) fn one_text<'a>(
    annotation: &'a Annotation,
    wanted: &str,
    findings: &mut Findings,
) -> Option<&'a Word> {
    match annotation.arguments.as_slice() {
        [Argument::Value(value)] if value.form == ValueForm::String => Some(&value.word),
        _ => {
            wrong_arguments(annotation, wanted, findings);
            None
        }
    }
}

/// An annotation that is kept as written.
pub(super) fn kept(annotation: &Annotation, findings: &mut Findings) -> Option<Kept> {
    let name = annotation.name.text.as_str();
    if is_known(name) {
        let wanted = match name {
            "rename_from" => "the old name: `@rename_from(\"Old\")`",
            _ => "one text, as in `@description(\"...\")`",
        };
        let text = one_text(annotation, wanted, findings)?;
        if name == "rename_from" && text.text.is_empty() {
            wrong_arguments(annotation, wanted, findings);
        }
    }
    let mut out = Kept {
        name: name.to_owned(),
        value: None,
        named: std::collections::BTreeMap::new(),
    };
    for argument in &annotation.arguments {
        let taken = match argument {
            Argument::Value(value) => out.value.replace(value.word.text.clone()).is_none(),
            Argument::Named(key, value) => {
                let (key, value) = (key.text.clone(), value.word.text.clone());
                out.named.insert(key, value).is_none()
            }
            Argument::Range(_) => false,
        };
        if !taken {
            wrong_arguments(
                annotation,
                "at most one value, and each named value once",
                findings,
            );
            return None;
        }
    }
    Some(out)
}

fn cardinality(annotation: &Annotation, findings: &mut Findings) -> Cardinality {
    let [Argument::Range(bounds)] = annotation.arguments.as_slice() else {
        wrong_arguments(
            annotation,
            "a range, as in `@card(0..5)` or `@card(1..)`",
            findings,
        );
        return (0, None);
    };
    let mut number = |word: &Option<Word>| {
        let word = word.as_ref()?;
        let number = word.text.parse::<u64>().ok();
        if number.is_none() {
            let message = format!("{} is not a number of edges", shown(&word.text));
            let fix = "write an integer from 0 to 18446744073709551615";
            findings.add(code::BOUNDS, &word.span, message, fix);
        }
        number
    };
    let (min, max) = (number(&bounds.min), number(&bounds.max));
    if bounds.min.is_none() && bounds.max.is_none() {
        let fix = "write at least one bound, or remove `@card`";
        findings.add(code::BOUNDS, &bounds.span, "a range without bounds", fix);
    }
    if min > max && max.is_some() {
        let fix = "write the smaller bound first";
        findings.add(
            code::BOUNDS,
            &bounds.span,
            "a range that ends before it starts",
            fix,
        );
    }
    (min.unwrap_or(0), max)
}
