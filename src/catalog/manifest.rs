//! The manifest of one version of a branch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::history::{History, HistoryEntry};
use super::slot::{BranchEntry, CommitRecord, FORMAT};
use crate::digest::{Digest, parse_canonical};
use crate::store::{ObjRef, PageTree, Store};
use crate::table::manifest::{TableDelta, TableManifest, TableRoot};
use crate::{Error, Result};

const ARTIFACT: &str = "version manifest";

/// One version of a branch: its commit, its tables, what it changed, and the versions before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchManifest {
    /// Format of the store.
    pub format: u64,
    /// Dataset id.
    pub dataset: String,
    /// Branch id.
    pub branch: String,
    /// Version number: monotonic, never reused.
    pub version: u64,
    /// The version it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_version: Option<u64>,
    /// The commit.
    pub commit: CommitRecord,
    /// Result counts of the commit, by name.
    pub counts: BTreeMap<String, i64>,
    /// Commit ids of its parents.
    pub parents: Vec<String>,
    /// Catalog version of the commit.
    pub catalog_version: u64,
    /// Identity of the content; embedding tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Digest>,
    /// Canonical JSON text of the delta descriptor that the identity folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<String>,
    /// The definition object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<ObjRef>,
    /// Tables by type id (20 digits).
    pub tables: PageTree<TableRoot>,
    /// What the commit changed, by table.
    pub delta: Vec<TableDelta>,
    /// Retained versions before this one.
    pub history: History,
    /// Numbers of the objects that the commit wrote under its transaction, this one included.
    pub objects: String,
    /// Whether it references objects that its parent did not.
    pub imports: bool,
    /// The newest state of every other branch that this version descends from, by branch id. Versions
    /// of one branch are a line, so it also descends from all older versions of these branches.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub ancestry: BTreeMap<String, Ancestor>,
}

/// A state of a branch that a version of another branch descends from. Its objects stay as long as
/// that version does, so that merges find their base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    /// Its version in its branch.
    pub version: u64,
    /// Its commit id.
    pub commit_id: String,
    /// Catalog version of its commit.
    pub catalog_version: u64,
    /// Its manifest.
    pub manifest: ObjRef,
}

/// The key of a type in [`BranchManifest::tables`].
pub fn type_key(type_id: u64) -> String {
    format!("{type_id:020}")
}

impl BranchManifest {
    /// Loads and checks a manifest.
    pub async fn load(store: &Store, object: &ObjRef) -> Result<Self> {
        let manifest: Self =
            parse_canonical(ARTIFACT, &object.key, &store.get(ARTIFACT, object).await?)?;
        if manifest.format != FORMAT {
            let (path, found) = (object.key.clone(), manifest.format);
            return Err(Error::IncompatibleFormat {
                path,
                found,
                supported: FORMAT,
            });
        }
        Ok(manifest)
    }

    /// The table of a type.
    pub async fn table(&self, store: &Store, type_id: u64) -> Result<Option<TableManifest>> {
        match self.tables.get(store, &type_key(type_id)).await? {
            None => Ok(None),
            Some(root) => load_table(store, root).await.map(Some),
        }
    }

    /// All tables in type order.
    pub async fn all_tables(&self, store: &Store) -> Result<Vec<TableManifest>> {
        let roots = self.tables.entries(store).await?;
        futures::future::try_join_all(roots.into_iter().map(|(_, root)| load_table(store, root)))
            .await
    }

    /// All objects that this version reads: not its history.
    pub async fn reach(&self, store: &Store, manifest: &ObjRef) -> Result<Vec<ObjRef>> {
        let mut objects = vec![manifest.clone()];
        objects.extend(self.definition.clone());
        let mut pages = Vec::new();
        for (_, root) in self
            .tables
            .walk(store, &mut |page| pages.push(page.clone()))
            .await?
        {
            if let TableRoot::Object(object) = &root {
                objects.push(object.clone());
            }
            objects.extend(load_table(store, root).await?.reach(store).await?);
        }
        let killed = self.delta.iter().flat_map(|d| &d.killed);
        objects.extend(killed.flat_map(|k| k.positions.chunks.iter().map(|(_, o)| o.clone())));
        objects.extend(pages);
        Ok(objects)
    }

    /// This version's entry in the history of its successor.
    pub fn history_entry(&self, head: &BranchEntry, tables: &[TableManifest]) -> HistoryEntry {
        HistoryEntry {
            version: self.version,
            parent_version: self.parent_version,
            manifest: head.manifest.clone(),
            identity: self.identity,
            commit_id: self.commit.id.clone(),
            parents: self.parents.clone(),
            txn: self.commit.txn.clone(),
            request_id: self.commit.request_id.clone(),
            actor: self.commit.actor.clone(),
            catalog_version: self.catalog_version,
            kind: self.commit.kind,
            time: self.commit.time,
            live_rows: tables.iter().map(|t| t.live_rows).sum(),
            dead_rows: tables.iter().map(|t| t.dead_rows).sum(),
            fragments: tables.iter().map(|t| t.fragments).sum(),
            objects: self.objects.clone(),
            imports: self.imports,
        }
    }
}

async fn load_table(store: &Store, root: TableRoot) -> Result<TableManifest> {
    match root {
        TableRoot::Inline(table) => Ok(*table),
        TableRoot::Object(object) => {
            let bytes = store.get("table manifest", &object).await?;
            parse_canonical("table manifest", &object.key, &bytes)
        }
    }
}
