//! Holds the codes that suites provoke against the table in `docs/errors.md`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use datafusion::error::DataFusionError;
use regex::Regex;

/// The section of `docs/errors.md` whose codes need no suite.
const UNREACHED: &str = "## Codes that no SQL statement reaches";

/// The codes seen so far.
#[derive(Debug, Default)]
pub struct Codes {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Of errors that were found by their type.
    typed: BTreeSet<String>,
    /// In brackets in the text of any other error, such as a word of DataFusion's.
    printed: BTreeSet<String>,
}

impl Codes {
    /// Notes the code of a failure.
    pub fn note(&self, error: &DataFusionError) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(typed) = stratagraph_udfs::find_error(error) {
            seen.typed.insert(typed.code().to_owned());
            return;
        }
        let Ok(pattern) = Regex::new(r"\[([A-Z][A-Za-z]+)\]") else {
            return;
        };
        let text = error.to_string();
        let printed = pattern
            .captures_iter(&text)
            .map(|found| found[1].to_owned());
        seen.printed.extend(printed);
    }

    /// Compares the codes seen with the table of `document`, both ways.
    ///
    /// # Errors
    /// All differences, a line each.
    pub fn compare(&self, document: &str) -> Result<(), String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Documented { reached, unreached } = Documented::read(document);
        let mut problems = Vec::new();
        let mut report = |problem: &str, codes: BTreeSet<&String>| {
            problems.extend(codes.iter().map(|code| format!("{code}: {problem}")));
        };
        report(
            "documented, but no suite provokes it",
            reached.difference(&seen.typed).collect(),
        );
        report(
            "provoked, but listed as out of reach of SQL",
            unreached.intersection(&seen.typed).collect(),
        );
        report(
            "provoked, but not documented",
            seen.typed
                .difference(&reached)
                .filter(|code| !unreached.contains(*code))
                .collect(),
        );
        report(
            "printed by an error whose type was lost on its way through DataFusion",
            seen.printed
                .iter()
                .filter(|code| reached.contains(*code) || unreached.contains(*code))
                .collect(),
        );
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.join("\n"))
    }
}

#[derive(Debug, Default)]
struct Documented {
    reached: BTreeSet<String>,
    unreached: BTreeSet<String>,
}

impl Documented {
    /// Takes the first cell of every table row, and the first word of every list item in the section
    /// of the exempt, when it is a code in backticks.
    fn read(document: &str) -> Self {
        let mut documented = Self::default();
        let mut is_unreached = false;
        for line in document.lines() {
            if line.starts_with("## ") {
                is_unreached = line.trim_end() == UNREACHED;
            }
            let Some(code) = leading_code(line) else {
                continue;
            };
            if is_unreached {
                documented.unreached.insert(code.to_owned());
            } else if line.starts_with('|') {
                documented.reached.insert(code.to_owned());
            }
        }
        documented
    }
}

fn leading_code(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(['|', '-', '*', ' ']);
    let (code, _) = rest.strip_prefix('`')?.split_once('`')?;
    let is_code = code.starts_with(|first: char| first.is_ascii_uppercase())
        && code.chars().all(|letter| letter.is_ascii_alphabetic());
    is_code.then_some(code)
}
