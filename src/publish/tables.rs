//! The tables of a graph after writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::graph::{Removed, TableWrite};
use super::kill::kill_positions;
use super::tail::{Tail, tail};
use crate::Result;
use crate::catalog::commit::Attempt;
use crate::catalog::graph::GraphSnapshot;
use crate::catalog::manifest::type_key;
use crate::store::{ObjRef, PageTree};
use crate::table::manifest::{Entry, Replaced, RidShift, TableDelta, TableManifest, TableRoot};
use crate::table::read::TableReader;

/// The tables of a next version.
pub(super) struct NextTables {
    pub tables: PageTree<TableRoot>,
    pub delta: Vec<TableDelta>,
    /// Objects that were staged for them before the attempt.
    pub staged: Vec<ObjRef>,
}

/// The tables of `parent` after writes; `shifts` says how far new row ids of a type moved.
pub(super) async fn next_tables(
    attempt: &mut Attempt<'_>,
    parent: &GraphSnapshot,
    stamp: u64,
    writes: &[TableWrite],
    shifts: &BTreeMap<u64, RidShift>,
) -> Result<NextTables> {
    let store = Arc::clone(attempt.store());
    let (mut roots, mut delta, mut staged) = (BTreeMap::new(), Vec::new(), Vec::new());
    for write in writes {
        let table = parent.table(&store, write.type_id).await?.table;
        let mut next = NextTable::of(attempt, table, write).await?;
        next.remove(attempt, &write.removed).await?;
        let shift = shifts_of(&next.parent, shifts);
        let mut tail = tail(attempt, &next.parent, &next.left, write, &shift).await?;
        staged.append(&mut tail.staged);
        next.add(stamp, parent.manifest.version, write.new_rows(), tail);
        let (table, changed) = next.finish(attempt).await?;
        let root = TableRoot::Object(attempt.stage.add_json(&table)?);
        roots.insert(type_key(write.type_id), Some(root));
        delta.push(changed);
    }
    let tables = &parent.manifest.tables;
    Ok(NextTables {
        tables: tables.apply(&store, attempt.stage, roots).await?,
        delta,
        staged,
    })
}

/// The next state of one table while it is made.
struct NextTable {
    parent: Arc<TableManifest>,
    table: TableManifest,
    /// Entries that are left of the parent, in stamp order.
    left: Vec<Entry>,
    delta: TableDelta,
    /// Changes of the parent's entries.
    changes: BTreeMap<String, Option<Entry>>,
}

impl NextTable {
    async fn of(
        attempt: &Attempt<'_>,
        parent: Arc<TableManifest>,
        of: &TableWrite,
    ) -> Result<Self> {
        let (store, env) = (Arc::clone(attempt.store()), attempt.catalog.env());
        let left = match of.removed {
            Removed::All => Vec::new(),
            Removed::Positions(_) => {
                let reader = TableReader::new(store, env, Arc::clone(&parent));
                reader.entries().await?.to_vec()
            }
        };
        Ok(Self {
            table: parent.as_ref().clone(),
            left,
            delta: TableDelta {
                type_id: of.type_id,
                insert_only: of.insert_only,
                ..TableDelta::default()
            },
            changes: BTreeMap::new(),
            parent,
        })
    }

    /// Removes rows; entries whose last row died leave the table.
    async fn remove(&mut self, attempt: &mut Attempt<'_>, removed: &Removed) -> Result<()> {
        let table = &mut self.table;
        let positions = match removed {
            Removed::All => {
                table.entries = PageTree::default();
                (table.live_rows, table.dead_rows, table.fragments) = (0, 0, 0);
                self.delta.cleared = true;
                return Ok(());
            }
            Removed::Positions(positions) if positions.is_empty() => return Ok(()),
            Removed::Positions(positions) => positions.clone(),
        };
        let store = Arc::clone(attempt.store());
        let kills = kill_positions(&store, &self.left, positions, attempt.stage).await?;
        table.live_rows = table.live_rows.saturating_sub(kills.rows);
        table.dead_rows += kills.rows;
        self.delta.killed = kills.killed;
        self.changes = without_dead(table, kills.changes);
        let changes = &self.changes;
        self.left.retain_mut(|entry| {
            match changes.get(&Entry::key(entry.stamp, entry.id)) {
                Some(None) => return false,
                Some(Some(changed)) => *entry = changed.clone(),
                None => {}
            }
            true
        });
        Ok(())
    }

    /// Puts new fragments in the place of the entries whose rows they took.
    fn add(&mut self, stamp: u64, read_version: u64, rows: u64, tail: Tail) {
        let table = &mut self.table;
        let old: Vec<u64> = tail.taken.iter().map(|e| e.id).collect();
        for entry in tail.taken {
            let dead = entry.fragment.as_ref().map_or(0, |f| f.dead.rows);
            table.dead_rows = table.dead_rows.saturating_sub(dead);
            table.fragments = table.fragments.saturating_sub(1);
            self.changes.insert(Entry::key(entry.stamp, entry.id), None);
        }
        for fragment in tail.fragments {
            let entry = Entry {
                stamp,
                id: table.next_entry,
                fragment: Some(fragment),
                mask: None,
                rejects: None,
            };
            table.next_entry += 1;
            table.fragments += 1;
            self.delta.added.push(entry.id);
            let key = Entry::key(entry.stamp, entry.id);
            self.changes.insert(key, Some(entry));
        }
        table.live_rows += rows;
        if !old.is_empty() {
            self.delta.replaced = Some(Replaced {
                old,
                new: self.delta.added.clone(),
                read_version,
            });
        }
    }

    async fn finish(self, attempt: &mut Attempt<'_>) -> Result<(TableManifest, TableDelta)> {
        let (store, entries) = (Arc::clone(attempt.store()), &self.table.entries);
        let entries = entries.apply(&store, attempt.stage, self.changes).await?;
        let table = TableManifest {
            entries,
            ..self.table
        };
        Ok((table, self.delta))
    }
}

/// The shifts of the row ids that a table holds: its own and those of its edges' ends.
fn shifts_of(table: &TableManifest, shifts: &BTreeMap<u64, RidShift>) -> BTreeMap<u64, RidShift> {
    let ends = table.endpoints.map(|ends| [ends.src, ends.dst]);
    let counted = |of: &u64| *of == table.type_id || ends.is_some_and(|ends| ends.contains(of));
    let of = shifts.iter().filter(|(of, _)| counted(of));
    of.map(|(of, shift)| (*of, *shift)).collect()
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
