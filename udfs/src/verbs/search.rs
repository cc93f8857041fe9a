//! `search` and `search_by_id`: the rows of one version that are most like a query.
//!
//! Candidates, vectors and the filter come from one pinned version. Every live row is compared, so an
//! answer has exactly `min(k, live matches)` rows.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream_partitioned;
use datafusion::prelude::{DataFrame, col, lit};
use futures::TryStreamExt;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::embed::{Handshake, Role};
use stratagraph::ident::Name;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::{
    ArgSpec, ArgType, BoundArgs, FunctionSpec, TableFunction, VersionedTableProvider,
    from_datafusion,
};
use tracing::Instrument;

use super::filter;
use super::vectors::{row_bytes, table_and_version};
use crate::embedding;
use crate::engine::{Engine, Run, has_unique_keys};
use crate::function::ReportFunction;
use crate::host::Joins;
use crate::kernel::{Best, Hit, Query};
use crate::report::Report;

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// What is like this text, embedded with the table's own model.
    Text(String),
    /// What is like this vector.
    Vector(Vec<f32>),
    /// What is like the row of this key.
    Row(String),
}

/// A search.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// What to look for.
    pub wanted: Wanted,
    /// Rows wanted, from 1.
    pub k: u64,
    /// A predicate over `_row_id` and included columns.
    pub filter: Option<String>,
    /// The version to search; the current one without.
    pub version: Option<u64>,
}

impl Search {
    /// The `k` rows of the current version that are most like `wanted`.
    pub fn new(wanted: Wanted, k: u64) -> Self {
        Self {
            wanted,
            k,
            filter: None,
            version: None,
        }
    }

    /// Only among rows that a predicate takes.
    pub fn filter(self, predicate: impl Into<String>) -> Self {
        Self {
            filter: Some(predicate.into()),
            ..self
        }
    }

    /// In an older version.
    pub fn version(self, version: u64) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }
}

/// A row of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// Its key.
    pub _row_id: String,
    /// Cosine similarity, from -1 to 1.
    pub similarity: f32,
    /// Its place, from 1.
    pub rank: u64,
}

impl Report for SearchHit {
    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("_row_id", DataType::Utf8, false),
            Field::new("similarity", DataType::Float32, false),
            Field::new("rank", DataType::Int64, false),
        ]))
    }

    fn batch(rows: &[Self]) -> Result<RecordBatch> {
        let keys = StringArray::from_iter_values(rows.iter().map(|r| &r._row_id));
        let similarities = rows.iter().map(|r| r.similarity);
        let ranks = rows
            .iter()
            .map(|r| i64::try_from(r.rank).unwrap_or(i64::MAX));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(keys),
            Arc::new(Float32Array::from_iter_values(similarities)),
            Arc::new(Int64Array::from_iter_values(ranks)),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }
}

fn invalid(argument: &str, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: "search".to_owned(),
        argument: argument.to_owned(),
        reason: reason.into(),
    }
}

/// Runs a search.
pub(crate) async fn search(run: &Run, name: &Name, search: Search) -> Result<Vec<SearchHit>> {
    let span = tracing::info_span!("search", table = %name, k = search.k);
    let work = async {
        check_k(search.k)?;
        let table = Arc::new(run.table(name, search.version).await?);
        search_in(run, &table, search).await
    };
    work.instrument(span).await
}

/// Runs a search in one version: candidates, vectors and the filter come from it.
pub(crate) async fn search_in(
    run: &Run,
    table: &Arc<TableSnapshot>,
    search: Search,
) -> Result<Vec<SearchHit>> {
    let k = check_k(search.k)?;
    let rows = Rows { run, table };
    let query = rows.query(&search.wanted).await?;
    let hits = rows.best(query, k, search.filter.as_deref()).await?;
    let row = |(rank, hit): (usize, Hit)| SearchHit {
        _row_id: hit.key,
        similarity: hit.similarity,
        rank: rank as u64 + 1,
    };
    Ok(hits.into_iter().enumerate().map(row).collect())
}

pub(crate) fn check_k(k: u64) -> Result<usize> {
    let limit = limits::SEARCH_K as u64;
    match usize::try_from(k) {
        Ok(0) => Err(invalid("k", "expected at least 1")),
        Ok(k) if k <= limits::SEARCH_K => Ok(k),
        _ => Err(Error::ResourceLimitExceeded {
            what: "rows of a search",
            value: k,
            limit,
        }),
    }
}

