//! Building by `hnsw_rs`, whose structures are left as soon as the graph stands.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hnsw_rs::anndists::dist::distances::Distance;
use hnsw_rs::hnsw::Hnsw;

use super::super::frame::Frame;
use super::super::index::Shape;
use super::super::lanes;
use super::super::recall::{Gate, count_near};
use super::super::scratch::Scratch;
use super::super::vectors::Vectors;
use super::repair::connect;
use super::{Adjacency, Graph, Layer, Walk};
use crate::{Error, Result};

/// Rows that are inserted between two looks at cancellation.
const CHUNK: usize = 64;
/// Layers at most, the limit of `hnsw_rs`.
const MAX_LAYERS: usize = 16;
/// Values of `ef` that are measured.
const EFFORTS: [u32; 12] = [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// Parameters of the builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphParams {
    /// Neighbours of a node in upper layers (`M`), 2 to 255; twice as many in the lowest.
    pub m: u32,
    /// Candidates from which the neighbours of a new node are chosen, at least 1.
    pub ef_construction: u32,
}

impl Default for GraphParams {
    fn default() -> Self {
        Self {
            m: 16,
            ef_construction: 200,
        }
    }
}

/// Builds the graph of the present rows of `vectors`.
///
/// Rows are inserted one after the other, so that the graph is the same whenever it is built on one
/// machine. `progress` is told (rows inserted, rows in all). While it builds, memory holds about 2.6 KB
/// a row and one more copy of the vectors.
///
/// `None` if there is no row, if the builder fails, or if the graph finds less than 0.95 of the 10
/// nearest rows or a sampled row does not find itself: such a fragment is searched exactly. Fails with
/// [`Error::Cancelled`] when `cancel` says so, and for parameters out of range.
pub fn build(
    vectors: &Vectors,
    params: GraphParams,
    cancel: &dyn Fn() -> bool,
    progress: &dyn Fn(u64, u64),
) -> Result<Option<Graph>> {
    if !(2..=255).contains(&params.m) || !(1..=1 << 16).contains(&params.ef_construction) {
        return Err(Error::ResourceLimitExceeded {
            what: "parameters m and ef_construction of a graph",
            value: u64::from(params.m.max(params.ef_construction)),
            limit: 255,
        });
    }
    if vectors.present().is_empty() {
        return Ok(None);
    }
    // The builder asserts what it assumes; a failed assertion costs the index, not the process.
    let grown = catch_unwind(AssertUnwindSafe(|| grow(vectors, params, cancel, progress)));
    let grown = match grown {
        Ok(grown) => grown?,
        Err(_) => None,
    };
    let Some(mut graph) = grown else {
        tracing::warn!("building a vector graph failed; the fragment is searched exactly");
        return Ok(None);
    };
    connect(&mut graph, vectors);
    if cancel() {
        return Err(cancelled());
    }
    let mut scratch = Scratch::default();
    let gate = Gate::new(vectors);
    let chosen = gate.choose(vectors.metric(), EFFORTS.into_iter(), |query, truth, ef| {
        let ef = (ef as usize).max(truth.len());
        Walk::new(&graph, vectors, query, ef).beam(&mut scratch);
        count_near(&scratch.nearest(truth.len()), truth)
    });
    let Some((ef, curve)) = chosen else {
        tracing::warn!("a vector graph misses its recall; the fragment is searched exactly");
        return Ok(None);
    };
    (graph.ef, graph.curve) = (ef, curve);
    Ok(Some(graph))
}

fn cancelled() -> Error {
    Error::Cancelled {
        operation: "building a vector index",
    }
}

/// Squared Euclidean distance in the frame: never negative, never NaN.
struct Euclid(pulp::Arch);

impl Distance<f32> for Euclid {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        self.0.dispatch(Pair(a, b))
    }
}

struct Pair<'a>(&'a [f32], &'a [f32]);

impl pulp::NullaryFnOnce for Pair<'_> {
    type Output = f32;

    #[inline(always)]
    fn call(self) -> f32 {
        lanes::square_distance(self.0, self.1)
    }
}

