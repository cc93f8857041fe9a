//! Lists of a fragment's edges by source as an object beside it.
//!
//! The object is little-endian, its numbers have 32 bits: a header of 64 bytes (magic, digest of the
//! fragment, edges, 1 if the keys are listed, keys, first key, CRC32C of all that follows, 0), where
//! the ends of each key begin and the number of all, the keys if they are listed, the ends. It is used as
//! it lies; what a reader relies on (order, bounds) is checked once when it is opened.

use arrow::buffer::{Buffer, ScalarBuffer};
use bytes::Bytes;

use super::layer::read_out;
use super::lists::{DENSE_SLOTS, Keys, Lists, narrow};
use super::pace::Pace;
use crate::search::build::Index;
use crate::search::read_whole;
use crate::table::manifest::{Entry, Fragment};
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"SGTOPO1\0";
const HEADER: usize = 64;
const WORD: usize = size_of::<u32>();
const ARTIFACT: &str = "topology segment";

/// The lists of a fragment's edges as the bytes of an object.
///
/// # Errors
/// `Corrupt` or `Parquet` for a fragment that is not what its entry says, `ResourceLimitExceeded` for a
/// row id above 2^32 - 2, those of the budget, and those of the store.
pub async fn encode_topology(
    reader: &TableReader,
    entry: &Entry,
    fragment: &Fragment,
) -> Result<Vec<u8>> {
    let (lists, mut memory) = read_out(reader, entry, fragment, &mut Pace::default()).await?;
    memory.grow(lists.bytes())?;
    Ok(encode(&lists, fragment.file.object.sha256.as_bytes()))
}

/// The lists of a fragment from the object beside it; `None` if it has none, or one that is damaged: then
/// the fragment is read instead.
pub(super) async fn open(
    reader: &TableReader,
    fragment: &Fragment,
) -> Option<(Lists, Reservation)> {
    let index = Index::Topology;
    let segment = fragment.segment(index.column(), index.of())?;
    let key = &segment.file.object.key;
    let lists = async {
        let mut memory = Reservation::new(reader.budget());
        let size = segment.file.object.size;
        memory.resize(usize::try_from(size).unwrap_or(usize::MAX))?;
        let bytes = read_whole(reader, &segment.file).await?;
        let digest = fragment.file.object.sha256.as_bytes();
        Ok::<_, Error>((decode(bytes, key, fragment.rows, digest)?, memory))
    };
    match lists.await {
        Ok(lists) => Some(lists),
        Err(error) => {
            tracing::warn!(key, %error, "a topology cannot be used; the edges are read instead");
            None
        }
    }
}

fn encode(lists: &Lists, fragment: &[u8; 32]) -> Vec<u8> {
    let (listed, first, keys) = match &lists.keys {
        Keys::Dense(first) => (0u32, *first, &[][..]),
        Keys::Listed(keys) => (1, 0, &keys[..]),
    };
    let slots = lists.offsets.len().saturating_sub(1);
    let words = lists.offsets.len() + keys.len() + lists.ends.len();
    let mut body = Vec::with_capacity(HEADER + words * WORD);
    body.extend_from_slice(MAGIC);
    body.extend_from_slice(fragment);
    for number in [lists.ends.len() as u32, listed, slots as u32, first, 0, 0] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    for part in [&lists.offsets[..], keys, &lists.ends[..]] {
        for number in part {
            body.extend_from_slice(&number.to_le_bytes());
        }
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&body[8..56]), &body[HEADER..]);
    body[56..60].copy_from_slice(&sum.to_le_bytes());
    body
}

/// Numbers from the bytes as they lie, where the machine would lay them so.
fn words(bytes: &Bytes, from: usize, count: usize) -> ScalarBuffer<u32> {
    let part = bytes.slice(from..from + count * WORD);
    let aligned = part.as_ptr().align_offset(WORD) == 0;
    if cfg!(target_endian = "little") && aligned {
        return ScalarBuffer::new(Buffer::from(part), 0, count);
    }
    let numbers = part.chunks_exact(WORD).map(|word| {
        let mut number = [0; WORD];
        number.copy_from_slice(word);
        u32::from_le_bytes(number)
    });
    numbers.collect::<Vec<_>>().into()
}

