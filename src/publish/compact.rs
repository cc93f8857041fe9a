//! A compaction as the next version: no row changes, dead rows and small fragments go.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::descriptor::{Descriptor, chain};
use super::kill::kill_positions;
use super::overlap::winners;
use super::successor::{Next, Published, Requester, next_version};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::resolve::{self, EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::ident::Name;
use crate::search::build::rebuild;
use crate::store::{Stager, Store};
use crate::table::compact::{Compaction, compact as merge};
use crate::table::manifest::{Entry, Fragment, TableDelta, TableManifest};
use crate::table::mask::{LogicalMask, mask_digest};
use crate::table::read::TableReader;
use crate::{Error, Result};

/// A compaction to commit.
#[derive(Debug, Clone)]
pub struct CompactRequest {
    /// The table.
    pub name: Name,
    /// Its dataset id.
    pub dataset: String,
    /// What to merge.
    pub merge: Merge,
    /// Who asks.
    pub requester: Requester,
}

/// Which fragments a compaction merges into one.
#[derive(Debug, Clone, PartialEq)]
pub enum Merge {
    /// All of them.
    All,
    /// Those of these entries.
    Entries(Vec<u64>),
    /// Small ones and those with many dead rows, if anything is won by it: two or more, or one that
    /// has too many dead rows.
    Tiered {
        /// A fragment of fewer bytes is small.
        max_bytes: u64,
        /// A larger share of dead rows, from 0 to 1, is many.
        min_masked: f64,
    },
}

impl Merge {
    /// Entries to merge; `None` when there is nothing to do.
    fn choose(&self, entries: &[Entry]) -> Option<Vec<Entry>> {
        let chosen: Vec<Entry> = match self {
            Self::All => return Some(entries.to_vec()),
            Self::Entries(wanted) => {
                let of = entries.iter().filter(|e| wanted.contains(&e.id));
                of.cloned().collect()
            }
            Self::Tiered {
                max_bytes,
                min_masked,
            } => {
                let heavy = |f: &Fragment| f.dead.rows as f64 > min_masked * f.rows as f64;
                let of = |e: &&Entry| {
                    let fragment = e.fragment.as_ref();
                    fragment.is_some_and(|f| f.file.object.size < *max_bytes || heavy(f))
                };
                let chosen: Vec<Entry> = entries.iter().filter(of).cloned().collect();
                let alone = chosen.len() == 1
                    && !chosen.iter().filter_map(|e| e.fragment.as_ref()).any(heavy);
                if alone { Vec::new() } else { chosen }
            }
        };
        (!chosen.is_empty()).then_some(chosen)
    }
}

/// A finished compaction.
#[derive(Debug)]
pub struct Compacted {
    /// The new version; `None` when there was nothing to do.
    pub published: Option<Published>,
    /// The version that was read last.
    pub base: TableSnapshot,
    /// Attempts made.
    pub attempts: u32,
}

struct Compact {
    request: CompactRequest,
    /// What was merged, and the version it was read at.
    merged: Option<(u64, Compaction)>,
    base: Option<TableSnapshot>,
    published: Option<Published>,
}

/// Merges fragments of a table into one and publishes it as a new version.
///
/// # Errors
/// `NotFound`, `ParentMoved` if the table was dropped or restored meanwhile, whatever
/// [`Catalog::commit`] returns; nothing is changed then.
pub async fn compact(
    catalog: &Arc<Catalog>,
    stage: Stager,
    request: CompactRequest,
) -> Result<Compacted> {
    let missing = Error::NotFound {
        what: "embedding table",
        name: request.name.to_string(),
    };
    let operation = Compact {
        request,
        merged: None,
        base: None,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    let Compact {
        base, published, ..
    } = outcome.operation;
    Ok(Compacted {
        published: published.filter(|_| outcome.committed),
        base: base.ok_or(missing)?,
        attempts: outcome.attempts,
    })
}

#[async_trait]
impl Operation for Compact {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let (env, store) = (attempt.catalog.env().clone(), Arc::clone(attempt.store()));
        let name = &self.request.name;
        let moved = || Error::ParentMoved {
            table: name.to_string(),
            what: "dropped",
        };
        let parent = match resolve::table(&store, attempt.head, name, None).await {
            Err(Error::NotFound { .. }) if attempt.number > 1 => return Err(moved()),
            other => other?,
        };
        if parent.dataset.id != self.request.dataset {
            return Err(moved());
        }
        let (read, merged) = match self.merged.take() {
            Some((read, merged)) if still_there(&store, &parent, read).await? => (read, merged),
            _ => match self.merge(&env, &store, &parent, attempt.stage).await? {
                Some(merged) => (parent.version(), merged),
                None => {
                    self.base = Some(parent);
                    return Ok(None);
                }
            },
        };
        let edit = self.build(attempt, &env, &parent, read, &merged).await?;
        self.merged = Some((read, merged));
        self.base = Some(parent);
        Ok(Some(edit))
    }
}

/// Whether the merged entries are still what the table consists of: no other compaction came first.
async fn still_there(store: &Arc<Store>, parent: &TableSnapshot, read: u64) -> Result<bool> {
    let Some(winners) = winners(store, parent, read).await? else {
        return Ok(false);
    };
    Ok(winners.iter().all(|w| w.commit.kind != CommitKind::Compact))
}

impl Compact {
    async fn merge(
        &self,
        env: &Env,
        store: &Arc<Store>,
        parent: &TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<Compaction>> {
        let reader = TableReader::new(Arc::clone(store), env, Arc::clone(&parent.table));
        match self.request.merge.choose(&reader.entries().await?) {
            None => Ok(None),
            Some(entries) => {
                let mut merged = merge(&reader, env, &entries, stage).await?;
                if let Some(fragment) = &mut merged.fragment {
                    rebuild(&reader, &entries, fragment, env, stage).await?;
                }
                Ok(Some(merged))
            }
        }
    }

    async fn build(
        &mut self,
        attempt: &mut Attempt<'_>,
        env: &Env,
        parent: &TableSnapshot,
        read: u64,
        merged: &Compaction,
    ) -> Result<Edit> {
        let mark = attempt.stage.mark();
        let store = Arc::clone(attempt.store());
        let mut table = parent.table.as_ref().clone();
        let (mut changes, replaced) = merged.changes(table.next_entry, read);
        let reader = TableReader::new(Arc::clone(&store), env, Arc::clone(&parent.table));
        let before = reader.entries().await?;
        let newer: Vec<Entry> = before.iter().filter(|e| e.stamp > read).cloned().collect();
        for entry in changes
            .values_mut()
            .flatten()
            .filter(|e| replaced.new.contains(&e.id))
        {
            *entry = with_winners_mask(env, &store, &reader, entry, &newer, attempt.stage).await?;
        }
        recount(&mut table, &before, &changes);
        table.next_entry += replaced.new.len() as u64;
        table.entries = table.entries.apply(&store, attempt.stage, changes).await?;
        let files = merged.fragment.iter().flat_map(|f| {
            let segments = f.segments.iter().flat_map(|s| s.file.objects());
            f.file.objects().chain(segments).cloned()
        });
        let staged = files
            .chain(merged.rejects.iter().map(|r| r.object.clone()))
            .collect();
        let digests: Vec<_> = merged
            .fragment
            .iter()
            .map(|f| f.file.object.sha256)
            .collect();
        let descriptor = Descriptor::of(CommitKind::Compact, parent, None);
        let mask = table.mask_digest;
        let (identity, descriptor) =
            chain(&store, parent, &descriptor, &digests, mask.as_ref()).await?;
        let next = Next {
            kind: CommitKind::Compact,
            name: self.request.name.clone(),
            table,
            delta: TableDelta {
                type_id: EMBEDDING_TYPE,
                added: replaced.new.clone(),
                replaced: Some(replaced),
                ..TableDelta::default()
            },
            identity,
            descriptor: Some(descriptor),
            definition: parent.manifest.definition.clone(),
            counts: BTreeMap::new(),
            requester: self.request.requester.clone(),
            staged,
            mark,
            imports: false,
        };
        let (edit, published) = next_version(attempt, parent, next)?;
        self.published = Some(published);
        Ok(edit)
    }
}

/// Counts and mask digest of a table whose entries were `before` and met `changes`.
fn recount(table: &mut TableManifest, before: &[Entry], changes: &BTreeMap<String, Option<Entry>>) {
    let key = |e: &Entry| Entry::key(e.stamp, e.id);
    let mut after: BTreeMap<String, &Entry> = before.iter().map(|e| (key(e), e)).collect();
    after.retain(|key, _| !changes.contains_key(key));
    after.extend(
        changes
            .iter()
            .filter_map(|(k, e)| Some((k.clone(), e.as_ref()?))),
    );
    let fragments = || after.values().filter_map(|e| e.fragment.as_ref());
    table.fragments = fragments().count() as u64;
    table.dead_rows = fragments().map(|f| f.dead.rows).sum();
    table.mask_digest = mask_digest(after.values().copied());
}

/// The stamp rule: the merged fragment holds the content of the version it was read at, so the masks
/// of later versions apply to it.
async fn with_winners_mask(
    env: &Env,
    store: &Arc<Store>,
    reader: &TableReader,
    entry: &Entry,
    newer: &[Entry],
    stage: &mut Stager,
) -> Result<Entry> {
    let mask = LogicalMask::load(store, &env.budget, newer).await?;
    let keys: Vec<&str> = mask.dead_keys(entry.stamp).collect();
    if keys.is_empty() || entry.fragment.is_none() {
        return Ok(entry.clone());
    }
    let positions = reader.positions_of(entry, &keys).await?;
    let killed = kill_positions(
        store,
        std::slice::from_ref(entry),
        [(entry.id, positions)].into(),
        stage,
    );
    let changed = killed.await?.changes.into_values().flatten().next();
    Ok(changed.unwrap_or_else(|| entry.clone()))
}
