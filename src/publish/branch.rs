//! Transactions on the branches of a graph: a new branch, and the end of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::moves::only_moved_since;
use super::successor::{Content, Place, Requester, Written, write};
use crate::catalog::branch::{descendants, lineage, prune};
use crate::catalog::commit::{Attempt, Edit, Import, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph, graph_dataset};
use crate::catalog::history::History;
use crate::catalog::resolve;
use crate::catalog::slot::{CommitKind, CommitRecord, DatasetEntry, Fork};
use crate::catalog::{Catalog, Head};
use crate::ident::{BranchName, Name, TxnId};
use crate::store::{Stager, Store};
use crate::{Error, Protection, Result};

/// A branch to create.
#[derive(Debug, Clone)]
pub struct CreateBranch {
    /// The graph.
    pub graph: Name,
    /// Name of the new branch.
    pub branch: BranchName,
    /// The branch that it is made from.
    pub from: BranchName,
    /// Which state of that branch.
    pub at: At,
    /// Who asks.
    pub requester: Requester,
}

/// A branch that a commit created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchCommit {
    /// The branch.
    pub branch: BranchName,
    /// Version of its head.
    pub version: u64,
    /// Transaction.
    pub txn: TxnId,
    /// Commit id.
    pub commit_id: String,
}

struct Create {
    request: CreateBranch,
    /// Id of the new branch.
    id: String,
    dataset: String,
    /// The older state that was asked for; `None` for the head, whatever it is when this commits.
    older: Option<GraphSnapshot>,
    published: Option<BranchCommit>,
}

/// Creates a branch: one manifest, which shares everything with the state that it is made from.
///
/// The branch numbers its versions from the number after that of the state, so that its fragments stay
/// in the order of their stamps.
///
/// # Errors
/// `AlreadyExists` for the branch; `NotFound` for the graph, the branch or the commit;
/// `VersionUnavailable` for a state that is not retained, `HistoricalVersionReclaimed` for one that
/// expires meanwhile, `ParentMoved` for a graph that is dropped meanwhile; the commit's own.
pub async fn create_branch(
    catalog: &Arc<Catalog>,
    stage: Stager,
    request: CreateBranch,
) -> Result<BranchCommit> {
    let (store, head) = (catalog.store(), catalog.look().await?);
    let (name, from) = (&request.graph, &request.from);
    let state = graph(store, &head, name, from, &request.at).await?;
    let taken = exists(&request);
    if state.dataset.branch(&request.branch).is_some() {
        return Err(taken);
    }
    let create = Create {
        id: catalog.env().ids.unique(),
        dataset: state.dataset.id.clone(),
        older: (request.at != At::Head).then_some(state),
        request,
        published: None,
    };
    let outcome = catalog.commit(stage, create).await?;
    outcome.operation.published.ok_or(taken)
}

fn exists(request: &CreateBranch) -> Error {
    Error::AlreadyExists {
        what: "branch",
        name: format!("{}@{}", request.graph, request.branch),
    }
}

impl Create {
    /// The state to fork, in the head of this attempt.
    async fn state(&self, attempt: &Attempt<'_>) -> Result<GraphSnapshot> {
        let (name, from) = (&self.request.graph, &self.request.from);
        let at = match &self.older {
            Some(older) => At::Commit(older.commit_id().to_owned()),
            None => At::Head,
        };
        let found = graph(attempt.store(), attempt.head, name, from, &at).await;
        match (found, &self.older) {
            (Ok(state), _) if state.dataset.id != self.dataset => Err(Error::ParentMoved {
                table: name.to_string(),
                what: "dropped",
            }),
            (Err(Error::NotFound { .. }), Some(older)) => Err(Error::HistoricalVersionReclaimed {
                dataset: format!("{name}@{from}"),
                version: older.manifest.version,
            }),
            (found, _) => found,
        }
    }
}

#[async_trait]
impl Operation for Create {
    fn imports(&self) -> Vec<Import> {
        let import = |state: &GraphSnapshot| Import {
            dataset_name: format!("{}@{}", state.name, state.branch),
            dataset: state.manifest.dataset.clone(),
            branch: state.manifest.branch.clone(),
            version: state.manifest.version,
            manifest: state.manifest_ref.clone(),
        };
        // An expiry writes the head's manifest anew, so only that of a past state stays the same.
        let past = |state: &&GraphSnapshot| state.manifest.version != state.current.version;
        self.older.iter().filter(past).map(import).collect()
    }

    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let state = self.state(attempt).await?;
        if state.dataset.branch(&self.request.branch).is_some() {
            return Err(exists(&self.request));
        }
        let mark = attempt.stage.mark();
        let place = fork_of(attempt, &state, &self.request.branch, self.id.clone()).await?;
        let content = Content {
            kind: CommitKind::BranchCreate,
            name: self.request.graph.clone(),
            tables: state.manifest.tables.clone(),
            delta: Vec::new(),
            identity: None,
            descriptor: None,
            definition: state.manifest.definition.clone(),
            counts: BTreeMap::new(),
            requester: self.request.requester.clone(),
            staged: Vec::new(),
            mark,
            imports: true,
        };
        let (edit, written) = write(attempt, state.dataset.clone(), place, content)?;
        self.published = Some(committed(&self.request.branch, written));
        Ok(Some(edit))
    }
}

/// The first version of a branch that is made from a state.
pub(super) async fn fork_of(
    attempt: &Attempt<'_>,
    state: &GraphSnapshot,
    name: &BranchName,
    id: String,
) -> Result<Place> {
    let source = state.manifest.branch.as_str();
    let ancestry = lineage(&state.manifest, &state.manifest_ref);
    let ancestry = prune(attempt.store(), &state.dataset, ancestry, &[source]).await?;
    Ok(Place {
        version: state.manifest.version + 1,
        parent_version: None,
        branch: id,
        branch_name: name.clone(),
        parents: vec![state.commit_id().to_owned()],
        history: History::default(),
        fork: Some(Fork {
            branch: source.to_owned(),
            version: state.manifest.version,
            commit_id: state.commit_id().to_owned(),
            time: attempt.catalog.env().clock.now_micros(),
        }),
        ancestry,
    })
}

