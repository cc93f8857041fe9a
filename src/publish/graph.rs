//! Transactions on graphs: a new graph, and writes to its node and edge tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use roaring::RoaringBitmap;

use super::kill::kill_positions;
use super::successor::{Content, NewIds, Place, Requester, Written, write};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::type_key;
use crate::catalog::resolve;
use crate::catalog::slot::{CommitKind, DatasetKind};
use crate::graph::schema::{GraphSchema, GraphType, table_columns};
use crate::ident::{Name, TxnId};
use crate::store::{ObjRef, PageTree, Stager};
use crate::table::manifest::{Endpoints, Entry, Fragment, TableDelta, TableManifest, TableRoot};
use crate::table::read::TableReader;
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

fn empty_table(graph_type: &GraphType, incarnation_id: String) -> Result<TableManifest> {
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
    /// New rows, in fragments of their own.
    pub fragments: Vec<Fragment>,
    /// Row ids that the new rows took from the counter.
    pub new_rids: u64,
    /// Whether no key of the new rows was there before.
    pub insert_only: bool,
}

/// A write that was prepared on one state of a branch.
#[derive(Debug, Clone)]
pub struct GraphWrite {
    /// The state.
    pub base: GraphSnapshot,
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
    published: Option<GraphCommit>,
}

/// Commits a write of any number of tables at once.
///
/// # Errors
/// `ReadSetChanged` if the branch or the row-id counters of its graph moved since `base` was read:
/// prepare anew. Whatever [`Catalog::commit`] returns. Nothing is changed then.
pub async fn write_graph(
    catalog: &Arc<Catalog>,
    stage: Stager,
    write: GraphWrite,
) -> Result<GraphCommit> {
    let lost = changed(&write.base);
    let operation = Write {
        write,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    outcome.operation.published.ok_or(lost)
}

fn changed(base: &GraphSnapshot) -> Error {
    Error::ReadSetChanged {
        table: format!("{}@{}", base.name, base.branch),
        key: String::new(),
    }
}

#[async_trait]
impl Operation for Write {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let base = &self.write.base;
        let (name, branch) = (&base.name, &base.branch);
        let found = graph(attempt.store(), attempt.head, name, branch, &At::Head).await;
        let parent = match found {
            Err(Error::NotFound { .. }) => return Err(changed(base)),
            other => other?,
        };
        let same = parent.dataset.id == base.dataset.id
            && parent.manifest.commit.id == base.manifest.commit.id
            && parent.dataset.next_rids == base.dataset.next_rids;
        if !same {
            return Err(changed(base));
        }
        let edit = self.build(attempt, &parent).await?;
        Ok(Some(edit))
    }
}

impl Write {
    async fn build(&mut self, attempt: &mut Attempt<'_>, parent: &GraphSnapshot) -> Result<Edit> {
        let mark = attempt.stage.mark();
        let store = Arc::clone(attempt.store());
        let before = parent.manifest.all_tables(&store).await?;
        let (mut roots, mut deltas, mut staged) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut dataset = parent.dataset.clone();
        for write in &self.write.tables {
            let table = parent.table(&store, write.type_id).await?.table;
            let stamp = parent.manifest.version + 1;
            let (table, delta) = next_table(attempt, &table, stamp, write).await?;
            let root = TableRoot::Object(attempt.stage.add_json(&table)?);
            roots.insert(type_key(write.type_id), Some(root));
            deltas.push(delta);
            let files = write.fragments.iter().flat_map(|f| f.file.objects());
            staged.extend(files.cloned());
            *dataset.next_rids.entry(write.type_id).or_default() += write.new_rids;
        }
        let tables = &parent.manifest.tables;
        let content = Content {
            kind: self.write.kind,
            name: parent.name.clone(),
            tables: tables.apply(&store, attempt.stage, roots).await?,
            delta: deltas,
            identity: None,
            descriptor: None,
            definition: parent.manifest.definition.clone(),
            counts: self.write.counts.clone(),
            requester: self.write.requester.clone(),
            staged,
            mark,
            imports: false,
        };
        let (branch, current) = (parent.branch.clone(), Arc::clone(&parent.current));
        let place = Place::after(attempt, &parent.dataset, &branch, &current, &before)?;
        let (edit, written) = write(attempt, dataset, place, content)?;
        self.published = Some(written.into());
        Ok(edit)
    }
}

/// The next state of one table.
async fn next_table(
    attempt: &mut Attempt<'_>,
    parent: &TableManifest,
    stamp: u64,
    write: &TableWrite,
) -> Result<(TableManifest, TableDelta)> {
    let (store, env) = (Arc::clone(attempt.store()), attempt.catalog.env().clone());
    let mut table = parent.clone();
    let mut delta = TableDelta {
        type_id: write.type_id,
        insert_only: write.insert_only,
        ..TableDelta::default()
    };
    let mut changes: BTreeMap<String, Option<Entry>> = BTreeMap::new();
    match &write.removed {
        Removed::All => {
            table.entries = PageTree::default();
            (table.live_rows, table.dead_rows, table.fragments) = (0, 0, 0);
            delta.cleared = true;
        }
        Removed::Positions(positions) if positions.is_empty() => {}
        Removed::Positions(positions) => {
            let reader = TableReader::new(Arc::clone(&store), &env, Arc::new(parent.clone()));
            let entries = reader.entries().await?;
            let kills = kill_positions(&store, &entries, positions.clone(), attempt.stage).await?;
            table.live_rows = table.live_rows.saturating_sub(kills.rows);
            table.dead_rows += kills.rows;
            delta.killed = kills.killed;
            changes = without_dead(&mut table, kills.changes);
        }
    }
    for fragment in &write.fragments {
        let entry = Entry {
            stamp,
            id: table.next_entry,
            fragment: Some(fragment.clone()),
            mask: None,
            rejects: None,
        };
        table.next_entry += 1;
        table.live_rows += fragment.rows;
        table.fragments += 1;
        delta.added.push(entry.id);
        changes.insert(Entry::key(entry.stamp, entry.id), Some(entry));
    }
    table.entries = table.entries.apply(&store, attempt.stage, changes).await?;
    Ok((table, delta))
}

/// Entries whose last row died leave the table.
fn without_dead(
    table: &mut TableManifest,
    mut changes: BTreeMap<String, Option<Entry>>,
) -> BTreeMap<String, Option<Entry>> {
    for change in changes.values_mut() {
        let fragment = change.as_ref().and_then(|entry| entry.fragment.as_ref());
        if let Some(fragment) = fragment
            && fragment.dead.rows >= fragment.rows
        {
            table.dead_rows = table.dead_rows.saturating_sub(fragment.rows);
            table.fragments = table.fragments.saturating_sub(1);
            *change = None;
        }
    }
    changes
}
