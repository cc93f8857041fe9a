//! One edge type of one version.

use std::sync::Arc;

use super::layer::Loader;
use super::pace::Pace;
use super::stats::ReachStats;
use super::union;
use crate::digest::{Digest, Hasher, canonical_json};
use crate::env::{Budget, Env};
use crate::graph::query::Direction;
use crate::store::Store;
use crate::table::manifest::{Endpoints, Layout, TableManifest};
use crate::table::read::TableReader;
use crate::{Error, Result};

/// An edge table of a version with what it takes to read it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EdgeTable {
    store: Arc<Store>,
    env: Env,
    table: Arc<TableManifest>,
    endpoints: Endpoints,
    identity: Digest,
}

impl EdgeTable {
    /// Makes no store call.
    ///
    /// # Errors
    /// `InvalidArgument` for a table of another layout, `Corrupt` for one that does not name its ends.
    pub fn new(store: Arc<Store>, env: &Env, table: Arc<TableManifest>) -> Result<Self> {
        if table.layout != Layout::Edge {
            return Err(Error::InvalidArgument {
                function: "traversal".to_owned(),
                argument: "table".to_owned(),
                reason: "expected a table of edges".to_owned(),
            });
        }
        let endpoints = table.endpoints.ok_or_else(|| {
            let path = format!("type {}", table.type_id);
            Error::corrupt("table manifest", &path, "types of both ends", "none")
        })?;
        let mut identity = Hasher::new("stratagraph.topology.v1");
        identity
            .part(store.display().as_bytes())
            .part(table.incarnation_id.as_bytes());
        for number in [table.type_id, endpoints.src, endpoints.dst] {
            identity.part(&number.to_le_bytes());
        }
        identity.part(&canonical_json(&table.entries)?);
        Ok(Self {
            store,
            env: env.clone(),
            endpoints,
            identity: identity.finish(),
            table,
        })
    }

    /// The same table with its memory taken from `budget`.
    pub fn with_budget(&self, budget: Arc<dyn Budget>) -> Self {
        let env = Env {
            budget,
            ..self.env.clone()
        };
        Self {
            env,
            ..self.clone()
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableManifest> {
        &self.table
    }

    /// Where its memory comes from.
    pub fn budget(&self) -> &Arc<dyn Budget> {
        &self.env.budget
    }

    /// Type ids of the ends.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints
    }

    /// Whether both ends are nodes of one type, so that a traversal can have more than one hop.
    pub fn same_type(&self) -> bool {
        self.endpoints.src == self.endpoints.dst
    }

    /// A digest of the edges: equal ones are the same edges of the same store.
    pub fn identity(&self) -> &Digest {
        &self.identity
    }

    /// Whether the neighbours by source are in memory, so that nothing is read for them.
    ///
    /// # Errors
    /// `Corrupt` for a table whose pages cannot be read.
    pub async fn is_held(&self) -> Result<bool> {
        let (mut stats, mut pace) = (ReachStats::default(), Pace::default());
        let mut loader = Loader {
            reader: &self.reader(),
            stats: &mut stats,
            pace: &mut pace,
            identity: &self.identity,
            held_only: true,
            many: false,
        };
        Ok(union::load(&mut loader, Direction::Out).await?.is_some())
    }

    pub(super) fn reader(&self) -> TableReader {
        TableReader::new(Arc::clone(&self.store), &self.env, Arc::clone(&self.table))
    }
}
