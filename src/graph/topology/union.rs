//! The adjacency of a whole edge table.

use std::ops::Range;
use std::sync::Arc;

use super::EdgeTable;
use super::beside::{self, Beside};
use super::layer::{Layer, Loaded, Loader, Side};
use super::lists::Lists;
use super::pace::Pace;
use super::stats::ReachStats;
use crate::Result;
use crate::graph::query::Direction;
use crate::table::read::TableReader;

/// Neighbours in one direction over all fragments of a version. Nodes are row ids.
#[derive(Debug, Clone)]
pub struct Topology {
    pub(super) layers: Vec<Layer>,
    /// Layers by source come first.
    pub(super) outs: usize,
    edges: usize,
    nodes: usize,
    pub(super) parallel: bool,
    part: bool,
    /// What lies beside the largest layer, if that is little.
    pub(super) beside: Option<Arc<Beside>>,
}

impl Topology {
    /// Loads the adjacency of `edges`; what is in the cache of the store is not read again.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, `ResourceLimitExceeded`
    /// for a row id above 2^32 - 2, the budget's own when it runs out.
    pub async fn load(edges: &EdgeTable, direction: Direction) -> Result<Self> {
        let (mut stats, reader) = (ReachStats::default(), edges.reader());
        let mut pace = Pace::default();
        let mut loader = Loader {
            reader: &reader,
            stats: &mut stats,
            pace: &mut pace,
            identity: edges.identity(),
            held_only: false,
            many: false,
        };
        let loaded = load(&mut loader, direction).await?;
        Ok(loaded.unwrap_or_else(Self::empty))
    }

    /// No edges.
    pub(super) fn empty() -> Self {
        Self {
            layers: Vec::new(),
            outs: 0,
            edges: 0,
            nodes: 0,
            parallel: false,
            part: false,
            beside: None,
        }
    }

    /// Lists of some nodes alone.
    pub(super) fn part(lists: Lists) -> Self {
        Self {
            part: true,
            ..Self::of(vec![Layer::of(Arc::new(lists))], 1)
        }
    }

    /// Whether only some nodes have lists.
    pub(super) fn is_part(&self) -> bool {
        self.part
    }

    fn of(layers: Vec<Layer>, outs: usize) -> Self {
        let nodes = layers.iter().filter(|l| l.edges() > 0);
        let nodes = nodes.map(|l| l.largest() as usize + 1).max();
        Self {
            edges: layers.iter().map(Layer::edges).sum(),
            nodes: nodes.unwrap_or(0),
            parallel: layers.len() > 1 || layers.iter().any(Layer::parallel),
            part: false,
            beside: None,
            layers,
            outs,
        }
    }

    /// The place of the only layer that may have edges of a node, if that is known.
    #[inline]
    fn alone(&self, rid: u32) -> Option<usize> {
        match &self.beside {
            Some(beside) => beside.alone(rid),
            None => (self.layers.len() == 1).then_some(0),
        }
    }

    /// The layers that may have edges of a node.
    #[inline]
    fn layers_of(&self, rid: u32) -> Range<usize> {
        match self.alone(rid) {
            Some(at) => at..at + 1,
            None => 0..self.layers.len(),
        }
    }

    /// Edges, each counted once a direction, dead ones included where they are kept.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// One more than the largest row id at any end.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Whether [`Topology::neighbours`] may name a node twice or out of order: parallel edges, several
    /// fragments, both directions.
    pub fn repeats(&self) -> bool {
        self.parallel
    }

    /// An upper bound of the number of neighbours of a node.
    pub fn degree(&self, rid: u32) -> usize {
        let layers = self.layers[self.layers_of(rid)].iter();
        layers.map(|layer| layer.degree(rid)).sum()
    }

