//! What share of the nearest an index finds, measured on its own rows.

use super::batch::top_k_batch;
use super::metric::{Metric, Query};
use super::vectors::Vectors;

/// Points of a curve at most; the lowest efforts go first.
pub(super) const MAX_POINTS: usize = 16;
/// Rows that are asked for.
const SAMPLE: u64 = 200;
/// Neighbours that are looked for.
const NEIGHBOURS: usize = 10;
/// By what part of the difference of two neighbours a row is moved to be as hard to search for as a new
/// vector of the same distribution; measured.
const SHIFT: f32 = 0.85;
/// The recall that the default effort is chosen for.
const TARGET: f32 = 0.97;
/// What the sample may be off by: with .01, words of GloVe rarer than those indexed were found at .965.
const MARGIN: f32 = 0.015;
/// An index below it at its largest effort is refused.
const LEAST: f32 = 0.95;

/// One measurement: searching with `effort` (`ef` of a graph, lists probed of an inverted file) finds
/// the share `recall` of the 10 nearest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecallPoint {
    /// `ef` or number of lists.
    pub effort: u32,
    /// 0 to 1.
    pub recall: f32,
}

/// (distance, position) of rows, nearest first.
type Hits = [(f32, u32)];

/// Rows and queries like them, with the rows that they must find.
pub(super) struct Gate {
    rows: Vec<(Query, Vec<(f32, u32)>)>,
    queries: Vec<(Query, Vec<(f32, u32)>)>,
}

impl Gate {
    /// Samples evenly among present rows, and finds the truth exactly.
    ///
    /// A row is easier to find than a new vector: edges were chosen by searching for it. So recall is
    /// measured with each row moved by a part of the difference of two of its neighbours.
    pub(super) fn new(vectors: &Vectors) -> Self {
        let present = vectors.present();
        let sample = present.len().min(SAMPLE);
        let row = |i: u64| present.select((i * present.len() / sample) as u32);
        let positions: Vec<u32> = (0..sample).filter_map(row).collect();
        let query = |row: &u32| Query::new(vectors.metric(), vectors.row(*row).to_vec());
        let rows: Vec<Query> = positions.iter().filter_map(query).collect();
        let near = top_k_batch(vectors, &rows, NEIGHBOURS + 1, present);
        let moved = |(row, near): (&Query, &Vec<(f32, u32)>)| moved(vectors, row, near);
        let queries: Vec<Query> = rows.iter().zip(&near).filter_map(moved).collect();
        let truths = top_k_batch(vectors, &queries, NEIGHBOURS, present);
        let itself = |(row, position): (Query, u32)| {
            let distance = row.distance(row.vector())?;
            Some((row, vec![(distance, position)]))
        };
        Self {
            rows: rows.into_iter().zip(positions).filter_map(itself).collect(),
            queries: queries.into_iter().zip(truths).collect(),
        }
    }

    /// Measures efforts until one is good enough; `found(query, truth, effort)` answers how many of the
    /// true rows a search finds. Answers the default effort and the curve, or `None` if the index must
    /// not be used.
    pub(super) fn choose(
        &self,
        metric: Metric,
        efforts: impl Iterator<Item = u32>,
        mut found: impl FnMut(&Query, &Hits, u32) -> usize,
    ) -> Option<(u32, Vec<RecallPoint>)> {
        let wanted: usize = self.queries.iter().map(|(_, truth)| truth.len()).sum();
        let mut curve = Vec::new();
        let mut chosen = None;
        for effort in efforts {
            let mut find = |(query, truth): &(Query, Vec<_>)| found(query, truth, effort);
            // By the inner product a row need not be the nearest to itself.
            let selves = metric == Metric::Dot || self.rows.iter().all(|row| find(row) > 0);
            let recall = self.queries.iter().map(find).sum::<usize>() as f32 / wanted.max(1) as f32;
            if curve.len() == MAX_POINTS {
                curve.remove(0);
            }
            curve.push(RecallPoint { effort, recall });
            if selves && recall >= LEAST {
                chosen = Some(effort);
            }
            if selves && recall >= TARGET + MARGIN {
                break;
            }
        }
        chosen.map(|effort| (effort, curve))
    }
}

/// How many of `found` are as near as `truth`.
pub(super) fn count_near(found: &[f32], truth: &Hits) -> usize {
    let farthest = truth.last().map_or(f32::MIN, |hit| hit.0);
    found
        .iter()
        .filter(|distance| **distance <= farthest)
        .count()
}

/// `row` moved by a part of the difference of two of its neighbours, `near` being sorted by distance.
fn moved(vectors: &Vectors, row: &Query, near: &Hits) -> Option<Query> {
    let (last, middle) = (near.last()?.1, near.get(near.len() / 2)?.1);
    let neighbours = vectors.row(last).iter().zip(vectors.row(middle));
    let vector = row.vector().iter().zip(neighbours);
    let vector = vector.map(|(x, (a, b))| x + SHIFT * (a - b)).collect();
    Query::new(vectors.metric(), vector).or_else(|| Some(row.clone()))
}
