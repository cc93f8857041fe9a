//! What matches, and what is refused.

use super::*;
use crate::text::{Expected, SegmentBuilder};

fn owned(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

fn found(texts: &[&str], query: &str, mode: Mode) -> Vec<u32> {
    let analyser = Analyser::default();
    let table = Table::new(&analyser, owned(texts), &[], |_| true, None);
    let query = TextQuery::new(&analyser, query, mode).unwrap();
    table
        .scores(&query)
        .into_keys()
        .map(|row| row as u32)
        .collect()
}

#[test]
fn modes_match_what_they_say() {
    let texts = [
        "Introduction to databases",
        "A fast key value store",
        "The store of the value of a key",
        "Point of sale",
        "point sale",
        "",
    ];
    assert_eq!(found(&texts, "KEYS", Mode::Bm25), [1, 2]);
    assert_eq!(found(&texts, "fast introduction", Mode::Bm25), [0, 1]);
    assert_eq!(found(&texts, "fast key", Mode::All), [1]);
    assert_eq!(found(&texts, "key value", Mode::Phrase), [1]);
    assert_eq!(found(&texts, "point of sale", Mode::Phrase), [3]);
    assert_eq!(found(&texts, "point sale", Mode::Phrase), [4]);
    assert_eq!(found(&texts, "sales", Mode::Phrase), [3, 4]);
    let fuzzy = |max_edits| Mode::Fuzzy { max_edits };
    assert_eq!(found(&texts, "Introductio", fuzzy(2)), [0]);
    assert_eq!(found(&texts, "vlaue", fuzzy(2)), [1, 2]);
    assert_eq!(found(&texts, "vlaue", fuzzy(1)), [0u32; 0]);
    for nothing in ["", "  ", "the of a", "👍 …", &"x".repeat(100), "absent"] {
        for mode in [Mode::Bm25, Mode::All, Mode::Phrase] {
            assert_eq!(found(&texts, nothing, mode), [0u32; 0], "{nothing:?}");
        }
    }
}

#[test]
fn a_missing_term_rules_every_mode_but_any_out() {
    let texts = ["red green", "red blue"];
    assert_eq!(found(&texts, "red black", Mode::Bm25), [0, 1]);
    assert_eq!(found(&texts, "red black", Mode::All), [0u32; 0]);
    assert_eq!(found(&texts, "red black", Mode::Phrase), [0u32; 0]);
}

#[test]
fn refused_arguments_and_cancelled_searches() {
    let english = Analyser::default();
    let simple = Analyser::parse("simple").unwrap();
    let error = TextQuery::new(&english, "x", Mode::Fuzzy { max_edits: 3 }).unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    let table = Table::new(&english, owned(&["one two"]), &[], |_| true, None);
    let other = TextQuery::new(&simple, "one", Mode::Bm25).unwrap();
    assert_eq!(
        table.hits(&other, None).unwrap_err().code(),
        "InvalidArgument"
    );
    let query = TextQuery::new(&english, "one", Mode::Bm25).unwrap();
    let live = RoaringBitmap::from_iter([0, 1]);
    let part = Part {
        segment: &table.segments[0],
        live: &live,
        allowed: None,
    };
    let error = search(&[part], &query, None, &never).unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    let part = Part {
        live: &table.live[0],
        ..part
    };
    let error = search(&[part], &query, None, &|| true).unwrap_err();
    assert_eq!(error.code(), "Cancelled");
    assert!(search(&[], &query, Some(3), &never).unwrap().is_empty());
}

#[test]
fn a_fuzzy_term_that_stands_for_too_many_is_refused() {
    let analyser = Analyser::parse("simple").unwrap();
    let letters: Vec<char> = ('a'..='z').chain('0'..='9').chain('α'..='ω').collect();
    let mut words = Vec::new();
    for a in &letters {
        words.extend(letters.iter().map(|b| format!("x{a}{b}")));
    }
    assert!(words.len() < 4096);
    words.extend(words.clone().iter().map(|word| word.replacen('x', "xy", 1)));
    let query = TextQuery::new(&analyser, "xyy", Mode::Fuzzy { max_edits: 2 }).unwrap();
    let texts: Vec<Option<String>> = words.into_iter().map(Some).collect();
    let table = Table::new(&analyser, texts.clone(), &[2_000], |_| true, None);
    let error = table.hits(&query, Some(1)).unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
    // Terms that only dead rows have do not count.
    let table = Table::new(&analyser, texts, &[2_000], |row| row < 3_000, None);
    assert!(!table.hits(&query, Some(1)).unwrap().is_empty());
}

#[test]
fn an_object_answers_as_its_texts_and_its_bytes_are_determined() {
    let analyser = Analyser::parse("german").unwrap();
    let mut texts = owned(&["Die Häuser am See", "Haus", "", "👍 東京 e\u{301}"]);
    texts.push(None);
    texts.push(Some("wort ".repeat(70_000)));
    let build = || {
        let mut builder = SegmentBuilder::new(&analyser, MEMORY).unwrap();
        texts
            .iter()
            .for_each(|text| builder.add(text.as_deref()).unwrap());
        builder.finish([7; 32]).unwrap()
    };
    let bytes = build();
    assert!(bytes == build());
    let expected = Expected {
        rows: texts.len() as u32,
        analyser: &analyser,
        fragment: [7; 32],
    };
    let opened = TextSegment::open(bytes.clone().into(), "key", expected).unwrap();
    assert_eq!((opened.rows(), opened.documents()), (6, 4));
    assert_eq!(opened.tokens(), 2 + 1 + 2 + 70_000);
    assert!(opened.bytes() >= bytes.len());
    let tail = segment(&analyser, &texts);
    let live = RoaringBitmap::from_iter(0..6);
    for text in ["haus", "wort see", "東京", "été e"] {
        let query = TextQuery::new(&analyser, text, Mode::Bm25).unwrap();
        let hits = |segment: &TextSegment| {
            let part = Part {
                segment,
                live: &live,
                allowed: None,
            };
            search(&[part], &query, None, &never).unwrap()
        };
        assert_eq!(hits(&opened), hits(&tail), "{text}");
    }
}

#[test]
fn a_build_keeps_to_its_memory() {
    let analyser = Analyser::default();
    let mut builder = SegmentBuilder::new(&analyser, 2 << 20).unwrap();
    let text = |i: u32| format!("{i} {} {} {}", i * 3, i * 5, i * 7);
    let outcome = (0..1_000_000).try_for_each(|i| builder.add(Some(&text(i))));
    assert_eq!(outcome.unwrap_err().code(), "ResourceLimitExceeded");
}

#[test]
fn parts_without_rows_or_text_are_searched() {
    let analyser = Analyser::default();
    for texts in [vec![], vec![None], vec![None, Some(String::new())]] {
        let table = Table::new(&analyser, texts, &[], |_| true, None);
        for mode in [
            Mode::Bm25,
            Mode::All,
            Mode::Phrase,
            Mode::Fuzzy { max_edits: 2 },
        ] {
            let query = TextQuery::new(&analyser, "one two", mode).unwrap();
            assert!(table.scores(&query).is_empty());
        }
    }
}

#[test]
fn segments_and_builders_move_between_threads() {
    fn assert_send<T: Send>() {}
    fn assert_sync<T: Sync>() {}
    assert_send::<SegmentBuilder>();
    assert_send::<TextSegment>();
    assert_sync::<TextSegment>();
    assert_sync::<Analyser>();
    assert_sync::<TextQuery>();
}
