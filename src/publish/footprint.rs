//! Whether commits that came first touch what a write stands on: its keys, the ends of its edges, the
//! edges of the nodes that it deletes, its unique values and the sources whose edges are counted.
//!
//! Two states are compared row by row where they differ, so that it does not matter how often a row
//! moved or was written in between. Commits that only move rows are passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use roaring::RoaringBitmap;

use super::graph::{GraphWrite, Removed, TableWrite};
use super::merge::diff::{Change, Changes, Encoder, diff_within, read};
use super::moves::{rebased, with_live};
use crate::catalog::graph::GraphSnapshot;
use crate::catalog::manifest::BranchManifest;
use crate::catalog::slot::CommitKind;
use crate::digest::Digest;
use crate::env::Env;
use crate::graph::schema::GraphType;
use crate::store::{ObjRef, Store};
use crate::table::manifest::{Entry, Fragment, TableManifest};
use crate::table::projection::{ENTRY_COLUMN, POSITION_COLUMN};
use crate::table::read::{ReadOptions, TableReader};
use crate::{Error, Result, limits};

/// The tables of a write that was prepared on an older state of the branch as writes on `now`: the same
/// fragments, and the rows that go found again by their ids. With `exact` only rows may have moved.
///
/// # Errors
/// `ReadSetChanged` that names what the commits in between touched, or the branch where that cannot be
/// told: they are too many, or no longer known, or changed too much, or one of them is the same request
/// or changed the schema; those of reads.
pub(super) async fn rebase(
    store: &Arc<Store>,
    env: &Env,
    write: &GraphWrite,
    now: &GraphSnapshot,
    exact: bool,
) -> Result<Vec<TableWrite>> {
    let base = &write.base;
    let whole = || moved(base, Some(now), None);
    let same = now.dataset.id == base.dataset.id && now.manifest.branch == base.manifest.branch;
    if !same || base.schema != now.schema {
        return Err(whole());
    }
    let Some(steps) = steps(store, base, now).await? else {
        return Err(whole());
    };
    if steps.iter().all(|step| step.kind == CommitKind::Optimize) {
        return rebased(store, env, base, now, &write.tables).await;
    }
    if exact {
        return Err(whole());
    }
    // The same request, made twice: the caller looks for its commit.
    let request = write.requester.request_id.as_ref();
    if request.is_some() && steps.iter().any(|step| step.request_id.as_ref() == request) {
        return Err(whole());
    }
    let footprint = Footprint {
        store,
        env,
        base,
        now,
    };
    let Some(own) = footprint.own(&write.tables).await? else {
        return Err(whole());
    };
    let relevant = footprint.relevant(&write.tables);
    for (from, to) in segments(base, &steps) {
        let theirs = match footprint.theirs(&from, &to, &relevant).await {
            // An expiry came in between: what changed is no longer known.
            Err(error) if error.is_missing_object() => None,
            theirs => theirs?,
        };
        footprint.compare(write, &own, &theirs.ok_or_else(whole)?)?;
    }
    rebased(store, env, base, now, &write.tables).await
}

/// What a write stands on is no longer what was read: a row, or the branch.
pub(super) fn moved(
    base: &GraphSnapshot,
    now: Option<&GraphSnapshot>,
    row: Option<(&GraphType, &str)>,
) -> Error {
    let branch = format!("{}@{}", base.name, base.branch);
    let actual = now.map(|now| format!("commit {}", now.commit_id()));
    Error::ReadSetChanged {
        member: match row {
            Some((of, key)) => format!("{branch}.{} {key:?}", of.name),
            None => branch,
        },
        expected: format!("commit {}", base.commit_id()),
        actual: actual.unwrap_or_else(|| "none".to_owned()),
    }
}

/// A commit between the base and now.
struct Step {
    kind: CommitKind,
    request_id: Option<String>,
    manifest: ObjRef,
}

