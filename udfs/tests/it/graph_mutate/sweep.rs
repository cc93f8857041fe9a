//! Every store call of a mutation x faults, and every await cancelled: the old state or the new one.

use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::sim::{Fault, FaultBase, FaultStore};
use stratagraph_udfs::{GraphMutate, Stratagraph};

use super::support::*;
use crate::sweep::{Yield, block_on, process};

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
];

/// Inserts, and an update with a delete and its cascade.
const BODIES: [&str; 2] = [
    r#"insert Person { name: "c", age: 3 } insert Person { name: "a", age: 9 }
        insert Knows { from: "c", to: "a" }"#,
    r#"update Person set { age: 7 } where name = "b" insert Knows { from: "b", to: "b" }
        delete Person where name = "a""#,
];

fn second(body: &str) -> GraphMutate {
    GraphMutate {
        mixed: true,
        ..call(body)
    }
}

async fn open(store: Arc<dyn ObjectStore>, seed: u64) -> stratagraph::Result<Stratagraph> {
    process(store, seed, &[]).await
}

fn first() -> String {
    lines(&[
        person("a", "\"age\": 1"),
        person("b", "\"email\": \"b@x\""),
        place("h", "Home", 1),
        edge("Knows", "k1", "a", "b"),
        edge("Lives", "l1", "a", "h"),
    ])
}

/// Version, next row ids and all rows.
async fn state(store: Arc<dyn ObjectStore>) -> (u64, Vec<u64>, Vec<Vec<Vec<String>>>) {
    let ctx = datafusion::prelude::SessionContext::new();
    let options = stratagraph_udfs::Options::new("memory:///sweep")
        .with_object_store(store, object_store::path::Path::default(), true)
        .with_env(stratagraph::env::Env::fixed(90));
    let sg = stratagraph_udfs::install(&ctx, options).await.unwrap();
    assert_whole(&sg).await;
    let mut rows = Vec::new();
    // Ids of new edges are made anew by every run.
    for (of, columns) in [
        ("Person", "*"),
        ("Place", "*"),
        ("Knows", "src, dst, since"),
        ("Lives", "src, dst, note"),
    ] {
        let sql = format!("SELECT {columns} FROM sg.g.\"{of}\" ORDER BY 1, 2");
        let batches = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        rows.push(crate::world::table(&batches));
    }
    let now = snapshot(&sg).await;
    (
        now.manifest.version,
        now.dataset.next_rids.values().copied().collect(),
        rows,
    )
}

type State = (u64, Vec<u64>, Vec<Vec<Vec<String>>>);

struct Stage {
    base: InMemory,
    before: State,
    after: State,
    calls: u64,
}

async fn stage(body: &str) -> Stage {
    let base = Arc::new(InMemory::new());
    let sg = open(Arc::clone(&base) as _, 1).await.unwrap();
    sg.graph_create("g", SCHEMA).await.unwrap();
    load(&sg, &first(), Append).await.unwrap();
    let base = base.fork();
    let handle = FaultStore::new(Arc::new(base.fork()));
    let sg = open(handle.store(), 2).await.unwrap();
    sg.graph_mutate(second(body)).await.unwrap();
    Stage {
        before: state(Arc::new(base.fork())).await,
        after: state(handle.base().store()).await,
        calls: handle.calls(),
        base,
    }
}

async fn settled(body: &str, stage: &Stage, base: &Arc<FaultBase>, acked: bool, what: &str) {
    base.settle().await;
    let found = state(base.store()).await;
    let whole = found == stage.after || found == stage.before && !acked;
    assert!(whole, "{what}: {found:?}");
    // Nothing but what is reachable stays.
    let sg = open(base.store(), 4).await.unwrap();
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0, "{what}");
    if found == stage.before {
        let rerun = sg.graph_mutate(second(body)).await;
        rerun.unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
        let now = state(base.store()).await;
        assert_eq!(
            (&now.1, &now.2),
            (&stage.after.1, &stage.after.2),
            "{what}: after the rerun"
        );
    } else {
        assert_eq!(
            state(base.store()).await,
            stage.after,
            "{what}: after the collection"
        );
    }
}

#[test]
fn every_call_of_a_mutation_meets_every_fault() {
    let soak = std::env::var_os("SOAK").is_some();
    let mut runs = 0;
    for (turn, body) in BODIES.into_iter().enumerate() {
        let stage = block_on(stage(body));
        for at in 0..stage.calls {
            // Every third pair; all of them under `SOAK=1`.
            let step = if soak { 1 } else { 3 };
            let from = (at as usize + turn) % step;
            for fault in FAULTS.into_iter().skip(from).step_by(step) {
                block_on(async {
                    let base = FaultBase::new(Arc::new(stage.base.fork()));
                    let handle = FaultStore::on(&base);
                    handle.plan(at, fault);
                    let what = format!("{turn} with {fault:?} at call {at}");
                    let acked = match open(handle.store(), 3).await {
                        Ok(sg) => sg.graph_mutate(second(body)).await.is_ok(),
                        Err(_) => false,
                    };
                    settled(body, &stage, &base, acked, &what).await;
                });
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
}

#[test]
fn a_mutation_is_dropped_at_every_await() {
    let soak = std::env::var_os("SOAK").is_some();
    for (turn, body) in BODIES.into_iter().enumerate() {
        let stage = block_on(stage(body));
        let (mut polls, mut finished) = (1, false);
        while !finished {
            finished = block_on(async {
                let base = FaultBase::new(Arc::new(stage.base.fork()));
                let handle = FaultStore::on(&base).with_gate(Arc::new(Yield));
                let sg = open(handle.store(), 3).await.unwrap();
                let mut done = false;
                {
                    let mut run = sg.graph_mutate(second(body)).boxed();
                    for _ in 0..polls {
                        let once = std::future::poll_fn(|cx| Poll::Ready(run.poll_unpin(cx)));
                        if let Poll::Ready(outcome) = once.await {
                            outcome.unwrap();
                            done = true;
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                // A commit that had put its slot goes on in a task of its own.
                for _ in 0..2_000 {
                    tokio::task::yield_now().await;
                }
                let what = format!("{turn} dropped after {polls} polls");
                settled(body, &stage, &base, done, &what).await;
                done
            });
            polls += if soak { 1 } else { 5 };
            assert!(polls < 20_000, "{turn} never ends");
        }
    }
}
