//! What a compilation finds wrong, collected.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Error;
use crate::graph::diagnostic::{Diagnostic, Diagnostics};

/// Stable codes; `docs/pg.md` explains each with an example.
pub(super) mod code {
    pub const SYNTAX: &str = "S001";
    pub const ESCAPE: &str = "S002";
    pub const NAME: &str = "S003";
    pub const DECLARED_TWICE: &str = "S004";
    pub const PROPERTY_TWICE: &str = "S005";
    pub const RESERVED: &str = "S006";
    pub const UNKNOWN_TYPE: &str = "S007";
    pub const VECTOR_WIDTH: &str = "S008";
    pub const LIST_ITEM: &str = "S009";
    pub const ENUM_VALUE: &str = "S010";
    pub const EDGE_END: &str = "S011";
    pub const INTERFACE: &str = "S012";
    pub const CONTRACT: &str = "S013";
    pub const INTERFACE_BODY: &str = "S014";
    pub const PLACE: &str = "S015";
    pub const ARGUMENTS: &str = "S016";
    pub const UNKNOWN_PROPERTY: &str = "S017";
    pub const PROPERTY_TYPE: &str = "S018";
    pub const REPEATED: &str = "S019";
    pub const BOUNDS: &str = "S020";
    pub const PATTERN: &str = "S021";
    pub const OPTION: &str = "S022";
    pub const EMBED: &str = "S023";
    pub const EMPTY: &str = "S024";
}

/// Characters of a text that a message quotes.
const SHOWN: usize = 60;
/// Misspelled names of one schema that a known name is searched for.
const SEARCHES: usize = 64;

/// A text of the schema as messages quote it.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}...`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Findings by place, code and message: what an interface gets wrong is said once, however many
/// types implement it. The values are the fixes.
#[derive(Default)]
pub(super) struct Findings {
    found: BTreeMap<(usize, usize, &'static str, String), String>,
    searches: usize,
}

impl Findings {
    pub fn add(
        &mut self,
        code: &'static str,
        span: &Range<usize>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let finding = (span.start, span.end, code, message.into());
        self.found.entry(finding).or_insert_with(|| fix.into());
    }

    /// The known name nearest to a misspelled one.
    pub fn nearest<'n>(
        &mut self,
        wrong: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        self.searches += 1;
        if self.searches > SEARCHES || wrong.len() > SHOWN {
            return None;
        }
        let wrong = wrong.to_lowercase();
        let most = 1 + wrong.len() / 4;
        let near = known
            .into_iter()
            .filter(|name| name.len().abs_diff(wrong.len()) <= most)
            .map(|name| (distance(&wrong, &name.to_lowercase()), name));
        let best = near.min_by_key(|(distance, _)| *distance);
        best.filter(|(distance, _)| *distance <= most)
            .map(|(_, name)| name)
    }

    /// A fix that names the nearest known name, or else says `otherwise`.
    pub fn suggest<'n>(
        &mut self,
        wrong: &str,
        known: impl IntoIterator<Item = &'n str>,
        otherwise: &str,
    ) -> String {
        match self.nearest(wrong, known) {
            Some(name) => format!("write {}", shown(name)),
            None => otherwise.to_owned(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All findings in the order of their places, if there are any.
    pub fn error(self, text: &str) -> Option<Error> {
        if self.found.is_empty() {
            return None;
        }
        let (mut at, mut line, mut column) = (0, 1, 1);
        let mut diagnostics = Vec::with_capacity(self.found.len());
        for ((start, end, code, message), fix) in self.found {
            for c in text.get(at..start).unwrap_or_default().chars() {
                (line, column) = match c {
                    '\n' => (line + 1, 1),
                    _ => (line, column + 1),
                };
            }
            at = start;
            diagnostics.push(Diagnostic {
                code,
                message,
                span: start..end,
                line,
                column,
                fix,
            });
        }
        let diagnostics = Diagnostics(diagnostics);
        Some(Error::SchemaInvalid { diagnostics })
    }
}

/// Insertions, removals, changes and swaps of neighbours that turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