fn decode(bytes: Bytes, key: &str, rows: u64, fragment: &[u8; 32]) -> Result<Lists> {
    let corrupt = |expected: &str, found: String| Error::corrupt(ARTIFACT, key, expected, found);
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return Err(corrupt("a header", format!("{} bytes", bytes.len())));
    };
    if &header[..8] != MAGIC || &header[8..40] != fragment || header[60..] != [0; 4] {
        return Err(corrupt(
            "the lists of its fragment",
            "another header".to_owned(),
        ));
    }
    let number = |at: usize| {
        let at = 40 + at * WORD;
        let mut word = [0; WORD];
        word.copy_from_slice(&header[at..at + WORD]);
        u32::from_le_bytes(word)
    };
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[8..56]), body);
    if number(4) != sum {
        return Err(corrupt("its checksum", format!("{sum:08x}")));
    }
    let (edges, listed, slots, first) = (number(0), number(1), number(2), number(3));
    let (ends, slots) = (edges as usize, slots as usize);
    let keys = if listed == 1 { slots } else { 0 };
    let expected = (slots + 1 + keys + ends) * WORD;
    let fits = u64::from(edges) == rows && listed <= 1 && body.len() == expected;
    if !fits || (listed == 0 && slots > DENSE_SLOTS.saturating_mul(ends.max(1))) {
        return Err(corrupt(
            "the lists of its fragment",
            "another size".to_owned(),
        ));
    }
    let offsets = words(&bytes, HEADER, slots + 1);
    let listed_keys = words(&bytes, HEADER + (slots + 1) * WORD, keys);
    let ends = words(&bytes, HEADER + (slots + 1 + keys) * WORD, ends);
    let keys = match listed {
        0 => Keys::Dense(first),
        _ => Keys::Listed(listed_keys),
    };
    let lists = check(keys, offsets, ends);
    lists.ok_or_else(|| corrupt("ascending lists", "others".to_owned()))
}

