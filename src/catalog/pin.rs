//! Durable pins, and dropping datasets (which pins forbid).

use std::sync::Arc;

use async_trait::async_trait;

use super::commit::{Attempt, Edit, Import, Operation, Outcome};
use super::log::Catalog;
use super::resolve::{self, TableSnapshot};
use super::slot::{CommitKind, Pin};
use super::sweep::record;
use crate::ident::{BranchName, Name};
use crate::{Error, Result};

/// Adds a pin, or removes it.
#[derive(Clone)]
struct ChangePin {
    name: Name,
    add: Option<(Pin, Import)>,
}

#[async_trait]
impl Operation for ChangePin {
    fn imports(&self) -> Vec<Import> {
        self.add.iter().map(|(_, import)| import.clone()).collect()
    }

    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let known = attempt
            .head
            .body
            .pins
            .get(&store, self.name.as_str())
            .await?;
        let name = || self.name.to_string();
        let pin = match (&self.add, known) {
            (Some(_), Some(_)) => {
                return Err(Error::AlreadyExists {
                    what: "pin",
                    name: name(),
                });
            }
            (None, None) => {
                return Err(Error::NotFound {
                    what: "pin",
                    name: name(),
                });
            }
            (Some((pin, _)), None) => pin.clone(),
            (None, Some(pin)) => pin,
        };
        let branch = BranchName::main();
        let record = record(
            attempt,
            &pin.dataset,
            &pin.dataset_name,
            &branch,
            CommitKind::Pin,
        );
        let mut edit = Edit::new(record);
        edit.pins.insert(name(), self.add.as_ref().map(|_| pin));
        Ok(Some(edit))
    }
}

/// Removes a dataset from the catalog.
#[derive(Clone)]
struct Drop {
    name: Name,
    id: String,
}

#[async_trait]
impl Operation for Drop {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        let store = Arc::clone(attempt.store());
        let entry = resolve::dataset(&store, attempt.head, &self.name).await?;
        let Some(entry) = entry.filter(|d| d.id == self.id) else {
            return Err(Error::ParentMoved {
                table: self.name.to_string(),
                what: "dropped",
            });
        };
        let pins = attempt.head.body.pins.entries(&store).await?;
        let of_it: Vec<String> = pins
            .into_iter()
            .filter(|(_, p)| p.dataset == entry.id)
            .map(|(name, _)| name)
            .collect();
        if !of_it.is_empty() {
            return Err(Error::Pinned {
                table: self.name.to_string(),
                pins: of_it.join(", "),
            });
        }
        let branch = BranchName::main();
        let record = record(attempt, &entry.id, &self.name, &branch, CommitKind::Drop);
        let mut edit = Edit::new(record);
        edit.datasets.insert(self.name.to_string(), None);
        Ok(Some(edit))
    }
}

impl Catalog {
    /// Pins a version of a table durably; `expires_at` in microseconds since 1970-01-01 UTC.
    pub async fn create_pin(
        self: &Arc<Self>,
        name: Name,
        table: &TableSnapshot,
        expires_at: Option<i64>,
    ) -> Result<Pin> {
        let import = Import {
            dataset_name: table.name.to_string(),
            dataset: table.manifest.dataset.clone(),
            branch: table.manifest.branch.clone(),
            version: table.version(),
            manifest: table.manifest_ref.clone(),
        };
        let pin = Pin {
            dataset: import.dataset.clone(),
            dataset_name: table.name.clone(),
            branch: import.branch.clone(),
            version: import.version,
            manifest: import.manifest.clone(),
            expires_at,
        };
        let add = Some((pin.clone(), import));
        self.commit_again(ChangePin { name, add }).await?;
        Ok(pin)
    }

    /// Drops a durable pin.
    pub async fn drop_pin(self: &Arc<Self>, name: Name) -> Result<()> {
        self.commit_again(ChangePin { name, add: None })
            .await
            .map(drop)
    }

    /// All durable pins by name.
    pub async fn pins(&self) -> Result<Vec<(String, Pin)>> {
        self.look().await?.body.pins.entries(self.store()).await
    }

    /// Removes a dataset; its objects go with the next garbage collection.
    pub async fn drop_dataset(self: &Arc<Self>, name: &Name) -> Result<()> {
        let head = self.look().await?;
        let missing = || Error::NotFound {
            what: "dataset",
            name: name.to_string(),
        };
        let entry = resolve::dataset(self.store(), &head, name)
            .await?
            .ok_or_else(missing)?;
        let outcome: Outcome<Drop> = self
            .commit_again(Drop {
                name: name.clone(),
                id: entry.id,
            })
            .await?;
        debug_assert!(outcome.committed);
        Ok(())
    }
}
