//! Every store call of a change of schema x faults, and every await cancelled: the old schema with its
//! history, or the new one.

use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::sim::{Fault, FaultBase, FaultStore};
use stratagraph_udfs::{ApplySchema, Stratagraph};

use crate::graph_load::support::*;
use crate::sweep::{Yield, block_on, process};

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
];

/// A rename, a new type, a new property and a proof; then a drop that takes the history.
fn changes() -> [ApplySchema; 2] {
    let soft = SCHEMA
        .replace(
            "floor: I64?",
            "level: I64? @rename_from(\"floor\")  size: F64?",
        )
        .replace("@unique(title, floor)", "@unique(title)")
        + "node Pet { name: String @key }";
    let hard = SCHEMA.replace("    email: String? @unique\n", "");
    [
        ApplySchema::new("g", soft),
        ApplySchema {
            allow_data_loss: true,
            ..ApplySchema::new("g", hard)
        },
    ]
}

async fn open(store: Arc<dyn ObjectStore>, seed: u64) -> stratagraph::Result<Stratagraph> {
    process(store, seed, &[]).await
}

/// Version, schema, retained versions, and all rows.
type State = (u64, Vec<String>, usize, Vec<Vec<Vec<String>>>);

async fn state(store: Arc<dyn ObjectStore>) -> State {
    let ctx = datafusion::prelude::SessionContext::new();
    let options = stratagraph_udfs::Options::new("memory:///sweep")
        .with_object_store(store, object_store::path::Path::default(), true)
        .with_env(stratagraph::env::Env::fixed(90));
    let sg = stratagraph_udfs::install(&ctx, options).await.unwrap();
    assert_whole(&sg).await;
    let now = snapshot(&sg).await;
    let mut rows = Vec::new();
    for of in &now.schema.types {
        let sql = format!("SELECT * FROM sg.g.\"{}\" ORDER BY id", of.name);
        let batches = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        rows.push(crate::world::table(&batches));
    }
    let schema = now.schema.types.iter().flat_map(|of| {
        let properties = of
            .properties
            .iter()
            .map(|p| format!("{}.{} {}", of.name, p.name, p.id));
        std::iter::once(format!("{} {}", of.name, of.id)).chain(properties)
    });
    let schema = schema.collect();
    let store = sg.catalog().store();
    let history = now.current.history.walk(store, &mut |_| {}).await;
    let history = history.unwrap().len();
    (now.manifest.version, schema, history, rows)
}

struct Stage {
    base: InMemory,
    before: State,
    after: State,
    calls: u64,
}

async fn stage(change: &ApplySchema) -> Stage {
    let base = Arc::new(InMemory::new());
    let sg = open(Arc::clone(&base) as _, 1).await.unwrap();
    sg.graph_create("g", SCHEMA).await.unwrap();
    let first = lines(&[
        person("a", "\"age\": 1, \"email\": \"a@x\""),
        person("b", "\"email\": \"b@x\""),
        place("h", "Home", 1),
        edge("Knows", "k1", "a", "b"),
        edge("Lives", "l1", "a", "h"),
    ]);
    load(&sg, &first, Append).await.unwrap();
    let base = base.fork();
    let handle = FaultStore::new(Arc::new(base.fork()));
    let sg = open(handle.store(), 2).await.unwrap();
    sg.graph_apply_schema(change).await.unwrap();
    Stage {
        before: state(Arc::new(base.fork())).await,
        after: state(handle.base().store()).await,
        calls: handle.calls(),
        base,
    }
}

async fn settled(
    change: &ApplySchema,
    stage: &Stage,
    base: &Arc<FaultBase>,
    acked: bool,
    what: &str,
) {
    base.settle().await;
    let found = state(base.store()).await;
    let whole = found == stage.after || found == stage.before && !acked;
    assert!(whole, "{what}: {found:?}");
    // Nothing but what is reachable stays, and the same schema again ends where it should.
    let sg = open(base.store(), 4).await.unwrap();
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0, "{what}");
    let steps = sg.graph_apply_schema(change).await;
    let steps = steps.unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
    assert_eq!(steps.is_empty(), found == stage.after, "{what}");
    assert_eq!(
        state(base.store()).await,
        stage.after,
        "{what}: after the rerun"
    );
}

#[test]
fn every_call_of_a_change_meets_every_fault() {
    let soak = std::env::var_os("SOAK").is_some();
    let mut runs = 0;
    for (turn, change) in changes().into_iter().enumerate() {
        let stage = block_on(stage(&change));
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
                        Ok(sg) => sg.graph_apply_schema(&change).await.is_ok(),
                        Err(_) => false,
                    };
                    settled(&change, &stage, &base, acked, &what).await;
                });
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
}

#[test]
fn a_change_is_dropped_at_every_await() {
    let soak = std::env::var_os("SOAK").is_some();
    for (turn, change) in changes().into_iter().enumerate() {
        let stage = block_on(stage(&change));
        let (mut polls, mut finished) = (1, false);
        while !finished {
            finished = block_on(async {
                let base = FaultBase::new(Arc::new(stage.base.fork()));
                let handle = FaultStore::on(&base).with_gate(Arc::new(Yield));
                let sg = open(handle.store(), 3).await.unwrap();
                let mut done = false;
                {
                    let mut run = sg.graph_apply_schema(&change).boxed();
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
                settled(&change, &stage, &base, done, &what).await;
                done
            });
            polls += if soak { 1 } else { 5 };
            assert!(polls < 20_000, "{turn} never ends");
        }
    }
}
