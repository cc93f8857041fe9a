//! The next version of an embedding table from a delta, rebased over the commits that came first.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use super::delta::{DeltaSource, StagedDelta};
use super::descriptor::{Descriptor, chain};
use super::kill::kill;
use super::overlap::{Overlap, overlap};
use super::successor::{Next, Published, Requester, next_version};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::resolve::{self, EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::CommitKind;
use crate::env::Env;
use crate::ident::Name;
use crate::store::{ObjRef, Stager, Store};
use crate::table::ledger::{Ledger, write_ledger};
use crate::table::manifest::{Entry, TableDelta, TableManifest};
use crate::table::mask;
use crate::table::read::TableReader;
use crate::{Error, Result};

/// What a refresh does with keys that the source no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deletes {
    /// Their rows go.
    #[default]
    Tombstone,
    /// Their rows stay.
    Retain,
}

/// A refresh to commit.
#[derive(Debug, Clone)]
pub struct RefreshRequest {
    /// The table.
    pub name: Name,
    /// Its dataset id: a table dropped and made again is another.
    pub dataset: String,
    /// Delete policy; part of the identity.
    pub deletes: Deletes,
    /// Who asks.
    pub requester: Requester,
}

/// A finished refresh.
#[derive(Debug)]
pub struct Refreshed<D> {
    /// The delta source, with what it counted.
    pub driver: D,
    /// The new version; `None` when there was nothing to do.
    pub published: Option<Published>,
    /// The version that the last delta was made against.
    pub base: TableSnapshot,
    /// Attempts made.
    pub attempts: u32,
}

struct Refresh<D> {
    request: RefreshRequest,
    driver: D,
    /// The delta at hand with the version that it was made against.
    delta: Option<(u64, StagedDelta)>,
    base: Option<TableSnapshot>,
    definition: Option<ObjRef>,
    published: Option<Published>,
}

/// Brings a table to the state of its source.
///
/// # Errors
/// `ParentMoved` if the table was dropped, restored or redefined meanwhile; whatever the driver and
/// [`Catalog::commit`] return. Nothing is changed then.
pub async fn refresh<D: DeltaSource>(
    catalog: &Arc<Catalog>,
    stage: Stager,
    request: RefreshRequest,
    driver: D,
) -> Result<Refreshed<D>> {
    let missing = Error::NotFound {
        what: "embedding table",
        name: request.name.to_string(),
    };
    let operation = Refresh {
        request,
        driver,
        delta: None,
        base: None,
        definition: None,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    let Refresh {
        driver,
        published,
        base,
        ..
    } = outcome.operation;
    let published = published.filter(|_| outcome.committed);
    Ok(Refreshed {
        driver,
        published,
        base: base.ok_or(missing)?,
        attempts: outcome.attempts,
    })
}

#[async_trait]
impl<D: DeltaSource> Operation for Refresh<D> {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let parent = self.parent(attempt).await?;
        let (env, store) = (attempt.catalog.env().clone(), Arc::clone(attempt.store()));
        let delta = self.delta_on(&env, &store, &parent, attempt.stage).await?;
        let Some(delta) = delta else {
            self.base = Some(parent);
            return Ok(None);
        };
        let edit = self.build(attempt, &parent, &delta).await?;
        self.delta = Some((parent.version(), delta));
        self.base = Some(parent);
        Ok(Some(edit))
    }
}

impl<D: DeltaSource> Refresh<D> {
    /// The table in the attempt's head, if it is still the one that the verb was called for.
    async fn parent(&mut self, attempt: &Attempt<'_>) -> Result<TableSnapshot> {
        let name = &self.request.name;
        let moved = |what| Error::ParentMoved {
            table: name.to_string(),
            what,
        };
        let parent = match resolve::table(attempt.store(), attempt.head, name, None).await {
            Err(Error::NotFound { .. }) if attempt.number > 1 => return Err(moved("dropped")),
            other => other?,
        };
        if parent.dataset.id != self.request.dataset {
            return Err(moved("dropped"));
        }
        let definition = parent.manifest.definition.clone();
        if attempt.number > 1 && self.definition != definition {
            return Err(moved("redefined"));
        }
        self.definition = definition;
        Ok(parent)
    }