    /// The neighbours of a node, one for each edge; `buffer` is room for them. In ascending order and
    /// each once unless [`Topology::repeats`].
    #[inline]
    pub fn neighbours<'a>(&'a self, rid: u32, buffer: &'a mut Vec<u32>) -> &'a [u32] {
        if let Some(at) = self.alone(rid)
            && let Some(slice) = self.layers[at].slice(rid)
        {
            return slice;
        }
        buffer.clear();
        for layer in &self.layers[self.layers_of(rid)] {
            match layer.slice(rid) {
                Some(slice) => buffer.extend_from_slice(slice),
                None => layer.append(rid, buffer),
            }
        }
        buffer
    }
}

/// A layer and where a list lies in it.
pub(super) type Place = (usize, Range<usize>);

/// What a pattern reads of a topology: lists that ascend.
impl Topology {
    /// The neighbours of a node, ascending: each once if they are to be `distinct`, else one for each
    /// edge. An edge from a node to itself is one edge in both directions too. `buffer` is room for what
    /// does not lie ready.
    #[inline]
    pub(super) fn list<'a>(
        &'a self,
        rid: u32,
        distinct: bool,
        buffer: &'a mut Vec<u32>,
    ) -> &'a [u32] {
        match self.ready(rid, distinct) {
            Some(place) => self.at(&place),
            None => {
                self.merge(rid, distinct, buffer);
                buffer
            }
        }
    }

    /// Where [`Topology::list`] lies ready, in a single fragment.
    #[inline]
    pub(super) fn ready(&self, rid: u32, distinct: bool) -> Option<Place> {
        let (number, range) = match self.alone(rid) {
            Some(at) => (at, self.layers[at].range(rid)),
            None => self.only(rid)?,
        };
        let Some(layer) = self.layers.get(number) else {
            return Some((0, 0..0));
        };
        let plain = !(distinct && layer.parallel_at(rid)) && layer.is_plain(&range);
        plain.then_some((number, range))
    }

    /// Where the edges of a node lie; `None` if several layers have some.
    #[inline]
    fn only(&self, rid: u32) -> Option<Place> {
        let mut found = None;
        for (number, layer) in self.layers.iter().enumerate() {
            let range = layer.range(rid);
            if !range.is_empty() {
                if found.is_some() {
                    return None;
                }
                found = Some((number, range));
            }
        }
        Some(found.unwrap_or((0, 0..0)))
    }

    /// The list that lies at a place.
    #[inline]
    pub(super) fn at(&self, (layer, range): &Place) -> &[u32] {
        let layer = self.layers.get(*layer);
        layer.map_or(&[], |layer| layer.ends(range.clone()))
    }

    /// [`Topology::list`] out of all fragments.
    pub(super) fn merge(&self, rid: u32, distinct: bool, buffer: &mut Vec<u32>) {
        buffer.clear();
        for number in self.layers_of(rid) {
            let (before, layer) = (buffer.len(), &self.layers[number]);
            layer.append(rid, buffer);
            let again = !distinct && self.outs > 0 && number >= self.outs;
            if again && buffer[before..].contains(&rid) {
                // Its source lists the loop too.
                let back: Vec<u32> = buffer.drain(before..).filter(|end| *end != rid).collect();
                buffer.extend(back);
            }
        }
        buffer.sort_unstable();
        if distinct {
            buffer.dedup();
        }
    }
}

/// Loads all layers; `None` if one is missing that may not be made.
pub(super) async fn load(
    loader: &mut Loader<'_>,
    direction: Direction,
) -> Result<Option<Topology>> {
    let sides: &[Side] = match direction {
        Direction::Out => &[Side::Out],
        Direction::In => &[Side::In],
        Direction::Both => &[Side::Out, Side::In],
    };
    let reader: TableReader = loader.reader.clone();
    let entries = reader.entries().await?;
    let (mut layers, mut outs) = (Vec::new(), 0);
    for side in sides {
        for entry in entries.iter() {
            match loader.layer(entry, *side).await? {
                Loaded::Empty => {}
                Loaded::Missing => return Ok(None),
                Loaded::Layer(layer) => {
                    outs += usize::from(*side == Side::Out);
                    layers.push(layer);
                }
            }
        }
    }
    let topology = Topology::of(layers, outs);
    beside::apart(loader, topology, direction).await.map(Some)
}
