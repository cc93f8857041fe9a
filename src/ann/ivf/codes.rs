//! Vectors as one signed byte a component.

use bytes::Bytes;

use super::super::frame::Frame;
use super::super::metric::{Metric, Query};
use super::super::vectors::Vectors;

/// Largest code.
const MOST: f32 = 127.0;

/// Row-major codes and what each row's are multiplied with.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::ann) struct Codes {
    /// Signed bytes.
    pub(in crate::ann) data: Bytes,
    pub(in crate::ann) scales: Vec<f32>,
}

impl Codes {
    /// The codes of `rows`, in their order, in the frame.
    pub(super) fn of(vectors: &Vectors, frame: &Frame, rows: &[u32]) -> Self {
        let dimensions = vectors.dimensions();
        let mut data = Vec::with_capacity(rows.len() * dimensions);
        let mut scales = Vec::with_capacity(rows.len());
        let mut row = vec![0.0; frame.width()];
        for position in rows {
            frame.row(vectors.row(*position), &mut row);
            let row = &row[..dimensions];
            let scale = row.iter().fold(0f32, |most, x| most.max(x.abs())) / MOST;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            // A cast saturates.
            data.extend(row.iter().map(|x| (x * inverse).round() as i8 as u8));
            scales.push(scale);
        }
        Self {
            data: data.into(),
            scales,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.data.len() + self.scales.len() * size_of::<f32>()
    }
}

/// A query as integers.
pub(super) struct CodedQuery {
    query: Vec<i16>,
    scale: f32,
    /// What the square of a row is multiplied with to be half of it in the frame; 0 where it plays no part.
    half: f32,
}

impl CodedQuery {
    pub(super) fn new(query: &Query, framed: &[f32], frame: &Frame) -> Self {
        let vector = &framed[..query.vector().len()];
        // Sums of products stay in i32.
        let most = (i32::MAX as usize / 127 / vector.len().max(1)).clamp(1, 1023) as f32;
        let scale = vector.iter().fold(0f32, |most, x| most.max(x.abs())) / most;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let half = match query.metric() {
            Metric::L2 => (0.5 * frame.scale() * frame.scale()) as f32,
            Metric::Cosine | Metric::Dot => 0.0,
        };
        Self {
            query: vector
                .iter()
                .map(|x| (x * inverse).round() as i16)
                .collect(),
            scale,
            half,
        }
    }

    /// What orders rows about as their distances do: half the square of a row minus its product with the
    /// query.
    #[inline(always)]
    pub(super) fn score(&self, codes: &Codes, at: usize, square: f32) -> f32 {
        let width = self.query.len();
        let code = &codes.data[at * width..(at + 1) * width];
        let term = |(q, c): (&i16, &u8)| i32::from(*q) * i32::from(*c as i8);
        let products = self.query.iter().zip(code).map(term);
        let product = products.fold(0i32, i32::wrapping_add);
        let score = self.half * square - product as f32 * self.scale * codes.scales[at];
        // A square out of range has no place in the order.
        if score.is_finite() { score + 0.0 } else { 0.0 }
    }
}
