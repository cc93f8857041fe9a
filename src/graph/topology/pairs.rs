//! The distance of two nodes, searched from both ends.
//!
//! Each step follows all edges of one end's frontier, of the one that has fewer; the searches have met
//! when a node of one is new and known to the other. Two balls of half the radius hold far fewer nodes
//! than one of the whole.

use std::ops::Range;
use std::sync::Arc;

use super::EdgeTable;
use super::layer::Loader;
use super::lists::{Bits, narrow};
use super::options::ReachOptions;
use super::pace::Pace;
use super::stats::ReachStats;
use super::union::{self, Topology};
use crate::Result;
use crate::graph::query::Direction;
use crate::table::reservation::Reservation;

/// One end's search.
#[derive(Default)]
struct Side {
    seen: Bits,
    /// Nodes in the order in which they were reached.
    order: Vec<u32>,
    /// The frontier's places in it.
    level: Range<usize>,
}

impl Side {
    fn begin(&mut self, node: u32) {
        // What an earlier search left, one that was dropped in its middle included.
        for node in self.order.drain(..) {
            self.seen.remove(node as usize);
        }
        self.seen.insert(node as usize);
        self.order.push(node);
        self.level = 0..1;
    }
}

/// Distances of pairs of nodes along the edges of a table.
pub struct Pairs {
    edges: EdgeTable,
    options: ReachOptions,
    /// Lists from the source and from the destination.
    lists: Option<(Arc<Topology>, Arc<Topology>)>,
    forth: Side,
    back: Side,
    buffer: Vec<u32>,
    memory: Reservation,
    stats: ReachStats,
    pace: Pace,
}

impl Pairs {
    /// Makes no store call.
    ///
    /// # Errors
    /// As [`ReachOptions::check`].
    pub fn new(edges: &EdgeTable, options: ReachOptions) -> Result<Self> {
        options.check(edges)?;
        Ok(Self {
            memory: Reservation::new(edges.budget()),
            edges: edges.clone(),
            options,
            lists: None,
            forth: Side::default(),
            back: Side::default(),
            buffer: Vec::new(),
            stats: ReachStats::default(),
            pace: Pace::default(),
        })
    }

    /// What was done so far. Steps from both ends count as hops.
    pub fn stats(&self) -> &ReachStats {
        &self.stats
    }

    async fn load(&mut self) -> Result<(Arc<Topology>, Arc<Topology>)> {
        if let Some((forth, back)) = &self.lists {
            return Ok((Arc::clone(forth), Arc::clone(back)));
        }
        let reversed = match self.options.direction {
            Direction::Out => Direction::In,
            Direction::In => Direction::Out,
            Direction::Both => Direction::Both,
        };
        let reader = self.edges.reader();
        let mut loader = Loader {
            reader: &reader,
            stats: &mut self.stats,
            pace: &mut self.pace,
            identity: self.edges.identity(),
            held_only: false,
            many: false,
        };
        let forth = union::load(&mut loader, self.options.direction).await?;
        let back = union::load(&mut loader, reversed).await?;
        self.stats.bytes_read += reader.count().bytes();
        let forth = Arc::new(forth.unwrap_or_else(Topology::empty));
        let back = Arc::new(back.unwrap_or_else(Topology::empty));
        let nodes = forth.nodes().max(back.nodes());
        // Of each end a bit and a place of each node.
        let each = Bits::bytes_for(nodes) + nodes.saturating_mul(size_of::<u32>());
        self.memory.resize(each.saturating_mul(2))?;
        (self.forth.seen, self.back.seen) = (Bits::new(nodes), Bits::new(nodes));
        self.lists = Some((Arc::clone(&forth), Arc::clone(&back)));
        Ok((forth, back))
    }

    /// The length of the shortest path between two row ids, if it is within the bounds. A node is at
    /// distance 1 of itself if it has a loop, and at no other.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, `ResourceLimitExceeded`
    /// for a row id above 2^32 - 2 at an edge, the budget's own when it runs out.
    pub async fn distance(&mut self, source: u64, destination: u64) -> Result<Option<u32>> {
        let (forth, back) = self.load().await?;
        let (Ok(source), Ok(destination)) = (narrow(source), narrow(destination)) else {
            return Ok(None);
        };
        let known = |node: u32| (node as usize) < forth.nodes().max(back.nodes());
        if !known(source) || !known(destination) {
            return Ok(None);
        }
        let (min, max) = (self.options.min, self.options.max);
        let most = if self.edges.same_type() {
            max
        } else {
            max.min(1)
        };
        if source == destination || most == 1 {
            let near = forth.list(source, true, &mut self.buffer);
            let joined = min == 1 && near.binary_search(&destination).is_ok();
            self.note(1, 1, 0);
            return Ok(joined.then_some(1));
        }
        self.forth.begin(source);
        self.back.begin(destination);
        for distance in 1..=most {
            let width = |side: &Side, lists: &Topology| -> usize {
                let frontier = side.order[side.level.clone()].iter();
                frontier.map(|node| lists.degree(*node)).sum()
            };
            let forward = width(&self.forth, &forth) <= width(&self.back, &back);
            let met = match forward {
                true => self.spread(&forth, true, distance).await,
                false => self.spread(&back, false, distance).await,
            };
            if met {
                return Ok((distance >= min).then_some(distance));
            }
            if self.forth.level.is_empty() || self.back.level.is_empty() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Follows the edges of one frontier; whether the searches have met.
    async fn spread(&mut self, lists: &Topology, forward: bool, distance: u32) -> bool {
        let (mut nodes, mut edges, mut met) = (0, 0, false);
        let (own, other) = match forward {
            true => (&mut self.forth, &self.back),
            false => (&mut self.back, &self.forth),
        };
        let from = own.order.len();
        'all: for place in own.level.clone() {
            let near = lists.neighbours(own.order[place], &mut self.buffer);
            (nodes, edges) = (nodes + 1, edges + near.len());
            for next in near {
                if own.seen.insert(*next as usize) {
                    own.order.push(*next);
                    if other.seen.get(*next as usize) {
                        met = true;
                        break 'all;
                    }
                }
            }
            if self.pace.due(near.len() + 1) {
                Pace::rest().await;
            }
        }
        own.level = from..own.order.len();
        self.note(distance, nodes, edges);
        met
    }

    fn note(&mut self, distance: u32, nodes: u64, edges: usize) {
        let hop = self.stats.hop(distance);
        hop.frontier += nodes;
        hop.edges += edges as u64;
        hop.adjacency += 1;
    }
}
