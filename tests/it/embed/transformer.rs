//! Transformers: the committed tiny one always, real weights where the environment names them.

mod company;
mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stratagraph::embed::testing::tiny_bert::{FILES, copy_to, directory};
use stratagraph::embed::{
    Embedded, Embedder, ModelPolicy, ModelRegistry, RejectReason, Role, SyncEmbedder, Transformer,
};

use super::vector;

/// A directory of all-MiniLM-L6-v2, for the tests that need real weights.
const MINILM: &str = "STRATAGRAPH_MINILM_DIR";
/// Its golden vectors: JSON with `texts` and `vectors`.
const GOLDENS: &str = "STRATAGRAPH_MINILM_GOLDENS";

fn open_policy() -> ModelPolicy {
    ModelPolicy {
        allow_paths_and_urls: true,
        hub_cache: None,
    }
}

fn from_environment(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(name).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {name} names no file");
    }
    path
}

struct Golden {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
}

fn golden(path: &Path, name: &str) -> Golden {
    let text = std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |x: &serde_json::Value| x.as_f64().unwrap() as f32;
    Golden {
        texts: serde_json::from_value(json["texts"].clone()).unwrap(),
        vectors: json[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_array().unwrap().iter().map(number).collect())
            .collect(),
    }
}

fn embed(model: &Transformer, texts: &[&str]) -> Vec<Vec<f32>> {
    let texts: Vec<Option<&str>> = texts.iter().map(|text| Some(*text)).collect();
    let answer = model.embed_now(Role::Document, &texts).unwrap();
    assert!(answer.errors.is_empty());
    (0..texts.len())
        .map(|row| vector(&answer, row).unwrap())
        .collect()
}

/// The largest |1 - cos| and the largest difference of a component.
fn distance(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> (f64, f32) {
    let mut worst = (0f64, 0f32);
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    };
    for (a, b) in ours.iter().zip(theirs) {
        let norm = (dot(a, a) * dot(b, b)).sqrt();
        worst.0 = worst.0.max((1.0 - dot(a, b) / norm).abs());
        let components = a.iter().zip(b).map(|(x, y)| (x - y).abs());
        worst.1 = components.fold(worst.1, f32::max);
    }
    worst
}

#[test]
fn real_weights_give_the_golden_vectors() {
    let (Some(directory), Some(goldens)) = (from_environment(MINILM), from_environment(GOLDENS))
    else {
        return;
    };
    let model = Transformer::from_directory(&directory).unwrap();
    let golden = golden(&goldens, "vectors");
    let texts: Vec<&str> = golden.texts.iter().map(String::as_str).collect();
    let worst = distance(&embed(&model, &texts), &golden.vectors);
    println!(
        "{} texts, {} dimensions: worst |1 - cos| {:.1e}, worst component {:.1e}",
        texts.len(),
        model.dimensions(),
        worst.0,
        worst.1
    );
    assert!(worst.0 <= 1e-6, "{worst:?}");
}

