//! The postings that a term of a query stands for in one segment.

use std::collections::BTreeSet;

use tantivy::postings::{Postings as _, SegmentPostings, TermInfo};
use tantivy::query::FuzzyTermQuery;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet, TERMINATED, Term};

use super::bits::Bits;
use super::cursor::Cursor;
use super::guard::unreadable;
use super::pace::Pace;
use super::segment::TextSegment;
use crate::{Error, Result};

/// Terms that one fuzzy term of a query may stand for.
const MAX_EXPANSIONS: usize = 4096;
/// Postings that are gathered before those of one document are joined.
const GATHERED: usize = 64 * 1024;

/// A term of a query in a segment.
pub(super) enum Postings {
    /// One term of the dictionary.
    Stored(TermInfo),
    /// Live documents with any of several terms, with the sum of the frequencies.
    Joined(Vec<(u32, u32)>),
}

impl Postings {
    /// Postings that a cursor passes over, dead ones included.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Stored(info) => info.doc_freq as usize,
            Self::Joined(list) => list.len(),
        }
    }

    pub(super) fn cursor(
        &self,
        segment: &TextSegment,
        option: IndexRecordOption,
    ) -> Result<Cursor<'_>> {
        match self {
            Self::Stored(info) => Ok(Cursor::Stored(Box::new(stored(segment, info, option)?))),
            Self::Joined(list) => Ok(Cursor::Listed(list)),
        }
    }

    /// Number of live documents.
    pub(super) fn live(&self, segment: &TextSegment, live: &Bits) -> Result<u64> {
        match (self, live) {
            (Self::Stored(info), Bits::Some(_)) => count_live(segment, info, live),
            _ => Ok(self.len() as u64),
        }
    }
}

fn stored(
    segment: &TextSegment,
    info: &TermInfo,
    option: IndexRecordOption,
) -> Result<SegmentPostings> {
    let postings = segment.index().read_postings_from_terminfo(info, option);
    postings.map_err(|e| unreadable(segment.key(), e))
}

fn count_live(segment: &TextSegment, info: &TermInfo, live: &Bits) -> Result<u64> {
    let option = IndexRecordOption::Basic;
    let blocks = segment
        .index()
        .read_block_postings_from_terminfo(info, option);
    let mut blocks = blocks.map_err(|e| unreadable(segment.key(), e))?;
    let mut count = 0;
    while !blocks.docs().is_empty() {
        count += blocks
            .docs()
            .iter()
            .filter(|doc| live.contains(**doc))
            .count() as u64;
        blocks.advance();
    }
    Ok(count)
}

/// The postings of exactly this term.
pub(super) fn exact(segment: &TextSegment, term: &str) -> Result<Option<Postings>> {
    let term = Term::from_field_text(segment.field(), term);
    let info = segment.index().get_term_info(&term);
    let info = info.map_err(|e| unreadable(segment.key(), e))?;
    Ok(info.map(Postings::Stored))
}

/// The joined postings of all terms within some edits of one. `seen` gathers the terms of all segments
/// that live documents have: a limit on others would depend on what was deleted and where.
pub(super) fn fuzzy(
    segment: &TextSegment,
    term: &str,
    max_edits: u8,
    live: &Bits,
    seen: &mut BTreeSet<Vec<u8>>,
    pace: &mut Pace<'_>,
) -> Result<Option<Postings>> {
    let term = Term::from_field_text(segment.field(), term);
    let automaton = FuzzyTermQuery::new(term, max_edits, true).automaton();
    let automaton = automaton.map_err(|e| unreadable(segment.key(), e))?;
    let stream = segment.index().terms().search(&automaton).into_stream();
    let mut stream = stream.map_err(|e| unreadable(segment.key(), e))?;
    let (mut list, mut joined) = (Vec::new(), 0);
    while stream.advance() {
        let before = list.len();
        let option = IndexRecordOption::WithFreqs;
        let mut postings = stored(segment, stream.value(), option)?;
        pace.ask()?;
        while postings.doc() != TERMINATED {
            if live.contains(postings.doc()) {
                list.push((postings.doc(), postings.term_freq()));
            }
            postings.advance();
        }
        if list.len() == before {
            continue;
        }
        if seen.insert(stream.key().to_vec()) && seen.len() > MAX_EXPANSIONS {
            return Err(Error::ResourceLimitExceeded {
                what: "terms that a fuzzy term stands for",
                value: seen.len() as u64,
                limit: MAX_EXPANSIONS as u64,
            });
        }
        if list.len() > 2 * joined + GATHERED {
            join(&mut list);
            joined = list.len();
        }
    }
    join(&mut list);
    Ok((!list.is_empty()).then_some(Postings::Joined(list)))
}

/// Sorts by document and adds up the frequencies of each.
fn join(list: &mut Vec<(u32, u32)>) {
    list.sort_unstable_by_key(|(doc, _)| *doc);
    list.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
}
