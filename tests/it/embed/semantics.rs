//! What the models know of meaning, on committed texts, and the bits of the built-in one.
//!
//! `paraphrase_pairs.tsv` has two texts a line that mean the same in other words; `debian_sections.tsv`
//! a section and a synopsis of a Debian package.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stratagraph::digest::Hasher;
use stratagraph::embed::{
    Embedder, ModelPolicy, ModelRegistry, Role, default_model, embed_checked_sync,
};

use super::vector;

const NEIGHBORS: usize = 10;

fn lines(name: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/eval");
    let text = std::fs::read_to_string(directory.join(name)).unwrap();
    let line = |line: &str| {
        let (left, right) = line.split_once('\t').unwrap();
        (left.to_owned(), right.to_owned())
    };
    text.lines().map(line).collect()
}

fn model(spec: &str) -> Arc<dyn Embedder> {
    let policy = ModelPolicy {
        allow_paths_and_urls: true,
        hub_cache: None,
    };
    let model = ModelRegistry::default().resolve_now(spec, &policy);
    model.unwrap().unwrap()
}

fn vectors<'a>(model: &dyn Embedder, texts: impl Iterator<Item = &'a String>) -> Vec<Vec<f32>> {
    let texts: Vec<Option<&str>> = texts.map(|text| Some(text.as_str())).collect();
    let answer = embed_checked_sync(model, Role::Document, &texts).unwrap();
    let answer = answer.unwrap();
    let row = |row| vector(&answer, row).unwrap_or_else(|| vec![0.0; model.dimensions()]);
    (0..texts.len()).map(row).collect()
}

fn similarity(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The share of left texts whose most similar right text is their own.
fn paraphrases(model: &dyn Embedder) -> f64 {
    let pairs = lines("paraphrase_pairs.tsv");
    let left = vectors(model, pairs.iter().map(|pair| &pair.0));
    let right = vectors(model, pairs.iter().map(|pair| &pair.1));
    let own = |at: &usize| {
        let of = |other: usize| similarity(&left[*at], &right[other]);
        (0..right.len()).all(|other| other == *at || of(other) < of(*at))
    };
    (0..left.len()).filter(own).count() as f64 / left.len() as f64
}

/// The share of texts whose ten most similar others are mostly of their section.
fn sections(model: &dyn Embedder) -> f64 {
    let rows = lines("debian_sections.tsv");
    let vectors = vectors(model, rows.iter().map(|row| &row.1));
    let right = |at: &usize| {
        let others = (0..rows.len()).filter(|other| other != at);
        let mut others: Vec<(f32, usize)> = others
            .map(|other| (similarity(&vectors[*at], &vectors[other]), other))
            .collect();
        others.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // Of sections with as many votes the one that was seen first counts.
        let mut votes: Vec<(&str, usize)> = Vec::new();
        for (_, other) in &others[..NEIGHBORS] {
            let section = rows[*other].0.as_str();
            match votes.iter_mut().find(|vote| vote.0 == section) {
                Some(vote) => vote.1 += 1,
                None => votes.push((section, 1)),
            }
        }
        let most = votes.iter().map(|vote| vote.1).max();
        let winner = votes.iter().find(|vote| Some(vote.1) == most);
        winner.unwrap().0 == rows[*at].0
    };
    (0..rows.len()).filter(right).count() as f64 / rows.len() as f64
}

#[test]
fn the_built_in_model_knows_synonyms_and_the_lexical_one_does_not() {
    let measured: BTreeMap<&str, (f64, f64)> = ["static:minilm-l6-128", "hash:384"]
        .into_iter()
        .map(|spec| {
            let model = model(spec);
            (
                spec,
                (paraphrases(model.as_ref()), sections(model.as_ref())),
            )
        })
        .collect();
    println!("paraphrase R@1 and section accuracy: {measured:?}");
    let (paraphrase, section) = measured["static:minilm-l6-128"];
    assert!(paraphrase >= 0.9, "{paraphrase}");
    assert!(section >= 0.63, "{section}");
    let (lexical, _) = measured["hash:384"];
    assert!(lexical < 0.5, "{lexical}");
}

/// The same with the transformer that the built-in model was made from.
#[cfg(feature = "candle")]
#[test]
fn real_weights_know_more() {
    let Some(directory) = std::env::var_os("STRATAGRAPH_MINILM_DIR") else {
        println!("skipped: STRATAGRAPH_MINILM_DIR names no directory");
        return;
    };
    let model = model(&format!("candle:{}", Path::new(&directory).display()));
    let (paraphrase, section) = (paraphrases(model.as_ref()), sections(model.as_ref()));
    println!("paraphrase R@1 {paraphrase:.2}, section accuracy {section:.3}");
    assert!(paraphrase >= 0.97 && section >= 0.76);
}

/// Integers all the way: every machine gives these bytes.
#[test]
fn the_built_in_model_has_the_same_bits_everywhere() {
    let model = model("static:minilm-l6-128");
    assert_eq!(default_model(), model.spec());
    let mut hasher = Hasher::new("vectors");
    for name in ["paraphrase_pairs.tsv", "debian_sections.tsv"] {
        let rows = lines(name);
        for vector in vectors(model.as_ref(), rows.iter().map(|row| &row.1)) {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            hasher.part(&bytes);
        }
    }
    let digest = hasher.finish().to_string();
    let golden = "8b5f9b33e9ae221c70f2d33a06e38ede46b0126bee4f5d09502a8750ad48a4c6";
    assert_eq!(digest, golden);
}
