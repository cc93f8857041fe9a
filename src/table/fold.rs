//! An order-independent digest of the source rows of a version.
//!
//! Rows are hashed one by one and the hashes are added: partitions can be folded apart, in any order,
//! and a row that occurs twice counts twice. Of the two sums one is of content hashes, which are
//! SHA-256; the other ties each content to its key by XXH3 (Y. Collet, 128 bits), which needs an eighth
//! of the time. Equal sums by chance have a probability of 2^-128; a sum is no defence against somebody
//! who chooses rows to make it equal, and who could only hide changes of a source that is theirs.

use twox_hash::XxHash3_128;

use super::manifest::SourceFold;
use crate::digest::Digest;

/// Folds (key, content hash) pairs.
#[derive(Debug, Clone, Default)]
pub struct SourceFolder {
    /// Sum of the first halves of the content hashes.
    contents: u128,
    /// Sum of XXH3-128(content hash ‖ key).
    rows_by_key: u128,
    rows: u64,
    /// A buffer; no part of the value.
    scratch: Vec<u8>,
}

impl SourceFolder {
    /// Adds a source row.
    pub fn add(&mut self, key: &str, hash: &[u8; 32]) {
        let (content, row) = self.hashes(key, hash);
        self.contents = self.contents.wrapping_add(content);
        self.rows_by_key = self.rows_by_key.wrapping_add(row);
        self.rows = self.rows.wrapping_add(1);
    }

    /// Takes out a row that was added.
    pub fn remove(&mut self, key: &str, hash: &[u8; 32]) {
        let (content, row) = self.hashes(key, hash);
        self.contents = self.contents.wrapping_sub(content);
        self.rows_by_key = self.rows_by_key.wrapping_sub(row);
        self.rows = self.rows.wrapping_sub(1);
    }

    /// Adds the rows of another partition.
    pub fn merge(&mut self, other: &Self) {
        self.contents = self.contents.wrapping_add(other.contents);
        self.rows_by_key = self.rows_by_key.wrapping_add(other.rows_by_key);
        self.rows = self.rows.wrapping_add(other.rows);
    }

    /// Rows added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The fold; `unique` says whether each key occurred once.
    pub fn finish(&self, unique: bool) -> SourceFold {
        let mut bytes = [0; 32];
        let (contents, rows_by_key) = bytes.split_at_mut(16);
        contents.copy_from_slice(&self.contents.to_le_bytes());
        rows_by_key.copy_from_slice(&self.rows_by_key.to_le_bytes());
        SourceFold {
            sum: Digest::from_bytes(bytes),
            rows: self.rows,
            unique,
        }
    }

    fn hashes(&mut self, key: &str, hash: &[u8; 32]) -> (u128, u128) {
        let row = &mut self.scratch;
        row.clear();
        row.extend_from_slice(hash);
        row.extend_from_slice(key.as_bytes());
        let content = hash.first_chunk().copied().unwrap_or_default();
        (u128::from_le_bytes(content), XxHash3_128::oneshot(row))
    }
}
