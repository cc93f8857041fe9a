//! Searching all segments of a version at once.

use std::collections::BTreeSet;

use roaring::RoaringBitmap;
use tantivy::query::Bm25Weight;
use tantivy::schema::IndexRecordOption;

use super::bits::Bits;
use super::expand::{self, Postings};
use super::guard;
use super::matcher::{self, Eligible, Leaf, few};
use super::pace::Pace;
use super::query::{Mode, TextQuery};
use super::segment::TextSegment;
use super::statistics::Population;
use super::top::Top;
use crate::{Error, Result};

/// A segment in a search.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The segment.
    pub segment: &'a TextSegment,
    /// The rows of its fragment that are alive in the version.
    pub live: &'a RoaringBitmap,
    /// The rows that may be answers, of which those that are alive are; all if there is none. It has no
    /// influence on scores.
    pub allowed: Option<&'a RoaringBitmap>,
}

/// A row that matches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Which part.
    pub part: usize,
    /// The row's position in its fragment.
    pub position: u32,
    /// BM25 over the live rows of all parts.
    pub score: f32,
}

/// The rows of all parts that match, by descending score, then part and position; with `k` the best `k`
/// of each part by descending score and then position, for the caller to merge by its own order.
///
/// Scores are those of a tantivy index of the live rows alone (to 32-bit rounding), however they are
/// spread over parts.
///
/// # Errors
/// `InvalidArgument` when a part has another analyser than the query or live rows that its fragment does
/// not have, `ResourceLimitExceeded` for a fuzzy term that stands for more than 4,096 terms of live
/// rows, `Cancelled` when `cancel` says so, `Corrupt` for an object that is forged.
pub fn search(
    parts: &[Part<'_>],
    query: &TextQuery,
    k: Option<usize>,
    cancel: &dyn Fn() -> bool,
) -> Result<Vec<Hit>> {
    let mut pace = Pace::new(cancel);
    pace.ask()?;
    parts.iter().try_for_each(|part| check(part, query))?;
    if query.is_empty() || k == Some(0) {
        return Ok(Vec::new());
    }
    let mut population = Population::default();
    let mut live = vec![0u64; query.terms.len()];
    let mut seen = vec![BTreeSet::new(); query.terms.len()];
    let mut resolved = Vec::with_capacity(parts.len());
    for part in parts {
        let found = guard::read(part.segment.key(), || {
            Resolved::new(part, query, &mut live, &mut seen, &mut pace)
        })?;
        population.add(part, &found.live);
        resolved.push(found);
    }
    let all = matches!(query.mode, Mode::All | Mode::Phrase);
    let absent = |live: &u64| *live == 0;
    if live.iter().all(absent) || all && live.iter().any(absent) {
        return Ok(Vec::new());
    }
    let weights = population.weights(query, &live)?;
    let mut hits = Vec::new();
    for (number, (part, resolved)) in parts.iter().zip(&resolved).enumerate() {
        let top = guard::read(part.segment.key(), || {
            resolved.search(part, query, &weights, k, &mut pace)
        })?;
        hits.extend(top.into_iter().map(|(score, position)| Hit {
            part: number,
            position,
            score,
        }));
    }
    let place = |hit: &Hit| (hit.part, hit.position);
    hits.sort_unstable_by(|a, b| {
        let score = b.score.total_cmp(&a.score);
        score.then_with(|| place(a).cmp(&place(b)))
    });
    Ok(hits)
}

fn check(part: &Part<'_>, query: &TextQuery) -> Result<()> {
    let invalid = |argument: &str, reason: String| {
        Err(Error::InvalidArgument {
            function: "text_search".to_owned(),
            argument: argument.to_owned(),
            reason,
        })
    };
    let (analyser, rows) = (part.segment.analyser(), part.segment.rows());
    if analyser != query.analyser {
        let reason = format!("{:?} on an index of {analyser:?}", query.analyser);
        return invalid("analyzer", reason);
    }
    if let Some(row) = part.live.max().filter(|row| *row >= rows) {
        return invalid("live", format!("row {row} of a fragment of {rows} rows"));
    }
    Ok(())
}

/// The terms of a query in one part.
struct Resolved {
    live: Bits,
    postings: Vec<Option<Postings>>,
}

impl Resolved {
    /// Finds the terms and adds the live documents of each.
    fn new(
        part: &Part<'_>,
        query: &TextQuery,
        counts: &mut [u64],
        seen: &mut [BTreeSet<Vec<u8>>],
        pace: &mut Pace<'_>,
    ) -> Result<Self> {
        let segment = part.segment;
        let live = Bits::new(part.live, segment.rows());
        let mut postings = Vec::with_capacity(query.terms.len());
        for ((term, count), seen) in query.terms.iter().zip(counts).zip(seen) {
            pace.ask()?;
            let found = match query.mode {
                Mode::Fuzzy { max_edits } => {
                    expand::fuzzy(segment, &term.term, max_edits, &live, seen, pace)?
                }
                _ => expand::exact(segment, &term.term)?,
            };
            if let Some(found) = &found {
                *count += found.live(segment, &live)?;
            }
            postings.push(found);
        }
        Ok(Self { live, postings })
    }

    fn search(
        &self,
        part: &Part<'_>,
        query: &TextQuery,
        weights: &[Bm25Weight],
        k: Option<usize>,
        pace: &mut Pace<'_>,
    ) -> Result<Vec<(f32, u32)>> {
        let mut top = Top::new(k);
        let all = matches!(query.mode, Mode::All | Mode::Phrase);
        if all && self.postings.iter().any(Option::is_none) {
            return Ok(Vec::new());
        }
        let option = match query.mode {
            Mode::Phrase => IndexRecordOption::WithFreqsAndPositions,
            _ => IndexRecordOption::WithFreqs,
        };
        let mut leaves = Vec::with_capacity(query.terms.len());
        for (slot, postings) in self.postings.iter().enumerate() {
            if let Some(postings) = postings {
                leaves.push(Leaf {
                    cursor: postings.cursor(part.segment, option)?,
                    weight: &weights[slot],
                    times: query.terms[slot].times,
                    postings: postings.len(),
                });
            }
        }
        let norms = part.segment.fieldnorms();
        let (mut bits, mut list) = (None, None);
        if let Some(allowed) = part.allowed {
            let rows = allowed & part.live;
            let postings = leaves.iter().map(|leaf| leaf.postings).sum();
            if few(rows.len(), leaves.len(), postings) {
                list = Some(rows.iter().map(|row| (row, 0)).collect::<Vec<_>>());
            } else {
                bits = Some(Bits::new(&rows, part.segment.rows()));
            }
        }
        let eligible = match &list {
            Some(list) => Eligible::Listed(list),
            None => Eligible::Bits(bits.as_ref().unwrap_or(&self.live)),
        };
        match query.mode {
            Mode::Bm25 | Mode::Fuzzy { .. } => {
                matcher::any(&mut leaves, norms, &eligible, &mut top, pace)?;
            }
            Mode::Phrase if query.places.len() > 1 => {
                let places = &query.places;
                matcher::phrase(&mut leaves, places, norms, &eligible, &mut top, pace)?;
            }
            Mode::All | Mode::Phrase => {
                matcher::every(&mut leaves, norms, &eligible, &mut top, pace)?;
            }
        }
        Ok(top.finish())
    }
}
