//! The Euclidean space in which indexes are built.
//!
//! Near under a metric is near in the frame by Euclidean distance: cosine by unit vectors, the inner
//! product by one more component that makes all rows equally long (Bachrach et al., "Speeding up the
//! Xbox recommender system using a Euclidean transformation for inner-product spaces", RecSys 2014).

use super::lanes::LANES;
use super::metric::{Metric, Query};
use super::vectors::Vectors;

/// How rows and queries are mapped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frame {
    metric: Metric,
    dimensions: usize,
    /// What rows are multiplied with under L2 and the inner product, so that none is longer than 1.
    scale: f64,
}

impl Frame {
    /// The frame of present rows.
    pub(super) fn of(vectors: &Vectors) -> Self {
        let norm = |row: u32| square(vectors.row(row));
        let most = vectors.present().iter().map(norm).fold(0.0, f64::max);
        let scale = if most > 0.0 { 1.0 / most.sqrt() } else { 1.0 };
        Self {
            metric: vectors.metric(),
            dimensions: vectors.dimensions(),
            scale,
        }
    }

    /// A frame that was stored; `None` if there is none of this scale.
    pub(super) fn stored(metric: Metric, dimensions: usize, scale: f64) -> Option<Self> {
        (scale.is_finite() && scale > 0.0).then_some(Self {
            metric,
            dimensions,
            scale,
        })
    }

    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Components, padded with zeros to whole blocks of lanes.
    pub(super) fn width(&self) -> usize {
        let longer = usize::from(self.metric == Metric::Dot);
        (self.dimensions + longer).next_multiple_of(LANES)
    }

    /// A row in the frame, to `out` of [`width`](Self::width) components.
    pub(super) fn row(&self, row: &[f32], out: &mut [f32]) {
        let scale = match self.metric {
            Metric::Cosine => 1.0 / square(row).sqrt(),
            Metric::L2 | Metric::Dot => self.scale,
        };
        scaled(row, scale, out);
        if self.metric == Metric::Dot {
            let length = square(&out[..row.len()]);
            out[row.len()] = (1.0 - length).max(0.0).sqrt() as f32;
        }
    }

    /// A query in the frame.
    pub(super) fn query(&self, query: &Query) -> Vec<f32> {
        let norm = square(query.vector()).sqrt();
        let scale = match self.metric {
            Metric::L2 => self.scale,
            Metric::Cosine | Metric::Dot if norm > 0.0 => 1.0 / norm,
            Metric::Cosine | Metric::Dot => 1.0,
        };
        let mut out = vec![0.0; self.width()];
        scaled(query.vector(), scale, &mut out);
        out
    }
}

fn scaled(row: &[f32], scale: f64, out: &mut [f32]) {
    out.fill(0.0);
    for (out, x) in out.iter_mut().zip(row) {
        // A query far outside of the rows stays finite.
        let x = f64::from(*x) * scale;
        *out = x.clamp(-1e15, 1e15) as f32;
    }
}

fn square(row: &[f32]) -> f64 {
    row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
}
