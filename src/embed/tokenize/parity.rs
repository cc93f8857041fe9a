//! Our tokenizer against the crate `tokenizers`.
//!
//! With `STRATAGRAPH_MINILM_DIR` (a directory of all-MiniLM-L6-v2) and `STRATAGRAPH_TEXTS` (files
//! joined by `:`, a text a line) the real vocabulary is compared over real texts too.

#![cfg(feature = "candle")]

use std::io::BufRead as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::{NormalizedString, Normalizer as _};

use super::foreign::Foreign;
use super::normal::{Marks, Rules};
use super::settings::{Refused, of_tokenizer};
use super::word_piece::WordPiece;

const SMALL: &str = include_str!("../../../tests/it/embed/tokenizer.json");

struct Pair {
    ours: WordPiece,
    theirs: tokenizers::Tokenizer,
}

impl Pair {
    fn new(file: &Value) -> Self {
        let mut theirs: tokenizers::Tokenizer = file.to_string().parse().unwrap();
        theirs.with_truncation(None).unwrap();
        theirs.with_padding(None);
        let ours = of_tokenizer(file).unwrap();
        Self { ours, theirs }
    }

    fn theirs(&self, text: &str) -> Vec<u32> {
        let encoding = self.theirs.encode_fast(text, false).unwrap();
        encoding.get_ids().to_vec()
    }

    fn ours(&self, text: &str, limit: usize) -> (Vec<u32>, bool) {
        let mut ids = vec![7];
        let more = self.ours.encode(text, limit, &mut ids);
        assert_eq!(ids.remove(0), 7);
        (ids, more)
    }

    /// Compares whole, and cut at every length near the ends.
    fn compare(&self, text: &str) {
        let theirs = self.theirs(text);
        assert_eq!(
            self.ours(text, usize::MAX),
            (theirs.clone(), false),
            "{text:?}"
        );
        let length = theirs.len();
        for limit in [
            0,
            1,
            2,
            length / 2,
            length.saturating_sub(1),
            length,
            length + 1,
        ] {
            let cut = theirs[..limit.min(length)].to_vec();
            assert_eq!(
                self.ours(text, limit),
                (cut, length > limit),
                "{text:?} {limit}"
            );
        }
    }
}

fn small() -> Value {
    serde_json::from_str(SMALL).unwrap()
}

/// The small tokenizer with every setting that ours can have.
fn variants() -> Vec<Pair> {
    let mut all = vec![Pair::new(&small())];
    for (pointer, value) in [
        ("/normalizer/clean_text", json!(false)),
        ("/normalizer/handle_chinese_chars", json!(false)),
        ("/normalizer/strip_accents", json!(false)),
        ("/normalizer/lowercase", json!(false)),
        ("/model/max_input_chars_per_word", json!(3)),
        ("/model/max_input_chars_per_word", json!(0)),
        ("/model/continuing_subword_prefix", json!("")),
        ("/model/continuing_subword_prefix", json!("a")),
        ("/model/unk_token", json!("the")),
        ("/added_tokens", json!([])),
        ("/added_tokens", Value::Null),
        ("/post_processor", Value::Null),
    ] {
        let mut file = small();
        *file.pointer_mut(pointer).unwrap() = value;
        if file["added_tokens"].is_null() {
            file.as_object_mut().unwrap().remove("added_tokens");
        }
        all.push(Pair::new(&file));
    }
    let mut cased = small();
    cased["normalizer"]["lowercase"] = json!(false);
    cased["normalizer"]["strip_accents"] = json!(true);
    all.push(Pair::new(&cased));
    all
}