/// The commits between two states of a branch, oldest first; `None` if they are too many, or if one of
/// them is no longer known.
async fn steps(
    store: &Store,
    base: &GraphSnapshot,
    now: &GraphSnapshot,
) -> Result<Option<Vec<Step>>> {
    let mut steps = vec![Step {
        kind: now.manifest.commit.kind,
        request_id: now.manifest.commit.request_id.clone(),
        manifest: now.manifest_ref.clone(),
    }];
    let most = usize::try_from(limits::REBASE_MANIFESTS).unwrap_or(usize::MAX);
    let mut parent = now.manifest.parent_version;
    for entry in now.current.history.newest(store, most).await? {
        if parent != Some(entry.version) {
            return Ok(None);
        }
        if entry.commit_id == base.commit_id() {
            steps.reverse();
            return Ok(Some(steps));
        }
        parent = entry.parent_version;
        steps.push(Step {
            kind: entry.kind,
            request_id: entry.request_id,
            manifest: entry.manifest,
        });
    }
    Ok(None)
}

/// Pairs of states between which rows changed: commits that follow each other are one pair.
fn segments(base: &GraphSnapshot, steps: &[Step]) -> Vec<(ObjRef, ObjRef)> {
    let (mut pairs, mut before, mut open) = (Vec::new(), &base.manifest_ref, false);
    for step in steps {
        match (step.kind, pairs.last_mut()) {
            (CommitKind::Optimize, _) => open = false,
            (_, Some((_, end))) if open => *end = step.manifest.clone(),
            _ => {
                pairs.push((before.clone(), step.manifest.clone()));
                open = true;
            }
        }
        before = &step.manifest;
    }
    pairs
}

struct Footprint<'a> {
    store: &'a Arc<Store>,
    env: &'a Env,
    base: &'a GraphSnapshot,
    now: &'a GraphSnapshot,
}

/// What one side did, by type id.
type Side = BTreeMap<u64, Changes>;

