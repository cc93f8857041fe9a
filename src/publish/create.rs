//! A new embedding table, published as version 0.

use std::sync::Arc;

use async_trait::async_trait;

use super::definition::{Definition, NeighborDefinition};
use super::delta::StagedDelta;
use super::successor::{NewIds, Next, Published, Requester, first_version};
use crate::catalog::Catalog;
use crate::catalog::commit::{Attempt, Edit, Operation};
use crate::catalog::resolve::{self, EMBEDDING_TYPE};
use crate::catalog::slot::CommitKind;
use crate::ident::Name;
use crate::store::{ObjRef, PageTree, Stager};
use crate::table::identity;
use crate::table::ledger::write_ledger;
use crate::table::manifest::{
    DeltaObject, Entry, Layout, SchemaVersion, TableDelta, TableManifest,
};
use crate::{Error, Result};

/// A table to create.
#[derive(Debug, Clone)]
pub struct NewTable {
    /// Its name; refused if it exists.
    pub name: Name,
    /// What it is made of.
    pub made: Made,
    /// Its columns.
    pub schema: SchemaVersion,
    /// Who asks.
    pub requester: Requester,
}

/// What a new table is made of.
#[derive(Debug, Clone)]
pub enum Made {
    /// Vectors of a source.
    Generated(Definition),
    /// Vectors that someone else made.
    Imported,
    /// Neighbours of the rows of another table.
    Neighbors(NeighborDefinition),
}

impl Made {
    fn kind(&self) -> CommitKind {
        match self {
            Self::Generated(_) => CommitKind::Generate,
            Self::Imported => CommitKind::Import,
            Self::Neighbors(_) => CommitKind::Neighbors,
        }
    }

    fn layout(&self) -> Layout {
        match self {
            Self::Generated(_) | Self::Imported => Layout::Embedding,
            Self::Neighbors(_) => Layout::Neighbors,
        }
    }

    fn stage(&self, stage: &mut Stager) -> Result<Option<ObjRef>> {
        let bytes = match self {
            Self::Generated(definition) => definition.encode()?,
            Self::Neighbors(definition) => definition.encode()?,
            Self::Imported => return Ok(None),
        };
        stage.add("json", bytes).map(Some)
    }
}

struct Create {
    new: NewTable,
    ids: NewIds,
    incarnation: String,
    definition: Option<ObjRef>,
    ledger: Option<DeltaObject>,
    delta: StagedDelta,
    published: Option<Published>,
}

/// Publishes version 0 of a new table: one fragment with the staged rows, or none.
///
/// # Errors
/// `AlreadyExists`, and whatever [`Catalog::commit`] returns; nothing is changed then.
pub async fn create(
    catalog: &Arc<Catalog>,
    mut stage: Stager,
    new: NewTable,
    delta: StagedDelta,
) -> Result<Published> {
    let definition = new.made.stage(&mut stage)?;
    let ledger = write_ledger(&mut stage, &delta.ledger)?;
    let unique = || catalog.env().ids.unique();
    let ids = NewIds {
        dataset: unique(),
        branch: unique(),
    };
    let create = Create {
        new,
        ids,
        incarnation: unique(),
        definition,
        ledger,
        delta,
        published: None,
    };
    let name = create.new.name.clone();
    let outcome = catalog.commit(stage, create).await?;
    outcome
        .operation
        .published
        .ok_or_else(|| Error::AlreadyExists {
            what: "table",
            name: name.to_string(),
        })
}

impl Create {
    fn table(&self) -> TableManifest {
        let fragment = self.delta.fragment.clone();
        let (rows, fragments) = fragment.as_ref().map_or((0, 0), |f| (f.rows, 1));
        let rejects = self
            .delta
            .ledger
            .iter()
            .filter(|c| c.reject.is_some())
            .count() as u64;
        let entry = Entry {
            stamp: 0,
            id: 0,
            fragment,
            mask: None,
            rejects: self.ledger.clone(),
        };
        let some = entry.fragment.is_some() || entry.rejects.is_some();
        TableManifest {
            type_id: EMBEDDING_TYPE,
            incarnation_id: self.incarnation.clone(),
            layout: self.new.made.layout(),
            endpoints: None,
            schemas: vec![self.new.schema.clone()],
            entries: if some {
                PageTree::leaf(Entry::key(0, 0), entry)
            } else {
                PageTree::default()
            },
            next_entry: u64::from(some),
            live_rows: rows,
            dead_rows: 0,
            fragments,
            rejects,
            mask_digest: None,
            fold: self.delta.fold,
            source_files: self.delta.source_files,
        }
    }
}

#[async_trait]
impl Operation for Create {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        if resolve::dataset(attempt.store(), attempt.head, &self.new.name)
            .await?
            .is_some()
        {
            let name = self.new.name.to_string();
            return Err(Error::AlreadyExists {
                what: "table",
                name,
            });
        }
        let table = self.table();
        let fragments = self.delta.fragment.iter().map(|f| f.file.object.sha256);
        let identity = identity::base(&fragments.collect::<Vec<_>>());
        let files = self
            .delta
            .fragment
            .iter()
            .flat_map(|f| f.file.objects().cloned());
        let staged = files
            .chain(self.ledger.iter().map(|l| l.object.clone()))
            .chain(self.definition.clone())
            .collect();
        let delta = TableDelta {
            type_id: EMBEDDING_TYPE,
            added: (0..table.next_entry).collect(),
            insert_only: true,
            ..TableDelta::default()
        };
        let next = Next {
            kind: self.new.made.kind(),
            name: self.new.name.clone(),
            table,
            delta,
            identity,
            descriptor: None,
            definition: self.definition.clone(),
            counts: self.delta.counts.clone(),
            requester: self.new.requester.clone(),
            staged,
            mark: attempt.stage.mark(),
            imports: false,
        };
        let (edit, published) = first_version(attempt, &self.ids, next)?;
        self.published = Some(published);
        Ok(Some(edit))
    }
}
