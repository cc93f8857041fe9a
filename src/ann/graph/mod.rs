//! Proximity graphs: HNSW (Malkov and Yashunin, "Efficient and robust approximate nearest neighbor
//! search using Hierarchical Navigable Small World graphs", TPAMI 2020).
//!
//! `hnsw_rs` builds them; they are kept as compressed adjacency lists and searched here.

mod build;
mod repair;
mod walk;

pub use build::{GraphParams, build};
pub(super) use walk::{End, Walk};

use super::index::Shape;
use super::recall::RecallPoint;

/// Adjacency lists: those of node `i` are `targets[offsets[i]..offsets[i + 1]]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Adjacency {
    pub(super) offsets: Vec<u32>,
    pub(super) targets: Vec<u32>,
}

impl Adjacency {
    pub(super) fn of(lists: &[Vec<u32>]) -> Self {
        let mut offsets = vec![0];
        let mut targets = Vec::with_capacity(lists.iter().map(Vec::len).sum());
        for list in lists {
            targets.extend_from_slice(list);
            offsets.push(targets.len() as u32);
        }
        Self { offsets, targets }
    }

    #[inline(always)]
    pub(super) fn list(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.offsets[node] as usize..self.offsets[node + 1] as usize]
    }

    fn bytes(&self) -> usize {
        (self.offsets.capacity() + self.targets.capacity()) * size_of::<u32>()
    }
}

/// A layer above the lowest: some rows and the edges among them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layer {
    /// Row positions, ascending.
    pub(super) rows: Vec<u32>,
    /// Of indexes into `rows`.
    pub(super) edges: Adjacency,
}

/// A graph over the present rows of a fragment; its nodes are row positions.
///
/// Every offset and every target is in bounds: [`build()`] and [`super::open`] alone make graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    pub(super) shape: Shape,
    pub(super) params: GraphParams,
    /// Where a search begins: a row of the highest layer.
    pub(super) entry: u32,
    pub(super) base: Adjacency,
    /// From the second lowest to the highest.
    pub(super) layers: Vec<Layer>,
    pub(super) ef: u32,
    pub(super) curve: Vec<RecallPoint>,
}

impl Graph {
    /// The `ef` that reaches the target recall of 0.97 at 10 neighbours.
    pub fn ef(&self) -> usize {
        self.ef as usize
    }

    /// Recall at 10 neighbours as measured when the graph was built, by ascending `ef`.
    pub fn curve(&self) -> &[RecallPoint] {
        &self.curve
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let upper = |layer: &Layer| layer.rows.capacity() * size_of::<u32>() + layer.edges.bytes();
        self.base.bytes() + self.layers.iter().map(upper).sum::<usize>()
    }
}
