//! `search` and `search_by_id`: the rows of one version of an embedding table that are most like a query.
//!
//! Candidates, vectors and the filter come from one pinned version. An answer has exactly
//! `min(k, live matches)` rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use stratagraph::ann::Metric;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::Name;
use stratagraph::search::{Nearest, RowAt, take};
use stratagraph::table::manifest::Layout;
use stratagraph::table::schema::id;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::{ArgSpec, ArgType, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::vectors::table_and_version;
use crate::engine::{Engine, Run};
use crate::function::ReportFunction;
use crate::report::Report;
use crate::search::Target;
pub use crate::search::Wanted;

const FUNCTION: &str = "search";

/// A search.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// What to look for.
    pub wanted: Wanted,
    /// Rows wanted, from 1.
    pub k: u64,
    /// A predicate over `_row_id` and included columns.
    pub filter: Option<String>,
    /// Whether indexes are left aside.
    pub exact: bool,
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
            exact: false,
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

    /// Without indexes.
    pub fn exact(self) -> Self {
        Self {
            exact: true,
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
    /// Cosine similarity, from -1 to 1; of a table of metric `dot` the inner product, of `l2` the
    /// distance below zero.
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

/// Runs a search.
pub(crate) async fn search(run: &Run, name: &Name, search: Search) -> Result<Vec<SearchHit>> {
    let span = tracing::info_span!("search", table = %name, k = search.k);
    let work = async {
        check_k(FUNCTION, search.k)?;
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
    let k = check_k(FUNCTION, search.k)?;
    let target = Target::of_snapshot(run, FUNCTION, Arc::clone(table)).await?;
    if table.table.layout != Layout::Embedding {
        return Err(target.invalid("table", "it holds no vectors"));
    }
    let column = target.vector_column("table", "vector")?;
    let query = target.query(&column, &search.wanted).await?;
    let allowed = target.allowed(search.filter.as_deref()).await?;
    let exact = search.exact;
    let wanted = Nearest {
        query: &query,
        k,
        exact,
    };
    let rows = target.search().await?;
    let (found, searched) = rows.nearest(&column, wanted, &allowed).await?;
    tracing::debug!(?searched, "searched");
    let places: Vec<RowAt> = found.iter().map(|f| f.row).collect();
    let keys = take(rows.reader(), &places, &[id::ROW_ID]).await?;
    let keys = keys.column(0).as_string::<i32>();
    let similarity = |distance: f32| match column.metric {
        Metric::Cosine => 1.0 - distance,
        Metric::L2 | Metric::Dot => 0.0 - distance,
    };
    let hits = found.iter().zip(keys.iter().flatten()).zip(1u64..);
    let hits = hits.map(|((found, key), rank)| SearchHit {
        _row_id: key.to_owned(),
        similarity: similarity(found.value),
        rank,
    });
    Ok(hits.collect())
}

/// Checks the number of rows that a search wants.
pub(crate) fn check_k(function: &'static str, k: u64) -> Result<usize> {
    match usize::try_from(k) {
        Ok(0) => Err(Error::InvalidArgument {
            function: function.to_owned(),
            argument: "k".to_owned(),
            reason: "expected at least 1".to_owned(),
        }),
        Ok(k) if k <= limits::SEARCH_K => Ok(k),
        _ => Err(Error::ResourceLimitExceeded {
            what: "rows of a search",
            value: k,
            limit: limits::SEARCH_K as u64,
        }),
    }
}

fn options(args: &BoundArgs, wanted: Wanted) -> Result<(Name, Search)> {
    let (name, version) = table_and_version(args)?;
    let k = args.opt_unsigned("k")?.unwrap_or(0);
    let filter = args.opt_text("filter").map(str::to_owned);
    let search = Search {
        wanted,
        k,
        filter,
        exact: args.flag("exact"),
        version,
    };
    Ok((name, search))
}

fn by_query() -> FunctionSpec {
    FunctionSpec::read(
        FUNCTION,
        vec![
            ArgSpec::required("table", ArgType::Name),
            ArgSpec::required("query", ArgType::Query),
            ArgSpec::required("k", ArgType::Int),
            ArgSpec::optional("filter", ArgType::Text),
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

/// What a call looks for: a vector or a text.
pub(crate) fn wanted_of(args: &BoundArgs) -> Result<Wanted> {
    match args.opt_vector("query") {
        Some(vector) => Ok(Wanted::Vector(vector.to_vec())),
        None => Ok(Wanted::Text(args.text("query")?.to_owned())),
    }
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 2] {
    [
        ReportFunction::of::<SearchHit>(engine, by_query(), |call| {
            Box::pin(async move {
                let (name, options) = options(&call.args, wanted_of(&call.args)?)?;
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
