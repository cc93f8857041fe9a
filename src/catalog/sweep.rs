//! Expiry and garbage collection: commit first, then mark from the committed body, then delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};

use super::branch::shared_versions;
use super::commit::{Attempt, Edit, Operation, Outcome};
use super::log::{Catalog, Head, is_live_under};
use super::manifest::BranchManifest;
use super::mark::{Marked, mark, mark_branch};
use super::resolve;
use super::slot::{BranchEntry, CommitKind, CommitRecord, Pin, SlotBody};
use crate::ident::{BranchName, Name, TxnId};
use crate::store::layout;
use crate::{Error, Result};

/// Deletes in flight at once.
const CONCURRENT_DELETES: usize = 8;
/// Times that a sweep begins again because another sweep fenced it.
const FENCED_ATTEMPTS: u32 = 8;

/// What a sweep deleted, or would delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A request to expire versions of a branch.
#[derive(Debug, Clone)]
pub struct Expire {
    /// The dataset.
    pub name: Name,
    /// Its id, if only that dataset is meant and not another that takes its name meanwhile.
    pub dataset: Option<String>,
    /// The branch.
    pub branch: BranchName,
    /// Its id, if only that branch is meant and not another that takes its name meanwhile.
    pub branch_id: Option<String>,
    /// Versions below it go, except the current one, pinned ones and those that other branches were
    /// made from or descend from.
    pub before: u64,
    /// Whether version 0 may go.
    pub include_base: bool,
    /// Filled by the commit: what goes.
    pub expired: Vec<u64>,
}

#[async_trait]
impl Operation for Expire {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let missing = || Error::NotFound {
            what: "dataset",
            name: self.name.to_string(),
        };
        let entry = resolve::dataset(&store, attempt.head, &self.name).await?;
        let mut dataset = entry.ok_or_else(missing)?;
        if self.dataset.as_ref().is_some_and(|id| *id != dataset.id) {
            return Err(Error::ParentMoved {
                table: self.name.to_string(),
                what: "dropped",
            });
        }
        let branch = dataset.branch(&self.branch).cloned().ok_or_else(missing)?;
        if self.branch_id.as_ref().is_some_and(|id| *id != branch.id) {
            return Err(Error::ParentMoved {
                table: format!("{}@{}", self.name, self.branch),
                what: "deleted",
            });
        }
        let mut manifest = BranchManifest::load(&store, &branch.manifest).await?;
        let pins = attempt.head.body.pins.entries(&store).await?;
        let lapsed = lapsed(attempt, &pins);
        let pinned: Vec<u64> = pins
            .iter()
            .filter(|(name, _)| !lapsed.contains(name))
            .filter(|(_, p)| p.dataset == dataset.id && p.branch == branch.id)
            .map(|(_, p)| p.version)
            .collect();
        let shared = shared_versions(&store, &dataset, &branch.id).await?;
        let (before, base) = (self.before, self.include_base);
        let stays = move |v: &u64| pinned.contains(v) || shared.contains(v);
        let goes = move |v: u64| v < before && (base || v > 0) && !stays(&v);
        let entries = manifest.history.walk(&store, &mut |_| {}).await?;
        self.expired = entries
            .iter()
            .map(|e| e.version)
            .filter(|v| goes(*v))
            .collect();
        if self.expired.is_empty() {
            return Ok(None);
        }
        manifest.history = manifest
            .history
            .without(&store, attempt.stage, &goes)
            .await?;
        let record = record(
            attempt,
            &dataset.id,
            &self.name,
            &self.branch,
            CommitKind::Expire,
        );
        let object = attempt.stage.add_json(&manifest)?;
        dataset.branches.insert(
            self.branch.clone(),
            BranchEntry {
                manifest: object,
                ..branch
            },
        );
        let mut edit = Edit::new(record);
        edit.datasets.insert(self.name.to_string(), Some(dataset));
        edit.pins = lapsed.into_iter().map(|name| (name, None)).collect();
        Ok(Some(edit))
    }
}

