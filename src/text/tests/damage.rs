//! Objects that are not what was written.

use super::*;
use crate::text::container::{self, SECTIONS};
use crate::text::{Expected, SegmentBuilder};

const FRAGMENT: [u8; 32] = [3; 32];
const TEXTS: [Option<&str>; 6] = [
    Some("a fast key value store"),
    Some("a graph database"),
    None,
    Some("the key to the graph, the key to the store"),
    Some(""),
    Some("storage"),
];

fn object() -> Vec<u8> {
    let mut builder = SegmentBuilder::new(&Analyser::default(), MEMORY).unwrap();
    TEXTS.iter().for_each(|text| builder.add(*text).unwrap());
    builder.finish(FRAGMENT).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<TextSegment> {
    let expected = Expected {
        rows: TEXTS.len() as u32,
        analyser: &Analyser::default(),
        fragment: FRAGMENT,
    };
    TextSegment::open(bytes.into(), "graph/segments/1.text", expected)
}

fn answers(segment: &TextSegment) -> Result<Vec<Vec<Hit>>> {
    let live = RoaringBitmap::from_iter([0, 1, 3, 5]);
    let mut answers = Vec::new();
    for mode in [
        Mode::Bm25,
        Mode::All,
        Mode::Phrase,
        Mode::Fuzzy { max_edits: 2 },
    ] {
        for text in ["key", "graph key", "key value"] {
            let query = TextQuery::new(&Analyser::default(), text, mode)?;
            let part = Part {
                segment,
                live: &live,
                allowed: None,
            };
            answers.push(search(&[part], &query, None, &never)?);
        }
    }
    Ok(answers)
}

fn assert_typed(outcome: Result<TextSegment>, what: &str) {
    let code = outcome.expect_err(what).code();
    assert!(
        code == "Corrupt" || code == "IncompatibleFormat",
        "{what}: {code}"
    );
}

#[test]
fn every_bit_flip_truncation_and_addition_is_noticed() {
    let object = object();
    answers(&open(object.clone()).unwrap()).unwrap();
    for at in 0..object.len() {
        for mask in [1, 0x80, 0xff] {
            let mut damaged = object.clone();
            damaged[at] ^= mask;
            assert_typed(open(damaged), &format!("byte {at} ^ {mask}"));
        }
        assert_typed(open(object[..at].to_vec()), &format!("cut at {at}"));
    }
    for more in [&[0u8][..], &object] {
        assert_typed(open([&object[..], more].concat()), "appended bytes");
    }
}

#[test]
fn an_object_of_something_else_is_refused() {
    let english = Analyser::default();
    let simple = Analyser::parse("simple").unwrap();
    let right = Expected {
        rows: TEXTS.len() as u32,
        analyser: &english,
        fragment: FRAGMENT,
    };
    let wrong = [
        Expected { rows: 7, ..right },
        Expected {
            analyser: &simple,
            ..right
        },
        Expected {
            fragment: [4; 32],
            ..right
        },
    ];
    for expected in wrong {
        let error = TextSegment::open(object().into(), "k", expected).unwrap_err();
        assert_eq!(error.code(), "Corrupt");
    }
}

#[test]
fn a_newer_format_says_so() {
    let mut object = object();
    let header = u32::from_le_bytes(object[12..16].try_into().unwrap()) as usize;
    object[8] = 2;
    let crc = crc32c::crc32c(&object[..16]);
    let crc = crc32c::crc32c_append(crc, &object[20..20 + header]);
    object[16..20].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(open(object).unwrap_err().code(), "IncompatibleFormat");
}

/// Whoever can forge checksums can make wrong answers, but neither a panic nor an endless search.
#[test]
fn forged_sections_never_panic() {
    let object = object();
    let (header, ranges) = container::decode(&object, "k").unwrap();
    for (number, range) in ranges.iter().enumerate() {
        for at in 0..range.len() {
            for mask in [1u8, 0x10, 0x80, 0xff] {
                let mut forged = object[range.clone()].to_vec();
                forged[at] ^= mask;
                let sections = std::array::from_fn(|i| match i == number {
                    true => forged.as_slice(),
                    false => &object[ranges[i].clone()],
                });
                let outcome = open(container::encode(&header, &sections));
                if let Err(error) = outcome.and_then(|segment| answers(&segment)) {
                    assert_eq!(error.code(), "Corrupt", "{} {at}", SECTIONS[number]);
                }
            }
        }
    }
}
