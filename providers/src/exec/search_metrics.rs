//! What EXPLAIN ANALYZE shows of a search for the nearest vectors.

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use stratagraph::ann::Regime;
use stratagraph::search::Searched;

/// Counters of one search.
#[derive(Debug, Clone)]
pub(super) struct SearchMetrics {
    candidates: Count,
    distances: Count,
    scanned: Count,
    indexed: Count,
    given_up: Count,
}

impl SearchMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let count = |name| MetricBuilder::new(metrics).counter(name, 0);
        Self {
            candidates: count("candidates"),
            distances: count("distances"),
            scanned: count("fragments_scanned"),
            indexed: count("fragments_indexed"),
            given_up: count("indexes_given_up"),
        }
    }

    /// Adds how fragments were searched.
    pub(super) fn add(&self, searched: &[Searched]) {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        for part in searched {
            self.candidates.add(size(part.candidates));
            self.distances.add(size(part.visited));
            match part.regime {
                Regime::Exact => self.scanned.add(1),
                Regime::GivenUp => self.given_up.add(1),
                Regime::Beam | Regime::TwoHop | Regime::Lists => self.indexed.add(1),
            }
        }
    }
}
