//! A graph whose tables are changed by DML.

use std::sync::Arc;

use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use stratagraph_udfs::{BranchFrom, Stratagraph};

pub use crate::graph_load::support::*;
use crate::world::{World, counting};

/// A world with the people of [`crate::graph_mutate::support::people`] on `main` and on `b`.
pub async fn people() -> World {
    let world = world(SCHEMA).await;
    let all = lines(&[
        person("ann", "\"age\": 30, \"email\": \"ann@x\""),
        person("bo", "\"age\": 40"),
        person("cy", ""),
        place("h", "Home", 1),
        edge("Knows", "k1", "ann", "bo"),
        edge("Knows", "k2", "bo", "cy"),
        edge("Knows", "k3", "cy", "ann"),
        edge("Lives", "l1", "ann", "h"),
        edge("Lives", "l2", "bo", "h"),
    ]);
    load(&world.sg, &all, Append).await.unwrap();
    let made = world.sg.graph_branch_create("g", "b", BranchFrom::Main);
    made.await.unwrap();
    world
}

/// Another process over a store.
pub async fn process(store: &Arc<InMemory>, seed: u64, partitions: usize) -> World {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let ctx = SessionContext::new_with_config(config);
    let model = counting();
    World::with(ctx, Arc::clone(store), seed, Arc::clone(&model) as _, model).await
}

/// The count that a statement answers; what it wrote is sound.
pub async fn done(world: &World, sql: &str) -> u64 {
    let count = world.row(sql).await.concat().parse().unwrap();
    assert_whole(&world.sg).await;
    count
}

pub async fn version(sg: &Stratagraph) -> u64 {
    snapshot(sg).await.manifest.version
}

/// The code of a statement that fails, which changes nothing.
pub async fn fails(world: &World, sql: &str) -> &'static str {
    let before = version(&world.sg).await;
    let code = world.code(sql).await;
    assert_eq!(version(&world.sg).await, before, "{sql}");
    code
}
