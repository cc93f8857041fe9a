//! Attaches indexes to the fragments of a branch's head.
//!
//! The version, its identity, its commit and what it shows stay; only its manifest is another one, which
//! says where the indexes are. A reader of the manifest before finds the same rows without them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::successor::Requester;
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::manifest::{BranchManifest, type_key};
use crate::catalog::resolve::dataset;
use crate::catalog::slot::{BranchEntry, CommitKind, CommitRecord, DatasetEntry};
use crate::ident::{BranchName, Name};
use crate::store::Stager;
use crate::table::manifest::{Entry, Segment, TableManifest, TableRoot};
use crate::{Error, Result};

/// Indexes to attach.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// Name of the dataset.
    pub name: Name,
    /// Its id: one of another name or made anew is `NotFound`.
    pub dataset: String,
    /// The branch.
    pub branch: BranchName,
    /// Type id of the table.
    pub type_id: u64,
    /// Indexes by the key of the fragment's object.
    pub segments: BTreeMap<String, Vec<Segment>>,
    /// Who asks.
    pub requester: Requester,
}

struct Attach {
    request: AttachRequest,
    /// Indexes whose fragment was still there.
    attached: u64,
}

/// Attaches indexes; how many of them found their fragment in the head of the branch.
///
/// # Errors
/// `NotFound` if the dataset or the branch is gone, and whatever [`Catalog::commit`] returns; nothing is
/// changed then.
pub async fn attach(catalog: &Arc<Catalog>, stage: Stager, request: AttachRequest) -> Result<u64> {
    let operation = Attach {
        request,
        attached: 0,
    };
    let outcome = catalog.commit(stage, operation).await?;
    Ok(outcome.operation.attached)
}

#[async_trait]
impl Operation for Attach {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let (request, head) = (&self.request, attempt.head);
        let missing = |what, name: String| Error::NotFound { what, name };
        let found = dataset(&store, head, &request.name).await?;
        let entry = found
            .filter(|entry| entry.id == request.dataset)
            .ok_or_else(|| missing("table or graph", request.name.to_string()))?;
        let branch = entry
            .branch(&request.branch)
            .cloned()
            .ok_or_else(|| missing("branch", format!("{}@{}", request.name, request.branch)))?;
        let manifest = BranchManifest::load(&store, &branch.manifest).await?;
        let Some(table) = manifest.table(&store, request.type_id).await? else {
            return Err(missing("table", format!("type {}", request.type_id)));
        };
        let (changes, attached) = changes(attempt, &table, &request.segments).await?;
        self.attached = attached;
        if changes.is_empty() {
            return Ok(None);
        }
        let entries = table.entries.apply(&store, attempt.stage, changes).await?;
        let table = TableManifest { entries, ..table };
        self.edit(attempt, entry, branch, manifest, table)
            .await
            .map(Some)
    }
}

/// The entries with their new indexes.
async fn changes(
    attempt: &Attempt<'_>,
    table: &TableManifest,
    segments: &BTreeMap<String, Vec<Segment>>,
) -> Result<(BTreeMap<String, Option<Entry>>, u64)> {
    let (mut changes, mut attached) = (BTreeMap::new(), 0);
    for (key, mut entry) in table.entries.entries(attempt.store()).await? {
        let Some(fragment) = &mut entry.fragment else {
            continue;
        };
        let before = fragment.segments.clone();
        for segment in segments
            .get(&fragment.file.object.key)
            .into_iter()
            .flatten()
        {
            fragment.set_segment(segment.clone());
            attached += 1;
        }
        if before != fragment.segments {
            changes.insert(key, Some(entry));
        }
    }
    Ok((changes, attached))
}

impl Attach {
    /// The same version with another manifest.
    async fn edit(
        &self,
        attempt: &mut Attempt<'_>,
        mut dataset: DatasetEntry,
        branch: BranchEntry,
        manifest: BranchManifest,
        table: TableManifest,
    ) -> Result<Edit> {
        let key = type_key(self.request.type_id);
        let store = Arc::clone(attempt.store());
        let root = match manifest.tables.get(&store, &key).await? {
            Some(TableRoot::Inline(_)) => TableRoot::Inline(Box::new(table)),
            _ => TableRoot::Object(attempt.stage.add_json(&table)?),
        };
        let changed = BTreeMap::from([(key, Some(root))]);
        let tables = manifest
            .tables
            .apply(&store, attempt.stage, changed)
            .await?;
        // What the version references was not all written by its own commit any more.
        let manifest = BranchManifest {
            tables,
            imports: true,
            ..manifest
        };
        let env = attempt.catalog.env();
        let record = CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: env.ids.unique(),
            dataset: dataset.id.clone(),
            dataset_name: self.request.name.to_string(),
            branch: self.request.branch.to_string(),
            kind: CommitKind::Optimize,
            actor: self.request.requester.actor.clone(),
            time: env.clock.now_micros(),
            request_id: self.request.requester.request_id.clone(),
        };
        let manifest = attempt.stage.add_json(&manifest)?;
        let branch = BranchEntry { manifest, ..branch };
        dataset.branches.insert(self.request.branch.clone(), branch);
        let mut edit = Edit::new(record);
        let name = self.request.name.to_string();
        edit.datasets.insert(name, Some(dataset));
        Ok(edit)
    }
}
