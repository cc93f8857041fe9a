//! Violations of a load from all of its steps.

use std::collections::BinaryHeap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use stratagraph::graph::input::{Findings, Places};
use stratagraph::graph::violation::{Violation, Violations};
use stratagraph::{Error, Result, limits};

/// Characters of an id that a violation shows.
const SHOWN_CHARS: usize = 80;

/// All of them are counted; the first ones by record, type, id and rule are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    total: u64,
    kept: BinaryHeap<Violation>,
    /// Ids that exist already.
    conflicts: u64,
    /// The first of them: record, type, id.
    conflict: Option<(u64, String, String)>,
}

/// A text as messages show it.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

impl Found {
    /// What reading has found.
    pub(crate) fn reading(findings: Findings) -> Self {
        let total = findings.total();
        Self {
            total,
            kept: findings.listed().0.into(),
            ..Self::default()
        }
    }

    /// Counts a violation.
    pub(crate) fn add(&mut self, violation: Violation) {
        self.total += 1;
        self.keep(violation);
    }

    fn keep(&mut self, violation: Violation) {
        if self.kept.len() < limits::VIOLATIONS {
            self.kept.push(violation);
        } else if self.kept.peek().is_some_and(|last| violation < *last) {
            self.kept.pop();
            self.kept.push(violation);
        }
    }

    /// Counts an id that exists already.
    pub(crate) fn add_conflict(&mut self, record: u64, type_name: &str, id: &str) {
        self.conflicts += 1;
        let conflict = (record, type_name.to_owned(), id.to_owned());
        if self.conflict.as_ref().is_none_or(|first| conflict < *first) {
            self.conflict = Some(conflict);
        }
        self.add(Violation {
            record,
            type_name: type_name.to_owned(),
            id: shown(id),
            rule: "key",
            message: "a row of this id exists already; use mode 'merge' to replace it".to_owned(),
        });
    }

    /// Adds what another step has found.
    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.conflicts += other.conflicts;
        if let Some(conflict) = other.conflict
            && self.conflict.as_ref().is_none_or(|first| conflict < *first)
        {
            self.conflict = Some(conflict);
        }
        for violation in other.kept {
            self.keep(violation);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether a listed record of this type and id is refused for itself.
    pub(crate) fn refuses(&self, type_name: &str, id: &str) -> bool {
        let id = shown(id);
        let mut kept = self.kept.iter();
        kept.any(|v| v.record > 0 && v.type_name == type_name && v.id == id)
    }

    /// The first ones in their order, with their files where there are several.
    pub(crate) fn listed(&self, places: Option<&Places>) -> Violations {
        let mut violations = Violations(self.kept.clone().into_sorted_vec());
        if let Some(places) = places {
            places.name_files(&mut violations);
        }
        violations
    }

    /// The error of a load with them: `KeyConflict` if nothing is wrong but ids of `graph` that exist already, else
    /// `RecordsInvalid`. `None` without any.
    pub(crate) fn error(&self, graph: &str, places: Option<&Places>) -> Option<Error> {
        if self.total == 0 {
            return None;
        }
        if let Some((_, type_name, key)) = &self.conflict
            && self.conflicts == self.total
        {
            return Some(Error::KeyConflict {
                table: format!("{graph}.{type_name}"),
                key: key.clone(),
            });
        }
        Some(Error::RecordsInvalid {
            total: self.total,
            violations: self.listed(places),
        })
    }
}

/// The record numbers of a batch, by the place of their column.
pub(crate) fn numbers(batch: &RecordBatch, column: usize) -> Result<&[u64]> {
    let found = batch.column(column).as_primitive_opt::<UInt64Type>();
    let wrong = || Error::corrupt("batch", "columns", "numbers", "another column");
    Ok(found.ok_or_else(wrong)?.values())
}
