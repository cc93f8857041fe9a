//! `vector_search`: the rows of any table with the nearest vectors.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use futures::FutureExt;
use stratagraph::Result;
use stratagraph::search::{Found, Nearest, RowAt};
use stratagraph_providers::{ArgSpec, ArgType, BoundArgs, TableFunction};

use super::search::{Wanted, check_k, wanted_of};
use crate::engine::{Engine, Run};
use crate::search::{Scores, Target, search_function};

const FUNCTION: &str = "vector_search";
const SCORES: Scores = Scores(&[
    ("_distance", DataType::Float32, false),
    ("_rank", DataType::Int64, false),
]);

/// A search for the nearest vectors of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSearch {
    /// The table: `t`, `t@3`, `g.Type` or `g@branch.Type`.
    pub table: String,
    /// Its column of vectors.
    pub column: String,
    /// What to look for.
    pub wanted: Wanted,
    /// Rows wanted, from 1.
    pub k: u64,
    /// A predicate over the table's columns.
    pub filter: Option<String>,
    /// Whether indexes are left aside.
    pub exact: bool,
}

/// The table's columns, `_distance` and `_rank` of the nearest rows, nearest first.
pub(crate) async fn vector_search(run: &Run, search: VectorSearch) -> Result<RecordBatch> {
    let k = check_k(FUNCTION, search.k)?;
    let target = Target::find(run, FUNCTION, &search.table, None).await?;
    let column = target.vector_column("column", &search.column)?;
    let query = target.query(&column, &search.wanted).await?;
    let allowed = target.allowed(search.filter.as_deref()).await?;
    let wanted = Nearest {
        query: &query,
        k,
        exact: search.exact,
    };
    let rows = target.search().await?;
    let (found, searched) = rows.nearest(&column, wanted, &allowed).await?;
    tracing::debug!(?searched, "searched");
    let (rows, distances) = split(&found);
    let scores = vec![distances, ranks(rows.len())];
    target.rows(&rows, scores, SCORES).await
}

/// Places from 1.
pub(super) fn ranks(rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values((1i64..).take(rows)))
}

/// Rows and values of what was found.
pub(super) fn split(found: &[Found]) -> (Vec<RowAt>, ArrayRef) {
    let rows = found.iter().map(|f| f.row).collect();
    let values = found.iter().map(|f| f.value);
    (rows, Arc::new(Float32Array::from_iter_values(values)))
}

async fn run(run: Run, args: BoundArgs) -> Result<RecordBatch> {
    let search = VectorSearch {
        table: args.text("table")?.to_owned(),
        column: args.text("column")?.to_owned(),
        wanted: wanted_of(&args)?,
        k: args.opt_unsigned("k")?.unwrap_or(0),
        filter: args.opt_text("filter").map(str::to_owned),
        exact: args.flag("exact"),
    };
    vector_search(&run, search).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("column", ArgType::Name),
        ArgSpec::required("query", ArgType::Query),
        ArgSpec::required("k", ArgType::Int),
        ArgSpec::optional("filter", ArgType::Text),
        ArgSpec::optional("exact", ArgType::Bool),
    ];
    search_function(engine, FUNCTION, SCORES, args, |r, args| {
        run(r, args).boxed()
    })
}
