//! `embedding_tables`: what the store holds.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Result;
use stratagraph::catalog::resolve;
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::ident::Name;
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
        .map(|(name, dataset)| async move {
            let table = run.table(&Name::parse(&name)?, None).await?;
            let definition = run.engine.definition(&table).await?;
            let row = TableRow {
                table: name,
                source: String::new(),
                model: String::new(),
                dimensions: 0,
                version: table.version(),
                live_rows: table.table.live_rows,
                created_at: Micros(dataset.created_at),
            };
            Ok(match definition {
                None => row,
                Some(definition) => TableRow {
                    source: source::shown(&definition.source.name),
                    model: definition.model.spec,
                    dimensions: definition.dimensions,
                    ..row
                },
            })
        })
        .buffered(CONCURRENT)
        .try_collect()
        .await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::read("embedding_tables", Vec::new());
    ReportFunction::new::<TableRow>(engine, spec, |call| {
        Box::pin(async move { answer(&embedding_tables(&call.run).await?) })
    })
}
