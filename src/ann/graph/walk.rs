//! Searching a graph: greedy descent through the upper layers, then a beam in the lowest.

use std::cmp::Reverse;

use roaring::RoaringBitmap;

use super::super::metric::Query;
use super::super::scratch::Scratch;
use super::super::top::{Key, position};
use super::super::vectors::Vectors;
use super::Graph;

/// Live nodes that one expansion of a two-hop walk adds at most.
const TWO_HOP_LIVE: usize = 64;

/// Expansions without a nearer row after which a walk beyond its bound ends.
const PATIENCE: u32 = 8;

/// One search of one graph. The rows that it finds are left in the scratch.
#[derive(Clone, Copy)]
pub(in crate::ann) struct Walk<'a> {
    pub(in crate::ann) graph: &'a Graph,
    pub(in crate::ann) vectors: &'a Vectors,
    pub(in crate::ann) query: &'a Query,
    /// Rows that may be found; all without it.
    pub(in crate::ann) live: Option<&'a RoaringBitmap>,
    /// Rows that the beam holds.
    pub(in crate::ann) ef: usize,
    /// While nothing is found within it, the walk ends as soon as it comes no nearer.
    pub(in crate::ann) bound: Key,
    /// Distances after which the walk gives up.
    pub(in crate::ann) budget: u64,
}

/// What a walk cost and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ann) struct Walked {
    /// Distances that were computed.
    pub(in crate::ann) evaluations: u64,
    pub(in crate::ann) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ann) enum End {
    /// No node is left that is nearer than the beam.
    Converged,
    /// Nothing seems to lie within the bound.
    Bounded,
    /// The budget is spent.
    Spent,
}

impl<'a> Walk<'a> {
    /// An unfiltered and unbounded walk.
    pub(in crate::ann) fn new(
        graph: &'a Graph,
        vectors: &'a Vectors,
        query: &'a Query,
        ef: usize,
    ) -> Self {
        Self {
            graph,
            vectors,
            query,
            live: None,
            ef,
            bound: Key::MAX,
            budget: u64::MAX,
        }
    }

    /// Walks through all nodes and keeps the live ones: the beam ends when it holds `ef` live rows and
    /// no node before it is nearer.
    pub(in crate::ann) fn beam(self, scratch: &mut Scratch) -> Walked {
        match self.live {
            None => self.run::<false>(scratch, |_| true),
            Some(live) => self.run::<false>(scratch, |row| live.contains(row)),
        }
    }

    /// Walks through live nodes only, over the neighbours of dead neighbours, and measures no dead node
    /// (ACORN-1: Patel et al., SIGMOD 2024). It may find fewer than there are.
    pub(in crate::ann) fn two_hop(self, scratch: &mut Scratch) -> Walked {
        match self.live {
            None => self.beam(scratch),
            Some(live) => {
                let mut bits = std::mem::take(&mut scratch.live);
                bits.fill(live, self.graph.shape.rows);
                let walked = self.run::<true>(scratch, |row| bits.contains(row));
                scratch.live = bits;
                walked
            }
        }
    }

    fn run<const TWO_HOP: bool>(self, scratch: &mut Scratch, live: impl Fn(u32) -> bool) -> Walked {
        scratch.begin(self.graph.shape.rows);
        pulp::Arch::new().dispatch(Run::<_, TWO_HOP> {
            walk: self,
            scratch,
            live,
        })
    }

    /// The node of the lowest layer at which the beam begins.
    #[inline(always)]
    fn descend(&self, evaluations: &mut u64) -> Key {
        let (vectors, query) = (self.vectors, self.query);
        let mut nearest = vectors.measure(query, self.graph.entry);
        *evaluations += 1;
        for layer in self.graph.layers.iter().rev() {
            let Ok(mut at) = layer.rows.binary_search(&position(nearest)) else {
                continue;
            };
            loop {
                let mut better = None;
                for index in layer.edges.list(at as u32) {
                    let key = vectors.measure(query, layer.rows[*index as usize]);
                    *evaluations += 1;
                    if key < nearest {
                        nearest = key;
                        better = Some(*index as usize);
                    }
                }
                let Some(index) = better else { break };
                at = index;
            }
        }
        nearest
    }
}

struct Run<'a, 's, L, const TWO_HOP: bool> {
    walk: Walk<'a>,
    scratch: &'s mut Scratch,
    live: L,
}

impl<L: Fn(u32) -> bool, const TWO_HOP: bool> pulp::NullaryFnOnce for Run<'_, '_, L, TWO_HOP> {
    type Output = Walked;

    #[inline(always)]
    fn call(self) -> Walked {
        let (walk, scratch, live) = (self.walk, self.scratch, self.live);
        let mut evaluations = 0;
        let start = walk.descend(&mut evaluations);
        scratch.visited.insert(position(start));
        scratch.frontier.push(Reverse(start));
        if live(position(start)) {
            scratch.found.push(start);
        }
        let mut worst = if scratch.found.len() < walk.ef {
            Key::MAX
        } else {
            start
        };
        let (mut nearest, mut idle) = (start, 0);
        let mut end = End::Converged;
        while let Some(Reverse(next)) = scratch.frontier.pop() {
            if next > worst {
                break;
            }
            if nearest > walk.bound && idle > PATIENCE {
                end = End::Bounded;
                break;
            }
            idle += 1;
            if TWO_HOP {
                two_hops(walk.graph, position(next), &live, scratch);
            } else {
                one_hop(walk.graph, position(next), scratch);
            }
            evaluations += scratch.batch.len() as u64;
            if evaluations > walk.budget {
                end = End::Spent;
                break;
            }
            let (frontier, found) = (&mut scratch.frontier, &mut scratch.found);
            walk.vectors.measure_all(walk.query, &scratch.batch, |key| {
                if key >= worst {
                    return;
                }
                frontier.push(Reverse(key));
                if key < nearest {
                    (nearest, idle) = (key, 0);
                }
                if TWO_HOP || live(position(key)) {
                    if found.len() >= walk.ef {
                        found.pop();
                    }
                    found.push(key);
                    if found.len() >= walk.ef {
                        worst = found.peek().copied().unwrap_or(Key::MAX);
                    }
                }
            });
        }
        Walked { evaluations, end }
    }
}

/// The new neighbours of `node`, to the batch.
#[inline(always)]
fn one_hop(graph: &Graph, node: u32, scratch: &mut Scratch) {
    let (batch, visited) = (&mut scratch.batch, &mut scratch.visited);
    batch.clear();
    batch.extend(
        graph
            .base
            .list(node)
            .iter()
            .filter(|to| visited.insert(**to)),
    );
}

/// The new live neighbours of `node` and of its dead neighbours, to the batch.
#[inline(always)]
fn two_hops(graph: &Graph, node: u32, live: &impl Fn(u32) -> bool, scratch: &mut Scratch) {
    let (batch, visited) = (&mut scratch.batch, &mut scratch.visited);
    batch.clear();
    for &near in graph.base.list(node) {
        if !visited.insert(near) {
            continue;
        }
        if live(near) {
            batch.push(near);
            continue;
        }
        for &far in graph.base.list(near) {
            if batch.len() >= TWO_HOP_LIVE {
                break;
            }
            if live(far) && visited.insert(far) {
                batch.push(far);
            }
        }
    }
}
