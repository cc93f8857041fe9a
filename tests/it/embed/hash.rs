//! The lexical model: `hash:<dimensions>`.

use arrow::array::Array;
use proptest::prelude::*;
use stratagraph::digest::Hasher;
use stratagraph::embed::{
    Embedder, HashEmbedder, RejectReason, Role, SyncEmbedder, batches, embed_checked_sync,
    vector_type,
};
use stratagraph::limits;

use super::{cosine, embed, model, one, vector};

#[test]
fn vectors_and_definition_are_golden() {
    // Computed by a second implementation, in Python, of the steps in the module's documentation.
    let vector = one(8, "Core utilities for Python packages").unwrap();
    let golden = [
        0.0,
        0.0,
        0.12909944,
        -0.2581989,
        -0.12909944,
        -0.12909944,
        -0.9036961,
        0.2581989,
    ];
    assert_eq!(vector, golden);

    let texts = [
        "The AWS SDK for Python (Boto3)",
        "naïve Straße ΣΊΣΥΦΟΣ İstanbul",
        "入門 Python プログラミング 한국어",
        "🚀 → ✨!!",
        "x",
        "a\u{301} \u{200b}",
    ];
    let mut hasher = Hasher::new("golden");
    for dimensions in [1, 2, 384, 1024] {
        for text in texts {
            for component in one(dimensions, text).unwrap() {
                hasher.part(&component.to_bits().to_le_bytes());
            }
        }
    }
    assert_eq!(
        hasher.finish().to_string(),
        "7c0b16bb329c8d863293efd278c9a19b5dd117242e40f93b2a2e0e08404efd0b"
    );
    assert_eq!(
        model(384).definition().hash().to_string(),
        "0694a9e3717cd648bb8f688b792fd2031d34b0fabd9802acd163430f7f3d74d8"
    );
}

#[test]
fn only_texts_without_any_mark_are_refused() {
    let texts = [
        None,
        Some(""),
        Some(" "),
        Some("\t\r\n\u{a0}\u{2003}\u{3000}"),
        Some("x"),
    ];
    let out = embed(384, &texts);
    assert_eq!(
        out.errors,
        [
            (0, RejectReason::Empty),
            (1, RejectReason::Empty),
            (2, RejectReason::ZeroNorm),
            (3, RejectReason::ZeroNorm)
        ]
    );
    assert_eq!(out.vectors.null_count(), 4);
    assert_eq!(out.vectors.data_type(), &vector_type(384).unwrap());
}

#[test]
fn every_character_of_every_script_embeds() {
    let all: Vec<char> = (0..=0x10_FFFF).filter_map(char::from_u32).collect();
    for chunk in all.chunks(4096) {
        let texts: Vec<String> = chunk.iter().map(char::to_string).collect();
        let texts: Vec<Option<&str>> = texts.iter().map(|t| Some(t.as_str())).collect();
        let out = embed(2, &texts);
        for (row, c) in chunk.iter().enumerate() {
            assert_eq!(out.vectors.is_null(row), c.is_whitespace(), "{c:?}");
        }
    }
}

#[test]
fn a_text_may_be_as_long_as_the_limit() {
    for (length, refused) in [(-1, false), (0, false), (1, true)] {
        let text = "a".repeat(limits::TEXT_BYTES.checked_add_signed(length).unwrap());
        let out = embed(4, &[Some(&text), Some("b")]);
        assert_eq!(out.vectors.is_null(0), refused, "{length}");
        assert!(out.vectors.is_valid(1));
        let expected = [(0, RejectReason::TooLong)];
        assert_eq!(out.errors, expected[..usize::from(refused)]);
    }
}

#[test]
fn dimensions_are_bounded_at_both_ends() {
    for good in [1, 2, limits::DIMENSIONS - 1, limits::DIMENSIONS] {
        let vector = one(good, "text").unwrap();
        assert_eq!(vector.len(), good);
        let norm: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-6, "{good}");
        assert!(model(good).limits().rows >= 1);
    }
    let below = HashEmbedder::new(0).unwrap_err();
    assert_eq!(below.code(), "InvalidArgument");
    let above = HashEmbedder::new(limits::DIMENSIONS + 1).unwrap_err();
    assert_eq!(above.code(), "ResourceLimitExceeded");
}

#[test]
fn every_width_has_its_own_definition() {
    let (a, b) = (model(384), model(385));
    assert_ne!(a.definition().hash(), b.definition().hash());
    assert_eq!(a.definition(), model(384).definition());
    assert_eq!(a.definition().value()["dimensions"], 384);
    assert_eq!(a.spec(), "hash:384");
}

