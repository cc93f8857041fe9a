//! From a parent version and what changes to the edit that commits the next version.

use std::collections::BTreeMap;

use crate::Result;
use crate::catalog::commit::{Attempt, Edit};
use crate::catalog::history::History;
use crate::catalog::manifest::{BranchManifest, type_key};
use crate::catalog::resolve::{EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::{
    BranchEntry, CommitKind, CommitRecord, DatasetEntry, DatasetKind, FORMAT,
};
use crate::digest::Digest;
use crate::ident::{BranchName, Name, TxnId};
use crate::store::{ObjRef, format_runs, layout};
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

/// Writes the manifest of the first version of a new dataset.
pub(super) fn first_version(
    attempt: &mut Attempt<'_>,
    ids: &NewIds,
    next: Next,
) -> Result<(Edit, Published)> {
    let dataset = DatasetEntry {
        id: ids.dataset.clone(),
        kind: DatasetKind::Embedding,
        created_at: attempt.catalog.env().clock.now_micros(),
        next_rids: BTreeMap::new(),
        branches: BTreeMap::new(),
        definition: None,
    };
    let place = Place {
        version: 0,
        parent_version: None,
        branch: ids.branch.clone(),
    };
    write(
        attempt,
        dataset,
        place,
        Vec::new(),
        History::default(),
        next,
    )
}

/// Writes the manifest of the successor of `parent`.
pub(super) fn next_version(
    attempt: &mut Attempt<'_>,
    parent: &TableSnapshot,
    next: Next,
) -> Result<(Edit, Published)> {
    let current = &parent.current;
    let mut history = current.history.clone();
    if let Some(head) = parent.dataset.main() {
        let tables = [parent.table.as_ref().clone()];
        history.push(current.history_entry(head, &tables), attempt.stage)?;
    }
    let place = Place {
        version: current.version + 1,
        parent_version: Some(current.version),
        branch: current.branch.clone(),
    };
    let parents = vec![current.commit.id.clone()];
    write(
        attempt,
        parent.dataset.clone(),
        place,
        parents,
        history,
        next,
    )
}

struct Place {
    version: u64,
    parent_version: Option<u64>,
    branch: String,
}

fn write(
    attempt: &mut Attempt<'_>,
    mut dataset: DatasetEntry,
    place: Place,
    parents: Vec<String>,
    history: History,
    next: Next,
) -> Result<(Edit, Published)> {
    let env = attempt.catalog.env();
    let main = BranchName::main();
    let commit = CommitRecord {
        txn: attempt.stage.txn().clone(),
        id: env.ids.unique(),
        dataset: dataset.id.clone(),
        dataset_name: next.name.to_string(),
        branch: main.to_string(),
        kind: next.kind,
        actor: next.requester.actor,
        time: env.clock.now_micros(),
        request_id: next.requester.request_id,
    };
    let published = Published {
        version: place.version,
        parent_version: place.parent_version,
        identity: next.identity,
        live_rows: next.table.live_rows,
        dead_rows: next.table.dead_rows,
        rejects: next.table.rejects,
        txn: commit.txn.clone(),
        commit_id: commit.id.clone(),
    };
    let mut written = attempt.stage.written_since(next.mark, 1);
    let own = next
        .staged
        .iter()
        .filter_map(|o| layout::parse_object(&o.key));
    written.extend(own.filter(|(txn, _)| *txn == commit.txn).map(|(_, n)| n));
    let definition = next.definition;
    let root = TableRoot::Inline(Box::new(next.table));
    let manifest = BranchManifest {
        format: FORMAT,
        dataset: dataset.id.clone(),
        branch: place.branch.clone(),
        version: place.version,
        parent_version: place.parent_version,
        commit: commit.clone(),
        counts: next.counts,
        parents,
        catalog_version: attempt.version,
        identity: Some(next.identity),
        descriptor: next.descriptor,
        definition: definition.clone(),
        tables: crate::store::PageTree::leaf(type_key(EMBEDDING_TYPE), root),
        delta: vec![next.delta],
        history,
        objects: format_runs(&written),
        imports: next.imports,
    };
    let object = attempt.stage.add_json(&manifest)?;
    let branch = BranchEntry {
        id: place.branch,
        commit_id: commit.id.clone(),
        version: place.version,
        manifest: object,
    };
    dataset.branches.insert(main, branch);
    dataset.definition = definition;
    let mut edit = Edit::new(commit);
    edit.datasets.insert(next.name.to_string(), Some(dataset));
    Ok((edit, published))
}
