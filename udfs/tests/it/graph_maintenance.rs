//! Optimising, expiring and pinning a graph beside its writers.

mod sweep;

use std::sync::{Arc, Mutex};

use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use stratagraph::sim::{FaultBase, FaultStore, Gate, Op};
use stratagraph_udfs::{CreatePin, ExpireBefore};

use crate::graph_mutate::support::*;
use crate::sweep::process;
use crate::world::{World, counting};

fn insert(name: &str, age: usize) -> String {
    format!("insert Person {{ name: \"{name}\", age: {age} }}")
}

/// Every write of every writer succeeds while the branch is optimised all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_never_fail_because_of_an_optimisation() {
    let world = world(SCHEMA).await;
    let sg = world.sg.clone();
    for n in 0..30 {
        done(&sg, call(&insert(&format!("old{n:02}"), n))).await;
    }
    let optimizer = tokio::spawn({
        let sg = sg.clone();
        async move {
            let mut commits = 0;
            for _ in 0..12 {
                let head = snapshot(&sg).await.commit_id().to_owned();
                let rows = sg.graph_optimize("g").await.unwrap();
                commits += usize::from(rows[0].commit_id != head);
                tokio::task::yield_now().await;
            }
            commits
        }
    });
    for n in 0..30 {
        // An update, whose row may move at any moment, is not prepared anew by anybody.
        let body = format!(
            r#"update Person set {{ age: {} }} where name = "old{n:02}""#,
            100 + n
        );
        done(&sg, call(&body)).await;
    }
    assert!(optimizer.await.unwrap() > 0);
    assert_whole(&sg).await;
    let ages = world
        .sql("SELECT age FROM sg.g.\"Person\" ORDER BY age")
        .await;
    let expected: Vec<String> = (100..130).map(|n| n.to_string()).collect();
    assert_eq!(ages.concat(), expected);
}

/// An optimisation merges in the memory that the host gives, and says so where it is too little.
#[tokio::test]
async fn little_memory_is_enough_or_an_error() {
    let people = |from: usize, rows: usize| {
        let text = "some words that are long enough to take room ".repeat(4);
        let person = |n| person(&format!("p{n:06}"), &format!("\"email\": \"{n} {text}\""));
        lines(&(from..from + rows).map(person).collect::<Vec<_>>())
    };
    let store = Arc::new(InMemory::new());
    let wide = world_over(Arc::clone(&store), 1, SCHEMA).await;
    // Each has too few rows to be written together with the one before.
    for (from, rows) in [(0, 30_000), (30_000, 10_000), (40_000, 3_000)] {
        load(&wide.sg, &people(from, rows), Append).await.unwrap();
    }
    let limited = async |bytes| {
        let pool = Arc::new(FairSpillPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
        let runtime = runtime.build_arc().unwrap();
        let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        let model = counting();
        World::with(ctx, Arc::clone(&store), 2, Arc::clone(&model) as _, model).await
    };
    let before = snapshot(&wide.sg).await.commit_id().to_owned();
    let refused = limited(16 * 1024).await.sg.graph_optimize("g").await;
    // The error of the host's own pool.
    assert_eq!(refused.unwrap_err().code(), "Source");
    assert_eq!(snapshot(&wide.sg).await.commit_id(), before);
    let rows = limited(48 * 1024 * 1024).await.sg.graph_optimize("g").await;
    let rows = rows.unwrap();
    assert_eq!((rows[0].fragments_before, rows[0].fragments_after), (3, 1));
    let count = wide.sql("SELECT count(*) FROM sg.g.\"Person\"").await;
    assert_eq!(count.concat(), ["43000"]);
}

/// A step that is done once, before the first slot is created.
struct Before(Mutex<Option<BoxFuture<'static, ()>>>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Before")
    }
}

impl Gate for Before {
    fn pass(&self, op: Op, key: &str) -> BoxFuture<'static, ()> {
        let is_slot = op == Op::PutCreate && key.starts_with("catalog");
        let step = is_slot.then(|| self.0.lock().unwrap().take()).flatten();
        async move {
            if let Some(step) = step {
                step.await;
            }
        }
        .boxed()
    }
}

/// A pin whose version gets another manifest between its look and its commit looks again.
#[tokio::test]
async fn a_pin_that_meets_an_index_looks_again() {
    let base = FaultBase::new(Arc::new(InMemory::new()));
    let fast = process(base.store(), 1, &[]).await.unwrap();
    let schema = "node Doc { name: String @key  body: String? @index }";
    fast.graph_create("g", schema).await.unwrap();
    let doc = r#"{"type": "Doc", "data": {"name": "a", "body": "some words"}}"#;
    load(&fast, doc, Append).await.unwrap();
    let head = snapshot(&fast).await.commit_id().to_owned();
    let other = fast.clone();
    let step = async move {
        let index = stratagraph_udfs::BuildIndex::new("g.Doc", "body");
        other.build_index(index).await.unwrap();
    };
    let gate = Before(Mutex::new(Some(step.boxed())));
    let handle = FaultStore::on(&base).with_gate(Arc::new(gate));
    let slow = process(handle.store(), 2, &[]).await.unwrap();
    let pin = CreatePin {
        table: "g@main".to_owned(),
        name: None,
        ttl_seconds: None,
    };
    let made = slow.create_pin(pin).await.unwrap();
    assert_eq!((made.table.as_str(), made.version), ("g", 1));
    // The index was attached meanwhile, to the very version that is pinned.
    assert_eq!(fast.graph_indexes("g").await.unwrap()[0].covered_rows, 1);
    assert_eq!(snapshot(&fast).await.commit_id(), head);
    done(&fast, call(r#"insert Doc { name: "b" }"#)).await;
    let all = ExpireBefore::Catalog(u64::MAX);
    assert_eq!(fast.graph_expire("g", &all).await.unwrap().expired, 1);
}

/// What a conditional write expects is a content: rows that moved are no change of it.
#[tokio::test]
async fn a_condition_holds_over_an_optimisation() {
    let world = people().await;
    let sg = &world.sg;
    done(sg, call(&insert("dee", 1))).await;
    let mut expecting = call(&insert("eve", 2));
    expecting.if_commit = Some(snapshot(sg).await.commit_id().to_owned());
    let rows = sg.graph_optimize("g").await.unwrap();
    assert_ne!(Some(&rows[0].commit_id), expecting.if_commit.as_ref());
    done(sg, expecting.clone()).await;
    assert_eq!(fails(sg, expecting).await, "PreconditionFailed");
}
