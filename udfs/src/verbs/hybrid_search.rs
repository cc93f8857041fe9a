//! `hybrid_search`: nearest vectors and matching texts in one order, by reciprocal rank fusion.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use futures::FutureExt;
use stratagraph::Result;
use stratagraph::search::{Fused, Nearest, RowAt, fuse};
use stratagraph::text::{Mode, TextQuery};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, TableFunction};

use super::search::{check_k, wanted_of};
use crate::engine::{Engine, Run};
use crate::search::{Scores, Target, Wanted, search_function};

const FUNCTION: &str = "hybrid_search";
const SCORES: Scores = Scores(&[
    ("_score", DataType::Float32, false),
    ("_vector_rank", DataType::Int64, true),
    ("_text_rank", DataType::Int64, true),
]);

/// A search for rows by meaning and by words at once.
#[derive(Debug, Clone, PartialEq)]
pub struct HybridSearch {
    /// The table: `t`, `t@3`, `g.Type` or `g@branch.Type`.
    pub table: String,
    /// Its column of vectors.
    pub vector_column: String,
    /// Its column of texts.
    pub text_column: String,
    /// The text to look for, in both.
    pub query: String,
    /// Rows wanted, from 1.
    pub k: u64,
    /// A predicate over the table's columns.
    pub filter: Option<String>,
    /// The constant of the fusion, from 1.
    pub rrf_k: u64,
    /// Weights of the vectors and of the texts.
    pub weights: [f32; 2],
}

/// The table's columns, `_score`, `_vector_rank` and `_text_rank` of the best rows, best first.
pub(crate) async fn hybrid_search(run: &Run, hybrid: HybridSearch) -> Result<RecordBatch> {
    let k = check_k(FUNCTION, hybrid.k)?;
    let target = Target::find(run, FUNCTION, &hybrid.table, None).await?;
    if hybrid.rrf_k == 0 {
        return Err(target.invalid("rrf_k", "expected at least 1"));
    }
    let vectors = target.vector_column("vector_column", &hybrid.vector_column)?;
    let texts = target.text_column("text_column", &hybrid.text_column)?;
    let text = Wanted::Text(hybrid.query.clone());
    let query = target.query(&vectors, &text).await?;
    let words = TextQuery::new(&texts.analyser, &hybrid.query, Mode::Bm25)?;
    let allowed = target.allowed(hybrid.filter.as_deref()).await?;
    let search = target.search().await?;
    let depth = Fused::depth(k);
    let wanted = Nearest {
        query: &query,
        k: depth,
        exact: false,
    };
    let (near, _) = search.nearest(&vectors, wanted, &allowed).await?;
    let matching = search.matching(&texts, &words, depth, &allowed).await?;
    let legs = [near, matching].map(|leg| leg.iter().map(|f| f.row).collect::<Vec<RowAt>>());
    let fused = fuse(&legs, &hybrid.weights, hybrid.rrf_k as f32);
    let fused = search.in_order(fused, k).await?;
    answer(&target, &fused).await
}

/// Weights of the two legs.
fn weights_of(args: &BoundArgs) -> Result<[f32; 2]> {
    match args.opt_vector("weights") {
        None => Ok([1.0, 1.0]),
        Some([vector, text]) if *vector >= 0.0 && *text >= 0.0 && vector + text > 0.0 => {
            Ok([*vector, *text])
        }
        Some(_) => Err(args.invalid(
            "weights",
            "expected two numbers of at least 0, for the vectors and for the texts, not both 0",
        )),
    }
}

async fn answer(target: &Target, fused: &[Fused]) -> Result<RecordBatch> {
    let rows: Vec<RowAt> = fused.iter().map(|f| f.row).collect();
    let rank = |leg: usize| -> ArrayRef {
        let ranks = fused.iter().map(|f| f.ranks.get(leg).copied().flatten());
        let ranks = ranks.map(|rank| rank.and_then(|rank| i64::try_from(rank).ok()));
        Arc::new(ranks.collect::<Int64Array>())
    };
    let score = Float32Array::from_iter_values(fused.iter().map(|f| f.score));
    let scores: Vec<ArrayRef> = vec![Arc::new(score), rank(0), rank(1)];
    target.rows(&rows, scores, SCORES).await
}

async fn run(run: Run, args: BoundArgs) -> Result<RecordBatch> {
    let Wanted::Text(query) = wanted_of(&args)? else {
        return Err(args.invalid("query", "expected a text: both legs search for it"));
    };
    let hybrid = HybridSearch {
        table: args.text("table")?.to_owned(),
        vector_column: args.text("vector_column")?.to_owned(),
        text_column: args.text("text_column")?.to_owned(),
        query,
        k: args.opt_unsigned("k")?.unwrap_or(0),
        filter: args.opt_text("filter").map(str::to_owned),
        rrf_k: args.opt_unsigned("rrf_k")?.unwrap_or(60),
        weights: weights_of(&args)?,
    };
    hybrid_search(&run, hybrid).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("vector_column", ArgType::Name),
        ArgSpec::required("text_column", ArgType::Name),
        ArgSpec::required("query", ArgType::Query),
        ArgSpec::required("k", ArgType::Int),
        ArgSpec::optional("filter", ArgType::Text),
        ArgSpec::or("rrf_k", ArgType::Int, ArgValue::Int(60)),
        ArgSpec::optional("weights", ArgType::Vector),
    ];
    search_function(engine, FUNCTION, SCORES, args, |r, args| {
        run(r, args).boxed()
    })
}
