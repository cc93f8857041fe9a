//! Which calls a statement makes, and what it answers when one of them fails.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use roaring::RoaringBitmap;
use stratagraph::Error;
use stratagraph::ident::Name;
use stratagraph::sim::{Fault, FaultStore};
use stratagraph_providers::{PinRule, find_error};

use super::world::{Change, World, code, one, query, rows};

const READS: [&str; 4] = [
    "select count(*) from sg.embeddings.t",
    "select sum(n), count(city), max(_row_id) from sg.embeddings.t",
    "select count(*) from sg.embeddings.t a join sg.embeddings.\"t@0\" b using (_row_id)",
    "select _row_id from sg.embeddings.t with (version = 1) where city = 'c1' order by 1 limit 3",
];

async fn world(rows_of_base: usize) -> World {
    let world = World::new();
    world
        .publish("t", Change::add(rows(0..rows_of_base, 1)))
        .await;
    let mut change = Change::add_masked(
        rows(rows_of_base..rows_of_base + 50, 1),
        RoaringBitmap::from_iter([3]),
    );
    change.kill.insert(
        0,
        RoaringBitmap::from_iter((0..rows_of_base as u32).step_by(5)),
    );
    world.publish("t", change).await;
    world
}

#[tokio::test]
async fn a_warm_statement_looks_once() {
    let world = world(300).await;
    let faults = FaultStore::new(Arc::clone(world.store.inner()));
    let process = world.through(faults.store());
    let ctx = process.session(SessionConfig::new()).await;
    for sql in READS {
        let first = query(&ctx, sql).await.unwrap();
        faults.reset();
        assert_eq!(query(&ctx, sql).await.unwrap(), first);
        let trace = faults.canonical_trace();
        assert_eq!(trace.trim(), "LIST offset catalog", "{sql}");
    }
    // No call at all while an older snapshot is good enough.
    query(&ctx, "set stratagraph.max_staleness = '10m'")
        .await
        .unwrap();
    faults.reset();
    query(&ctx, READS[1]).await.unwrap();
    assert_eq!(faults.canonical_trace(), "");
}

#[tokio::test]
async fn a_failing_call_is_a_typed_error_or_does_not_matter() {
    let world = world(700).await;
    for sql in READS {
        let ctx = world.other().session(SessionConfig::new()).await;
        let right = query(&ctx, sql).await.unwrap();
        for fault in [Fault::FailBefore, Fault::ShortRead] {
            for number in 0.. {
                let faults = FaultStore::new(Arc::clone(world.store.inner()));
                let process = world.through(faults.store());
                let config = SessionConfig::new().with_target_partitions(2);
                let ctx = process.cold_session(config);
                ctx.add_analyzer_rule(Arc::new(PinRule));
                faults.plan(number, fault);
                let plain = sql.replace(" with (version = 1)", "");
                match query(&ctx, &plain).await {
                    Ok(found) => assert_eq!(found, right, "{fault:?} at {number}: {plain}"),
                    Err(error) => {
                        let found = find_error(&error).map(Error::code);
                        assert_eq!(
                            found,
                            Some("Storage"),
                            "{fault:?} at {number}: {plain}: {error}"
                        );
                    }
                }
                if faults.calls() <= number {
                    assert!(number > 4, "{plain}: {number}");
                    break;
                }
            }
        }
    }
}

#[test]
fn planning_hooks_wait_only_where_they_can() {
    let build = |mut builder: tokio::runtime::Builder| builder.enable_all().build().unwrap();
    let current = build(tokio::runtime::Builder::new_current_thread());
    let many = build(tokio::runtime::Builder::new_multi_thread());
    let name = Name::parse("t").unwrap();
    let world = many.block_on(world(30));
    let cold = world.other();
    let error = current
        .block_on(async { cold.metadata.table_now(&name) })
        .unwrap_err();
    assert_eq!(error.code(), "MetadataNotLoaded");
    let found = many
        .block_on(async { cold.metadata.table_now(&name) })
        .unwrap();
    assert_eq!(found.schema.fields().len(), 7);
    // Known now.
    assert!(
        current
            .block_on(async { cold.metadata.table_now(&name) })
            .is_ok()
    );
    let other = Name::parse("other").unwrap();
    let error = many
        .block_on(async { cold.metadata.table_now(&other) })
        .unwrap_err();
    assert_eq!(error.code(), "NotFound");
}

#[tokio::test]
async fn a_table_that_was_dropped_is_not_found() {
    let world = world(30).await;
    let ctx = world.session(SessionConfig::new()).await;
    let frame = ctx.sql(READS[0]).await.unwrap();
    let other = world.other();
    other
        .catalog
        .drop_dataset(&Name::parse("t").unwrap())
        .await
        .unwrap();
    let error = frame.clone().collect().await.unwrap_err();
    assert_eq!(find_error(&error).map(Error::code), Some("NotFound"));
    assert!(code(&ctx, READS[0]).await.contains("not found"));
    // Made again under the name: the plan reads the new table, whose columns have the old names.
    other.publish("t", Change::add(rows(0..4, 1))).await;
    let found = frame.collect().await.unwrap();
    assert_eq!(super::world::lines(&found), ["4"]);
    assert_eq!(one(&ctx, READS[0]).await, "4");
}
