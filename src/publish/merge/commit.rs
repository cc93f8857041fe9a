//! The commit of a merge.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{MergeBranch, States};
use crate::catalog::Catalog;
use crate::catalog::branch::{join, lineage, prune};
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::type_key;
use crate::catalog::slot::CommitKind;
use crate::publish::branch::{changed, check_deletable};
use crate::publish::graph::{GraphCommit, TableWrite};
use crate::publish::moves::{only_moved, rebased};
use crate::publish::successor::{self, Place, Requester, write};
use crate::publish::tables::{NextTables, next_tables};
use crate::store::Stager;
use crate::table::manifest::{TableDelta, TableRoot};
use crate::{Error, Result};

/// What the target has after the merge.
pub(super) enum Content {
    /// The tables of the source.
    Source,
    /// Its own tables after these writes.
    Tables(Vec<TableWrite>),
}

/// A merge that was prepared on the heads of both branches.
pub(super) struct Merge {
    source: GraphSnapshot,
    target: GraphSnapshot,
    content: Content,
    delete_source: bool,
    requester: Requester,
    published: Option<GraphCommit>,
}

impl Merge {
    pub(super) fn new(states: States, content: Content, request: &MergeBranch) -> Self {
        Self {
            source: states.source,
            target: states.target,
            content,
            delete_source: request.delete_source,
            requester: request.requester.clone(),
            published: None,
        }
    }

    pub(super) async fn run(self, catalog: &Arc<Catalog>, stage: Stager) -> Result<GraphCommit> {
        let lost = changed(&self.target.name, &self.target.branch);
        let outcome = catalog.commit(stage, self).await?;
        outcome.operation.published.ok_or(lost)
    }

    /// A branch as this attempt's head has it; it must hold the state that was merged.
    async fn state(
        &self,
        attempt: &Attempt<'_>,
        seen: &GraphSnapshot,
        at: At,
    ) -> Result<GraphSnapshot> {
        let (name, branch) = (&seen.name, &seen.branch);
        let changed = || changed(name, branch);
        let found = match graph(attempt.store(), attempt.head, name, branch, &at).await {
            Err(Error::NotFound { .. }) => return Err(changed()),
            other => other?,
        };
        match only_moved(attempt.store(), seen, &found).await? {
            true => Ok(found),
            false => Err(changed()),
        }
    }

    async fn tables(
        &self,
        attempt: &mut Attempt<'_>,
        source: &GraphSnapshot,
        target: &GraphSnapshot,
        stamp: u64,
    ) -> Result<NextTables> {
        match &self.content {
            Content::Source => source_tables(attempt, source, target).await,
            Content::Tables(writes) => {
                let (store, env) = (Arc::clone(attempt.store()), attempt.catalog.env().clone());
                let writes = match target.commit_id() == self.target.commit_id() {
                    true => writes.clone(),
                    false => rebased(&store, &env, &self.target, target, writes).await?,
                };
                next_tables(attempt, target, stamp, &writes, &BTreeMap::new()).await
            }
        }
    }
}

/// The tables of the source as tables of the target: numbers of entries are never used again, so they
/// go on from the larger ones.
async fn source_tables(
    attempt: &mut Attempt<'_>,
    source: &GraphSnapshot,
    target: &GraphSnapshot,
) -> Result<NextTables> {
    let store = Arc::clone(attempt.store());
    let (mut roots, mut delta) = (BTreeMap::new(), Vec::new());
    for table in target.manifest.all_tables(&store).await? {
        let type_id = table.type_id;
        let taken = source.manifest.table(&store, type_id).await?;
        let Some(mut taken) = taken.filter(|taken| *taken != table) else {
            continue;
        };
        delta.push(TableDelta {
            type_id,
            cleared: true,
            ..TableDelta::default()
        });
        if taken.next_entry < table.next_entry {
            taken.next_entry = table.next_entry;
            let root = TableRoot::Object(attempt.stage.add_json(&taken)?);
            roots.insert(type_key(type_id), Some(root));
        }
    }
    let tables = source.manifest.tables.apply(&store, attempt.stage, roots);
    Ok(NextTables {
        tables: tables.await?,
        delta,
        staged: Vec::new(),
    })
}

#[async_trait]
impl Operation for Merge {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let target = self.state(attempt, &self.target, At::Head).await?;
        let at = match self.delete_source {
            true => At::Head,
            // The captured state is merged, wherever the source has gone since.
            false => At::Commit(self.source.commit_id().to_owned()),
        };
        let source = self.state(attempt, &self.source, at).await?;
        let (mark, store) = (attempt.stage.mark(), Arc::clone(attempt.store()));
        let mut dataset = target.dataset.clone();
        if self.delete_source {
            let named = (&source.branch, source.manifest.branch.as_str());
            check_deletable(&store, attempt.head, &dataset, &source.name, named).await?;
            dataset.branches.remove(&source.branch);
        }
        let before = target.manifest.all_tables(&store).await?;
        let (branch, current) = (target.branch.clone(), Arc::clone(&target.current));
        let mut place = Place::after(attempt, &target.dataset, &branch, &current, &before)?;
        // After the fragments of both, so that they stay in the order of their stamps.
        place.version = place.version.max(source.manifest.version + 1);
        place.parents.push(source.commit_id().to_owned());
        let own = [
            target.manifest.branch.as_str(),
            source.manifest.branch.as_str(),
        ];
        let of_source = lineage(&source.manifest, &source.manifest_ref);
        let mut ancestry = join(place.ancestry, of_source);
        ancestry.remove(own[0]);
        place.ancestry = prune(&store, &dataset, ancestry, &own).await?;
        let stamp = place.version;
        let tables = self.tables(attempt, &source, &target, stamp).await?;
        let content = successor::Content {
            kind: CommitKind::Merge,
            name: target.name.clone(),
            tables: tables.tables,
            delta: tables.delta,
            identity: None,
            descriptor: None,
            definition: source.manifest.definition.clone(),
            counts: BTreeMap::new(),
            requester: self.requester.clone(),
            staged: tables.staged,
            mark,
            imports: true,
        };
        let (edit, written) = write(attempt, dataset, place, content)?;
        self.published = Some(written.into());
        Ok(Some(edit))
    }
}
