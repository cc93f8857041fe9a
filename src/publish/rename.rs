//! Another name for a table. Objects live under ids, so nothing but the catalog changes.

use std::sync::Arc;

use async_trait::async_trait;

use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::resolve;
use crate::catalog::slot::{CommitKind, CommitRecord};
use crate::ident::{BranchName, Name};
use crate::store::Stager;
use crate::{Error, Result};

struct Rename {
    from: Name,
    to: Name,
}

/// Renames an embedding table. Versions, pins and their numbers stay.
///
/// # Errors
/// `NotFound`, `AlreadyExists` if the new name is taken, its own one included; the commit's own.
pub async fn rename(catalog: &Arc<Catalog>, stage: Stager, from: Name, to: Name) -> Result<()> {
    catalog.commit(stage, Rename { from, to }).await.map(drop)
}

#[async_trait]
impl Operation for Rename {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let entry = resolve::embedding_dataset(&store, attempt.head, &self.from).await?;
        if resolve::dataset(&store, attempt.head, &self.to)
            .await?
            .is_some()
        {
            return Err(Error::AlreadyExists {
                what: "table",
                name: self.to.to_string(),
            });
        }
        let env = attempt.catalog.env();
        let mut edit = Edit::new(CommitRecord {
            txn: attempt.stage.txn().clone(),
            id: env.ids.unique(),
            dataset: entry.id.clone(),
            dataset_name: self.to.to_string(),
            branch: BranchName::main().to_string(),
            kind: CommitKind::Rename,
            actor: None,
            time: env.clock.now_micros(),
            request_id: None,
        });
        edit.datasets.insert(self.from.to_string(), None);
        edit.datasets.insert(self.to.to_string(), Some(entry));
        Ok(Some(edit))
    }
}
