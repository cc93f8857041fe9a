//! Every store call and every await of the verbs of branches meets trouble: the old state or the new
//! one, never anything between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::Result;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::branch::branches;
use stratagraph::catalog::graph::At;
use stratagraph::publish::branch::create_branch;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Gate, Op};

use super::{expire_request, two_people, world};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, PERSON, change, delete, fork, fork_of, merge, merge_of, name, optimize, read,
    state,
};
use crate::sweep::crash::block_on;

const FAULTS: [Fault; 7] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
    Fault::Duplicated(3),
];

/// Heads of all branches.
pub type Heads = BTreeMap<String, Content>;

pub async fn heads(store: Arc<dyn ObjectStore>) -> Heads {
    let catalog = process(store, 90);
    let head = catalog.look().await.unwrap();
    let all = branches(catalog.store(), &head, &name("g")).await.unwrap();
    let mut heads = Heads::new();
    for branch in all {
        let of = branch.name.as_str();
        heads.insert(of.to_owned(), read(&catalog, of).await.unwrap());
    }
    heads
}

#[derive(Clone, Copy)]
struct Verb {
    name: &'static str,
    run: for<'a> fn(&'a Arc<Catalog>) -> BoxFuture<'a, Result<()>>,
    /// Code of a second run that found the first one done.
    done: &'static str,
}

pub async fn fork_past(catalog: &Arc<Catalog>) -> Result<()> {
    let past = state(catalog, "main", &At::Catalog(2)).await?;
    let at = At::Commit(past.commit_id().to_owned());
    let stage = catalog.begin().await?;
    create_branch(catalog, stage, fork_of("past", "main", at))
        .await
        .map(drop)
}

/// A write of a person who then has the same age, however often it runs.
async fn write(catalog: &Arc<Catalog>) -> Result<()> {
    change(catalog, "b", &Change::default().person("eve", 5))
        .await
        .map(drop)
}

async fn pin(catalog: &Arc<Catalog>) -> Result<()> {
    let head = state(catalog, "b", &At::Head).await?;
    let table = head.table(catalog.store(), PERSON).await?;
    catalog.create_pin(name("p"), &table, None).await.map(drop)
}

async fn merge_and_delete(catalog: &Arc<Catalog>) -> Result<()> {
    let mut request = merge_of("c", "b");
    request.delete_source = true;
    merge(catalog, request).await.map(drop)
}

const VERBS: [Verb; 10] = [
    Verb {
        name: "create",
        run: |c| async move { fork(c, "new", "b").await.map(drop) }.boxed(),
        done: "AlreadyExists",
    },
    Verb {
        name: "create from a past commit",
        run: |c| fork_past(c).boxed(),
        done: "AlreadyExists",
    },
    Verb {
        name: "delete",
        run: |c| async move { delete(c, "b").await.map(drop) }.boxed(),
        done: "NotFound",
    },
    Verb {
        name: "write",
        run: |c| write(c).boxed(),
        done: "",
    },
    Verb {
        name: "fast forward",
        run: |c| async move { merge(c, merge_of("b", "main")).await.map(drop) }.boxed(),
        done: "",
    },
    Verb {
        name: "merge",
        run: |c| async move { merge(c, merge_of("c", "b")).await.map(drop) }.boxed(),
        done: "",
    },
    Verb {
        name: "optimize",
        run: |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
        done: "",
    },
    Verb {
        name: "expire",
        run: |c| async move { c.expire(expire_request("main", u64::MAX)).await.map(drop) }.boxed(),
        done: "",
    },
    Verb {
        name: "pin",
        run: |c| pin(c).boxed(),
        done: "AlreadyExists",
    },
    Verb {
        name: "merge and delete",
        run: |c| merge_and_delete(c).boxed(),
        done: "NotFound",
    },
];

struct Stage {
    base: InMemory,
    before: Heads,
    after: Heads,
}

/// A graph with two branches that have a commit of their own.
pub async fn start() -> InMemory {
    let memory = Arc::new(InMemory::new());
    let base: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(&memory);
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    change(&catalog, "b", &two_people()).await.unwrap();
    fork(&catalog, "c", "main").await.unwrap();
    let on_c = Change::default()
        .person("cy", 8)
        .person("gil", 1)
        .knows("k9", "gil", "ada", 1);
    change(&catalog, "c", &on_c).await.unwrap();
    memory.fork()
}

async fn stage(verb: &Verb, base: &InMemory) -> Stage {
    let before = heads(Arc::new(base.fork())).await;
    let done: Arc<dyn ObjectStore> = Arc::new(base.fork());
    (verb.run)(&process(Arc::clone(&done), 3)).await.unwrap();
    Stage {
        base: base.fork(),
        before,
        after: heads(done).await,
    }
}

/// The store holds what the verb found or what it makes; then it is run to its end.
async fn finish(verb: &Verb, stage: &Stage, store: Arc<dyn ObjectStore>, acked: bool, what: &str) {
    let found = heads(Arc::clone(&store)).await;
    let whole = found == stage.after || !acked && found == stage.before;
    assert!(whole, "{what}: {found:?}");
    audit(Arc::clone(&store), &Told::default())
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    match (verb.run)(&process(Arc::clone(&store), 7)).await {
        Err(e) if e.code() != verb.done => panic!("{what}: rerun: {e}"),
        _ => {}
    }
    assert_eq!(heads(Arc::clone(&store)).await, stage.after, "{what}");
    let clean = no_orphans(Arc::clone(&store), 9).await;
    clean.unwrap_or_else(|e| panic!("{what}: {e}"));
    let whole = audit(store, &Told::default()).await;
    whole.unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn every_call_meets_every_fault() {
    let base = block_on(start());
    let mut runs = 0;
    for verb in VERBS {
        let stage = block_on(stage(&verb, &base));
        let counting = FaultStore::new(Arc::new(stage.base.fork()));
        block_on((verb.run)(&process(counting.store(), 5))).unwrap();
        for at in 0..counting.calls() {
            for fault in FAULTS {
                let what = format!("{} with {fault:?} at call {at}", verb.name);
                block_on(async {
                    let base = FaultBase::new(Arc::new(stage.base.fork()));
                    let handle = FaultStore::on(&base);
                    handle.plan(at, fault);
                    let outcome = (verb.run)(&process(handle.store(), 5)).await;
                    base.settle().await;
                    finish(&verb, &stage, base.store(), outcome.is_ok(), &what).await;
                });
                runs += 1;
            }
        }
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

/// Polls a verb `polls` times, then drops it; whether it had finished.
async fn interrupted(verb: &Verb, stage: &Stage, polls: u32) -> bool {
    let base = FaultBase::new(Arc::new(stage.base.fork()));
    let handle = FaultStore::on(&base).with_gate(Arc::new(Yield));
    let catalog = process(handle.store(), 5);
    let mut run = (verb.run)(&catalog);
    let mut finished = false;
    for _ in 0..polls {
        let once = std::future::poll_fn(|cx: &mut Context<'_>| Poll::Ready(run.poll_unpin(cx)));
        if let Poll::Ready(outcome) = once.await {
            outcome.unwrap();
            finished = true;
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(run);
    // A commit that had put its slot goes on in a task of its own.
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    let what = format!("{} dropped after {polls} polls", verb.name);
    finish(verb, stage, base.store(), finished, &what).await;
    finished
}

#[test]
fn every_verb_is_dropped_at_every_await() {
    let base = block_on(start());
    for verb in VERBS {
        let stage = block_on(stage(&verb, &base));
        let mut polls = 1;
        while !block_on(interrupted(&verb, &stage, polls)) {
            polls += 1;
        }
    }
}
