//! Another schema for a branch of a graph: one commit of the schema, its tables, and nothing else.
//!
//! Rows stay where they are. A table whose columns change gets one more schema version; fragments name
//! the version that they were written under and are read by property id, so that a column that came
//! later is NULL in them and one that went is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;

use super::branch::changed;
use super::graph::{GraphCommit, empty_table};
use super::successor::{Content, Place, Requester, write};
use crate::catalog::Catalog;
use crate::catalog::branch::shared_versions;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::type_key;
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::graph::schema::{GraphSchema, GraphType, table_columns};
use crate::store::{ObjRef, Stager};
use crate::table::compact::{Compaction, compact};
use crate::table::manifest::{TableDelta, TableManifest, TableRoot};
use crate::table::read::TableReader;
use crate::table::schema::graph_schema;
use crate::{Error, Result};

/// Another schema for a branch, prepared on one of its states.
#[derive(Debug)]
pub struct SchemaChange {
    /// The state.
    pub base: GraphSnapshot,
    /// The other schema; types and properties that stay have the ids that they had.
    pub schema: Arc<GraphSchema>,
    /// Whether what goes leaves the files and the history of the branch too: files are written anew
    /// without the columns that go, and older versions are no longer retained, except those that pins
    /// hold or that other branches were made from. A garbage collection then deletes the files.
    pub hard: bool,
    /// Who asks.
    pub requester: Requester,
}

struct Change {
    change: SchemaChange,
    definition: ObjRef,
    /// Tables that change, with their files written anew where that is asked for; by type id.
    tables: BTreeMap<u64, (TableManifest, Option<Compaction>)>,
    dropped: BTreeSet<u64>,
    published: Option<GraphCommit>,
}

/// Gives a branch another schema. Other branches keep theirs. With `hard` it needs memory, from `env`,
/// for one window a fragment and one row group.
///
/// # Errors
/// `ReadSetChanged` if the branch moved since `base` was read: prepare anew. Whatever
/// [`Catalog::commit`] returns. Nothing is changed then.
pub async fn change_schema(
    catalog: &Arc<Catalog>,
    env: &Env,
    mut stage: Stager,
    change: SchemaChange,
) -> Result<GraphCommit> {
    let lost = changed(&change.base.name, &change.base.branch);
    let definition = stage.add("json", change.schema.encode()?)?;
    let mut tables = BTreeMap::new();
    for of in &change.schema.types {
        let changed = match change.base.schema.by_id(of.id) {
            None => Some((empty_table(of, catalog.env().ids.unique())?, None)),
            Some(before) => kept(catalog, env, &mut stage, &change, (before, of)).await?,
        };
        tables.extend(changed.map(|changed| (of.id, changed)));
    }
    let before = change.base.schema.types.iter().map(|of| of.id);
    let dropped = before.filter(|id| change.schema.by_id(*id).is_none());
    let operation = Change {
        dropped: dropped.collect(),
        change,
        definition,
        tables,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    outcome.operation.published.ok_or(lost)
}

/// A table that stays, if its columns change.
async fn kept(
    catalog: &Arc<Catalog>,
    env: &Env,
    stage: &mut Stager,
    change: &SchemaChange,
    (before, of): (&GraphType, &GraphType),
) -> Result<Option<(TableManifest, Option<Compaction>)>> {
    let columns = table_columns(of)?;
    if columns == table_columns(before)? {
        return Ok(None);
    }
    let store = catalog.store();
    let mut table = change
        .base
        .table(store, of.id)
        .await?
        .table
        .as_ref()
        .clone();
    let newest = table.schemas.iter().map(|schema| schema.id).max();
    let next = newest.map_or(0, |newest| newest + 1);
    table
        .schemas
        .push(graph_schema(of.layout(), next, &columns)?);
    let gone = |id: u64| of.property_by_id(id).is_none();
    let loses = before.properties.iter().any(|property| gone(property.id));
    if !change.hard || !loses || table.fragments == 0 {
        return Ok(Some((table, None)));
    }
    let reader = TableReader::new(Arc::clone(store), env, Arc::new(table.clone()));
    let entries = reader.entries().await?;
    let rewritten = compact(&reader, env, &entries, stage).await?;
    Ok(Some((table, Some(rewritten))))
}

#[async_trait]
impl Operation for Change {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let base = &self.change.base;
        let (name, branch) = (&base.name, &base.branch);
        let found = graph(attempt.store(), attempt.head, name, branch, &At::Head).await;
        let parent = match found {
            Err(Error::NotFound { .. }) => return Err(changed(name, branch)),
            other => other?,
        };
        // An expiry writes the manifest anew, but neither the branch nor the commit.
        let same = parent.dataset.id == base.dataset.id
            && parent.manifest.branch == base.manifest.branch
            && parent.commit_id() == base.commit_id();
        if !same {
            return Err(changed(name, branch));
        }
        self.build(attempt, &parent).await.map(Some)
    }
}

