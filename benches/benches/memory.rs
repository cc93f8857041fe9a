//! Ten times more data than the pool has: every verb finishes, by spilling.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use stratagraph_udfs::{
    Cascade, GenerateEmbeddings, NeighborGraph, Options, Search, Stratagraph, Wanted, install,
};

use crate::life::save;
use crate::timing::once;

const POOL: usize = 64 << 20;
/// Of 384 components: 645 MB of vectors.
const ROWS: usize = 420_000;

/// Most memory that this process has had, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM"))
        .unwrap_or("0");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u64>().unwrap_or(0) / 1024
}

async fn open(dir: &Path, source: &Path) -> (SessionContext, Stratagraph) {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(POOL)))
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    let options = ParquetReadOptions::default();
    ctx.register_parquet("docs", source.to_str().unwrap(), options)
        .await
        .unwrap();
    let options = Options::new(dir.join("store").to_str().unwrap());
    let sg = install(&ctx, options).await.unwrap();
    (ctx, sg)
}

fn step(what: &str, time: Duration) {
    println!("| {what} | {:.1} | {} |", time.as_secs_f64(), peak());
}

pub async fn run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src.parquet");
    let mut rows: Vec<String> = (0..ROWS)
        .map(|i| format!("text number {i} of group {}", i % 31))
        .collect();
    save(&source, &rows);
    let (ctx, sg) = open(dir.path(), &source).await;
    println!(
        "\n| {ROWS} rows, hash:384, a pool of {} MB | s | peak of the process, MB |\n|---|---|---|",
        POOL >> 20
    );
    step("before", Duration::ZERO);
    let table = GenerateEmbeddings::new("docs", ["text"], "id")
        .model("hash:384")
        .name("t");
    let (time, done) = once(sg.generate_embeddings(table)).await;
    step(&format!("generate, {} rows", done.unwrap().rows), time);
    (0..ROWS).step_by(10).for_each(|i| rows[i] += " edited");
    save(&source, &rows);
    drop(rows);
    let (time, done) = once(sg.refresh_embeddings("t", Default::default())).await;
    step(&format!("refresh, {} changed", done.unwrap().changed), time);
    let (time, done) = once(sg.compact_embeddings("t", Default::default())).await;
    step(&format!("compact, {} rows", done.unwrap().live_rows), time);
    reads_and_more(&sg).await;
    // Tasks that were aborted let go of their memory when they are next polled.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let left = ctx.runtime_env().memory_pool.reserved();
    println!("| memory not given back: {left} bytes | | |");
}

async fn reads_and_more(sg: &Stratagraph) {
    let (time, done) = once(sg.verify_materialization("t")).await;
    assert!(done.unwrap().iter().all(|c| c.verdict == "match"));
    step("verify", time);
    let search = Search::new(Wanted::Text("number 77".to_owned()), 10);
    let (time, done) = once(sg.search("t", search)).await;
    assert_eq!(done.unwrap().len(), 10);
    step("search", time);
    let (time, done) = once(sg.changes("t", 0, 2)).await;
    step(&format!("changes, {} rows", done.unwrap().len()), time);
    let (time, done) = once(sg.expire_versions("t", 2, true)).await;
    step(
        &format!("expire, {} objects", done.unwrap().objects_deleted),
        time,
    );
    let (time, done) = once(sg.recompute("t", Cascade::ReportOnly, None)).await;
    done.unwrap();
    step("recompute", time);
    let graph = NeighborGraph {
        table: "t".to_owned(),
        k: 5,
        min_similarity: None,
        name: None,
    };
    let (time, done) = once(sg.neighbor_graph(graph)).await;
    step(
        &format!("neighbor_graph: {}", done.unwrap_err().code()),
        time,
    );
}
