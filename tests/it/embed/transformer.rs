//! Transformers: the committed tiny one always, real weights where the environment names them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
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

/// The committed model: random weights, vectors by sentence-transformers 6.2 on torch 2.15.
fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/tiny-bert")
}

/// A copy of the tiny model that a test may change.
struct Copy {
    directory: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in FILES {
            let to = directory.path().join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(tiny().join(name), to).unwrap();
        }
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

/// Every file of the tiny model that changes its vectors.
const FILES: [&str; 11] = [
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Normalize/config.json",
];

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
        let golden = golden(&tiny().join("goldens.json"), name);
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
    let model = Transformer::from_directory(&tiny()).unwrap();
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
    let plain = Transformer::from_directory(&tiny()).unwrap();
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

/// Edits after which a vector could not be what the files mean.
const UNKNOWN: [(&str, &str, &str); 19] = [
    (
        "config.json",
        r#""model_type": "bert""#,
        r#""model_type": "mpnet""#,
    ),
    (
        "config.json",
        r#""hidden_act": "gelu""#,
        r#""hidden_act": "relu""#,
    ),
    (
        "config.json",
        r#""is_decoder": false"#,
        r#""is_decoder": true"#,
    ),
    (
        "config.json",
        r#"attention_heads": 4"#,
        r#"attention_heads": 5"#,
    ),
    (
        "config.json",
        r#"attention_heads": 4"#,
        r#"attention_heads": 0"#,
    ),
    (
        "config.json",
        r#""hidden_size": 32"#,
        r#""hidden_size": 36"#,
    ),
    (
        "config.json",
        r#""hidden_size": 32"#,
        r#""hidden_size": -1"#,
    ),
    (
        "config.json",
        r#""vocab_size": 130"#,
        r#""vocab_size": 129"#,
    ),
    (
        "config.json",
        r#"hidden_layers": 2"#,
        r#"hidden_layers": 3"#,
    ),
    ("config.json", r#"norm_eps": 1e-12"#, r#"norm_eps": 0"#),
    ("config.json", "{", "["),
    ("1_Pooling/config.json", r#""mean""#, r#""lasttoken""#),
    (
        "2_Dense/config.json",
        r#"features": 32"#,
        r#"features": 31"#,
    ),
    ("2_Dense/config.json", "activation.Tanh", "activation.ReLU"),
    (
        "2_Dense/config.json",
        "sentence_embedding",
        "token_embeddings",
    ),
    ("modules.json", "dense.Dense", "cnn.CNN"),
    ("modules.json", r#""1_Pooling""#, r#""../1_Pooling""#),
    ("modules.json", r#""1_Pooling""#, r#""/etc""#),
    ("modules.json", r#""2_Dense""#, r#""none""#),
];

#[test]
fn what_cannot_be_computed_exactly_is_refused() {
    assert!(Copy::new().open().is_ok());
    for (file, from, to) in UNKNOWN {
        let copy = Copy::new();
        copy.edit(file, from, to);
        let (code, message) = copy.refused();
        assert_eq!(code, "ModelInvalid", "{file} {to}: {message}");
    }
    for (from, to) in [
        (r#"hidden_layers": 2"#, r#"hidden_layers": 99999999"#),
        (r#""hidden_size": 32"#, r#""hidden_size": 4000000000"#),
        (r#"embeddings": 48"#, r#"embeddings": 4000000000"#),
    ] {
        let copy = Copy::new();
        copy.edit("config.json", from, to);
        copy.modules(&[TRANSFORMER, POOLING]);
        assert_eq!(copy.refused().0, "ResourceLimitExceeded", "{to}");
    }
    // Scores that no memory holds.
    let copy = Copy::new();
    copy.write(
        "config.json",
        &std::fs::read_to_string(copy.path().join("config.json"))
            .unwrap()
            .replace("heads\": 4", "heads\": 32")
            .replace("embeddings\": 48", "embeddings\": 4096"),
    );
    copy.write("sentence_bert_config.json", r#"{"max_seq_length": 4096}"#);
    let (code, message) = copy.refused();
    assert!(
        code == "ModelInvalid" && message.contains("max_tokens="),
        "{message}"
    );
}

#[test]
fn damaged_weights_are_typed() {
    let whole = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let huge = [u64::MAX.to_le_bytes().as_slice(), &whole[8..]].concat();
    for bytes in [
        &[][..],
        &whole[..7],
        &whole[..whole.len() - 1],
        &whole[8..],
        &huge,
    ] {
        let copy = Copy::new();
        copy.modules(&[TRANSFORMER, POOLING]);
        std::fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
        assert_eq!(copy.refused().0, "ModelInvalid");
    }
    let copy = Copy::new();
    std::fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    let (code, message) = copy.refused();
    assert_eq!(code, "ModelInvalid");
    assert!(message.contains("model.safetensors"), "{message}");
}

/// A text of 1 to 20 words of the tiny vocabulary.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "the", "fox", "dog", "read", "files", "x", "embedded", "?",
    ]);
    prop::collection::vec(word, 1..20).prop_map(|words| words.join(" "))
}

/// The tiny model's files around random weights of the widths from which inputs share a product.
fn widen(copy: &Copy) {
    for (from, name, size) in [
        (r#""hidden_size": 32"#, "hidden_size", 128),
        (r#""intermediate_size": 64"#, "intermediate_size", 640),
        (r#""num_hidden_layers": 2"#, "num_hidden_layers", 1),
    ] {
        copy.edit("config.json", from, &format!(r#""{name}": {size}"#));
    }
    copy.modules(&[TRANSFORMER, POOLING]);
    let mut state = 1u64;
    let mut number = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 25) as f32 - 0.25
    };
    let grown = |size: &usize| match size {
        32 => 128,
        64 => 640,
        other => *other,
    };
    let whole = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let mut tensors = Vec::new();
    for (name, view) in SafeTensors::deserialize(&whole).unwrap().tensors() {
        if !name.contains("layer.1.") {
            let shape: Vec<usize> = view.shape().iter().map(grown).collect();
            let count = shape.iter().product::<usize>();
            let bytes: Vec<u8> = (0..count).flat_map(|_| number().to_le_bytes()).collect();
            tensors.push((name, shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
}

/// Each text alone, in pieces of `chunk`, and all of them in `threads` calls at a time.
fn check_company(model: &Transformer, texts: &[String], threads: usize, chunk: usize) {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let alone: Vec<Vec<f32>> = texts.iter().flat_map(|t| embed(model, &[*t])).collect();
    let chunked: Vec<Vec<f32>> = texts.chunks(chunk).flat_map(|c| embed(model, c)).collect();
    assert!(alone == chunked, "in pieces of {chunk}");
    std::thread::scope(|scope| {
        let call = |_| scope.spawn(|| embed(model, &texts));
        let calls: Vec<_> = (0..threads).map(call).collect();
        for call in calls {
            assert!(call.join().unwrap() == alone, "in {threads} threads");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]
    #[test]
    fn a_vector_has_the_same_bits_in_any_company(
        texts in prop::collection::vec(text(), 1..70),
        threads in 1usize..5,
        chunk in 1usize..70,
    ) {
        static MODELS: OnceLock<[Transformer; 2]> = OnceLock::new();
        let models = MODELS.get_or_init(|| {
            let copy = Copy::new();
            widen(&copy);
            [copy.open().unwrap(), Transformer::from_directory(&tiny()).unwrap()]
        });
        for model in models {
            check_company(model, &texts, threads, chunk);
        }
    }
}

/// The same with real weights, over texts of many lengths.
#[test]
fn real_weights_give_the_same_bits_in_any_company() {
    let Some(directory) = from_environment(MINILM) else {
        return;
    };
    let model = Transformer::from_directory(&directory).unwrap();
    let words = [
        "graph",
        "tables",
        "of",
        "embeddings",
        "refresh",
        "incrementally",
        "(fast)",
    ];
    let text = |n: usize| -> String {
        let words: Vec<&str> = (0..n * n % 23 + 1)
            .map(|w| words[(n + w * w) % words.len()])
            .collect();
        words.join(" ")
    };
    let texts: Vec<String> = (0..120).map(text).collect();
    for chunk in [2, 7, 64, 120] {
        check_company(&model, &texts, 2, chunk);
    }
}

#[test]
fn lower_precision_is_another_definition_and_nearly_the_same_vector() {
    let open = |dtype: &str| {
        let spec = format!("candle:{}?dtype={dtype}", tiny().display());
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
    let plain = format!("candle:{}", tiny().display());
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

#[test]
fn one_changed_byte_of_any_file_is_another_definition() {
    let copy = Copy::new();
    let registry = ModelRegistry::default();
    let spec = format!("candle:{}", copy.path().display());
    let resolve = || {
        registry
            .resolve_now(&spec, &open_policy())
            .map(Option::unwrap)
    };
    let original = resolve().unwrap();
    assert!(Arc::ptr_eq(&original, &resolve().unwrap()));
    for name in FILES {
        let path = copy.path().join(name);
        let times = std::fs::metadata(&path).unwrap().modified().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(times).unwrap();
            match resolve() {
                Ok(other) => assert_ne!(
                    other.definition().hash(),
                    original.definition().hash(),
                    "{name}"
                ),
                Err(error) => assert!(
                    matches!(
                        error.code(),
                        "ModelInvalid" | "ResourceLimitExceeded" | "NotYetSupported"
                    ),
                    "{name}: {error}"
                ),
            }
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(
            resolve().unwrap().definition(),
            original.definition(),
            "{name}"
        );
    }
    // The place of the files says nothing of the vectors.
    let elsewhere = Transformer::from_directory(&tiny()).unwrap();
    assert_eq!(elsewhere.definition(), original.definition());
}

#[test]
fn names_are_found_in_the_hubs_cache_and_nowhere_else() {
    let cache = tempfile::tempdir().unwrap();
    let policy = ModelPolicy {
        allow_paths_and_urls: false,
        hub_cache: Some(cache.path().to_owned()),
    };
    let registry = ModelRegistry::default();
    let resolve = |name: &str| registry.resolve_now(name, &policy).map(Option::unwrap);
    assert_eq!(resolve("acme/tiny").unwrap_err().code(), "ModelNotFound");
    let repository = cache.path().join("models--acme--tiny");
    let snapshot = repository.join("snapshots/0123abcd");
    for name in FILES {
        let to = snapshot.join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(tiny().join(name), to).unwrap();
    }
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), "0123abcd\n").unwrap();
    let model = resolve("acme/tiny").unwrap();
    let same = Transformer::from_directory(&tiny()).unwrap();
    assert_eq!(model.definition(), same.definition());
    for other in ["tiny", "acme/other", "acme/../tiny"] {
        assert!(matches!(
            resolve(other).unwrap_err().code(),
            "ModelNotFound" | "SourceNotAllowed"
        ));
    }
    // Another snapshot becomes the main one.
    let other = repository.join("snapshots/4567cdef");
    for name in FILES {
        let to = other.join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(tiny().join(name), to).unwrap();
    }
    let pooling = r#"{"pooling_mode": "cls"}"#;
    std::fs::write(other.join("1_Pooling/config.json"), pooling).unwrap();
    assert!(Arc::ptr_eq(&model, &resolve("acme/tiny").unwrap()));
    std::fs::write(repository.join("refs/main"), "4567cdef").unwrap();
    let moved = resolve("acme/tiny").unwrap();
    assert_ne!(moved.definition(), model.definition());
    for revision in ["../../..", "/etc", ""] {
        std::fs::write(repository.join("refs/main"), revision).unwrap();
        let fresh = ModelRegistry::default();
        assert_eq!(
            fresh.resolve_now("acme/tiny", &policy).unwrap_err().code(),
            "ModelNotFound"
        );
    }
}