/// The rows of one version.
struct Rows<'a> {
    run: &'a Run,
    table: &'a Arc<TableSnapshot>,
}

impl Rows<'_> {
    fn frame(&self) -> Result<DataFrame> {
        let metadata = Arc::clone(&self.run.engine.metadata);
        let pin = Some(Arc::clone(self.run.pin()));
        let rows = VersionedTableProvider::of_snapshot(metadata, Arc::clone(self.table), pin)?;
        let context = self.run.host.private(Joins::Hash, row_bytes(self.table));
        let mut state = context.state();
        if !has_unique_keys(self.table) {
            // The last row of a key counts, and rows have an order in one partition only.
            let options = state.config_mut().options_mut();
            options.execution.target_partitions = 1;
            options.optimizer.repartition_file_scans = false;
        }
        let context = datafusion::prelude::SessionContext::new_with_state(state);
        context.read_table(Arc::new(rows)).map_err(from_datafusion)
    }

    async fn query(&self, wanted: &Wanted) -> Result<Query> {
        let width = self.width()?;
        let vector = match wanted {
            Wanted::Vector(vector) if vector.len() == width => vector.clone(),
            Wanted::Vector(vector) => {
                let reason = format!("has {} components, the table {width}", vector.len());
                return Err(invalid("query", reason));
            }
            Wanted::Text(text) => self.embed(text).await?,
            Wanted::Row(key) => self.vector_of(key).await?,
        };
        Query::new(vector)
            .ok_or_else(|| invalid("query", "expected finite components that are not all zero"))
    }

    fn width(&self) -> Result<usize> {
        let missing = || {
            let name = self.table.name.as_str();
            Error::corrupt("table manifest", name, "a column of vectors", "none")
        };
        let schema = self.table.table.current_schema().ok_or_else(missing)?;
        let schema = stratagraph::table::schema::arrow_schema(schema)?;
        match schema.field_with_name("vector").map(|f| f.data_type()) {
            Ok(DataType::FixedSizeList(_, width)) => usize::try_from(*width).map_err(|_| missing()),
            _ => Err(invalid("table", "it holds no vectors")),
        }
    }

    async fn embed(&self, text: &str) -> Result<Vec<f32>> {
        let engine = &self.run.engine;
        let Some(definition) = engine.definition(self.table).await? else {
            let reason = "the table has no model of its own; give a vector";
            return Err(invalid("query", reason));
        };
        let model = engine.model_of(&self.table.name, &definition, Handshake::Known);
        let model = model.await?;
        let texts = StringArray::from(vec![text]);
        let answer = embedding::embed(model, Role::Query, texts).await?;
        if let Some((_, reason)) = answer.errors.first() {
            return Err(invalid(
                "query",
                format!("the model refuses this text: {reason}"),
            ));
        }
        let vector = answer.vectors.value(0);
        Ok(vector.as_primitive::<Float32Type>().values().to_vec())
    }

    /// The vector of a key: of its last row, if it has several.
    async fn vector_of(&self, key: &str) -> Result<Vec<f32>> {
        let rows = self.frame()?.filter(col("_row_id").eq(lit(key)));
        let rows = rows
            .and_then(|f| f.select_columns(&["vector"]))
            .map_err(from_datafusion)?;
        let batches = rows.collect().await.map_err(from_datafusion)?;
        let last = batches.iter().rev().find(|batch| batch.num_rows() > 0);
        let batch = last.ok_or_else(|| Error::NotFound {
            what: "row",
            name: key.to_owned(),
        })?;
        let vectors = batch.column(0).as_fixed_size_list();
        let vector = vectors.value(vectors.len() - 1);
        Ok(vector.as_primitive::<Float32Type>().values().to_vec())
    }

    async fn best(&self, query: Query, k: usize, predicate: Option<&str>) -> Result<Vec<Hit>> {
        let mut frame = self.frame()?;
        if let Some(predicate) = predicate {
            let expr = filter::parse(&self.run.host, self.table, predicate)?;
            frame = frame.filter(expr).map_err(from_datafusion)?;
        }
        let frame = frame
            .select_columns(&["_row_id", "vector"])
            .map_err(from_datafusion)?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame
            .create_physical_plan()
            .await
            .map_err(from_datafusion)?;
        let partitions = execute_stream_partitioned(plan, task).map_err(from_datafusion)?;
        let tasks: Vec<_> = partitions
            .into_iter()
            .map(|rows| SpawnedTask::spawn(scan(rows, query.clone(), Best::new(k))))
            .collect();
        let mut best = Best::new(k);
        for task in tasks {
            let part = task.join().await.map_err(|e| Error::TaskFailed {
                operation: "search",
                source: Box::new(e),
            })?;
            best.merge(part?);
        }
        Ok(best.into_sorted())
    }
}

