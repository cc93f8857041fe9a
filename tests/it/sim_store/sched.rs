use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use object_store::{ObjectStore, PutMode};
use stratagraph::sim::{Explorer, Fault, FaultBase, Scheduler, World};

use super::{create, find, keys, memory, put, read};

type Seen = Arc<Mutex<Vec<String>>>;

/// Two actors of `calls` puts each; every order of calls that is run is added to `seen`.
async fn two_writers(sched: Scheduler, calls: usize, seen: Seen) -> World {
    let base = FaultBase::new(memory());
    let mut world = World::new();
    for actor in 0..2 {
        let store = sched.store_on(actor, &base).store();
        world = world.actor(async move {
            for n in 0..calls {
                create(&*store, &format!("{actor}/{n}"), "x").await.unwrap();
            }
        });
    }
    world.check(async move {
        let order = sched.trace().iter().map(|s| s.actor.to_string()).collect();
        seen.lock().unwrap().push(order);
        Ok(())
    })
}

#[test]
fn two_actors_of_four_calls_have_seventy_orders() {
    let seen = Seen::default();
    let explored = Explorer::new()
        .all(async |sched| two_writers(sched, 4, Arc::clone(&seen)).await)
        .unwrap();
    assert!(explored.complete);
    assert_eq!(explored.runs, 70);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 70);
}

#[test]
fn an_enumeration_stops_at_its_limits() {
    let seen = Seen::default();
    let build = async |sched| two_writers(sched, 4, Arc::clone(&seen)).await;
    let explored = Explorer::new().runs_max(10).all(build).unwrap();
    assert_eq!((explored.runs, explored.complete), (10, false));
    let violation = Explorer::new().steps_max(7).all(build).unwrap_err();
    assert!(
        violation.message.contains("more than 7 calls"),
        "{violation}"
    );
}

/// An actor that stages two objects at once, in tasks of their own, and then makes a shared call.
async fn staging_writers(sched: Scheduler) -> World {
    let base = FaultBase::new(memory());
    let mut world = World::new();
    for actor in 0..3 {
        let store = sched.store_on(actor, &base).store();
        world = world.actor(async move {
            let staged = (0..2).map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    create(&*store, &format!("t/{actor}-{n}"), "x").await
                })
            });
            for done in futures::future::join_all(staged).await {
                done.unwrap().unwrap();
            }
            let _ = create(&*store, "catalog/1", &actor.to_string()).await;
            read(&*store, "catalog/1").await.unwrap();
        });
    }
    let check = base.store();
    world.check(async move {
        match keys(&*check, None).await.len() {
            7 => Ok(()),
            n => Err(format!("{n} objects")),
        }
    })
}

#[test]
fn only_shared_keys_are_ordered() {
    let explorer = Explorer::new().branch_on(|step| step.key.starts_with("catalog/"));
    let explored = explorer.all(staging_writers).unwrap();
    // Three actors of two calls each: 6! / 2!^3.
    assert_eq!(
        (explored.runs, explored.complete, explored.depth),
        (90, true, 6)
    );
}

#[test]
fn equal_choices_give_equal_calls() {
    let explorer = Explorer::new();
    let choices = [2, 1, 3, 0, 0, 2, 1];
    let first = explorer.replay(3, &choices, staging_writers).unwrap();
    let second = explorer.replay(3, &choices, staging_writers).unwrap();
    let other = explorer.replay(3, &[0, 0, 0], staging_writers).unwrap();
    assert_eq!(first, second);
    assert_ne!(first, other);
    assert_eq!(first.len(), 12);
}

/// Two actors that each add one by reading and overwriting: an update can be lost.
async fn lost_update(sched: Scheduler) -> World {
    let base = FaultBase::new(memory());
    put(&*base.store(), "n", "0", PutMode::Overwrite)
        .await
        .unwrap();
    let add = |store: Arc<dyn ObjectStore>| async move {
        let read = read(&*store, "n").await.unwrap();
        let n: u32 = String::from_utf8_lossy(&read).parse().unwrap();
        put(&*store, "n", &(n + 1).to_string(), PutMode::Overwrite)
            .await
            .unwrap();
    };
    let check = base.store();
    World::new()
        .actor(add(sched.store_on(0, &base).store()))
        .actor(add(sched.store_on(1, &base).store()))
        .check(async move {
            assert_eq!(find(&*check, "n").await.unwrap(), "2");
            Ok(())
        })
}

#[test]
fn a_lost_update_is_found_and_replayed() {
    let explorer = Explorer::new();
    let found = explorer.all(lost_update).unwrap_err();
    assert_eq!(found.trace.len(), 4);
    let again = explorer.replay(found.seed, &found.choices, lost_update);
    assert_eq!(again.unwrap_err(), found);
    let found = explorer.pct(0..100, 2, 4, lost_update).unwrap_err();
    let again = explorer.replay(found.seed, &found.choices, lost_update);
    assert_eq!(again.unwrap_err(), found);
    // Without a preemption one actor finishes before the other begins.
    assert_eq!(explorer.pct(0..50, 0, 4, lost_update).unwrap().runs, 50);
}

#[test]
fn a_panic_of_an_actor_is_a_violation() {
    let build = async |sched: Scheduler| {
        let store = sched.store(0, memory());
        World::new().actor(async move {
            read(&store, "none").await.unwrap();
        })
    };
    let violation = Explorer::new().all(build).unwrap_err();
    assert!(violation.message.contains("NotFound"), "{violation}");
    assert_eq!(violation.trace[0].to_string(), "0: GET none");
}

#[test]
fn faults_meet_interleavings_and_hung_actors_are_left_behind() {
    let build = async |sched: Scheduler| {
        let base = FaultBase::new(memory());
        let (hung, other) = (sched.store_on(0, &base), sched.store_on(1, &base));
        hung.plan(0, Fault::Delayed(1));
        hung.plan(1, Fault::Hang);
        World::new()
            .actor(async move {
                create(&hung, "slot", "0").await.unwrap_err();
                let _ = read(&hung, "slot").await;
                unreachable!("the call hangs");
            })
            .actor(async move {
                let _ = create(&other, "slot", "1").await;
                find(&other, "slot").await.unwrap();
            })
    };
    let explored = Explorer::new().hung_ok().all(build).unwrap();
    assert_eq!((explored.runs, explored.complete), (6, true));
}

#[test]
fn a_dropped_call_no_longer_waits() {
    let build = async |sched: Scheduler| {
        let store = sched.store(0, memory());
        World::new().actor(async move {
            let dropped = tokio::spawn({
                let store = store.clone();
                async move { create(&store, "dropped", "x").await }
            });
            tokio::task::yield_now().await;
            dropped.abort();
            create(&store, "kept", "x").await.unwrap();
        })
    };
    let explorer = Explorer::new();
    assert_eq!(explorer.all(build).unwrap().runs, 1);
    assert_eq!(explorer.replay(0, &[], build).unwrap().len(), 1);
}

#[test]
fn a_world_that_changes_is_noticed() {
    let runs = Mutex::new(0);
    let build = async |sched: Scheduler| {
        let run = {
            let mut runs = runs.lock().unwrap();
            *runs += 1;
            *runs
        };
        let store = sched.store(run % 2, memory());
        let other = sched.store(5, memory());
        let calls = 1 + run % 2;
        World::new()
            .actor(async move {
                for n in 0..calls {
                    create(&store, &n.to_string(), "x").await.unwrap();
                }
            })
            .actor(async move { create(&other, "x", "x").await.unwrap() })
    };
    let violation = Explorer::new().all(build).unwrap_err();
    assert!(violation.message.contains("not repeatable"), "{violation}");
}