/// A copy of the tiny model that a test may change.
struct Copy {
    directory: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy_to(directory.path()).unwrap();
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn edit(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path().join(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        self.write(name, &text.replacen(from, to, 1));
    }

    fn modules(&self, kinds: &[(&str, &str)]) {
        let module = |(path, kind): &(&str, &str)| {
            format!(r#"{{"idx": 0, "name": "0", "path": "{path}", "type": "st.{kind}"}}"#)
        };
        let modules: Vec<String> = kinds.iter().map(module).collect();
        self.write("modules.json", &format!("[{}]", modules.join(",")));
    }

    fn open(&self) -> stratagraph::Result<Transformer> {
        Transformer::from_directory(self.path())
    }

    /// The code and the message with which opening fails.
    fn refused(&self) -> (&'static str, String) {
        let error = self.open().unwrap_err();
        (error.code(), error.to_string())
    }
}

const TRANSFORMER: (&str, &str) = ("", "Transformer");
const POOLING: (&str, &str) = ("1_Pooling", "Pooling");
const DENSE: (&str, &str) = ("2_Dense", "Dense");
const NORMALIZE: (&str, &str) = ("3_Normalize", "Normalize");

#[test]
fn every_pooling_and_step_gives_the_golden_vectors() {
    let mean = r#"{"embedding_dimension": 32, "pooling_mode": "mean"}"#;
    let cls = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    let max = r#"{"pooling_mode_max_tokens": true}"#;
    for (name, pooling, steps) in [
        ("mean_normalised", mean, &[NORMALIZE][..]),
        ("cls", cls, &[]),
        ("max", max, &[]),
        ("mean_dense_normalised", mean, &[DENSE, NORMALIZE]),
    ] {
        let copy = Copy::new();
        copy.write("1_Pooling/config.json", pooling);
        copy.modules(&[&[TRANSFORMER, POOLING], steps].concat());
        let model = copy.open().unwrap();
        let golden = golden(&directory().join("goldens.json"), name);
        let texts: Vec<&str> = golden.texts.iter().map(String::as_str).collect();
        let worst = distance(&embed(&model, &texts), &golden.vectors);
        assert_eq!(model.dimensions(), golden.vectors[0].len());
        assert!(worst.0 <= 1e-6 && worst.1 <= 1e-5, "{name}: {worst:?}");
        let normalised = &model.definition().value()["normalised"];
        assert_eq!(normalised, &steps.contains(&NORMALIZE), "{name}");
    }
}

#[test]
fn a_model_without_modules_is_the_mean_of_its_states() {
    let copy = Copy::new();
    std::fs::remove_file(copy.path().join("modules.json")).unwrap();
    let bare = copy.open().unwrap();
    copy.modules(&[TRANSFORMER, POOLING]);
    let pooled = copy.open().unwrap();
    let text = ["a fast red fox leaps"];
    assert_eq!(embed(&bare, &text), embed(&pooled, &text));
}

#[test]
fn texts_are_cut_at_the_length_that_the_files_say() {
    let copy = Copy::new();
    let model = copy.open().unwrap();
    let long = "the ".repeat(40);
    let fits = "the ".repeat(14);
    let answer = model
        .embed_now(
            Role::Document,
            &[Some(long.as_str()), Some(&fits), Some("the")],
        )
        .unwrap();
    assert_eq!(answer.truncated, 1);
    assert_eq!(vector(&answer, 0), vector(&answer, 1));
    let bits = |answer: &Embedded| vector(answer, 0).unwrap();
    // The file of the step goes before that of the tokenizer, the spec before both.
    copy.write("sentence_bert_config.json", r#"{"max_seq_length": 8}"#);
    let shorter = copy
        .open()
        .unwrap()
        .embed_now(Role::Document, &[Some(&long)]);
    let eight = bits(&shorter.unwrap());
    assert_ne!(eight, bits(&answer));
    let spec = |options: &str| format!("candle:{}?{options}", copy.path().display());
    let open = |options: &str| {
        let registry = ModelRegistry::default();
        registry
            .resolve_now(&spec(options), &open_policy())
            .map(Option::unwrap)
    };
    let of = |model: Arc<dyn Embedder>| {
        let answer = model
            .sync()
            .unwrap()
            .embed_now(Role::Document, &[Some(&long)]);
        bits(&answer.unwrap())
    };
    assert_eq!(of(open("max_tokens=8").unwrap()), eight);
    assert_eq!(of(open("max_tokens=16").unwrap()), bits(&answer));
    let code = |options| open(options).unwrap_err().code();
    assert_eq!(code("max_tokens=49"), "ResourceLimitExceeded");
    assert_eq!(code("max_tokens=2"), "ModelInvalid");
}

#[test]
fn refused_texts_have_a_reason_and_disturb_no_other() {
    let model = Transformer::from_directory(&directory()).unwrap();
    let long = "x".repeat(stratagraph::limits::TEXT_BYTES + 1);
    let texts = [
        Some("dog"),
        None,
        Some(""),
        Some(" \t"),
        Some(&long),
        Some("fox"),
    ];
    let answer = model.embed_now(Role::Document, &texts).unwrap();
    let reasons = [
        (1, RejectReason::Empty),
        (2, RejectReason::Empty),
        (4, RejectReason::TooLong),
    ];
    assert_eq!(answer.errors, reasons);
    assert_eq!(vector(&answer, 0).unwrap(), embed(&model, &["dog"])[0]);
    assert_eq!(vector(&answer, 5).unwrap(), embed(&model, &["fox"])[0]);
    // White space alone is the frame alone: a vector like any other.
    assert!(vector(&answer, 3).is_some());
}

#[test]
fn prompts_are_put_before_the_texts_of_their_role() {
    let copy = Copy::new();
    let prompts = r#"{"prompts": {"query": "read ", "passage": "write "}}"#;
    copy.write("config_sentence_transformers.json", prompts);
    let model = copy.open().unwrap();
    let plain = Transformer::from_directory(&directory()).unwrap();
    let one = |model: &Transformer, role, text| {
        vector(&model.embed_now(role, &[Some(text)]).unwrap(), 0).unwrap()
    };
    assert_eq!(
        one(&model, Role::Query, "files"),
        embed(&plain, &["read files"])[0]
    );
    assert_eq!(
        one(&model, Role::Document, "files"),
        embed(&plain, &["write files"])[0]
    );
    let definition = model.definition().value();
    assert_eq!(definition["parameters"]["query_prompt"], "read ");
    let default = r#"{"prompts": {"all": "dog "}, "default_prompt_name": "all"}"#;
    copy.write("config_sentence_transformers.json", default);
    let model = copy.open().unwrap();
    for role in [Role::Query, Role::Document] {
        assert_eq!(one(&model, role, "fox"), embed(&plain, &["dog fox"])[0]);
    }
    let pooling = r#"{"pooling_mode": "mean", "include_prompt": false}"#;
    copy.write("1_Pooling/config.json", pooling);
    assert_eq!(copy.refused().0, "ModelInvalid");
}

#[test]
fn lower_precision_is_another_definition_and_nearly_the_same_vector() {
    let open = |dtype: &str| {
        let spec = format!("candle:{}?dtype={dtype}", directory().display());
        let registry = ModelRegistry::default();
        registry
            .resolve_now(&spec, &open_policy())
            .unwrap()
            .unwrap()
    };
    let whole = open("f32");
    let text = [Some("the quick brown fox jumps")];
    let one = |model: &Arc<dyn Embedder>| {
        vector(
            &model
                .sync()
                .unwrap()
                .embed_now(Role::Document, &text)
                .unwrap(),
            0,
        )
        .unwrap()
    };
    let plain = format!("candle:{}", directory().display());
    let plain = ModelRegistry::default()
        .resolve_now(&plain, &open_policy())
        .unwrap()
        .unwrap();
    assert_eq!(plain.definition(), whole.definition());
    for dtype in ["f16", "bf16"] {
        let half = open(dtype);
        assert_ne!(half.definition().hash(), whole.definition().hash());
        assert!(distance(&[one(&half)], &[one(&whole)]).0 < 1e-2, "{dtype}");
    }
}
