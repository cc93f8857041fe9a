//! What became of a transaction whose outcome its caller does not know.

use super::log::{Catalog, floor_of, is_live_under};
use super::manifest::BranchManifest;
use super::slot::SlotBody;
use crate::Result;
use crate::ident::TxnId;

/// What is known of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Committed as this catalog version.
    Committed(u64),
    /// Not committed, now and for ever.
    NotCommitted,
    /// Not there now, or too long ago to tell: "not there" is not "never".
    Unknown,
}

impl Status {
    /// The word that SQL shows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed(_) => "committed",
            Self::NotCommitted => "not_committed",
            Self::Unknown => "unknown",
        }
    }
}

impl Catalog {
    /// The outcome of `txn`. `stopped_at` is the slot of a `CommitUnknown` whose owner has stopped;
    /// without it only a garbage collection makes an absence final.
    pub async fn commit_status(&self, txn: &TxnId, stopped_at: Option<u64>) -> Result<Status> {
        let head = self.look().await?;
        let first = txn.begin().saturating_add(1);
        if first < floor_of(head.version) {
            return self.status_in_history(txn, &head.body).await;
        }
        let mut found = None;
        for version in first..=head.version {
            if let Some(slot) = self.store().read_slot(version).await?
                && SlotBody::decode(version, &slot.bytes)?.0.is_of(txn)
            {
                found = Some(version);
                break;
            }
        }
        // The list after the reads: what was read below its floor is no evidence.
        let now = self.look().await?.version;
        if !is_live_under(found.unwrap_or(first), now) {
            return self.status_in_history(txn, &head.body).await;
        }
        Ok(match found {
            Some(version) => Status::Committed(version),
            None if head.body.horizon > txn.begin() => Status::NotCommitted,
            None if stopped_at.is_some_and(|slot| head.version >= slot) => Status::NotCommitted,
            None => Status::Unknown,
        })
    }

    /// Too old for the log: a retained version still proves a commit.
    async fn status_in_history(&self, txn: &TxnId, body: &SlotBody) -> Result<Status> {
        for (_, dataset) in body.datasets.entries(self.store()).await? {
            for branch in dataset.branches.values() {
                let manifest = BranchManifest::load(self.store(), &branch.manifest).await?;
                if manifest.commit.txn == *txn {
                    return Ok(Status::Committed(manifest.catalog_version));
                }
                let entries = manifest.history.walk(self.store(), &mut |_| {}).await?;
                if let Some(entry) = entries.iter().find(|e| e.txn == *txn) {
                    return Ok(Status::Committed(entry.catalog_version));
                }
            }
        }
        Ok(Status::Unknown)
    }
}