fn committed(branch: &BranchName, written: Written) -> BranchCommit {
    BranchCommit {
        branch: branch.clone(),
        version: written.version,
        txn: written.txn,
        commit_id: written.commit_id,
    }
}

/// The end of a branch, as long as it is what was seen.
pub(super) struct Delete {
    graph: Name,
    dataset: String,
    branch: BranchName,
    /// Branch id and commit id that the caller could see.
    seen: (String, String),
    requester: Requester,
    deleted: Option<BranchCommit>,
}

/// Deletes a branch; a garbage collection then deletes what no other branch shares with it.
///
/// # Errors
/// `NotFound` for the graph or the branch; `BranchProtected` for the main branch and for one that other
/// branches were made from; `Pinned`; `ReadSetChanged` if a commit changed the branch meanwhile, so
/// that no commit goes that the caller could not know; the commit's own.
pub async fn delete_branch(
    catalog: &Arc<Catalog>,
    stage: Stager,
    graph: Name,
    branch: BranchName,
    requester: Requester,
) -> Result<BranchCommit> {
    let head = catalog.look().await?;
    let dataset = graph_dataset(catalog.store(), &head, &graph).await?;
    let missing = || Error::NotFound {
        what: "branch",
        name: format!("{graph}@{branch}"),
    };
    let seen = dataset.branch(&branch).cloned().ok_or_else(missing)?;
    let delete = Delete {
        graph,
        dataset: dataset.id,
        branch,
        seen: (seen.id, seen.commit_id),
        requester,
        deleted: None,
    };
    delete.run(catalog, stage).await
}

impl Delete {
    /// Of the branch of a state, which was its head.
    pub(super) fn of(state: &GraphSnapshot, requester: Requester) -> Self {
        Self {
            graph: state.name.clone(),
            dataset: state.dataset.id.clone(),
            branch: state.branch.clone(),
            seen: (state.manifest.branch.clone(), state.commit_id().to_owned()),
            requester,
            deleted: None,
        }
    }

    pub(super) async fn run(self, catalog: &Arc<Catalog>, stage: Stager) -> Result<BranchCommit> {
        let lost = changed(&self.graph, &self.branch);
        let outcome = catalog.commit(stage, self).await?;
        outcome.operation.deleted.ok_or(lost)
    }
}

/// Another commit moved or deleted a branch.
pub(super) fn changed(graph: &Name, branch: &BranchName) -> Error {
    Error::ReadSetChanged {
        member: format!("{graph}@{branch}"),
        expected: "the state that was read".to_owned(),
        actual: "another one".to_owned(),
    }
}

/// Refuses to delete a branch that must stay.
pub(super) async fn check_deletable(
    store: &Store,
    head: &Head,
    dataset: &DatasetEntry,
    name: &Name,
    (branch, id): (&BranchName, &str),
) -> Result<()> {
    let protected = |protection| Error::BranchProtected {
        branch: format!("{name}@{branch}"),
        protection,
    };
    if *branch == BranchName::main() {
        return Err(protected(Protection::Main));
    }
    let descendants = descendants(dataset, id);
    if !descendants.is_empty() {
        let names = descendants.iter().map(BranchName::to_string).collect();
        return Err(protected(Protection::Descendants(names)));
    }
    let pins = head.body.pins.entries(store).await?;
    let of_it = pins.into_iter();
    let of_it = of_it.filter(|(_, pin)| pin.dataset == dataset.id && pin.branch == id);
    let of_it: Vec<String> = of_it.map(|(name, _)| name).collect();
    match of_it.is_empty() {
        true => Ok(()),
        false => Err(Error::Pinned {
            table: format!("{name}@{branch}"),
            pins: of_it.join(", "),
        }),
    }
}

#[async_trait]
impl Operation for Delete {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let changed = || changed(&self.graph, &self.branch);
        let found = resolve::dataset(attempt.store(), attempt.head, &self.graph);
        let found = found.await?.filter(|d| d.id == self.dataset);
        let mut dataset = found.ok_or_else(changed)?;
        let gone = dataset.branches.remove(&self.branch).ok_or_else(changed)?;
        if gone.id != self.seen.0 {
            return Err(changed());
        }
        if gone.commit_id != self.seen.1 {
            let (store, head) = (attempt.store(), attempt.head);
            let now = graph(store, head, &self.graph, &self.branch, &At::Head).await?;
            if !only_moved_since(store, &now, &self.seen.1, None).await? {
                return Err(changed());
            }
        }
        let (store, named) = (attempt.store(), (&self.branch, gone.id.as_str()));
        check_deletable(store, attempt.head, &dataset, &self.graph, named).await?;
        let record = CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: attempt.catalog.env().ids.unique(),
            dataset: dataset.id.clone(),
            dataset_name: self.graph.to_string(),
            branch: self.branch.to_string(),
            kind: CommitKind::BranchDelete,
            actor: self.requester.actor.clone(),
            time: attempt.catalog.env().clock.now_micros(),
            request_id: self.requester.request_id.clone(),
        };
        self.deleted = Some(BranchCommit {
            branch: self.branch.clone(),
            version: gone.version,
            txn: record.txn.clone(),
            commit_id: record.id.clone(),
        });
        let mut edit = Edit::new(record);
        edit.datasets.insert(self.graph.to_string(), Some(dataset));
        Ok(Some(edit))
    }
}