#[test]
fn case_and_punctuation_between_words_do_not_count() {
    for (a, b) in [
        ("HTTP Client", "http client"),
        ("http client", "http, (client)!"),
        ("ÉCOLE", "école"),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
    ] {
        assert_eq!(one(384, a), one(384, b), "{a} {b}");
    }
    assert_ne!(one(384, "!!"), one(384, "!"));
    assert_ne!(one(384, "🚀"), one(384, "✨"));
}

#[test]
fn shared_words_and_stems_score_above_unrelated_texts() {
    let cases = [
        (
            "HTTP client library",
            "a library for HTTP clients",
            "numerical linear algebra",
        ),
        (
            "parser for configuration files",
            "configuration file parsing",
            "asynchronous web server",
        ),
        ("postgresql driver", "postgresqll drivers", "image viewer"),
        ("機械学習ライブラリ", "機械学習の入門", "天気予報アプリ"),
        (
            "библиотека для парсинга",
            "парсинг и библиотеки",
            "погода в городе",
        ),
        ("데이터베이스 드라이버", "데이터베이스", "날씨 예보"),
        ("🚀🚀✨", "🚀✨", "→←"),
    ];
    for (query, near, far) in cases {
        let [query_vector, near_vector, far_vector] =
            [query, near, far].map(|text| one(384, text).unwrap());
        let near = cosine(&query_vector, &near_vector);
        let far = cosine(&query_vector, &far_vector);
        assert!(near > far + 0.2, "{query}: {near} against {far}");
    }
}

#[test]
fn words_that_share_no_gram_are_nearly_orthogonal() {
    let words: Vec<String> = (0..40u32)
        .map(|i| {
            (0..9)
                .map(|j| char::from_u32(0x4E00 + i * 9 + j).unwrap())
                .collect()
        })
        .collect();
    let vectors: Vec<Vec<f32>> = words.iter().map(|w| one(4096, w).unwrap()).collect();
    for (i, a) in vectors.iter().enumerate() {
        for b in &vectors[..i] {
            assert!(cosine(a, b).abs() < 0.2);
        }
    }
}

fn texts() -> impl Strategy<Value = Vec<Option<String>>> {
    let text = prop_oneof![
        Just(None),
        "\\PC{0,40}".prop_map(Some),
        "[a-zA-Z ]{0,60}".prop_map(Some),
        "[ \\n\\t\u{3000}]{0,4}".prop_map(Some),
        "[\u{4e00}-\u{4e20}\u{3041}-\u{3050}а-яё]{0,12}".prop_map(Some),
        any::<String>().prop_map(Some),
    ];
    prop::collection::vec(text, 0..24)
}

proptest! {
    #[test]
    fn bits_do_not_depend_on_the_batch(
        texts in texts(), rows in 1usize..9, bytes in 0usize..64, dimensions in 1usize..70,
    ) {
        let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let whole = embed(dimensions, &texts);
        let limits = stratagraph::embed::BatchLimits { rows, bytes };
        let mut seen = 0;
        for range in batches(&texts, limits) {
            prop_assert_eq!(range.start, seen);
            let part = embed(dimensions, &texts[range.clone()]);
            for (i, row) in range.clone().enumerate() {
                prop_assert_eq!(vector(&part, i), vector(&whole, row));
            }
            seen = range.end;
        }
        prop_assert_eq!(seen, texts.len());
        let checked = embed_checked_sync(&model(dimensions), Role::Query, &texts).unwrap().unwrap();
        prop_assert_eq!(checked, whole);
    }

    #[test]
    fn a_text_with_a_mark_has_a_unit_vector(text in any::<String>(), dimensions in 1usize..70) {
        match one(dimensions, &text) {
            Some(vector) => {
                let norm: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
                prop_assert!((norm - 1.0).abs() < 1e-5);
            }
            None => prop_assert!(text.chars().all(char::is_whitespace)),
        }
    }

    #[test]
    fn the_order_of_words_does_not_count(words in prop::collection::vec("[a-z]{1,9}", 1..9)) {
        let forward = words.join(" ");
        let backward: Vec<&str> = words.iter().rev().map(String::as_str).collect();
        let (a, b) = (one(256, &forward).unwrap(), one(256, &backward.join(" ")).unwrap());
        prop_assert_eq!(a, b);
    }
}

#[test]
fn an_empty_batch_is_an_empty_answer() {
    let out = model(3).embed_now(Role::Document, &[]).unwrap();
    assert_eq!((out.vectors.len(), out.errors.len()), (0, 0));
}
