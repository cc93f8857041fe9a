//! What is searched for.

use super::analyser::Analyser;
use crate::{Error, Result};

/// Edits that the automata of tantivy are built for.
const MAX_EDITS: u8 = 2;

/// Which documents match, and how they score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Any term; the score is the sum of the BM25 scores of the terms that match.
    Bm25,
    /// Every term; scores as in [`Mode::Bm25`].
    All,
    /// The terms one after the other, with the same distances as in the query where it has stop words.
    /// BM25 of the phrase as if it were a term, with the sum of the terms' inverse document frequencies.
    /// A phrase of one term is that term.
    Phrase,
    /// Any term that is at most `max_edits` (0 to 2) insertions, deletions, replacements and swaps of
    /// neighbouring letters away from a term of the query, both after stemming. All terms that one term of the query stands
    /// for score as one: a document's frequency is the sum of theirs, the document frequency the number
    /// of documents that have any.
    Fuzzy {
        /// Edits that are allowed.
        max_edits: u8,
    },
}

/// A distinct term of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryTerm {
    pub(super) term: String,
    /// How often the query has it; the term scores that many times.
    pub(super) times: u32,
}

/// A query after analysis.
#[derive(Debug, Clone)]
pub struct TextQuery {
    pub(super) analyser: &'static str,
    pub(super) mode: Mode,
    /// Distinct terms in the order of their first places.
    pub(super) terms: Vec<QueryTerm>,
    /// Every term of the query: which one of `terms`, and its place.
    pub(super) places: Vec<(usize, u32)>,
}

impl TextQuery {
    /// A query for the terms of `text`. One without terms matches nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for more than two edits.
    pub fn new(analyser: &Analyser, text: &str, mode: Mode) -> Result<Self> {
        if let Mode::Fuzzy { max_edits } = mode
            && max_edits > MAX_EDITS
        {
            return Err(Error::InvalidArgument {
                function: "text_search".to_owned(),
                argument: "max_edits".to_owned(),
                reason: format!("{max_edits} is not between 0 and {MAX_EDITS}"),
            });
        }
        let mut terms: Vec<QueryTerm> = Vec::new();
        let mut places = Vec::new();
        let mut known = std::collections::HashMap::new();
        for found in analyser.terms(text) {
            let slot = *known.entry(found.term.clone()).or_insert(terms.len());
            places.push((slot, found.position));
            match terms.get_mut(slot) {
                Some(term) => term.times += 1,
                None => terms.push(QueryTerm {
                    term: found.term,
                    times: 1,
                }),
            }
        }
        Ok(Self {
            analyser: analyser.name(),
            mode,
            terms,
            places,
        })
    }

    /// Whether the query has no terms.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
