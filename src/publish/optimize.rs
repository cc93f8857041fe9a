//! Optimisation of a branch of a graph: one fragment a type without dead rows, and its indexes, in one
//! commit that moves rows and changes none.
//!
//! Writers are not waited for. What they did meanwhile is seen in the fragments that are still there:
//! a row of the merged fragment lives as long as the row that it was made of lives in its old place;
//! one that was killed or has moved on is dead in the merged fragment too.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use roaring::RoaringBitmap;

use super::graph::GraphCommit;
use super::moves::{Keys, all, same_file};
use super::successor::{Content, Place, Requester, write};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::type_key;
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::graph::schema::GraphType;
use crate::ident::{BranchName, Name};
use crate::search::build::{Index, build, rebuild};
use crate::store::{ObjRef, Stager};
use crate::table::bitmap::DeadRows;
use crate::table::compact::compact;
use crate::table::manifest::{
    Entry, Fragment, Replaced, Segment, TableDelta, TableManifest, TableRoot,
};
use crate::table::read::TableReader;
use crate::{Error, Result, limits};

/// A branch to optimise.
#[derive(Debug, Clone)]
pub struct OptimizeRequest {
    /// The graph.
    pub graph: Name,
    /// The branch.
    pub branch: BranchName,
    /// Who asks.
    pub requester: Requester,
}

/// Fragments of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeFragments {
    /// The type.
    pub name: String,
    /// Fragments before.
    pub before: u64,
    /// Fragments after.
    pub after: u64,
}

/// A finished optimisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Optimized {
    /// All types in the order of the schema.
    pub types: Vec<TypeFragments>,
    /// The new head; `None` where nothing was to do.
    pub commit: Option<GraphCommit>,
    /// Commit id of the head.
    pub head: String,
    /// Attempts made.
    pub attempts: u32,
}

/// What was made for one type, from one state of its table.
#[derive(Debug, Default)]
struct Work {
    /// Entries that were merged, as they were.
    merged: Vec<Entry>,
    /// The version that they were read at.
    read_version: u64,
    /// The merged fragment; `None` if no row was live.
    fragment: Option<Fragment>,
    /// Indexes for fragments that stay, by the key of their object.
    segments: BTreeMap<String, Vec<Segment>>,
}

impl Work {
    fn is_nothing(&self) -> bool {
        self.merged.is_empty() && self.segments.is_empty()
    }

    /// Objects that were staged.
    fn objects(&self) -> impl Iterator<Item = &ObjRef> {
        let merged = self.fragment.iter().flat_map(|f| {
            let segments = f.segments.iter().flat_map(|s| s.file.objects());
            f.file.objects().chain(segments)
        });
        let built = self.segments.values().flatten();
        merged.chain(built.flat_map(|s| s.file.objects()))
    }
}

struct Optimize {
    request: OptimizeRequest,
    dataset: String,
    env: Env,
    /// By type id.
    work: BTreeMap<u64, Work>,
    types: Vec<TypeFragments>,
    head: String,
    published: Option<GraphCommit>,
}

/// Merges the fragments of every type of a branch into one without dead rows and builds the indexes that
/// are declared or that merged fragments had, in one commit.
///
/// Other commits of the branch are not disturbed: writes that were prepared before this commit find
/// their rows again. What is made takes its memory from `env`.
///
/// # Errors
/// `NotFound` for the graph or the branch, `ParentMoved` if the graph is dropped meanwhile, those of
/// reads and of the budget, and the commit's own; nothing is changed then.
pub async fn optimize(
    catalog: &Arc<Catalog>,
    env: &Env,
    stage: Stager,
    request: OptimizeRequest,
) -> Result<Optimized> {
    // What is merged is read over many awaits: no sweep of this process may delete it.
    let pin = catalog.pin().await?;
    let (store, name) = (catalog.store(), &request.graph);
    let state = graph(store, pin.head(), name, &request.branch, &At::Head).await?;
    let operation = Optimize {
        dataset: state.dataset.id.clone(),
        request,
        env: env.clone(),
        work: BTreeMap::new(),
        types: Vec::new(),
        head: String::new(),
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    let Optimize {
        types,
        head,
        published,
        ..
    } = outcome.operation;
    let commit = published.filter(|_| outcome.committed);
    Ok(Optimized {
        types,
        head: commit.as_ref().map_or(head, |c| c.commit_id.clone()),
        commit,
        attempts: outcome.attempts,
    })
}

#[async_trait]
impl Operation for Optimize {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let (name, branch) = (&self.request.graph, &self.request.branch);
        let parent = graph(&store, attempt.head, name, branch, &At::Head).await?;
        if parent.dataset.id != self.dataset {
            return Err(Error::ParentMoved {
                table: name.to_string(),
                what: "dropped",
            });
        }
        (self.types, self.head) = (Vec::new(), parent.commit_id().to_owned());
        let mark = attempt.stage.mark();
        let mut next = Next::default();
        let schema = Arc::clone(&parent.schema);
        for of in &schema.types {
            let table = parent.table(&store, of.id).await?.table;
            let reader = TableReader::new(Arc::clone(&store), &self.env, table);
            let version = parent.manifest.version;
            self.make(of, &reader, version, attempt.stage).await?;
            let work = self.work.entry(of.id).or_default();
            let changed = apply(attempt, &reader, work, version).await?;
            let before = reader.table().fragments;
            let after = changed
                .as_ref()
                .map_or(before, |(table, _)| table.fragments);
            self.types.push(TypeFragments {
                name: of.name.clone(),
                before,
                after,
            });
            if let Some((table, delta)) = changed {
                let root = TableRoot::Object(attempt.stage.add_json(&table)?);
                next.roots.insert(type_key(of.id), Some(root));
                next.delta.push(delta);
                next.staged.extend(work.objects().cloned());
            }
        }
        if next.roots.is_empty() {
            return Ok(None);
        }
        self.edit(attempt, &parent, next, mark).await.map(Some)
    }
}