const NASTY: &[&str] = &[
    "",
    " ",
    "  ",
    "a",
    "the",
    "The",
    "THE",
    "token",
    "tokens",
    "unaffable",
    "running",
    "Word",
    "ab",
    "abcd",
    "19",
    "2024",
    "0000",
    "é",
    "É",
    "e\u{301}",
    "ñ",
    "ü",
    "Straße",
    "STRASSE",
    "ẞ",
    "ß",
    "İstanbul",
    "ı",
    "İ",
    "i\u{307}",
    "ΣΊΣΥΦΟΣ",
    "σας",
    "ς",
    "Москва",
    "й",
    "Ё",
    "ﬁ",
    "ﬃ",
    "Ａ",
    "ｆｏｏ",
    "１",
    "！",
    "日本語",
    "東京",
    "一",
    "\u{F900}",
    "\u{2F800}",
    "\u{20000}",
    "\u{2CEB0}",
    "カタカナ",
    "ガ",
    "か\u{3099}",
    "ﾊﾟ",
    "한국어",
    "한",
    "\u{1112}\u{1161}\u{11AB}",
    "ภาษาไทย",
    "น้ำ",
    "हिन्दी",
    "क्ष",
    "שלום",
    "שָׁלוֹם",
    "العربية",
    "لَا",
    "👩\u{200D}🚀",
    "👍🏽",
    "🇩🇪",
    "❤\u{FE0F}",
    "\u{0}",
    "\u{1}",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u{B}",
    "\u{C}",
    "\u{1F}",
    "\u{7F}",
    "\u{85}",
    "\u{A0}",
    "\u{AD}",
    "\u{200B}",
    "\u{200E}",
    "\u{2028}",
    "\u{2029}",
    "\u{202F}",
    "\u{2003}",
    "\u{3000}",
    "\u{FEFF}",
    "\u{FFFD}",
    "\u{FFFF}",
    "\u{E000}",
    "\u{10FFFF}",
    "\u{301}",
    "\u{300}",
    "\u{327}",
    "\u{323}",
    "\u{34F}",
    "\u{345}",
    "\u{20DD}",
    "\u{302E}",
    "\u{302F}",
    "\u{1B44}",
    "\u{1D165}",
    "\u{1D16D}",
    "\u{1D15F}",
    "\u{1D1BC}",
    "\u{8E3}",
    "\u{8D4}",
    "\u{1DFB}",
    "\u{1E944}",
    "\u{1E922}",
    "\u{105C9}",
    "\u{11938}",
    "\u{1612F}",
    "\u{16121}",
    "\u{1715}",
    "\u{FB2C}",
    "\u{344}",
    "\u{F73}",
    "\u{212B}",
    "\u{2126}",
    "\u{1E9B}\u{323}",
    "Ǆ",
    "ǅ",
    "Ა",
    "ა",
    "Ꭰ",
    "ꭰ",
    "¿",
    "¡",
    "—",
    "…",
    "€",
    "·",
    "‚",
    "«",
    "。",
    "、",
    "؟",
    "༎",
    "\u{2E5D}",
    "\u{10AF0}",
    "\u{11C41}",
    "[SEP]",
    "[CLS]",
    "[cls]",
    "[CLS][SEP]!",
    "[CLS][SEP]",
    "[MASK]",
    " [MASK] ",
    "[UNK]",
    "[PAD]",
    "[",
    "]",
    "##s",
    "##",
    "#",
    "don't",
    "a-b",
    "x_y",
    "C++",
    "$5",
    "a.b@c.d",
    "wordwordwordwordwordword",
    "\u{1F80}",
    "\u{1FFC}",
    "\u{130}\u{301}",
    "K",
    "\u{A64A}",
    "\u{1C80}",
    "ΐ",
    "\u{385}",
];

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(NASTY).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "[a-z]{90,110}",
        1 => "[a-zA-Z0-9 ]{0,20}",
        1 => "[\u{300}-\u{370}]{1,5}",
        1 => "[\u{1100}-\u{11ff}\u{ac00}-\u{d7a3}]{1,4}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_text_has_the_same_tokens(text in texts()) {
        thread_local!(static PAIRS: Vec<Pair> = variants());
        PAIRS.with(|pairs| pairs.iter().for_each(|pair| pair.compare(&text)));
    }

    #[test]
    fn any_text_has_the_same_normal_form(text in texts()) {
        all_rules().for_each(|rules| same_normal_form(&text, rules));
    }
}

