//! What a traversal did.

/// What was done for one hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HopStats {
    /// Nodes whose neighbours were looked up.
    pub frontier: u64,
    /// Edges visited.
    pub edges: u64,
    /// Times that pages of fragments were read.
    pub index: u64,
    /// Times that adjacency lists were used.
    pub adjacency: u64,
}

/// What a traversal did so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReachStats {
    /// By hop, the first one first.
    pub hops: Vec<HopStats>,
    /// Adjacency lists of fragments that were in memory.
    pub cache_hits: u64,
    /// Adjacency lists of fragments that were made.
    pub cache_misses: u64,
    /// Nodes whose edges lie in several fragments and were used merged.
    pub merged_nodes: u64,
    /// Bytes asked for, cached ones included.
    pub bytes_read: u64,
}

impl ReachStats {
    /// The counts of hop `hop`, from 1.
    pub(super) fn hop(&mut self, hop: u32) -> &mut HopStats {
        let place = hop.saturating_sub(1) as usize;
        if self.hops.len() <= place {
            self.hops.resize(place + 1, HopStats::default());
        }
        &mut self.hops[place]
    }

    pub(super) fn note_cache(&mut self, held: bool) {
        if held {
            self.cache_hits += 1;
        } else {
            self.cache_misses += 1;
        }
    }

    /// Adds what another traversal did.
    pub fn add(&mut self, other: &Self) {
        for (hop, of) in (1..).zip(&other.hops) {
            let own = self.hop(hop);
            own.frontier += of.frontier;
            own.edges += of.edges;
            own.index += of.index;
            own.adjacency += of.adjacency;
        }
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.merged_nodes += other.merged_nodes;
        self.bytes_read += other.bytes_read;
    }

    /// Edges visited in all hops.
    pub fn edges(&self) -> u64 {
        self.hops.iter().map(|h| h.edges).sum()
    }
}
