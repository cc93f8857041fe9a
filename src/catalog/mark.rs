//! The mark phase: which staged objects a catalog snapshot can still reach.
//!
//! A history entry lists what its commit wrote, and a version references only what its parent
//! referenced, what its own commit wrote, and what it says it imported. So a contiguous run of
//! retained versions reaches what its first version reaches and what the others wrote.
//!
//! A version also reaches the states of other branches that it descends from. A commit that imports
//! nothing has the ancestry of its parent, so these too are found at the versions that are read.

use std::collections::{BTreeMap, BTreeSet};

use super::history::HistoryEntry;
use super::manifest::BranchManifest;
use super::slot::{BranchEntry, SlotBody};
use crate::ident::TxnId;
use crate::store::{ObjRef, Store, layout, parse_runs};
use crate::{Error, Result};

/// Reachable objects by transaction and number.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Marked {
    objects: BTreeMap<TxnId, BTreeSet<u32>>,
    /// Keys of the manifests whose versions are marked whole: branches share their ancestors.
    versions: BTreeSet<String>,
}

impl Marked {
    fn add(&mut self, object: &ObjRef) -> Result<()> {
        let (txn, n) = layout::parse_object(&object.key).ok_or_else(|| {
            Error::corrupt(
                "object reference",
                &object.key,
                "a key of a staged object",
                "another key",
            )
        })?;
        self.objects.entry(txn).or_default().insert(n);
        Ok(())
    }

    fn add_all(&mut self, objects: &[ObjRef]) -> Result<()> {
        objects.iter().try_for_each(|o| self.add(o))
    }

    fn add_written(&mut self, txn: &TxnId, runs: &str) -> Result<()> {
        let numbers = parse_runs(runs).ok_or_else(|| {
            Error::corrupt(
                "history entry",
                txn.as_str(),
                "runs of object numbers",
                runs,
            )
        })?;
        self.objects.entry(txn.clone()).or_default().extend(numbers);
        Ok(())
    }

    /// Joins another mark.
    pub fn merge(&mut self, other: Self) {
        for (txn, numbers) in other.objects {
            self.objects.entry(txn).or_default().extend(numbers);
        }
        self.versions.extend(other.versions);
    }

    /// Whether an object is reachable.
    pub fn contains(&self, txn: &TxnId, n: u32) -> bool {
        self.objects
            .get(txn)
            .is_some_and(|numbers| numbers.contains(&n))
    }

    /// Objects of `self` that `other` does not reach.
    pub fn minus(&self, other: &Self) -> Vec<(TxnId, u32)> {
        let all = self
            .objects
            .iter()
            .flat_map(|(txn, ns)| ns.iter().map(move |n| (txn, *n)));
        all.filter(|(txn, n)| !other.contains(txn, *n))
            .map(|(t, n)| (t.clone(), n))
            .collect()
    }
}

/// Everything that a snapshot reaches: branch heads, retained versions and pins of all datasets.
///
/// # Errors
/// Any manifest that cannot be read; nothing may be deleted then.
pub async fn mark(store: &Store, body: &SlotBody) -> Result<Marked> {
    let mut marked = Marked::default();
    let mut pages = Vec::new();
    let pins = body
        .pins
        .walk(store, &mut |p| pages.push(p.clone()))
        .await?;
    let datasets = body
        .datasets
        .walk(store, &mut |p| pages.push(p.clone()))
        .await?;
    marked.add_all(&pages)?;
    for (_, pin) in pins {
        mark_version(store, &mut marked, &pin.manifest).await?;
    }
    for definition in datasets.iter().filter_map(|(_, d)| d.definition.as_ref()) {
        marked.add(definition)?;
    }
    for branch in datasets.iter().flat_map(|(_, d)| d.branches.values()) {
        mark_branch(store, &mut marked, branch).await?;
    }
    Ok(marked)
}

/// Everything that one branch of a snapshot reaches.
pub async fn mark_branch(store: &Store, marked: &mut Marked, branch: &BranchEntry) -> Result<()> {
    let head = BranchManifest::load(store, &branch.manifest).await?;
    let mut pages = Vec::new();
    let mut entries = head
        .history
        .walk(store, &mut |p| pages.push(p.clone()))
        .await?;
    marked.add_all(&pages)?;
    entries.push(head.history_entry(branch, &[]));
    let mut previous: Option<&HistoryEntry> = None;
    for entry in &entries {
        let continues = previous.is_some_and(|p| entry.parent_version == Some(p.version));
        if continues && !entry.imports {
            marked.add(&entry.manifest)?;
        } else {
            mark_version(store, marked, &entry.manifest).await?;
        }
        marked.add_written(&entry.txn, &entry.objects)?;
        previous = Some(entry);
    }
    Ok(())
}

/// Everything that one version reads, and the states of other branches that it descends from.
async fn mark_version(store: &Store, marked: &mut Marked, manifest: &ObjRef) -> Result<()> {
    let loaded = mark_content(store, marked, manifest).await?;
    for ancestor in loaded.ancestry.values() {
        if !marked.versions.contains(&ancestor.manifest.key) {
            mark_content(store, marked, &ancestor.manifest).await?;
        }
    }
    Ok(())
}

async fn mark_content(
    store: &Store,
    marked: &mut Marked,
    manifest: &ObjRef,
) -> Result<BranchManifest> {
    let loaded = BranchManifest::load(store, manifest).await?;
    marked.add_all(&loaded.reach(store, manifest).await?)?;
    marked.versions.insert(manifest.key.clone());
    Ok(loaded)
}
