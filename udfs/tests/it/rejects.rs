//! Rows that a model refuses: for good they are remembered, in passing they are tried again.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use stratagraph::embed::RejectReason;
use stratagraph::embed::testing::{Fault, FaultyEmbedder};

use crate::world::{Doc, World, counting, doc, docs, strings};

fn with_empty() -> Vec<Doc> {
    let mut rows = docs(10);
    rows.push((Some("empty".to_owned()), Some(String::new()), None));
    rows.push(doc("space", " ", " \t"));
    rows
}

const REPORT: &str = "SELECT inferred_rows, added, changed, deleted, unchanged, dropped_rows, live_rows, rejected_rows, outcome FROM refresh_embeddings('t')";

#[tokio::test]
async fn an_unchanged_reject_is_unchanged() {
    let world = World::new().await;
    world.docs.set(&with_empty());
    let report = world.generate("t").await;
    assert_eq!(report[0][..4], strings(&["t", "0", "10", "2"]));
    let rejected = world.sql("SELECT * FROM rejected_rows('t')").await;
    assert_eq!(
        rejected,
        [
            strings(&["empty", "empty"]),
            strings(&["space", "zero_norm"])
        ]
    );
    world.model.reset();
    for _ in 0..2 {
        let row = world.row(REPORT).await;
        assert_eq!(
            row,
            strings(&["0", "0", "0", "0", "12", "0", "10", "2", "no_change"])
        );
    }
    let plan = world.row("SELECT * FROM refresh_plan('t')").await;
    assert_eq!(plan, strings(&["0", "0", "0", "12", "2"]));

    let mut rows = with_empty();
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["1", "0", "1", "0", "11", "0", "10", "2", "published"])
    );
    assert_eq!(world.model.rows(), 1);
}

#[tokio::test]
async fn a_reject_that_is_edited_or_gone_leaves_the_ledger() {
    let world = World::new().await;
    world.docs.set(&with_empty());
    world.generate("t").await;
    let mut rows = with_empty();
    rows[10].1 = Some("text".to_owned());
    world.docs.set(&rows);
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["1", "1", "0", "0", "11", "0", "11", "1", "published"])
    );
    // A reject that leaves the source causes no version, and goes with the next one.
    rows.truncate(11);
    world.docs.set(&rows);
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["0", "0", "0", "0", "11", "0", "11", "1", "no_change"])
    );
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["1", "0", "1", "0", "10", "0", "11", "0", "published"])
    );
    assert!(
        world
            .sql("SELECT * FROM rejected_rows('t')")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_passing_failure_is_tried_again() {
    let counted = counting();
    let faulty = Arc::new(FaultyEmbedder::new("counting", Arc::clone(&counted) as _));
    faulty.set(Some(Fault::Reject {
        needle: "k2".to_owned(),
        reason: RejectReason::Rejected,
    }));
    let ctx = SessionContext::new();
    let store = Arc::new(InMemory::new());
    let world = World::with(ctx, store, 1, Arc::clone(&faulty) as _, counted).await;
    let rows: Vec<Doc> = (0..5)
        .map(|i| doc(&format!("k{i}"), &format!("k{i}"), "b"))
        .collect();
    world.docs.set(&rows);
    let report = world.generate("t").await;
    assert_eq!(report[0][..4], strings(&["t", "0", "4", "1"]));
    assert!(
        world
            .sql("SELECT * FROM rejected_rows('t')")
            .await
            .is_empty()
    );
    // It is added again, and fails again: a version without a fragment and without a change of rows.
    let row = world.row(REPORT).await;
    assert_eq!(row[..8], strings(&["1", "1", "0", "0", "4", "1", "4", "0"]));
    faulty.set(None);
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["1", "1", "0", "0", "4", "0", "5", "0", "published"])
    );
    let row = world.row(REPORT).await;
    assert_eq!(
        row,
        strings(&["0", "0", "0", "0", "5", "0", "5", "0", "no_change"])
    );
}

#[tokio::test]
async fn a_failing_model_changes_nothing() {
    let counted = counting();
    let faulty = Arc::new(FaultyEmbedder::new("counting", Arc::clone(&counted) as _));
    let (ctx, store) = (SessionContext::new(), Arc::new(InMemory::new()));
    let world = World::with(ctx, store, 1, Arc::clone(&faulty) as _, counted).await;
    world.docs.set(&docs(5));
    world.generate("t").await;
    let mut rows = docs(5);
    rows[1].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    for fault in [
        Fault::FailAfter { calls: 0 },
        Fault::WrongWidth,
        Fault::MissingVector,
        Fault::Component(f32::NAN),
        Fault::ZeroVector,
        Fault::WrongErrors,
    ] {
        faulty.set(Some(fault.clone()));
        assert_eq!(world.code(REPORT).await, "ModelFailed", "{fault:?}");
    }
    assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 1);
    faulty.set(None);
    assert_eq!(world.row(REPORT).await[8], "published");
}
