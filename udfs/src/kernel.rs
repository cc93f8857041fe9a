//! The exact search kernel: cosine similarity of one query with many rows, and the best k of them.
//!
//! A row's similarity is a function of the query and the row alone: sums run over a fixed number of
//! lanes in a fixed order, so that batches, partitions and threads never show in a result.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Sums that run side by side.
const LANES: usize = 16;
/// A sum of squares below it has lost digits.
const LEAST_SQUARE: f32 = 1e-30;

/// A query, checked and with its norm.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    vector: Vec<f32>,
    norm: f32,
}

impl Query {
    /// `None` for a vector that has no direction: an empty one, zero, or one with a component that is
    /// not finite.
    pub(crate) fn new(vector: Vec<f32>) -> Option<Self> {
        let finite = vector.iter().all(|x| x.is_finite());
        let zero = vector.iter().all(|x| *x == 0.0);
        let norm = sums(&vector, &vector).1.sqrt();
        (finite && !zero).then_some(Self { vector, norm })
    }

    /// Components.
    pub(crate) fn dimensions(&self) -> usize {
        self.vector.len()
    }

    /// Similarities of consecutive rows, as many components each as the query has, to `out`.
    pub(crate) fn similarities(&self, rows: &[f32], out: &mut Vec<f32>) {
        out.clear();
        let rows = rows.chunks_exact(self.vector.len().max(1));
        out.extend(rows.map(|row| self.similarity(row)));
    }

    fn similarity(&self, row: &[f32]) -> f32 {
        let (dot, square) = sums(&self.vector, row);
        let similarity = dot / (self.norm * square.sqrt());
        let in_range = square > LEAST_SQUARE && self.norm * self.norm > LEAST_SQUARE;
        let similarity = if in_range && similarity.is_finite() {
            similarity.clamp(-1.0, 1.0)
        } else {
            wide(&self.vector, row)
        };
        // There is one zero: its sign must not decide between keys.
        similarity + 0.0
    }
}

/// Dot product of `a` and `b`, and the square of `b`.
fn sums(a: &[f32], b: &[f32]) -> (f32, f32) {
    let (mut dot, mut square) = ([0f32; LANES], [0f32; LANES]);
    let (blocks_a, rest_a) = a.as_chunks::<LANES>();
    let (blocks_b, rest_b) = b.as_chunks::<LANES>();
    for (x, y) in blocks_a.iter().zip(blocks_b) {
        for lane in 0..LANES {
            dot[lane] += x[lane] * y[lane];
            square[lane] += y[lane] * y[lane];
        }
    }
    for (lane, (x, y)) in rest_a.iter().zip(rest_b).enumerate() {
        dot[lane] += x * y;
        square[lane] += y * y;
    }
    (fold(dot), fold(square))
}

/// The lanes, pair by pair.
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

/// The same for vectors whose squares leave the range of f32.
fn wide(a: &[f32], b: &[f32]) -> f32 {
    let (mut dot, mut square_a, mut square_b) = (0f64, 0f64, 0f64);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        dot += x * y;
        square_a += x * x;
        square_b += y * y;
    }
    let similarity = dot / (square_a.sqrt() * square_b.sqrt());
    // A row without a direction is like nothing.
    if similarity.is_finite() {
        similarity.clamp(-1.0, 1.0) as f32
    } else {
        0.0
    }
}

/// A row that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hit {
    pub(crate) key: String,
    pub(crate) similarity: f32,
}

impl Eq for Hit {}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Hit {
    /// The better hit is the smaller one: more similar first, equal ones by key.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_similarity = other.similarity.total_cmp(&self.similarity);
        by_similarity.then_with(|| self.key.cmp(&other.key))
    }
}

/// The best k hits so far.
#[derive(Debug)]
pub(crate) struct Best {
    k: usize,
    /// The worst on top.
    hits: BinaryHeap<Hit>,
}

impl Best {
    pub(crate) fn new(k: usize) -> Self {
        Self {
            k,
            hits: BinaryHeap::new(),
        }
    }

    /// Takes a row if it is among the best; copies its key only then.
    pub(crate) fn offer(&mut self, key: &str, similarity: f32) {
        if self.hits.len() == self.k {
            let Some(worst) = self.hits.peek() else {
                return;
            };
            let order = worst.similarity.total_cmp(&similarity);
            if order.then_with(|| key.cmp(&worst.key)) != Ordering::Less {
                return;
            }
            self.hits.pop();
        }
        self.hits.push(Hit {
            key: key.to_owned(),
            similarity,
        });
    }

    /// Takes what another partition found.
    pub(crate) fn merge(&mut self, other: Self) {
        for hit in other.hits {
            self.offer(&hit.key, hit.similarity);
        }
    }

    /// Best first.
    pub(crate) fn into_sorted(self) -> Vec<Hit> {
        self.hits.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_the_cosine() {
        let query = Query::new(vec![1.0, 0.0]).unwrap();
        let mut out = Vec::new();
        query.similarities(&[1.0, 0.0, 0.0, 1.0, -2.0, 0.0, 1.0, 1.0], &mut out);
        assert_eq!(out[..3], [1.0, 0.0, -1.0]);
        assert!((out[3] - 0.5f32.sqrt()).abs() < 1e-6);
        for bad in [vec![], vec![0.0, 0.0], vec![f32::NAN], vec![f32::INFINITY]] {
            assert!(Query::new(bad).is_none());
        }
    }

    #[test]
    fn large_and_tiny_vectors_keep_their_direction() {
        for scale in [1e30f32, 1e-30] {
            let query = Query::new(vec![scale, scale]).unwrap();
            let mut out = Vec::new();
            query.similarities(&[scale, scale, scale, -scale], &mut out);
            assert_eq!(out, [1.0, 0.0], "{scale}");
        }
    }

    #[test]
    fn the_same_row_has_the_same_similarity_anywhere() {
        let width = 37;
        let value = |i: usize| ((i * 7919) % 101) as f32 / 50.0 - 1.0;
        let query = Query::new((0..width).map(value).collect()).unwrap();
        let rows: Vec<f32> = (0..width * 20).map(|i| value(i + 13)).collect();
        let (mut whole, mut single) = (Vec::new(), Vec::new());
        query.similarities(&rows, &mut whole);
        for (row, expected) in whole.iter().enumerate() {
            query.similarities(&rows[row * width..(row + 1) * width], &mut single);
            assert_eq!(single[0].to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn the_best_are_kept_in_any_order_of_arrival() {
        let rows = [("d", 0.5), ("a", 0.5), ("c", 0.9), ("b", -0.1), ("e", 0.5)];
        for k in 0..7 {
            let mut all: Vec<_> = rows.to_vec();
            for _ in 0..rows.len() {
                all.rotate_left(1);
                let (mut left, mut right) = (Best::new(k), Best::new(k));
                all[..2].iter().for_each(|(key, s)| left.offer(key, *s));
                all[2..].iter().for_each(|(key, s)| right.offer(key, *s));
                left.merge(right);
                let keys: Vec<String> = left.into_sorted().into_iter().map(|h| h.key).collect();
                assert_eq!(keys, ["c", "a", "d", "e", "b"][..k.min(5)], "{k}");
            }
        }
    }
}
