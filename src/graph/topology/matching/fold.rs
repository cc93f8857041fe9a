//! Folds a variable into its neighbour.

use std::sync::Arc;

use super::super::pace::Pace;
use super::super::stats::ReachStats;
use super::super::union::Topology;
use super::hop::Hop;
use super::weights::{Sums, Weights};
use crate::Result;
use crate::table::reservation::Reservation;

/// What folding works with.
pub(super) struct Folding<'a> {
    /// Whether only that there is an assignment matters.
    pub(super) any: bool,
    pub(super) memory: &'a mut Reservation,
    pub(super) stats: &'a mut ReachStats,
    pub(super) pace: &'a mut Pace,
    /// Folds done so far.
    pub(super) done: u32,
}

/// Nodes that know their neighbours are asked for them in turn when there are this many times fewer of
/// them than of those that would ask: looking a list up costs more than walking it.
const PULL_PUSH: usize = 2;

impl Folding<'_> {
    /// The weights of `into` with those of `leaf` in them.
    pub(super) async fn fold(
        &mut self,
        hop: &mut Hop,
        (leaf, leaf_weights): (usize, &Weights),
        (into, weights): (usize, &Weights),
    ) -> Result<Weights> {
        self.done += 1;
        let few = |nodes: Option<&[u32]>| nodes.map_or(usize::MAX, <[u32]>::len);
        let (below, above) = (few(leaf_weights.nodes()), few(weights.nodes()));
        let push = below < usize::MAX && below.saturating_mul(PULL_PUSH) <= above;
        let nodes = match push {
            // Where all nodes would ask, walking the lists of few of them must still be less.
            true if above == usize::MAX => {
                let known = leaf_weights.nodes();
                let lists = hop.lists(leaf, known, self.stats, self.pace).await?;
                let degrees = known.into_iter().flatten().map(|node| lists.degree(*node));
                let visited: usize = degrees.sum();
                (lists.is_part() || visited <= lists.edges() / 2).then_some(lists)
            }
            true => {
                let known = leaf_weights.nodes();
                Some(hop.lists(leaf, known, self.stats, self.pace).await?)
            }
            false => None,
        };
        match nodes {
            Some(lists) => self.push(hop.distinct, &lists, leaf_weights, weights).await,
            None => {
                let known = weights.nodes();
                let lists = hop.lists(into, known, self.stats, self.pace).await?;
                self.pull(hop.distinct, &lists, leaf_weights, weights).await
            }
        }
    }

    /// Each node of the leaf adds its weight to its neighbours.
    async fn push(
        &mut self,
        distinct: bool,
        lists: &Arc<Topology>,
        leaf: &Weights,
        into: &Weights,
    ) -> Result<Weights> {
        let mut sums = Sums::new(lists.nodes(), self.memory)?;
        let mut buffer = Vec::new();
        let (mut nodes, mut edges) = (0, 0);
        for node in leaf.nodes().unwrap_or_default() {
            let weight = leaf.get(*node);
            let list = lists.list(*node, distinct, &mut buffer);
            for near in list {
                sums.add(*near, weight);
            }
            (nodes, edges) = (nodes + 1, edges + list.len());
            if self.pace.due(list.len() + 1) {
                Pace::rest().await;
            }
        }
        self.note(lists, nodes, edges);
        sums.finish(into, self.any, self.memory, self.pace).await
    }

    /// Each node of `into` looks at its neighbours.
    async fn pull(
        &mut self,
        distinct: bool,
        lists: &Arc<Topology>,
        leaf: &Weights,
        into: &Weights,
    ) -> Result<Weights> {
        let mut sums = Sums::new(lists.nodes(), self.memory)?;
        let mut buffer = Vec::new();
        let (mut nodes, mut edges) = (0, 0);
        let every = 0..lists.nodes() as u32;
        let (known, every) = match into.nodes() {
            Some(nodes) => (nodes, 0..0),
            None => (&[][..], every),
        };
        // Of all neighbours only their number matters, which takes no walk.
        let walks = !matches!(leaf, Weights::All);
        for node in known.iter().copied().chain(every) {
            let list = lists.list(node, distinct, &mut buffer);
            sums.add(node, leaf.sum(list, self.any));
            let steps = if walks { list.len() } else { 0 };
            (nodes, edges) = (nodes + 1, edges + steps);
            if self.pace.due(steps + 2) {
                Pace::rest().await;
            }
        }
        self.note(lists, nodes, edges);
        sums.finish(into, self.any, self.memory, self.pace).await
    }

    /// The weights of a variable whose nodes are joined to themselves.
    pub(super) async fn loops(
        &mut self,
        hop: &mut Hop,
        var: usize,
        weights: &Weights,
    ) -> Result<Weights> {
        self.done += 1;
        let known = weights.nodes();
        let lists = hop.lists(var, known, self.stats, self.pace).await?;
        let mut sums = Sums::new(lists.nodes(), self.memory)?;
        let mut buffer = Vec::new();
        for node in 0..lists.nodes() as u32 {
            if weights.get(node) > 0 {
                let list = lists.list(node, hop.distinct, &mut buffer);
                sums.add(node, times(list, node));
            }
            if self.pace.due(2) {
                Pace::rest().await;
            }
        }
        self.note(&lists, lists.nodes(), 0);
        sums.finish(weights, self.any, self.memory, self.pace).await
    }

    fn note(&mut self, lists: &Topology, nodes: usize, edges: usize) {
        let hop = self.stats.hop(self.done);
        hop.frontier += nodes as u64;
        hop.edges += edges as u64;
        hop.index += u64::from(lists.is_part());
        hop.adjacency += u64::from(!lists.is_part());
    }
}

/// How often a number stands in an ascending list.
pub(super) fn times(list: &[u32], number: u32) -> u64 {
    let from = list.partition_point(|other| *other < number);
    let same = list[from..].iter().take_while(|other| **other == number);
    same.count() as u64
}