/// Names of the pins whose time is over.
///
/// When a pin lapses is policy; that its version may go is decided by the commit that drops it.
fn lapsed(attempt: &Attempt<'_>, pins: &[(String, Pin)]) -> Vec<String> {
    let now = attempt.catalog.env().clock.now_micros();
    let over = |pin: &Pin| pin.expires_at.is_some_and(|end| end <= now);
    let names = pins.iter().filter(|(_, pin)| over(pin));
    names.map(|(name, _)| name.clone()).collect()
}

/// A commit record of an administrative commit.
pub(super) fn record(
    attempt: &Attempt<'_>,
    dataset: &str,
    name: &Name,
    branch: &BranchName,
    kind: CommitKind,
) -> CommitRecord {
    CommitRecord {
        txn: attempt.stage.txn().clone(),
        id: attempt.catalog.env().ids.unique(),
        dataset: dataset.to_owned(),
        dataset_name: name.to_string(),
        branch: branch.to_string(),
        kind,
        actor: None,
        time: attempt.catalog.env().clock.now_micros(),
        request_id: None,
    }
}

/// Raises the horizon to a version, at most to its own.
#[derive(Clone)]
struct Collect {
    horizon: Option<u64>,
}

#[async_trait]
impl Operation for Collect {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let mut edit = Edit::new(CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: attempt.catalog.env().ids.unique(),
            dataset: String::new(),
            dataset_name: String::new(),
            branch: String::new(),
            kind: CommitKind::Gc,
            actor: None,
            time: attempt.catalog.env().clock.now_micros(),
            request_id: None,
        });
        edit.horizon = Some(self.horizon.unwrap_or(attempt.version));
        let pins = attempt.head.body.pins.entries(attempt.store()).await?;
        let lapsed = lapsed(attempt, &pins).into_iter();
        edit.pins = lapsed.map(|name| (name, None)).collect();
        Ok(Some(edit))
    }
}

impl Catalog {
    /// Commits an operation whose transaction holds no work: a fence only means to begin again.
    pub(super) async fn commit_again<O: Operation + Clone>(
        self: &Arc<Self>,
        operation: O,
    ) -> Result<Outcome<O>> {
        for _ in 1..FENCED_ATTEMPTS {
            self.look().await?;
            match self.commit(self.begin().await?, operation.clone()).await {
                Err(Error::WriterFenced { .. }) => {}
                other => return other,
            }
        }
        self.commit(self.begin().await?, operation).await
    }

    /// Expires versions and deletes what only they referenced.
    ///
    /// The versions are gone once this has committed; a crash in the deletion leaves orphans for the
    /// next garbage collection. Statements of this process that read them complete.
    pub async fn expire(self: &Arc<Self>, expire: Expire) -> Result<(Vec<u64>, Swept)> {
        let (name, branch) = (expire.name.clone(), expire.branch.clone());
        let outcome = self.commit_again(expire).await?;
        if !outcome.committed {
            return Ok((Vec::new(), Swept::default()));
        }
        let keep = self.mark_for_sweep(&outcome.head).await?;
        let parent = resolve::dataset(self.store(), &outcome.parent, &name).await?;
        let mut had = Marked::default();
        if let Some(old) = parent.as_ref().and_then(|d| d.branch(&branch)) {
            mark_branch(self.store(), &mut had, old).await?;
        }
        let dead = had.minus(&keep);
        let swept = self.delete_objects(&dead).await?;
        Ok((outcome.operation.expired, swept))
    }

    /// Marks from a committed body, then announces the sweep and adds what statements read.
    async fn mark_for_sweep(&self, head: &Head) -> Result<Marked> {
        let mut keep = mark(self.store(), &head.body).await?;
        for pinned in self.live.announce(head.version) {
            if pinned.version != head.version {
                keep.merge(mark(self.store(), &pinned.body).await?);
            }
        }
        Ok(keep)
    }

    /// Deletes objects of the store by transaction and number; their kind is found by listing.
    async fn delete_objects(&self, dead: &[(TxnId, u32)]) -> Result<Swept> {
        let mut by_txn: BTreeMap<&TxnId, Vec<u32>> = BTreeMap::new();
        for (txn, n) in dead {
            by_txn.entry(txn).or_default().push(*n);
        }
        let mut keys = Vec::new();
        for (txn, numbers) in by_txn {
            for (key, size) in self
                .store()
                .list(&format!("{}/{txn}", layout::DATA))
                .await?
            {
                if layout::parse_object(&key).is_some_and(|(_, n)| numbers.contains(&n)) {
                    keys.push((key, size));
                }
            }
        }
        self.delete_keys(keys).await
    }

