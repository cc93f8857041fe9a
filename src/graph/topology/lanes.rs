//! Breadth-first search from up to 64 sources at once: each source has one bit of a word, and an edge
//! is followed for all of them together.

use super::pace::Pace;
use super::stats::ReachStats;
use super::union::Topology;
use crate::Result;
use crate::table::reservation::Reservation;

/// Sources of a pass.
pub(super) const LANES: usize = 64;
/// Nodes between two looks at the pace.
const STEP: usize = 4_096;

/// Room for passes, one after the other. Words are by node.
pub(super) struct Lanes {
    seen: Vec<u64>,
    frontier: Vec<u64>,
    next: Vec<u64>,
    /// The distances of a node in binary, one word for each digit; one word of those that were reached
    /// if distances are not wanted.
    reached: Vec<u64>,
    digits: usize,
    buffer: Vec<u32>,
    _memory: Reservation,
}

impl Lanes {
    /// Words that a node takes.
    fn digits(max: u32, hops: bool) -> usize {
        if hops {
            (u32::BITS - max.leading_zeros()) as usize
        } else {
            1
        }
    }

    /// Room for the nodes of `topology`.
    pub(super) fn new(
        topology: &Topology,
        max: u32,
        hops: bool,
        mut memory: Reservation,
    ) -> Result<Self> {
        let (nodes, digits) = (topology.nodes(), Self::digits(max, hops));
        memory.resize(nodes.saturating_mul((3 + digits) * size_of::<u64>()))?;
        Ok(Self {
            seen: vec![0; nodes],
            frontier: vec![0; nodes],
            next: vec![0; nodes],
            reached: vec![0; nodes * digits],
            digits,
            buffer: Vec::new(),
            _memory: memory,
        })
    }

    /// Runs a pass; `sources` are distinct and at most [`LANES`].
    pub(super) async fn run(
        &mut self,
        topology: &Topology,
        sources: &[u32],
        (min, max): (u32, u32),
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) {
        for words in [
            &mut self.seen,
            &mut self.frontier,
            &mut self.next,
            &mut self.reached,
        ] {
            words.fill(0);
        }
        let known = |source: &u32| (*source as usize) < topology.nodes();
        for (lane, source) in sources.iter().enumerate().filter(|(_, s)| known(s)) {
            self.seen[*source as usize] |= 1 << lane;
            self.frontier[*source as usize] |= 1 << lane;
        }
        for distance in 1..=max {
            self.spread(topology, distance, stats, pace).await;
            if distance == 1 && min == 1 {
                // A self-loop leads back to where it began.
                for (lane, source) in sources.iter().enumerate().filter(|(_, s)| known(s)) {
                    let bit = self.next[*source as usize] & 1 << lane;
                    self.record(*source as usize, bit, 1);
                }
            }
            if !self.settle(min, distance, pace).await {
                break;
            }
        }
    }

    /// Follows the edges of the frontier.
    async fn spread(
        &mut self,
        topology: &Topology,
        distance: u32,
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) {
        let (mut nodes, mut edges) = (0, 0);
        for node in 0..self.frontier.len() {
            let lanes = self.frontier[node];
            if lanes != 0 {
                let near = topology.neighbours(node as u32, &mut self.buffer);
                for next in near {
                    self.next[*next as usize] |= lanes;
                }
                nodes += u64::from(lanes.count_ones());
                edges += near.len();
                if pace.due(near.len() + 1) {
                    Pace::rest().await;
                }
            }
            if node % STEP == 0 && pace.due(STEP) {
                Pace::rest().await;
            }
        }
        let hop = stats.hop(distance);
        hop.frontier += nodes;
        hop.edges += edges as u64;
        hop.adjacency += 1;
    }

    /// Makes what is new the frontier; whether there is any.
    async fn settle(&mut self, min: u32, distance: u32, pace: &mut Pace) -> bool {
        let mut any = 0;
        for node in 0..self.next.len() {
            let fresh = std::mem::take(&mut self.next[node]) & !self.seen[node];
            self.seen[node] |= fresh;
            self.frontier[node] = fresh;
            any |= fresh;
            if fresh != 0 && distance >= min {
                self.record(node, fresh, distance);
            }
            if node % STEP == 0 && pace.due(STEP) {
                Pace::rest().await;
            }
        }
        any != 0
    }

    #[inline]
    fn record(&mut self, node: usize, lanes: u64, distance: u32) {
        let words = &mut self.reached[node * self.digits..(node + 1) * self.digits];
        if let [word] = words {
            *word |= lanes;
            return;
        }
        for (digit, word) in words.iter_mut().enumerate() {
            if distance >> digit & 1 == 1 {
                *word |= lanes;
            }
        }
    }

    /// Hands nodes of a lane and their distances to `take`, from `from` on, until `most` were taken.
    /// Returns where to go on; `None` at the end. Distances are those asked for, or 1.
    pub(super) fn emit(
        &self,
        lane: usize,
        from: usize,
        most: usize,
        take: &mut impl FnMut(u64, u32),
    ) -> Option<usize> {
        let mut taken = 0;
        let words = self.reached.chunks_exact(self.digits);
        for (node, words) in words.enumerate().skip(from) {
            let mut distance = 0;
            for (digit, word) in words.iter().enumerate() {
                distance |= ((word >> lane & 1) as u32) << digit;
            }
            if distance != 0 {
                if taken == most {
                    return Some(node);
                }
                take(node as u64, distance);
                taken += 1;
            }
        }
        None
    }
}
