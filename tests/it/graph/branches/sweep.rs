//! Every store call and every await of the verbs of branches meets trouble: the old state or the new
//! one, never anything between. And all orders of verbs that meet each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
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
use stratagraph::publish::graph::write_graph;
use stratagraph::sim::{Explorer, Fault, FaultBase, FaultStore, Gate, Op, Scheduler, Step, World};

use super::{expire_request, two_people, world};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, change, content, delete, fork, fork_of, merge, merge_of, name, prepare, read,
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
type Heads = BTreeMap<String, Content>;

async fn heads(store: Arc<dyn ObjectStore>) -> Heads {
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

async fn fork_past(catalog: &Arc<Catalog>) -> Result<()> {
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

async fn merge_and_delete(catalog: &Arc<Catalog>) -> Result<()> {
    let mut request = merge_of("c", "b");
    request.delete_source = true;
    merge(catalog, request).await.map(drop)
}

const VERBS: [Verb; 7] = [
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
async fn start() -> InMemory {
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

/// Calls that others can see: slots, and what a collection lists and deletes.
fn shared(step: &Step) -> bool {
    step.key.starts_with("catalog") || matches!(step.op.to_string().as_str(), "DELETE" | "LIST")
}

type Actor = for<'a> fn(&'a Arc<Catalog>) -> BoxFuture<'a, Result<()>>;

/// Whether the codes of the actors' errors fit the heads that they left.
type Check = fn(&[Option<&'static str>], &Heads) -> bool;

/// Several processes that have seen the head before, and what may become of them.
async fn meeting(sched: Scheduler, start: &InMemory, actors: [Actor; 2], check: Check) -> World {
    let base = FaultBase::new(Arc::new(start.fork()));
    let store: Arc<dyn ObjectStore> = base.store();
    let outcomes = Arc::new(Mutex::new(vec![None; actors.len()]));
    let mut world = World::new();
    for (at, actor) in actors.into_iter().enumerate() {
        let catalog = process(sched.store_on(at, &base).store(), 10 + at as u64);
        catalog.begin().await.unwrap();
        let outcomes = Arc::clone(&outcomes);
        world = world.actor(async move {
            let outcome = actor(&catalog).await;
            outcomes.lock().unwrap()[at] = outcome.err().map(|e| e.code());
        });
    }
    world.check(async move {
        no_orphans(Arc::clone(&store), 80).await?;
        audit(Arc::clone(&store), &Told::default()).await?;
        let heads = heads(store).await;
        let outcomes = outcomes.lock().unwrap().clone();
        match check(&outcomes, &heads) {
            true => Ok(()),
            false => Err(format!("{outcomes:?} left {heads:?}")),
        }
    })
}

/// All orders of the calls that the two share.
fn explore(actors: [Actor; 2], check: Check) {
    let start = block_on(start());
    let explorer = Explorer::new().branch_on(shared).reduced();
    let explored = explorer
        .all(async |s| meeting(s, &start, actors, check).await)
        .unwrap();
    println!("{explored:?}");
    assert!(explored.complete);
}

/// Some orders of all calls.
fn sample(actors: [Actor; 2], check: Check) {
    let start = block_on(start());
    let runs = if std::env::var_os("SOAK").is_some() {
        20_000
    } else {
        300
    };
    Explorer::new()
        .pct(0..runs, 3, 60, async |s| {
            meeting(s, &start, actors, check).await
        })
        .unwrap();
}

fn write_eve(catalog: &Arc<Catalog>) -> BoxFuture<'_, Result<()>> {
    async move {
        let mut stage = catalog.begin().await?;
        let seen = state(catalog, "b", &At::Head).await?;
        let eve = Change::default().person("eve", 5);
        let write = prepare(catalog, &mut stage, &seen, &eve).await?;
        write_graph(catalog, stage, write).await.map(drop)
    }
    .boxed()
}

#[test]
fn a_deletion_and_a_write_never_both_win_blindly() {
    explore(
        [
            |c| async move { delete(c, "b").await.map(drop) }.boxed(),
            write_eve,
        ],
        |outcomes, heads| match outcomes {
            // The deletion saw the write, or the write never began.
            [
                None,
                None | Some("ReadSetChanged" | "NotFound" | "WriterFenced"),
            ] => !heads.contains_key("b"),
            [Some("ReadSetChanged"), None] => heads["b"].people.contains_key("eve"),
            _ => false,
        },
    );
}

#[test]
fn writes_on_two_branches_commit_in_every_order() {
    explore(
        [|c| change_main(c).boxed(), write_eve],
        |outcomes, heads| {
            let both = ["main", "b"];
            outcomes.iter().all(Option::is_none)
                && both.iter().all(|b| heads[*b].people.contains_key("eve"))
        },
    );
}

#[test]
fn a_merge_and_a_write_on_its_target_never_overwrite_each_other() {
    explore(
        [
            |c| async move { merge(c, merge_of("c", "b")).await.map(drop) }.boxed(),
            write_eve,
        ],
        |outcomes, heads| {
            let people = &heads["b"].people;
            let won = |at: usize, name: &str| match outcomes[at] {
                None => people.contains_key(name),
                Some("ReadSetChanged") => !people.contains_key(name),
                _ => false,
            };
            won(0, "gil") && won(1, "eve")
        },
    );
}

async fn change_main(catalog: &Arc<Catalog>) -> Result<()> {
    let eve = Change::default().person("eve", 9).person("fay", 1);
    change(catalog, "main", &eve).await.map(drop)
}

#[test]
fn a_collection_leaves_what_a_new_branch_needs() {
    explore(
        [
            |c| fork_past(c).boxed(),
            |c| async move { c.collect_garbage(0, false).await.map(drop) }.boxed(),
        ],
        |outcomes, heads| match outcomes {
            [None, None] => heads["past"].people.contains_key("bob"),
            [Some("WriterFenced"), None] => !heads.contains_key("past"),
            _ => false,
        },
    );
}

#[test]
fn an_expiry_leaves_what_a_new_branch_needs() {
    sample(
        [
            |c| fork_past(c).boxed(),
            |c| async move { c.expire(expire_request("main", u64::MAX)).await.map(drop) }.boxed(),
        ],
        |outcomes, heads| match outcomes {
            [None, None] => heads["past"].people.contains_key("bob"),
            [
                Some("HistoricalVersionReclaimed" | "VersionUnavailable" | "NotFound"),
                None,
            ] => !heads.contains_key("past"),
            _ => false,
        },
    );
}

/// The content of a past state of the main branch, as the sweep forks it.
#[test]
fn the_past_state_is_the_one_that_is_meant() {
    block_on(async {
        let base: Arc<dyn ObjectStore> = Arc::new(start().await);
        let catalog = process(base, 2);
        let past = state(&catalog, "main", &At::Catalog(2)).await.unwrap();
        let past = content(&catalog, &past).await.unwrap();
        assert_eq!(past, two_people().on(&Content::default()));
    });
}
