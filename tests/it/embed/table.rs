//! Token tables of directories: `static:/dir`.

use std::path::Path;
use std::sync::Arc;

use arrow::array::Array;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use stratagraph::Result;
use stratagraph::embed::{
    Embedded, Embedder, ModelPolicy, ModelRegistry, RejectReason, Role, embed_checked_sync,
};
use stratagraph::limits;
use tempfile::TempDir;

use super::vector;

const TOKENS: [&str; 8] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "sea", "##s", "wind", "é",
];
const SEA: usize = 4;
const TABLE: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "config.json";

fn policy() -> ModelPolicy {
    ModelPolicy {
        allow_paths_and_urls: true,
        hub_cache: None,
    }
}

/// A tensor: name, type, shape, bytes.
type Tensor<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

fn tensors(list: &[Tensor<'_>]) -> Vec<u8> {
    let views = list.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name.to_string(), view)
    });
    safetensors::serialize(views, None).unwrap()
}

fn bytes<T: Copy, const N: usize>(numbers: &[T], le: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| le(*number)).collect()
}

fn f32s<'a>(name: &'a str, shape: Vec<usize>, numbers: &[f32]) -> Tensor<'a> {
    (name, Dtype::F32, shape, bytes(numbers, f32::to_le_bytes))
}

/// Two components for each token: its number, and minus its number but for the first three.
fn numbers() -> Vec<f32> {
    let token = |id: usize| {
        let sign = if id < 3 { 1.0 } else { -1.0 };
        [id as f32, sign * id as f32 / 2.0]
    };
    (0..TOKENS.len()).flat_map(token).collect()
}

fn tokenizer() -> Value {
    let mut file: Value = serde_json::from_str(include_str!("tokenizer.json")).unwrap();
    let vocabulary = TOKENS.iter().enumerate().map(|(id, token)| (*token, id));
    file["model"]["vocab"] = vocabulary
        .map(|(t, id)| (t.to_owned(), json!(id)))
        .collect();
    let special = |id: usize| {
        let mut token = file["added_tokens"][0].clone();
        token["id"] = json!(id);
        token["content"] = json!(TOKENS[id]);
        token
    };
    file["added_tokens"] = (0..4).map(special).collect();
    file
}

/// A directory of a model.
struct Model(TempDir);

