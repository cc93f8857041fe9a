//! The schema of a branch of a graph: one table for each node and edge type.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::SchemaProvider;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result;
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::ident::{BranchName, Name};

use crate::catalog::refuse;
use crate::columns::PlannedTable;
use crate::error::ResultExt;
use crate::hooks::WriteHooks;
use crate::metadata::{Metadata, wait};
use crate::versioned::VersionedTableProvider;

/// The schema `sg."g"` or `sg."g@branch"`.
#[derive(Debug)]
pub struct GraphTables {
    metadata: Arc<Metadata>,
    name: Name,
    branch: BranchName,
    hooks: Option<Arc<dyn WriteHooks>>,
}

impl GraphTables {
    /// The schema of a name; `None` if no graph can have it.
    pub(crate) fn named(
        metadata: Arc<Metadata>,
        hooks: Option<Arc<dyn WriteHooks>>,
        text: &str,
    ) -> Option<Self> {
        let (name, branch) = split_branch(text).ok()?;
        Some(Self {
            metadata,
            name,
            branch,
            hooks,
        })
    }

    /// Whether there is such a graph. A name that this process does not know may be one that another
    /// process has made since; only where waiting would block the runtime is it taken for none.
    pub(crate) fn is_known(&self) -> bool {
        let known = |metadata: &Metadata| {
            metadata.datasets().get(self.name.as_str()) == Some(&DatasetKind::Graph)
        };
        if known(&self.metadata) {
            return true;
        }
        let call = "Stratagraph::refresh_metadata()";
        let looked = wait(self.name.as_str(), call, self.metadata.refresh());
        matches!(looked, Ok(Ok(_))) && known(&self.metadata)
    }

    async fn find(&self, table: &str) -> stratagraph::Result<Option<VersionedTableProvider>> {
        let Some(state) = self.metadata.graph(&self.name, &self.branch).await? else {
            return Ok(None);
        };
        let Some(of) = state.schema.types.iter().find(|t| t.name == table) else {
            return Ok(None);
        };
        let planned = Arc::new(PlannedTable::of_type(&state, of, false)?);
        let metadata = Arc::clone(&self.metadata);
        let table = VersionedTableProvider::current(metadata, planned);
        Ok(Some(match &self.hooks {
            Some(hooks) => table.with_hooks(Arc::clone(hooks)),
            None => table,
        }))
    }
}

/// A graph and its branch: `g` is `g@main`.
///
/// # Errors
/// `InvalidIdentifier`.
pub fn split_branch(text: &str) -> stratagraph::Result<(Name, BranchName)> {
    match text.split_once('@') {
        None => Ok((Name::parse(text)?, BranchName::main())),
        Some((name, branch)) => Ok((Name::parse(name)?, BranchName::parse(branch)?)),
    }
}

#[async_trait]
impl SchemaProvider for GraphTables {
    fn table_names(&self) -> Vec<String> {
        let (name, branch) = (self.name.as_str(), self.branch.as_str());
        let known = self.metadata.known_graph(name, branch);
        let types = known.iter().flat_map(|state| &state.schema.types);
        types.map(|t| t.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = self.find(name).await.df()?;
        Ok(found.map(|table| Arc::new(table) as Arc<dyn TableProvider>))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.table(name).await?.map(|table| table.table_type()))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }

    fn register_table(
        &self,
        name: String,
        _table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Err(refuse(&name, "graph_apply_schema"))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Err(refuse(name, "graph_apply_schema"))
    }
}
