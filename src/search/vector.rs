//! The rows with the nearest vectors.

use std::cell::RefCell;
use std::num::NonZero;

use futures::TryStreamExt;
use tokio::task::JoinSet;

use super::fragment::{Rows, components, lists};
use super::rows::{Allowed, LiveRows, positions_order_keys};
use super::take::RowAt;
use super::{Found, TableSearch};
use crate::ann::{self, Metric, Query, Regime, Scratch, SearchOptions, TopK};
use crate::table::manifest::Entry;
use crate::{Error, Result};

/// Distances after which other tasks have their turn.
const TURN: u64 = 16_384;
/// Rows that are worth a task of their own.
const LANE_ROWS: u64 = 8_192;
/// Tasks of one search, at most.
const MOST_LANES: usize = 8;
/// Share of a fragment's rows below which they are read one by one, unless all are held.
const FEW: u64 = 16;

thread_local! {
    /// What walks of this thread's searches mark, used again by the next one.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A column of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorColumn {
    /// Property id.
    pub column: u64,
    /// Components.
    pub dimensions: usize,
    /// What is near.
    pub metric: Metric,
}

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub struct Nearest<'a> {
    /// The query.
    pub query: &'a Query,
    /// Rows wanted.
    pub k: usize,
    /// Whether indexes are left aside.
    pub exact: bool,
}

/// How much farther than the last row wanted a row may be to be found too.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slack {
    /// In the unit of the distance.
    pub absolute: f32,
    /// As a share of the distance.
    pub relative: f32,
}

/// How one fragment was searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched {
    /// Entry number.
    pub entry: u64,
    /// How.
    pub regime: Regime,
    /// Rows that could answer.
    pub candidates: u64,
    /// Distances that were computed.
    pub visited: u64,
}

/// An entry with a fragment, and its rows.
type Part = (Entry, LiveRows);

/// What was found in some fragments, and how.
#[derive(Default)]
struct Done {
    found: Vec<Found>,
    reports: Vec<Searched>,
}

impl TableSearch {
    /// The `k` nearest rows of those that may answer, nearest first, equal ones by key: exactly
    /// `min(k, rows that may answer and have a vector)` of them. Distances are those of
    /// [`Query::distance`]. Also how each fragment was searched.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, and those of the budget.
    /// An index that cannot be used is left aside.
    pub async fn nearest(
        &self,
        column: &VectorColumn,
        wanted: Nearest<'_>,
        allowed: &Allowed,
    ) -> Result<(Vec<Found>, Vec<Searched>)> {
        let entries = self.reader.entries().await?;
        let mut parts: Vec<(&Entry, LiveRows)> = Vec::new();
        for entry in entries.iter().filter(|e| e.fragment.is_some()) {
            let rows = LiveRows::of(&self.reader, entry, &self.replaced, allowed).await?;
            if !rows.answer().is_empty() {
                parts.push((entry, rows));
            }
        }
        // The largest first: what it finds bounds the search of the others.
        parts.sort_by_key(|(entry, rows)| (u64::MAX - rows.answer().len(), entry.id));
        let parts: Vec<Part> = parts
            .into_iter()
            .map(|(entry, rows)| (entry.clone(), rows))
            .collect();
        let lanes = lanes(&parts);
        let mut rest = parts.into_iter();
        let first: Vec<Part> = match lanes {
            1 => rest.by_ref().collect(),
            _ => rest.by_ref().take(1).collect(),
        };
        let mut done = self.in_fragments(column, wanted, first, None).await?;
        let most = bound(&mut done.found, wanted.k);
        // Tasks end with this future.
        let mut tasks = JoinSet::new();
        for parts in dealt(rest, lanes) {
            let (search, column, query) = (self.clone(), *column, wanted.query.clone());
            let (k, exact) = (wanted.k, wanted.exact);
            tasks.spawn(async move {
                let query = &query;
                let wanted = Nearest { query, k, exact };
                search.in_fragments(&column, wanted, parts, most).await
            });
        }
        while let Some(part) = tasks.join_next().await {
            let part = part.map_err(|e| Error::TaskFailed {
                operation: "search of vectors",
                source: Box::new(e),
            })??;
            done.found.extend(part.found);
            done.reports.extend(part.reports);
        }
        done.reports
            .sort_by_key(|r| (u64::MAX - r.candidates, r.entry));
        let found = self
            .merged(done.found, wanted.k, |a, b| a.total_cmp(&b))
            .await?;
        Ok((found, done.reports))
    }

    /// The nearest rows of some fragments, one after another: all of each that may be among the `k`
    /// nearest and are no farther than `most`.
    async fn in_fragments(
        &self,
        column: &VectorColumn,
        wanted: Nearest<'_>,
        parts: Vec<Part>,
        most: Option<f32>,
    ) -> Result<Done> {
        let (mut done, mut turn) = (Done::default(), 0);
        for (entry, rows) in parts {
            let bound = match (bound(&mut done.found, wanted.k), most) {
                (Some(own), Some(most)) => Some(own.min(most)),
                (own, most) => own.or(most),
            };
            let part = self
                .in_fragment(&entry, column, wanted, &rows, bound)
                .await?;
            let Some((hits, report)) = part else {
                continue;
            };
            done.found
                .extend(hits.into_iter().map(|(value, position)| Found {
                    row: RowAt {
                        entry: entry.id,
                        position,
                    },
                    value,
                }));
            turn += report.visited;
            done.reports.push(report);
            // To yield costs as much as some hundred distances.
            if turn >= TURN {
                tokio::task::yield_now().await;
                turn = 0;
            }
        }
        Ok(done)
    }

