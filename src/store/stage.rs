//! Objects that one transaction puts before its commit.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::{ObjRef, Store, layout};
use crate::digest::{Digest, canonical_json};
use crate::ident::TxnId;
use crate::{Error, Result, limits};

/// Staged puts in flight at once.
const CONCURRENT_PUTS: usize = 8;

/// Metadata of one transaction, written one after another into one object.
#[derive(Debug)]
struct Pack {
    key: String,
    bytes: Vec<u8>,
    /// Where each part ends.
    ends: Vec<usize>,
}

/// An object that waits for its upload.
#[derive(Debug)]
struct Pending {
    key: String,
    bytes: Bytes,
    /// Where each part ends, if it is a pack.
    ends: Vec<usize>,
}

/// Names, digests and puts the objects of one transaction. An object is added with its final bytes,
/// so references to it can be written before it is uploaded; nothing is put twice with other bytes.
///
/// Manifests and pages share packs, so that a commit puts as many objects at any depth.
#[derive(Debug)]
pub struct Stager {
    txn: TxnId,
    next: u32,
    pending: Vec<Pending>,
    pack: Option<Pack>,
    added: Vec<u32>,
}

impl Stager {
    /// An empty stage of `txn`.
    pub fn new(txn: TxnId) -> Self {
        Self {
            txn,
            next: 0,
            pending: Vec::new(),
            pack: None,
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
        self.push(key, bytes, Vec::new());
        Ok(object)
    }

    fn push(&mut self, key: String, bytes: Vec<u8>, ends: Vec<usize>) {
        let bytes = bytes.into();
        self.pending.push(Pending { key, bytes, ends });
    }

    /// Adds the bytes of an object whose key was reserved; they are put with the rest.
    pub(crate) fn put_later(&mut self, key: &str, bytes: Vec<u8>) {
        self.push(key.to_owned(), bytes, Vec::new());
    }

    /// The pack that the next part goes to.
    fn open_pack(&mut self) -> Result<&mut Pack> {
        if self
            .pack
            .as_ref()
            .is_some_and(|p| p.bytes.len() >= limits::PACK_BYTES)
        {
            self.seal();
        }
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => Pack {
                key: self.reserve("pack")?,
                bytes: Vec::new(),
                ends: Vec::new(),
            },
        };
        Ok(self.pack.insert(pack))
    }

    fn seal(&mut self) {
        if let Some(pack) = self.pack.take()
            && !pack.ends.is_empty()
        {
            self.push(pack.key, pack.bytes, pack.ends);
        }
    }

    /// Adds canonical JSON to the pack.
    pub fn add_json<T: serde::Serialize>(&mut self, value: &T) -> Result<ObjRef> {
        let bytes = canonical_json(value)?;
        let pack = self.open_pack()?;
        let object = ObjRef {
            key: layout::part_key(&pack.key, pack.bytes.len() as u64),
            size: bytes.len() as u64,
            sha256: Digest::of(&bytes),
        };
        pack.bytes.extend(bytes);
        pack.ends.push(pack.bytes.len());
        Ok(object)
    }

    /// Bytes of metadata that was added and not put yet.
    pub(crate) fn pending(&self, object: &ObjRef) -> Option<&[u8]> {
        let (key, at) = layout::split_part(&object.key);
        let open = self.pack.iter().map(|p| (&p.key, p.bytes.as_slice()));
        let mut all = open.chain(self.pending.iter().map(|p| (&p.key, p.bytes.as_ref())));
        let (_, bytes) = all.find(|(k, _)| *k == key)?;
        let from = usize::try_from(at.unwrap_or_default()).ok()?;
        bytes.get(from..)?.get(..usize::try_from(object.size).ok()?)
    }

    /// Marks the current point; [`Stager::written_since`] lists what was added after it.
    pub fn mark(&mut self) -> usize {
        self.seal();
        self.added.len()
    }

    /// Numbers of the objects added since `mark`, that of the pack with the next metadata included.
    pub fn written_since(&mut self, mark: usize) -> Result<Vec<u32>> {
        self.open_pack()?;
        Ok(self.added.get(mark..).unwrap_or_default().to_vec())
    }

    /// Puts everything that is pending, concurrently.
    pub async fn flush(&mut self, store: &Store) -> Result<()> {
        self.seal();
        let pending = std::mem::take(&mut self.pending);
        stream::iter(pending)
            .map(|Pending { key, bytes, ends }| async move {
                store.put_object(&key, bytes.clone()).await?;
                // The next commit of this process extends these very pages.
                let mut from = 0;
                for end in &ends {
                    let part = Bytes::copy_from_slice(&bytes[from..*end]);
                    let key = layout::part_key(&key, from as u64);
                    store.cache().put_bytes(&key, part);
                    from = *end;
                }
                if ends.is_empty() {
                    store.cache().put_bytes(&key, bytes);
                }
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