/// Compares all rows of a partition. Rows of one key stand together; the last one counts.
async fn scan(mut rows: SendableRecordBatchStream, query: Query, mut best: Best) -> Result<Best> {
    let mut pending: Option<(String, f32)> = None;
    let mut similarities = Vec::new();
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        let keys = cast(batch.column(0), &DataType::Utf8)?;
        let keys = keys.as_string::<i32>();
        let vectors = batch.column(1).as_fixed_size_list();
        query.similarities(components(vectors, &query)?, &mut similarities);
        let Some(last) = keys.len().checked_sub(1) else {
            continue;
        };
        if let Some((key, similarity)) = pending.take()
            && key != keys.value(0)
        {
            best.offer(&key, similarity);
        }
        for (row, similarity) in similarities.iter().enumerate().take(last) {
            let key = keys.value(row);
            if key != keys.value(row + 1) {
                best.offer(key, *similarity);
            }
        }
        pending = Some((keys.value(last).to_owned(), similarities[last]));
    }
    if let Some((key, similarity)) = pending {
        best.offer(&key, similarity);
    }
    Ok(best)
}

/// The components of all rows, one row after the other.
fn components<'a>(vectors: &'a FixedSizeListArray, query: &Query) -> Result<&'a [f32]> {
    let width = query.dimensions();
    let child = vectors.values().as_primitive_opt::<Float32Type>();
    let start = usize::try_from(vectors.value_offset(0)).unwrap_or(usize::MAX);
    let end = start.saturating_add(vectors.len().saturating_mul(width));
    let found = child.and_then(|child| child.values().get(start..end));
    found.ok_or_else(|| {
        let found = format!("{} of {}", vectors.len(), vectors.data_type());
        Error::corrupt(
            "fragment",
            "vector",
            format!("vectors of {width} components"),
            found,
        )
    })
}

fn options(args: &BoundArgs, wanted: Wanted) -> Result<(Name, Search)> {
    let (name, version) = table_and_version(args)?;
    let k = args.opt_unsigned("k")?.unwrap_or(0);
    let filter = args.opt_text("filter").map(str::to_owned);
    let search = Search {
        wanted,
        k,
        filter,
        version,
    };
    Ok((name, search))
}

fn by_query() -> FunctionSpec {
    FunctionSpec::read(
        "search",
        vec![
            ArgSpec::required("table", ArgType::Name),
            ArgSpec::required("query", ArgType::Query),
            ArgSpec::required("k", ArgType::Int),
            ArgSpec::optional("filter", ArgType::Text),
            // Every search of this build is exact; the argument says what must stay so.
            ArgSpec::optional("exact", ArgType::Bool),
            ArgSpec::optional("version", ArgType::Int),
        ],
    )
}

fn by_id() -> FunctionSpec {
    FunctionSpec::read(
        "search_by_id",
        vec![
            ArgSpec::required("table", ArgType::Name),
            ArgSpec::required("row_id", ArgType::Text),
            ArgSpec::required("k", ArgType::Int),
            ArgSpec::optional("version", ArgType::Int),
        ],
    )
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 2] {
    [
        ReportFunction::of::<SearchHit>(engine, by_query(), |call| {
            Box::pin(async move {
                let args = &call.args;
                let wanted = match args.opt_vector("query") {
                    Some(vector) => Wanted::Vector(vector.to_vec()),
                    None => Wanted::Text(args.text("query")?.to_owned()),
                };
                let (name, options) = options(args, wanted)?;
                crate::function::answer(&search(&call.run, &name, options).await?)
            })
        }),
        ReportFunction::of::<SearchHit>(engine, by_id(), |call| {
            Box::pin(async move {
                let wanted = Wanted::Row(call.args.text("row_id")?.to_owned());
                let (name, options) = options(&call.args, wanted)?;
                crate::function::answer(&search(&call.run, &name, options).await?)
            })
        }),
    ]
}
