//! `graphs`: what graphs the store holds.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Result;
use stratagraph::catalog::graph::{At, graph};
use stratagraph::catalog::resolve;
use stratagraph::catalog::slot::{DatasetEntry, DatasetKind};
use stratagraph::ident::{BranchName, Name};
use stratagraph_providers::{FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{GraphRow, Micros};

/// Manifests that are read at once.
const CONCURRENT: usize = 16;

/// All graphs of the statement's snapshot, by name.
pub(crate) async fn graphs(run: &Run) -> Result<Vec<GraphRow>> {
    let head = run.snapshot().await?;
    let datasets = resolve::datasets(run.catalog().store(), &head).await?;
    let graphs = datasets
        .into_iter()
        .filter(|(_, d)| d.kind == DatasetKind::Graph);
    stream::iter(graphs)
        .map(|(name, dataset)| row(run, name, dataset))
        .buffered(CONCURRENT)
        .try_collect()
        .await
}

async fn row(run: &Run, name: String, dataset: DatasetEntry) -> Result<GraphRow> {
    let head = run.snapshot().await?;
    let (store, of) = (run.catalog().store(), Name::parse(&name)?);
    let state = graph(store, &head, &of, &BranchName::main(), &At::Head).await?;
    Ok(GraphRow {
        graph: name,
        branches: dataset.branches.len() as u64,
        node_types: state.schema.nodes().count() as u64,
        edge_types: state.schema.edges().count() as u64,
        created_at: Micros(dataset.created_at),
    })
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::read("graphs", Vec::new());
    ReportFunction::of::<GraphRow>(engine, spec, |call| {
        Box::pin(async move { answer(&graphs(&call.run).await?) })
    })
}