fn all_rules() -> impl Iterator<Item = Rules> {
    (0..16).map(|bits| Rules {
        clean: bits & 1 != 0,
        space_ideographs: bits & 2 != 0,
        strip_accents: bits & 4 != 0,
        lowercase: bits & 8 != 0,
    })
}

fn same_normal_form(text: &str, rules: Rules) {
    let theirs = BertNormalizer::new(
        rules.clean,
        rules.space_ideographs,
        Some(rules.strip_accents),
        rules.lowercase,
    );
    let mut expected = NormalizedString::from(text);
    theirs.normalize(&mut expected).unwrap();
    let (mut marks, mut out) = (Marks::default(), String::new());
    for c in text.chars() {
        marks.push(c, rules, &mut |c| out.push(c));
    }
    marks.flush(rules, &mut |c| out.push(c));
    assert_eq!(out, expected.get(), "{text:?} {rules:?}");
}

fn scalars() -> Vec<char> {
    (0..=0x10_FFFF).filter_map(char::from_u32).collect()
}

#[test]
fn nasty_texts_are_alike_alone_and_in_pairs() {
    let pairs = variants();
    for first in NASTY {
        for second in NASTY {
            let text = format!("{first}{second}");
            for pair in &pairs {
                let theirs = pair.theirs(&text);
                assert_eq!(pair.ours(&text, usize::MAX), (theirs, false), "{text:?}");
            }
        }
    }
}

#[test]
fn every_character_has_the_same_normal_form() {
    for chunk in scalars().chunks(256) {
        let text: String = chunk.iter().flat_map(|c| ['a', *c, 'b', *c]).collect();
        all_rules().for_each(|rules| same_normal_form(&text, rules));
    }
}

/// Words of letters that are in the vocabulary, cut by each character or not.
#[test]
fn every_character_cuts_words_alike() {
    for pair in variants().iter().take(2) {
        for chunk in scalars().chunks(64) {
            let text: String = chunk
                .iter()
                .flat_map(|c| ['a', *c, 'b', ' ', *c, ' '])
                .collect();
            assert_eq!(
                pair.ours(&text, usize::MAX),
                (pair.theirs(&text), false),
                "{chunk:?}"
            );
        }
    }
}

#[test]
fn what_ours_cannot_do_is_left_to_the_crate() {
    let token = |member: &str, value: Value| {
        let mut token = small()["added_tokens"][0].clone();
        token[member] = value;
        token
    };
    for (pointer, value) in [
        ("/model/type", json!("BPE")),
        ("/model/continuing_subword_prefix", Value::Null),
        ("/normalizer", Value::Null),
        ("/normalizer/type", json!("NFC")),
        ("/normalizer/clean_text", Value::Null),
        ("/normalizer/strip_accents", json!("yes")),
        ("/pre_tokenizer", Value::Null),
        ("/pre_tokenizer/type", json!("Whitespace")),
        ("/added_tokens", json!({})),
        ("/added_tokens/0", token("normalized", json!(true))),
        ("/added_tokens/0", token("single_word", json!(true))),
        ("/added_tokens/0", token("content", json!(" [PAD]"))),
        ("/added_tokens/0", token("id", json!(1))),
        ("/added_tokens/0", token("lstrip", Value::Null)),
    ] {
        let mut file = small();
        *file.pointer_mut(pointer).unwrap() = value.clone();
        let refused = of_tokenizer(&file).unwrap_err();
        assert!(
            matches!(refused, Refused::Foreign(_)),
            "{pointer} {value} {refused:?}"
        );
    }
}

