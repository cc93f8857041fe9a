//! Table functions for tests: they count their runs and show what they get.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::ScalarValue;
use datafusion::datasource::TableProvider;
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, Metadata, PlannedArgs, RunContext,
    TableFunction, VersionedTableProvider,
};

/// Runs by tag: tests run side by side, so each uses tags of its own.
static RUNS: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
pub static CANCELLED: AtomicU64 = AtomicU64::new(0);

pub fn runs(tag: &str) -> u64 {
    RUNS.lock().unwrap().get(tag).copied().unwrap_or(0)
}

/// A verb that counts its runs and shows its arguments.
#[derive(Debug)]
struct Probe(FunctionSpec);

/// A read that shows the catalog version that its pin sees.
#[derive(Debug)]
struct Seen(FunctionSpec);

/// A read that is a plan: the rows of a table.
#[derive(Debug)]
struct Streamed(FunctionSpec);

#[async_trait]
impl TableFunction for Streamed {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, args: &PlannedArgs<'_>, metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        let name = Name::parse(args.text("table").unwrap_or_default())?;
        metadata.schema_now(&name)
    }

    async fn plan(
        &self,
        args: &BoundArgs,
        state: &dyn Session,
        context: &RunContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let staleness = Default::default();
        let head = context.pin.snapshot(&context.metadata, staleness).await?;
        let store = context.metadata.catalog().store();
        let name = Name::parse(args.text("table")?)?;
        let snapshot = resolve::table(store, &head, &name, None).await?;
        let table = VersionedTableProvider::of_snapshot(
            Arc::clone(&context.metadata),
            Arc::new(snapshot),
            Some(Arc::clone(&context.pin)),
        )?;
        let plan = table.scan(state, None, &[], None).await;
        plan.map(Some)
            .map_err(stratagraph_providers::from_datafusion)
    }

    async fn run(self: Arc<Self>, args: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        Err(args.invalid("table", "is streamed"))
    }
}

/// A verb that never ends.
#[derive(Debug)]
struct Stuck(FunctionSpec);

pub fn all() -> Vec<Arc<dyn TableFunction>> {
    let probe = vec![
        ArgSpec::required("tag", ArgType::Name),
        ArgSpec::or("k", ArgType::Int, ArgValue::Int(7)),
        ArgSpec::optional("columns", ArgType::Names),
        ArgSpec::optional("query", ArgType::Query),
        ArgSpec::optional("source", ArgType::Relation),
        ArgSpec::optional("flag", ArgType::Bool),
        ArgSpec::optional("params", ArgType::Params),
        ArgSpec::optional("mode", ArgType::Text).literal(),
    ];
    vec![
        Arc::new(Probe(FunctionSpec::verb("probe", probe))),
        Arc::new(Seen(FunctionSpec::read("seen", vec![]))),
        Arc::new(Stuck(FunctionSpec::verb("stuck", vec![]))),
        Arc::new(Streamed(FunctionSpec::read(
            "streamed",
            vec![ArgSpec::required("table", ArgType::Name).literal()],
        ))),
    ]
}

fn text_schema(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|n| Field::new(*n, DataType::Utf8, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[async_trait]
impl TableFunction for Probe {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        Ok(text_schema(&["tag", "args"]))
    }

    async fn run(
        self: Arc<Self>,
        args: BoundArgs,
        context: RunContext,
    ) -> Result<Vec<RecordBatch>> {
        let tag = args.text("tag")?.to_owned();
        *RUNS.lock().unwrap().entry(tag.clone()).or_default() += 1;
        if tag == "fail" {
            return Err(args.invalid("tag", "fails"));
        }
        let mut shown = Vec::new();
        for arg in &self.0.args[1..] {
            match args.get(arg.name) {
                ArgValue::Null => {}
                ArgValue::Plan(plan) => {
                    let session = context.session.clone().unwrap();
                    let plan = session.create_physical_plan(plan).await;
                    let plan = plan.map_err(stratagraph_providers::from_datafusion)?;
                    let task = Arc::clone(&context.task);
                    let rows = datafusion::physical_plan::collect(plan, task).await;
                    let rows = rows.map_err(stratagraph_providers::from_datafusion)?;
                    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
                    shown.push(format!("{}={count} rows", arg.name));
                }
                ArgValue::Struct(ScalarValue::Struct(value)) => {
                    shown.push(format!("{}=struct of {}", arg.name, value.num_columns()));
                }
                value => shown.push(format!("{}={value:?}", arg.name)),
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values([&tag, &tag])),
            Arc::new(StringArray::from_iter_values([
                shown.join(" "),
                "second".to_owned(),
            ])),
        ];
        let schema = text_schema(&["tag", "args"]);
        Ok(vec![RecordBatch::try_new(schema, columns)?])
    }
}

#[async_trait]
impl TableFunction for Seen {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        let field = Field::new("catalog_version", DataType::Int64, false);
        Ok(Arc::new(Schema::new(vec![field])))
    }

    async fn run(self: Arc<Self>, _: BoundArgs, context: RunContext) -> Result<Vec<RecordBatch>> {
        let head = context
            .pin
            .snapshot(&context.metadata, Default::default())
            .await?;
        let column: ArrayRef = Arc::new(Int64Array::from(vec![head.version as i64]));
        let field = Field::new("catalog_version", DataType::Int64, false);
        let schema = Arc::new(Schema::new(vec![field]));
        Ok(vec![RecordBatch::try_new(schema, vec![column])?])
    }
}

struct CountDrop;

impl Drop for CountDrop {
    fn drop(&mut self) {
        CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl TableFunction for Stuck {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        Ok(text_schema(&["x"]))
    }

    async fn run(self: Arc<Self>, _: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        let _count = CountDrop;
        std::future::pending::<()>().await;
        Err(Error::Cancelled { operation: "stuck" })
    }
}