/// The lists if they are in order.
fn check(keys: Keys, offsets: ScalarBuffer<u32>, ends: ScalarBuffer<u32>) -> Option<Lists> {
    let slots = offsets.len().checked_sub(1)?;
    let last = match &keys {
        Keys::Dense(first) => u64::from(*first) + (slots as u64).saturating_sub(1),
        Keys::Listed(keys) => {
            if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
                return None;
            }
            keys.last().map_or(0, |last| u64::from(*last))
        }
    };
    let whole = offsets.first() == Some(&0) && *offsets.last()? as usize == ends.len();
    if !whole || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
        return None;
    }
    let (mut max_end, mut repeated) = (0, Vec::new());
    for (slot, pair) in offsets.windows(2).enumerate() {
        let list = ends.get(pair[0] as usize..pair[1] as usize)?;
        let mut parallel = false;
        for ends in list.windows(2) {
            if ends[0] > ends[1] {
                return None;
            }
            parallel |= ends[0] == ends[1];
        }
        if parallel {
            repeated.push(match &keys {
                Keys::Dense(first) => first.checked_add(slot as u32)?,
                Keys::Listed(keys) => keys[slot],
            });
        }
        max_end = list.last().copied().unwrap_or(0).max(max_end);
    }
    narrow(u64::from(max_end)).ok()?;
    let max_key = if ends.is_empty() {
        0
    } else {
        narrow(last).ok()?
    };
    Some(Lists::of_parts(
        keys,
        offsets,
        ends,
        (max_key, max_end),
        repeated,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::lists::{from_pairs, pair};
    use super::*;

    const DIGEST: [u8; 32] = [7; 32];

    fn all(lists: &Lists) -> Vec<(u32, u32)> {
        let keys: Vec<u32> = match &lists.keys {
            Keys::Dense(first) => (*first..).take(lists.offsets.len() - 1).collect(),
            Keys::Listed(keys) => keys.to_vec(),
        };
        let ends = |key: &u32| {
            lists
                .ends(lists.range(*key))
                .iter()
                .map(|end| (*key, *end))
                .collect()
        };
        keys.iter()
            .flat_map(|key| -> Vec<(u32, u32)> { ends(key) })
            .collect()
    }

    #[test]
    fn lists_come_back_as_they_were() {
        for scale in [1, 1_000_000] {
            for edges in [&[][..], &[(5, 1), (5, 1), (5, 9), (6, 0), (9, 9)]] {
                let edges: Vec<(u32, u32)> =
                    edges.iter().map(|(k, e)| (k * scale, e * scale)).collect();
                let lists = from_pairs(edges.iter().map(|(k, e)| pair(*k, *e)).collect(), false);
                let bytes = encode(&lists, &DIGEST);
                let rows = edges.len() as u64;
                // At every alignment.
                for pad in 0..WORD {
                    let mut moved = vec![0; pad];
                    moved.extend_from_slice(&bytes);
                    let moved = Bytes::from(moved).slice(pad..);
                    let read = decode(moved, "key", rows, &DIGEST).unwrap();
                    assert_eq!(all(&read), edges);
                    assert_eq!(read.largest(), lists.largest());
                    assert_eq!(read.parallel(), lists.parallel());
                    for (key, _) in &edges {
                        assert_eq!(read.parallel_at(*key), lists.parallel_at(*key));
                    }
                }
                assert!(decode(bytes.clone().into(), "key", rows + 1, &DIGEST).is_err());
                assert!(decode(bytes.into(), "key", rows, &[8; 32]).is_err());
            }
        }
    }

    #[test]
    fn no_flipped_or_missing_byte_goes_unnoticed() {
        for scale in [1, 1_000_000] {
            let edges = [(1, 2), (1, 3), (2, 2), (7, 2)];
            let pairs = edges
                .iter()
                .map(|(k, e)| pair(k * scale, e * scale))
                .collect();
            let bytes = encode(&from_pairs(pairs, false), &DIGEST);
            for at in 0..bytes.len() {
                for bit in [1, 0x80] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= bit;
                    let error = decode(damaged.into(), "key", 4, &DIGEST).unwrap_err();
                    assert_eq!(error.code(), "Corrupt");
                }
                let short = Bytes::from(bytes[..at].to_vec());
                assert!(decode(short, "key", 4, &DIGEST).is_err());
            }
        }
    }

    #[test]
    fn lists_out_of_order_are_refused_whatever_their_checksum_says() {
        let words = |numbers: &[u32]| ScalarBuffer::from(numbers.to_vec());
        let dense = |offsets: &[u32], ends: &[u32]| {
            check(Keys::Dense(3), words(offsets), words(ends)).is_some()
        };
        assert!(dense(&[0, 2, 2, 3], &[1, 1, 0]));
        assert!(!dense(&[0, 2, 2, 3], &[2, 1, 0]) && !dense(&[0, 2, 1, 3], &[1, 1, 0]));
        assert!(!dense(&[0, 2, 2, 2], &[1, 1, 0]) && !dense(&[1, 2, 2, 3], &[1, 1, 0]));
        assert!(!dense(&[0, 9, 2, 3], &[1, 1, 0]) && !dense(&[0, 2, 2, 3], &[1, u32::MAX, 0]));
        assert!(!dense(&[], &[]));
        let listed = |keys: &[u32]| {
            check(Keys::Listed(words(keys)), words(&[0, 1, 2]), words(&[1, 1])).is_some()
        };
        assert!(listed(&[4, 9]) && !listed(&[9, 4]) && !listed(&[4, 4]) && !listed(&[4, u32::MAX]));
    }
}
