//! Every store call of a write of a graph x faults, and every await cancelled: the old state or the new
//! one, nothing left behind, and a rerun that does the rest.

use std::sync::Arc;
use std::task::Poll;

use datafusion::prelude::SessionContext;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::catalog::graph::{At, graph};
use stratagraph::env::Env;
use stratagraph::ident::{BranchName, Name};
use stratagraph::sim::{Fault, FaultBase, FaultStore};
use stratagraph_udfs::{Options, Stratagraph, install};

use crate::graph_load::support::*;
use crate::sweep::{Yield, block_on, session};

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
];

/// A process that writes.
pub struct Process {
    pub ctx: SessionContext,
    pub sg: Stratagraph,
}

type Run = Box<dyn for<'a> Fn(&'a Process) -> BoxFuture<'a, Result<(), String>>>;

/// A write of the graph of [`first`].
pub struct Case {
    name: String,
    /// Ids of edges that the write makes are others in every run.
    mints: bool,
    run: Run,
}

impl Case {
    pub fn new(
        name: impl Into<String>,
        mints: bool,
        run: impl for<'a> Fn(&'a Process) -> BoxFuture<'a, Result<(), String>> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            mints,
            run: Box::new(run),
        }
    }
}

/// What is there before a write.
pub fn first() -> String {
    lines(&[
        person("a", "\"age\": 1"),
        person("b", "\"email\": \"b@x\""),
        place("h", "Home", 1),
        edge("Knows", "k1", "a", "b"),
        edge("Lives", "l1", "a", "h"),
    ])
}

async fn open(store: Arc<dyn ObjectStore>, seed: u64) -> Result<Process, String> {
    let (ctx, sg) = session(store, seed, &[]).await.map_err(|e| e.to_string())?;
    Ok(Process { ctx, sg })
}

/// Of a branch: name, version, next row ids and all rows.
type Branch = (String, u64, Vec<u64>, Vec<Vec<Vec<String>>>);
type State = Vec<Branch>;

async fn state(store: Arc<dyn ObjectStore>, mints: bool) -> State {
    let ctx = SessionContext::new();
    let options = Options::new("memory:///sweep")
        .with_object_store(store, Path::default(), true)
        .with_env(Env::fixed(90));
    let sg = install(&ctx, options).await.unwrap();
    let mut all = Vec::new();
    for row in sg.graph_branches("g").await.unwrap() {
        let head = sg.catalog().look().await.unwrap();
        let (name, branch) = (
            Name::parse("g").unwrap(),
            BranchName::parse(&row.branch).unwrap(),
        );
        let now = graph(sg.catalog().store(), &head, &name, &branch, &At::Head);
        let now = now.await.unwrap();
        assert_sound(&sg, &now).await;
        let (knows, lives) = match mints {
            true => ("src, dst, since", "src, dst, note"),
            false => ("*", "*"),
        };
        let tables = [
            ("Person", "*"),
            ("Place", "*"),
            ("Knows", knows),
            ("Lives", lives),
        ];
        let mut rows = Vec::new();
        for (of, columns) in tables {
            let table = format!("sg.\"g@{}\".\"{of}\"", row.branch);
            let sql = format!("SELECT {columns} FROM {table} ORDER BY 1, 2");
            let batches = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
            rows.push(crate::world::table(&batches));
        }
        let rids = now.dataset.next_rids.values().copied().collect();
        all.push((row.branch, now.manifest.version, rids, rows));
    }
    all
}

struct Stage {
    base: InMemory,
    before: State,
    after: State,
    calls: u64,
}

async fn stage(case: &Case) -> Stage {
    let base = Arc::new(InMemory::new());
    let process = open(Arc::clone(&base) as _, 1).await.unwrap();
    process.sg.graph_create("g", SCHEMA).await.unwrap();
    load(&process.sg, &first(), Append).await.unwrap();
    let base = base.fork();
    let handle = FaultStore::new(Arc::new(base.fork()));
    let process = open(handle.store(), 2).await.unwrap();
    (case.run)(&process).await.unwrap();
    Stage {
        before: state(Arc::new(base.fork()), case.mints).await,
        after: state(handle.base().store(), case.mints).await,
        calls: handle.calls(),
        base,
    }
}

async fn settled(case: &Case, stage: &Stage, base: &Arc<FaultBase>, acked: bool, what: &str) {
    base.settle().await;
    let found = state(base.store(), case.mints).await;
    let whole = found == stage.after || found == stage.before && !acked;
    assert!(whole, "{what}: {found:?}");
    // Nothing but what is reachable stays.
    let process = open(base.store(), 4).await.unwrap();
    let sg = &process.sg;
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0, "{what}");
    if found == stage.before {
        let rerun = (case.run)(&process).await;
        rerun.unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
    }
    let now = state(base.store(), case.mints).await;
    // A write that began anew may have taken another version number.
    let content = |state: &State| -> Vec<_> {
        let branches = state.iter();
        branches
            .map(|(name, _, rids, rows)| (name.clone(), rids.clone(), rows.clone()))
            .collect()
    };
    assert_eq!(content(&now), content(&stage.after), "{what}: in the end");
}

/// Every call of each write meets every fault.
pub fn faults(cases: &[Case]) {
    let soak = std::env::var_os("SOAK").is_some();
    let mut runs = 0;
    for (turn, case) in cases.iter().enumerate() {
        let stage = block_on(stage(case));
        assert_ne!(stage.before, stage.after, "{}", case.name);
        for at in 0..stage.calls {
            // Every third pair; all of them under `SOAK=1`.
            let step = if soak { 1 } else { 3 };
            let from = (at as usize + turn) % step;
            for fault in FAULTS.into_iter().skip(from).step_by(step) {
                block_on(async {
                    let base = FaultBase::new(Arc::new(stage.base.fork()));
                    let handle = FaultStore::on(&base);
                    handle.plan(at, fault);
                    let what = format!("{} with {fault:?} at call {at}", case.name);
                    let acked = match open(handle.store(), 3).await {
                        Ok(process) => (case.run)(&process).await.is_ok(),
                        Err(_) => false,
                    };
                    settled(case, &stage, &base, acked, &what).await;
                });
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
}

/// Each write is dropped at every await.
pub fn cancellations(cases: &[Case]) {
    let soak = std::env::var_os("SOAK").is_some();
    for case in cases {
        let stage = block_on(stage(case));
        let (mut polls, mut finished) = (1, false);
        while !finished {
            finished = block_on(async {
                let base = FaultBase::new(Arc::new(stage.base.fork()));
                let handle = FaultStore::on(&base).with_gate(Arc::new(Yield));
                let process = open(handle.store(), 3).await.unwrap();
                let mut done = false;
                {
                    let mut run = (case.run)(&process);
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
                let what = format!("{} dropped after {polls} polls", case.name);
                settled(case, &stage, &base, done, &what).await;
                done
            });
            polls += if soak { 1 } else { 5 };
            assert!(polls < 20_000, "{} never ends", case.name);
        }
    }
}
