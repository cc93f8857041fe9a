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
use stratagraph::ident::Name;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Gate, Op};
use stratagraph_udfs::{
    Cascade, CompactOptions, CreatePin, GenerateEmbeddings, ImportEmbeddings, NeighborGraph,
    Options, Stratagraph, install,
};

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
];

/// Rows of the source: key and text.
pub type Rows = &'static [(&'static str, &'static str)];

/// A process with the plugin over `store`, whose source holds `rows`.
pub async fn process(
    store: Arc<dyn ObjectStore>,
    seed: u64,
    rows: Rows,
) -> stratagraph::Result<Stratagraph> {
    Ok(session(store, seed, rows).await?.1)
}

/// The same with its session.
pub async fn session(
    store: Arc<dyn ObjectStore>,
    seed: u64,
    rows: Rows,
) -> stratagraph::Result<(SessionContext, Stratagraph)> {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let ids = column(rows.iter().map(|r| r.0).collect());
    let texts = column(rows.iter().map(|r| r.1).collect());
    let batch = RecordBatch::try_from_iter([("id", ids), ("title", texts)]).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    ctx.register_table("docs", Arc::new(table)).unwrap();
    ctx.sql(
        "CREATE TABLE vectors AS SELECT * FROM (VALUES (1, [1.0, 0.0]), (2, [0.0, 1.0])) v(id, v)",
    )
    .await
    .unwrap()
    .collect()
    .await
    .unwrap();
    let options = Options::new("memory:///sweep")
        .with_object_store(store, Path::default(), true)
        .with_env(Env::fixed(seed));
    let sg = install(&ctx, options).await?;
    Ok((ctx, sg))
}

const BEFORE: Rows = &[("a", "one"), ("b", "two"), ("c", ""), ("d", "four")];
const AFTER: Rows = &[("a", "one"), ("b", "changed"), ("c", "text"), ("e", "")];

type Run = for<'a> fn(&'a Stratagraph) -> BoxFuture<'a, stratagraph::Result<()>>;

struct Verb {
    name: &'static str,
    run: Run,
    /// What exists before.
    given: Given,
    /// What a second run does that found the first one done.
    again: Again,
}