/// `None` if the builder lost a row.
fn grow(
    vectors: &Vectors,
    params: GraphParams,
    cancel: &dyn Fn() -> bool,
    progress: &dyn Fn(u64, u64),
) -> Result<Option<Graph>> {
    let rows: Vec<u32> = vectors.present().iter().collect();
    let (m, ef) = (params.m as usize, params.ef_construction as usize);
    let builder =
        Hnsw::<f32, Euclid>::new(m, rows.len(), MAX_LAYERS, ef, Euclid(pulp::Arch::new()));
    let frame = Frame::of(vectors);
    let mut copy = vec![0.0; frame.width()];
    // Rows that stand together in a fragment may be alike: far steps mix them.
    let step = coprime_step(rows.len());
    let mut at = 0;
    for done in 0..rows.len() {
        if done % CHUNK == 0 {
            if cancel() {
                return Err(cancelled());
            }
            progress(done as u64, rows.len() as u64);
        }
        frame.row(vectors.row(rows[at]), &mut copy);
        builder.insert((&copy, rows[at] as usize));
        at = (at + step) % rows.len();
    }
    progress(rows.len() as u64, rows.len() as u64);
    Ok(extract(&builder, vectors, params))
}

/// A step near the golden section of `count` that visits every index.
fn coprime_step(count: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_033_988_75) as usize;
    (golden.max(1)..)
        .find(|step| gcd(*step, count) == 1)
        .unwrap_or(1)
}

fn extract(
    builder: &Hnsw<'_, f32, Euclid>,
    vectors: &Vectors,
    params: GraphParams,
) -> Option<Graph> {
    let rows = vectors.rows() as usize;
    let mut levels: Vec<Option<u8>> = vec![None; rows];
    let mut lists: Vec<Vec<Vec<u32>>> = Vec::new();
    let points = builder.get_point_indexation();
    for point in points {
        let (row, level) = (point.get_origin_id(), point.get_point_id().0);
        *levels.get_mut(row)? = Some(level);
        for (layer, near) in point.get_neighborhood_id().iter().enumerate() {
            // The builder notes an entry in layers above a point's own.
            if layer > usize::from(level) {
                break;
            }
            if lists.len() <= layer {
                lists.resize(layer + 1, vec![Vec::new(); rows]);
            }
            lists[layer][row] = near.iter().map(|n| n.get_origin_id() as u32).collect();
        }
    }
    let found = levels.iter().flatten().count() as u64;
    if found != vectors.present().len() {
        return None;
    }
    let in_layer = |row: u32, layer: usize| {
        let level = levels.get(row as usize).copied().flatten();
        level.is_some_and(|level| usize::from(level) >= layer)
    };
    for (layer, lists) in lists.iter_mut().enumerate() {
        for (row, list) in lists.iter_mut().enumerate() {
            list.retain(|to| *to as usize != row && in_layer(*to, layer));
        }
    }
    let upper =
        |(layer, lists): (usize, &Vec<Vec<u32>>)| upper_layer(lists, |row| in_layer(row, layer));
    let mut layers: Vec<Layer> = lists.iter().enumerate().skip(1).map(upper).collect();
    layers.retain(|layer| !layer.rows.is_empty());
    let highest = layers.last().and_then(|layer| layer.rows.first().copied());
    Some(Graph {
        shape: Shape::of(vectors),
        params,
        entry: highest.or_else(|| vectors.present().min())?,
        base: Adjacency::of(lists.first()?),
        layers,
        ef: 0,
        curve: Vec::new(),
    })
}

fn upper_layer(lists: &[Vec<u32>], in_layer: impl Fn(u32) -> bool) -> Layer {
    let rows: Vec<u32> = (0..lists.len() as u32)
        .filter(|row| in_layer(*row))
        .collect();
    let index = |row: &u32| rows.binary_search(row).ok().map(|index| index as u32);
    let edges: Vec<Vec<u32>> = rows
        .iter()
        .map(|row| lists[*row as usize].iter().filter_map(index).collect())
        .collect();
    Layer {
        edges: Adjacency::of(&edges),
        rows,
    }
}
