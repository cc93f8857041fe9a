//! From the name of a graph to one state of one of its branches.

use std::sync::Arc;

use super::history::HistoryEntry;
use super::log::Head;
use super::manifest::BranchManifest;
use super::resolve::{TableSnapshot, dataset};
use super::slot::{DatasetEntry, DatasetKind};
use crate::graph::schema::GraphSchema;
use crate::ident::{BranchName, Name};
use crate::store::{ObjRef, Store};
use crate::{Error, Result};

/// Which state of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    /// The newest one.
    Head,
    /// The one that this commit made.
    Commit(String),
    /// The one that was current at this catalog version.
    Catalog(u64),
    /// The newest one that was made at this time or before, microseconds since 1970-01-01 UTC. Writers
    /// with other clocks say other times.
    Time(i64),
}

/// One state of one branch of a graph: all its types at one commit.
#[derive(Debug, Clone)]
pub struct GraphSnapshot {
    /// Name of the graph.
    pub name: Name,
    /// Name of the branch.
    pub branch: BranchName,
    /// The graph's entry in the head.
    pub dataset: DatasetEntry,
    /// Manifest of the branch's head.
    pub current: Arc<BranchManifest>,
    /// Reference of the state's manifest.
    pub manifest_ref: ObjRef,
    /// Manifest of the state.
    pub manifest: Arc<BranchManifest>,
    /// The schema of the state.
    pub schema: Arc<GraphSchema>,
    /// Catalog version of the head.
    pub catalog_version: u64,
}

impl GraphSnapshot {
    /// The table of a type.
    ///
    /// # Errors
    /// `Corrupt` if the manifest lacks a type of its schema.
    pub async fn table(&self, store: &Store, type_id: u64) -> Result<TableSnapshot> {
        let missing = || {
            let expected = format!("table {type_id}");
            Error::corrupt("version manifest", &self.manifest_ref.key, expected, "none")
        };
        let key = format!("table:{type_id}:{}", self.manifest_ref.key);
        let table = match store.cache().get(&key) {
            Some(known) => known,
            None => {
                let loaded = self.manifest.table(store, type_id).await?;
                let table = Arc::new(loaded.ok_or_else(missing)?);
                store.cache().put(&key, Arc::clone(&table), 4 * 1024);
                table
            }
        };
        Ok(TableSnapshot {
            name: self.name.clone(),
            dataset: self.dataset.clone(),
            current: Arc::clone(&self.current),
            manifest_ref: self.manifest_ref.clone(),
            manifest: Arc::clone(&self.manifest),
            table,
            catalog_version: self.catalog_version,
        })
    }

    /// Commit id of the state.
    pub fn commit_id(&self) -> &str {
        &self.manifest.commit.id
    }
}

/// The entry of a graph.
///
/// # Errors
/// `NotFound` for a name of nothing, or of something else.
pub async fn graph_dataset(store: &Store, head: &Head, name: &Name) -> Result<DatasetEntry> {
    let found = dataset(store, head, name).await?;
    let graph = found.filter(|entry| entry.kind == DatasetKind::Graph);
    graph.ok_or_else(|| Error::NotFound {
        what: "graph",
        name: name.to_string(),
    })
}

/// A state of a branch of a graph.
///
/// # Errors
/// `NotFound` for the graph, the branch or the commit; `VersionUnavailable` for a state that is no
/// longer retained.
pub async fn graph(
    store: &Store,
    head: &Head,
    name: &Name,
    branch: &BranchName,
    at: &At,
) -> Result<GraphSnapshot> {
    let dataset = graph_dataset(store, head, name).await?;
    let missing = || Error::NotFound {
        what: "branch",
        name: format!("{name}@{branch}"),
    };
    let entry = dataset.branch(branch).cloned().ok_or_else(missing)?;
    let current = manifest(store, &entry.manifest).await?;
    let (manifest_ref, manifest) = match past(store, &current, at).await? {
        Past::Current => (entry.manifest, Arc::clone(&current)),
        Past::Retained { entry, exact: true } => {
            let manifest = manifest(store, &entry.manifest).await?;
            (entry.manifest.clone(), manifest)
        }
        Past::Retained { exact: false, .. } | Past::Forgotten => {
            return Err(unavailable(name, branch, at));
        }
    };
    let schema = load_schema(store, &manifest, &manifest_ref).await?;
    Ok(GraphSnapshot {
        name: name.clone(),
        branch: branch.clone(),
        dataset,
        current,
        manifest_ref,
        manifest,
        schema,
        catalog_version: head.version,
    })
}

