//! Objects that one transaction puts before its commit.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::{ObjRef, Store, layout};
use crate::digest::{Digest, canonical_json};
use crate::ident::TxnId;
use crate::{Error, Result};

/// Staged puts in flight at once.
const CONCURRENT_PUTS: usize = 8;

/// Names, digests and puts the objects of one transaction. An object is added with its final bytes,
/// so references to it can be written before it is uploaded; nothing is put twice with other bytes.
#[derive(Debug)]
pub struct Stager {
    txn: TxnId,
    next: u32,
    pending: Vec<(String, Bytes)>,
    added: Vec<u32>,
}

impl Stager {
    /// An empty stage of `txn`.
    pub fn new(txn: TxnId) -> Self {
        Self {
            txn,
            next: 0,
            pending: Vec::new(),
            added: Vec::new(),
        }
    }

    /// The transaction.
    pub fn txn(&self) -> &TxnId {
        &self.txn
    }

    /// Takes the next number and its key, for an object that its writer uploads in parts.
    pub fn reserve(&mut self, kind: &str) -> Result<String> {
        let n = self.next;
        if n >= 1_000_000 {
            let (value, limit) = (u64::from(n) + 1, 1_000_000);
            return Err(Error::ResourceLimitExceeded {
                what: "objects of a transaction",
                value,
                limit,
            });
        }
        self.next += 1;
        self.added.push(n);
        Ok(layout::object_key(&self.txn, n, kind))
    }

    /// Adds an object with its final bytes.
    pub fn add(&mut self, kind: &str, bytes: Vec<u8>) -> Result<ObjRef> {
        let key = self.reserve(kind)?;
        let object = ObjRef {
            key: key.clone(),
            size: bytes.len() as u64,
            sha256: Digest::of(&bytes),
        };
        self.pending.push((key, bytes.into()));
        Ok(object)
    }

    /// Adds the bytes of an object whose key was reserved; they are put with the rest.
    pub(crate) fn put_later(&mut self, key: &str, bytes: Vec<u8>) {
        self.pending.push((key.to_owned(), bytes.into()));
    }

    /// Adds canonical JSON.
    pub fn add_json<T: serde::Serialize>(&mut self, value: &T) -> Result<ObjRef> {
        self.add("json", canonical_json(value)?)
    }

    /// Bytes of an object that was added and not put yet.
    pub(crate) fn pending(&self, key: &str) -> Option<&[u8]> {
        self.pending
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, bytes)| bytes.as_ref())
    }

    /// Marks the current point; [`Stager::written_since`] lists what was added after it.
    pub fn mark(&self) -> usize {
        self.added.len()
    }

    /// Numbers added since `mark`, the next `extra` numbers included.
    pub fn written_since(&self, mark: usize, extra: u32) -> Vec<u32> {
        let mut numbers = self.added.get(mark..).unwrap_or_default().to_vec();
        numbers.extend(self.next..self.next + extra);
        numbers
    }

    /// Puts everything that is pending, concurrently.
    pub async fn flush(&mut self, store: &Store) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        stream::iter(pending)
            .map(|(key, bytes)| async move {
                store.put_object(&key, bytes.clone()).await?;
                // The next commit of this process extends these very pages.
                store.cache().put_bytes(&key, bytes);
                Ok(())
            })
            .buffer_unordered(CONCURRENT_PUTS)
            .try_collect::<()>()
            .await
    }
}

/// Numbers as runs: `0-3,7`.
pub fn format_runs(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let text = runs.iter().map(|(a, b)| {
        if a == b {
            a.to_string()
        } else {
            format!("{a}-{b}")
        }
    });
    text.collect::<Vec<_>>().join(",")
}

/// Parses [`format_runs`]; `None` for anything else, more than a million numbers included.
pub fn parse_runs(text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut numbers = Vec::new();
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= 1_000_000 || numbers.len() > 1_000_000 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_round_trip() {
        for numbers in [vec![], vec![3], vec![0, 1, 2, 7, 9, 10]] {
            assert_eq!(parse_runs(&format_runs(&numbers)), Some(numbers));
        }
        assert_eq!(format_runs(&[0, 1, 2, 7]), "0-2,7");
        for bad in ["x", "3-1", "1,", "0-4294967295"] {
            assert_eq!(parse_runs(bad), None, "{bad}");
        }
    }
}
