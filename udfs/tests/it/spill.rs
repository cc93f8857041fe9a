//! Little memory changes the way, not the result.

use std::sync::Arc;

use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use stratagraph_udfs::{GenerateEmbeddings, RefreshReport};

use crate::world::{Doc, World, counting, doc};

const ROWS: usize = 25_000;

fn wide(n: usize, salt: usize) -> Vec<Doc> {
    (0..n)
        .map(|i| {
            let body = format!("{} ", (i * 7919 + salt) % 9973).repeat(20);
            doc(&format!("key {:06}", (i * 5003) % n), "", &body)
        })
        .collect()
}

async fn world(memory: Option<usize>) -> World {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    let model = counting();
    World::with(
        ctx,
        Arc::new(InMemory::new()),
        1,
        Arc::clone(&model) as _,
        model,
    )
    .await
}

async fn run(world: &World) -> (RefreshReport, String) {
    world.docs.set(&wide(ROWS, 0));
    let table = GenerateEmbeddings::new("docs", ["title", "body"], "id")
        .model("hash:4")
        .name("t");
    world.sg.generate_embeddings(table).await.unwrap();
    let mut rows = wide(ROWS, 0);
    let edited = wide(ROWS, 1);
    for i in (0..ROWS).step_by(3) {
        rows[i].clone_from(&edited[i]);
    }
    rows.truncate(ROWS - 100);
    world.docs.set(&rows);
    let report = world
        .sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    let identity = world.sg.versions("t").await.unwrap()[0]
        .identity
        .clone()
        .unwrap();
    (report, identity)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tiny_pool_spills_and_gives_the_same_version() {
    let (report, identity) = run(&world(None).await).await;
    assert_eq!((report.deleted, report.live_rows), (100, ROWS as u64 - 100));
    // The texts take 3 MB, the row group that the writer holds as much, and half of the pool is too
    // little for the build side of a hash join, so that both sides are sorted.
    let tiny = world(Some(8_000_000)).await;
    let (small, small_identity) = run(&tiny).await;
    assert_eq!((small, small_identity), (report, identity));
    assert_eq!(
        tiny.ctx.runtime_env().memory_pool.reserved(),
        0,
        "all memory is given back"
    );
    let again = tiny
        .row("SELECT outcome FROM refresh_embeddings('t')")
        .await;
    assert_eq!(again, ["no_change"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_that_do_not_fit_are_compared_as_they_are_read() {
    let mut answers = Vec::new();
    for memory in [None, Some(50_000_000)] {
        let world = world(memory).await;
        world.docs.set(&wide(30_000, 0));
        let table = GenerateEmbeddings::new("docs", ["title", "body"], "id")
            .model("hash:512")
            .name("t");
        world.sg.generate_embeddings(table).await.unwrap();
        answers.push(
            world
                .sql("SELECT _row_id, round(similarity, 5) FROM search('t', '17 4711', 5)")
                .await,
        );
        if memory.is_some() {
            assert_eq!(world.ctx.runtime_env().memory_pool.reserved(), 0);
        }
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_load_remembers_leaves_memory_to_the_load() {
    let world = world(Some(64_000_000)).await;
    let schema =
        r#"node D { k: I64 @key t: String v: Vector(384)? @embed("t", model="hash:384") }"#;
    world
        .row(&format!("SELECT graph FROM graph_create('m', '{schema}')"))
        .await;
    let loaded = world
        .row(
            "SELECT nodes_loaded FROM graph_load_table('m', 'D', (SELECT value AS k, \
             concat('text ', value) AS t FROM generate_series(1, 20000)), 'append', embed => 'fill')",
        )
        .await;
    assert_eq!(loaded, ["20000"]);
    let filled = world.row("SELECT count(v) FROM sg.m.\"D\"").await;
    assert_eq!(filled, ["20000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_edges_are_found_in_memory_and_by_plans_alike() {
    let mut answers = Vec::new();
    for memory in [None, Some(9_000_000)] {
        let world = world(memory).await;
        let sorts = "SET datafusion.execution.sort_spill_reservation_bytes = 65536";
        world.sql(sorts).await;
        let schema = "node D { k: I64 @key } edge E: D -> D";
        world
            .row(&format!("SELECT graph FROM graph_create('m', '{schema}')"))
            .await;
        let nodes = "(SELECT value AS k FROM generate_series(0, 499))";
        world
            .row(&format!(
                "SELECT nodes_loaded FROM graph_load_table('m', 'D', {nodes}, 'append')"
            ))
            .await;
        // Self-loops, parallel edges, and in the second load ends that are no nodes.
        let mut answer = Vec::new();
        for to in ["(value * 7) % 500", "(value * 7) % 503"] {
            let edges = format!(
                "(SELECT value % 500 AS \"from\", {to} AS \"to\" FROM generate_series(1, 30000))"
            );
            let load =
                format!("SELECT edges_loaded FROM graph_load_table('m', 'E', {edges}, 'append')");
            let loaded = world.try_sql(&load).await;
            answer.push(match loaded {
                Ok(_) => Vec::new(),
                // Which records come first is up to the partitions of the source.
                Err(error) => vec![vec![error.to_string().lines().take(1).collect()]],
            });
            let rows = "SELECT src, dst FROM sg.m.\"E\" ORDER BY src, dst";
            answer.push(world.sql(rows).await);
            // By the row ids of the ends.
            let pairs = "query q() { match { $a e $b } \
                         return { $a.k as a, $b.k as b, count() as n } order { $a.k, $b.k } }";
            let pairs = format!("SELECT * FROM graph_query('m', '{pairs}')");
            answer.push(world.sql(&pairs).await);
        }
        answers.push(answer);
    }
    assert_eq!(answers[0][1].len(), 30_000);
    assert_eq!(answers[0][2].len(), 500);
    let refused = &answers[0][3][0][0];
    assert!(refused.contains("178 violations"), "{refused}");
    assert_eq!(answers[0], answers[1]);
}
