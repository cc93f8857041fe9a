//! Branches of a dataset: which there are, what they were made from, and what they descend from.
//!
//! Versions of one branch are a line, so a set of ancestors is known by the newest version of every
//! branch in it. Common ancestors of two states are, branch by branch, those up to the older of both.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::graph_dataset;
use super::log::Head;
use super::manifest::{Ancestor, BranchManifest};
use super::slot::{BranchEntry, DatasetEntry};
use crate::Result;
use crate::ident::{BranchName, Name};
use crate::store::{ObjRef, Store};

/// A branch of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchInfo {
    /// Its name.
    pub name: BranchName,
    /// Commit id of its head.
    pub commit_id: String,
    /// Version of its head.
    pub version: u64,
    /// The branch that it was made from, if that one is still there.
    pub parent: Option<BranchName>,
    /// Microseconds since 1970-01-01 UTC.
    pub created_at: i64,
}

/// The branches of a graph by name.
///
/// # Errors
/// `NotFound` for the graph.
pub async fn branches(store: &Store, head: &Head, name: &Name) -> Result<Vec<BranchInfo>> {
    let dataset = graph_dataset(store, head, name).await?;
    let info = |(name, entry): (&BranchName, &BranchEntry)| {
        let fork = entry.fork.as_ref();
        BranchInfo {
            name: name.clone(),
            commit_id: entry.commit_id.clone(),
            version: entry.version,
            parent: fork.and_then(|fork| name_of(&dataset, &fork.branch).cloned()),
            created_at: fork.map_or(dataset.created_at, |fork| fork.time),
        }
    };
    Ok(dataset.branches.iter().map(info).collect())
}

/// The name of a branch by id.
fn name_of<'a>(dataset: &'a DatasetEntry, id: &str) -> Option<&'a BranchName> {
    let mut branches = dataset.branches.iter();
    branches
        .find(|(_, entry)| entry.id == id)
        .map(|(name, _)| name)
}

/// The branches that were made from the branch of an id.
pub(crate) fn descendants(dataset: &DatasetEntry, id: &str) -> Vec<BranchName> {
    let made_from = |entry: &BranchEntry| entry.fork.as_ref().is_some_and(|f| f.branch == id);
    let branches = dataset.branches.iter().filter(|(_, e)| made_from(e));
    branches.map(|(name, _)| name.clone()).collect()
}

/// Everything that a version descends from, and itself, by branch id.
pub(crate) fn lineage(manifest: &BranchManifest, object: &ObjRef) -> BTreeMap<String, Ancestor> {
    let own = Ancestor {
        version: manifest.version,
        commit_id: manifest.commit.id.clone(),
        catalog_version: manifest.catalog_version,
        manifest: object.clone(),
    };
    let mut all = manifest.ancestry.clone();
    all.insert(manifest.branch.clone(), own);
    all
}

/// The newest state that two states descend from, with the id of its branch.
pub(crate) fn common_ancestor(
    a: &BTreeMap<String, Ancestor>,
    b: &BTreeMap<String, Ancestor>,
) -> Option<(String, Ancestor)> {
    let older = |(id, of_a): (&String, &Ancestor)| {
        let of_b = b.get(id)?;
        let older = if of_a.version <= of_b.version {
            of_a
        } else {
            of_b
        };
        Some((id.clone(), older.clone()))
    };
    // A state is newer than all that it descends from.
    let common = a.iter().filter_map(older);
    common.max_by_key(|(_, ancestor)| ancestor.catalog_version)
}

/// Everything that either descends from.
pub(crate) fn join(
    mut a: BTreeMap<String, Ancestor>,
    b: BTreeMap<String, Ancestor>,
) -> BTreeMap<String, Ancestor> {
    for (id, ancestor) in b {
        if a.get(&id)
            .is_none_or(|known| known.version < ancestor.version)
        {
            a.insert(id, ancestor);
        }
    }
    a
}

/// Ancestry without the branches that are gone and that no branch beside `except` descends from:
/// what one of `except` shares with another state, the state that is made from it shares too.
pub(crate) async fn prune(
    store: &Store,
    dataset: &DatasetEntry,
    mut ancestry: BTreeMap<String, Ancestor>,
    except: &[&str],
) -> Result<BTreeMap<String, Ancestor>> {
    let mut kept: BTreeSet<String> = dataset.branches.values().map(|b| b.id.clone()).collect();
    if ancestry.keys().all(|id| kept.contains(id)) {
        return Ok(ancestry);
    }
    for manifest in heads(store, dataset, except).await? {
        kept.extend(manifest.ancestry.into_keys());
    }
    ancestry.retain(|id, _| kept.contains(id));
    Ok(ancestry)
}

/// Versions of a branch that other branches were made from or descend from.
pub(crate) async fn shared_versions(
    store: &Store,
    dataset: &DatasetEntry,
    id: &str,
) -> Result<BTreeSet<u64>> {
    let forks = dataset.branches.values().flat_map(|b| &b.fork);
    let forks = forks.filter(|f| f.branch == id).map(|f| f.version);
    let mut versions: BTreeSet<u64> = forks.collect();
    for manifest in heads(store, dataset, &[id]).await? {
        versions.extend(manifest.ancestry.get(id).map(|a| a.version));
    }
    Ok(versions)
}

/// Manifests of the heads of all branches but those of the ids `except`.
async fn heads(
    store: &Store,
    dataset: &DatasetEntry,
    except: &[&str],
) -> Result<Vec<BranchManifest>> {
    let others = dataset.branches.values();
    let others = others.filter(|b| !except.contains(&b.id.as_str()));
    let loads = others.map(|b| BranchManifest::load(store, &b.manifest));
    futures::future::try_join_all(loads).await
}
