//! Findings of one text, and the names that a misspelt one is near to.

use super::ast::Span;
use crate::graph::diagnostic::{Diagnostic, Diagnostics};
use crate::limits;
use crate::{Error, Result};

/// Longest name that a message shows whole, in characters.
const SHOWN: usize = 64;

/// Findings of one text.
pub(super) struct Findings<'a> {
    text: &'a str,
    list: Vec<Diagnostic>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let list = Vec::new();
        Self { text, list }
    }

    /// Whether there are as many as one error lists; further ones are not worth their work.
    pub(super) fn full(&self) -> bool {
        self.list.len() >= limits::VIOLATIONS
    }

    pub(super) fn add(
        &mut self,
        code: &'static str,
        span: &Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        if !self.full() {
            let found = Diagnostic::new(self.text, span.clone(), code, message, fix);
            self.list.push(found);
        }
    }

    /// `value` if there are no findings. Errors with all of them in the order of their places.
    pub(super) fn into_result<T>(mut self, value: Option<T>) -> Result<T> {
        self.list.sort_by_key(|found| found.span.start);
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => Err(Error::QueryInvalid {
                diagnostics: Diagnostics(self.list),
            }),
        }
    }
}

/// One finding as an error.
pub(super) fn refuse<T>(
    text: &str,
    code: &'static str,
    span: &Span,
    message: impl Into<String>,
    fix: impl Into<String>,
) -> Result<T> {
    let mut findings = Findings::new(text);
    findings.add(code, span, message, fix);
    findings.into_result(None)
}

/// A name as a message shows it.
pub(super) fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}...`", &name[..end]),
        None => format!("`{name}`"),
    }
}

/// Names as a message lists them, at most 20.
pub(super) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut all: Vec<String> = names.take(21).map(shown).collect();
    if all.len() > 20 {
        all[20] = "...".to_owned();
    }
    all.join(", ")
}

/// What to write instead of `name`: the nearest of the known names, else one of them.
pub(super) fn instead<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    if let Some(near) = nearest(name, &known) {
        return format!("write {}", shown(near));
    }
    match known.is_empty() {
        true => "there is none to choose from".to_owned(),
        false => format!("write one of {}", listed(known.into_iter())),
    }
}

/// The known name with the fewest edits from `name`, at most a third of its letters and one.
fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let most = name.len() / 3 + 1;
    let near = |known: &&'n str| known.len().abs_diff(name.len()) <= most;
    if name.len() > limits::NAME_BYTES {
        return None;
    }
    let scored = known.iter().copied().filter(near).map(|known| {
        let (a, b) = (name.to_lowercase(), known.to_lowercase());
        (edits(a.as_bytes(), b.as_bytes()), known)
    });
    let best = scored.min_by_key(|(edits, _)| *edits)?;
    (best.0 <= most).then_some(best.1)
}

/// Insertions, deletions and replacements of bytes that lead from `a` to `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_within_a_third_of_the_letters() {
        let known = ["Person", "Paper", "WrittenBy"];
        assert_eq!(nearest("Persn", &known), Some("Person"));
        assert_eq!(nearest("paper", &known), Some("Paper"));
        assert_eq!(nearest("writenBy", &known), Some("WrittenBy"));
        assert_eq!(nearest("Company", &known), None);
        assert_eq!(nearest(&"p".repeat(1 << 20), &known), None);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
        assert_eq!(edits(b"abc", b"abc"), 0);
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(shown(&"é".repeat(65)), format!("`{}...`", "é".repeat(64)));
        assert_eq!(shown("abc"), "`abc`");
    }
}
