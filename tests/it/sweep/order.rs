//! Orders of store calls: all of them for small worlds, seeded ones for large; and repeatability.

use std::sync::{Arc, Mutex};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::Catalog;
use stratagraph::publish::Deletes;
use stratagraph::sim::{Explorer, Fault, FaultBase, FaultStore, Rng, Scheduler, Step, World};
use stratagraph::{Error, Result};

use super::crash::block_on;
use super::verbs::verbs;
use crate::support::append::append;
use crate::support::audit::{Told, audit, no_orphans, process, process_on_files};
use crate::support::embedding::{Source, compact, content, expected, generate, refresh};

/// Calls that others can see: slots, and what a collection lists and deletes.
fn shared(step: &Step) -> bool {
    step.key.starts_with("catalog") || matches!(step.op.to_string().as_str(), "DELETE" | "LIST")
}

/// A collection after everything else leaves what the audit then reads.
async fn audited(store: Arc<dyn ObjectStore>, told: Arc<Mutex<Told>>) -> Result<(), String> {
    let told = told.lock().unwrap().clone();
    no_orphans(Arc::clone(&store), 90).await?;
    audit(store, &told).await.map(drop)
}

/// A store with two versions of one dataset, made by two processes.
fn two_versions() -> InMemory {
    let base = Arc::new(InMemory::new());
    block_on(async {
        for seed in [1, 2] {
            append(&process(Arc::clone(&base) as _, seed), "t")
                .await
                .1
                .unwrap();
        }
    });
    base.fork()
}

/// Opens a store as a process of its own.
type Open = fn(Arc<dyn ObjectStore>, u64) -> Arc<Catalog>;

/// Two committers on one dataset and a collection, all of which have seen the head before.
async fn committers(sched: Scheduler, start: &InMemory, open: Open, collect: bool) -> World {
    let base = FaultBase::new(Arc::new(start.fork()));
    let store: Arc<dyn ObjectStore> = base.store();
    let told = Arc::new(Mutex::new(Told::default()));
    let mut world = World::new();
    for actor in 0..2 {
        let catalog = open(sched.store_on(actor, &base).store(), 10 + actor as u64);
        catalog.begin().await.unwrap();
        let told = Arc::clone(&told);
        world = world.actor(async move {
            let (txn, outcome) = append(&catalog, "t").await;
            told.lock().unwrap().tell(txn, &outcome);
            assert!(
                matches!(outcome, Ok(_) | Err(Error::WriterFenced { .. })),
                "{outcome:?}"
            );
        });
    }
    if collect {
        let catalog = open(sched.store_on(2, &base).store(), 20);
        catalog.begin().await.unwrap();
        world = world.actor(async move {
            catalog.collect_garbage(0, false).await.unwrap();
        });
    }
    world.check(audited(store, told))
}

const OPEN: [(&str, Open); 2] = [("one list", process), ("two names", process_on_files)];

#[test]
fn all_orders_of_two_committers() {
    let start = two_versions();
    let explored = Explorer::new()
        .all(async |s| committers(s, &start, process, false).await)
        .unwrap();
    println!("two committers: {explored:?}");
    assert!(explored.complete);
    for (name, open) in OPEN {
        let reduced = Explorer::new()
            .reduced()
            .all(async |s| committers(s, &start, open, false).await)
            .unwrap();
        println!("two committers, {name}, reduced: {reduced:?}");
        assert!(reduced.complete && reduced.runs < explored.runs);
    }
}

#[test]
fn all_orders_of_two_committers_and_a_collection() {
    let start = two_versions();
    let explorer = Explorer::new().branch_on(shared).reduced();
    let explored = explorer
        .all(async |s| committers(s, &start, process, true).await)
        .unwrap();
    println!("two committers and a collection: {explored:?}");
    assert!(explored.complete);
}

fn soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

const FAULTS: [Fault; 6] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::Conflict409,
    Fault::Delayed(3),
    Fault::Duplicated(2),
];

