//! Inverted files: rows in lists by their nearest centroid; a search scans the nearest lists (Jégou,
//! Douze and Schmid, "Product quantization for nearest neighbor search", TPAMI 2011, section IV, without
//! its product code).

mod build;
mod codes;
mod kmeans;
mod probe;

pub use build::{IvfParams, build};
pub(super) use codes::Codes;
pub(super) use probe::Probe;

use super::frame::Frame;
use super::index::Shape;
use super::lanes;
use super::recall::RecallPoint;

/// An inverted file over the present rows of a fragment.
///
/// Every offset and every row is in bounds: [`build()`] and [`super::open`] alone make inverted files.
#[derive(Debug, Clone, PartialEq)]
pub struct Ivf {
    pub(super) shape: Shape,
    pub(super) frame: Frame,
    /// Row-major, as wide as the frame.
    pub(super) centroids: Vec<f32>,
    /// Half the square of each centroid.
    pub(super) halves: Vec<f32>,
    /// List `i` is `rows[offsets[i]..offsets[i + 1]]`.
    pub(super) offsets: Vec<u32>,
    /// Row positions, ascending in a list.
    pub(super) rows: Vec<u32>,
    /// In the order of `rows`.
    pub(super) codes: Option<Codes>,
    pub(super) probes: u32,
    pub(super) curve: Vec<RecallPoint>,
}

impl Ivf {
    /// Number of lists.
    pub fn lists(&self) -> usize {
        self.halves.len()
    }

    /// The number of lists to scan that reaches the target recall of 0.97 at 10 neighbours.
    pub fn probes(&self) -> usize {
        self.probes as usize
    }

    /// Recall at 10 neighbours as measured when the lists were built, by ascending number of lists.
    pub fn curve(&self) -> &[RecallPoint] {
        &self.curve
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let words = self.centroids.len() + self.halves.len() + self.offsets.len() + self.rows.len();
        words * size_of::<f32>() + self.codes.as_ref().map_or(0, Codes::bytes)
    }

    fn list(&self, list: u32) -> std::ops::Range<usize> {
        let list = list as usize;
        self.offsets[list] as usize..self.offsets[list + 1] as usize
    }
}

/// Half the square of each of `centroids`.
pub(super) fn halves(centroids: &[f32], width: usize) -> Vec<f32> {
    let half = |centroid: &[f32]| 0.5 * lanes::dot(centroid, centroid);
    centroids.chunks_exact(width).map(half).collect()
}
