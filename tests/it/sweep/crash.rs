//! Every store call of every verb x every fault; then the same with a second crash in the rerun.

use std::sync::Arc;

use object_store::ObjectStore;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Rng};

use super::verbs::{Stage, Verb, state, verbs};
use crate::support::audit::{Told, audit, no_orphans, process};

const FAULTS: [Fault; 7] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
    Fault::Delayed(2),
    Fault::Duplicated(3),
];

/// Runs a future on a runtime of its own, one thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// Number of store calls of a verb in a new process without faults.
async fn calls(verb: &Verb, stage: &Stage) -> u64 {
    let handle = FaultStore::new(Arc::new(stage.base.fork()));
    verb.run(&process(handle.store(), 5), &stage.source)
        .await
        .1
        .unwrap();
    handle.calls()
}

/// One run that meets `fault` at call `at`; then reopen, check, rerun, check.
async fn run(verb: &Verb, stage: &Stage, at: u64, fault: Fault, second: Option<(u64, Fault)>) {
    let what = format!("{} with {fault:?} at call {at}, then {second:?}", verb.name);
    let base = FaultBase::new(Arc::new(stage.base.fork()));
    let store = base.store();
    let mut told = Told::default();
    let handle = FaultStore::on(&base);
    handle.plan(at, fault);
    let (txn, outcome) = verb.run(&process(handle.store(), 5), &stage.source).await;
    let acked = outcome.is_ok();
    told.tell(txn, &outcome);
    if second.is_none() {
        check(&store, stage, acked, &told, &what).await;
    }
    base.settle().await;
    if second.is_none() {
        check(&store, stage, acked, &told, &what).await;
    }
    if let Some((at, fault)) = second {
        let handle = FaultStore::on(&base);
        handle.plan(at, fault);
        let (txn, outcome) = verb.run(&process(handle.store(), 6), &stage.source).await;
        told.tell(txn, &outcome);
        base.settle().await;
        check(&store, stage, acked, &told, &what).await;
    }
    let again = process(Arc::clone(&store), 7);
    verb.finish(&again, &stage.source)
        .await
        .unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
    let found = state(&process(Arc::clone(&store), 8)).await.unwrap();
    assert_eq!(found.table, stage.after.table, "{what}: after the rerun");
    no_orphans(Arc::clone(&store), 9)
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    audit(store, &told)
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
}

async fn check(store: &Arc<dyn ObjectStore>, stage: &Stage, acked: bool, told: &Told, what: &str) {
    let found = state(&process(Arc::clone(store), 10)).await;
    let found = found.unwrap_or_else(|e| panic!("{what}: unreadable: {e}"));
    // A verb that was run twice may have published once more; its content is the same.
    let done =
        found == stage.after || found.table == stage.after.table && found.pins == stage.after.pins;
    assert!(done || !acked && found == stage.before, "{what}: {found:?}");
    audit(Arc::clone(store), told)
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn every_call_of_every_verb_meets_every_fault() {
    let mut runs = 0;
    for verb in verbs() {
        let stage = block_on(verb.stage());
        let calls = block_on(calls(&verb, &stage));
        for at in 0..calls {
            for fault in FAULTS {
                block_on(run(&verb, &stage, at, fault, None));
                runs += 1;
            }
        }
        println!("{}: {calls} calls", verb.name);
    }
    println!("{runs} runs");
}

#[test]
fn a_second_crash_in_the_rerun() {
    let sampled = if std::env::var_os("SOAK").is_some() {
        25_000
    } else {
        2_000
    };
    let staged: Vec<(Verb, Stage, u64)> = verbs()
        .into_iter()
        .map(|verb| {
            let stage = block_on(verb.stage());
            let calls = block_on(calls(&verb, &stage));
            (verb, stage, calls)
        })
        .collect();
    let mut rng = Rng::new(7);
    for _ in 0..sampled {
        let (verb, stage, calls) = &staged[rng.below(staged.len() as u64) as usize];
        let mut pick = || {
            let fault = FAULTS[rng.below(FAULTS.len() as u64) as usize];
            (rng.below(*calls), fault)
        };
        let ((at, fault), second) = (pick(), pick());
        block_on(run(verb, stage, at, fault, Some(second)));
    }
    println!("{sampled} double crashes");
}
