//! What lies beside the largest layer of a topology, where that is little: one large fragment and the
//! small ones of the commits since.
//!
//! A node that only the largest layer knows has its list there, as it lies. The lists of the others are
//! merged when they are looked up, or once for a version, when so many nodes are looked up that it pays.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use super::layer::{Layer, Loader, finish};
use super::lists::{Bits, Lists, ListsBuilder, pair};
use super::pace::Pace;
use super::union::Topology;
use crate::Result;
use crate::env::Budget;
use crate::graph::query::Direction;
use crate::table::reservation::Reservation;

/// How many times more edges than all others a layer has before nodes are told apart by it.
const LARGEST: usize = 4;

/// The nodes that other layers than the largest one know.
#[derive(Debug)]
pub(super) struct Beside {
    largest: usize,
    /// The layer that has all edges of these nodes, where they are merged.
    merged: Option<usize>,
    nodes: Bits,
    _memory: Reservation,
}

impl Beside {
    /// The place of the only layer that may have edges of a node, if that is known.
    #[inline]
    pub(super) fn alone(&self, rid: u32) -> Option<usize> {
        match self.nodes.get(rid as usize) {
            true => self.merged,
            false => Some(self.largest),
        }
    }

    fn of(topology: &Topology, largest: usize, budget: &Arc<dyn Budget>) -> Result<Self> {
        let mut memory = Reservation::new(budget);
        memory.resize(Bits::bytes_for(topology.nodes()))?;
        let mut nodes = Bits::new(topology.nodes());
        for (at, layer) in topology.layers.iter().enumerate() {
            if at != largest {
                layer.keys().for_each(|key| {
                    nodes.insert(key as usize);
                });
            }
        }
        Ok(Self {
            largest,
            merged: None,
            nodes,
            _memory: memory,
        })
    }
}

/// The lists of the nodes that other layers than the largest one know, of all layers.
struct Merged {
    lists: Arc<Lists>,
    beside: Arc<Beside>,
    nodes: usize,
}

/// Tells nodes apart by the largest layer, if it has most edges. Those of several layers are merged if the
/// loader's query looks `many` up, or another one did before.
pub(super) async fn apart(
    loader: &mut Loader<'_>,
    mut topology: Topology,
    direction: Direction,
) -> Result<Topology> {
    let Some(largest) = largest(&topology.layers) else {
        return Ok(topology);
    };
    let key = format!("topology-merged:{}:{direction:?}", loader.identity);
    let store = Arc::clone(loader.reader.store());
    let merged = match store.indexes().get::<Merged>(&key) {
        Some(merged) => merged,
        None => {
            let budget = loader.reader.budget();
            let beside = Beside::of(&topology, largest, budget)?;
            // In both directions no layer has most edges, but for dead ones.
            let made = match loader.many && direction != Direction::Both {
                true => {
                    let most = store.indexes().most_made();
                    let made = merge(&topology, &beside, budget, most, &mut *loader.pace);
                    store.indexes().get_or_make(&key, made).await.ok()
                }
                false => None,
            };
            // Without the memory they are merged one by one.
            let Some((made, _)) = made else {
                topology.beside = Some(Arc::new(beside));
                return Ok(topology);
            };
            made
        }
    };
    loader.stats.merged_nodes += merged.nodes as u64;
    let rest = Layer::of(Arc::clone(&merged.lists));
    topology.layers = vec![topology.layers.swap_remove(largest), rest];
    topology.outs = topology.layers.len();
    topology.parallel = topology.layers.iter().any(Layer::parallel);
    topology.beside = Some(Arc::clone(&merged.beside));
    Ok(topology)
}

fn largest(layers: &[Layer]) -> Option<usize> {
    let edges: usize = layers.iter().map(Layer::edges).sum();
    let (at, largest) = layers.iter().enumerate().max_by_key(|(_, l)| l.edges())?;
    let others = edges - largest.edges();
    (layers.len() > 1 && others.saturating_mul(LARGEST) <= largest.edges()).then_some(at)
}

async fn merge(
    topology: &Topology,
    beside: &Beside,
    budget: &Arc<dyn Budget>,
    most: usize,
    pace: &mut Pace,
) -> Result<(Arc<Merged>, usize)> {
    let mut memory = Reservation::new(budget);
    let nodes = beside.nodes.numbers().count();
    // The keys with their places, and room for what finishing takes; the edges of the small layers.
    let largest = &topology.layers[beside.largest];
    let small = topology.edges() - largest.edges();
    memory.resize(nodes.saturating_mul(4 * size_of::<u32>()))?;
    memory.grow(small.saturating_mul(size_of::<u64>()))?;
    let mut others = others(topology, beside.largest, small)
        .into_iter()
        .peekable();
    let (mut lists, mut own) = (ListsBuilder::default(), Vec::new());
    for node in beside.nodes.numbers() {
        let node = node as u32;
        own.clear();
        largest.append(node, &mut own);
        weave((node, &own), &mut others, &mut lists, &mut memory)?;
        if pace.due(own.len() + 8) {
            Pace::rest().await;
        }
    }
    memory.resize(memory.bytes().max(lists.bytes()))?;
    let (lists, bytes) = finish(lists.finish(), memory, most);
    let held = Beside {
        largest: 0,
        merged: Some(1),
        nodes: beside.nodes.clone(),
        _memory: Reservation::new(budget),
    };
    let bytes = bytes + beside.nodes.bytes();
    let beside = Arc::new(held);
    Ok((
        Arc::new(Merged {
            lists,
            beside,
            nodes,
        }),
        bytes,
    ))
}

/// The edges of all layers but the largest, ascending.
fn others(topology: &Topology, largest: usize, count: usize) -> Vec<u64> {
    let mut pairs = Vec::with_capacity(count);
    for (at, layer) in topology.layers.iter().enumerate() {
        if at != largest {
            layer.each(&mut |key, end| pairs.push(pair(key, end)));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Adds the ends of a node and those that the next pairs have of it; both ascend.
fn weave(
    (node, own): (u32, &[u32]),
    others: &mut Peekable<IntoIter<u64>>,
    lists: &mut ListsBuilder,
    memory: &mut Reservation,
) -> Result<()> {
    lists.reserve(own.len(), memory)?;
    let mut rest = own;
    while let Some(next) = others.next_if(|next| (next >> 32) as u32 <= node) {
        let end = next as u32;
        let (before, after) = rest.split_at(rest.partition_point(|own| *own <= end));
        before.iter().for_each(|end| {
            lists.push(node, *end);
        });
        lists.reserve(after.len() + 1, memory)?;
        lists.push(node, end);
        rest = after;
    }
    rest.iter().for_each(|end| {
        lists.push(node, *end);
    });
    Ok(())
}