impl Change {
    /// Whether a type or a property goes.
    fn loses(&self) -> bool {
        let before = &self.change.base.schema;
        before.types.iter().any(|of| {
            let after = self.change.schema.by_id(of.id);
            let mut properties = of.properties.iter();
            after.is_none_or(|after| properties.any(|p| after.property_by_id(p.id).is_none()))
        })
    }

    async fn build(&mut self, attempt: &mut Attempt<'_>, parent: &GraphSnapshot) -> Result<Edit> {
        let mark = attempt.stage.mark();
        let store = Arc::clone(attempt.store());
        let before = parent.manifest.all_tables(&store).await?;
        let (branch, current) = (parent.branch.clone(), Arc::clone(&parent.current));
        let mut place = Place::after(attempt, &parent.dataset, &branch, &current, &before)?;
        if self.change.hard && self.loses() {
            let stays = retained(attempt, parent).await?;
            let goes = move |version: u64| !stays.contains(&version);
            let history = std::mem::take(&mut place.history);
            place.history = history.without(&store, attempt.stage, &goes).await?;
        }
        let (mut roots, mut delta) = (BTreeMap::new(), Vec::new());
        let mut staged = vec![self.definition.clone()];
        for (type_id, (table, rewritten)) in &self.tables {
            let mut table = table.clone();
            if let Some(rewritten) = rewritten {
                let version = parent.manifest.version;
                delta.push(replace(attempt, &mut table, rewritten, version).await?);
                let files = rewritten.fragment.iter().flat_map(|f| f.file.objects());
                staged.extend(files.cloned());
            }
            let root = TableRoot::Object(attempt.stage.add_json(&table)?);
            roots.insert(type_key(*type_id), Some(root));
        }
        for type_id in &self.dropped {
            roots.insert(type_key(*type_id), None);
            delta.push(TableDelta {
                type_id: *type_id,
                cleared: true,
                ..TableDelta::default()
            });
        }
        let tables = parent.manifest.tables.clone();
        let content = Content {
            kind: CommitKind::Schema,
            name: parent.name.clone(),
            tables: tables.apply(&store, attempt.stage, roots).await?,
            delta,
            identity: None,
            descriptor: None,
            definition: Some(self.definition.clone()),
            counts: BTreeMap::new(),
            requester: self.change.requester.clone(),
            staged,
            mark,
            imports: false,
        };
        let (edit, written) = write(attempt, parent.dataset.clone(), place, content)?;
        self.published = Some(written.into());
        Ok(edit)
    }
}

/// Versions of the branch that stay though data goes: pinned ones, and those that other branches were
/// made from or descend from.
async fn retained(attempt: &Attempt<'_>, parent: &GraphSnapshot) -> Result<BTreeSet<u64>> {
    let (store, branch) = (attempt.store(), parent.manifest.branch.as_str());
    let mut stays = shared_versions(store, &parent.dataset, branch).await?;
    for (_, pin) in attempt.head.body.pins.entries(store).await? {
        if pin.dataset == parent.dataset.id && pin.branch == branch {
            stays.insert(pin.version);
        }
    }
    Ok(stays)
}

/// Puts the files that were written anew in the place of the others.
async fn replace(
    attempt: &mut Attempt<'_>,
    table: &mut TableManifest,
    rewritten: &Compaction,
    read_version: u64,
) -> Result<TableDelta> {
    let store = Arc::clone(attempt.store());
    let (changes, replaced) = rewritten.changes(table.next_entry, read_version);
    table.next_entry += replaced.new.len() as u64;
    let rows = rewritten.fragment.as_ref().map(|fragment| fragment.rows);
    (table.live_rows, table.dead_rows) = (rows.unwrap_or(0), 0);
    table.fragments = u64::from(rows.is_some());
    table.entries = table.entries.apply(&store, attempt.stage, changes).await?;
    Ok(TableDelta {
        type_id: table.type_id,
        added: replaced.new.clone(),
        replaced: Some(replaced),
        ..TableDelta::default()
    })
}
