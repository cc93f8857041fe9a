//! Files and lines of records.

use super::Grammar;
use crate::graph::violation::Violations;

/// Which file and line a record number is.
#[derive(Debug, Clone)]
pub struct Places {
    grammar: Grammar,
    /// Name, lines before it, records before it.
    files: Vec<(String, u64, u64)>,
}

impl Places {
    pub(super) fn new(grammar: Grammar) -> Self {
        Self {
            grammar,
            files: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, name: &str, lines: u64, records: u64) {
        self.files.push((name.to_owned(), lines, records));
    }

    /// `line 3 of a.jsonl` of a line number over all files.
    pub(super) fn line(&self, line: u64) -> String {
        let at = self.files.partition_point(|(_, lines, _)| *lines < line);
        match at.checked_sub(1).map(|at| &self.files[at]) {
            Some((name, lines, _)) => format!("line {} of {name:?}", line - lines),
            None => format!("line {line}"),
        }
    }

    /// The file of a record, with its line in the strict grammar, where a record is a line.
    fn record(&self, record: u64) -> Option<String> {
        if self.grammar == Grammar::Strict {
            return Some(self.line(record));
        }
        let at = self
            .files
            .partition_point(|(_, _, before)| *before < record);
        let (name, _, before) = &self.files[at.checked_sub(1)?];
        Some(format!("record {} of {name:?}", record - before))
    }

    /// Names the file of each violation when there are several. Record 0 is none of the input.
    pub fn name_files(&self, violations: &mut Violations) {
        if self.files.len() < 2 {
            return;
        }
        for violation in violations.0.iter_mut().filter(|v| v.record > 0) {
            if let Some(place) = self.record(violation.record) {
                violation.message.push_str(&format!(" ({place})"));
            }
        }
    }
}
