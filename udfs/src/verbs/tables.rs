//! `embedding_tables`: what the store holds.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::catalog::resolve;
use stratagraph::catalog::slot::{DatasetEntry, DatasetKind};
use stratagraph::ident::Name;
use stratagraph::{Error, Result};
use stratagraph_providers::{FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{Micros, TableRow};
use crate::source;

/// Manifests that are read at once.
const CONCURRENT: usize = 16;

/// All embedding tables of the statement's snapshot, by name.
pub(crate) async fn embedding_tables(run: &Run) -> Result<Vec<TableRow>> {
    let head = run.snapshot().await?;
    let datasets = resolve::datasets(run.catalog().store(), &head).await?;
    let tables = datasets
        .into_iter()
        .filter(|(_, d)| d.kind == DatasetKind::Embedding);
    stream::iter(tables)
        .map(|(name, dataset)| row(run, name, dataset))
        .buffered(CONCURRENT)
        .try_collect()
        .await
}

async fn row(run: &Run, name: String, dataset: DatasetEntry) -> Result<TableRow> {
    let read = async {
        let table = run.table(&Name::parse(&name)?, None).await?;
        let definition = run.engine.definition(&table).await?;
        Ok((table, definition))
    };
    let (table, definition) = match read.await {
        Ok((table, definition)) => (Some(table), definition),
        Err(error @ (Error::VersionUnavailable { .. } | Error::Corrupt { .. })) => {
            tracing::warn!(table = %name, %error, "a table cannot be read");
            (None, None)
        }
        Err(error) => return Err(error),
    };
    Ok(TableRow {
        table: name,
        source: definition.as_ref().map(|d| source::shown(&d.source.name)),
        dimensions: definition.as_ref().map(|d| d.dimensions),
        model: definition.map(|d| d.model.spec),
        version: dataset.main().map_or(0, |branch| branch.version),
        live_rows: table.map(|t| t.table.live_rows),
        created_at: Micros(dataset.created_at),
    })
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::read("embedding_tables", Vec::new());
    ReportFunction::of::<TableRow>(engine, spec, |call| {
        Box::pin(async move { answer(&embedding_tables(&call.run).await?) })
    })
}
