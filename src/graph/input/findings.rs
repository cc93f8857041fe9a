//! Violations as they are found: all are counted, the first ones in record order are kept.

use crate::graph::violation::{Violation, Violations};
use crate::{Error, Result};

/// Violations of a load.
#[derive(Debug, Clone)]
pub struct Findings {
    limit: usize,
    total: u64,
    kept: Vec<Violation>,
    /// Beyond this record nothing more is kept.
    last: u64,
    /// Records with violations since [`Findings::watch`].
    broken: Option<Vec<u64>>,
}

impl Findings {
    /// Keeps up to `limit` of them, the first in record order.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            total: 0,
            kept: Vec::new(),
            last: u64::MAX,
            broken: None,
        }
    }

    /// Counts one violation of `record` and makes it only if it may be listed.
    pub fn add(&mut self, record: u64, violation: impl FnOnce() -> Violation) {
        self.total += 1;
        if let Some(broken) = &mut self.broken {
            broken.push(record);
        }
        if record > self.last || self.limit == 0 {
            return;
        }
        self.kept.push(violation());
        if self.kept.len() >= self.limit.saturating_mul(2) {
            self.shrink();
        }
    }

    /// Notes the records of violations from now on.
    pub(super) fn watch(&mut self) {
        self.broken = Some(Vec::new());
    }

    /// The records of the violations since [`watch`](Self::watch), sorted.
    pub(super) fn watched(&mut self) -> Vec<u64> {
        let mut broken = self.broken.take().unwrap_or_default();
        broken.sort_unstable();
        broken
    }

    /// A stable sort, so that what one record breaks stays in the order in which it was found.
    fn shrink(&mut self) {
        self.kept.sort_by_key(|violation| violation.record);
        self.kept.truncate(self.limit);
        if self.kept.len() == self.limit {
            self.last = self.kept.last().map_or(u64::MAX, |last| last.record);
        }
    }

    /// Number of violations, listed or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The first ones in record order.
    pub fn listed(mut self) -> Violations {
        self.shrink();
        Violations(self.kept)
    }

    /// Nothing when there is none.
    ///
    /// # Errors
    /// [`Error::RecordsInvalid`] with the number of all and the first ones.
    pub fn into_result(self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::RecordsInvalid {
            total: self.total,
            violations: self.listed(),
        })
    }
}
