//! Searches of a table that is refreshed: through a fresh index, after 1 and after 50 refreshes, and
//! after what a host does about it.

use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use stratagraph_udfs::{BuildIndex, CompactOptions, GenerateEmbeddings, Stratagraph};

use crate::life::{save, session};

const ROWS: usize = 100_000;
const TOPICS: usize = 500;
const REFRESHES: usize = 50;
const QUERIES: usize = 101;

/// Ten words of one topic of forty: texts gather as real ones do.
fn text(row: usize, edits: usize) -> String {
    let topic = row % TOPICS;
    let mut state = (row * 31 + edits) as u64;
    let word = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        format!("w{}", topic * 40 + (state >> 33) as usize % 40)
    };
    (0..10).map(word).collect::<Vec<_>>().join(" ")
}

/// Median of a search by a vector, in SQL; each query is that of another text.
async fn median(ctx: &SessionContext, queries: &[String]) -> Duration {
    let mut times = Vec::new();
    for query in queries {
        let sql = format!("SELECT _row_id FROM search('t', {query}, 10)");
        #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
        let start = Instant::now();
        let found = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        times.push(start.elapsed());
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Vectors of texts that are not in the table, as SQL.
async fn queries(ctx: &SessionContext) -> Vec<String> {
    let mut queries = Vec::new();
    for i in 0..QUERIES {
        let sql = format!(
            "SELECT array_to_string(embed('{}', 'hash:384'), ',') AS v",
            text(i * 977, 1_000_000)
        );
        let rows = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        let list = datafusion::arrow::util::display::array_value_to_string(rows[0].column(0), 0);
        queries.push(format!("[{}]", list.unwrap()));
    }
    queries
}

struct Bench {
    ctx: SessionContext,
    sg: Stratagraph,
    queries: Vec<String>,
    fresh: Option<Duration>,
}

impl Bench {
    async fn measure(&mut self, what: &str) {
        // Once to open what is cold.
        median(&self.ctx, &self.queries[..5]).await;
        let time = median(&self.ctx, &self.queries).await;
        let fresh = *self.fresh.get_or_insert(time);
        let (ms, ratio) = (
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() / fresh.as_secs_f64(),
        );
        println!("| {what} | {ms:.2} | {ratio:.2} |");
    }
}

pub async fn run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src.parquet");
    let mut rows: Vec<String> = (0..ROWS).map(|i| text(i, 0)).collect();
    save(&source, &rows);
    let (ctx, sg) = session(dir.path(), &source).await;
    let table = GenerateEmbeddings::new("docs", ["text"], "id")
        .model("hash:384")
        .name("t");
    sg.generate_embeddings(table).await.unwrap();
    let queries = queries(&ctx).await;
    println!("\n| search of {ROWS} x 384 in SQL, k = 10 | p50, ms | / fresh |\n|---|---|---|");
    let mut bench = Bench {
        ctx,
        sg,
        queries,
        fresh: None,
    };
    bench
        .sg
        .build_index(BuildIndex::new("t", "vector"))
        .await
        .unwrap();
    bench.measure("a fresh index").await;
    for round in 1..=REFRESHES {
        (0..ROWS / 100).for_each(|i| rows[(i * 100 + round) % ROWS] = text(i * 100 + round, round));
        save(&source, &rows);
        bench
            .sg
            .refresh_embeddings("t", Default::default())
            .await
            .unwrap();
        if round == 1 || round == REFRESHES {
            bench.measure(&format!("{round} refreshes of 1 %")).await;
        }
    }
    bench
        .sg
        .build_index(BuildIndex::new("t", "vector"))
        .await
        .unwrap();
    bench.measure("then build_index").await;
    let options = CompactOptions::tiered(64 << 20, 0.2);
    bench.sg.compact_embeddings("t", options).await.unwrap();
    bench.measure("then a tiered compaction").await;
}
