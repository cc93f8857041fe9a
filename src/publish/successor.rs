//! From a parent version and what changes to the edit that commits the next version.

use std::collections::BTreeMap;

use crate::Result;
use crate::catalog::commit::{Attempt, Edit};
use crate::catalog::history::History;
use crate::catalog::manifest::{Ancestor, BranchManifest, type_key};
use crate::catalog::resolve::{EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::{
    BranchEntry, CommitKind, CommitRecord, DatasetEntry, DatasetKind, FORMAT, Fork,
};
use crate::digest::Digest;
use crate::ident::{BranchName, Name, TxnId};
use crate::store::{ObjRef, PageTree, format_runs, layout};
use crate::table::manifest::{TableDelta, TableManifest, TableRoot};

/// A version that a commit made current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Version number.
    pub version: u64,
    /// The version it was made from.
    pub parent_version: Option<u64>,
    /// Identity of its content.
    pub identity: Digest,
    /// Live rows.
    pub live_rows: u64,
    /// Dead rows.
    pub dead_rows: u64,
    /// Entries of the reject ledger.
    pub rejects: u64,
    /// Transaction.
    pub txn: TxnId,
    /// Commit id.
    pub commit_id: String,
}

/// Who asks for a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// Name of the actor.
    pub actor: Option<String>,
    /// Idempotence key.
    pub request_id: Option<String>,
}

/// The content of the next version.
pub(super) struct Next {
    pub kind: CommitKind,
    pub name: Name,
    pub table: TableManifest,
    pub delta: TableDelta,
    pub identity: Digest,
    pub descriptor: Option<String>,
    pub definition: Option<ObjRef>,
    pub counts: BTreeMap<String, i64>,
    pub requester: Requester,
    /// Objects that earlier steps of this transaction staged and this version references.
    pub staged: Vec<ObjRef>,
    /// [`crate::store::Stager::mark`] at the start of the attempt.
    pub mark: usize,
    /// Whether it references objects that its parent does not, beside its own.
    pub imports: bool,
}

/// Ids of a dataset and its main branch, minted once per transaction.
#[derive(Debug, Clone)]
pub(super) struct NewIds {
    pub dataset: String,
    pub branch: String,
}

/// Writes the manifest of the first version of a new table.
pub(super) fn first_version(
    attempt: &mut Attempt<'_>,
    ids: &NewIds,
    next: Next,
) -> Result<(Edit, Published)> {
    let dataset = ids.dataset(attempt, DatasetKind::Embedding);
    let place = Place::first(ids);
    write_table(attempt, dataset, place, next)
}

/// Writes the manifest of the successor of `parent`.
pub(super) fn next_version(
    attempt: &mut Attempt<'_>,
    parent: &TableSnapshot,
    next: Next,
) -> Result<(Edit, Published)> {
    let main = BranchName::main();
    let tables = [parent.table.as_ref().clone()];
    let place = Place::after(attempt, &parent.dataset, &main, &parent.current, &tables)?;
    write_table(attempt, parent.dataset.clone(), place, next)
}

fn write_table(
    attempt: &mut Attempt<'_>,
    dataset: DatasetEntry,
    place: Place,
    next: Next,
) -> Result<(Edit, Published)> {
    let counted = (
        next.table.live_rows,
        next.table.dead_rows,
        next.table.rejects,
    );
    let identity = next.identity;
    let root = TableRoot::Inline(Box::new(next.table));
    let content = Content {
        kind: next.kind,
        name: next.name,
        tables: PageTree::leaf(type_key(EMBEDDING_TYPE), root),
        delta: vec![next.delta],
        identity: Some(identity),
        descriptor: next.descriptor,
        definition: next.definition,
        counts: next.counts,
        requester: next.requester,
        staged: next.staged,
        mark: next.mark,
        imports: next.imports,
    };
    let (edit, written) = write(attempt, dataset, place, content)?;
    let published = Published {
        version: written.version,
        parent_version: written.parent_version,
        identity,
        live_rows: counted.0,
        dead_rows: counted.1,
        rejects: counted.2,
        txn: written.txn,
        commit_id: written.commit_id,
    };
    Ok((edit, published))
}

impl NewIds {
    /// The entry of a new dataset without branches.
    pub(super) fn dataset(&self, attempt: &Attempt<'_>, kind: DatasetKind) -> DatasetEntry {
        DatasetEntry {
            id: self.dataset.clone(),
            kind,
            created_at: attempt.catalog.env().clock.now_micros(),
            next_rids: BTreeMap::new(),
            branches: BTreeMap::new(),
            definition: None,
        }
    }
}

