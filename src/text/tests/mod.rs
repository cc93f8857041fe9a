//! The module against tantivy, against naive oracles and against damaged objects.

mod answers;
mod damage;
mod scores;

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tantivy::collector::TopDocs;
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, Occur, PhraseQuery, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::{Index, Searcher, TantivyDocument, Term};

use super::analyser::compose;
use super::{Analyser, Hit, Mode, Part, TextQuery, TextSegment, search};
use crate::Result;

const MEMORY: usize = 64 << 20;

fn never() -> bool {
    false
}

fn segment(analyser: &Analyser, texts: &[Option<String>]) -> TextSegment {
    let texts = texts.iter().map(Option::as_deref);
    TextSegment::from_texts(texts, analyser, MEMORY).unwrap()
}

/// A table in parts, with its live and its allowed rows.
struct Table {
    texts: Vec<Option<String>>,
    /// First row of each part.
    starts: Vec<usize>,
    segments: Vec<TextSegment>,
    live: Vec<RoaringBitmap>,
    allowed: Option<Vec<RoaringBitmap>>,
}

impl Table {
    /// Parts that begin at some rows; `live` and `allowed` say it of each row.
    fn new(
        analyser: &Analyser,
        texts: Vec<Option<String>>,
        cuts: &[usize],
        live: impl Fn(usize) -> bool,
        allowed: Option<&dyn Fn(usize) -> bool>,
    ) -> Self {
        let mut starts: Vec<usize> = cuts.iter().map(|cut| cut % (texts.len() + 1)).collect();
        starts.push(0);
        starts.sort_unstable();
        let ends = starts.iter().copied().skip(1).chain([texts.len()]);
        let ranges: Vec<_> = starts.iter().copied().zip(ends).collect();
        let rows = |of: &dyn Fn(usize) -> bool| -> Vec<RoaringBitmap> {
            let rows = ranges.iter().map(|(start, end)| {
                let rows = (*start..*end).filter(|row| of(*row));
                rows.map(|row| (row - start) as u32).collect()
            });
            rows.collect()
        };
        Self {
            segments: ranges
                .iter()
                .map(|(s, e)| segment(analyser, &texts[*s..*e]))
                .collect(),
            live: rows(&live),
            allowed: allowed.map(rows),
            starts,
            texts,
        }
    }

    fn row(&self, hit: &Hit) -> usize {
        self.starts[hit.part] + hit.position as usize
    }

    /// All rows that are alive.
    fn live_rows(&self) -> Vec<usize> {
        let parts = self.live.iter().zip(&self.starts);
        let rows = parts.flat_map(|(live, start)| live.iter().map(move |r| start + r as usize));
        rows.collect()
    }

    fn is_allowed(&self, row: usize) -> bool {
        let Some(allowed) = &self.allowed else {
            return true;
        };
        let part = self.starts.partition_point(|start| *start <= row) - 1;
        // Of empty parts that begin at the same row the last one holds it.
        allowed[part].contains((row - self.starts[part]) as u32)
    }

    fn hits(&self, query: &TextQuery, k: Option<usize>) -> Result<Vec<Hit>> {
        let mut parts = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            parts.push(Part {
                segment,
                live: &self.live[i],
                allowed: self.allowed.as_ref().map(|allowed| &allowed[i]),
            });
        }
        search(&parts, query, k, &never)
    }

    /// Scores by row, after checks of order and of `k`.
    fn scores(&self, query: &TextQuery) -> BTreeMap<usize, f32> {
        let hits = self.hits(query, None).unwrap();
        let key = |h: &Hit| (h.part, h.position);
        for pair in hits.windows(2) {
            let order = pair[1].score.total_cmp(&pair[0].score);
            assert!(
                order.then(key(&pair[0]).cmp(&key(&pair[1]))).is_lt(),
                "{pair:?}"
            );
        }
        for k in [0, 1, 3] {
            let best = self.hits(query, Some(k)).unwrap();
            let mut left = vec![k; self.segments.len()];
            let mut expected = hits.clone();
            expected.retain(|hit| {
                let more = left[hit.part] > 0;
                left[hit.part] -= usize::from(more);
                more
            });
            assert_eq!(best, expected, "k = {k}");
        }
        hits.iter().map(|hit| (self.row(hit), hit.score)).collect()
    }
}