/// A manifest, parsed once while it stays in the cache: every statement asks for that of the head.
async fn manifest(store: &Store, object: &ObjRef) -> Result<Arc<BranchManifest>> {
    let key = format!("branch-manifest:{}", object.key);
    if let Some(known) = store.cache().get(&key) {
        return Ok(known);
    }
    let loaded = Arc::new(BranchManifest::load(store, object).await?);
    let bytes = usize::try_from(object.size)
        .unwrap_or(usize::MAX)
        .saturating_mul(2);
    store.cache().put(&key, Arc::clone(&loaded), bytes);
    Ok(loaded)
}

/// The version of the newest retained state of a branch at `at` or before; it may not be the one that
/// was current then, if that was forgotten. `None` if none is retained.
///
/// # Errors
/// Those of the store.
pub async fn retained_version(
    store: &Store,
    current: &BranchManifest,
    at: &At,
) -> Result<Option<u64>> {
    Ok(match past(store, current, at).await? {
        Past::Current => Some(current.version),
        Past::Retained { entry, .. } => Some(entry.version),
        Past::Forgotten => None,
    })
}

/// Which state of a branch is meant.
enum Past {
    /// Its head.
    Current,
    /// The newest one that is retained and not newer than it; `exact` if it is the one itself, since none
    /// was forgotten after it.
    Retained {
        entry: Box<HistoryEntry>,
        exact: bool,
    },
    /// None is retained.
    Forgotten,
}

async fn past(store: &Store, current: &BranchManifest, at: &At) -> Result<Past> {
    let is_current = match at {
        At::Head => true,
        At::Commit(id) => current.commit.id == *id,
        At::Catalog(version) => current.catalog_version <= *version,
        At::Time(time) => current.commit.time <= *time,
    };
    if is_current {
        return Ok(Past::Current);
    }
    let wanted = |entry: &HistoryEntry| match at {
        At::Head => false,
        At::Commit(id) => entry.commit_id == *id,
        At::Catalog(version) => entry.catalog_version <= *version,
        At::Time(time) => entry.time <= *time,
    };
    let Some((entry, newer)) = current.history.find(store, &wanted).await? else {
        return Ok(Past::Forgotten);
    };
    let made_from = match &newer {
        Some(newer) => newer.parent_version,
        None => current.parent_version,
    };
    let exact = match at {
        At::Head | At::Commit(_) => true,
        At::Catalog(version) if entry.catalog_version == *version => true,
        At::Catalog(_) | At::Time(_) => made_from == Some(entry.version),
    };
    Ok(Past::Retained {
        entry: Box::new(entry),
        exact,
    })
}

fn unavailable(name: &Name, branch: &BranchName, at: &At) -> Error {
    match at {
        At::Catalog(version) => Error::VersionUnavailable {
            table: format!("{name}@{branch}"),
            version: *version,
            detail: "the state of the branch is no longer retained".to_owned(),
        },
        At::Time(_) => Error::NotFound {
            what: "state",
            name: format!("{name}@{branch} at that time"),
        },
        At::Commit(id) => Error::NotFound {
            what: "commit",
            name: format!("{id} of {name}@{branch}"),
        },
        At::Head => Error::NotFound {
            what: "branch",
            name: format!("{name}@{branch}"),
        },
    }
}

async fn load_schema(
    store: &Store,
    manifest: &BranchManifest,
    manifest_ref: &ObjRef,
) -> Result<Arc<GraphSchema>> {
    let missing = || Error::corrupt("version manifest", &manifest_ref.key, "a schema", "none");
    let object = manifest.definition.as_ref().ok_or_else(missing)?;
    let key = format!("graph-schema:{}", object.key);
    if let Some(known) = store.cache().get(&key) {
        return Ok(known);
    }
    let bytes = store.get("graph schema", object).await?;
    let schema = GraphSchema::decode(&object.key, &bytes)?;
    let (schema, size) = (Arc::new(schema), bytes.len() * 2 + key.len());
    store.cache().put(&key, Arc::clone(&schema), size);
    Ok(schema)
}
