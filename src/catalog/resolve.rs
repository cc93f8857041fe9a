//! From names to versions, on one head.

use std::sync::Arc;

use super::log::Head;
use super::manifest::BranchManifest;
use super::slot::{DatasetEntry, DatasetKind};
use crate::ident::{BranchName, Name};
use crate::store::{ObjRef, Store};
use crate::table::manifest::TableManifest;
use crate::{Error, Result};

/// The type id of the only table of an embedding dataset.
pub const EMBEDDING_TYPE: u64 = 1;

/// One version of a one-table dataset.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// Name of the dataset.
    pub name: Name,
    /// Its entry in the head.
    pub dataset: DatasetEntry,
    /// Manifest of the branch's head.
    pub current: Arc<BranchManifest>,
    /// Reference of the version's manifest.
    pub manifest_ref: ObjRef,
    /// Manifest of the version.
    pub manifest: Arc<BranchManifest>,
    /// The version's table.
    pub table: Arc<TableManifest>,
    /// Catalog version of the head.
    pub catalog_version: u64,
}

impl TableSnapshot {
    /// Version number.
    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Whether it is the current version.
    pub fn is_current(&self) -> bool {
        self.manifest.version == self.current.version
    }
}

/// All datasets of a head by name.
pub async fn datasets(store: &Store, head: &Head) -> Result<Vec<(String, DatasetEntry)>> {
    head.body.datasets.entries(store).await
}

/// The dataset of a name.
pub async fn dataset(store: &Store, head: &Head, name: &Name) -> Result<Option<DatasetEntry>> {
    head.body.datasets.get(store, name.as_str()).await
}

/// The embedding dataset of a name, or `NotFound`.
pub async fn embedding_dataset(store: &Store, head: &Head, name: &Name) -> Result<DatasetEntry> {
    let missing = || Error::NotFound {
        what: "embedding table",
        name: name.to_string(),
    };
    let entry = dataset(store, head, name).await?.ok_or_else(missing)?;
    if entry.kind == DatasetKind::Embedding {
        Ok(entry)
    } else {
        Err(missing())
    }
}

/// A version of an embedding table; the current one without `version`.
///
/// # Errors
/// `NotFound` for the table, `VersionUnavailable` for a version that is not retained or whose
/// manifest cannot be read, `Corrupt` for one that is damaged.
pub async fn table(
    store: &Store,
    head: &Head,
    name: &Name,
    version: Option<u64>,
) -> Result<TableSnapshot> {
    let entry = embedding_dataset(store, head, name).await?;
    let branch = entry
        .branch(&BranchName::main())
        .cloned()
        .ok_or_else(|| Error::NotFound {
            what: "branch",
            name: "main".to_owned(),
        })?;
    let current = Arc::new(load(store, name, branch.version, &branch.manifest).await?);
    let (manifest_ref, manifest) = match version {
        Some(wanted) if wanted != current.version => {
            let found = current.history.get(store, wanted).await?;
            let entry = found.ok_or_else(|| unavailable(name, wanted, ""))?;
            let manifest = load(store, name, wanted, &entry.manifest).await?;
            (entry.manifest, Arc::new(manifest))
        }
        _ => (branch.manifest, Arc::clone(&current)),
    };
    let table = manifest
        .table(store, EMBEDDING_TYPE)
        .await?
        .ok_or_else(|| Error::corrupt("version manifest", &manifest_ref.key, "a table", "none"))?;
    Ok(TableSnapshot {
        name: name.clone(),
        dataset: entry,
        current,
        manifest_ref,
        manifest,
        table: Arc::new(table),
        catalog_version: head.version,
    })
}

fn unavailable(name: &Name, version: u64, detail: &str) -> Error {
    Error::VersionUnavailable {
        table: name.to_string(),
        version,
        detail: detail.to_owned(),
    }
}

/// A manifest that is gone is an unavailable version; a damaged one says so itself.
async fn load(store: &Store, name: &Name, version: u64, object: &ObjRef) -> Result<BranchManifest> {
    match BranchManifest::load(store, object).await {
        Err(e) if e.is_missing_object() => Err(unavailable(
            name,
            version,
            "its manifest is missing; recompute the table",
        )),
        other => other,
    }
}