impl Footprint<'_> {
    fn reader(&self, table: Arc<TableManifest>) -> TableReader {
        TableReader::new(Arc::clone(self.store), self.env, table)
    }

    fn types(&self) -> impl Iterator<Item = &GraphType> {
        self.base.schema.types.iter()
    }

    /// What the write does; `None` if that is too much to be held.
    async fn own(&self, writes: &[TableWrite]) -> Result<Option<Side>> {
        let mut own = Side::new();
        let mut left = limits::REBASE_ROWS;
        for write in writes {
            let Some(of) = self.base.schema.by_id(write.type_id) else {
                return Ok(None);
            };
            let removed = match &write.removed {
                Removed::Positions(positions) => positions.values().map(RoaringBitmap::len).sum(),
                Removed::All => 0,
            };
            let rows = write.new_rows() + removed;
            match left.checked_sub(rows) {
                Some(rest) => left = rest,
                None => return Ok(None),
            }
            own.insert(of.id, self.own_rows(of, write).await?);
        }
        Ok(Some(own))
    }

    async fn own_rows(&self, of: &GraphType, write: &TableWrite) -> Result<Changes> {
        let table = self.base.table(self.store, of.id).await?.table;
        let reader = self.reader(table);
        let mut changes = Changes::of(&reader);
        if let Removed::Positions(positions) = &write.removed {
            for entry in reader.entries().await?.iter() {
                if let Some(rows) = positions.get(&entry.id) {
                    let entry = with_live(entry, rows)?;
                    read(of, &reader, &entry, &mut changes, Change::set_was).await?;
                }
            }
        }
        for fragment in &write.fragments {
            let entry = unlisted(fragment);
            read(of, &reader, &entry, &mut changes, Change::set_is).await?;
        }
        let options = ReadOptions::default().with_positions();
        let encoder = Encoder::new(of, &reader, &options)?;
        for batch in &write.rows {
            changes.take(&encoder, &positioned(batch)?, Change::set_is)?;
        }
        Ok(changes)
    }

    /// Types in which another commit can touch the write.
    fn relevant(&self, writes: &[TableWrite]) -> BTreeSet<u64> {
        let mut relevant: BTreeSet<u64> = writes.iter().map(|write| write.type_id).collect();
        for write in writes {
            let ends = self
                .base
                .schema
                .by_id(write.type_id)
                .and_then(|of| of.edge.as_ref());
            match ends {
                Some(ends) => relevant.extend([ends.from, ends.to]),
                None if removes(write) => {
                    let incident = self.types().filter(|edge| {
                        let ends = edge.edge.as_ref();
                        ends.is_some_and(|e| [e.from, e.to].contains(&write.type_id))
                    });
                    relevant.extend(incident.map(|edge| edge.id));
                }
                None => {}
            }
        }
        relevant
    }

    /// What changed between two states; `None` if that is too much to be held.
    async fn theirs(
        &self,
        from: &ObjRef,
        to: &ObjRef,
        relevant: &BTreeSet<u64>,
    ) -> Result<Option<Side>> {
        let (mut side, mut left) = (Side::new(), limits::REBASE_ROWS);
        // Rows that only moved are read, and not held.
        let most = limits::REBASE_ROWS * 8;
        let load = async |object: &ObjRef| match *object == self.base.manifest_ref {
            true => Ok(Arc::clone(&self.base.manifest)),
            false => BranchManifest::load(self.store, object).await.map(Arc::new),
        };
        let (from, to) = futures::try_join!(load(from), load(to))?;
        for of in self.types().filter(|of| relevant.contains(&of.id)) {
            let table = async |manifest: &BranchManifest| {
                let table = manifest.table(self.store, of.id).await?;
                table.ok_or_else(|| {
                    let key = &self.now.manifest_ref.key;
                    Error::corrupt("version manifest", key, format!("table {}", of.id), "none")
                })
            };
            let (was, is) = futures::try_join!(table(&from), table(&to))?;
            let (was, is) = (self.reader(Arc::new(was)), self.reader(Arc::new(is)));
            let Some(changes) = diff_within(of, &was, &is, most).await? else {
                return Ok(None);
            };
            match left.checked_sub(changes.rows.len() as u64) {
                Some(rest) => left = rest,
                None => return Ok(None),
            }
            side.insert(of.id, changes);
        }
        Ok(Some(side))
    }

    fn touched(&self, of: &GraphType, key: &str) -> Error {
        moved(self.base, Some(self.now), Some((of, key)))
    }

    fn compare(&self, write: &GraphWrite, own: &Side, theirs: &Side) -> Result<()> {
        for table in &write.tables {
            let Some(of) = self.base.schema.by_id(table.type_id) else {
                continue;
            };
            if table.removed == Removed::All {
                self.replaced(of, theirs)?;
            }
            let (Some(mine), Some(other)) = (own.get(&of.id), theirs.get(&of.id)) else {
                continue;
            };
            self.keys(of, mine, other)?;
            self.unique(of, mine, other)?;
            self.sources(of, mine, other)?;
        }
        let (gone_own, gone_theirs) = (self.gone(own), self.gone(theirs));
        self.ends(own, &gone_theirs)?;
        self.ends(theirs, &gone_own)
    }

    /// All rows of a type go: nobody else may have changed it, nor edges of its nodes.
    fn replaced(&self, of: &GraphType, theirs: &Side) -> Result<()> {
        for other in self.types() {
            let ends = other.edge.as_ref();
            let meets = other.id == of.id || ends.is_some_and(|e| [e.from, e.to].contains(&of.id));
            let first = theirs
                .get(&other.id)
                .and_then(|side| side.rows.keys().next());
            if let (true, Some(key)) = (meets, first) {
                return Err(self.touched(other, key));
            }
        }
        Ok(())
    }

    fn keys(&self, of: &GraphType, own: &Changes, theirs: &Changes) -> Result<()> {
        let mut keys = own.rows.keys();
        match keys.find(|key| theirs.rows.contains_key(*key)) {
            Some(key) => Err(self.touched(of, key)),
            None => Ok(()),
        }
    }

    fn unique(&self, of: &GraphType, own: &Changes, theirs: &Changes) -> Result<()> {
        for rule in 0..of.unique.len() {
            let tuple = |change: &Change| -> Option<Digest> {
                change.is.as_ref()?.tuples.get(rule).copied().flatten()
            };
            let held: BTreeSet<Digest> = theirs.rows.values().filter_map(tuple).collect();
            let mut rows = own.rows.iter();
            let meets = |change: &Change| tuple(change).is_some_and(|t| held.contains(&t));
            if let Some((key, _)) = rows.find(|(_, change)| meets(change)) {
                return Err(self.touched(of, key));
            }
        }
        Ok(())
    }

    /// The number of edges of a source is known only if one side alone changes it. Sources are noted
    /// only where their edges are counted.
    fn sources(&self, of: &GraphType, own: &Changes, theirs: &Changes) -> Result<()> {
        let sources = |changes: &'_ Changes| -> BTreeSet<String> {
            let rows = changes
                .rows
                .values()
                .flat_map(|change| [&change.was, &change.is]);
            rows.flatten().filter_map(|row| row.src.clone()).collect()
        };
        match sources(own).intersection(&sources(theirs)).next() {
            Some(source) => Err(self.touched(of, source)),
            None => Ok(()),
        }
    }

    /// Row ids of nodes that a side deleted, or whose id has another row id since; of those that both
    /// sides know from the base.
    fn gone(&self, side: &Side) -> BTreeMap<u64, BTreeSet<u64>> {
        let mut gone: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for of in self.types().filter(|of| !of.is_edge()) {
            let counters = &self.base.dataset.next_rids;
            let known = counters.get(&of.id).copied().unwrap_or(0);
            let Some(changes) = side.get(&of.id) else {
                continue;
            };
            let rids = changes.rows.values().filter_map(|change| {
                let was = change.was.as_ref()?.rid;
                let stays = change.is.as_ref().is_some_and(|is| is.rid == was);
                (!stays && was < known).then_some(was)
            });
            gone.entry(of.id).or_default().extend(rids);
        }
        gone
    }

    /// No edge of one side needs a node that the other has taken away.
    fn ends(&self, edges: &Side, gone: &BTreeMap<u64, BTreeSet<u64>>) -> Result<()> {
        for of in self.types() {
            let (Some(ends), Some(changes)) = (&of.edge, edges.get(&of.id)) else {
                continue;
            };
            let lost = |id: &u64, rid: &u64| gone.get(id).is_some_and(|g| g.contains(rid));
            for (key, change) in &changes.rows {
                let of_row = change.is.as_ref().and_then(|row| row.ends);
                if of_row.is_some_and(|[src, dst]| lost(&ends.from, &src) || lost(&ends.to, &dst)) {
                    return Err(self.touched(of, key));
                }
            }
        }
        Ok(())
    }
}

fn removes(write: &TableWrite) -> bool {
    match &write.removed {
        Removed::All => true,
        Removed::Positions(positions) => positions.values().any(|rows| !rows.is_empty()),
    }
}

/// A fragment that is in no table yet.
fn unlisted(fragment: &Fragment) -> Entry {
    Entry {
        stamp: 0,
        id: u64::MAX,
        fragment: Some(fragment.clone()),
        mask: None,
        rejects: None,
    }
}

/// Rows that lie nowhere yet, with the columns that say where rows lie.
fn positioned(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields: Vec<Arc<Field>> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ENTRY_COLUMN, DataType::UInt64, false)));
    fields.push(Arc::new(Field::new(
        POSITION_COLUMN,
        DataType::UInt32,
        false,
    )));
    let rows = batch.num_rows();
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    columns.push(Arc::new(UInt64Array::from(vec![u64::MAX; rows])));
    columns.push(Arc::new(UInt32Array::from(vec![0; rows])));
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}
