//! The best rows of a part.

use std::cmp::Ordering;

/// Rows that are kept between two selections, beyond those asked for.
const SLACK: usize = 1024;

/// Keeps the best `k` of rows that come in the order of their positions.
#[derive(Debug)]
pub(super) struct Top {
    k: Option<usize>,
    rows: Vec<(f32, u32)>,
    /// The worst score of `k` rows that are there; a later row needs more.
    bound: f32,
}

/// Best first: higher scores, then lower positions.
fn order(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Top {
    pub(super) fn new(k: Option<usize>) -> Self {
        Self {
            k,
            rows: Vec::new(),
            bound: f32::NEG_INFINITY,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, score: f32, position: u32) {
        if score <= self.bound {
            return;
        }
        self.rows.push((score, position));
        if let Some(k) = self.k
            && self.rows.len() >= k.saturating_mul(2).saturating_add(SLACK)
        {
            self.select(k);
        }
    }

    fn select(&mut self, k: usize) {
        if k > 0 && self.rows.len() > k {
            let (_, worst, _) = self.rows.select_nth_unstable_by(k - 1, order);
            self.bound = worst.0;
        }
        self.rows.truncate(k);
    }

    /// Score and position of the best rows, best first.
    pub(super) fn finish(mut self) -> Vec<(f32, u32)> {
        if let Some(k) = self.k {
            self.select(k);
        }
        self.rows.sort_unstable_by(order);
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rows_with_ties_by_position() {
        let rows: Vec<(f32, u32)> = (0..5_000)
            .map(|i: u32| ((i.wrapping_mul(7919) % 37) as f32, i))
            .collect();
        let mut sorted = rows.clone();
        sorted.sort_by(order);
        for k in [Some(0), Some(1), Some(10), Some(700), Some(9_999), None] {
            let mut top = Top::new(k);
            rows.iter().for_each(|(score, i)| top.push(*score, *i));
            let wanted = k.unwrap_or(usize::MAX).min(rows.len());
            assert_eq!(top.finish(), sorted[..wanted]);
        }
    }
}
