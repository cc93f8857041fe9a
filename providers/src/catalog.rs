//! The catalog `sg`: schema `embeddings` with the embedding tables of the store, and a schema for each
//! branch of each graph.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use stratagraph::Error;
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::ident::{Name, VersionedName};

use crate::columns::PlannedTable;
use crate::error::{ResultExt, to_datafusion};
use crate::graph::GraphTables;
use crate::hooks::WriteHooks;
use crate::metadata::Metadata;
use crate::versioned::VersionedTableProvider;

/// The schema of embedding tables.
pub const EMBEDDINGS: &str = "embeddings";

/// The store as a DataFusion catalog.
#[derive(Debug)]
pub struct StratagraphCatalog {
    embeddings: Arc<EmbeddingsSchema>,
    metadata: Arc<Metadata>,
    hooks: Option<Arc<dyn WriteHooks>>,
}

impl StratagraphCatalog {
    /// A catalog over what the process knows; no store call.
    pub fn new(metadata: Arc<Metadata>) -> Self {
        Self {
            embeddings: Arc::new(EmbeddingsSchema {
                metadata: Arc::clone(&metadata),
            }),
            metadata,
            hooks: None,
        }
    }

    /// The same catalog, the rows of whose graphs are changed by `hooks`.
    pub fn with_hooks(self, hooks: Arc<dyn WriteHooks>) -> Self {
        Self {
            hooks: Some(hooks),
            ..self
        }
    }
}

impl CatalogProvider for StratagraphCatalog {
    fn schema_names(&self) -> Vec<String> {
        let datasets = self.metadata.datasets();
        let graphs = datasets
            .iter()
            .filter(|(_, kind)| **kind == DatasetKind::Graph);
        let graphs = graphs.map(|(name, _)| name.clone());
        std::iter::once(EMBEDDINGS.to_owned())
            .chain(graphs)
            .collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == EMBEDDINGS {
            return Some(Arc::clone(&self.embeddings) as Arc<dyn SchemaProvider>);
        }
        let graph = GraphTables::named(Arc::clone(&self.metadata), self.hooks.clone(), name)?;
        graph
            .is_known()
            .then(|| Arc::new(graph) as Arc<dyn SchemaProvider>)
    }

    fn register_schema(
        &self,
        name: &str,
        _schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        Err(refuse(name, "graph_create"))
    }

    fn deregister_schema(
        &self,
        name: &str,
        _cascade: bool,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        Err(refuse(name, "drop_embeddings or graph_drop"))
    }
}

pub(crate) fn refuse(table: &str, verb: &'static str) -> DataFusionError {
    to_datafusion(Error::ReadOnlyTable {
        table: table.to_owned(),
        verb,
    })
}

/// Refuses DDL on the catalog `catalog`, naming the verb to use.
///
/// For hosts that see plans before they run (a CLI): DataFusion 55.2 swallows the error of a schema
/// that refuses `DROP TABLE`, says that the table does not exist, and nothing at all with
/// `IF EXISTS`. Nothing is dropped either way.
pub fn check_ddl(plan: &LogicalPlan, catalog: &str) -> Result<()> {
    let name = match plan {
        LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => &drop.name,
        LogicalPlan::Ddl(DdlStatement::DropView(drop)) => &drop.name,
        _ => return Ok(()),
    };
    match name.catalog() {
        Some(named) if named == catalog => {
            let verb = match name.schema() {
                Some(EMBEDDINGS) | None => "drop_embeddings",
                Some(_) => "graph_drop",
            };
            Err(refuse(name.table(), verb))
        }
        _ => Ok(()),
    }
}

/// The schema `sg.embeddings`.
#[derive(Debug)]
pub struct EmbeddingsSchema {
    metadata: Arc<Metadata>,
}

impl EmbeddingsSchema {
    fn is_embedding(&self, name: &str) -> bool {
        self.metadata.datasets().get(name) == Some(&DatasetKind::Embedding)
    }

    /// The columns of a table. One whose manifest is gone or damaged is planned with the newest
    /// columns that the process knows of it: the error belongs to the scan, so that a listing of
    /// all tables does not fail on one.
    async fn planned(&self, name: &Name) -> stratagraph::Result<Option<Arc<PlannedTable>>> {
        match self.metadata.table(name).await {
            Err(Error::VersionUnavailable { .. } | Error::Corrupt { .. }) => {
                let known = self.metadata.known_table(name.as_str());
                let unknown = || Arc::new(PlannedTable::unknown(name.clone(), String::new()));
                Ok(Some(known.unwrap_or_else(unknown)))
            }
            other => other,
        }
    }

    async fn find(&self, name: &str) -> stratagraph::Result<Option<VersionedTableProvider>> {
        // A name that no table can have is the name of no table.
        let Ok(VersionedName { name, version }) = VersionedName::parse(name) else {
            return Ok(None);
        };
        let Some(planned) = self.planned(&name).await? else {
            return Ok(None);
        };
        let metadata = Arc::clone(&self.metadata);
        let Some(version) = version else {
            return Ok(Some(VersionedTableProvider::current(metadata, planned)));
        };
        let planned = match self.metadata.version(&name, version).await {
            Ok(of_version) => of_version,
            Err(Error::VersionUnavailable { .. } | Error::Corrupt { .. }) => planned,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(VersionedTableProvider::at_version(
            metadata, planned, version,
        )))
    }
}

#[async_trait]
impl SchemaProvider for EmbeddingsSchema {
    fn table_names(&self) -> Vec<String> {
        let datasets = self.metadata.datasets();
        let tables = datasets
            .iter()
            .filter(|(_, kind)| **kind == DatasetKind::Embedding);
        tables.map(|(name, _)| name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = self.find(name).await.df()?;
        Ok(found.map(|table| Arc::new(table) as Arc<dyn TableProvider>))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if self.is_embedding(name) {
            return Ok(Some(TableType::Base));
        }
        Ok(self.table(name).await?.map(|table| table.table_type()))
    }

    fn table_exist(&self, name: &str) -> bool {
        match VersionedName::parse(name) {
            Ok(parsed) => self.is_embedding(parsed.name.as_str()),
            Err(_) => false,
        }
    }

    fn register_table(
        &self,
        name: String,
        _table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Err(refuse(&name, "generate_embeddings or import_embeddings"))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Err(refuse(name, "drop_embeddings"))
    }
}