    async fn delete_keys(&self, keys: Vec<(String, u64)>) -> Result<Swept> {
        let objects = keys.len() as u64;
        let bytes = keys.iter().map(|(_, size)| size).sum();
        stream::iter(keys)
            .map(|(key, _)| async move { self.store().delete(&key).await })
            .buffer_unordered(CONCURRENT_DELETES)
            .try_collect::<()>()
            .await?;
        Ok(Swept { objects, bytes })
    }

    /// Deletes staged objects that nothing reaches and whose transaction began before the horizon,
    /// and slots below the floor.
    ///
    /// `grace_micros` is policy: the horizon is the newest catalog version that was current that
    /// long ago. Zero fences every open transaction and is safe at any time.
    pub async fn collect_garbage(
        self: &Arc<Self>,
        grace_micros: i64,
        dry_run: bool,
    ) -> Result<Swept> {
        let head = self.look().await?;
        let horizon = self.horizon_for(&head, grace_micros).await?;
        if dry_run {
            let keep = self.mark_pinned(&head).await?;
            let dead = self
                .garbage(&keep, horizon.unwrap_or(head.version + 1))
                .await?;
            let bytes = dead.iter().map(|(_, size)| size).sum();
            return Ok(Swept {
                objects: dead.len() as u64,
                bytes,
            });
        }
        let outcome = self.commit_again(Collect { horizon }).await?;
        let keep = self.mark_for_sweep(&outcome.head).await?;
        let dead = self.garbage(&keep, outcome.head.body.horizon).await?;
        let swept = self.delete_keys(dead).await?;
        self.trim_slots(outcome.head.version).await?;
        Ok(swept)
    }

    async fn mark_pinned(&self, head: &Head) -> Result<Marked> {
        let mut keep = mark(self.store(), &head.body).await?;
        for pinned in self.live.announce(0) {
            keep.merge(mark(self.store(), &pinned.body).await?);
        }
        Ok(keep)
    }

    async fn garbage(&self, keep: &Marked, horizon: u64) -> Result<Vec<(String, u64)>> {
        let listed = self.store().list(layout::DATA).await?;
        let dead = |key: &str| {
            layout::parse_object(key)
                .is_some_and(|(txn, n)| txn.begin() < horizon && !keep.contains(&txn, n))
        };
        Ok(listed.into_iter().filter(|(key, _)| dead(key)).collect())
    }

    /// Slots below the floor of a validated head may be deleted by anyone at any time; where a list is not
    /// one view in ascending order, and none after one that could not be.
    async fn trim_slots(&self, head: u64) -> Result<()> {
        let listed = self.store().list(layout::CATALOG).await?;
        let below = |key: &str| layout::parse_slot(key).is_some_and(|v| !is_live_under(v, head));
        let dead = listed.into_iter().filter(|(key, _)| below(key));
        if self.store().has_atomic_list() {
            self.delete_keys(dead.collect()).await?;
            return Ok(());
        }
        for (key, _) in dead {
            self.store().delete(&key).await?;
        }
        Ok(())
    }

    /// The newest live version that was current `grace` ago; `None` = no grace.
    async fn horizon_for(&self, head: &Head, grace_micros: i64) -> Result<Option<u64>> {
        if grace_micros <= 0 {
            return Ok(None);
        }
        let wanted = self.env().clock.now_micros().saturating_sub(grace_micros);
        let (mut low, mut high) = (super::log::floor_of(head.version), head.version + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let time = match self.store().read_slot(middle).await? {
                Some(slot) => SlotBody::decode(middle, &slot.bytes)?
                    .0
                    .commits
                    .first()
                    .map(|c| c.time),
                None => None,
            };
            if time.is_none_or(|t| t <= wanted) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        Ok(Some(low.saturating_sub(1)))
    }
}
