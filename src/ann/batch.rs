//! Many queries over one fragment: matrix products find candidates, exact distances decide.
//!
//! A product's rounding differs from that of [`Query::distance`] by less than a known bound. A row is
//! measured exactly unless its product says, beyond that bound, that it is farther than `k` rows before
//! it: the answers are those of single exact searches, bit for bit.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use roaring::RoaringBitmap;

use super::metric::{Metric, Query};
use super::top::TopK;
use super::vectors::Vectors;

/// Queries from which a matrix product is faster than single scans.
const LEAST_QUERIES: usize = 8;
/// Rows of a block of the product.
const BLOCK: usize = 1024;
/// Queries of a block of the product.
const QUERIES: usize = 256;

/// The `k` nearest of the `live` present rows to each of `queries`: (distance, position), nearest first,
/// ties by position. A query of another metric or width finds nothing.
pub fn top_k_batch(
    vectors: &Vectors,
    queries: &[Query],
    k: usize,
    live: &RoaringBitmap,
) -> Vec<Vec<(f32, u32)>> {
    let rows = live & vectors.present();
    let mut tops = vec![TopK::new(k); queries.len()];
    if k == 0 || rows.is_empty() {
        return vec![Vec::new(); queries.len()];
    }
    if queries.len() < LEAST_QUERIES || !queries.iter().all(|query| vectors.fits(query)) {
        for (query, top) in queries.iter().zip(&mut tops) {
            if vectors.fits(query) {
                vectors.scan(query, rows.iter(), top);
            }
        }
    } else {
        for (queries, tops) in queries.chunks(QUERIES).zip(tops.chunks_mut(QUERIES)) {
            products(vectors, queries, &rows, tops);
        }
    }
    tops.into_iter().map(TopK::into_sorted).collect()
}

fn products(vectors: &Vectors, queries: &[Query], rows: &RoaringBitmap, tops: &mut [TopK]) {
    let stride = vectors.stride();
    let matrix: Vec<f32> = queries.iter().flat_map(|q| q.padded()).copied().collect();
    let margins: Vec<Margin> = queries.iter().map(|q| Margin::new(q, stride)).collect();
    let mut block = Vec::with_capacity(BLOCK);
    let mut gathered = Vec::new();
    let mut out = vec![0f32; BLOCK * queries.len()];
    let mut rows = rows.iter();
    loop {
        block.clear();
        block.extend(rows.by_ref().take(BLOCK));
        let (Some(first), Some(last)) = (block.first(), block.last()) else {
            return;
        };
        let dense = (last - first) as usize == block.len() - 1;
        let data = if dense {
            vectors.block(*first..last + 1)
        } else {
            gathered.clear();
            block
                .iter()
                .for_each(|row| gathered.extend_from_slice(vectors.padded(*row)));
            &gathered
        };
        let out = &mut out[..block.len() * queries.len()];
        matmul(
            MatMut::from_column_major_slice_mut(out, block.len(), queries.len()),
            Accum::Replace,
            MatRef::from_row_major_slice(data, block.len(), stride),
            MatRef::from_column_major_slice(&matrix, stride, queries.len()),
            1.0f32,
            Par::Seq,
        );
        let columns = out.chunks_exact(block.len());
        for (((query, margin), top), column) in
            queries.iter().zip(&margins).zip(&mut *tops).zip(columns)
        {
            pulp::Arch::new().dispatch(Offer {
                vectors,
                query,
                margin,
                rows: &block,
                products: column,
                top,
            });
        }
    }
}

/// How far a product can be from the sum over lanes.
struct Margin {
    metric: Metric,
    norm: f64,
    /// Of the product of two norms.
    relative: f64,
    /// Of terms that f32 does not hold.
    absolute: f64,
}

impl Margin {
    fn new(query: &Query, stride: usize) -> Self {
        // Any order of summing n terms, fused or not, errs by at most about n units in the last place of
        // the sum of absolute terms, which is at most the product of the norms (Higham, "Accuracy and
        // Stability of Numerical Algorithms", 3.1): twice for the two sums, twice more for the few
        // operations around them.
        let terms = (stride + 8) as f64;
        Self {
            metric: query.metric(),
            norm: f64::from(query.norm()),
            relative: 4.0 * terms * f64::from(f32::EPSILON),
            absolute: 4.0 * terms * f64::from(f32::MIN_POSITIVE),
        }
    }

    /// Whether a row with this product and square is surely farther than `threshold`.
    #[inline(always)]
    fn beyond(&self, product: f32, square: f32, threshold: f32) -> bool {
        let (product, square, far) = (f64::from(product), f64::from(square), f64::from(threshold));
        let norms = self.norm * square.sqrt();
        // Comparisons with NaN and infinities are false: such rows are measured.
        match self.metric {
            Metric::Cosine => {
                // Below it digits of the square are lost.
                let exact = square > 1e-30 && self.norm > 1e-15;
                let slack = self.relative + self.absolute / norms;
                exact && 1.0 - product / norms - slack > far && norms < f64::INFINITY
            }
            Metric::Dot => -product - self.relative * norms - self.absolute > far,
            Metric::L2 => {
                let squares = self.norm * self.norm + square;
                let slack = self.relative * (squares + 2.0 * norms + far * far) + self.absolute;
                squares - 2.0 * product - slack > far * far && squares < f64::INFINITY
            }
        }
    }
}

struct Offer<'a> {
    vectors: &'a Vectors,
    query: &'a Query,
    margin: &'a Margin,
    rows: &'a [u32],
    products: &'a [f32],
    top: &'a mut TopK,
}

impl pulp::NullaryFnOnce for Offer<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (row, product) in self.rows.iter().zip(self.products) {
            let threshold = self.top.threshold();
            let square = self.vectors.square(*row);
            if threshold.is_some_and(|far| self.margin.beyond(*product, square, far)) {
                continue;
            }
            self.top.offer_key(self.vectors.measure(self.query, *row));
        }
    }
}