/// A plain tantivy index of some texts.
struct Reference {
    searcher: Searcher,
    field: Field,
}

impl Reference {
    fn new(analyser: &Analyser, texts: &[Option<&str>]) -> Self {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer("reference")
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let options = TextOptions::default().set_indexing_options(indexing);
        let field = schema.add_text_field("text", options);
        let tokenizers = tantivy::tokenizer::TokenizerManager::default();
        tokenizers.register("reference", analyser.tantivy());
        let index = Index::builder()
            .schema(schema.build())
            .tokenizers(tokenizers);
        let mut writer = index
            .single_segment_index_writer::<TantivyDocument>(RamDirectory::create(), 1 << 20)
            .unwrap();
        for text in texts {
            let mut document = TantivyDocument::default();
            if let Some(text) = text {
                document.add_text(field, compose(text));
            }
            writer.add_document(document).unwrap();
        }
        let index = writer.finalize().unwrap();
        let searcher = index.reader().unwrap().searcher();
        assert!(searcher.segment_readers().len() <= 1);
        Self { searcher, field }
    }

    /// Scores by document.
    fn scores(&self, analyser: &Analyser, text: &str, mode: Mode) -> BTreeMap<u32, f32> {
        let terms = analyser.terms(text);
        let term = |term: &str| Term::from_field_text(self.field, term);
        let query: Box<dyn Query> = match mode {
            Mode::Phrase if terms.len() > 1 => {
                let places = terms.iter().map(|t| (t.position as usize, term(&t.term)));
                Box::new(PhraseQuery::new_with_offset(places.collect()))
            }
            _ => {
                let any = matches!(mode, Mode::Bm25);
                let occur = if any { Occur::Should } else { Occur::Must };
                let clause = |t: &super::TermAt| -> (Occur, Box<dyn Query>) {
                    let option = IndexRecordOption::WithFreqs;
                    (occur, Box::new(TermQuery::new(term(&t.term), option)))
                };
                Box::new(BooleanQuery::new(terms.iter().map(clause).collect()))
            }
        };
        if terms.is_empty() {
            return BTreeMap::new();
        }
        let limit = self.searcher.num_docs().max(1) as usize;
        let top = TopDocs::with_limit(limit).order_by_score();
        let found = self.searcher.search(&query, &top).unwrap();
        found
            .into_iter()
            .map(|(score, address)| (address.doc_id, score))
            .collect()
    }
}

fn assert_close(found: &BTreeMap<usize, f32>, expected: &BTreeMap<usize, f32>, what: &str) {
    let rows = |scores: &BTreeMap<usize, f32>| scores.keys().copied().collect::<Vec<_>>();
    assert_eq!(rows(found), rows(expected), "{what}");
    for (row, score) in expected {
        let relative = (found[row] - score).abs() / score.abs().max(f32::MIN_POSITIVE);
        assert!(
            relative <= 1e-6,
            "{what}: row {row} has {} not {score}",
            found[row]
        );
    }
}

/// Compares a table with tantivy over its live rows.
fn check(table: &Table, analyser: &Analyser, text: &str, mode: Mode) {
    let query = TextQuery::new(analyser, text, mode).unwrap();
    let rows = table.live_rows();
    let texts: Vec<Option<&str>> = rows.iter().map(|r| table.texts[*r].as_deref()).collect();
    let expected = Reference::new(analyser, &texts).scores(analyser, text, mode);
    let expected = expected
        .into_iter()
        .map(|(doc, score)| (rows[doc as usize], score));
    let expected = expected.filter(|(row, _)| table.is_allowed(*row)).collect();
    assert_close(
        &table.scores(&query),
        &expected,
        &format!("{mode:?} {text:?}"),
    );
}
