//! Every verb dropped at every await: the old snapshot or the new one, never anything between.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use stratagraph::sim::{FaultBase, FaultStore, Gate, Op};

use super::crash::block_on;
use super::verbs::{Stage, Verb, state, verbs};
use crate::support::audit::{Told, audit, no_orphans, process};

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
    let finished = {
        let mut run = Box::pin(verb.run(&catalog, &stage.source));
        let mut finished = false;
        for _ in 0..polls {
            let once = std::future::poll_fn(|cx: &mut Context<'_>| Poll::Ready(run.poll_unpin(cx)));
            if let Poll::Ready((_, outcome)) = once.await {
                outcome.unwrap();
                finished = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        finished
    };
    // A commit that had put its slot goes on in a task of its own.
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    let store: Arc<dyn ObjectStore> = base.store();
    let what = format!("{} dropped after {polls} polls", verb.name);
    let found = state(&process(Arc::clone(&store), 6)).await.unwrap();
    let whole = found.table == stage.after.table || found.table == stage.before.table;
    assert!(
        whole && (!finished || found.table == stage.after.table),
        "{what}: {found:?}"
    );
    audit(Arc::clone(&store), &Told::default())
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let again = process(Arc::clone(&store), 7);
    verb.finish(&again, &stage.source)
        .await
        .unwrap_or_else(|e| panic!("{what}: rerun: {e}"));
    let found = state(&process(Arc::clone(&store), 8)).await.unwrap();
    assert_eq!(found.table, stage.after.table, "{what}");
    no_orphans(store, 9)
        .await
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    finished
}

#[test]
fn every_verb_is_dropped_at_every_await() {
    let mut runs = 0;
    for verb in verbs() {
        let stage = block_on(verb.stage());
        let mut polls = 1;
        while !block_on(interrupted(&verb, &stage, polls)) {
            polls += 1;
        }
        runs += polls;
    }
    println!("{runs} cancellations");
}