/// Where a version stands in its branch.
pub(super) struct Place {
    pub version: u64,
    pub parent_version: Option<u64>,
    /// Branch id.
    pub branch: String,
    pub branch_name: BranchName,
    pub parents: Vec<String>,
    pub history: History,
    pub fork: Option<Fork>,
    pub ancestry: BTreeMap<String, Ancestor>,
}

impl Place {
    /// Version 0 of the main branch of a new dataset.
    pub(super) fn first(ids: &NewIds) -> Self {
        Self {
            version: 0,
            parent_version: None,
            branch: ids.branch.clone(),
            branch_name: BranchName::main(),
            parents: Vec::new(),
            history: History::default(),
            fork: None,
            ancestry: BTreeMap::new(),
        }
    }

    /// The successor of the head of a branch, which has `tables`.
    pub(super) fn after(
        attempt: &mut Attempt<'_>,
        dataset: &DatasetEntry,
        branch: &BranchName,
        current: &BranchManifest,
        tables: &[TableManifest],
    ) -> Result<Self> {
        let (mut history, head) = (current.history.clone(), dataset.branch(branch));
        if let Some(head) = head {
            history.push(current.history_entry(head, tables), attempt.stage)?;
        }
        Ok(Self {
            version: current.version + 1,
            parent_version: Some(current.version),
            branch: current.branch.clone(),
            branch_name: branch.clone(),
            parents: vec![current.commit.id.clone()],
            history,
            fork: head.and_then(|head| head.fork.clone()),
            ancestry: current.ancestry.clone(),
        })
    }
}

/// What a version holds.
pub(super) struct Content {
    pub kind: CommitKind,
    pub name: Name,
    pub tables: PageTree<TableRoot>,
    pub delta: Vec<TableDelta>,
    pub identity: Option<Digest>,
    pub descriptor: Option<String>,
    pub definition: Option<ObjRef>,
    pub counts: BTreeMap<String, i64>,
    pub requester: Requester,
    pub staged: Vec<ObjRef>,
    pub mark: usize,
    pub imports: bool,
}

/// A manifest that was added to the stage.
pub(super) struct Written {
    pub version: u64,
    pub parent_version: Option<u64>,
    pub txn: TxnId,
    pub commit_id: String,
}

/// Adds the manifest of a version to the stage and makes it the head of its branch in `dataset`.
pub(super) fn write(
    attempt: &mut Attempt<'_>,
    mut dataset: DatasetEntry,
    place: Place,
    content: Content,
) -> Result<(Edit, Written)> {
    let env = attempt.catalog.env();
    let commit = CommitRecord {
        txn: attempt.stage.txn().clone(),
        id: env.ids.unique(),
        dataset: dataset.id.clone(),
        dataset_name: content.name.to_string(),
        branch: place.branch_name.to_string(),
        kind: content.kind,
        actor: content.requester.actor,
        time: env.clock.now_micros(),
        request_id: content.requester.request_id,
    };
    let written = Written {
        version: place.version,
        parent_version: place.parent_version,
        txn: commit.txn.clone(),
        commit_id: commit.id.clone(),
    };
    let mut numbers = attempt.stage.written_since(content.mark)?;
    let own = content
        .staged
        .iter()
        .filter_map(|o| layout::parse_object(&o.key));
    numbers.extend(own.filter(|(txn, _)| *txn == commit.txn).map(|(_, n)| n));
    let manifest = BranchManifest {
        format: FORMAT,
        dataset: dataset.id.clone(),
        branch: place.branch.clone(),
        version: place.version,
        parent_version: place.parent_version,
        commit: commit.clone(),
        counts: content.counts,
        parents: place.parents,
        catalog_version: attempt.version,
        identity: content.identity,
        descriptor: content.descriptor,
        definition: content.definition.clone(),
        tables: content.tables,
        delta: content.delta,
        history: place.history,
        objects: format_runs(&numbers),
        imports: content.imports,
        ancestry: place.ancestry,
    };
    let object = attempt.stage.add_json(&manifest)?;
    let branch = BranchEntry {
        id: place.branch,
        commit_id: commit.id.clone(),
        version: place.version,
        manifest: object,
        fork: place.fork,
    };
    if place.branch_name == BranchName::main() {
        dataset.definition = content.definition;
    }
    dataset.branches.insert(place.branch_name, branch);
    let mut edit = Edit::new(commit);
    edit.datasets
        .insert(content.name.to_string(), Some(dataset));
    Ok((edit, written))
}
