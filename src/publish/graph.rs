//! Transactions on graphs: a new graph, and writes to its node and edge tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use roaring::RoaringBitmap;

use super::branch::{changed, fork_of};
use super::footprint::{moved, rebase};
use super::successor::{Content, NewIds, Place, Requester, Written, write};
use super::tables::next_tables;
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::type_key;
use crate::catalog::resolve;
use crate::catalog::slot::{CommitKind, DatasetKind};
use crate::graph::schema::{GraphSchema, GraphType, table_columns};
use crate::ident::{BranchName, Name, TxnId};
use crate::store::{ObjRef, PageTree, Stager};
use crate::table::manifest::{Endpoints, Fragment, RidShift, TableManifest, TableRoot};
use crate::table::schema::graph_schema;
use crate::{Error, Result};

/// A state of a branch that a commit made current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphCommit {
    /// Version number in the branch.
    pub version: u64,
    /// The version it was made from.
    pub parent_version: Option<u64>,
    /// Transaction.
    pub txn: TxnId,
    /// Commit id.
    pub commit_id: String,
}

impl From<Written> for GraphCommit {
    fn from(written: Written) -> Self {
        Self {
            version: written.version,
            parent_version: written.parent_version,
            txn: written.txn,
            commit_id: written.commit_id,
        }
    }
}

struct Create {
    name: Name,
    schema: Arc<GraphSchema>,
    definition: ObjRef,
    ids: NewIds,
    incarnations: Vec<String>,
    requester: Requester,
    published: Option<GraphCommit>,
}

/// Publishes a graph without rows.
///
/// # Errors
/// `AlreadyExists`, and whatever [`Catalog::commit`] returns; nothing is changed then.
pub async fn create_graph(
    catalog: &Arc<Catalog>,
    mut stage: Stager,
    name: Name,
    schema: Arc<GraphSchema>,
    requester: Requester,
) -> Result<GraphCommit> {
    let definition = stage.add("json", schema.encode()?)?;
    let unique = || catalog.env().ids.unique();
    let create = Create {
        ids: NewIds {
            dataset: unique(),
            branch: unique(),
        },
        incarnations: schema.types.iter().map(|_| unique()).collect(),
        definition,
        requester,
        name,
        schema,
        published: None,
    };
    let taken = exists(&create.name);
    let outcome = catalog.commit(stage, create).await?;
    outcome.operation.published.ok_or(taken)
}

fn exists(name: &Name) -> Error {
    Error::AlreadyExists {
        what: "table or graph",
        name: name.to_string(),
    }
}

#[async_trait]
impl Operation for Create {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let taken = resolve::dataset(attempt.store(), attempt.head, &self.name).await?;
        if taken.is_some() {
            return Err(exists(&self.name));
        }
        let mark = attempt.stage.mark();
        let mut tables = BTreeMap::new();
        for (graph_type, incarnation) in self.schema.types.iter().zip(&self.incarnations) {
            let table = empty_table(graph_type, incarnation.clone())?;
            let root = TableRoot::Object(attempt.stage.add_json(&table)?);
            tables.insert(type_key(graph_type.id), Some(root));
        }
        let store = Arc::clone(attempt.store());
        let tables = PageTree::default()
            .apply(&store, attempt.stage, tables)
            .await?;
        let content = Content {
            kind: CommitKind::Schema,
            name: self.name.clone(),
            tables,
            delta: Vec::new(),
            identity: None,
            descriptor: None,
            definition: Some(self.definition.clone()),
            counts: BTreeMap::new(),
            requester: self.requester.clone(),
            staged: vec![self.definition.clone()],
            mark,
            imports: false,
        };
        let dataset = self.ids.dataset(attempt, DatasetKind::Graph);
        let (edit, written) = write(attempt, dataset, Place::first(&self.ids), content)?;
        self.published = Some(written.into());
        Ok(Some(edit))
    }
}

/// A table of a type, without rows.
pub(super) fn empty_table(graph_type: &GraphType, incarnation_id: String) -> Result<TableManifest> {
    let layout = graph_type.layout();
    let endpoints = graph_type.edge.as_ref().map(|ends| Endpoints {
        src: ends.from,
        dst: ends.to,
    });
    Ok(TableManifest {
        type_id: graph_type.id,
        incarnation_id,
        layout,
        endpoints,
        schemas: vec![graph_schema(layout, 0, &table_columns(graph_type)?)?],
        entries: PageTree::default(),
        next_entry: 0,
        live_rows: 0,
        dead_rows: 0,
        fragments: 0,
        rejects: 0,
        mask_digest: None,
        fold: None,
        source_files: None,
    })
}

/// Which rows of a table go.
#[derive(Debug, Clone, PartialEq)]
pub enum Removed {
    /// The rows at these positions, by entry number.
    Positions(BTreeMap<u64, RoaringBitmap>),
    /// All of them.
    All,
}

/// What a write does to one table.
#[derive(Debug, Clone)]
pub struct TableWrite {
    /// Type id.
    pub type_id: u64,
    /// Rows that go.
    pub removed: Removed,
    /// New rows in fragments that were staged.
    pub fragments: Vec<Fragment>,
    /// New rows that are not staged: few enough to be held until the commit, which writes them together
    /// with the newest rows of the table. Columns of the current schema, in the order of the layout.
    pub rows: Vec<RecordBatch>,
    /// Row ids that the new rows took from the counter of `base`, from its value on.
    pub new_rids: u64,
    /// Whether no key of the new rows was there before.
    pub insert_only: bool,
}

impl TableWrite {
    /// Number of the new rows.
    pub(super) fn new_rows(&self) -> u64 {
        let staged: u64 = self.fragments.iter().map(|f| f.rows).sum();
        self.rows
            .iter()
            .fold(staged, |sum, batch| sum + batch.num_rows() as u64)
    }
}

