//! The model that is part of the program: `static:minilm-l6-128`.
//!
//! `vocab.txt` has a token a line. `table.i8` has 128 numbers of eight bits for each of them, in the
//! same order and nothing else. A vector is the sum of the rows of a text's tokens, unknown ones
//! included, divided by its length: exact integers, one square root and one rounding, the same on every
//! machine.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::rows::{Rows, Values};
use super::{ALGORITHM, TokenTable, parameters};
use crate::embed::tokenize::Tokenizer;
use crate::embed::{Embedder, ModelDefinition};
use crate::{Error, Result};

const SPEC: &str = "static:minilm-l6-128";
const DIMENSIONS: usize = 128;
const TABLE: &[u8] = include_bytes!("minilm-l6-128/table.i8");
const VOCABULARY: &str = include_str!("minilm-l6-128/vocab.txt");

/// SHA-256 of the two files, so that no start of a process has to compute it.
const TABLE_SHA256: &str = "327e8c0829a1b83b926a685a3975f0b3050fba668e52c1fc9cd2479a15d0f76f";
const VOCABULARY_SHA256: &str = "2dc9646bf122d33d46046846a70f534d4660c892cbe041dfa2e81421e9e29c6c";

static MODEL: LazyLock<Result<Arc<TokenTable>, String>> =
    LazyLock::new(|| of_bytes(Cow::Borrowed(TABLE), VOCABULARY).map(Arc::new));

/// The model, read when it is first asked for.
pub(in crate::embed) fn model() -> Result<Arc<dyn Embedder>> {
    match &*MODEL {
        Ok(model) => Ok(Arc::clone(model) as Arc<dyn Embedder>),
        Err(reason) => Err(Error::ModelInvalid {
            model: SPEC.to_owned(),
            file: String::new(),
            reason: reason.clone(),
        }),
    }
}

fn of_bytes(table: Cow<'static, [u8]>, vocabulary: &str) -> Result<TokenTable, String> {
    let lines = vocabulary.lines().count();
    if table.len() != lines * DIMENSIONS {
        return Err(format!(
            "a table of {} bytes is not one of {lines} tokens",
            table.len()
        ));
    }
    let tokenizer = Tokenizer::of_vocab(vocabulary);
    let values = Values::Integers(table);
    let rows = Rows::new(values, DIMENSIONS, None, None, tokenizer.size())?;
    let mut parameters = parameters();
    parameters.insert("table".to_owned(), json!(TABLE_SHA256));
    parameters.insert("vocab".to_owned(), json!(VOCABULARY_SHA256));
    let definition = ModelDefinition::new("static", ALGORITHM, DIMENSIONS, true, parameters)
        .map_err(|e| e.to_string())?;
    Ok(TokenTable {
        spec: SPEC.to_owned(),
        definition,
        tokenizer,
        rows,
        skipped: None,
        normalised: true,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Float32Type;

    use super::*;
    use crate::digest::Digest;
    use crate::embed::{RejectReason, Role, SyncEmbedder};
    use crate::limits;

    const TOKENS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nwater\n##s\nsea\n[\n]\nsep";

    /// Row `i` is 0 but for component `i`, which is `i + 1`.
    fn small() -> TokenTable {
        let mut table = vec![0u8; TOKENS.lines().count() * DIMENSIONS];
        for row in 0..TOKENS.lines().count() {
            table[row * DIMENSIONS + row] = row as u8 + 1;
        }
        of_bytes(Cow::Owned(table), TOKENS).unwrap()
    }

    /// The squares of the components times their sum, where a component is not 0.
    fn counts(text: &str) -> Vec<(usize, f32)> {
        let out = small().embed_now(Role::Query, &[Some(text)]).unwrap();
        let vector = out.vectors.value(0);
        let vector = vector.as_primitive::<Float32Type>().values().to_vec();
        let parts = vector.into_iter().enumerate();
        parts.filter(|(_, x)| *x != 0.0).collect()
    }

    #[test]
    fn digests_are_those_of_the_files() {
        assert_eq!(Digest::of(TABLE).to_string(), TABLE_SHA256);
        assert_eq!(
            Digest::of(VOCABULARY.as_bytes()).to_string(),
            VOCABULARY_SHA256
        );
        let provenance = include_str!("minilm-l6-128/provenance.json");
        let provenance: serde_json::Value = serde_json::from_str(provenance).unwrap();
        assert_eq!(provenance["output"]["table.i8"], TABLE_SHA256);
        assert_eq!(provenance["output"]["vocab.txt"], VOCABULARY_SHA256);
    }

    #[test]
    fn one_model_serves_the_process() {
        let (a, b) = (model().unwrap(), model().unwrap());
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(a.spec(), SPEC);
        assert_eq!(a.dimensions(), DIMENSIONS);
        let parameters = &a.definition().value()["parameters"];
        assert_eq!(parameters["table"], TABLE_SHA256);
        assert_eq!(parameters["vocab"], VOCABULARY_SHA256);
        assert_eq!(parameters["max_text_bytes"], limits::TEXT_BYTES);
    }

    #[test]
    fn a_vector_is_the_sum_of_its_tokens() {
        let unit = |parts: [f64; 2]| {
            let norm = parts.map(|x| x * x).iter().sum::<f64>().sqrt();
            parts.map(|x| (x / norm) as f32)
        };
        assert_eq!(counts("Sea"), [(6, 1.0)]);
        let [a, b] = unit([5.0, 6.0]);
        assert_eq!(counts("waters"), [(4, a), (5, b)]);
        assert_eq!(counts("water").len(), 1);
        // Unknown words have a row; special tokens that are written are words.
        let [a, b] = unit([4.0, 14.0]);
        assert_eq!(counts("fire sea sea fire"), [(1, a), (6, b)]);
        assert_eq!(
            counts("[SEP]").iter().map(|(i, _)| *i).collect::<Vec<_>>(),
            [7, 8, 9]
        );
    }

    #[test]
    fn refused_texts_have_their_reason() {
        let long = "sea ".repeat(limits::TEXT_BYTES / 4);
        let longer = format!("{long}s");
        let texts = [
            None,
            Some(""),
            Some(" \u{1}\u{301}"),
            Some(long.as_str()),
            Some(longer.as_str()),
            Some("sea"),
        ];
        let out = small().embed_now(Role::Document, &texts).unwrap();
        let expected = [
            (0, RejectReason::Empty),
            (1, RejectReason::Empty),
            (2, RejectReason::ZeroNorm),
            (4, RejectReason::TooLong),
        ];
        assert_eq!(out.errors, expected);
        assert_eq!(out.truncated, 0);
        assert_eq!(out.vectors.value(3).as_ref(), out.vectors.value(5).as_ref());
    }

    #[test]
    fn a_table_of_another_length_is_refused() {
        for bytes in [0, 127, 129, 256] {
            let refused = of_bytes(Cow::Owned(vec![1; bytes]), "[UNK]").unwrap_err();
            assert!(refused.contains("table"), "{refused}");
        }
        assert!(of_bytes(Cow::Owned(vec![1; 128]), "[UNK]").is_ok());
    }
}
