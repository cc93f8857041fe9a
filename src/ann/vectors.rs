//! The vectors of one fragment in memory.

use roaring::RoaringBitmap;

use super::lanes::{self, LANES};
use super::metric::{Metric, Query};
use super::sketch::{Asked, Sketch};
use super::top::{Key, TopK, key};
use crate::{Error, Result};

/// Bytes of a cache line, to which rows are aligned.
const LINE: usize = 64;
/// Rows that are scored under one dispatch.
const BATCH: usize = 256;

/// The vectors of a fragment's rows, row-major; position by position as the fragment's rows.
///
/// A row is present if its vector is not NULL, finite and, under cosine, not zero. Only present rows are
/// ever indexed or found. Rows are padded with zeros to a multiple of 16 components.
#[derive(Debug)]
pub struct Vectors {
    metric: Metric,
    dimensions: usize,
    stride: usize,
    data: Vec<f32>,
    /// Where the first row begins in `data`, at the beginning of a cache line.
    start: usize,
    /// Inner product of each row with itself.
    squares: Vec<f32>,
    present: RoaringBitmap,
    sketch: Option<Sketch>,
}

impl Vectors {
    /// Room for `rows` rows of `dimensions` components, to be pushed in order.
    ///
    /// Fails if a row has no components or the rows do not fit the address space.
    pub fn with_capacity(metric: Metric, dimensions: usize, rows: usize) -> Result<Self> {
        let stride = dimensions.next_multiple_of(LANES);
        let floats = stride.checked_mul(rows);
        let most = (isize::MAX as usize - LINE) / size_of::<f32>();
        if dimensions == 0 || rows >= u32::MAX as usize || floats.is_none_or(|n| n > most) {
            return Err(Error::ResourceLimitExceeded {
                what: "components of the vectors of a fragment",
                value: (rows as u64).saturating_mul(dimensions as u64),
                limit: most as u64,
            });
        }
        let (data, start) = aligned(stride * rows);
        Ok(Self {
            metric,
            dimensions,
            stride,
            data,
            start,
            squares: Vec::with_capacity(rows),
            present: RoaringBitmap::new(),
            sketch: None,
        })
    }

    /// With a byte for each component too, from which a scan tells which rows are too far. For fragments
    /// without an index: where there is one, when to scan instead was measured without.
    pub fn sketched(mut self) -> Self {
        self.sketch = Some(Sketch::of(&self));
        self
    }

    /// Bytes that [`Vectors::sketched`] adds.
    pub fn sketch_bytes(rows: usize, dimensions: usize) -> usize {
        Sketch::bytes_of(rows, dimensions)
    }

    /// Appends the vector of the next row, `None` for NULL; a vector of another width is as NULL.
    pub fn push(&mut self, row: Option<&[f32]>) {
        let position = self.squares.len() as u32;
        self.sketch = None;
        if self.data.len() + self.stride > self.data.capacity() {
            self.grow();
        }
        let end = self.data.len() + self.stride;
        let row = row.filter(|row| row.len() == self.dimensions && self.metric.measures(row));
        if let Some(row) = row {
            self.data.extend_from_slice(row);
            self.present.insert(position);
        }
        self.data.resize(end, 0.0);
        self.squares
            .push(row.map_or(0.0, |row| lanes::dot(row, row)));
    }

