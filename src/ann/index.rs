//! The kinds of index.

use super::graph::Graph;
use super::ivf::Ivf;
use super::metric::Metric;
use super::recall::RecallPoint;
use super::vectors::Vectors;

/// An index over the vectors of one fragment.
#[derive(Debug, Clone, PartialEq)]
pub enum Index {
    /// A proximity graph.
    Hnsw(Graph),
    /// An inverted file.
    Ivf(Ivf),
}

/// Sizes and metric that an index shares with its vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) metric: Metric,
    pub(super) dimensions: u32,
    pub(super) rows: u32,
    pub(super) present: u32,
}

impl Index {
    /// The name of the kind in segment entries.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hnsw(_) => "hnsw",
            Self::Ivf(_) => "ivf",
        }
    }

    /// Recall at 10 neighbours as measured when the index was built, by ascending effort.
    pub fn curve(&self) -> &[RecallPoint] {
        match self {
            Self::Hnsw(graph) => &graph.curve,
            Self::Ivf(ivf) => &ivf.curve,
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Hnsw(graph) => graph.bytes(),
            Self::Ivf(ivf) => ivf.bytes(),
        }
    }

    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Hnsw(graph) => graph.shape,
            Self::Ivf(ivf) => ivf.shape,
        }
    }

    /// Whether `vectors` are those that were indexed, as far as sizes tell.
    pub(super) fn covers(&self, vectors: &Vectors) -> bool {
        self.shape() == Shape::of(vectors)
    }
}

impl Shape {
    pub(super) fn of(vectors: &Vectors) -> Self {
        Self {
            metric: vectors.metric(),
            dimensions: vectors.dimensions() as u32,
            rows: vectors.rows(),
            present: vectors.present().len() as u32,
        }
    }
}