/// A write that was prepared on one state of a branch.
#[derive(Debug, Clone)]
pub struct GraphWrite {
    /// The state.
    pub base: GraphSnapshot,
    /// The branch that the commit makes from the state; `None` changes the branch of the state.
    pub fork: Option<BranchName>,
    /// What kind of commit.
    pub kind: CommitKind,
    /// Tables that it touches, each once.
    pub tables: Vec<TableWrite>,
    /// Result counts for the manifest.
    pub counts: BTreeMap<String, i64>,
    /// Who asks.
    pub requester: Requester,
}

struct Write {
    write: GraphWrite,
    /// Id of the branch that it makes.
    branch: String,
    /// Whether it is only for the very commit that it was prepared on.
    exact: bool,
    published: Option<GraphCommit>,
}

/// Commits a write of any number of tables at once.
///
/// Commits that came first are no matter unless they touch what the write stands on: its keys, the ends
/// of its edges, the edges of nodes that it deletes, unique values, and the sources of counted edges. The
/// fragments stay the same; row ids of new rows shift, and rows that go are found again.
///
/// # Errors
/// `ReadSetChanged` if what it stands on was touched, or if there is a branch of the name of `fork` by
/// now: prepare anew. Whatever [`Catalog::commit`] returns. Nothing is changed then.
pub async fn write_graph(
    catalog: &Arc<Catalog>,
    stage: Stager,
    write: GraphWrite,
) -> Result<GraphCommit> {
    commit(catalog, stage, write, false).await
}

/// The same, only if the branch is still at the commit of `base`.
///
/// # Errors
/// `ReadSetChanged` for any other commit of the branch, and as [`write_graph`].
pub async fn write_graph_exactly(
    catalog: &Arc<Catalog>,
    stage: Stager,
    write: GraphWrite,
) -> Result<GraphCommit> {
    commit(catalog, stage, write, true).await
}

async fn commit(
    catalog: &Arc<Catalog>,
    stage: Stager,
    write: GraphWrite,
    exact: bool,
) -> Result<GraphCommit> {
    let lost = moved(&write.base, None, None);
    let operation = Write {
        branch: catalog.env().ids.unique(),
        write,
        exact,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    outcome.operation.published.ok_or(lost)
}

#[async_trait]
impl Operation for Write {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let base = &self.write.base;
        let (name, branch) = (&base.name, &base.branch);
        let found = graph(attempt.store(), attempt.head, name, branch, &At::Head).await;
        let parent = match found {
            Err(Error::NotFound { .. }) => return Err(moved(base, None, None)),
            other => other?,
        };
        // An expiry writes the manifest anew, but neither the branch nor the commit.
        let same = parent.dataset.id == base.dataset.id
            && parent.manifest.branch == base.manifest.branch
            && parent.commit_id() == base.commit_id();
        let tables = match same {
            true => self.write.tables.clone(),
            false => {
                let (store, env) = (attempt.store(), attempt.catalog.env());
                let exact = self.exact || self.write.fork.is_some();
                rebase(store, env, &self.write, &parent, exact).await?
            }
        };
        if let Some(taken) = &self.write.fork
            && parent.dataset.branch(taken).is_some()
        {
            return Err(changed(name, taken));
        }
        let edit = self.build(attempt, &parent, &tables).await?;
        Ok(Some(edit))
    }
}

impl Write {
    /// How far the new row ids of each type moved, because other branches took ids meanwhile.
    fn shifts(&self, parent: &GraphSnapshot) -> BTreeMap<u64, RidShift> {
        let (was, now) = (
            &self.write.base.dataset.next_rids,
            &parent.dataset.next_rids,
        );
        let at = |counters: &BTreeMap<u64, u64>, of| counters.get(of).copied().unwrap_or(0);
        let fresh = self.write.tables.iter().filter(|w| w.new_rids > 0);
        let shifts = fresh.map(|write| {
            let base = at(was, &write.type_id);
            let shift = at(now, &write.type_id).saturating_sub(base);
            (write.type_id, RidShift { base, shift })
        });
        shifts.filter(|(_, shift)| shift.shift > 0).collect()
    }

    async fn build(
        &mut self,
        attempt: &mut Attempt<'_>,
        parent: &GraphSnapshot,
        tables: &[TableWrite],
    ) -> Result<Edit> {
        let mark = attempt.stage.mark();
        let store = Arc::clone(attempt.store());
        let before = parent.manifest.all_tables(&store).await?;
        let mut dataset = parent.dataset.clone();
        for write in &self.write.tables {
            *dataset.next_rids.entry(write.type_id).or_default() += write.new_rids;
        }
        let (stamp, shifts) = (parent.manifest.version + 1, self.shifts(parent));
        let next = next_tables(attempt, parent, stamp, tables, &shifts).await?;
        let content = Content {
            kind: self.write.kind,
            name: parent.name.clone(),
            tables: next.tables,
            delta: next.delta,
            identity: None,
            descriptor: None,
            definition: parent.manifest.definition.clone(),
            counts: self.write.counts.clone(),
            requester: self.write.requester.clone(),
            staged: next.staged,
            mark,
            imports: self.write.fork.is_some(),
        };
        let place = match &self.write.fork {
            Some(name) => fork_of(attempt, parent, name, self.branch.clone()).await?,
            None => {
                let (branch, current) = (&parent.branch, &parent.current);
                Place::after(attempt, &parent.dataset, branch, current, &before)?
            }
        };
        let (edit, written) = write(attempt, dataset, place, content)?;
        self.published = Some(written.into());
        Ok(edit)
    }
}
