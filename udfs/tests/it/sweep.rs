//! Every store call of every verb x faults, and every await cancelled, through the verbs themselves:
//! one partition, one thread, a source in memory.

use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::env::Env;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Gate, Op};
use stratagraph_udfs::{GenerateEmbeddings, Options, Stratagraph, install};

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
];

/// A process with the plugin over `store`, whose source holds `rows`.
async fn process(
    store: Arc<dyn ObjectStore>,
    seed: u64,
    rows: &[(&str, &str)],
) -> stratagraph::Result<Stratagraph> {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let ids = column(rows.iter().map(|r| r.0).collect());
    let texts = column(rows.iter().map(|r| r.1).collect());
    let batch = RecordBatch::try_from_iter([("id", ids), ("title", texts)]).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    ctx.register_table("docs", Arc::new(table)).unwrap();
    let options = Options::new("memory:///sweep")
        .with_object_store(store, Path::default(), true)
        .with_env(Env::fixed(seed));
    install(&ctx, options).await
}

const BEFORE: &[(&str, &str)] = &[("a", "one"), ("b", "two"), ("c", ""), ("d", "four")];
const AFTER: &[(&str, &str)] = &[("a", "one"), ("b", "changed"), ("c", "text"), ("e", "")];

type Run = for<'a> fn(&'a Stratagraph) -> BoxFuture<'a, stratagraph::Result<()>>;

struct Verb {
    name: &'static str,
    run: Run,
    /// Whether the table exists before.
    made: bool,
    /// Codes of a second run that found the first one done.
    done: &'static [&'static str],
}

async fn generate(sg: &Stratagraph) -> stratagraph::Result<()> {
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("hash:8")
        .name("t");
    sg.generate_embeddings(table).await.map(drop)
}

fn verbs() -> Vec<Verb> {
    let verb = |name, run, made, done| Verb {
        name,
        run,
        made,
        done,
    };
    vec![
        verb(
            "generate",
            |sg| generate(sg).boxed(),
            false,
            &["AlreadyExists"],
        ),
        verb(
            "refresh",
            |sg| {
                async {
                    sg.refresh_embeddings("t", Default::default())
                        .await
                        .map(drop)
                }
                .boxed()
            },
            true,
            &[],
        ),
        verb(
            "plan",
            |sg| async { sg.refresh_plan("t", Default::default()).await.map(drop) }.boxed(),
            true,
            &[],
        ),
        verb(
            "verify",
            |sg| async { sg.verify_materialization("t").await.map(drop) }.boxed(),
            true,
            &[],
        ),
        verb(
            "drop",
            |sg| async { sg.drop_embeddings("t").await.map(drop) }.boxed(),
            true,
            &["NotFound"],
        ),
    ]
}

/// What a store holds; every artifact of the table is whole.
async fn state(store: Arc<dyn ObjectStore>) -> State {
    let sg = process(store, 90, BEFORE).await.unwrap();
    let tables = sg.embedding_tables().await.unwrap();
    for check in tables.iter().map(|t| sg.verify_materialization(&t.table)) {
        assert!(check.await.unwrap().iter().all(|c| c.verdict == "match"));
    }
    tables.first().map(|t| (t.version, t.live_rows))
}

/// Version and live rows of the table, if there is one.
type State = Option<(u64, Option<u64>)>;

struct Stage {
    base: InMemory,
    before: State,
    after: State,
    calls: u64,
}

async fn stage(verb: &Verb) -> Stage {
    let base = Arc::new(InMemory::new());
    if verb.made {
        generate(&process(Arc::clone(&base) as _, 1, BEFORE).await.unwrap())
            .await
            .unwrap();
    }
    let base = base.fork();
    let handle = FaultStore::new(Arc::new(base.fork()));
    let sg = process(handle.store(), 2, AFTER).await.unwrap();
    (verb.run)(&sg).await.unwrap();
    Stage {
        before: state(Arc::new(base.fork())).await,
        after: state(handle.base().store()).await,
        calls: handle.calls(),
        base,
    }
}

async fn settled(verb: &Verb, stage: &Stage, base: &Arc<FaultBase>, acked: bool, what: &str) {
    base.settle().await;
    let found = state(base.store()).await;
    let whole = found == stage.after || found == stage.before && !acked;
    assert!(whole, "{what}: {found:?}");
    let again = process(base.store(), 4, AFTER).await.unwrap();
    match (verb.run)(&again).await {
        Err(e) if verb.done.contains(&e.code()) => {}
        other => other.unwrap_or_else(|e| panic!("{what}: rerun: {e}")),
    }
    assert_eq!(
        state(base.store()).await,
        stage.after,
        "{what}: after the rerun"
    );
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn every_call_of_every_verb_meets_every_fault() {
    let mut runs = 0;
    for verb in verbs() {
        let stage = block_on(stage(&verb));
        for at in 0..stage.calls {
            for fault in FAULTS {
                block_on(async {
                    let base = FaultBase::new(Arc::new(stage.base.fork()));
                    let handle = FaultStore::on(&base);
                    handle.plan(at, fault);
                    let what = format!("{} with {fault:?} at call {at}", verb.name);
                    // A store that cannot be listed does not open; nothing has happened then.
                    let acked = match process(handle.store(), 3, AFTER).await {
                        Ok(sg) => (verb.run)(&sg).await.is_ok(),
                        Err(_) => false,
                    };
                    settled(&verb, &stage, &base, acked, &what).await;
                });
                runs += 1;
            }
        }
        println!("{}: {} calls", verb.name, stage.calls);
    }
    println!("{runs} runs");
}

/// Makes every store call an await that can be cancelled.
#[derive(Debug)]
struct Yield;

impl Gate for Yield {
    fn pass(&self, _op: Op, _key: &str) -> BoxFuture<'static, ()> {
        tokio::task::yield_now().boxed()
    }
}

#[test]
fn every_verb_is_dropped_at_every_await() {
    let mut runs = 0;
    for verb in verbs() {
        let stage = block_on(stage(&verb));
        let (mut polls, mut finished) = (1, false);
        while !finished {
            finished = block_on(async {
                let base = FaultBase::new(Arc::new(stage.base.fork()));
                let handle = FaultStore::on(&base).with_gate(Arc::new(Yield));
                let sg = process(handle.store(), 3, AFTER).await.unwrap();
                let mut done = false;
                {
                    let mut run = (verb.run)(&sg);
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
                let what = format!("{} dropped after {polls} polls", verb.name);
                settled(&verb, &stage, &base, done, &what).await;
                done
            });
            polls += 1;
            runs += 1;
            assert!(polls < 5_000, "{} never ends", verb.name);
        }
    }
    println!("{runs} cancellations");
}
