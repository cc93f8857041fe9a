//! The rejects ledger: keys that a model refused, with content hash and reason.
//!
//! A version stores what it changed; the ledger is the fold of all deltas in entry order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, FixedSizeBinaryBuilder, RecordBatch, StringBuilder};

use super::delta::{BATCH_ROWS, DeltaKind, DeltaWriter, check_key};
use super::manifest::{DeltaObject, Entry};
use super::reservation::Reservation;
use super::schema::id;
use crate::env::Budget;
use crate::store::{Stager, Store};
use crate::{Error, Result};

/// Bytes that one entry takes besides its texts.
const ENTRY_BYTES: usize = 160;

/// Bytes of a reason that are kept.
pub const REASON_BYTES: usize = 1024;

fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// A refused row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reject {
    /// Content hash of the refused text.
    pub hash: [u8; 32],
    /// The model's reason.
    pub reason: String,
}

/// A change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerChange {
    /// The key.
    pub key: String,
    /// What stands in the ledger from now on; `None` takes the key out.
    pub reject: Option<Reject>,
}

fn kind() -> Result<DeltaKind> {
    DeltaKind::new(
        "ledger delta",
        &[
            (id::ROW_ID, "_row_id", "utf8", false),
            (
                id::CONTENT_HASH,
                "_content_hash",
                "fixed_size_binary<32>",
                true,
            ),
            (id::REASON, "reason", "utf8", true),
        ],
    )
}

/// Stages a ledger delta of changes, sorted by key, each key once; `None` without changes. Reasons are
/// cut to [`REASON_BYTES`].
///
/// # Errors
/// `Corrupt` if the keys are not sorted and unique, `ResourceLimitExceeded` for a key that is too
/// long.
pub fn write_ledger(stage: &mut Stager, changes: &[LedgerChange]) -> Result<Option<DeltaObject>> {
    let rows = changes.iter().map(|c| (c.key.as_str(), c.reject.as_ref()));
    write_rows(stage, rows)
}

fn write_rows<'a>(
    stage: &mut Stager,
    mut rows: impl Iterator<Item = (&'a str, Option<&'a Reject>)>,
) -> Result<Option<DeltaObject>> {
    let kind = kind()?;
    let mut writer = DeltaWriter::new(&kind)?;
    loop {
        let (mut keys, mut reasons) = (StringBuilder::new(), StringBuilder::new());
        let mut hashes = FixedSizeBinaryBuilder::new(32);
        for (key, reject) in rows.by_ref().take(BATCH_ROWS) {
            check_key(key)?;
            keys.append_value(key);
            reasons.append_option(reject.map(|r| shortened(&r.reason)));
            match reject {
                Some(reject) => hashes.append_value(reject.hash)?,
                None => hashes.append_null(),
            }
        }
        let keys = keys.finish();
        if keys.is_empty() {
            return writer.finish(stage);
        }
        let columns = [
            Arc::new(keys) as _,
            Arc::new(hashes.finish()) as _,
            Arc::new(reasons.finish()) as _,
        ];
        let batch = RecordBatch::try_new(Arc::clone(kind.schema()), columns.into())?;
        writer.push(&batch)?;
    }
}

/// The ledger of a version, by key. Its memory is taken from a budget.
#[derive(Debug)]
pub struct Ledger {
    rejects: BTreeMap<String, Reject>,
    memory: Reservation,
}

impl Ledger {
    /// Loads and folds the ledger deltas of `entries`, which stand in entry order.
    ///
    /// # Errors
    /// `Corrupt` for a delta that is not what its entry says, the budget's own when it runs out.
    pub async fn load(store: &Store, budget: &Arc<dyn Budget>, entries: &[Entry]) -> Result<Self> {
        let mut ledger = Self {
            rejects: BTreeMap::new(),
            memory: Reservation::new(budget),
        };
        for delta in entries.iter().filter_map(|e| e.rejects.as_ref()) {
            ledger.add(store, delta).await?;
        }
        Ok(ledger)
    }

    async fn add(&mut self, store: &Store, delta: &DeltaObject) -> Result<()> {
        let kind = kind()?;
        let bytes = kind.load(store, delta).await?;
        kind.decode(delta, bytes, &mut |batch| self.fold(&kind, delta, batch))
    }

    fn fold(&mut self, kind: &DeltaKind, delta: &DeltaObject, batch: &RecordBatch) -> Result<()> {
        let path = &delta.object.key;
        let keys = kind.keys(path, batch)?;
        let (hashes, reasons) = (batch.column(1).as_fixed_size_binary(), batch.column(2));
        let reasons = reasons.as_string::<i32>();
        for (row, key) in keys.iter().enumerate() {
            let key = key.unwrap_or_default();
            match (hashes.is_valid(row), reasons.is_valid(row)) {
                (false, false) => {
                    self.rejects.remove(key);
                }
                (true, true) => {
                    let reason = reasons.value(row).to_owned();
                    self.memory.grow(key.len() + reason.len() + ENTRY_BYTES)?;
                    let hash = <[u8; 32]>::try_from(hashes.value(row)).unwrap_or_default();
                    self.rejects.insert(key.to_owned(), Reject { hash, reason });
                }
                _ => {
                    let found = format!("one of them for key {key:?}");
                    return Err(Error::corrupt(
                        kind.artifact,
                        path,
                        "hash and reason",
                        found,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Keys that the ledger deltas of `entries` change, those they take out included.
    ///
    /// # Errors
    /// As [`Ledger::load`].
    pub async fn changed_keys(store: &Store, entries: &[Entry]) -> Result<Vec<String>> {
        let kind = kind()?;
        let mut keys = Vec::new();
        for delta in entries.iter().filter_map(|e| e.rejects.as_ref()) {
            let bytes = kind.load(store, delta).await?;
            kind.decode(delta, bytes, &mut |batch| {
                let column = kind.keys(&delta.object.key, batch)?;
                keys.extend(column.iter().flatten().map(str::to_owned));
                Ok(())
            })?;
        }
        Ok(keys)
    }

    /// Number of refused rows.
    pub fn len(&self) -> usize {
        self.rejects.len()
    }

    /// Whether no row is refused.
    pub fn is_empty(&self) -> bool {
        self.rejects.is_empty()
    }

    /// The reject of a key.
    pub fn get(&self, key: &str) -> Option<&Reject> {
        self.rejects.get(key)
    }

    /// All rejects in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Reject)> {
        self.rejects
            .iter()
            .map(|(key, reject)| (key.as_str(), reject))
    }

    /// Stages the whole ledger as one delta, as a compaction does; `None` if it is empty.
    pub fn write(&self, stage: &mut Stager) -> Result<Option<DeltaObject>> {
        write_rows(stage, self.iter().map(|(key, reject)| (key, Some(reject))))
    }
}
