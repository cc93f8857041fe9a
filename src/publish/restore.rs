//! An older version made current again, as a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::descriptor::{Descriptor, chain};
use super::successor::{Next, Published, Requester, next_version};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Import, Operation};
use crate::catalog::resolve::{self, EMBEDDING_TYPE, TableSnapshot};
use crate::catalog::slot::CommitKind;
use crate::ident::Name;
use crate::store::Stager;
use crate::table::manifest::TableDelta;
use crate::{Error, Result};

/// A restore to commit.
#[derive(Debug, Clone)]
pub struct RestoreRequest {
    /// The table.
    pub name: Name,
    /// The version whose content becomes current.
    pub version: u64,
    /// Who asks.
    pub requester: Requester,
}

struct Restore {
    request: RestoreRequest,
    /// The version to restore, as the caller saw it.
    old: TableSnapshot,
    published: Option<Published>,
}

/// Publishes the content of an older version as a new one. Its rows, masks and rejects are shared.
///
/// # Errors
/// `NotFound`, `VersionUnavailable` for a version that is not retained, also when it expires
/// meanwhile; `ParentMoved` for a table that was dropped meanwhile; the commit's own.
pub async fn restore(
    catalog: &Arc<Catalog>,
    stage: Stager,
    request: RestoreRequest,
) -> Result<(Published, u32)> {
    let head = catalog.known().await?;
    let version = Some(request.version);
    let old = resolve::table(catalog.store(), &head, &request.name, version).await?;
    let unavailable = Error::VersionUnavailable {
        table: request.name.to_string(),
        version: request.version,
        detail: String::new(),
    };
    let operation = Restore {
        request,
        old,
        published: None,
    };
    let outcome = catalog.commit(stage, operation).await?;
    let published = outcome.operation.published.ok_or(unavailable)?;
    Ok((published, outcome.attempts))
}

#[async_trait]
impl Operation for Restore {
    fn imports(&self) -> Vec<Import> {
        let manifest = &self.old.manifest;
        vec![Import {
            dataset_name: self.request.name.to_string(),
            dataset: manifest.dataset.clone(),
            branch: manifest.branch.clone(),
            version: manifest.version,
            manifest: self.old.manifest_ref.clone(),
        }]
    }

    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let (mark, store) = (attempt.stage.mark(), Arc::clone(attempt.store()));
        let name = &self.request.name;
        let moved = || Error::ParentMoved {
            table: name.to_string(),
            what: "dropped",
        };
        let parent = match resolve::table(&store, attempt.head, name, None).await {
            Err(Error::NotFound { .. }) => return Err(moved()),
            other => other?,
        };
        if parent.dataset.id != self.old.dataset.id {
            return Err(moved());
        }
        let old = &self.old;
        let mut table = old.table.as_ref().clone();
        // Numbers of entries are never used again.
        table.next_entry = table.next_entry.max(parent.table.next_entry);
        let mut descriptor = Descriptor::of(CommitKind::Restore, &parent, None);
        descriptor.restored = Some((old.version(), old.manifest.identity));
        let mask = table.mask_digest;
        let (identity, descriptor) =
            chain(&store, &parent, &descriptor, &[], mask.as_ref()).await?;
        let next = Next {
            kind: CommitKind::Restore,
            name: name.clone(),
            table,
            delta: TableDelta {
                type_id: EMBEDDING_TYPE,
                ..TableDelta::default()
            },
            identity,
            descriptor: Some(descriptor),
            definition: old.manifest.definition.clone(),
            counts: BTreeMap::new(),
            requester: self.request.requester.clone(),
            staged: Vec::new(),
            mark,
            imports: true,
        };
        let (edit, published) = next_version(attempt, &parent, next)?;
        self.published = Some(published);
        Ok(Some(edit))
    }
}
