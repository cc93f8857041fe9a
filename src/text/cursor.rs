//! The documents of a term, in ascending order.

use tantivy::postings::{Postings, SegmentPostings};
use tantivy::{DocSet, TERMINATED};

/// Stands on one document, from the beginning on the first.
pub(super) enum Cursor<'a> {
    /// A posting list of the index.
    Stored(Box<SegmentPostings>),
    /// Documents with frequencies.
    Listed(&'a [(u32, u32)]),
}

impl Cursor<'_> {
    /// The document; [`TERMINATED`] after the last.
    #[inline]
    pub(super) fn doc(&self) -> u32 {
        match self {
            Self::Stored(postings) => postings.doc(),
            Self::Listed(list) => list.first().map_or(TERMINATED, |(doc, _)| *doc),
        }
    }

    /// How often the document has the term.
    #[inline]
    pub(super) fn frequency(&self) -> u32 {
        match self {
            Self::Stored(postings) => postings.term_freq(),
            Self::Listed(list) => list.first().map_or(0, |(_, frequency)| *frequency),
        }
    }

    /// Goes to the next document.
    #[inline]
    pub(super) fn advance(&mut self) -> u32 {
        match self {
            Self::Stored(postings) => postings.advance(),
            Self::Listed(list) => {
                *list = list.get(1..).unwrap_or_default();
                self.doc()
            }
        }
    }

    /// Goes to the first document at or after one.
    #[inline]
    pub(super) fn seek(&mut self, target: u32) -> u32 {
        if self.doc() >= target {
            return self.doc();
        }
        match self {
            Self::Stored(postings) => postings.seek(target),
            Self::Listed(list) => {
                let before = list.partition_point(|(doc, _)| *doc < target);
                *list = &list[before..];
                self.doc()
            }
        }
    }

    /// Positions of the term in the document, moved by an offset.
    pub(super) fn positions(&mut self, offset: u32, positions: &mut Vec<u32>) {
        match self {
            Self::Stored(postings) => postings.positions_with_offset(offset, positions),
            Self::Listed(_) => positions.clear(),
        }
    }
}