    /// The delta that is at hand if no winner touched its keys, else a new one.
    async fn delta_on(
        &mut self,
        env: &Env,
        store: &Arc<Store>,
        parent: &TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<StagedDelta>> {
        let Some((base, mut delta)) = self.delta.take() else {
            return self.driver.delta(parent, stage).await;
        };
        match overlap(env, store, parent, base, &delta.touched).await? {
            Overlap::Nothing => Ok(Some(delta)),
            Overlap::OtherKeys => {
                // The table is no longer a function of the one source state that this delta read.
                delta.fold = None;
                delta.source_files = None;
                Ok(Some(delta))
            }
            Overlap::SameKeys => self.driver.delta(parent, stage).await,
        }
    }

    /// Manifests of the next version: the parent's entries with the superseded rows dead, and one
    /// entry with what the delta adds.
    async fn build(
        &mut self,
        attempt: &mut Attempt<'_>,
        parent: &TableSnapshot,
        delta: &StagedDelta,
    ) -> Result<Edit> {
        let mark = attempt.stage.mark();
        let (store, env) = (Arc::clone(attempt.store()), attempt.catalog.env().clone());
        let kills = kill(&env, &store, parent, &delta.superseded, attempt.stage).await?;
        let horizon = parent.version();
        let keys = delta.superseded.iter().map(|key| (key.as_str(), horizon));
        let entry = Entry {
            stamp: parent.version() + 1,
            id: parent.table.next_entry,
            fragment: delta.fragment.clone(),
            mask: mask::write_mask(attempt.stage, keys)?,
            rejects: write_ledger(attempt.stage, &delta.ledger)?,
        };
        let mut table = counted(parent.table.as_ref().clone(), &entry, kills.rows);
        table.fold = delta.fold;
        table.source_files = delta.source_files;
        if !delta.ledger.is_empty() {
            table.rejects = rejects_after(&env, &store, parent, delta).await?;
        }
        let files = || entry.fragment.iter().map(|f| &f.file);
        let digests: Vec<_> = files().map(|f| f.object.sha256).collect();
        let staged = files().flat_map(|f| f.objects().cloned()).collect();
        let table_delta = TableDelta {
            type_id: EMBEDDING_TYPE,
            added: vec![entry.id],
            killed: kills.killed,
            replaced: None,
            cleared: false,
            insert_only: delta.superseded.is_empty(),
        };
        let mut changes = kills.changes;
        changes.insert(Entry::key(entry.stamp, entry.id), Some(entry));
        table.entries = table.entries.apply(&store, attempt.stage, changes).await?;
        let descriptor = Descriptor::of(CommitKind::Refresh, parent, Some(self.request.deletes));
        let mask = table.mask_digest;
        let (identity, descriptor) =
            chain(&store, parent, &descriptor, &digests, mask.as_ref()).await?;
        let next = Next {
            kind: CommitKind::Refresh,
            name: self.request.name.clone(),
            table,
            delta: table_delta,
            identity,
            descriptor: Some(descriptor),
            definition: self.definition.clone(),
            counts: delta.counts.clone(),
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

/// The parent's table with the counts and the mask digest that follow from a new entry and from rows
/// that died.
fn counted(mut table: TableManifest, entry: &Entry, killed: u64) -> TableManifest {
    table.dead_rows += killed;
    table.live_rows = table.live_rows.saturating_sub(killed);
    if let Some(fragment) = &entry.fragment {
        table.live_rows += fragment.rows;
        table.fragments += 1;
    }
    if let Some(delta) = &entry.mask {
        let digest = mask::next_digest(table.mask_digest.as_ref(), &delta.object.sha256);
        table.mask_digest = Some(digest);
    }
    table.next_entry += 1;
    table
}

/// Entries of the ledger after a delta.
async fn rejects_after(
    env: &Env,
    store: &Arc<Store>,
    parent: &TableSnapshot,
    delta: &StagedDelta,
) -> Result<u64> {
    let reader = TableReader::new(Arc::clone(store), env, Arc::clone(&parent.table));
    let ledger = Ledger::load(store, &env.budget, &reader.entries().await?).await?;
    let mut count = ledger.len() as u64;
    for change in &delta.ledger {
        match (&change.reject, ledger.get(&change.key).is_some()) {
            (Some(_), false) => count += 1,
            (None, true) => count -= 1,
            _ => {}
        }
    }
    Ok(count)
}
