//! Lloyd's k-means by matrix products.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::super::frame::Frame;
use super::super::vectors::Vectors;
use super::halves;
use crate::Result;

/// Rows per list that are trained on.
const SAMPLE_PER_LIST: usize = 64;
/// Rounds of Lloyd's algorithm.
const ROUNDS: usize = 10;
/// Rows of a block of the product.
const BLOCK: usize = 1024;

/// Centroids and half of their squares.
pub(super) struct Centroids {
    /// Row-major, as wide as the frame.
    pub(super) data: Vec<f32>,
    pub(super) halves: Vec<f32>,
}

/// Says how far the work is; its error ends the work.
type Step<'a> = dyn Fn(u64, u64) -> Result<()> + 'a;

/// Trains `lists` centroids on evenly sampled rows.
pub(super) fn train(
    vectors: &Vectors,
    frame: &Frame,
    rows: &[u32],
    lists: usize,
    step: &Step<'_>,
) -> Result<Centroids> {
    let width = frame.width();
    let count = rows.len().min(lists * SAMPLE_PER_LIST);
    let sample: Vec<u32> = (0..count)
        .map(|i| rows[spread(i, count, rows.len())])
        .collect();
    let mut data = vec![0.0; lists * width];
    for (list, centroid) in data.chunks_exact_mut(width).enumerate() {
        frame.row(vectors.row(sample[spread(list, lists, count)]), centroid);
    }
    let mut centroids = Centroids {
        halves: halves(&data, width),
        data,
    };
    let mut row = vec![0.0; width];
    for round in 0..ROUNDS {
        step(round as u64, ROUNDS as u64)?;
        let assigned = assign(vectors, frame, &sample, &centroids, &mut |_, _| {
            step(round as u64, ROUNDS as u64)
        })?;
        let (mut sums, mut counts) = (vec![0f32; lists * width], vec![0u32; lists]);
        for (position, list) in sample.iter().zip(&assigned) {
            frame.row(vectors.row(*position), &mut row);
            let at = *list as usize * width;
            sums[at..at + width]
                .iter_mut()
                .zip(&row)
                .for_each(|(sum, x)| *sum += x);
            counts[*list as usize] += 1;
        }
        for (sum, count) in sums.chunks_exact_mut(width).zip(&counts) {
            sum.iter_mut().for_each(|x| *x /= (*count).max(1) as f32);
        }
        refill(&mut sums, &mut counts, width);
        centroids.data = sums;
        centroids.halves = halves(&centroids.data, width);
    }
    Ok(centroids)
}

/// The `i`-th of `count` indexes spread evenly below `all`.
fn spread(i: usize, count: usize, all: usize) -> usize {
    (i as u64 * all as u64 / count as u64) as usize
}

/// Splits the fullest lists to fill empty ones.
fn refill(centroids: &mut [f32], counts: &mut [u32], width: usize) {
    for empty in 0..counts.len() {
        if counts[empty] > 0 {
            continue;
        }
        let fullest = (0..counts.len()).max_by_key(|list| (counts[*list], usize::MAX - list));
        let Some(fullest) = fullest.filter(|list| counts[*list] > 1) else {
            return;
        };
        for i in 0..width {
            // Two centroids apart by as little as keeps both of them at work.
            let nudge = if i % 2 == 0 {
                1.0 / 1024.0
            } else {
                -1.0 / 1024.0
            };
            let x = centroids[fullest * width + i];
            centroids[empty * width + i] = x * (1.0 + nudge);
            centroids[fullest * width + i] = x * (1.0 - nudge);
        }
        counts[empty] = counts[fullest] / 2;
        counts[fullest] -= counts[empty];
    }
}

/// The nearest centroid of each of `rows`.
pub(super) fn assign(
    vectors: &Vectors,
    frame: &Frame,
    rows: &[u32],
    centroids: &Centroids,
    step: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<Vec<u32>> {
    let (width, lists) = (frame.width(), centroids.halves.len());
    let mut assigned = Vec::with_capacity(rows.len());
    let mut block = vec![0f32; BLOCK * width];
    let mut products = vec![0f32; BLOCK * lists];
    for rows in rows.chunks(BLOCK) {
        step(assigned.len(), vectors.rows() as usize)?;
        for (row, out) in rows.iter().zip(block.chunks_exact_mut(width)) {
            frame.row(vectors.row(*row), out);
        }
        let products = &mut products[..rows.len() * lists];
        matmul(
            MatMut::from_row_major_slice_mut(products, rows.len(), lists),
            Accum::Replace,
            MatRef::from_row_major_slice(&block[..rows.len() * width], rows.len(), width),
            MatRef::from_column_major_slice(&centroids.data, width, lists),
            1.0f32,
            Par::Seq,
        );
        let nearest = |products: &[f32]| nearest(products, &centroids.halves);
        assigned.extend(products.chunks_exact(lists).map(nearest));
    }
    Ok(assigned)
}

/// The centroid of the least distance: half its square minus its product with the row.
fn nearest(products: &[f32], halves: &[f32]) -> u32 {
    let mut best = (f32::INFINITY, 0);
    for (list, (product, half)) in products.iter().zip(halves).enumerate() {
        if half - product < best.0 {
            best = (half - product, list as u32);
        }
    }
    best.1
}
