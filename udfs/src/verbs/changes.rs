//! `changes`: what differs between two versions of a table.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::ScalarUDF;
use futures::TryStreamExt;
use stratagraph::Result;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::Name;
use stratagraph_providers::{
    ArgSpec, ArgType, FunctionSpec, TableFunction, VersionedTableProvider, from_datafusion,
};
use tracing::Instrument;

use super::vectors::row_bytes;
use crate::engine::{Engine, Run, check_embeddings, has_unique_keys};
use crate::function::{ReportFunction, answer};
use crate::host::Joins;
use crate::report::ChangeRow;
use crate::scalar::ContentHash;

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
        check_embeddings(&old).and_then(|()| check_embeddings(&new))?;
        let unique = has_unique_keys(&old) && has_unique_keys(&new);
        let context = run.host.private(Joins::SortMerge, row_bytes(&new));
        context.register_udf(ScalarUDF::from(ContentHash::new()));
        let (old, new) = (provider(run, old)?, provider(run, new)?);
        let sql = comparison(&old.planned().schema, &new.planned().schema, unique);
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

/// The rows of one side: keys and marks. Where keys may repeat, all marks of a key are one text.
fn side(table: &str, mark: &str, unique: bool) -> String {
    match unique {
        true => format!("SELECT _row_id AS k, {mark} AS m FROM {table}"),
        false => format!(
            "SELECT k, string_agg(m, ',' ORDER BY m) AS m FROM \
             (SELECT _row_id AS k, encode({mark}, 'hex') AS m FROM {table}) s GROUP BY k"
        ),
    }
}

fn comparison(old: &SchemaRef, new: &SchemaRef, unique: bool) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let both = new.fields().iter().map(|f| f.name().as_str());
    let both = both.filter(|n| !NOT_CONTENT.contains(n) && old.field_with_name(n).is_ok());
    let columns: Vec<String> = both.map(quoted).collect();
    let mark = format!("content_hash({})", columns.join(", "));
    let (old, new) = (side("old", &mark, unique), side("new", &mark, unique));
    format!(
        "SELECT k, c FROM (SELECT arrow_cast(coalesce(n.k, o.k), 'Utf8') AS k, \
         arrow_cast(CASE WHEN o.k IS NULL THEN 'added' WHEN n.k IS NULL THEN 'deleted' \
         WHEN o.m IS DISTINCT FROM n.m THEN 'changed' END, 'Utf8') AS c \
         FROM ({old}) o FULL JOIN ({new}) n ON o.k = n.k) d WHERE c IS NOT NULL ORDER BY k"
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
