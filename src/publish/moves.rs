//! Commits that move rows and change none: a write that was prepared before them is still right once it
//! has found its rows again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use super::branch::changed;
use super::graph::{Removed, TableWrite};
use crate::catalog::graph::GraphSnapshot;
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::store::Store;
use crate::table::bitmap::DeadRows;
use crate::table::manifest::{Entry, Fragment};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::schema::id;
use crate::{Error, Result, limits};

/// Whether the branch is as `commit` (a commit id, of version `version` where that is known) left it but
/// for rows that moved.
///
/// # Errors
/// Those of the store.
pub async fn only_moved_since(
    store: &Store,
    now: &GraphSnapshot,
    commit: &str,
    version: Option<u64>,
) -> Result<bool> {
    if now.commit_id() == commit {
        return Ok(true);
    }
    if now.manifest.commit.kind != CommitKind::Optimize {
        return Ok(false);
    }
    let since = version.map(|version| now.manifest.version.saturating_sub(version));
    let limit = since.map_or(limits::REBASE_MANIFESTS, |n| {
        n.min(limits::REBASE_MANIFESTS)
    });
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut expected = now.manifest.parent_version;
    for entry in now.current.history.newest(store, limit).await? {
        if expected != Some(entry.version) {
            break;
        }
        if entry.commit_id == commit {
            return Ok(true);
        }
        if entry.kind != CommitKind::Optimize {
            break;
        }
        expected = entry.parent_version;
    }
    Ok(false)
}

/// Whether `now` is the state `base` of the same branch, but for rows that moved.
pub(super) async fn only_moved(
    store: &Store,
    base: &GraphSnapshot,
    now: &GraphSnapshot,
) -> Result<bool> {
    let same = now.dataset.id == base.dataset.id && now.manifest.branch == base.manifest.branch;
    let version = Some(base.manifest.version);
    Ok(same && only_moved_since(store, now, base.commit_id(), version).await?)
}

/// Writes that were prepared on `base` as writes of `now`, which holds the same rows in other places.
///
/// # Errors
/// `ReadSetChanged` if a row is not found again; those of reads.
pub(super) async fn rebased(
    store: &Arc<Store>,
    env: &Env,
    base: &GraphSnapshot,
    now: &GraphSnapshot,
    writes: &[TableWrite],
) -> Result<Vec<TableWrite>> {
    let mut rebased = Vec::with_capacity(writes.len());
    for write in writes {
        let mut write = write.clone();
        if let Removed::Positions(positions) = &mut write.removed {
            let was = base.table(store, write.type_id).await?.table;
            let is = now.table(store, write.type_id).await?.table;
            let was = TableReader::new(Arc::clone(store), env, was);
            let is = TableReader::new(Arc::clone(store), env, is);
            let rows = positions.values().map(RoaringBitmap::len).sum::<u64>();
            *positions = find_again(&was, &is, positions).await?;
            if positions.values().map(RoaringBitmap::len).sum::<u64>() != rows {
                return Err(changed(&now.name, &now.branch));
            }
        }
        rebased.push(write);
    }
    Ok(rebased)
}

/// Where the rows at `positions` of one state lie in another that holds them.
async fn find_again(
    was: &TableReader,
    is: &TableReader,
    positions: &BTreeMap<u64, RoaringBitmap>,
) -> Result<BTreeMap<u64, RoaringBitmap>> {
    let now = is.entries().await?;
    let mut found: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for entry in was.entries().await?.iter() {
        let Some(rows) = positions.get(&entry.id) else {
            continue;
        };
        let mut gone = rows.clone();
        if let Some(same) = same_file(&now, entry) {
            // A row that was changed and changed back lies elsewhere.
            let stays = rows - is.dead_rows(same).await?;
            gone -= &stays;
            *found.entry(same.id).or_default() |= stays;
        }
        if gone.is_empty() {
            continue;
        }
        let mut keys = Keys::of(was, entry, &gone).await?;
        while let Some(keys) = keys.next().await? {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            for row in is.lookup(&keys).await? {
                found.entry(row.entry).or_default().insert(row.position);
            }
        }
    }
    Ok(found)
}

/// The entry of the same fragment.
pub(super) fn same_file<'a>(entries: &'a [Entry], entry: &Entry) -> Option<&'a Entry> {
    let key = |entry: &'a Entry| Some(entry.fragment.as_ref()?.file.object.key.as_str());
    let wanted = entry.fragment.as_ref()?.file.object.key.as_str();
    entries.iter().find(|entry| key(entry) == Some(wanted))
}

pub(super) fn all(fragment: &Fragment) -> RoaringBitmap {
    let mut all = RoaringBitmap::new();
    all.insert_range(0..u32::try_from(fragment.rows).unwrap_or(u32::MAX));
    all
}

/// An entry of which only some rows are live.
pub(super) fn with_live(entry: &Entry, rows: &RoaringBitmap) -> Result<Entry> {
    let mut entry = entry.clone();
    if let Some(fragment) = &mut entry.fragment {
        fragment.dead = DeadRows::from_bitmap(&(all(fragment) - rows))?;
    }
    Ok(entry)
}

/// Ids of some rows of one fragment, in sorted pieces.
pub(super) struct Keys(crate::table::BatchStream);

impl Keys {
    pub(super) async fn of(
        reader: &TableReader,
        entry: &Entry,
        rows: &RoaringBitmap,
    ) -> Result<Self> {
        let options = ReadOptions::columns(&[id::ID]);
        let entry = with_live(entry, rows)?;
        Ok(Self(reader.fragment_stream(&entry, &options).await?))
    }

    pub(super) async fn next(&mut self) -> Result<Option<Vec<String>>> {
        let Some(batch) = self.0.try_next().await? else {
            return Ok(None);
        };
        let wrong = || Error::corrupt("fragment", "batch", "a column of ids", "another");
        let ids = batch
            .columns()
            .first()
            .and_then(|c| c.as_string_opt::<i32>());
        let ids = ids.ok_or_else(wrong)?;
        let mut keys: Vec<String> = ids.iter().flatten().map(str::to_owned).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(Some(keys))
    }
}
