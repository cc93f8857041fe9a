//! A table of nodes in which a plan looks ids up.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use stratagraph::Result;
use stratagraph::env::{Budget, Env};
use stratagraph::store::Store;
use stratagraph::table::manifest::TableManifest;
use stratagraph::table::read::TableReader;

/// A node table of a version under the name that plans show. Equal if it is the same table in memory.
#[derive(Clone)]
pub struct NodeTable {
    name: Arc<str>,
    store: Arc<Store>,
    env: Env,
    table: Arc<TableManifest>,
}

impl NodeTable {
    /// Shows `table` as `name`.
    pub fn new(name: &str, store: Arc<Store>, env: &Env, table: Arc<TableManifest>) -> Self {
        Self {
            name: name.into(),
            store,
            env: env.clone(),
            table,
        }
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The row id of an id, if there is such a node; memory comes from `budget`.
    pub(super) async fn rid(&self, id: &str, budget: &Arc<dyn Budget>) -> Result<Option<u64>> {
        let found = self.reader(budget).lookup(&[id]).await?;
        Ok(found.first().and_then(|found| found.rid))
    }

    /// The nodes of these row ids, which ascend, each once: row ids and `columns`. Also the bytes that
    /// were asked for.
    pub(super) async fn rows(
        &self,
        rids: &[u64],
        columns: &[u64],
        budget: &Arc<dyn Budget>,
    ) -> Result<(Vec<RecordBatch>, u64)> {
        let reader = self.reader(budget);
        let rows = reader.rows_of(rids, columns).await?;
        Ok((rows, reader.count().bytes()))
    }

    fn reader(&self, budget: &Arc<dyn Budget>) -> TableReader {
        let env = Env {
            budget: Arc::clone(budget),
            ..self.env.clone()
        };
        TableReader::new(Arc::clone(&self.store), &env, Arc::clone(&self.table))
    }
}

impl fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTable({})", self.name)
    }
}

impl PartialEq for NodeTable {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.table, &other.table)
    }
}

impl Eq for NodeTable {}

impl Hash for NodeTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
