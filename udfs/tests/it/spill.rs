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
