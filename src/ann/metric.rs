//! Exact distances: cosine, Euclidean and inner product, and queries.

use super::lanes::{self, LANES};

/// A square below it has lost digits.
const LEAST_SQUARE: f32 = 1e-30;

/// How the distance of two vectors is measured. The smaller distance is the nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// 1 - cosine similarity, 0 to 2. The zero vector has no direction and no distance.
    Cosine,
    /// Euclidean distance.
    L2,
    /// The inner product, negated.
    Dot,
}

impl Metric {
    /// The name in definitions and segment objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::L2 => "l2",
            Self::Dot => "dot",
        }
    }

    /// The metric of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Cosine, Self::L2, Self::Dot]
            .into_iter()
            .find(|metric| metric.as_str() == name)
    }

    /// Whether `row` has distances: its components are finite and, for cosine, not all zero.
    pub fn measures(self, row: &[f32]) -> bool {
        row.iter().all(|x| x.is_finite()) && (self != Self::Cosine || row.iter().any(|x| *x != 0.0))
    }
}

/// A query vector, checked, with its norm.
///
/// Its distance from a row is a function of the two vectors and the metric alone, bit for bit on every
/// machine, and never NaN nor -0.
#[derive(Debug, Clone)]
pub struct Query {
    metric: Metric,
    dimensions: usize,
    /// Padded with zeros to whole blocks of lanes.
    vector: Vec<f32>,
    norm: f32,
    /// Whether the square of the norm keeps its digits in f32.
    in_range: bool,
}