/// What exists before a verb runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Given {
    Nothing,
    /// The table `t` at version 0.
    Table,
    /// The table `t` at version 1, after a refresh.
    Refreshed,
    /// The table `t` at version 2, after a refresh and a compaction, version 1 pinned as `p`, and a
    /// table `u`.
    History,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Again {
    /// Nothing, or the same.
    Same,
    /// It is refused with this code.
    Refused(&'static str),
    /// Another version or table.
    More,
}

/// Makes the table `t`.
pub async fn generate(sg: &Stratagraph) -> stratagraph::Result<()> {
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("hash:8")
        .name("t");
    sg.generate_embeddings(table).await.map(drop)
}

fn verbs() -> Vec<Verb> {
    use Again::{More, Refused, Same};
    use Given::{History, Nothing, Refreshed, Table};
    let verb = |name, given, again, run| Verb {
        name,
        run,
        given,
        again,
    };
    vec![
        verb("generate", Nothing, Refused("AlreadyExists"), |sg| {
            generate(sg).boxed()
        }),
        verb("import", Nothing, Refused("AlreadyExists"), |sg| {
            let import = ImportEmbeddings {
                name: "i".to_owned(),
                source: "vectors".to_owned(),
                row_id: "id".to_owned(),
                vector: "v".to_owned(),
                model: None,
            };
            async { sg.import_embeddings(import).await.map(drop) }.boxed()
        }),
        verb("refresh", Table, Same, |sg| {
            async {
                sg.refresh_embeddings("t", Default::default())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        verb("plan", Table, Same, |sg| {
            async { sg.refresh_plan("t", Default::default()).await.map(drop) }.boxed()
        }),
        verb("verify", Table, Same, |sg| {
            async { sg.verify_materialization("t").await.map(drop) }.boxed()
        }),
        verb("staleness", Table, Same, |sg| {
            async { sg.staleness("t").await.map(drop) }.boxed()
        }),
        verb("drop", Table, Refused("NotFound"), |sg| {
            async { sg.drop_embeddings("t").await.map(drop) }.boxed()
        }),
        verb("rename", History, Refused("NotFound"), |sg| {
            async { sg.rename_embeddings("t", "r").await.map(drop) }.boxed()
        }),
        verb("compact", History, More, |sg| {
            async {
                sg.compact_embeddings("t", Default::default())
                    .await
                    .map(drop)
            }
            .boxed()
        }),
        verb("tiered", Refreshed, Same, |sg| {
            let options = CompactOptions::tiered(1 << 20, 0.1);
            async { sg.compact_embeddings("t", options).await.map(drop) }.boxed()
        }),
        verb("restore", History, More, |sg| {
            async { sg.restore_version("t", 0).await.map(drop) }.boxed()
        }),
        verb("expire", History, Same, |sg| {
            async { sg.expire_versions("t", 100, true).await.map(drop) }.boxed()
        }),
        verb("create_pin", History, Refused("AlreadyExists"), |sg| {
            let pin = CreatePin {
                table: "t@0".to_owned(),
                name: Some(Name::parse("q").unwrap()),
                ttl_seconds: None,
            };
            async { sg.create_pin(pin).await.map(drop) }.boxed()
        }),
        verb("drop_pin", History, Refused("NotFound"), |sg| {
            async { sg.drop_pin("p").await.map(drop) }.boxed()
        }),
        verb("garbage", History, Same, |sg| {
            async { sg.collect_garbage(false).await.map(drop) }.boxed()
        }),
        verb("neighbors", History, Refused("AlreadyExists"), |sg| {
            let graph = NeighborGraph {
                table: "t".to_owned(),
                k: 2,
                min_similarity: None,
                name: Some("n".to_owned()),
            };
            async { sg.neighbor_graph(graph).await.map(drop) }.boxed()
        }),
        verb("recompute", History, Refused("AlreadyExists"), |sg| {
            async {
                sg.recompute("t", Cascade::ReportOnly, Some("r"))
                    .await
                    .map(drop)
            }
            .boxed()
        }),
    ]
}

/// Makes what a verb finds.
async fn prepare(given: Given, store: Arc<dyn ObjectStore>) -> stratagraph::Result<()> {
    if given == Given::Nothing {
        return Ok(());
    }
    generate(&process(Arc::clone(&store), 1, BEFORE).await?).await?;
    if given == Given::Refreshed {
        let sg = process(store, 5, AFTER).await?;
        sg.refresh_embeddings("t", Default::default()).await?;
    } else if given == Given::History {
        let sg = process(store, 5, AFTER).await?;
        let other = GenerateEmbeddings::new("docs", ["title"], "id");
        sg.generate_embeddings(other.model("hash:8").name("u"))
            .await?;
        sg.refresh_embeddings("t", Default::default()).await?;
        sg.create_pin(CreatePin {
            table: "t".to_owned(),
            name: Some(Name::parse("p")?),
            ttl_seconds: None,
        })
        .await?;
        sg.compact_embeddings("t", Default::default()).await?;
    }
    Ok(())
}

/// What a store holds; every artifact of its tables is whole.
async fn state(store: Arc<dyn ObjectStore>) -> State {
    let sg = process(store, 90, BEFORE).await.unwrap();
    let mut tables = Vec::new();
    for table in sg.embedding_tables().await.unwrap() {
        let checks = sg.verify_materialization(&table.table).await.unwrap();
        assert!(checks.iter().all(|c| c.verdict == "match"), "{checks:?}");
        let versions = sg.versions(&table.table).await.unwrap();
        for version in &versions {
            // A retained version can be read.
            let name = format!("{}@{}", table.table, version.version);
            let rows = sg.read_vectors(&name).await;
            let rows = rows.map(|b| b.iter().map(RecordBatch::num_rows).sum::<usize>() as u64);
            if version.kind != "neighbors" {
                assert_eq!(rows.unwrap(), version.live_rows, "{name}");
            }
        }
        let versions = versions.iter().map(|v| v.version).collect();
        tables.push((table.table, versions, table.live_rows));
    }
    let pins = sg
        .pins()
        .await
        .unwrap()
        .into_iter()
        .map(|p| p.pin)
        .collect();
    (tables, pins)
}

/// Tables with their versions and live rows, and pins.
type State = (Vec<(String, Vec<u64>, Option<u64>)>, Vec<String>);

struct Stage {
    base: InMemory,
    before: State,
    after: State,
    calls: u64,
}

async fn stage(verb: &Verb) -> Stage {
    let base = Arc::new(InMemory::new());
    prepare(verb.given, Arc::clone(&base) as _).await.unwrap();
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
    match ((verb.run)(&again).await, verb.again) {
        (Err(e), Again::Refused(code)) if code == e.code() && found == stage.after => {}
        (other, _) => other.unwrap_or_else(|e| panic!("{what}: rerun: {e}")),
    }
    if found == stage.after && verb.again == Again::More {
        state(base.store()).await;
        return;
    }
    assert_eq!(
        state(base.store()).await,
        stage.after,
        "{what}: after the rerun"
    );
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn every_call_of_every_verb_meets_every_fault() {
    let mut runs = 0;
    let soak = std::env::var_os("SOAK").is_some();
    for verb in verbs() {
        let stage = block_on(stage(&verb));
        for at in 0..stage.calls {
            // Every second pair; all of them under `SOAK=1`, and of the verbs that readers wait for.
            let all = soak || verb.given != Given::History;
            let (first, step) = if all { (0, 1) } else { (at as usize % 2, 2) };
            let some = (first..FAULTS.len()).step_by(step);
            for fault in some.map(|i| FAULTS[i]) {
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
pub struct Yield;

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
