//! Whatever the bytes of an object are, it is refused or answers in bounds.

use bytes::Bytes;

use super::*;
use crate::Error;

const FRAGMENT: [u8; 32] = [7; 32];

fn small() -> (Vectors, Vec<Index>) {
    let data = clusters(Metric::L2, 60, 3, 5, 6);
    let vectors = data.vectors;
    let params = GraphParams {
        m: 4,
        ef_construction: 20,
    };
    let graph = build_hnsw(&vectors, params, &|| false, &|_, _| ()).unwrap();
    let indexes = [
        graph.map(Index::Hnsw),
        ivf(&vectors, false),
        ivf(&vectors, true),
    ];
    (vectors, indexes.into_iter().map(Option::unwrap).collect())
}

fn expected(vectors: &Vectors) -> Expected {
    Expected {
        rows: vectors.rows(),
        dimensions: vectors.dimensions() as u32,
        metric: vectors.metric(),
        fragment: FRAGMENT,
    }
}

/// Refused with the typed error.
fn refused(bytes: Vec<u8>, expected: Expected) -> bool {
    match open(Bytes::from(bytes), "a/segment", expected) {
        Ok(_) => false,
        Err(Error::Corrupt { artifact, path, .. }) => {
            assert_eq!((artifact, path.as_str()), ("vector segment", "a/segment"));
            true
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn objects_are_read_back() {
    for metric in METRICS {
        let data = clusters(metric, 500, 20, 10, 6);
        let vectors = data.vectors;
        for index in [hnsw(&vectors), ivf(&vectors, false), ivf(&vectors, true)] {
            let index = index.unwrap();
            let bytes = encode(&index, &FRAGMENT);
            assert_eq!(bytes, encode(&index, &FRAGMENT));
            assert_eq!(
                open(bytes.into(), "key", expected(&vectors)).unwrap(),
                index
            );
        }
    }
}

#[test]
fn every_altered_byte_is_found() {
    let (vectors, indexes) = small();
    for index in indexes {
        let bytes = encode(&index, &FRAGMENT);
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut altered = bytes.clone();
                altered[at] ^= mask;
                assert!(
                    refused(altered, expected(&vectors)),
                    "{} {at}",
                    index.kind()
                );
            }
        }
    }
}

#[test]
fn every_other_length_is_found() {
    let (vectors, indexes) = small();
    for index in indexes {
        let bytes = encode(&index, &FRAGMENT);
        for length in 0..bytes.len() {
            assert!(refused(bytes[..length].to_vec(), expected(&vectors)));
        }
        for extra in [1, 3, 64, 1000] {
            for byte in [0, 0xff] {
                let mut longer = bytes.clone();
                longer.resize(bytes.len() + extra, byte);
                assert!(refused(longer, expected(&vectors)));
            }
        }
    }
}

#[test]
fn objects_of_other_fragments_are_refused() {
    let (vectors, indexes) = small();
    let own = expected(&vectors);
    for index in indexes {
        let bytes = encode(&index, &FRAGMENT);
        assert!(!refused(bytes.clone(), own));
        for other in [
            Expected {
                rows: own.rows + 1,
                ..own
            },
            Expected {
                dimensions: 4,
                ..own
            },
            Expected {
                metric: Metric::Dot,
                ..own
            },
            Expected {
                fragment: [8; 32],
                ..own
            },
        ] {
            assert!(refused(bytes.clone(), other));
        }
    }
}

/// Restores the checks, so that what they protect from is met by the checks of contents.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let sections = (word(&bytes, 96) as usize).min(47);
    for section in 0..sections {
        let entry = (240 + 24 * section).min(bytes.len() - 24);
        let (offset, length) = (long(&bytes, entry), long(&bytes, entry + 8));
        let end = offset.saturating_add(length);
        if end <= bytes.len() as u64 {
            let check = crc32c::crc32c(&bytes[offset as usize..end as usize]);
            bytes[entry + 16..entry + 20].copy_from_slice(&check.to_le_bytes());
        }
    }
    let end = (240 + 24 * sections).min(bytes.len() - 4);
    let check = crc32c::crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&check.to_le_bytes());
    bytes
}

#[test]
fn bytes_with_right_checks_are_refused_or_answer_in_bounds() {
    let (vectors, indexes) = small();
    let queries = clusters(Metric::L2, 0, 3, 5, 6).queries;
    let mut scratch = Scratch::default();
    let (mut good, mut bad) = (0, 0);
    for index in indexes {
        let bytes = encode(&index, &FRAGMENT);
        for at in 0..bytes.len() {
            for mask in [1, 2, 0x80, 0xff] {
                let mut altered = bytes.clone();
                altered[at] ^= mask;
                let opened = open(sealed(altered).into(), "key", expected(&vectors));
                let Ok(index) = opened else {
                    bad += 1;
                    continue;
                };
                good += 1;
                for (query, share) in queries.iter().zip([1.0, 0.5, 0.2]) {
                    let live = random_rows(&mut Random(at as u64), 60, share);
                    let answer = top_k(
                        Some(&index),
                        &vectors,
                        query,
                        5,
                        &live,
                        &eager(),
                        &mut scratch,
                    );
                    assert_eq!(answer.hits.len() as u64, live.len().min(5));
                    for hit in answer.hits {
                        assert!(live.contains(hit.1));
                        assert_eq!(query.distance(vectors.row(hit.1)), Some(hit.0));
                    }
                }
            }
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} {bad}");
}
