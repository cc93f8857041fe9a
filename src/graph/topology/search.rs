//! Breadth-first search from one source.

use super::lists::Bits;
use super::pace::Pace;
use super::stats::ReachStats;
use super::union::Topology;
use crate::Result;
use crate::table::reservation::Reservation;

/// A node that was found and its distance, packed so that they sort by node.
pub(super) fn found(node: u32, distance: u32) -> u64 {
    u64::from(node) << 8 | u64::from(distance & 0xff)
}

/// The node and the distance.
pub(super) fn unpack(found: u64) -> (u64, u32) {
    (found >> 8, (found & 0xff) as u32)
}

/// Room for searches, one after the other.
pub(super) struct Search {
    /// The nodes of `order`.
    seen: Bits,
    /// Nodes in the order in which they were reached.
    order: Vec<u32>,
    buffer: Vec<u32>,
    /// Neighbours that the buffer has memory for.
    widest: usize,
    memory: Reservation,
}

impl Search {
    /// Room for the nodes of `topology`.
    pub(super) fn new(topology: &Topology, mut memory: Reservation) -> Result<Self> {
        memory.resize(Bits::bytes_for(topology.nodes()))?;
        Ok(Self {
            seen: Bits::new(topology.nodes()),
            order: Vec::new(),
            buffer: Vec::new(),
            widest: 0,
            memory,
        })
    }

    /// All nodes at a distance from `min` to `max` of `source`, ascending, and the edges visited. A node
    /// has the distance of its shortest path, the source itself only that of a self-loop, 1.
    pub(super) async fn run(
        &mut self,
        topology: &Topology,
        source: u32,
        (min, max): (u32, u32),
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Vec<u64>> {
        // What an earlier search left, one that was dropped in its middle included.
        for node in self.order.drain(..) {
            self.seen.remove(node as usize);
        }
        self.levels(topology, source, (min, max), stats, pace).await
    }

    async fn levels(
        &mut self,
        topology: &Topology,
        source: u32,
        (min, max): (u32, u32),
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        if source as usize >= topology.nodes() {
            return Ok(out);
        }
        self.seen.insert(source as usize);
        self.order.push(source);
        let mut level = 0..1;
        for distance in 1..=max {
            let (mut edges, from) = (0, self.order.len());
            for place in level.clone() {
                let node = self.order[place];
                self.room(topology.degree(node), &out)?;
                let near = topology.neighbours(node, &mut self.buffer);
                edges += near.len();
                for next in near {
                    if self.seen.insert(*next as usize) {
                        self.order.push(*next);
                    }
                }
                let due = pace.due(near.len() + 1);
                if distance == 1 && min == 1 && near.contains(&source) {
                    out.push(found(source, 1));
                }
                if due {
                    Pace::rest().await;
                }
            }
            let hop = stats.hop(distance);
            hop.frontier += level.len() as u64;
            hop.edges += edges as u64;
            hop.adjacency += 1;
            level = from..self.order.len();
            if distance >= min {
                out.reserve(level.len());
                let reached = self.order[level.clone()].iter();
                out.extend(reached.map(|node| found(*node, distance)));
            }
            if level.is_empty() {
                break;
            }
        }
        out.sort_unstable();
        Ok(out)
    }

    /// Takes memory for `more` nodes before they are there.
    fn room(&mut self, more: usize, out: &[u64]) -> Result<()> {
        let spare = self.order.capacity() - self.order.len();
        if more <= spare && more <= self.widest {
            return Ok(());
        }
        let order = match more <= spare {
            true => self.order.capacity(),
            false => self.order.len() + more.max(self.order.len()),
        };
        // Each node is reached once.
        let order = order.min(self.seen.bytes() * 8).max(self.order.len());
        self.widest = self.widest.max(more);
        // Each node of the order can become a row of the answer.
        let numbers = (order + self.widest * 2) * size_of::<u32>();
        let rows = order.max(out.len()) * size_of::<u64>() * 2;
        self.memory.resize(self.seen.bytes() + numbers + rows)?;
        self.order.reserve_exact(order - self.order.len());
        Ok(())
    }
}
