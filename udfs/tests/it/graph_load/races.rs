//! Two processes load into one graph, and little memory.

use std::sync::Arc;

use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use stratagraph_udfs::{GraphLoad, LoadMode};

use super::support::*;
use crate::models::GateEmbedder;
use crate::world::{World, counting};

const GATED: &str = r#"
node Doc {
    name: String @key
    text: String?
    v: Vector(16)? @embed("text", model="counting")
}
"#;

fn doc(name: &str, text: &str) -> String {
    format!("{{\"type\":\"Doc\",\"data\":{{\"name\":\"{name}\",\"text\":\"{text}\"}}}}")
}

/// A load of `text` that waits in its model until another process has loaded `between`.
async fn race(text: &str, mode: LoadMode, between: &str) -> (stratagraph::Result<String>, World) {
    let store = Arc::new(InMemory::new());
    let fast = world_over(Arc::clone(&store), 1, GATED).await;
    load(&fast.sg, &doc("old", "old"), Append).await.unwrap();
    let counted = counting();
    let gate = GateEmbedder::new(Arc::clone(&counted) as _);
    let slow = World::with(
        SessionContext::new(),
        store,
        2,
        Arc::clone(&gate) as _,
        counted,
    )
    .await;
    let sg = slow.sg.clone();
    let call = GraphLoad {
        fill: true,
        ..GraphLoad::of_text("g", text, mode)
    };
    let running = tokio::spawn(async move { sg.graph_load(call).await });
    gate.entered().await;
    load(&fast.sg, between, Merge).await.unwrap();
    gate.release(1_000);
    let outcome = running.await.unwrap().map(|report| report.commit_id);
    assert_whole(&fast.sg).await;
    (outcome, slow)
}

#[tokio::test]
async fn an_append_prepares_anew_and_computes_nothing_twice() {
    let (outcome, world) = race(&doc("a", "one"), Append, &doc("b", "two")).await;
    outcome.unwrap();
    assert_eq!(world.model.rows(), 1);
    assert_eq!(snapshot(&world.sg).await.manifest.version, 3);
    let ids = world.sql("SELECT id FROM sg.g.\"Doc\" ORDER BY id").await;
    assert_eq!(ids.concat(), ["a", "b", "old"]);
}

#[tokio::test]
async fn an_append_meets_the_key_of_the_winner() {
    let (outcome, _) = race(&doc("a", "one"), Append, &doc("a", "two")).await;
    assert_eq!(outcome.unwrap_err().code(), "KeyConflict");
}

#[tokio::test]
async fn a_merge_prepares_anew() {
    let (outcome, world) = race(&doc("old", "one"), Merge, &doc("old", "two")).await;
    outcome.unwrap();
    let texts = world.sql("SELECT text FROM sg.g.\"Doc\"").await;
    assert_eq!(texts.concat(), ["one"]);
}

#[tokio::test]
async fn an_overwrite_is_not_repeated_behind_the_back_of_its_caller() {
    let (outcome, world) = race(&doc("a", "one"), Overwrite, &doc("b", "two")).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), "ReadSetChanged");
    assert!(error.is_retryable());
    assert_eq!(snapshot(&world.sg).await.manifest.version, 2);
}

const NODES: usize = 6_000;
const EDGES: usize = 12_000;

fn wide(salt: usize) -> String {
    let mut text: Vec<String> = (0..NODES)
        .map(|at| {
            person(
                &format!("person {:05}", (at * 1009) % NODES),
                &format!(
                    "\"age\": {}, \"email\": \"{}-{salt}\"",
                    (at + salt) % 100,
                    "mail".repeat(20 + at % 3) + &at.to_string()
                ),
            )
        })
        .collect();
    text.extend((0..EDGES).map(|at| {
        let end = |n: usize| format!("person {:05}", n % NODES);
        edge(
            "Knows",
            &format!("edge {:06}", (at * 7919) % EDGES),
            &end(at),
            &end(at * 13 + salt),
        )
    }));
    lines(&text)
}

async fn bounded(memory: Option<usize>) -> Vec<Vec<String>> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    let model = counting();
    let world = World::with(
        ctx,
        Arc::new(InMemory::new()),
        1,
        Arc::clone(&model) as _,
        model,
    )
    .await;
    world.sg.graph_create("g", SCHEMA).await.unwrap();
    load(&world.sg, &wide(0), Append).await.unwrap();
    load(&world.sg, &wide(1), Merge).await.unwrap();
    assert_eq!(
        world.ctx.runtime_env().memory_pool.reserved(),
        0,
        "all memory is given back"
    );
    assert_whole(&world.sg).await;
    world
        .sql(
            "SELECT count(*), count(DISTINCT p.id), sum(p.age), min(k.dst), max(p.email) \
             FROM sg.g.\"Person\" p LEFT JOIN sg.g.\"Knows\" k ON k.src = p.id",
        )
        .await
}

#[tokio::test]
async fn little_memory_changes_the_way_and_not_the_result() {
    let plenty = bounded(None).await;
    assert_eq!(plenty[0][1], NODES.to_string());
    assert_eq!(bounded(Some(12_000_000)).await, plenty);
}
