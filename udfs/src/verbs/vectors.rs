//! `read_vectors`: all live vectors of a version, by key.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{DataFrame, col};
use futures::TryStreamExt;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::{Name, VersionedName};
use stratagraph::table::schema::arrow_schema;
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, BoundArgs, FunctionSpec, Metadata, PlannedArgs, RunContext, TableFunction,
    VersionedTableProvider, from_datafusion,
};

use crate::engine::{Engine, Run, check_embeddings};
use crate::host::Joins;

const COLUMNS: [&str; 2] = ["_row_id", "vector"];

/// The rows as a plan that streams and can spill. Rows of one key stand by content hash, as they do
/// in their fragment.
async fn frame(run: &Run, name: &Name, version: Option<u64>) -> Result<DataFrame> {
    let table = run.table(name, version).await?;
    check_embeddings(&table)?;
    let row_bytes = row_bytes(&table);
    let metadata = Arc::clone(&run.engine.metadata);
    let pin = Some(Arc::clone(run.pin()));
    let rows = VersionedTableProvider::of_snapshot(metadata, Arc::new(table), pin)?;
    let context = run.host.private(Joins::Hash, row_bytes);
    let sorted = || {
        let order = ["_row_id", "_content_hash"].map(|c| col(c).sort(true, false));
        context
            .read_table(Arc::new(rows))?
            .sort(order.to_vec())?
            .select_columns(&COLUMNS)
    };
    sorted().map_err(from_datafusion)
}

/// Bytes of a row with its vector, about.
pub(crate) fn row_bytes(table: &TableSnapshot) -> usize {
    let schema = table
        .table
        .current_schema()
        .and_then(|schema| arrow_schema(schema).ok());
    let field = schema
        .as_ref()
        .and_then(|s| s.field_with_name("vector").ok());
    match field.map(|f| f.data_type()) {
        Some(DataType::FixedSizeList(_, width)) => usize::try_from(*width).unwrap_or(0) * 4 + 128,
        _ => 0,
    }
}

/// All live vectors of a version, in key order; the current version without `version`.
pub(crate) async fn read_vectors(
    run: &Run,
    name: &Name,
    version: Option<u64>,
) -> Result<Vec<RecordBatch>> {
    let rows = frame(run, name, version).await?.execute_stream().await;
    let rows = rows.map_err(from_datafusion)?;
    rows.try_collect().await.map_err(from_datafusion)
}

/// The SQL function. Its answer is streamed: it may be larger than memory.
pub(crate) struct ReadVectors {
    engine: Arc<Engine>,
    spec: FunctionSpec,
}

impl fmt::Debug for ReadVectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadVectors")
    }
}

pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        // The width of the vectors depends on it.
        ArgSpec::required("table", ArgType::Name).literal(),
        ArgSpec::optional("version", ArgType::Int),
    ];
    Arc::new(ReadVectors {
        engine: Arc::clone(engine),
        spec: FunctionSpec::read("read_vectors", args),
    })
}

/// Table and version of a call: `'docs', 3` or `'docs@3'`.
pub(crate) fn table_and_version(args: &BoundArgs) -> Result<(Name, Option<u64>)> {
    let VersionedName { name, version } = VersionedName::parse(args.text("table")?)?;
    match (version, args.opt_unsigned("version")?) {
        (Some(at), Some(given)) if at != given => {
            Err(args.invalid("version", format!("the table's name says version {at}")))
        }
        (at, given) => Ok((name, given.or(at))),
    }
}

#[async_trait]
impl TableFunction for ReadVectors {
    fn spec(&self) -> &FunctionSpec {
        &self.spec
    }

    fn schema(&self, args: &PlannedArgs<'_>, metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        let name = VersionedName::parse(args.text("table").unwrap_or_default())?.name;
        let table = metadata.table_now(&name)?;
        let field = |name: &str| table.schema.field_with_name(name).cloned();
        let fields = COLUMNS
            .map(field)
            .into_iter()
            .collect::<Result<Vec<_>, _>>();
        Ok(Arc::new(Schema::new(fields.map_err(Error::from)?)))
    }

    async fn plan(
        &self,
        args: &BoundArgs,
        _state: &dyn Session,
        context: &RunContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let run = Run::of_statement(Arc::clone(&self.engine), context);
        let (name, version) = table_and_version(args)?;
        let frame = frame(&run, &name, version).await?;
        frame
            .create_physical_plan()
            .await
            .map(Some)
            .map_err(from_datafusion)
    }

    async fn run(
        self: Arc<Self>,
        args: BoundArgs,
        context: RunContext,
    ) -> Result<Vec<RecordBatch>> {
        let run = Run::of_statement(Arc::clone(&self.engine), &context);
        let (name, version) = table_and_version(&args)?;
        read_vectors(&run, &name, version).await
    }
}
