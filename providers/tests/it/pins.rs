//! One snapshot per execution, whatever the statement looks like.

use std::sync::Arc;

use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::world::{Change, World, code, one, query, rows};

async fn world() -> (World, World, SessionContext) {
    let world = World::new();
    world.publish("t", Change::add(rows(0..10, 1))).await;
    let ctx = world
        .session(SessionConfig::new().with_target_partitions(2))
        .await;
    let other = world.other();
    (world, other, ctx)
}

async fn grow(other: &World, from: usize) {
    other
        .publish("t", Change::add(rows(from..from + 1, 1)))
        .await;
}

const T: &str = "sg.embeddings.t";

#[tokio::test]
async fn every_execution_looks_again() {
    let (_world, other, ctx) = world().await;
    let count = format!("select count(*) from {T}");
    query(&ctx, &format!("create view v as select * from {T}"))
        .await
        .unwrap();
    query(&ctx, &format!("prepare p as {count}")).await.unwrap();
    let frame = ctx.sql(&count).await.unwrap();
    let view_of_frame = ctx
        .sql(&format!("select * from {T}"))
        .await
        .unwrap()
        .into_view();
    ctx.register_table("fv", view_of_frame).unwrap();
    for i in 0..3 {
        let expected = (10 + i).to_string();
        assert_eq!(one(&ctx, &count).await, expected);
        assert_eq!(one(&ctx, "select count(*) from v").await, expected);
        assert_eq!(one(&ctx, "select count(*) from fv").await, expected);
        assert_eq!(one(&ctx, "execute p").await, expected);
        let collected = frame.clone().collect().await.unwrap();
        assert_eq!(super::world::lines(&collected).join(";"), expected);
        assert_eq!(frame.clone().count().await.unwrap(), 1);
        grow(&other, 10 + i).await;
    }
    // An optimised plan that runs again is pinned again.
    let optimised = ctx
        .sql(&count)
        .await
        .unwrap()
        .into_optimized_plan()
        .unwrap();
    for i in 13..15 {
        let again = ctx.execute_logical_plan(optimised.clone()).await.unwrap();
        let found = super::world::lines(&again.collect().await.unwrap());
        assert_eq!(found, [i.to_string()]);
        grow(&other, i).await;
    }
}

#[tokio::test]
async fn all_scans_of_a_statement_read_one_version() {
    let (_world, other, ctx) = world().await;
    let shapes = [
        format!("select count(*) from {T} a join {T} b on a._row_id = b._row_id"),
        format!("select count(*) from {T} where _row_id in (select _row_id from {T})"),
        format!(
            "select count(*) from {T} a where exists (select 1 from {T} b where a._row_id = b._row_id)"
        ),
        format!("select (select count(*) from {T}) from {T} where _row_id = 'k000000'"),
        format!("with c as (select * from {T}) select count(*) from c a join c b using (_row_id)"),
        format!("select count(*) from (select * from {T} union select * from {T})"),
        format!(
            "select count(*) from {T} a full join {T} b using (_row_id) where a.n is not distinct from b.n"
        ),
    ];
    for sql in &shapes {
        let planned = ctx.sql(sql).await.unwrap();
        let before = one(&ctx, &format!("select count(*) from {T}")).await;
        // Planned before, executed after: the commit between is seen, by all scans or by none.
        let physical = planned.clone().create_physical_plan().await.unwrap();
        let next: usize = before.parse().unwrap();
        grow(&other, next).await;
        let found = super::world::lines(&collect(physical, ctx.task_ctx()).await.unwrap());
        assert_eq!(found.join(";"), before, "{sql}");
        let after = planned.collect().await.unwrap();
        assert_eq!(
            super::world::lines(&after),
            [(next + 1).to_string()],
            "{sql}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_between_two_scans_do_not_show() {
    let (_world, other, ctx) = world().await;
    let writer = tokio::spawn(async move {
        for i in 10..40 {
            grow(&other, i).await;
            tokio::task::yield_now().await;
        }
    });
    let sql = format!(
        "select (select count(*) from {T}) - (select count(*) from {T} a join {T} b using (_row_id))"
    );
    while !writer.is_finished() {
        assert_eq!(one(&ctx, &sql).await, "0");
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn hosts_without_the_rule_pin_by_statement() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..10, 1))).await;
    let ctx = world.bare_session(SessionConfig::new()).await;
    let other = world.other();
    let join = format!("select count(*) from {T} a join {T} b using (_row_id)");
    for i in 10..13 {
        assert_eq!(one(&ctx, &join).await, i.to_string());
        grow(&other, i).await;
    }
}

