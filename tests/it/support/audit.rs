//! The invariants that hold in every store, whatever happened to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::mark::mark;
use stratagraph::catalog::resolve;
use stratagraph::catalog::slot::SlotBody;
use stratagraph::catalog::{Catalog, Head};
use stratagraph::env::Env;
use stratagraph::ident::TxnId;
use stratagraph::store::{ObjRef, Store, layout};
use stratagraph::{Error, Result};

/// What callers were told about their transactions.
#[derive(Debug, Default, Clone)]
pub struct Told {
    /// Acknowledged.
    pub acked: Vec<TxnId>,
    /// Reported as failed: must never be visible.
    pub failed: Vec<TxnId>,
    /// Reported as unknown.
    pub unknown: Vec<TxnId>,
}

impl Told {
    /// Sorts an outcome into its class.
    pub fn tell<T>(&mut self, txn: Option<TxnId>, outcome: &Result<T>) {
        let Some(txn) = txn else { return };
        match outcome {
            Ok(_) => self.acked.push(txn),
            // A task that was cut off by the end of its process is as unknown as a deadline.
            Err(Error::CommitUnknown { .. } | Error::TaskFailed { .. }) => self.unknown.push(txn),
            Err(_) => self.failed.push(txn),
        }
    }
}

/// A store on `base` without anything cached.
pub fn reopen(base: Arc<dyn ObjectStore>) -> Arc<Store> {
    Arc::new(Store::new(base, Path::default(), "memory:///", true))
}

/// A new process on `base`; `seed` keeps its ids apart from those of others.
pub fn process(base: Arc<dyn ObjectStore>, seed: u64) -> Arc<Catalog> {
    Catalog::new(reopen(base), Env::fixed(seed))
}

/// As [`process`], on a store whose lists are not one view, as those of local files.
pub fn process_on_files(base: Arc<dyn ObjectStore>, seed: u64) -> Arc<Catalog> {
    let store = Store::new(base, Path::default(), "memory:///", false);
    Catalog::new(Arc::new(store), Env::fixed(seed))
}

/// Checks I1, I2, I3, I4, I6 and I12 of docs/testing.md and returns the head.
pub async fn audit(base: Arc<dyn ObjectStore>, told: &Told) -> Result<Arc<Head>, String> {
    let catalog = process(base, 9_999);
    let head = catalog.look().await.map_err(|e| format!("no head: {e}"))?;
    let store = catalog.store();
    let txns = slots(store, &head).await?;
    let fail = |e: Error| format!("unreadable: {e}");
    let marked = mark(store, &head.body).await.map_err(fail)?;
    let mut in_history: BTreeMap<TxnId, u32> = BTreeMap::new();
    let mut objects: Vec<ObjRef> = Vec::new();
    for (name, dataset) in resolve::datasets(store, &head).await.map_err(fail)? {
        for branch in dataset.branches.values() {
            let manifest = BranchManifest::load(store, &branch.manifest)
                .await
                .map_err(fail)?;
            let mut versions = manifest
                .history
                .walk(store, &mut |_| {})
                .await
                .map_err(fail)?;
            versions.push(manifest.history_entry(branch, &[]));
            if versions.windows(2).any(|w| w[0].version >= w[1].version) {
                return Err(format!("I6: versions of {name} do not grow"));
            }
            for entry in versions {
                *in_history.entry(entry.txn.clone()).or_default() += 1;
                let version = BranchManifest::load(store, &entry.manifest)
                    .await
                    .map_err(fail)?;
                objects.extend(version.reach(store, &entry.manifest).await.map_err(fail)?);
            }
        }
    }
    objects.sort();
    objects.dedup();
    for object in &objects {
        store
            .get_uncached("object", object)
            .await
            .map_err(|e| format!("I2: {e}"))?;
        let (txn, n) = layout::parse_object(&object.key).ok_or("I2: foreign key")?;
        if !marked.contains(&txn, n) {
            return Err(format!("I2: {} is reachable and not marked", object.key));
        }
    }
    for txn in &told.acked {
        let slot = txns.get(txn).copied().unwrap_or(0);
        if slot != 1 || in_history.get(txn).is_some_and(|n| *n != 1) {
            return Err(format!("I3: acknowledged {txn} is in {slot} slots"));
        }
    }
    match told
        .failed
        .iter()
        .find(|t| txns.contains_key(t) || in_history.contains_key(t))
    {
        Some(txn) => Err(format!("I4: {txn} was reported as failed and is visible")),
        None => Ok(head),
    }
}

/// I1 and I12: no gap from floor to head, each slot extends the one before; txns by count.
async fn slots(store: &Store, head: &Head) -> Result<BTreeMap<TxnId, u32>, String> {
    let mut txns: BTreeMap<TxnId, u32> = BTreeMap::new();
    let mut previous: Option<(SlotBody, stratagraph::digest::Digest)> = None;
    for version in head.body.floor..=head.version {
        let slot = store.read_slot(version).await.map_err(|e| e.to_string())?;
        let slot = slot.ok_or_else(|| format!("I1: slot {version} is missing"))?;
        let (body, digest) = SlotBody::decode(version, &slot.bytes).map_err(|e| e.to_string())?;
        if let Some((before, expected)) = &previous {
            if body.parent != Some(*expected) {
                return Err(format!(
                    "I1: slot {version} does not extend its predecessor"
                ));
            }
            if body.floor < before.floor || body.horizon < before.horizon {
                return Err(format!("I12: floor or horizon fell at {version}"));
            }
        }
        for commit in &body.commits {
            *txns.entry(commit.txn.clone()).or_default() += 1;
        }
        previous = Some((body, digest));
    }
    Ok(txns)
}

/// I10: after a collection without grace, everything on the store is reachable.
pub async fn no_orphans(base: Arc<dyn ObjectStore>, seed: u64) -> Result<(), String> {
    let catalog = process(base, seed);
    catalog
        .collect_garbage(0, false)
        .await
        .map_err(|e| e.to_string())?;
    let head = catalog.look().await.map_err(|e| e.to_string())?;
    let marked = mark(catalog.store(), &head.body)
        .await
        .map_err(|e| e.to_string())?;
    for (key, _) in catalog
        .store()
        .list(layout::DATA)
        .await
        .map_err(|e| e.to_string())?
    {
        // The collection's own pages are staged at its begin, which the horizon does not pass.
        let staged = layout::parse_object(&key).ok_or("foreign object")?;
        if !marked.contains(&staged.0, staged.1) && staged.0.begin() < head.body.horizon {
            return Err(format!("I10: orphan {key}"));
        }
    }
    Ok(())
}

/// All objects of a store with their bytes, in key order.
pub async fn objects(store: &Arc<dyn ObjectStore>) -> Vec<(Path, bytes::Bytes)> {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    let mut metas: Vec<_> = store.list(None).try_collect().await.unwrap();
    metas.sort_by(|a, b| a.location.cmp(&b.location));
    let mut objects = Vec::new();
    for meta in metas {
        let bytes = store
            .get(&meta.location)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        objects.push((meta.location, bytes));
    }
    objects
}