impl Query {
    /// `None` for a vector without distances: an empty one, one with a component that is not finite, the
    /// zero vector under cosine.
    pub fn new(metric: Metric, mut vector: Vec<f32>) -> Option<Self> {
        if vector.is_empty() || !metric.measures(&vector) {
            return None;
        }
        let dimensions = vector.len();
        vector.resize(dimensions.next_multiple_of(LANES), 0.0);
        let norm = lanes::dot(&vector, &vector).sqrt();
        Some(Self {
            metric,
            dimensions,
            vector,
            norm,
            in_range: norm * norm > LEAST_SQUARE && norm.is_finite(),
        })
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The vector.
    pub fn vector(&self) -> &[f32] {
        &self.vector[..self.dimensions]
    }

    /// The vector with zeros up to a multiple of the lanes.
    pub(super) fn padded(&self) -> &[f32] {
        &self.vector
    }

    /// The Euclidean norm, infinite when f32 does not hold its square.
    pub fn norm(&self) -> f32 {
        self.norm
    }

    /// The distance from `row`: `None` for a row of another width, with a component that is not finite,
    /// or without a direction under cosine.
    pub fn distance(&self, row: &[f32]) -> Option<f32> {
        pulp::Arch::new().dispatch(Distances {
            query: self,
            rows: std::iter::once(row),
            sink: |distance| distance,
        })
    }

    /// The distances from consecutive rows of as many components each as the query has, to `out`.
    pub fn distances(&self, rows: &[f32], out: &mut Vec<Option<f32>>) {
        out.clear();
        pulp::Arch::new().dispatch(Distances {
            query: self,
            rows: rows.chunks_exact(self.dimensions),
            sink: |distance| {
                out.push(distance);
                None
            },
        });
    }

    /// Cosine similarity with `row`, -1 to 1, whatever the metric of the query; 0 with a row that has no
    /// direction.
    pub fn similarity(&self, row: &[f32]) -> f32 {
        let (dot, square) = lanes::dot_and_square(self.vector(), row);
        self.similarity_of(dot, row, square)
    }

    #[inline(always)]
    fn distance_of(&self, row: &[f32]) -> Option<f32> {
        if row.len() != self.dimensions {
            return None;
        }
        let (raw, square) = match self.metric {
            Metric::Cosine => lanes::dot_and_square(self.vector(), row),
            Metric::L2 | Metric::Dot => (self.raw(self.vector(), row), 0.0),
        };
        // A sum is finite only if every component is.
        let measured = match self.metric {
            Metric::Cosine => square > LEAST_SQUARE && square.is_finite(),
            Metric::L2 | Metric::Dot => raw.is_finite(),
        };
        (measured || self.metric.measures(row)).then(|| self.finish(raw, row, square))
    }

    /// What the metric sums over the components.
    #[inline(always)]
    fn raw(&self, vector: &[f32], row: &[f32]) -> f32 {
        match self.metric {
            Metric::Cosine | Metric::Dot => lanes::dot(vector, row),
            Metric::L2 => lanes::square_distance(vector, row),
        }
    }

    /// The distance from a stored row that is measured and padded as the query is; `square` is the
    /// inner product of the row with itself.
    #[inline(always)]
    pub(super) fn stored(&self, row: &[f32], square: f32) -> f32 {
        self.finish(self.raw(&self.vector, row), row, square)
    }

    /// [`stored`](Self::stored) for four rows.
    #[inline(always)]
    pub(super) fn stored4(&self, rows: [&[f32]; 4], squares: [f32; 4]) -> [f32; 4] {
        let raw = match self.metric {
            Metric::Cosine | Metric::Dot => lanes::dot4(&self.vector, rows),
            Metric::L2 => lanes::square_distance4(&self.vector, rows),
        };
        std::array::from_fn(|i| self.finish(raw[i], rows[i], squares[i]))
    }

    #[inline(always)]
    fn finish(&self, raw: f32, row: &[f32], square: f32) -> f32 {
        match self.metric {
            Metric::Cosine => 1.0 - self.similarity_of(raw, row, square),
            Metric::L2 if raw > LEAST_SQUARE && raw.is_finite() => raw.sqrt(),
            Metric::L2 => {
                let square = lanes::wide_square_distance(&self.vector, row);
                square.sqrt().min(f64::from(f32::MAX)) as f32
            }
            // There is one zero: its sign must not decide between rows.
            Metric::Dot if raw == 0.0 || (raw.abs() > LEAST_SQUARE && raw.is_finite()) => 0.0 - raw,
            Metric::Dot => {
                let [dot, ..] = lanes::wide_sums(&self.vector, row);
                let most = f64::from(f32::MAX);
                0.0 - dot.clamp(-most, most) as f32
            }
        }
    }

    #[inline(always)]
    fn similarity_of(&self, dot: f32, row: &[f32], square: f32) -> f32 {
        let similarity = dot / (self.norm * square.sqrt());
        let in_range = self.in_range && square > LEAST_SQUARE && square.is_finite();
        let similarity = if in_range && similarity.is_finite() {
            similarity.clamp(-1.0, 1.0)
        } else {
            self.wide_similarity(row)
        };
        similarity + 0.0
    }

    #[cold]
    fn wide_similarity(&self, row: &[f32]) -> f32 {
        let [dot, a, b] = lanes::wide_sums(&self.vector, row);
        let similarity = dot / (a.sqrt() * b.sqrt());
        if similarity.is_finite() {
            similarity.clamp(-1.0, 1.0) as f32
        } else {
            0.0
        }
    }
}

/// One dispatch for the distances of many rows; answers what `sink` says of the last.
struct Distances<'a, I, S> {
    query: &'a Query,
    rows: I,
    sink: S,
}

