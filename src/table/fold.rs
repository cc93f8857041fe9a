//! An order-independent digest of the source rows of a version.
//!
//! Each row is hashed with its key and content hash, and the hashes are added modulo 2^256: partitions
//! can be folded apart, in any order, and a row that occurs twice counts twice.

use super::manifest::SourceFold;
use crate::digest::{Digest, Hasher};

/// Folds (key, content hash) pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFolder {
    /// 256 bits, least significant word first.
    sum: [u64; 4],
    rows: u64,
}

impl SourceFolder {
    /// Adds a source row.
    pub fn add(&mut self, key: &str, hash: &[u8; 32]) {
        let mut hasher = Hasher::new("stratagraph.source.row.v1");
        hasher.part(key.as_bytes()).part(hash);
        self.add_words(words(&hasher.finish()));
        self.rows += 1;
    }

    /// Adds the rows of another partition.
    pub fn merge(&mut self, other: &Self) {
        self.add_words(other.sum);
        self.rows += other.rows;
    }

    /// Rows added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The fold; `unique` says whether each key occurred once.
    pub fn finish(&self, unique: bool) -> SourceFold {
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.sum) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        SourceFold {
            sum: Digest::from_bytes(bytes),
            rows: self.rows,
            unique,
        }
    }

    fn add_words(&mut self, other: [u64; 4]) {
        let mut carry = false;
        for (word, other) in self.sum.iter_mut().zip(other) {
            let (sum, over) = word.overflowing_add(other);
            let (sum, over_carry) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, over || over_carry);
        }
    }
}

fn words(digest: &Digest) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.as_bytes().chunks_exact(8)) {
        *word = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    }
    words
}