    fn grow(&mut self) {
        let rows = (self.squares.len() * 2).max(BATCH);
        let (mut data, start) = aligned(rows * self.stride);
        data.extend_from_slice(&self.data[self.start..]);
        (self.data, self.start) = (data, start);
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Components of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Rows, present or not.
    pub fn rows(&self) -> u32 {
        self.squares.len() as u32
    }

    /// Rows with a vector.
    pub fn present(&self) -> &RoaringBitmap {
        &self.present
    }

    /// The vector at `position`, zeros if it is not present.
    pub fn row(&self, position: u32) -> &[f32] {
        &self.padded(position)[..self.dimensions]
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let floats = self.data.capacity() + self.squares.capacity();
        let sketch = self.sketch.as_ref().map_or(0, Sketch::bytes);
        floats * size_of::<f32>() + self.present.serialized_size() + sketch
    }

    /// Components from one row to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The rows at `positions`, padded.
    pub(super) fn block(&self, positions: std::ops::Range<u32>) -> &[f32] {
        let at = |position: u32| self.start + position as usize * self.stride;
        &self.data[at(positions.start)..at(positions.end)]
    }

    #[inline(always)]
    pub(super) fn padded(&self, position: u32) -> &[f32] {
        let at = self.start + position as usize * self.stride;
        &self.data[at..at + self.stride]
    }

    #[inline(always)]
    pub(super) fn square(&self, position: u32) -> f32 {
        self.squares[position as usize]
    }

    /// The distance of one row.
    #[inline(always)]
    pub(super) fn measure(&self, query: &Query, position: u32) -> Key {
        let distance = query.stored(self.padded(position), self.square(position));
        key(distance, position)
    }

    /// The keys of rows, in their order, to `sink`. To be inlined under a dispatch.
    #[inline(always)]
    pub(super) fn measure_all(&self, query: &Query, rows: &[u32], mut sink: impl FnMut(Key)) {
        let (fours, rest) = rows.as_chunks::<4>();
        for four in fours {
            let padded = four.map(|position| self.padded(position));
            let squares = four.map(|position| self.square(position));
            let distances = query.stored4(padded, squares);
            for (position, distance) in four.iter().zip(distances) {
                sink(key(distance, *position));
            }
        }
        for position in rest {
            sink(self.measure(query, *position));
        }
    }

    /// Whether a query of this metric and width is asked.
    pub(super) fn fits(&self, query: &Query) -> bool {
        query.metric() == self.metric && query.vector().len() == self.dimensions
    }

    /// Offers present rows to `top`; answers how many.
    pub(super) fn scan(
        &self,
        query: &Query,
        rows: impl Iterator<Item = u32>,
        top: &mut TopK,
    ) -> u64 {
        let all_present = self.present.len() == u64::from(self.rows());
        let mut rows = rows.filter(|row| all_present || self.present.contains(*row));
        let asked = self.sketch.as_ref().and_then(|s| Asked::new(s, query));
        let mut batch = Vec::with_capacity(BATCH);
        let mut scanned = 0;
        loop {
            batch.clear();
            batch.extend(rows.by_ref().take(BATCH));
            if batch.is_empty() {
                return scanned;
            }
            scanned += batch.len() as u64;
            pulp::Arch::new().dispatch(Scan {
                vectors: self,
                query,
                rows: &batch,
                asked: asked.as_ref(),
                top,
            });
        }
    }
}

/// An empty vector with room for `floats` from the index that it answers.
fn aligned(floats: usize) -> (Vec<f32>, usize) {
    let mut data: Vec<f32> = Vec::with_capacity(floats + LINE / size_of::<f32>());
    // An offset that cannot be told is no reason to fail: alignment is a matter of speed.
    let start = data.as_ptr().align_offset(LINE);
    let start = if start < LINE { start } else { 0 };
    data.resize(start, 0.0);
    (data, start)
}

struct Scan<'a> {
    vectors: &'a Vectors,
    query: &'a Query,
    rows: &'a [u32],
    asked: Option<&'a Asked<'a>>,
    top: &'a mut TopK,
}

impl pulp::NullaryFnOnce for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let top = self.top;
        let Some(asked) = self.asked else {
            return self
                .vectors
                .measure_all(self.query, self.rows, |key| top.offer_key(key));
        };
        for row in self.rows {
            let far = top
                .threshold()
                .is_some_and(|most| asked.least(*row) > f64::from(most));
            if !far {
                top.offer_key(self.vectors.measure(self.query, *row));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_with_distances_are_present() {
        let rows: [Option<&[f32]>; 6] = [
            Some(&[1.0, 2.0, 3.0]),
            None,
            Some(&[0.0, -0.0, 0.0]),
            Some(&[1.0, f32::NAN, 0.0]),
            Some(&[1.0]),
            Some(&[0.0, 0.0, 1.0]),
        ];
        for (metric, present) in [
            (Metric::Cosine, vec![0, 5]),
            (Metric::L2, vec![0, 2, 5]),
            (Metric::Dot, vec![0, 2, 5]),
        ] {
            let mut vectors = Vectors::with_capacity(metric, 3, 1).unwrap();
            rows.iter().for_each(|row| vectors.push(*row));
            assert_eq!(vectors.rows(), 6);
            assert_eq!(vectors.present().iter().collect::<Vec<_>>(), present);
            assert_eq!(vectors.row(0), [1.0, 2.0, 3.0]);
            assert_eq!(vectors.row(1), [0.0; 3]);
        }
        assert!(Vectors::with_capacity(Metric::L2, 0, 1).is_err());
        assert!(Vectors::with_capacity(Metric::L2, usize::MAX / 64, 1000).is_err());
    }

    #[test]
    fn rows_survive_growth() {
        let mut vectors = Vectors::with_capacity(Metric::L2, 2, 0).unwrap();
        for row in 0..1000 {
            vectors.push(Some(&[row as f32, -1.0]));
        }
        assert!((0..1000).all(|row| vectors.row(row) == [row as f32, -1.0]));
        assert!(vectors.padded(999).as_ptr().align_offset(LINE) == 0);
    }
}
