//! `changes`: what differs between two versions of a table.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use stratagraph::Result;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::Name;
use stratagraph_providers::{
    ArgSpec, ArgType, FunctionSpec, TableFunction, VersionedTableProvider, from_datafusion,
};
use tracing::Instrument;

use super::vectors::row_bytes;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::host::Joins;
use crate::report::ChangeRow;

/// Columns that say where a row came from, and the vector, which follows from the rest.
const NOT_CONTENT: [&str; 4] = ["_row_id", "_source_id", "_model_id", "vector"];

/// The keys whose row differs between two versions, in key order.
///
/// A row is its content hash and its included columns: one that was embedded again from the same
/// content has not changed. A column that only one of the versions has changes no row.
pub(crate) async fn changes(run: &Run, name: &Name, from: u64, to: u64) -> Result<Vec<ChangeRow>> {
    let span = tracing::info_span!("changes", table = %name, from, to);
    let work = async {
        let old = run.table(name, Some(from)).await?;
        let new = run.table(name, Some(to)).await?;
        let context = run.host.private(Joins::SortMerge, row_bytes(&new));
        let (old, new) = (provider(run, old)?, provider(run, new)?);
        let sql = comparison(&old.planned().schema, &new.planned().schema);
        let rows = async {
            context.register_table("old", old)?;
            context.register_table("new", new)?;
            let mut rows = context.sql(&sql).await?.execute_stream().await?;
            let mut changes = Vec::new();
            while let Some(batch) = rows.try_next().await? {
                let keys = batch.column(0).as_string::<i32>();
                let kinds = batch.column(1).as_string::<i32>();
                let pairs = keys.iter().zip(kinds).filter_map(|(k, c)| k.zip(c));
                changes.extend(pairs.map(|(key, change)| ChangeRow {
                    _row_id: key.to_owned(),
                    change: change.to_owned(),
                }));
            }
            Ok(changes)
        };
        rows.await.map_err(from_datafusion)
    };
    work.instrument(span).await
}

fn provider(run: &Run, snapshot: TableSnapshot) -> Result<Arc<VersionedTableProvider>> {
    let metadata = Arc::clone(&run.engine.metadata);
    let pin = Some(Arc::clone(run.pin()));
    VersionedTableProvider::of_snapshot(metadata, Arc::new(snapshot), pin).map(Arc::new)
}

fn comparison(old: &SchemaRef, new: &SchemaRef) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let both = new.fields().iter().map(|f| f.name().as_str());
    let both = both.filter(|n| !NOT_CONTENT.contains(n) && old.field_with_name(n).is_ok());
    let columns: Vec<String> = both.map(quoted).collect();
    let differs = columns
        .iter()
        .map(|c| format!("(o.{c} IS DISTINCT FROM n.{c})"));
    let differs = differs.collect::<Vec<_>>().join(" OR ");
    format!(
        "SELECT k, c FROM (SELECT arrow_cast(coalesce(n._row_id, o._row_id), 'Utf8') AS k, \
         arrow_cast(CASE WHEN o._row_id IS NULL THEN 'added' WHEN n._row_id IS NULL THEN 'deleted' \
         WHEN {differs} THEN 'changed' END, 'Utf8') AS c \
         FROM old o FULL JOIN new n ON o._row_id = n._row_id) d WHERE c IS NOT NULL ORDER BY k, c"
    )
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("from_version", ArgType::Int),
        ArgSpec::required("to_version", ArgType::Int),
    ];
    ReportFunction::of::<ChangeRow>(engine, FunctionSpec::read("changes", args), |call| {
        Box::pin(async move {
            let name = call.name("table")?;
            let from = call.args.opt_unsigned("from_version")?.unwrap_or(0);
            let to = call.args.opt_unsigned("to_version")?.unwrap_or(0);
            answer(&changes(&call.run, &name, from, to).await?)
        })
    })
}
