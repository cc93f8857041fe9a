//! What lies beside the largest layer of a topology, where that is little: one large fragment and the
//! small ones of the commits since.
//!
//! A node that only the largest layer knows has its list there, as it lies. The lists of the others are
//! merged when they are looked up, or once for a version, when so many nodes are looked up that it pays.

use std::sync::Arc;

use super::layer::{Layer, Loader, finish};
use super::lists::{Bits, Lists, ListsBuilder};
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
            let made = match loader.many {
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
    // An edge from a node to itself is merged already.
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
    // The keys with their places, and room for what finishing takes.
    memory.resize(nodes.saturating_mul(4 * size_of::<u32>()))?;
    let (mut lists, mut buffer) = (ListsBuilder::default(), Vec::new());
    for node in beside.nodes.numbers() {
        let node = node as u32;
        topology.merge(node, false, &mut buffer);
        lists.reserve(buffer.len(), &mut memory)?;
        for end in &buffer {
            lists.push(node, *end);
        }
        if pace.due(buffer.len() + topology.layers.len()) {
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
