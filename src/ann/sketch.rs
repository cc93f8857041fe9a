//! One signed byte a component of the vectors of a fragment, and the least distance that follows.
//!
//! A row is `scale * code + rest` and a query `scale * code + rest` too, so their inner product differs from
//! that of the codes by at most what the Cauchy-Schwarz inequality allows the rests. A scan reads a quarter of
//! the bytes and measures only rows that can be among the nearest: it finds what it would find without.

use super::metric::{Metric, Query};
use super::vectors::Vectors;

/// Largest code of a row.
const MOST: f32 = 127.0;
/// Components up to which products of codes stay in 32 bits with digits to spare.
const MOST_DIMENSIONS: usize = 1 << 20;
/// Squares of norms outside have lost digits.
const NORMS: std::ops::Range<f64> = 1e-12..1e18;

/// What the code of a row leaves open.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// What its code is multiplied with.
    scale: f32,
    /// Norm of what is left, rounded up; infinite for a row of which nothing is known.
    rest: f32,
    norm: f32,
}

/// Codes of all rows of a fragment, row-major.
#[derive(Debug)]
pub(super) struct Sketch {
    width: usize,
    codes: Vec<i8>,
    rows: Vec<Row>,
}

impl Sketch {
    /// Bytes of a sketch of `rows` rows.
    pub(super) fn bytes_of(rows: usize, dimensions: usize) -> usize {
        rows.saturating_mul(dimensions + size_of::<Row>())
    }

    pub(super) fn of(vectors: &Vectors) -> Self {
        let (width, count) = (vectors.dimensions(), vectors.rows() as usize);
        let mut sketch = Self {
            width,
            codes: Vec::with_capacity(count * width),
            rows: Vec::with_capacity(count),
        };
        (0..vectors.rows()).for_each(|position| sketch.push(vectors.row(position)));
        sketch
    }

    fn push(&mut self, row: &[f32]) {
        let scale = largest(row) / MOST;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let from = self.codes.len();
        // A cast saturates.
        let codes = row.iter().map(|x| (x * inverse).round() as i8);
        self.codes.extend(codes);
        let codes = self.codes[from..].iter().map(|c| f64::from(*c));
        let rest = norm_of_rest(row, codes, f64::from(scale));
        let norm = norm(row);
        let known = NORMS.contains(&norm) && rest.is_finite();
        self.rows.push(Row {
            scale,
            rest: if known { up(rest) } else { f32::INFINITY },
            norm: norm as f32,
        });
    }

    pub(super) fn bytes(&self) -> usize {
        self.codes.capacity() + self.rows.capacity() * size_of::<Row>()
    }
}

/// A query as integers.
pub(super) struct Asked<'a> {
    sketch: &'a Sketch,
    metric: Metric,
    codes: Vec<i16>,
    scale: f64,
    rest: f64,
    norm: f64,
    /// Relative error of an exact distance, which is measured in single precision, and of the bound.
    slack: f64,
}

impl<'a> Asked<'a> {
    /// `None` for a query of which codes say nothing.
    pub(super) fn new(sketch: &'a Sketch, query: &Query) -> Option<Self> {
        let vector = query.vector();
        let norm = norm(vector);
        if vector.len() > MOST_DIMENSIONS || !NORMS.contains(&norm) {
            return None;
        }
        // Sums of products stay in i32.
        let most = (i32::MAX as usize / 127 / vector.len()).min(i16::MAX as usize) as f32;
        let scale = largest(vector) / most;
        let codes: Vec<i16> = vector.iter().map(|x| (x / scale).round() as i16).collect();
        let (scale, rest) = (
            f64::from(scale),
            norm_of_rest(
                vector,
                codes.iter().map(|c| f64::from(*c)),
                f64::from(scale),
            ),
        );
        rest.is_finite().then_some(Self {
            sketch,
            metric: query.metric(),
            codes,
            scale,
            rest,
            norm,
            slack: (vector.len() + 64) as f64 * f64::from(f32::EPSILON) * 2.0,
        })
    }

    /// At most the exact distance of a row, as it would be measured. To be inlined under a dispatch.
    #[inline(always)]
    pub(super) fn least(&self, position: u32) -> f64 {
        let (at, width) = (position as usize, self.sketch.width);
        let codes = &self.sketch.codes[at * width..(at + 1) * width];
        let terms = self.codes.iter().zip(codes);
        let product = terms.fold(0i32, |sum, (q, c)| {
            sum.wrapping_add(i32::from(*q) * i32::from(*c))
        });
        let row = self.sketch.rows[at];
        let (rest, norm) = (f64::from(row.rest), f64::from(row.norm));
        let product = f64::from(product) * self.scale * f64::from(row.scale);
        let most = product + self.norm * rest + self.rest * (norm + rest);
        let norms = self.norm * norm;
        match self.metric {
            Metric::Cosine => 1.0 - most / norms - self.slack,
            Metric::Dot => -most - self.slack * norms,
            Metric::L2 => {
                let squares = self.norm * self.norm + norm * norm;
                let square = squares * (1.0 - self.slack) - 2.0 * most;
                square.max(0.0).sqrt() * (1.0 - self.slack)
            }
        }
    }
}

