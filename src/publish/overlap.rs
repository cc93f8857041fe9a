//! What the commits between a delta's base and the head did to the keys of the delta.

use std::sync::Arc;

use crate::catalog::manifest::BranchManifest;
use crate::catalog::resolve::{EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::store::Store;
use crate::table::ledger::Ledger;
use crate::table::manifest::Entry;
use crate::table::mask::LogicalMask;
use crate::table::read::TableReader;
use crate::{Error, Result, limits};

/// How a delta relates to the commits that came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Overlap {
    /// No row of the table changed.
    Nothing,
    /// Rows of other keys changed.
    OtherKeys,
    /// Some of the same keys changed, or it cannot be told.
    SameKeys,
}

/// Manifests of the versions `base + 1 ..= parent.version()`, oldest first; `None` if they are too
/// many or one is gone: what was made against `base` is made anew then.
///
/// # Errors
/// `ParentMoved` if one of them restored an older state.
pub(super) async fn winners(
    store: &Arc<Store>,
    parent: &TableSnapshot,
    base: u64,
) -> Result<Option<Vec<Arc<BranchManifest>>>> {
    if parent.version().saturating_sub(base) > limits::REBASE_MANIFESTS {
        return Ok(None);
    }
    let mut winners = Vec::new();
    for version in base + 1..=parent.version() {
        let Some(winner) = manifest(store, parent, version).await? else {
            return Ok(None);
        };
        if !matches!(
            winner.commit.kind,
            CommitKind::Compact | CommitKind::Refresh
        ) {
            let table = parent.name.to_string();
            return Err(Error::ParentMoved {
                table,
                what: "restored",
            });
        }
        winners.push(winner);
    }
    Ok(Some(winners))
}

/// Compares `touched` (sorted) with what versions `base + 1 ..= parent.version()` changed.
///
/// # Errors
/// As [`winners`].
pub(super) async fn overlap(
    env: &Env,
    store: &Arc<Store>,
    parent: &TableSnapshot,
    base: u64,
    touched: &[String],
) -> Result<Overlap> {
    let Some(winners) = winners(store, parent, base).await? else {
        return Ok(Overlap::SameKeys);
    };
    let mut result = Overlap::Nothing;
    for winner in winners
        .iter()
        .filter(|w| w.commit.kind == CommitKind::Refresh)
    {
        result = result.max(keys_of(env, store, winner, touched).await?);
        if result == Overlap::SameKeys {
            break;
        }
    }
    Ok(result)
}

async fn manifest(
    store: &Arc<Store>,
    parent: &TableSnapshot,
    version: u64,
) -> Result<Option<Arc<BranchManifest>>> {
    if version == parent.version() {
        return Ok(Some(Arc::clone(&parent.manifest)));
    }
    let Some(entry) = parent.current.history.get(store, version).await? else {
        return Ok(None);
    };
    match BranchManifest::load(store, &entry.manifest).await {
        Ok(manifest) => Ok(Some(Arc::new(manifest))),
        Err(e) if e.is_missing_object() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether what a refresh added, masked or rejected has a key among `touched`.
async fn keys_of(
    env: &Env,
    store: &Arc<Store>,
    winner: &BranchManifest,
    touched: &[String],
) -> Result<Overlap> {
    let Some(table) = winner.table(store, EMBEDDING_TYPE).await? else {
        return Ok(Overlap::SameKeys);
    };
    let added: Vec<u64> = winner
        .delta
        .iter()
        .flat_map(|d| d.added.iter().copied())
        .collect();
    let mut entries: Vec<Entry> = Vec::with_capacity(added.len());
    for id in added {
        match table
            .entries
            .get(store, &Entry::key(winner.version, id))
            .await?
        {
            Some(entry) => entries.push(entry),
            None => return Ok(Overlap::SameKeys),
        }
    }
    let is_touched = |key: &str| touched.binary_search_by(|k| k.as_str().cmp(key)).is_ok();
    let mask = LogicalMask::load(store, &env.budget, &entries).await?;
    let ledger = Ledger::changed_keys(store, &entries).await?;
    if mask.iter().any(|(key, _)| is_touched(key)) || ledger.iter().any(|key| is_touched(key)) {
        return Ok(Overlap::SameKeys);
    }
    let reader = TableReader::new(Arc::clone(store), env, Arc::new(table));
    let keys: Vec<&str> = touched.iter().map(String::as_str).collect();
    for entry in &entries {
        if !reader.positions_of(entry, &keys).await?.is_empty() {
            return Ok(Overlap::SameKeys);
        }
    }
    Ok(Overlap::OtherKeys)
}
