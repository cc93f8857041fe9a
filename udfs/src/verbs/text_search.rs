//! `text_search`: the rows of any table whose texts match.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use futures::FutureExt;
use stratagraph::Result;
use stratagraph::text::{Mode, TextQuery};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, TableFunction};

use super::search::check_k;
use super::vector_search::{ranks, split};
use crate::engine::{Engine, Run};
use crate::search::{Scores, Target, search_function};

const FUNCTION: &str = "text_search";
/// Edits between a term of a fuzzy query and what it finds.
const EDITS: u8 = 2;
const SCORES: Scores = Scores(&[
    ("_score", DataType::Float32, false),
    ("_rank", DataType::Int64, false),
]);

/// A search for the texts of a table that match.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSearch {
    /// The table: `t`, `t@3`, `g.Type` or `g@branch.Type`.
    pub table: String,
    /// Its column of texts.
    pub column: String,
    /// The words to look for.
    pub query: String,
    /// Rows wanted, from 1.
    pub k: u64,
    /// When a row matches.
    pub mode: Mode,
    /// A predicate over the table's columns.
    pub filter: Option<String>,
}

/// The table's columns, `_score` and `_rank` of the rows that match best, best first.
pub(crate) async fn text_search(run: &Run, search: TextSearch) -> Result<RecordBatch> {
    let k = check_k(FUNCTION, search.k)?;
    let target = Target::find(run, FUNCTION, &search.table, None).await?;
    let column = target.text_column("column", &search.column)?;
    let query = TextQuery::new(&column.analyser, &search.query, search.mode)?;
    let allowed = target.allowed(search.filter.as_deref()).await?;
    let rows = target.search().await?;
    let found = rows.matching(&column, &query, k, &allowed).await?;
    let (rows, values) = split(&found);
    let scores = vec![values, ranks(rows.len())];
    target.rows(&rows, scores, SCORES).await
}

fn mode_of(args: &BoundArgs) -> Result<Mode> {
    match args.opt_text("mode").unwrap_or("bm25") {
        "bm25" => Ok(Mode::Bm25),
        "all" => Ok(Mode::All),
        "phrase" => Ok(Mode::Phrase),
        "fuzzy" => Ok(Mode::Fuzzy { max_edits: EDITS }),
        other => Err(args.invalid(
            "mode",
            format!("expected bm25, all, phrase or fuzzy, not {other:?}"),
        )),
    }
}

async fn run(run: Run, args: BoundArgs) -> Result<RecordBatch> {
    let search = TextSearch {
        table: args.text("table")?.to_owned(),
        column: args.text("column")?.to_owned(),
        query: args.text("query")?.to_owned(),
        k: args.opt_unsigned("k")?.unwrap_or(0),
        mode: mode_of(&args)?,
        filter: args.opt_text("filter").map(str::to_owned),
    };
    text_search(&run, search).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let mode = ArgValue::Text("bm25".to_owned());
    let args = vec![
        ArgSpec::required("column", ArgType::Name),
        ArgSpec::required("query", ArgType::Text),
        ArgSpec::required("k", ArgType::Int),
        ArgSpec::or("mode", ArgType::Text, mode),
        ArgSpec::optional("filter", ArgType::Text),
    ];
    search_function(engine, FUNCTION, SCORES, args, |r, args| {
        run(r, args).boxed()
    })
}