#[test]
fn frames_are_what_the_crate_puts_around_a_text() {
    let template = |single: Value| {
        let mut processor = small()["post_processor"].clone();
        processor["single"] = single;
        processor
    };
    let special = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let pair = |kind: &str| json!({"type": kind, "cls": ["[CLS]", 2], "sep": ["[SEP]", 4]});
    let mut roberta = pair("RobertaProcessing");
    roberta["trim_offsets"] = json!(true);
    roberta["add_prefix_space"] = json!(false);
    for (processor, frame) in [
        (small()["post_processor"].clone(), Some((2, 3))),
        (pair("BertProcessing"), Some((2, 4))),
        (roberta, Some((2, 4))),
        (
            template(json!([special("[SEP]"), text, special("[SEP]")])),
            Some((3, 3)),
        ),
        (template(json!([special("[CLS]"), text])), None),
        (template(json!([text])), None),
        (Value::Null, None),
    ] {
        let mut file = small();
        file["post_processor"] = processor;
        assert_eq!(of_tokenizer(&file).unwrap().frame(), frame);
        let bytes = file.to_string();
        let theirs = Foreign::new("m", bytes.as_bytes(), &file).unwrap();
        assert_eq!(theirs.frame(), frame);
    }
}

#[test]
fn the_crate_is_held_to_the_limit() {
    let file = small();
    let theirs = Foreign::new("m", SMALL.as_bytes(), &file).unwrap();
    let ours = of_tokenizer(&file).unwrap();
    assert_eq!(theirs.size(), ours.size());
    assert_eq!((theirs.unknown(), ours.unknown()), (Some(1), Some(1)));
    for text in NASTY {
        for limit in [0, 1, 2, usize::MAX] {
            let (mut a, mut b) = (vec![7], vec![7]);
            let more = theirs.encode(text, limit, &mut a).unwrap();
            // At a limit of 0 nothing is read, not even whether there is a token.
            let more = if limit == 0 {
                ours.encode(text, 0, &mut b)
            } else {
                more
            };
            assert_eq!(more, ours.encode(text, limit, &mut b), "{text:?} {limit}");
            assert_eq!(a, b, "{text:?} {limit}");
        }
    }
    // The end of a long text is not read, and its beginning is not cut within a character.
    let long = format!("a {}b", "\u{3000}".repeat(1000));
    let mut ids = Vec::new();
    assert!(theirs.encode(&long, 2, &mut ids).unwrap());
    assert_eq!(ids.len(), 1);
    assert!(!theirs.encode(&long, 3, &mut ids).unwrap());
    assert_eq!(ids.len(), 3);
}

/// `STRATAGRAPH_MINILM_DIR`, or `None` with a message.
fn minilm() -> Option<Pair> {
    let Some(directory) = std::env::var_os("STRATAGRAPH_MINILM_DIR") else {
        eprintln!("skipped: STRATAGRAPH_MINILM_DIR is not set");
        return None;
    };
    let path = std::path::Path::new(&directory).join("tokenizer.json");
    let file = std::fs::read(path).unwrap();
    Some(Pair::new(&serde_json::from_slice(&file).unwrap()))
}

#[test]
fn the_real_vocabulary_is_read_alike() {
    let Some(pair) = minilm() else { return };
    assert_eq!(pair.ours.size(), 30_522);
    assert_eq!(pair.ours.frame(), Some((101, 102)));
    assert_eq!(pair.ours.unknown(), Some(100));
    for c in scalars() {
        let mut texts = [c.to_string(), format!("a{c}b"), format!("straßen{c} {c}s")];
        for text in &mut texts {
            assert_eq!(
                pair.ours(text, usize::MAX),
                (pair.theirs(text), false),
                "{text:?}"
            );
        }
    }
    let files = std::env::var_os("STRATAGRAPH_TEXTS").unwrap_or_default();
    for file in std::env::split_paths(&files) {
        let reader = std::io::BufReader::new(std::fs::File::open(&file).unwrap());
        let mut lines = 0;
        for line in reader.split(b'\n') {
            pair.compare(&String::from_utf8_lossy(&line.unwrap()));
            lines += 1;
        }
        eprintln!("{}: {lines} texts", file.display());
    }
}