/// What the next version has.
#[derive(Default)]
struct Next {
    roots: BTreeMap<String, Option<TableRoot>>,
    delta: Vec<TableDelta>,
    staged: Vec<ObjRef>,
}

impl Optimize {
    /// Makes what a type needs, unless what was made before is still worth it.
    async fn make(
        &mut self,
        of: &GraphType,
        reader: &TableReader,
        version: u64,
        stage: &mut Stager,
    ) -> Result<()> {
        if let Some(work) = self.work.get(&of.id)
            && (work.is_nothing() || is_current(work, &reader.entries().await?))
        {
            return Ok(());
        }
        let work = made(of, reader, version, &self.env, stage).await?;
        self.work.insert(of.id, work);
        Ok(())
    }

    async fn edit(
        &mut self,
        attempt: &mut Attempt<'_>,
        parent: &GraphSnapshot,
        next: Next,
        mark: usize,
    ) -> Result<Edit> {
        let store = Arc::clone(attempt.store());
        let before = parent.manifest.all_tables(&store).await?;
        let tables = &parent.manifest.tables;
        let tables = tables.apply(&store, attempt.stage, next.roots).await?;
        let content = Content {
            kind: CommitKind::Optimize,
            name: parent.name.clone(),
            tables,
            delta: next.delta,
            identity: None,
            descriptor: None,
            definition: parent.manifest.definition.clone(),
            counts: BTreeMap::new(),
            requester: self.request.requester.clone(),
            staged: next.staged,
            mark,
            imports: false,
        };
        let (branch, current) = (parent.branch.clone(), Arc::clone(&parent.current));
        let place = Place::after(attempt, &parent.dataset, &branch, &current, &before)?;
        let (edit, written) = write(attempt, parent.dataset.clone(), place, content)?;
        self.published = Some(written.into());
        Ok(edit)
    }
}

/// Whether most rows that were merged still lie where they were read.
fn is_current(work: &Work, now: &[Entry]) -> bool {
    let rows = |entry: &&Entry| entry.fragment.as_ref().map_or(0, |f| f.rows - f.dead.rows);
    let merged: u64 = work.merged.iter().map(|entry| rows(&entry)).sum();
    let there = work
        .merged
        .iter()
        .filter(|old| same_file(now, old).is_some());
    there.map(|entry| rows(&entry)).sum::<u64>() * 2 >= merged
}

/// Merges the fragments of a table, if there is anything to win, and builds its indexes.
async fn made(
    of: &GraphType,
    reader: &TableReader,
    version: u64,
    env: &Env,
    stage: &mut Stager,
) -> Result<Work> {
    let entries = reader.entries().await?;
    let declared = Index::declared(of)?;
    let mut work = Work {
        read_version: version,
        ..Work::default()
    };
    if entries.len() > 1 || reader.table().dead_rows > 0 {
        let merged = compact(reader, env, &entries, stage).await?;
        work.merged = merged.merged;
        work.fragment = merged.fragment;
        if let Some(fragment) = &mut work.fragment {
            rebuild(reader, &entries, fragment, env, stage).await?;
            for segment in missing(reader, &declared, fragment, env, stage).await? {
                fragment.set_segment(segment);
            }
        }
        return Ok(work);
    }
    for fragment in entries.iter().filter_map(|entry| entry.fragment.as_ref()) {
        let built = missing(reader, &declared, fragment, env, stage).await?;
        if !built.is_empty() {
            work.segments
                .insert(fragment.file.object.key.clone(), built);
        }
    }
    Ok(work)
}

