//! The rows of one part that match, with their scores.

use tantivy::TERMINATED;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::query::Bm25Weight;

use super::bits::Bits;
use super::cursor::Cursor;
use super::pace::Pace;
use super::top::Top;
use crate::Result;

/// Rows whose scores are added up together.
const WINDOW: usize = 4096;
/// What finding one row in a posting list costs, in postings that are passed over.
const SEEK: usize = 8;

/// The rows that may be answers.
pub(super) enum Eligible<'a> {
    /// Many.
    Bits(&'a Bits),
    /// Few, in ascending order.
    Listed(&'a [(u32, u32)]),
}

/// Whether it is cheaper to look `rows` rows up in each of `terms` lists than to read all `postings`.
pub(super) fn few(rows: u64, terms: usize, postings: usize) -> bool {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    rows.saturating_mul(terms).saturating_mul(SEEK) < postings
}

/// A term of the query in this part.
pub(super) struct Leaf<'a> {
    pub(super) cursor: Cursor<'a>,
    pub(super) weight: &'a Bm25Weight,
    /// How often the query has it.
    pub(super) times: u32,
    /// Length of its posting list.
    pub(super) postings: usize,
}

impl Leaf<'_> {
    /// Score of the document that the cursor stands on.
    #[inline]
    fn score(&self, norms: &FieldNormReader) -> f32 {
        let norm = norms.fieldnorm_id(self.cursor.doc());
        let score = self.weight.score(norm, self.cursor.frequency());
        score * self.times as f32
    }
}

/// Rows with any of the terms.
pub(super) fn any(
    leaves: &mut [Leaf<'_>],
    norms: &FieldNormReader,
    eligible: &Eligible<'_>,
    top: &mut Top,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let list = match eligible {
        Eligible::Bits(bits) => return any_in_windows(leaves, norms, bits, top, pace),
        Eligible::Listed(list) => *list,
    };
    for (row, _) in list {
        pace.step()?;
        let mut score = None;
        for leaf in &mut *leaves {
            if leaf.cursor.seek(*row) == *row {
                score = Some(score.unwrap_or(0.0) + leaf.score(norms));
            }
        }
        if let Some(score) = score {
            top.push(score, *row);
        }
    }
    Ok(())
}

/// Adds scores up term by term, for [`WINDOW`] rows from the next one that has a term.
fn any_in_windows(
    leaves: &mut [Leaf<'_>],
    norms: &FieldNormReader,
    bits: &Bits,
    top: &mut Top,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let mut scores = vec![0f32; WINDOW];
    let mut touched = [0u64; WINDOW / 64];
    loop {
        let start = leaves.iter().map(|leaf| leaf.cursor.doc()).min();
        let Some(start) = start.filter(|start| *start < TERMINATED) else {
            return Ok(());
        };
        pace.ask()?;
        let end = start.saturating_add(WINDOW as u32).min(TERMINATED);
        for leaf in &mut *leaves {
            let mut doc = leaf.cursor.doc();
            while doc < end {
                if bits.contains(doc) {
                    let at = (doc - start) as usize;
                    let (word, bit) = (&mut touched[at / 64], 1 << (at % 64));
                    let before = if *word & bit == 0 { 0.0 } else { scores[at] };
                    scores[at] = before + leaf.score(norms);
                    *word |= bit;
                }
                doc = leaf.cursor.advance();
            }
        }
        for (i, word) in touched.iter_mut().enumerate() {
            while *word != 0 {
                let at = i * 64 + word.trailing_zeros() as usize;
                top.push(scores[at], start + at as u32);
                *word &= *word - 1;
            }
        }
    }
}

/// Rows with every term.
pub(super) fn every(
    leaves: &mut [Leaf<'_>],
    norms: &FieldNormReader,
    eligible: &Eligible<'_>,
    top: &mut Top,
    pace: &mut Pace<'_>,
) -> Result<()> {
    intersect(leaves, eligible, pace, &mut |row, leaves| {
        let scores = leaves.iter().map(|leaf| leaf.score(norms));
        top.push(scores.sum(), row);
    })
}

/// Rows that have the terms at these places: which leaf, and its position in the phrase.
pub(super) fn phrase(
    leaves: &mut [Leaf<'_>],
    places: &[(usize, u32)],
    norms: &FieldNormReader,
    eligible: &Eligible<'_>,
    top: &mut Top,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let last = places.iter().map(|(_, place)| *place).max().unwrap_or(0);
    let (mut common, mut positions) = (Vec::new(), Vec::new());
    intersect(leaves, eligible, pace, &mut |row, leaves| {
        for (i, (leaf, place)) in places.iter().enumerate() {
            // Every position is moved to where the phrase that it is part of ends.
            let cursor = &mut leaves[*leaf].cursor;
            if i == 0 {
                cursor.positions(last - place, &mut common);
            } else {
                cursor.positions(last - place, &mut positions);
                retain_common(&mut common, &positions);
            }
            if common.is_empty() {
                return;
            }
        }
        let frequency = common.len() as u32;
        let score = leaves[0].weight.score(norms.fieldnorm_id(row), frequency);
        top.push(score, row);
    })
}

/// Calls `visit` with every eligible row that all leaves have; their cursors stand on it.
fn intersect<'a>(
    leaves: &mut [Leaf<'a>],
    eligible: &Eligible<'_>,
    pace: &mut Pace<'_>,
    visit: &mut dyn FnMut(u32, &mut [Leaf<'a>]),
) -> Result<()> {
    // The shortest list rules most rows out.
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.sort_by_key(|leaf| leaves[*leaf].postings);
    let mut list = match eligible {
        Eligible::Listed(list) => Some(Cursor::Listed(list)),
        Eligible::Bits(_) => None,
    };
    let mut row = 0;
    'rows: loop {
        pace.step()?;
        if let Some(list) = &mut list {
            row = list.seek(row);
        }
        for leaf in &order {
            let found = leaves[*leaf].cursor.seek(row);
            if found == TERMINATED {
                return Ok(());
            }
            if found != row {
                row = found;
                continue 'rows;
            }
        }
        if row == TERMINATED {
            return Ok(());
        }
        let rows = match eligible {
            Eligible::Bits(bits) => bits.contains(row),
            Eligible::Listed(_) => true,
        };
        if rows {
            visit(row, leaves);
        }
        row += 1;
    }
}

/// Keeps the numbers of one ascending list that are in another.
fn retain_common(kept: &mut Vec<u32>, others: &[u32]) {
    let mut others = others.iter().copied().peekable();
    kept.retain(|number| {
        while others.next_if(|other| other < number).is_some() {}
        others.peek() == Some(number)
    });
}
