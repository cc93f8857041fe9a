//! Two refreshes at a time: one waits in its model while the other publishes.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use stratagraph_udfs::RefreshReport;

use crate::models::GateEmbedder;
use crate::world::{Doc, World, counting, doc, docs};

/// Session `slow` waits with its texts in the model until `fast` has published.
async fn race(slow_rows: &[Doc], fast_rows: &[Doc]) -> (RefreshReport, RefreshReport, World) {
    let store = Arc::new(InMemory::new());
    let fast = World::over(Arc::clone(&store), 1).await;
    fast.docs.set(&docs(20));
    fast.generate("t").await;

    let counted = counting();
    let gate = GateEmbedder::new(Arc::clone(&counted) as _);
    let ctx = SessionContext::new();
    let slow = World::with(ctx, store, 2, Arc::clone(&gate) as _, counted).await;
    slow.docs.set(slow_rows);
    fast.docs.set(fast_rows);
    let sg = slow.sg.clone();
    let running = tokio::spawn(async move { sg.refresh_embeddings("t", Default::default()).await });
    gate.entered().await;
    let first = fast
        .sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    gate.release(1_000);
    let second = running.await.unwrap().unwrap();
    (first, second, slow)
}

fn edited(edits: &[(usize, &str)]) -> Vec<Doc> {
    let mut rows = docs(20);
    for (row, text) in edits {
        rows[*row].1 = Some((*text).to_owned());
    }
    rows
}

#[tokio::test]
async fn disjoint_keys_are_rebased_without_a_second_scan() {
    let (first, second, world) = race(&edited(&[(1, "slow")]), &edited(&[(2, "fast")])).await;
    assert_eq!((first.version, first.attempts), (1, 1));
    assert_eq!(
        (second.version, second.parent_version, second.attempts),
        (2, Some(1), 2)
    );
    assert_eq!(
        (
            second.outcome.as_str(),
            second.changed,
            second.inferred_rows
        ),
        ("published", 1, 1)
    );
    assert_eq!((world.docs.scans(), world.model.rows()), (1, 1));
    assert_eq!((second.live_rows, second.masked_rows), (20, 2));
    // The version is not the state of one source: the next refresh compares.
    let row = world
        .row("SELECT outcome, changed FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["published", "1"]);
}

#[tokio::test]
async fn the_same_keys_are_compared_again_and_nothing_is_embedded_twice() {
    let slow = edited(&[(1, "slow one"), (2, "slow two"), (3, "same")]);
    let mut fast = edited(&[(1, "fast one"), (3, "same")]);
    fast.push(doc("new", "by", "fast"));
    let (first, second, world) = race(&slow, &fast).await;
    assert_eq!((first.changed, first.added), (2, 1));
    assert_eq!((second.version, second.attempts), (2, 2));
    // Against the winner's version: row 3 is there already, `new` is not in the slow source.
    assert_eq!((second.changed, second.added, second.deleted), (2, 0, 1));
    assert_eq!((second.inferred_rows, world.model.rows()), (3, 3));
    let texts = world.model.texts();
    let mut unique = texts.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), texts.len(), "{texts:?}");
    let hits = world
        .sql("SELECT _row_id FROM search('t', 'slow one green body 1', 1)")
        .await;
    assert_eq!(hits.concat(), ["k0001"]);
    let row = world
        .row("SELECT outcome, live_rows FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["no_change", "20"]);
}

#[tokio::test]
async fn equal_refreshes_publish_once() {
    let rows = edited(&[(1, "a"), (2, "b")]);
    let (first, second, world) = race(&rows, &rows).await;
    assert_eq!(
        (first.outcome.as_str(), second.outcome.as_str()),
        ("published", "no_change")
    );
    assert_eq!(
        (second.version, second.attempts, second.unchanged),
        (1, 2, 20)
    );
    assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 2);
}

#[tokio::test]
async fn a_table_that_is_dropped_meanwhile_is_typed() {
    let store = Arc::new(InMemory::new());
    let fast = World::over(Arc::clone(&store), 1).await;
    fast.docs.set(&docs(5));
    fast.generate("t").await;
    let counted = counting();
    let gate = GateEmbedder::new(Arc::clone(&counted) as _);
    let slow = World::with(
        SessionContext::new(),
        store,
        2,
        Arc::clone(&gate) as _,
        counted,
    )
    .await;
    slow.docs.set(&edited(&[(1, "slow")])[..5]);
    let sg = slow.sg.clone();
    let running = tokio::spawn(async move { sg.refresh_embeddings("t", Default::default()).await });
    gate.entered().await;
    fast.sg.drop_embeddings("t").await.unwrap();
    fast.generate("t").await;
    gate.release(100);
    assert_eq!(running.await.unwrap().unwrap_err().code(), "ParentMoved");
}
