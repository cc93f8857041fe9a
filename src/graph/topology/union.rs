//! The adjacency of a whole edge table.

use super::EdgeTable;
use super::layer::{Layer, Loaded, Loader, Side};
use super::pace::Pace;
use super::stats::ReachStats;
use crate::Result;
use crate::graph::query::Direction;
use crate::table::read::TableReader;

/// Neighbours in one direction over all fragments of a version. Nodes are row ids.
#[derive(Debug, Clone)]
pub struct Topology {
    layers: Vec<Layer>,
    /// Layers by source come first.
    outs: usize,
    edges: usize,
    nodes: usize,
    parallel: bool,
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
            held_only: false,
        };
        let loaded = load(&mut loader, direction).await?;
        Ok(loaded.unwrap_or_else(Self::empty))
    }

    /// No edges.
    pub(super) fn empty() -> Self {
        Self::of(Vec::new(), 0)
    }

    fn of(layers: Vec<Layer>, outs: usize) -> Self {
        let nodes = layers.iter().filter(|l| l.edges() > 0);
        let nodes = nodes.map(|l| l.largest() as usize + 1).max();
        Self {
            edges: layers.iter().map(Layer::edges).sum(),
            nodes: nodes.unwrap_or(0),
            parallel: layers.len() > 1 || layers.iter().any(Layer::parallel),
            layers,
            outs,
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
        self.layers.iter().map(|l| l.degree(rid)).sum()
    }

    /// The neighbours of a node, one for each edge; `buffer` is room for them. In ascending order and
    /// each once unless [`Topology::repeats`].
    #[inline]
    pub fn neighbours<'a>(&'a self, rid: u32, buffer: &'a mut Vec<u32>) -> &'a [u32] {
        if let [layer] = self.layers.as_slice()
            && let Some(slice) = layer.slice(rid)
        {
            return slice;
        }
        buffer.clear();
        for layer in &self.layers {
            match layer.slice(rid) {
                Some(slice) => buffer.extend_from_slice(slice),
                None => layer.append(rid, buffer),
            }
        }
        buffer
    }
}

/// A layer and where a list lies in it.
pub(super) type Place = (usize, std::ops::Range<usize>);

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
        let mut found = None;
        for (number, layer) in self.layers.iter().enumerate() {
            let range = layer.range(rid);
            if !range.is_empty() {
                if found.is_some() {
                    return None;
                }
                found = Some((number, layer, range));
            }
        }
        let Some((number, layer, range)) = found else {
            return Some((0, 0..0));
        };
        let plain = !(distinct && layer.parallel()) && layer.is_plain(&range);
        plain.then_some((number, range))
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
        for (number, layer) in self.layers.iter().enumerate() {
            let before = buffer.len();
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
    Ok(Some(Topology::of(layers, outs)))
}
