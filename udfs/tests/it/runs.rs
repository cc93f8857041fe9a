//! When a verb runs: in execute, completely, once a plan; never at planning.

use datafusion::prelude::SessionContext;

use crate::world::{World, docs};

/// Runs of a refresh are counted by scans of its source.
async fn runs(world: &World, sql: &str) -> usize {
    let before = world.docs.scans();
    world.sql(sql).await;
    world.docs.scans() - before
}

#[tokio::test]
async fn a_plan_runs_a_verb_once() {
    let world = World::generated(&docs(10)).await;
    for (sql, expected) in [
        ("SELECT * FROM refresh_embeddings('t')", 1),
        ("SELECT count(*) FROM refresh_embeddings('t')", 1),
        ("SELECT * FROM refresh_embeddings('t') LIMIT 1", 1),
        ("SELECT * FROM refresh_embeddings('t') LIMIT 0", 0),
        ("SELECT * FROM refresh_embeddings('t') WHERE false", 0),
        (
            "SELECT * FROM refresh_embeddings('t') WHERE live_rows > 99",
            1,
        ),
        ("EXPLAIN SELECT * FROM refresh_embeddings('t')", 0),
        ("EXPLAIN ANALYZE SELECT * FROM refresh_embeddings('t')", 1),
        (
            "WITH r AS (SELECT * FROM refresh_embeddings('t')) SELECT * FROM r UNION ALL SELECT * FROM r",
            1,
        ),
        (
            "SELECT * FROM refresh_embeddings('t') a JOIN embedding_tables() e ON a.\"table\" = e.\"table\"",
            1,
        ),
        (
            "SELECT 1 WHERE EXISTS (SELECT * FROM refresh_embeddings('t'))",
            1,
        ),
        ("CREATE VIEW v AS SELECT * FROM refresh_embeddings('t')", 0),
        ("SELECT * FROM v", 1),
        ("SELECT * FROM v", 1),
        ("PREPARE p AS SELECT * FROM refresh_embeddings('t')", 0),
        ("EXECUTE p", 1),
        ("EXECUTE p", 1),
        ("CREATE TABLE r AS SELECT * FROM refresh_embeddings('t')", 1),
    ] {
        assert_eq!(runs(&world, sql).await, expected, "{sql}");
    }
    let frame = world
        .ctx
        .sql("SELECT * FROM refresh_embeddings('t')")
        .await
        .unwrap();
    let before = world.docs.scans();
    frame.clone().collect().await.unwrap();
    frame.collect().await.unwrap();
    assert_eq!(
        world.docs.scans() - before,
        2,
        "a frame collected twice runs twice"
    );
}

#[tokio::test]
async fn a_parameter_arrives() {
    let world = World::generated(&docs(10)).await;
    world
        .sql("PREPARE p(VARCHAR) AS SELECT outcome FROM refresh_embeddings($1)")
        .await;
    assert_eq!(world.row("EXECUTE p('t')").await, ["no_change"]);
    world
        .sql("PREPARE s(VARCHAR, BIGINT) AS SELECT _row_id FROM search('t', $1, $2)")
        .await;
    assert_eq!(
        world
            .sql("EXECUTE s('title 3 amber body 3', 2)")
            .await
            .len(),
        2
    );
}

#[tokio::test]
async fn dropping_a_statement_changes_nothing() {
    let world = World::generated(&docs(10)).await;
    let mut rows = docs(10);
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    let frame = world
        .ctx
        .sql("SELECT * FROM refresh_embeddings('t')")
        .await
        .unwrap();
    drop(frame.execute_stream().await.unwrap());
    assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 1);
    let row = world
        .row("SELECT outcome FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["published"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_reads_the_version_that_it_pinned() {
    let world = World::generated(&docs(10)).await;
    let one =
        "SELECT count(*) FROM search('t', 'body', 100) s JOIN sg.embeddings.t t USING (_row_id)";
    assert_eq!(world.row(one).await, ["10"]);
    let _: &SessionContext = &world.ctx;
    let twice = world
        .row("SELECT (SELECT max(similarity) FROM search('t', 'title 1', 1)) > (SELECT max(similarity) FROM search('t', 'zzz', 1))")
        .await;
    assert_eq!(
        twice,
        ["true"],
        "two calls with different arguments are two"
    );
}
