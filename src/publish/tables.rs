//! The tables of a graph after writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::graph::{Removed, TableWrite};
use super::kill::kill_positions;
use crate::Result;
use crate::catalog::commit::Attempt;
use crate::catalog::graph::GraphSnapshot;
use crate::catalog::manifest::type_key;
use crate::store::{ObjRef, PageTree};
use crate::table::manifest::{Entry, Fragment, RidShift, TableDelta, TableManifest, TableRoot};
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
        let (table, changed) = next_table(attempt, &table, stamp, write, shifts).await?;
        let root = TableRoot::Object(attempt.stage.add_json(&table)?);
        roots.insert(type_key(write.type_id), Some(root));
        delta.push(changed);
        let files = write.fragments.iter().flat_map(|f| f.file.objects());
        staged.extend(files.cloned());
    }
    let tables = &parent.manifest.tables;
    Ok(NextTables {
        tables: tables.apply(&store, attempt.stage, roots).await?,
        delta,
        staged,
    })
}

/// The next state of one table.
async fn next_table(
    attempt: &mut Attempt<'_>,
    parent: &TableManifest,
    stamp: u64,
    write: &TableWrite,
    shifts: &BTreeMap<u64, RidShift>,
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
    let ends = table.endpoints.map(|ends| [ends.src, ends.dst]);
    let counted = |of: &u64| *of == write.type_id || ends.is_some_and(|ends| ends.contains(of));
    let shift: BTreeMap<u64, RidShift> = shifts
        .iter()
        .filter(|(of, _)| counted(of))
        .map(|(of, shift)| (*of, *shift))
        .collect();
    for fragment in &write.fragments {
        let entry = Entry {
            stamp,
            id: table.next_entry,
            fragment: Some(Fragment {
                shift: shift.clone(),
                ..fragment.clone()
            }),
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
