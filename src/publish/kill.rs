//! Killing rows by key: the only place where bitmaps grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::catalog::resolve::TableSnapshot;
use crate::env::Env;
use crate::store::{Stager, Store};
use crate::table::bitmap::DeadRows;
use crate::table::manifest::{Entry, Killed};
use crate::table::read::TableReader;
use crate::{Error, Result, limits};

/// Entries with grown bitmaps, and the record of what grew.
#[derive(Debug, Default)]
pub(super) struct Kills {
    pub changes: BTreeMap<String, Option<Entry>>,
    pub killed: Vec<Killed>,
    pub rows: u64,
}

/// Finds the live row of each key in `parent` and marks it dead. `keys` are sorted, each once.
///
/// # Errors
/// `ReadSetChanged` if a key has no live row: the delta was made against another state.
pub(super) async fn kill(
    env: &Env,
    store: &Arc<Store>,
    parent: &TableSnapshot,
    keys: &[String],
    stage: &mut Stager,
) -> Result<Kills> {
    if keys.is_empty() {
        return Ok(Kills::default());
    }
    let reader = TableReader::new(Arc::clone(store), env, Arc::clone(&parent.table));
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut positions: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    let mut seen = vec![false; keys.len()];
    for found in reader.lookup(&keys).await? {
        seen[found.key] = true;
        positions
            .entry(found.entry)
            .or_default()
            .insert(found.position);
    }
    if let Some(at) = seen.iter().position(|s| !s) {
        return Err(Error::ReadSetChanged {
            member: format!("{} {:?}", parent.name, keys[at]),
            expected: "a live row".to_owned(),
            actual: "none".to_owned(),
        });
    }
    kill_positions(store, &reader.entries().await?, positions, stage).await
}

/// Marks positions dead, by entry number.
pub(super) async fn kill_positions(
    store: &Arc<Store>,
    entries: &[Entry],
    positions: BTreeMap<u64, RoaringBitmap>,
    stage: &mut Stager,
) -> Result<Kills> {
    let mut kills = Kills::default();
    let total: u64 = positions.values().map(RoaringBitmap::len).sum();
    for mut entry in entries
        .iter()
        .filter(|e| positions.contains_key(&e.id))
        .cloned()
    {
        let (Some(fragment), Some(new)) = (&mut entry.fragment, positions.get(&entry.id)) else {
            continue;
        };
        let dead = fragment.dead.load(store, fragment.rows).await?;
        let fresh = new - &dead;
        kills.rows += fresh.len();
        let mut record = DeadRows::from_bitmap(&fresh)?;
        if total > limits::INLINE_KILLED {
            record.move_out(stage)?;
        }
        kills.killed.push(Killed {
            entry: entry.id,
            positions: record,
        });
        fragment.dead = DeadRows::from_bitmap(&(dead | fresh))?;
        kills
            .changes
            .insert(Entry::key(entry.stamp, entry.id), Some(entry));
    }
    Ok(kills)
}