fn largest(vector: &[f32]) -> f32 {
    vector.iter().fold(0f32, |most, x| most.max(x.abs()))
}

fn norm(vector: &[f32]) -> f64 {
    let squares = vector.iter().map(|x| f64::from(*x) * f64::from(*x));
    squares.sum::<f64>().sqrt()
}

/// The norm of `vector - scale * codes`.
fn norm_of_rest(vector: &[f32], codes: impl Iterator<Item = f64>, scale: f64) -> f64 {
    let rests = vector.iter().zip(codes);
    let squares = rests.map(|(x, c)| (f64::from(*x) - scale * c).powi(2));
    squares.sum::<f64>().sqrt()
}

/// A number in single precision that is not smaller.
fn up(x: f64) -> f32 {
    (x * (1.0 + f64::from(f32::EPSILON))) as f32 + f32::MIN_POSITIVE
}

#[cfg(test)]
mod tests {
    use super::super::top::TopK;
    use super::*;

    const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];

    /// Numbers of every size, zeros, equal rows and rows that differ in the last bit.
    fn component(seed: u64, row: u64, at: u64) -> f32 {
        let mut x = seed ^ (row / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at << 32);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((x >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0;
        let sized = match row % 23 {
            3 => unit * 1e-20,
            5 => unit * 1e18,
            7 if at > 0 => 0.0,
            9 => unit * 1e-3,
            _ => unit,
        };
        if row % 2 == 1 && at == 0 {
            f32::from_bits(sized.to_bits() ^ 1)
        } else {
            sized
        }
    }

    fn vectors(metric: Metric, dimensions: usize, rows: u64, seed: u64) -> Vectors {
        let mut vectors = Vectors::with_capacity(metric, dimensions, rows as usize).unwrap();
        for row in 0..rows {
            let vector: Vec<f32> = (0..dimensions as u64)
                .map(|at| component(seed, row, at))
                .collect();
            vectors.push((row % 31 != 30).then_some(vector.as_slice()));
        }
        vectors
    }

    #[test]
    fn no_distance_is_below_its_bound() {
        for (metric, dimensions) in METRICS
            .into_iter()
            .flat_map(|m| [1, 7, 64, 384].map(|d| (m, d)))
        {
            let vectors = vectors(metric, dimensions, 500, 7);
            let sketch = Sketch::of(&vectors);
            for ask in 0..40 {
                let Some(query) = Query::new(metric, vectors.row(ask * 11).to_vec()) else {
                    continue;
                };
                let Some(asked) = Asked::new(&sketch, &query) else {
                    continue;
                };
                for position in vectors.present() {
                    let exact = f64::from(query.distance(vectors.row(position)).unwrap());
                    let least = asked.least(position);
                    // Of a row that codes say nothing about it may be NaN.
                    let above = least > exact;
                    assert!(!above, "{metric:?} {dimensions}: {least} > {exact}");
                }
            }
        }
    }

    #[test]
    fn a_scan_finds_the_same_with_and_without() {
        for (metric, dimensions) in METRICS
            .into_iter()
            .flat_map(|m| [3, 50, 384].map(|d| (m, d)))
        {
            let plain = vectors(metric, dimensions, 3_000, 9);
            let sketched = vectors(metric, dimensions, 3_000, 9).sketched();
            for (ask, k) in (0..30).zip([1, 2, 10, 100].into_iter().cycle()) {
                let Some(query) = Query::new(metric, plain.row(ask * 97 + 1).to_vec()) else {
                    continue;
                };
                let find = |vectors: &Vectors, bound| {
                    let mut top = TopK::new(k).within(bound);
                    let rows = (0..vectors.rows()).filter(|row| row % 5 != 0);
                    let scanned = vectors.scan(&query, rows, &mut top);
                    (scanned, top.into_sorted())
                };
                let expected = find(&plain, None);
                assert_eq!(find(&sketched, None), expected);
                let bound = expected.1.get(k / 2).map(|hit| hit.0);
                assert_eq!(find(&sketched, bound), find(&plain, bound));
            }
        }
    }

    #[test]
    fn most_rows_are_out_of_question() {
        let vectors = vectors(Metric::Cosine, 384, 2_000, 3);
        let sketch = Sketch::of(&vectors);
        let query = Query::new(Metric::Cosine, vectors.row(12).to_vec()).unwrap();
        let asked = Asked::new(&sketch, &query).unwrap();
        let near = vectors
            .present()
            .iter()
            .filter(|row| asked.least(*row) <= 0.5);
        // Of two rows in 23 nothing is known.
        assert!((1..200).contains(&near.count()));
    }
}