/// Builds the declared indexes that a fragment lacks.
async fn missing(
    reader: &TableReader,
    declared: &[Index],
    fragment: &Fragment,
    env: &Env,
    stage: &mut Stager,
) -> Result<Vec<Segment>> {
    let entry = Entry {
        stamp: 0,
        id: 0,
        fragment: Some(fragment.clone()),
        mask: None,
        rejects: None,
    };
    let mut built = Vec::new();
    for index in declared {
        if fragment.segment(index.column(), index.of()).is_none() {
            built.extend(build(reader, &entry, index, limits::INDEX_ROWS, env, stage).await?);
        }
    }
    Ok(built)
}

/// The table of `reader` with what was made for it; `None` where that changes nothing.
async fn apply(
    attempt: &mut Attempt<'_>,
    reader: &TableReader,
    work: &Work,
    version: u64,
) -> Result<Option<(TableManifest, TableDelta)>> {
    let store = Arc::clone(attempt.store());
    let (now, mut table) = (reader.entries().await?, reader.table().as_ref().clone());
    let (mut changes, mut delta) = (BTreeMap::new(), TableDelta::default());
    delta.type_id = table.type_id;
    let key = |entry: &Entry| Entry::key(entry.stamp, entry.id);
    for entry in now.iter() {
        let Some(fragment) = &entry.fragment else {
            continue;
        };
        let built = work.segments.get(&fragment.file.object.key);
        let mut entry = entry.clone();
        if let (Some(built), Some(fragment)) = (built, &mut entry.fragment) {
            built.iter().for_each(|s| fragment.set_segment(s.clone()));
            changes.insert(key(&entry), Some(entry));
        }
    }
    let there = work.merged.iter().filter_map(|old| same_file(&now, old));
    let old: Vec<&Entry> = there.collect();
    if !old.is_empty() {
        let mut replaced = Replaced {
            old: old.iter().map(|entry| entry.id).collect(),
            new: Vec::new(),
            read_version: work.read_version,
        };
        changes.extend(old.iter().map(|entry| (key(entry), None)));
        if let Some(fragment) = still_live(reader, work, &now).await? {
            let entry = Entry {
                // The content that it was read with, so that it stands before what came later.
                stamp: work.read_version.min(version),
                id: table.next_entry,
                fragment: Some(fragment),
                mask: None,
                rejects: None,
            };
            replaced.new.push(entry.id);
            changes.insert(key(&entry), Some(entry));
        }
        table.next_entry += 1;
        delta.added.clone_from(&replaced.new);
        delta.replaced = Some(replaced);
    }
    if changes.is_empty() {
        return Ok(None);
    }
    recount(&mut table, &now, &changes);
    table.entries = table.entries.apply(&store, attempt.stage, changes).await?;
    Ok(Some((table, delta)))
}

/// The merged fragment without the rows that are not where they were read any more; `None` without a row
/// that is.
async fn still_live(reader: &TableReader, work: &Work, now: &[Entry]) -> Result<Option<Fragment>> {
    let Some(fragment) = &work.fragment else {
        return Ok(None);
    };
    let entry = Entry {
        stamp: work.read_version,
        id: 0,
        fragment: Some(fragment.clone()),
        mask: None,
        rejects: None,
    };
    let mut dead = RoaringBitmap::new();
    for old in &work.merged {
        let Some(was) = &old.fragment else {
            continue;
        };
        let live = all(was) - reader.dead_rows(old).await?;
        let gone = match same_file(now, old) {
            Some(is) => live & reader.dead_rows(is).await?,
            None => live,
        };
        if gone.is_empty() {
            continue;
        }
        let mut keys = Keys::of(reader, old, &gone).await?;
        while let Some(keys) = keys.next().await? {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            dead |= reader.positions_of(&entry, &keys).await?;
        }
    }
    if dead.len() >= fragment.rows {
        return Ok(None);
    }
    let mut fragment = fragment.clone();
    fragment.dead = DeadRows::from_bitmap(&dead)?;
    Ok(Some(fragment))
}

/// Counts of a table whose entries were `before` and met `changes`.
fn recount(table: &mut TableManifest, before: &[Entry], changes: &BTreeMap<String, Option<Entry>>) {
    let key = |entry: &Entry| Entry::key(entry.stamp, entry.id);
    let stay = before
        .iter()
        .filter(|entry| !changes.contains_key(&key(entry)));
    let fragments = stay.chain(changes.values().flatten());
    let fragments: Vec<&Fragment> = fragments.filter_map(|e| e.fragment.as_ref()).collect();
    table.fragments = fragments.len() as u64;
    table.dead_rows = fragments.iter().map(|f| f.dead.rows).sum();
}