/// Three to five processes that refresh, compact, expire and collect one table; faults in one call
/// of ten.
async fn crowd(sched: Scheduler) -> World {
    let base = FaultBase::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = base.store();
    let source = Source::new(&[("a", "one"), ("b", "two"), ("c", "three")]);
    let setup = process(Arc::clone(&store), 1);
    generate(&setup, &source).await.1.unwrap();
    source.set("b", "two again");
    refresh(&setup, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    source.set("a", "one again");
    source.remove("c");
    let told = Arc::new(Mutex::new(Told::default()));
    let mut rng = Rng::new(sched.seed());
    let mut world = World::new();
    let (_, open) = OPEN[usize::from(sched.seed() % 2 == 1)];
    for actor in 0..3 + rng.below(3) {
        let handle = sched.store_on(actor as usize, &base);
        handle.plan_random(rng.next_u64(), 0.1, &FAULTS);
        let (catalog, source, told) = (
            open(handle.store(), 10 + actor),
            source.clone(),
            Arc::clone(&told),
        );
        let kind = if actor < 2 { 0 } else { rng.below(4) };
        world = world.actor(async move {
            let (txn, outcome) = match kind {
                0 => {
                    let (txn, outcome) = refresh(&catalog, &source, Deletes::Tombstone).await;
                    let nothing = matches!(&outcome, Ok(r) if r.published.is_none());
                    (txn.filter(|_| !nothing), outcome.map(drop))
                }
                1 => {
                    let (txn, outcome) = compact(&catalog, None).await;
                    (txn, outcome.map(drop))
                }
                2 => (None, super::verbs::expire(&catalog).await),
                _ => (None, catalog.collect_garbage(0, false).await.map(drop)),
            };
            told.lock().unwrap().tell(txn, &outcome);
        });
    }
    world.check(async move {
        base.settle().await;
        audited(Arc::clone(&store), told).await?;
        let last = process(Arc::clone(&store), 80);
        let ran = refresh(&last, &source, Deletes::Tombstone).await.1;
        ran.map_err(|e| format!("the last refresh failed: {e}"))?;
        let found = content(&last, None).await.map_err(|e| e.to_string())?;
        if found == expected(&source.rows()) {
            Ok(())
        } else {
            Err(format!("I8: {found:?}"))
        }
    })
}

#[test]
fn seeded_crowds() {
    let seeds = if soak() { 100_000 } else { 2_000 };
    let first = std::env::var("SIM_SEED").ok().and_then(|s| s.parse().ok());
    let range = first.map_or(0..seeds, |seed: u64| seed..seed + 1);
    let explored = Explorer::new().pct(range, 3, 120, crowd).unwrap();
    println!("crowds: {explored:?}");
}

/// One run of all verbs under random faults: its calls, the bytes it leaves, what it answered.
async fn repeatable(seed: u64) -> (String, Vec<(String, bytes::Bytes)>, Vec<String>) {
    let mut log = (String::new(), Vec::new(), Vec::new());
    for verb in verbs() {
        let stage = verb.stage().await;
        let base = FaultBase::new(Arc::new(stage.base.fork()));
        let handle = FaultStore::on(&base);
        handle.plan_random(seed, 0.15, &FAULTS);
        let (txn, outcome) = verb
            .run(&process(handle.store(), seed), &stage.source)
            .await;
        base.settle().await;
        for call in handle.trace() {
            log.0 += &format!("{call}\n");
        }
        log.2
            .push(format!("{txn:?} {:?}", outcome.map_err(|e| e.to_string())));
        let store = crate::support::audit::reopen(base.store());
        for (key, _) in store.list("").await.unwrap() {
            let got = store
                .inner()
                .get_opts(&store.path(&key), Default::default())
                .await
                .unwrap();
            log.1.push((key, got.bytes().await.unwrap()));
        }
    }
    log
}

#[test]
fn a_seed_repeats_calls_bytes_and_answers() {
    let seeds = if soak() { 1_000 } else { 20 };
    for seed in 0..seeds {
        let (one, two) = (block_on(repeatable(seed)), block_on(repeatable(seed)));
        assert_eq!(one.0, two.0, "calls of seed {seed}");
        assert_eq!(one.2, two.2, "answers of seed {seed}");
        assert!(one.1 == two.1, "bytes of seed {seed}");
    }
    println!("{seeds} seeds repeat");
}