    /// The `k` nearest rows, and all others that are as near as the last of them within `slack`; nearest
    /// first, equal ones by key; also how each fragment was searched. Errors as [`TableSearch::nearest`].
    pub async fn nearest_within(
        &self,
        column: &VectorColumn,
        wanted: Nearest<'_>,
        allowed: &Allowed,
        slack: Slack,
    ) -> Result<(Vec<Found>, Vec<Searched>)> {
        let (mut more, mut reports) = (wanted.k.saturating_add(1), Vec::new());
        loop {
            let asked = Nearest { k: more, ..wanted };
            let (mut found, searched) = self.nearest(column, asked, allowed).await?;
            reports.extend(searched);
            let Some(kth) = wanted.k.checked_sub(1).and_then(|at| found.get(at)) else {
                return Ok((found, reports));
            };
            let most = kth.value + slack.absolute + slack.relative * kth.value.abs();
            let last = found.last().map_or(most, |f| f.value);
            if found.len() < more || last > most {
                found.retain(|f| f.value <= most);
                return Ok((found, reports));
            }
            more = more.saturating_mul(2);
        }
    }

    /// The nearest rows of one fragment by (distance, position): more than `k` where rows that are as
    /// near as the last one stand in another order than their keys.
    async fn in_fragment(
        &self,
        entry: &Entry,
        column: &VectorColumn,
        wanted: Nearest<'_>,
        rows: &LiveRows,
        bound: Option<f32>,
    ) -> Result<Option<(Vec<(f32, u32)>, Searched)>> {
        let Some(part) = Rows::open(&self.reader, entry).await? else {
            return Ok(None);
        };
        let mut k = wanted.k;
        loop {
            let (hits, report) =
                search(&part, column, Nearest { k, ..wanted }, rows, bound).await?;
            let full = hits.len() == k && (k as u64) < rows.answer().len();
            let last_ties = match (
                hits.last(),
                wanted.k.checked_sub(1).and_then(|i| hits.get(i)),
            ) {
                (Some((last, _)), Some((kth, _))) => last.total_cmp(kth).is_eq(),
                _ => false,
            };
            let ordered = positions_order_keys(self.reader.table().layout);
            if ordered || !full || !last_ties {
                return Ok(Some((hits, report)));
            }
            k = k.saturating_mul(2);
        }
    }
}

/// In how many tasks the fragments behind the first are searched: more than one only where a task has
/// more to do than to be woken.
fn lanes(parts: &[Part]) -> usize {
    let rows: u64 = parts.iter().skip(1).map(|(_, r)| r.answer().len()).sum();
    let most = usize::try_from(rows / LANE_ROWS).unwrap_or(usize::MAX);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    threads.min(most).clamp(1, MOST_LANES)
}

/// Fragments that descend by size, dealt out to `lanes` in turn.
fn dealt(parts: impl Iterator<Item = Part>, lanes: usize) -> Vec<Vec<Part>> {
    let mut dealt: Vec<Vec<Part>> = vec![Vec::new(); lanes];
    for (at, part) in parts.enumerate() {
        dealt[at % lanes].push(part);
    }
    dealt.retain(|parts| !parts.is_empty());
    dealt
}

/// The k-th least distance, once there are so many.
fn bound(found: &mut [Found], k: usize) -> Option<f32> {
    let at = k.checked_sub(1).filter(|at| *at < found.len())?;
    let (_, kth, _) = found.select_nth_unstable_by(at, |a, b| a.value.total_cmp(&b.value));
    Some(kth.value)
}

async fn search(
    part: &Rows<'_>,
    column: &VectorColumn,
    wanted: Nearest<'_>,
    rows: &LiveRows,
    bound: Option<f32>,
) -> Result<(Vec<(f32, u32)>, Searched)> {
    let answer = rows.answer();
    let report = |regime, visited| Searched {
        entry: part.entry.id,
        regime,
        candidates: answer.len(),
        visited,
    };
    let held = part.held_vectors(column);
    let few = answer.len().saturating_mul(FEW) < u64::from(part.open.rows);
    let vectors = match held {
        Some(vectors) => Some(vectors),
        None if few || !part.can_hold(column) => None,
        None => Some(part.vectors(column).await?),
    };
    let Some(vectors) = vectors else {
        let mut best = TopK::new(wanted.k).within(bound);
        let mut batches = part.column(column.column, Some(answer))?;
        let mut visited = 0;
        while let Some(batch) = batches.try_next().await? {
            visited += offer(&batch, column, wanted.query, &mut best, part)?;
        }
        return Ok((best.into_sorted(), report(Regime::Exact, visited)));
    };
    let index = match wanted.exact {
        true => None,
        false => part.vector_index(column).await,
    };
    let options = SearchOptions {
        exact: wanted.exact,
        bound,
        ..SearchOptions::default()
    };
    let index = index.as_deref();
    let found = SCRATCH.with_borrow_mut(|scratch| {
        ann::top_k(
            index,
            &vectors,
            wanted.query,
            wanted.k,
            answer,
            &options,
            scratch,
        )
    });
    Ok((found.hits, report(found.regime, found.visited)))
}

/// Compares the rows of a batch; how many.
fn offer(
    batch: &arrow::array::RecordBatch,
    column: &VectorColumn,
    query: &Query,
    best: &mut TopK,
    part: &Rows<'_>,
) -> Result<u64> {
    let list = lists(batch, column.dimensions, part.open.file.key())?;
    let (_, positions) = super::rows::position_columns(batch)?;
    for (row, position) in positions.iter().enumerate() {
        if let Some(distance) = components(list, row).and_then(|v| query.distance(v)) {
            best.offer(distance, *position);
        }
    }
    Ok(positions.len() as u64)
}