impl Model {
    fn new() -> Self {
        let model = Self(tempfile::tempdir().unwrap());
        let rows = f32s("embeddings", vec![TOKENS.len(), 2], &numbers());
        model.write(TABLE, &tensors(&[rows]));
        model.write(TOKENIZER, tokenizer().to_string().as_bytes());
        model.write(CONFIG, br#"{"normalize":false}"#);
        model
    }

    /// The same with another table.
    fn of(list: &[Tensor<'_>]) -> Self {
        let model = Self::new();
        model.write(TABLE, &tensors(list));
        model
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn open(&self) -> Result<Arc<dyn Embedder>> {
        open(&ModelRegistry::default(), self.0.path())
    }

    fn embed(&self, texts: &[Option<&str>]) -> Embedded {
        let model = self.open().unwrap();
        embed_checked_sync(model.as_ref(), Role::Document, texts)
            .unwrap()
            .unwrap()
    }

    fn one(&self, text: &str) -> Option<Vec<f32>> {
        vector(&self.embed(&[Some(text)]), 0)
    }

    /// The error of opening it, with its file.
    fn refusal(&self) -> (String, String) {
        let error = self.open().unwrap_err();
        match &error {
            stratagraph::Error::ModelInvalid { file, .. } => (file.clone(), error.to_string()),
            _ => panic!("{error:?}"),
        }
    }
}

fn open(registry: &ModelRegistry, directory: &Path) -> Result<Arc<dyn Embedder>> {
    let spec = format!("static:{}", directory.display());
    registry.resolve_now(&spec, &policy()).map(Option::unwrap)
}

#[test]
fn a_vector_is_the_mean_of_its_tokens() {
    let model = Model::new();
    for (text, mean) in [
        ("sea", Some(vec![4.0, -2.0])),
        ("Sea WIND", Some(vec![5.0, -2.5])),
        ("seas wind", Some(vec![5.0, -2.5])),
        (
            "sea sea wind wind wind wind",
            Some(vec![16.0 / 3.0, -8.0 / 3.0]),
        ),
        // Unknown words have no part; special tokens are found as they are written.
        ("fire sea fire", Some(vec![4.0, -2.0])),
        ("sea[SEP]", Some(vec![3.5, -1.75])),
        // The vocabulary's own accent is stripped from every text.
        ("é", None),
        ("fire", None),
        ("[PAD]", None),
        (" \n", None),
    ] {
        assert_eq!(model.one(text), mean, "{text:?}");
    }
    model.write(CONFIG, b"{}");
    let half = (1.0f64 / 5.0).sqrt();
    let unit = vec![(2.0 * half) as f32, (-half) as f32];
    assert_eq!(model.one("sea"), Some(unit.clone()));
    model.remove(CONFIG);
    assert_eq!(model.one("wind sea"), Some(unit));
}

#[test]
fn every_type_of_table_gives_the_same_vector() {
    let numbers: Vec<f32> = numbers().iter().map(|x| x * 2.0).collect();
    let integers: Vec<i8> = numbers.iter().map(|x| *x as i8).collect();
    // Small integers in the upper half of an f32, and in binary16 by its powers of two.
    let brain: Vec<u16> = numbers.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let half = |x: &f32| match *x {
        0.0 => 0,
        x => {
            let bits = x.to_bits();
            let exponent = (bits >> 23 & 0xFF) - 127 + 15;
            (bits >> 16 & 0x8000 | exponent << 10 | bits >> 13 & 0x3FF) as u16
        }
    };
    let halves: Vec<u16> = numbers.iter().map(half).collect();
    let shape = || vec![TOKENS.len(), 2];
    let tables: [Tensor<'_>; 4] = [
        f32s("embeddings", shape(), &numbers),
        (
            "embedding.weight",
            Dtype::F16,
            shape(),
            bytes(&halves, u16::to_le_bytes),
        ),
        (
            "embeddings",
            Dtype::BF16,
            shape(),
            bytes(&brain, u16::to_le_bytes),
        ),
        (
            "embedding.weight",
            Dtype::I8,
            shape(),
            bytes(&integers, i8::to_le_bytes),
        ),
    ];
    for table in tables {
        let model = Model::of(&[table]);
        assert_eq!(model.one("seas wind").unwrap(), [10.0, -5.0]);
        model.write(CONFIG, br#"{"normalize":null}"#);
        let vector = model.one("seas sea").unwrap();
        assert_eq!(
            vector,
            [(2.0 / 5f64.sqrt()) as f32, (-1.0 / 5f64.sqrt()) as f32]
        );
    }
}

#[test]
fn tokens_may_share_rows_and_have_weights() {
    let rows = || f32s("embeddings", vec![2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let mapping = [0i64, 0, 0, 0, 0, 1, 1, 1];
    let weights = [1.0, 1.0, 1.0, 1.0, 0.5, 2.0, -1.0, 1.0];
    let narrow: Vec<i32> = mapping.iter().map(|row| *row as i32).collect();
    let single: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
    for (mapping, weights) in [
        (
            (
                "mapping",
                Dtype::I64,
                vec![8],
                bytes(&mapping, i64::to_le_bytes),
            ),
            (
                "weights",
                Dtype::F64,
                vec![8],
                bytes(&weights, f64::to_le_bytes),
            ),
        ),
        (
            (
                "mapping",
                Dtype::I32,
                vec![8],
                bytes(&narrow, i32::to_le_bytes),
            ),
            f32s("weights", vec![8], &single),
        ),
    ] {
        let model = Model::of(&[rows(), mapping.clone(), weights]);
        assert_eq!(model.one("seas wind").unwrap(), [0.5 / 3.0, 1.0 / 3.0]);
        let unweighed = Model::of(&[rows(), mapping]);
        assert_eq!(unweighed.one("seas wind").unwrap(), [1.0 / 3.0, 2.0 / 3.0]);
    }
}

#[test]
fn refused_rows_have_their_reason() {
    let long = "sea ".repeat(limits::TEXT_BYTES / 4);
    let longer = format!("{long}s");
    let texts = [
        None,
        Some(""),
        Some("fire"),
        Some(longer.as_str()),
        Some(long.as_str()),
    ];
    let out = Model::new().embed(&texts);
    assert_eq!(
        out.errors,
        [
            (0, RejectReason::Empty),
            (1, RejectReason::Empty),
            (2, RejectReason::ZeroNorm),
            (3, RejectReason::TooLong)
        ]
    );
    assert_eq!((out.vectors.null_count(), out.truncated), (4, 0));
    assert_eq!(vector(&out, 4).unwrap(), [4.0, -2.0]);
}

/// A file of tensors is refused for `reason`.
fn refused(file: &[u8], reason: &str) {
    let model = Model::new();
    model.write(TABLE, file);
    let (named, message) = model.refusal();
    assert_eq!(named, TABLE, "{message}");
    assert!(message.contains(reason), "{reason}: {message}");
}

fn rows(shape: Vec<usize>) -> Tensor<'static> {
    f32s("embeddings", shape, &numbers())
}

/// A file whose header says `json`, without any number behind it.
fn header_alone(json: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json].concat()
}

#[test]
fn malformed_tables_are_typed() {
    let good = tensors(&[rows(vec![8, 2])]);
    let mut infinite = numbers();
    infinite[7] = f32::NAN;
    let mut header = good.clone();
    header[..8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let overflow = header_alone(
        br#"{"embeddings":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#,
    );
    let empty = header_alone(
        br#"{"embeddings":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}}"#,
    );
    let wide = f32s("embeddings", vec![1, 65_537], &[1.0; 65_537]);
    let infinite = f32s("embeddings", vec![8, 2], &infinite);
    let long = ("embeddings", Dtype::I64, vec![1, 1], vec![0; 8]);
    for (file, reason) in [
        (Vec::new(), "tensors"),
        (good[..good.len() - 1].to_vec(), "tensors"),
        (good[..20].to_vec(), "tensors"),
        (header, "tensors"),
        (overflow, "tensors"),
        (empty, "components"),
        (tensors(&[f32s("other", vec![16], &numbers())]), "neither"),
        (tensors(&[rows(vec![16])]), "shape"),
        (tensors(&[rows(vec![2, 4, 2])]), "shape"),
        (tensors(&[rows(vec![4, 4])]), "8 tokens have 4 rows"),
        (tensors(&[wide]), "components"),
        (tensors(&[infinite]), "finite"),
        (tensors(&[long]), "type"),
    ] {
        refused(&file, reason);
    }
}

#[test]
fn malformed_mappings_and_weights_are_typed() {
    let mapping = |rows: [i64; 8]| bytes(&rows, i64::to_le_bytes);
    let beyond = mapping([0, 1, 2, 3, 4, 5, 6, 8]);
    let negative = mapping([0, 1, 2, 3, 4, 5, 6, -1]);
    let most = mapping([i64::MAX; 8]);
    for (name, dtype, shape, bytes, reason) in [
        ("mapping", Dtype::I64, vec![8], beyond, "row 8 of 8"),
        ("mapping", Dtype::I64, vec![8], negative, "row -1"),
        ("mapping", Dtype::I64, vec![8], most, "row 9"),
        ("mapping", Dtype::I64, vec![4, 2], vec![0; 64], "shape"),
        (
            "mapping",
            Dtype::I32,
            vec![7],
            vec![0; 28],
            "8 tokens have 7",
        ),
        ("mapping", Dtype::F32, vec![8], vec![0; 32], "type"),
        ("weights", Dtype::F32, vec![7], vec![0; 28], "7 weights"),
        ("weights", Dtype::F32, vec![8], vec![0xFF; 32], "finite"),
        ("weights", Dtype::F16, vec![8], vec![0; 16], "type"),
        ("weights", Dtype::F32, vec![2, 4], vec![0; 32], "shape"),
    ] {
        let list = [rows(vec![8, 2]), (name, dtype, shape, bytes)];
        refused(&tensors(&list), reason);
    }
}

#[test]
fn missing_and_malformed_files_are_named() {
    for (name, content, reason) in [
        (TABLE, None, "does not exist"),
        (TOKENIZER, Some("{"), "JSON"),
        (TOKENIZER, Some("[]"), ""),
        (CONFIG, Some("[]"), "object"),
        (CONFIG, Some(r#"{"normalize":1}"#), "normalize"),
        (CONFIG, Some("\u{0}"), "JSON"),
    ] {
        let model = Model::new();
        match content {
            Some(content) => model.write(name, content.as_bytes()),
            None => model.remove(name),
        }
        let (named, message) = model.refusal();
        assert_eq!(named, name, "{message}");
        assert!(message.contains(reason), "{message}");
    }
    let model = Model::new();
    model.remove(TOKENIZER);
    assert!(
        model
            .refusal()
            .1
            .contains("neither tokenizer.json nor vocab.txt")
    );
}

#[test]
fn tokenizers_that_are_none_are_refused() {
    for (pointer, value, reason) in [
        ("/model/unk_token", json!("[NO]"), "unknown words"),
        ("/model/vocab/sea", json!(-1), "sea"),
        ("/model/vocab/sea", json!(u32::MAX), "sea"),
        ("/model/vocab/sea", json!(4_294_967_294u32), "rows"),
        ("/model/type", json!("NoPiece"), ""),
    ] {
        let model = Model::new();
        let mut file = tokenizer();
        *file.pointer_mut(pointer).unwrap() = value;
        model.write(TOKENIZER, file.to_string().as_bytes());
        let (_, message) = model.refusal();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn other_tokenizers_need_the_crate() {
    let model = Model::new();
    let mut file = tokenizer();
    file["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
    model.write(TOKENIZER, file.to_string().as_bytes());
    if cfg!(feature = "candle") {
        // Nothing splits at the comma now.
        assert_eq!(model.one("sea wind").unwrap(), [5.0, -2.5]);
        assert_eq!(model.one("sea, wind").unwrap(), [6.0, -3.0]);
    } else {
        let (named, message) = model.refusal();
        assert_eq!(named, TOKENIZER);
        assert!(
            message.contains("pre_tokenizer") && message.contains("candle"),
            "{message}"
        );
    }
}

#[test]
fn a_vocabulary_alone_is_a_tokenizer() {
    let model = Model::new();
    model.remove(TOKENIZER);
    model.write("vocab.txt", TOKENS.join("\r\n").as_bytes());
    assert_eq!(model.one("SEAS wind").unwrap(), [5.0, -2.5]);
    assert_eq!(model.one("é"), None);
    for (config, text, mean) in [
        (json!({}), "SEA", Some(SEA)),
        (json!({"do_lower_case": false}), "SEA", None),
        (json!({"do_lower_case": false}), "sea", Some(SEA)),
        (json!({"do_lower_case": false}), "é", Some(7)),
        (json!({"strip_accents": false}), "É", Some(7)),
        (
            json!({"strip_accents": true, "do_lower_case": false}),
            "séa",
            Some(SEA),
        ),
        (
            json!({"tokenizer_class": "BertTokenizerFast"}),
            "[SEP]",
            Some(3),
        ),
        (json!({"sep_token": {"content": "[CLS]"}}), "[SEP]", None),
        (json!({"unk_token": "sea"}), "wind fire", Some(6)),
    ] {
        model.write("tokenizer_config.json", config.to_string().as_bytes());
        let first = model.one(text).map(|vector| vector[0]);
        assert_eq!(first, mean.map(|token| token as f32), "{config} {text}");
    }
    for config in [
        json!({"tokenizer_class": "XLMRobertaTokenizer"}),
        json!({"do_basic_tokenize": false}),
        json!({"never_split": ["a"]}),
        json!({"added_tokens_decoder": {"0": {}}}),
        json!({"do_lower_case": "yes"}),
        json!({"unk_token": "[NO]"}),
        json!({"unk_token": 1}),
    ] {
        model.write("tokenizer_config.json", config.to_string().as_bytes());
        assert_eq!(model.refusal().0, "tokenizer_config.json", "{config}");
    }
    model.remove("tokenizer_config.json");
    model.write("vocab.txt", b"[UNK]\n\xFF");
    assert_eq!(model.refusal().0, "vocab.txt");
}

#[test]
fn every_byte_of_every_file_is_in_the_definition() {
    let model = Model::new();
    let before = model.open().unwrap();
    assert_eq!(before.definition().value()["parameters"]["pooling"], "mean");
    for name in [TABLE, TOKENIZER, CONFIG] {
        let path = model.path(name);
        let good = std::fs::read(&path).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1;
            model.write(name, &flipped);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
            match model.open() {
                Ok(after) => {
                    assert_ne!(
                        after.definition().hash(),
                        before.definition().hash(),
                        "{name} {at}"
                    );
                }
                Err(error) => assert_eq!(error.code(), "ModelInvalid", "{name} {at}: {error}"),
            }
        }
        model.write(name, &good);
    }
    assert_eq!(model.open().unwrap().definition(), before.definition());
}

#[test]
fn a_path_is_no_part_of_the_definition() {
    let (a, b) = (Model::new().open().unwrap(), Model::new().open().unwrap());
    assert_eq!(a.definition(), b.definition());
    assert_ne!(a.spec(), b.spec());
}

#[test]
fn changed_files_are_opened_again() {
    let model = Model::new();
    let registry = ModelRegistry::default();
    let resolve = || open(&registry, model.0.path()).unwrap();
    let first = resolve();
    assert!(Arc::ptr_eq(&first, &resolve()));
    for name in [TABLE, TOKENIZER, CONFIG] {
        let path = model.path(name);
        let before = resolve();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        // The times of files move in steps.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut content = std::fs::read(&path).unwrap();
        if name == TABLE {
            let last = content.len() - 2;
            content[last] ^= 1;
        } else {
            content.push(b' ');
        }
        model.write(name, &content);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        let after = resolve();
        assert_ne!(
            before.definition().hash(),
            after.definition().hash(),
            "{name}"
        );
        assert!(Arc::ptr_eq(&after, &resolve()), "{name}");
    }
    // A file that was looked for in vain and is there now.
    model.remove(CONFIG);
    let without = resolve();
    model.write(CONFIG, b"{}");
    assert!(!Arc::ptr_eq(&without, &resolve()));
}
