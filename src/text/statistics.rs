//! What BM25 knows of the live rows of all parts.

use tantivy::query::{Bm25StatisticsProvider, Bm25Weight};
use tantivy::schema::Field;
use tantivy::{Score, Term};

use super::bits::Bits;
use super::query::{Mode, TextQuery};
use super::search::Part;
use crate::{Error, Result};

/// Live rows and their tokens. A row without text counts as a document, as in tantivy.
#[derive(Debug, Default)]
pub(super) struct Population {
    rows: u64,
    tokens: u64,
}

impl Population {
    /// Adds the live rows of a part.
    pub(super) fn add(&mut self, part: &Part<'_>, live: &Bits) {
        let segment = part.segment;
        self.rows += part.live.len();
        self.tokens += live.sum(segment.tokens(), |row| segment.count(row));
    }

    /// Average number of tokens, in the arithmetic of tantivy.
    fn average(&self) -> Score {
        self.tokens as Score / self.rows as Score
    }

    /// The weight of each term from its number of live documents; of a phrase one weight for all.
    ///
    /// BM25 with k1 = 1.2, b = 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)) (Robertson and
    /// Zaragoza, "The Probabilistic Relevance Framework", 2009; the idf as in Lucene), computed by
    /// tantivy in 32 bits over lengths that are rounded to 256 classes.
    pub(super) fn weights(&self, query: &TextQuery, live: &[u64]) -> Result<Vec<Bm25Weight>> {
        if query.mode == Mode::Phrase && query.places.len() > 1 {
            let provider = Phrase {
                population: self,
                query,
                live,
            };
            // The field of these terms is nobody's: the provider looks at their text.
            let field = Field::from_field_id(0);
            let term =
                |(slot, _): &(usize, u32)| Term::from_field_text(field, &query.terms[*slot].term);
            let terms: Vec<Term> = query.places.iter().map(term).collect();
            let weight = Bm25Weight::for_terms(&provider, &terms);
            let weight = weight.map_err(|e| Error::Source {
                source: Box::new(e),
            })?;
            return Ok(vec![weight; live.len()]);
        }
        let average = self.average();
        let weight =
            |live: &u64| Bm25Weight::for_one_term_without_explain(*live, self.rows, average);
        Ok(live.iter().map(weight).collect())
    }
}

struct Phrase<'a> {
    population: &'a Population,
    query: &'a TextQuery,
    live: &'a [u64],
}

impl Bm25StatisticsProvider for Phrase<'_> {
    fn total_num_tokens(&self, _: Field) -> tantivy::Result<u64> {
        Ok(self.population.tokens)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(self.population.rows)
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        let text = term.serialized_value_bytes();
        let mut terms = self.query.terms.iter().zip(self.live);
        let live = terms.find(|(known, _)| known.term.as_bytes() == text);
        Ok(live.map_or(0, |(_, live)| *live))
    }
}
