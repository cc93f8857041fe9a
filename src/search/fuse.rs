//! Reciprocal rank fusion of rankings of one table's rows.
//!
//! Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
//! learning methods", SIGIR 2009.

use std::collections::BTreeMap;

use super::take::RowAt;
use super::{Found, TableSearch};
use crate::Result;

/// A row of a fused ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused {
    /// The row.
    pub row: RowAt,
    /// Sum over the legs of weight / (k + rank).
    pub score: f32,
    /// Its rank in each leg, from 1; `None` where the leg did not find it.
    pub ranks: Vec<Option<u64>>,
}

impl Fused {
    /// Rows that each leg ranks for `k` rows of an answer. A leg that ranked only `k` of them would
    /// often miss where the other leg's rows stand.
    pub fn depth(k: usize) -> usize {
        k.saturating_mul(4).max(100)
    }
}

/// The rows of all legs, each leg best first, with their scores; in no order.
pub fn fuse(legs: &[Vec<RowAt>], weights: &[f32], k: f32) -> Vec<Fused> {
    let mut ranks: BTreeMap<RowAt, Vec<Option<u64>>> = BTreeMap::new();
    for (leg, rows) in legs.iter().enumerate() {
        for (row, rank) in rows.iter().zip(1u64..) {
            let of = ranks.entry(*row).or_insert_with(|| vec![None; legs.len()]);
            if let Some(place) = of.get_mut(leg) {
                *place = place.or(Some(rank));
            }
        }
    }
    let fused = ranks.into_iter().map(|(row, ranks)| {
        let parts = ranks.iter().zip(weights);
        let parts = parts.filter_map(|(rank, weight)| rank.map(|rank| weight / (k + rank as f32)));
        Fused {
            row,
            score: parts.sum(),
            ranks,
        }
    });
    fused.collect()
}

impl TableSearch {
    /// The best `k`, best first, equal scores by key.
    ///
    /// # Errors
    /// As [`super::take`].
    pub async fn in_order(&self, fused: Vec<Fused>, k: usize) -> Result<Vec<Fused>> {
        let scores = fused.iter().map(|f| Found {
            row: f.row,
            value: f.score,
        });
        let order = self
            .merged(scores.collect(), k, |a, b| b.total_cmp(&a))
            .await?;
        let mut by_row: BTreeMap<RowAt, Fused> = fused.into_iter().map(|f| (f.row, f)).collect();
        Ok(order.iter().filter_map(|f| by_row.remove(&f.row)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: u32) -> RowAt {
        RowAt { entry: 0, position }
    }

    #[test]
    fn a_row_of_both_legs_goes_before_the_first_of_one() {
        let legs = [vec![row(1), row(2)], vec![row(3), row(2)]];
        let fused = fuse(&legs, &[1.0, 1.0], 60.0);
        let best = fused.iter().max_by(|a, b| a.score.total_cmp(&b.score));
        let best = best.unwrap();
        assert_eq!(
            (best.row, &best.ranks[..]),
            (row(2), &[Some(2), Some(2)][..])
        );
        assert_eq!(best.score, 1.0 / 62.0 + 1.0 / 62.0);
    }

    #[test]
    fn weights_count_and_a_leg_of_none_is_silent() {
        let legs = [vec![row(1)], vec![row(2)]];
        let fused = fuse(&legs, &[0.0, 2.0], 1.0);
        let score = |of: u32| fused.iter().find(|f| f.row == row(of)).unwrap().score;
        assert_eq!((score(1), score(2)), (0.0, 1.0));
    }
}
