//! What a server's answer holds, read within bounds and put in order.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use crate::limits;

/// Servers differ in whether they pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An answer, one vector per text in the order of the request.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    /// The name that the server gives its model.
    pub(super) model: Option<String>,
    pub(super) vectors: Vec<Vec<f32>>,
    /// Tokens that the server counted.
    pub(super) tokens: u64,
}

/// A list of at most as many items as a request has texts: a longer one is refused while it is read.
#[derive(Debug)]
pub(super) struct Rows<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rows<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Rows<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of vectors")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Rows<T>, A::Error> {
                let mut out = Vec::new();
                while let Some(item) = items.next_element()? {
                    if out.len() == limits::REMOTE_ROWS_MOST {
                        return Err(A::Error::custom("more vectors than any request asks for"));
                    }
                    out.push(item);
                }
                Ok(Rows(out))
            }
        }
        deserializer.deserialize_seq(Read(PhantomData))
    }
}

/// The components of one vector: a list of numbers, or little-endian f32 in base64. What JSON cannot
/// say (`null`) is a NaN, a number beyond f32 an infinity.
#[derive(Debug)]
pub(super) struct Components(pub(super) Vec<f32>);

impl<'de> Deserialize<'de> for Components {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Components;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers or a base64 text")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Components, A::Error> {
                let mut out = Vec::new();
                while let Some(item) = items.next_element::<Option<f32>>()? {
                    if out.len() == limits::DIMENSIONS {
                        return Err(A::Error::custom("a vector is wider than any model's"));
                    }
                    out.push(item.unwrap_or(f32::NAN));
                }
                Ok(Components(out))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Components, E> {
                let bytes = BASE64.decode(text).map_err(|_| E::custom("bad base64"))?;
                let chunks = bytes.chunks_exact(4);
                if !chunks.remainder().is_empty() {
                    return Err(E::custom("base64 that is no list of f32"));
                }
                let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                Ok(Components(chunks.map(number).collect()))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// Puts vectors into the order of their indices, which must be 0 to `rows - 1`, each once.
pub(super) fn in_order(
    items: impl IntoIterator<Item = (u64, Vec<f32>)>,
    rows: usize,
) -> Result<Vec<Vec<f32>>, String> {
    let mut out: Vec<Option<Vec<f32>>> = Vec::new();
    out.resize_with(rows, || None);
    let mut given = 0usize;
    for (index, vector) in items {
        let slot = usize::try_from(index).ok().and_then(|i| out.get_mut(i));
        match slot {
            None => return Err(format!("it gave index {index} for {rows} texts")),
            Some(Some(_)) => return Err(format!("it gave index {index} twice")),
            Some(slot) => *slot = Some(vector),
        }
        given += 1;
    }
    let all: Option<Vec<Vec<f32>>> = out.into_iter().collect();
    all.ok_or_else(|| format!("it gave {given} vectors for {rows} texts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components(json: &str) -> Result<Vec<f32>, serde_json::Error> {
        serde_json::from_str::<Components>(json).map(|c| c.0)
    }

    #[test]
    fn both_shapes_give_the_same_bits() {
        let numbers = [0.1f32, -1.5, f32::MIN_POSITIVE, 16_777_217.0];
        let listed = components(&serde_json::to_string(&numbers).unwrap()).unwrap();
        assert_eq!(listed, numbers);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        for padded in [BASE64.encode(&bytes[..8]), "zczMPQAAwL8".to_owned()] {
            let read = components(&format!("\"{padded}\"")).unwrap();
            assert_eq!(read, numbers[..2]);
        }
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        for bad in [
            "1", "{}", "null", "true", "\"*\"", "\"AAAA\"", "[\"1\"]", "[[1]]", "[NaN]", "[1",
        ] {
            assert!(components(bad).is_err(), "{bad}");
        }
        let read = components("[null, 1e39, -1e39, 1]").unwrap();
        assert!(read[0].is_nan());
        assert_eq!(read[1..], [f32::INFINITY, f32::NEG_INFINITY, 1.0]);
    }

    #[test]
    fn lists_end_at_their_bounds() {
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        for (most, one_more) in [
            (
                limits::DIMENSIONS,
                components(&list(limits::DIMENSIONS + 1)),
            ),
            (
                limits::REMOTE_ROWS_MOST,
                serde_json::from_str::<Rows<f32>>(&list(limits::REMOTE_ROWS_MOST + 1)).map(|r| r.0),
            ),
        ] {
            assert!(one_more.is_err(), "{most}");
        }
        let widest = components(&list(limits::DIMENSIONS)).unwrap();
        assert_eq!(widest.len(), limits::DIMENSIONS);
        let rows: Rows<u8> = serde_json::from_str(&list(limits::REMOTE_ROWS_MOST)).unwrap();
        assert_eq!(rows.0.len(), limits::REMOTE_ROWS_MOST);
    }

    #[test]
    fn indices_are_a_permutation_or_nothing() {
        let run = |indices: &[u64], rows| {
            let items = indices.iter().map(|i| (*i, vec![*i as f32]));
            in_order(items, rows)
        };
        assert_eq!(run(&[1, 0], 2).unwrap(), [[0.0], [1.0]]);
        assert_eq!(run(&[], 0).unwrap().len(), 0);
        for (indices, rows, said) in [
            (&[0][..], 2, "1 vectors for 2"),
            (&[0, 0], 2, "index 0 twice"),
            (&[0, 2], 2, "index 2 for 2"),
            (&[0, 1, 2], 2, "index 2 for 2"),
            (&[u64::MAX], 1, "for 1 texts"),
            (&[0], 0, "for 0 texts"),
        ] {
            let error = run(indices, rows).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
