//! The tables of one state of a graph that a query reads: no other type is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::query::{Block, Query};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::topology::EdgeTable;
use stratagraph::search::TableSearch;
use stratagraph::table::read::TableReader;
use stratagraph::{Error, Result};

use crate::exec::{EdgeHandle, NodeTable};
use crate::metadata::Metadata;
use crate::pin::StatementPin;
use crate::versioned::VersionedTableProvider;

/// A type as a plan reads it.
#[derive(Clone)]
pub(super) struct TypeSource {
    pub(super) name: String,
    pub(super) table: Arc<dyn TableSource>,
    pub(super) edges: Option<EdgeHandle>,
    pub(super) search: TableSearch,
    nodes: NodeTable,
}

/// The types that a query names, in one state of a graph.
pub struct GraphSources {
    schema: Arc<GraphSchema>,
    types: BTreeMap<u64, TypeSource>,
}

impl GraphSources {
    /// The tables of `types`.
    ///
    /// # Errors
    /// `Corrupt` for a state whose tables cannot be read.
    pub async fn of(
        metadata: &Arc<Metadata>,
        snapshot: &GraphSnapshot,
        pin: &Arc<StatementPin>,
        types: &BTreeSet<u64>,
    ) -> Result<Self> {
        let mut sources = BTreeMap::new();
        for id in types {
            let of = snapshot.schema.by_id(*id).ok_or_else(|| missing(*id))?;
            let (data, pin) = (Arc::clone(metadata), Arc::clone(pin));
            let table = VersionedTableProvider::of_type(data, snapshot, of, pin).await?;
            let catalog = metadata.catalog();
            let store = Arc::clone(catalog.store());
            let manifest = snapshot.table(&store, *id).await?.table;
            let (env, own) = (catalog.env(), Arc::clone(&manifest));
            let nodes = NodeTable::new(&of.name, Arc::clone(&store), env, Arc::clone(&own));
            let search = TableSearch::new(TableReader::new(Arc::clone(&store), env, own));
            let edges = match of.is_edge() {
                false => None,
                true => {
                    let edges = EdgeTable::new(store, catalog.env(), manifest)?;
                    Some(EdgeHandle::new(&of.name, Arc::new(edges)))
                }
            };
            let source = TypeSource {
                name: of.name.clone(),
                table: provider_as_source(Arc::new(table)),
                edges,
                search,
                nodes,
            };
            sources.insert(*id, source);
        }
        Ok(Self {
            schema: Arc::clone(&snapshot.schema),
            types: sources,
        })
    }

    /// The schema of the state.
    pub fn schema(&self) -> &Arc<GraphSchema> {
        &self.schema
    }

    /// The edge types whose neighbours are in memory.
    ///
    /// # Errors
    /// `Corrupt` for a table whose pages cannot be read.
    pub(super) async fn held(&self) -> Result<BTreeSet<u64>> {
        let mut held = BTreeSet::new();
        for (id, source) in &self.types {
            if let Some(edges) = &source.edges
                && edges.edges().is_held().await?
            {
                held.insert(*id);
            }
        }
        Ok(held)
    }

    /// A type that the query names.
    pub(super) fn get(&self, id: u64) -> Result<&TypeSource> {
        self.types.get(&id).ok_or_else(|| missing(id))
    }

    /// The nodes of a type, to look ids up.
    pub(super) fn nodes(&self, id: u64) -> Result<NodeTable> {
        Ok(self.get(id)?.nodes.clone())
    }

    /// A search of the nodes of a type.
    pub(super) fn search(&self, id: u64) -> Result<TableSearch> {
        Ok(self.get(id)?.search.clone())
    }

    /// The edges of a type that the query traverses.
    pub(super) fn edges(&self, id: u64) -> Result<EdgeHandle> {
        let source = self.get(id)?;
        source.edges.clone().ok_or_else(|| missing(id))
    }
}

fn missing(id: u64) -> Error {
    Error::SchemaChanged {
        table: "graph".to_owned(),
        detail: format!("type {id} is not in this state of the graph"),
    }
}

/// The types whose tables a query reads.
pub(super) fn types_of(query: &Query) -> BTreeSet<u64> {
    let mut types: BTreeSet<u64> = query.variables.iter().map(|v| v.type_id).collect();
    hops_of(&query.pattern, &mut types);
    types
}

fn hops_of(block: &Block, types: &mut BTreeSet<u64>) {
    types.extend(block.hops.iter().map(|hop| hop.edge));
    for inner in block.optionals.iter().chain(&block.negations) {
        hops_of(inner, types);
    }
}
