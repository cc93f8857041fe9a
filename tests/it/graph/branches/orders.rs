//! All orders of verbs of branches that meet each other: none overwrites what another one made.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::Result;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::At;
use stratagraph::publish::graph::write_graph;
use stratagraph::sim::{Explorer, FaultBase, FaultStore, Op, Scheduler, Step, World};

use super::sweep::{Heads, fork_past, heads, start};
use super::{expire_request, two_people};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, PERSON, change, content, delete, fork, merge, merge_of, name, optimize,
    prepare, state,
};
use crate::sweep::crash::block_on;

/// Calls that others can see: slots, and what a collection lists and deletes.
fn shared(step: &Step) -> bool {
    step.key.starts_with("catalog") || matches!(step.op, Op::Delete | Op::List)
}

pub type Actor = for<'a> fn(&'a Arc<Catalog>) -> BoxFuture<'a, Result<()>>;

/// Whether the codes of the actors' errors fit the heads that they left.
pub type Check = fn(&[Option<&'static str>], &Heads) -> bool;

type Shared = Arc<dyn Fn(&Step) -> bool + Send + Sync>;

/// Several processes that have seen the head before, and what may become of them.
async fn meeting(
    sched: Scheduler,
    start: &InMemory,
    actors: [Actor; 2],
    shared: Shared,
    check: Check,
) -> World {
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
        unordered(&sched.trace(), &*shared)?;
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

/// That no actor touches an object which another one deletes in a call that is not ordered.
fn unordered(trace: &[Step], shared: &dyn Fn(&Step) -> bool) -> Result<(), String> {
    let deletes = trace.iter().filter(|step| step.op == Op::Delete);
    for delete in deletes {
        let others = |step: &&Step| step.key == delete.key && step.actor != delete.actor;
        let touching = trace.iter().filter(others);
        if let Some(step) = touching.chain([delete]).find(|step| !shared(step))
            && trace.iter().any(|step| others(&step))
        {
            return Err(format!("{step} is not ordered"));
        }
    }
    Ok(())
}

/// All orders of the calls that the two share.
pub fn explore(actors: [Actor; 2], check: Check) {
    explore_ordered(&block_on(start()), actors, Arc::new(shared), check);
}

/// The same where an actor deletes what the other one may be staging.
fn explore_collecting(actors: [Actor; 2], check: Check) {
    let shared: Shared = Arc::new(|step| shared(step) || step.op.is_write());
    explore_ordered(&block_on(start()), actors, shared, check);
}

/// The same where an actor deletes objects that the other one reads: these calls are shared too.
fn explore_deleting(actors: [Actor; 2], check: Check) {
    let start = block_on(start());
    let [read, deleted] = actors.map(|actor| block_on(touched(&start, actor)));
    let deleted = deleted.into_iter().filter(|(op, _)| *op == Op::Delete);
    let deleted: BTreeSet<String> = deleted.map(|(_, key)| key).collect();
    let read = read.into_iter().map(|(_, key)| key).collect();
    let both = &deleted & &read;
    assert!(!both.is_empty());
    let shared = move |step: &Step| step.key.starts_with("catalog") || both.contains(&step.key);
    explore_ordered(&start, actors, Arc::new(shared), check);
}

/// The calls of an actor that is alone.
async fn touched(start: &InMemory, actor: Actor) -> Vec<(Op, String)> {
    let handle = FaultStore::new(Arc::new(start.fork()));
    actor(&process(handle.store(), 10)).await.unwrap();
    let calls = handle.trace().into_iter();
    calls.map(|call| (call.op, call.key)).collect()
}

fn explore_ordered(start: &InMemory, actors: [Actor; 2], shared: Shared, check: Check) {
    let ordered = Arc::clone(&shared);
    let explorer = Explorer::new()
        .branch_on(move |step| ordered(step))
        .reduced();
    let explored = explorer
        .all(async |s| meeting(s, start, actors, Arc::clone(&shared), check).await)
        .unwrap();
    println!("{explored:?}");
    assert!(explored.complete);
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
fn a_branch_and_the_deletion_of_its_source_exclude_each_other() {
    explore(
        [
            |c| async move { fork(c, "new", "b").await.map(drop) }.boxed(),
            |c| async move { delete(c, "b").await.map(drop) }.boxed(),
        ],
        |outcomes, heads| {
            let there = (heads.contains_key("new"), heads.contains_key("b"));
            match outcomes {
                [None, Some("BranchProtected")] => there == (true, true),
                [Some("NotFound"), None] => there == (false, false),
                _ => false,
            }
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
    explore_collecting(
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
    explore_deleting(
        [
            |c| fork_past(c).boxed(),
            |c| async move { c.expire(expire_request("main", u64::MAX)).await.map(drop) }.boxed(),
        ],
        |outcomes, heads| match outcomes {
            [None, None] => heads["past"].people.contains_key("bob"),
            // A process whose reads meet the deletions finds an object missing.
            [
                Some("HistoricalVersionReclaimed" | "VersionUnavailable" | "NotFound" | "Storage"),
                None,
            ] => !heads.contains_key("past"),
            _ => false,
        },
    );
}

/// An update, a deletion with its edges and an insert, of rows that an optimisation moves.
fn change_b(catalog: &Arc<Catalog>) -> BoxFuture<'_, Result<()>> {
    async move {
        let mut stage = catalog.begin().await?;
        let seen = state(catalog, "b", &At::Head).await?;
        let of = Change::default()
            .person("ada", 99)
            .without("bob")
            .person("eve", 5);
        let write = prepare(catalog, &mut stage, &seen, &of).await?;
        write_graph(catalog, stage, write).await.map(drop)
    }
    .boxed()
}

fn is_changed(heads: &Heads) -> bool {
    let people = &heads["b"].people;
    let ada = people.get("ada").and_then(|(age, _)| *age);
    ada == Some(99) && people.contains_key("eve") && !people.contains_key("bob")
}

#[test]
fn an_optimisation_never_makes_a_write_fail() {
    explore(
        [
            |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
            change_b,
        ],
        |outcomes, heads| outcomes.iter().all(Option::is_none) && is_changed(heads),
    );
}

#[test]
fn two_optimisations_leave_every_row() {
    explore(
        [
            |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
            |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
        ],
        |outcomes, heads| {
            outcomes.iter().all(Option::is_none) && heads["b"].people.contains_key("bob")
        },
    );
}

#[test]
fn an_optimisation_never_makes_a_merge_fail() {
    explore(
        [
            |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
            |c| async move { merge(c, merge_of("c", "b")).await.map(drop) }.boxed(),
        ],
        |outcomes, heads| {
            outcomes.iter().all(Option::is_none) && heads["b"].people.contains_key("gil")
        },
    );
}

#[test]
fn an_optimisation_never_makes_a_deletion_fail() {
    explore(
        [
            |c| async move { optimize(c, "b").await.map(drop) }.boxed(),
            |c| async move { delete(c, "b").await.map(drop) }.boxed(),
        ],
        |outcomes, heads| match outcomes {
            [None | Some("NotFound"), None] => !heads.contains_key("b"),
            _ => false,
        },
    );
}

#[test]
fn a_pinned_state_survives_an_expiry_or_was_never_pinned() {
    explore_deleting(
        [
            |c| async move { pin_past(c).await }.boxed(),
            |c| async move { c.expire(expire_request("main", u64::MAX)).await.map(drop) }.boxed(),
        ],
        |outcomes, _| {
            matches!(
                outcomes,
                [
                    None | Some(
                        "HistoricalVersionReclaimed"
                            | "VersionUnavailable"
                            | "NotFound"
                            | "Storage"
                    ),
                    None
                ]
            )
        },
    );
}

async fn pin_past(catalog: &Arc<Catalog>) -> Result<()> {
    let past = state(catalog, "main", &At::Catalog(2)).await?;
    let table = past.table(catalog.store(), PERSON).await?;
    catalog.create_pin(name("p"), &table, None).await.map(drop)
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