#[tokio::test]
async fn versions_stay_what_they_are() {
    let (world, other, ctx) = world().await;
    grow(&other, 10).await;
    grow(&other, 11).await;
    for (sql, expected) in [
        (format!("select count(*) from {T}"), "12"),
        (format!("select count(*) from {T} with (version = 0)"), "10"),
        (format!("select count(*) from {T} as x with (version = 1)"), "11"),
        ("select count(*) from sg.embeddings.\"t@1\"".to_owned(), "11"),
        ("select count(*) from sg.embeddings.\"t@2\"".to_owned(), "12"),
        (
            format!("select (select count(*) from {T} with (version = 0)) a, (select count(*) from {T} with (version = 1)) b, (select count(*) from {T}) c"),
            "10|11|12",
        ),
        (
            format!("select count(*) from {T} with (version = 1) where _row_id not in (select _row_id from {T} with (version = 0))"),
            "1",
        ),
        (
            format!("select count(*) from (select _row_id from {T} with (version = 2) except select _row_id from {T} with (version = 0))"),
            "2",
        ),
        (
            "select count(*) from sg.embeddings.\"t@2\" a left join sg.embeddings.\"t@0\" b using (_row_id) where b.vector is null".to_owned(),
            "2",
        ),
        (format!("select max(t._row_id) from {T} as t with (version = 1)"), "k000010"),
        (format!("select max(t._row_id) from {T} with (version = 1)"), "k000010"),
    ] {
        assert_eq!(one(&ctx, &sql).await, expected, "{sql}");
    }
    query(
        &ctx,
        &format!("create view old as select * from {T} with (version = 0)"),
    )
    .await
    .unwrap();
    grow(&other, 12).await;
    assert_eq!(one(&ctx, "select count(*) from old").await, "10");
    assert_eq!(one(&ctx, &format!("select count(*) from {T}")).await, "13");
    // A version that does not exist plans, and its scan says so.
    for sql in [
        format!("select count(*) from {T} with (version = 99)"),
        "select count(*) from sg.embeddings.\"t@99\"".to_owned(),
    ] {
        assert_eq!(code(&ctx, &sql).await, "VersionUnavailable", "{sql}");
        let explained = query(&ctx, &format!("explain {sql}")).await.unwrap();
        assert!(
            explained.join("\n").contains("VersionUnavailable"),
            "{explained:?}"
        );
    }
    drop(world);
}

#[tokio::test]
async fn a_plan_holds_its_snapshot() {
    let (world, other, ctx) = world().await;
    let frame = ctx.sql(&format!("select count(n) from {T}")).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    grow(&other, 10).await;
    // The pin of the plan keeps an older head registered; releasing the plan releases it.
    let held = |world: &World| format!("{:?}", world.catalog).contains("pinned: {1:");
    assert!(held(&world), "{:?}", world.catalog);
    collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap();
    drop(plan);
    assert!(!held(&world), "{:?}", world.catalog);
}

#[tokio::test]
async fn a_host_may_accept_an_older_snapshot() {
    let (_world, other, ctx) = world().await;
    let count = format!("select count(*) from {T}");
    assert_eq!(one(&ctx, &count).await, "10");
    query(&ctx, "set stratagraph.max_staleness = '1m'")
        .await
        .unwrap();
    grow(&other, 10).await;
    assert_eq!(one(&ctx, &count).await, "10");
    query(&ctx, "set stratagraph.max_staleness = 0")
        .await
        .unwrap();
    assert_eq!(one(&ctx, &count).await, "11");
}
