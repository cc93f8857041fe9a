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
use stratagraph::catalog::graph::{At, GraphSnapshot, graph};
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
    schema: String,
    /// Statements between [`first`] and the write.
    given: Vec<String>,
    /// Ids of edges that the write makes are others in every run.
    mints: bool,
    /// A second run finds nothing to do. The past is compared too.
    is_final: bool,
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
            schema: SCHEMA.to_owned(),
            given: Vec::new(),
            mints,
            is_final: false,
            run: Box::new(run),
        }
    }

    /// A statement.
    pub fn sql(sql: &'static str, mints: bool) -> Self {
        Self::new(sql, mints, move |process| process.sql(sql).boxed())
    }

    /// With more types in the schema.
    pub fn with_types(mut self, types: &str) -> Self {
        self.schema += types;
        self
    }

    /// With statements before the write.
    pub fn given(mut self, statements: &[&str]) -> Self {
        self.given = statements.iter().map(|sql| (*sql).to_owned()).collect();
        self
    }

    /// A second run finds nothing to do.
    pub fn once(mut self) -> Self {
        self.is_final = true;
        self
    }
}

impl Process {
    async fn sql(&self, sql: &str) -> Result<(), String> {
        let frame = self.ctx.sql(sql).await.map_err(|e| e.to_string())?;
        frame.collect().await.map(drop).map_err(|e| e.to_string())
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

/// All rows of all types.
type Rows = Vec<Vec<Vec<String>>>;

#[derive(Debug, Clone, PartialEq)]
struct Branch {
    name: String,
    version: u64,
    /// Types and properties with their ids.
    schema: Vec<String>,
    next_rids: Vec<u64>,
    rows: Rows,
    /// Retained versions before that one, with their commits.
    past: Vec<(u64, String)>,
    /// Rows of the oldest one.
    oldest: Rows,
}

type State = Vec<Branch>;

/// The rows of a state of a branch, types under the names that they have now.
async fn rows(ctx: &SessionContext, now: &GraphSnapshot, at: &GraphSnapshot, mints: bool) -> Rows {
    let mut rows = Rows::new();
    for of in &at.schema.types {
        let Some(name) = now.schema.by_id(of.id).map(|of| &of.name) else {
            continue;
        };
        let names = of.properties.iter().map(|p| format!(", \"{}\"", p.name));
        let columns = match mints && of.is_edge() {
            true => format!("src, dst{}", names.collect::<String>()),
            false => "*".to_owned(),
        };
        let (branch, commit) = (&at.branch, at.commit_id());
        let table = format!("sg.\"g@{branch}\".\"{name}\" WITH (snapshot = '{commit}')");
        let sql = format!("SELECT {columns} FROM {table} ORDER BY 1, 2");
        let batches = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        rows.push(crate::world::table(&batches));
    }
    rows
}

/// On threads of its own: planning on a current-thread runtime knows the columns of heads only.
fn state(store: Arc<dyn ObjectStore>, case: &Case) -> State {
    let (mints, past) = (case.mints, case.is_final);
    let read = move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(read(store, mints, past))
    };
    std::thread::spawn(read).join().unwrap()
}

async fn read(store: Arc<dyn ObjectStore>, mints: bool, with_past: bool) -> State {
    let ctx = SessionContext::new();
    let options = Options::new("memory:///sweep")
        .with_object_store(store, Path::default(), true)
        .with_env(Env::fixed(90));
    let sg = install(&ctx, options).await.unwrap();
    let head = sg.catalog().look().await.unwrap();
    let (store, name) = (sg.catalog().store(), Name::parse("g").unwrap());
    let mut all = State::new();
    for row in sg.graph_branches("g").await.unwrap() {
        let branch = BranchName::parse(&row.branch).unwrap();
        let at = async |at: At| graph(store, &head, &name, &branch, &at).await.unwrap();
        let now = at(At::Head).await;
        assert_sound(&sg, &now).await;
        let (mut past, mut oldest) = (Vec::new(), None);
        let history = now.current.history.walk(store, &mut |_| {}).await.unwrap();
        for entry in history.into_iter().filter(|_| with_past) {
            let old = at(At::Commit(entry.commit_id)).await;
            assert_sound(&sg, &old).await;
            past.push((entry.version, old.commit_id().to_owned()));
            oldest.get_or_insert(old);
        }
        let oldest = match oldest {
            Some(oldest) => rows(&ctx, &now, &oldest, mints).await,
            None => Rows::new(),
        };
        let types = now.schema.types.iter();
        let schema = types.flat_map(|of| {
            let properties = of.properties.iter();
            let properties = properties.map(|p| format!("{}.{} {}", of.name, p.name, p.id));
            std::iter::once(format!("{} {}", of.name, of.id)).chain(properties)
        });
        all.push(Branch {
            name: row.branch,
            version: now.manifest.version,
            schema: schema.collect(),
            next_rids: now.dataset.next_rids.values().copied().collect(),
            rows: rows(&ctx, &now, &now, mints).await,
            oldest,
            past,
        });
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
    process.sg.graph_create("g", &case.schema).await.unwrap();
    load(&process.sg, &first(), Append).await.unwrap();
    for sql in &case.given {
        process.sql(sql).await.unwrap();
    }
    let base = base.fork();
    let handle = FaultStore::new(Arc::new(base.fork()));
    let process = open(handle.store(), 2).await.unwrap();
    (case.run)(&process).await.unwrap();
    Stage {
        before: state(Arc::new(base.fork()), case),
        after: state(handle.base().store(), case),
        calls: handle.calls(),
        base,
    }
}

async fn settled(case: &Case, stage: &Stage, base: &Arc<FaultBase>, acked: bool, what: &str) {
    base.settle().await;
    let found = state(base.store(), case);
    let whole = found == stage.after || found == stage.before && !acked;
    assert!(whole, "{what}: {found:?}");
    // Nothing but what is reachable stays.
    let process = open(base.store(), 4).await.unwrap();
    let sg = &process.sg;
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0, "{what}");
    if found == stage.before || case.is_final {
        let rerun = (case.run)(&process).await;
        rerun.unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
    }
    let mut now = state(base.store(), case);
    // A write that began anew may have taken another version number.
    for (now, after) in now.iter_mut().zip(&stage.after).filter(|_| !case.is_final) {
        now.version = after.version;
    }
    assert_eq!(now, stage.after, "{what}: in the end");
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
