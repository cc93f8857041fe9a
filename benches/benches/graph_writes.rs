//! One-row commits of a graph on local files at growing depth, and what a traversal costs after them.
//! `cargo bench --package stratagraph-benches --bench graph_writes`, with
//!
//! - `STRATAGRAPH_DEBIAN`: a folder with `packages.jsonl.gz` and `edges.jsonl.gz` of the Debian archive; the
//!   example of this repository without it.
//! - `STRATAGRAPH_DEPTH`: the last depth, 3,000 without it.
//!
//! Afterwards `graph_writes.py` does the same with SQLite, and with Kuzu where that is installed, in the
//! same folder of the same file system.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use stratagraph_udfs::{Options, install};

/// Commits that a time at a depth is the median of.
const AROUND: usize = 21;

/// Types of the example, which those of the whole archive are too.
const SCHEMA: &str = include_str!("../../examples/debian.pg");

const HOPS: &str = "SELECT count(*) FROM graph_reach('debian', 'dependsOn', 'libssl3', 1, 3, 'in')";

fn main() {
    // `cargo test --benches` runs this too; there it only has to build.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir_in(".").unwrap();
    runtime.block_on(run(folder.path()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("graph_writes.py");
    let source = std::env::var_os("STRATAGRAPH_DEBIAN").map(PathBuf::from);
    let source = source.unwrap_or_else(example);
    let peers = Command::new("python3")
        .args([&script, &source])
        .arg(folder.path())
        .status();
    if !peers.is_ok_and(|status| status.success()) {
        println!("the peers did not run");
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

/// The only number of a query's answer.
async fn number(ctx: &SessionContext, sql: &str) -> i64 {
    let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// The nth new package, or its first dependency.
async fn insert(ctx: &SessionContext, n: usize) -> Duration {
    let query = match n.is_multiple_of(2) {
        true => format!(
            r#"insert Package {{ name: "new-{:06}", version: "1", installed_kib: 1, section: "games",
                priority: "optional", summary: "a new game" }}"#,
            n / 2
        ),
        false => format!(
            r#"insert DependsOn {{ from: "new-{:06}", to: "libssl3", kind: "depends" }}"#,
            n / 2
        ),
    };
    let sql = format!(
        "SELECT affected_nodes + affected_edges FROM graph_mutate('debian', $$ query q() {{ {query} }} $$)"
    );
    let started = now();
    assert_eq!(number(ctx, &sql).await, 1);
    started.elapsed()
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// The best of seven, the first left out.
async fn hops(ctx: &SessionContext) -> (f64, i64) {
    let mut best = Duration::MAX;
    let mut rows = 0;
    for round in 0..7 {
        let started = now();
        rows = number(ctx, HOPS).await;
        if round > 0 {
            best = best.min(started.elapsed());
        }
    }
    (best.as_secs_f64() * 1e3, rows)
}

/// A session whose store in `folder` holds the graph.
async fn loaded(folder: &Path) -> SessionContext {
    let ctx = SessionContext::new();
    let root = folder.canonicalize().unwrap().join("store");
    let root = format!("file://{}", root.display());
    install(&ctx, Options::new(root)).await.unwrap();
    let source = std::env::var_os("STRATAGRAPH_DEBIAN").map(PathBuf::from);
    let (source, pattern) = match source {
        Some(source) => (source, "*.jsonl.gz"),
        None => (example(), "debian.jsonl.gz"),
    };
    let started = now();
    ctx.sql(&format!(
        "SELECT * FROM graph_create('debian', $$ {SCHEMA} $$)"
    ))
    .await
    .unwrap()
    .collect()
    .await
    .unwrap();
    let load = format!(
        "SELECT nodes_loaded + edges_loaded FROM graph_load('debian', '{}', 'overwrite')",
        source.join(pattern).display()
    );
    let rows = number(&ctx, &load).await;
    println!(
        "load of {rows} rows: {:.2} s",
        started.elapsed().as_secs_f64()
    );
    ctx
}

async fn run(folder: &Path) {
    let ctx = loaded(folder).await;
    let (before, reached) = hops(&ctx).await;
    println!("3 hops before: {before:.1} ms, {reached} rows");
    let depth: usize = std::env::var("STRATAGRAPH_DEPTH")
        .ok()
        .and_then(|d| d.parse().ok())
        .unwrap_or(3_000);
    let (mut window, mut all) = (Vec::new(), Vec::new());
    let started = now();
    for n in 0..depth {
        let took = insert(&ctx, n).await;
        window.push(took);
        all.push(took);
        if window.len() > AROUND {
            window.remove(0);
        }
        if [AROUND, 300, 1_000, depth].contains(&(n + 1)) {
            let insert = median(&mut window.clone());
            let (after, reached) = hops(&ctx).await;
            println!(
                "after {} commits: insert {insert:.2} ms, 3 hops {after:.1} ms ({:.2} of before), {reached} rows",
                n + 1,
                after / before
            );
        }
    }
    println!(
        "{depth} commits: {:.1} s, median {:.2} ms",
        started.elapsed().as_secs_f64(),
        median(&mut all)
    );
    let started = now();
    ctx.sql("SELECT * FROM graph_optimize('debian')")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let (after, _) = hops(&ctx).await;
    println!(
        "optimize: {:.2} s; 3 hops {after:.1} ms",
        started.elapsed().as_secs_f64()
    );
}
