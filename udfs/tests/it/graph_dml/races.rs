//! Writers on one branch: keys that many want, keys of their own, and a branch that moves below a statement.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::collect;
use object_store::memory::InMemory;
use stratagraph::env::Env;
use stratagraph_udfs::find_error;

use super::support::*;
use crate::world::World;

const WRITERS: u64 = 8;
const KEYS: usize = 20;

async fn writers(statement: fn(u64, usize) -> String) -> (Vec<Result<(), &'static str>>, World) {
    let store = Arc::new(InMemory::new());
    let first = world_over(Arc::clone(&store), 1, SCHEMA).await;
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        // Who loses waits a while, so the clock is a real one.
        let world = World::trusting_in(Arc::clone(&store), Env::system()).await;
        tasks.push(tokio::spawn(async move {
            let mut outcomes = Vec::new();
            for key in 0..KEYS {
                let outcome = world.try_sql(&statement(writer, key)).await;
                let code = |e| find_error(&e).map_or("none", |e| e.code());
                outcomes.push(outcome.map(drop).map_err(code));
            }
            outcomes
        }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.extend(task.await.unwrap());
    }
    assert_whole(&first.sg).await;
    (outcomes, first)
}

/// Versions of the branch, newest first: each made from the one before it.
async fn chain(world: &World) -> usize {
    let rows = world
        .sql("SELECT commit_id, parent_ids FROM commits('g') ORDER BY version DESC")
        .await;
    for pair in rows.windows(2) {
        assert_eq!(pair[0][1], pair[1][0]);
    }
    rows.len()
}

async fn count(world: &World) -> String {
    let sql = "SELECT count(*) || ' ' || count(DISTINCT name) FROM sg.g.\"Person\"";
    world.row(sql).await.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_inserts_of_a_key_one_wins() {
    let (outcomes, world) =
        writers(|w, k| format!("INSERT INTO sg.g.\"Person\" (name, age) VALUES ('k{k}', {w})"))
            .await;
    let won = outcomes.iter().filter(|o| o.is_ok()).count();
    assert_eq!(won, KEYS);
    let lost: BTreeSet<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(lost, BTreeSet::from(["KeyConflict"]));
    assert_eq!(count(&world).await, "20 20");
    assert_eq!(chain(&world).await, KEYS + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_replacements_of_a_key_are_made() {
    let (outcomes, world) =
        writers(|w, k| format!("REPLACE INTO sg.g.\"Person\" (name, age) VALUES ('k{k}', {w})"))
            .await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(count(&world).await, "20 20");
    assert_eq!(chain(&world).await, WRITERS as usize * KEYS + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_their_own_are_all_inserted() {
    let (outcomes, world) =
        writers(|w, k| format!("INSERT INTO sg.g.\"Person\" (name) VALUES ('k{w}-{k}')")).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(count(&world).await, "160 160");
    assert_eq!(chain(&world).await, WRITERS as usize * KEYS + 1);
}

/// What a statement does that was planned before another commit.
async fn outrun(statement: &str) -> (Result<u64, &'static str>, World) {
    let store = Arc::new(InMemory::new());
    let first = world_over(Arc::clone(&store), 1, SCHEMA).await;
    let two = lines(&[person("ann", "\"age\": 1"), person("bo", "\"age\": 2")]);
    load(&first.sg, &two, Append).await.unwrap();
    let other = process(&store, 2, 2).await;
    let plan = first.ctx.sql(statement).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    done(
        &other,
        "INSERT INTO sg.g.\"Person\" (name, age) VALUES ('cy', 3)",
    )
    .await;
    let outcome = collect(plan, first.ctx.task_ctx()).await;
    let count = |batches: Vec<_>| crate::world::table(&batches).concat().concat();
    let code = |e| find_error(&e).map_or("none", |e| e.code());
    let outcome = outcome.map(|b| count(b).parse().unwrap()).map_err(code);
    assert_whole(&first.sg).await;
    (outcome, first)
}

async fn all(world: &World) -> String {
    let rows = world
        .sql("SELECT name, age FROM sg.g.\"Person\" ORDER BY name")
        .await;
    let rows = rows.into_iter().map(|row| row.join("="));
    rows.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn what_a_statement_read_must_stay_as_it_was() {
    for statement in [
        "UPDATE sg.g.\"Person\" SET age = age + 1",
        "DELETE FROM sg.g.\"Person\" WHERE age = 1",
        "INSERT OVERWRITE sg.g.\"Person\" (name) SELECT name FROM sg.g.\"Person\"",
        "MERGE INTO sg.g.\"Person\" p USING (VALUES ('ann')) s(k) ON p.name = s.k \
         WHEN MATCHED THEN DELETE",
    ] {
        let (outcome, world) = outrun(statement).await;
        assert_eq!(outcome, Err("ReadSetChanged"), "{statement}");
        assert_eq!(all(&world).await, "ann=1 bo=2 cy=3", "{statement}");
    }
}

#[tokio::test]
async fn inserts_are_prepared_anew() {
    let values = "INSERT INTO sg.g.\"Person\" (name, age) VALUES ('dee', 4)";
    let (outcome, world) = outrun(values).await;
    assert_eq!(outcome, Ok(1));
    assert_eq!(all(&world).await, "ann=1 bo=2 cy=3 dee=4");
    // What they read from the store is read anew: the sum has the row that came meanwhile.
    let of_store = "INSERT INTO sg.g.\"Person\" (name, age) \
        SELECT 'sum', sum(age) FROM sg.g.\"Person\"";
    let (outcome, world) = outrun(of_store).await;
    assert_eq!(outcome, Ok(1));
    assert_eq!(all(&world).await, "ann=1 bo=2 cy=3 sum=6");
    let (outcome, world) = outrun("INSERT INTO sg.g.\"Person\" (name) VALUES ('cy')").await;
    assert_eq!(outcome, Err("KeyConflict"));
    assert_eq!(all(&world).await, "ann=1 bo=2 cy=3");
    let replace =
        "REPLACE INTO sg.g.\"Person\" (name, age) SELECT name, age * 10 FROM sg.g.\"Person\"";
    let (outcome, world) = outrun(replace).await;
    assert_eq!(outcome, Ok(3));
    assert_eq!(all(&world).await, "ann=10 bo=20 cy=30");
}