impl<'a, I, S> pulp::NullaryFnOnce for Distances<'a, I, S>
where
    I: Iterator<Item = &'a [f32]>,
    S: FnMut(Option<f32>) -> Option<f32>,
{
    type Output = Option<f32>;

    #[inline(always)]
    fn call(mut self) -> Self::Output {
        let mut last = None;
        for row in self.rows {
            last = (self.sink)(self.query.distance_of(row));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];

    #[test]
    fn names_are_parsed() {
        for metric in METRICS {
            assert_eq!(Metric::parse(metric.as_str()), Some(metric));
        }
        assert_eq!(Metric::parse("Cosine"), None);
    }

    #[test]
    fn similarity_is_the_cosine() {
        let query = Query::new(Metric::Cosine, vec![1.0, 0.0]).unwrap();
        let similarity = |x, y| query.similarity(&[x, y]);
        assert_eq!(similarity(1.0, 0.0), 1.0);
        assert_eq!(similarity(0.0, 1.0), 0.0);
        assert_eq!(similarity(-2.0, 0.0), -1.0);
        assert_eq!(similarity(0.0, 0.0), 0.0);
        assert!((similarity(1.0, 1.0) - 0.5f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn vectors_without_distances_are_refused() {
        for metric in METRICS {
            for bad in [vec![], vec![f32::NAN], vec![f32::INFINITY, 1.0]] {
                assert!(Query::new(metric, bad).is_none());
            }
            let zero = Query::new(metric, vec![0.0, 0.0]);
            assert_eq!(zero.is_none(), metric == Metric::Cosine);
            let query = Query::new(metric, vec![1.0, 0.0]).unwrap();
            for bad in [&[f32::NAN, 1.0][..], &[0.0, f32::INFINITY], &[1.0], &[]] {
                assert_eq!(query.distance(bad), None, "{metric:?} {bad:?}");
            }
            let zero = query.distance(&[0.0, 0.0]);
            assert_eq!(zero.is_none(), metric == Metric::Cosine);
        }
    }

    #[test]
    fn distances_are_those_of_the_metric() {
        let distance =
            |metric, a: [f32; 2], b: [f32; 2]| Query::new(metric, a.to_vec()).unwrap().distance(&b);
        assert_eq!(distance(Metric::Cosine, [2.0, 0.0], [0.0, 3.0]), Some(1.0));
        assert_eq!(distance(Metric::L2, [1.0, 2.0], [4.0, 6.0]), Some(5.0));
        assert_eq!(distance(Metric::Dot, [1.0, 2.0], [3.0, 4.0]), Some(-11.0));
        let zero = distance(Metric::Dot, [1.0, 0.0], [0.0, 1.0]).unwrap();
        assert!(zero.is_sign_positive());
    }

    #[test]
    fn large_and_tiny_vectors_keep_their_distance() {
        for scale in [1e30f32, 1e-30] {
            for other in [scale, 1.0] {
                let query = Query::new(Metric::Cosine, vec![scale, scale]).unwrap();
                assert_eq!(query.similarity(&[other, other]), 1.0, "{scale} {other}");
                assert_eq!(query.similarity(&[other, -other]), 0.0);
                let query = Query::new(Metric::Cosine, vec![other, other]).unwrap();
                assert_eq!(query.similarity(&[scale, scale]), 1.0, "{scale} {other}");
            }
            let query = Query::new(Metric::L2, vec![scale, 0.0]).unwrap();
            let distance = query.distance(&[-scale, 0.0]).unwrap();
            assert!((distance / scale - 2.0).abs() < 1e-6, "{distance}");
        }
        let query = Query::new(Metric::Dot, vec![f32::MAX, f32::MAX]).unwrap();
        assert_eq!(query.distance(&[f32::MAX, f32::MAX]), Some(-f32::MAX));
        assert_eq!(query.distance(&[f32::MAX, -f32::MAX]), Some(0.0));
        let query = Query::new(Metric::L2, vec![f32::MAX]).unwrap();
        assert_eq!(query.distance(&[-f32::MAX]), Some(f32::MAX));
    }

    #[test]
    fn the_same_row_has_the_same_distance_anywhere() {
        let width = 37;
        let value = |i: usize| ((i * 7919) % 101) as f32 / 50.0 - 1.0;
        let rows: Vec<f32> = (0..width * 20).map(|i| value(i + 13)).collect();
        for metric in METRICS {
            let query = Query::new(metric, (0..width).map(value).collect()).unwrap();
            let mut whole = Vec::new();
            query.distances(&rows, &mut whole);
            assert_eq!(whole.len(), 20);
            for (row, expected) in rows.chunks(width).zip(whole) {
                let bits = query.distance(row).map(f32::to_bits);
                assert_eq!(bits, expected.map(f32::to_bits));
                let mut padded = row.to_vec();
                padded.resize(48, 0.0);
                let stored = query.stored(&padded, lanes::dot(row, row));
                assert_eq!(Some(stored.to_bits()), bits);
            }
        }
    }
}
