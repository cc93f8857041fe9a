//! What EXPLAIN ANALYZE shows of a traversal.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder,
};
use stratagraph::graph::topology::{HopStats, ReachStats};

struct HopCounts {
    frontier: Count,
    edges: Count,
    index: Count,
    adjacency: Count,
}

/// Counters of one partition, brought up to what the engine counts.
pub(super) struct ExpandMetrics {
    pub(super) baseline: BaselineMetrics,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    hops: Vec<HopCounts>,
    cache_hits: Count,
    cache_misses: Count,
    merged_nodes: Count,
    bytes_read: Count,
    shown: ReachStats,
}

impl ExpandMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            hops: Vec::new(),
            cache_hits: count("topology_cache_hits"),
            cache_misses: count("topology_cache_misses"),
            merged_nodes: count("merged_nodes"),
            bytes_read: count("bytes_read"),
            shown: ReachStats::default(),
            metrics: metrics.clone(),
            partition,
        }
    }

    /// Counters of the next hop: its frontier, its edges, and how often each path was taken.
    fn next_hop(&self) -> HopCounts {
        let hop = self.hops.len() + 1;
        let count = |what: &str| {
            let name = format!("hop_{hop}_{what}");
            MetricBuilder::new(&self.metrics).counter(name, self.partition)
        };
        HopCounts {
            frontier: count("frontier"),
            edges: count("edges"),
            index: count("index"),
            adjacency: count("adjacency"),
        }
    }

    /// Shows `stats`, which only grow.
    pub(super) fn show(&mut self, stats: ReachStats) {
        let more = |count: &Count, now: u64, before: u64| {
            let added = now.saturating_sub(before);
            count.add(usize::try_from(added).unwrap_or(usize::MAX));
        };
        for (place, now) in stats.hops.iter().enumerate() {
            if self.hops.len() <= place {
                let counts = self.next_hop();
                self.hops.push(counts);
            }
            let before = self.shown.hops.get(place).copied();
            let before: HopStats = before.unwrap_or_default();
            let counts = &self.hops[place];
            more(&counts.frontier, now.frontier, before.frontier);
            more(&counts.edges, now.edges, before.edges);
            more(&counts.index, now.index, before.index);
            more(&counts.adjacency, now.adjacency, before.adjacency);
        }
        more(&self.cache_hits, stats.cache_hits, self.shown.cache_hits);
        more(
            &self.cache_misses,
            stats.cache_misses,
            self.shown.cache_misses,
        );
        more(
            &self.merged_nodes,
            stats.merged_nodes,
            self.shown.merged_nodes,
        );
        more(&self.bytes_read, stats.bytes_read, self.shown.bytes_read);
        self.shown = stats;
    }
}
