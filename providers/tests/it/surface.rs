//! Names, settings, hints, and what an embedding table refuses.

use datafusion::prelude::SessionConfig;

use super::world::{Change, World, code, one, query, rows};

const T: &str = "sg.embeddings.t";

#[tokio::test]
async fn settings_work_with_set_and_show() {
    let ctx = World::new()
        .session(SessionConfig::new().with_information_schema(true))
        .await;
    for (set, show, expected) in [
        ("", "allow_writes", "true"),
        (
            "set stratagraph.allow_writes = false",
            "allow_writes",
            "false",
        ),
        ("", "max_staleness", "0"),
        (
            "set stratagraph.max_staleness = '1500ms'",
            "max_staleness",
            "1500ms",
        ),
        ("set stratagraph.max_staleness = 2", "max_staleness", "2"),
        ("", "ann", "exact"),
        ("set stratagraph.ann = auto", "ann", "auto"),
    ] {
        if !set.is_empty() {
            query(&ctx, set).await.unwrap();
        }
        let shown = one(&ctx, &format!("show stratagraph.{show}")).await;
        assert_eq!(shown, format!("stratagraph.{show}|{expected}"), "{set}");
    }
    for bad in [
        "ann = fast",
        "allow_writes = 3",
        "max_staleness = '-1'",
        "unknown = 1",
    ] {
        assert_eq!(
            code(&ctx, &format!("set stratagraph.{bad}")).await,
            "InvalidArgument",
            "{bad}"
        );
    }
    query(&ctx, "set datafusion.runtime.memory_limit = '1G'")
        .await
        .unwrap();
    assert_eq!(
        one(&ctx, "show stratagraph.ann").await,
        "stratagraph.ann|auto"
    );
}

#[tokio::test]
async fn the_catalog_lists_its_tables() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..3, 1))).await;
    world.publish("u.v-1", Change::add(rows(0..2, 1))).await;
    let ctx = world
        .session(SessionConfig::new().with_information_schema(true))
        .await;
    let listed = "select table_schema, table_name, table_type from information_schema.tables \
        where table_catalog = 'sg' and table_schema = 'embeddings' order by 2";
    let found = query(&ctx, listed).await.unwrap();
    assert_eq!(
        found,
        ["embeddings|t|BASE TABLE", "embeddings|u.v-1|BASE TABLE"]
    );
    let columns = "select column_name, data_type, is_nullable from information_schema.columns \
        where table_catalog = 'sg' and table_name = 't' order by ordinal_position";
    let found = query(&ctx, columns).await.unwrap();
    let names: Vec<_> = found.iter().map(|l| l.split('|').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "_row_id",
            "_source_id",
            "_model_id",
            "vector",
            "_content_hash",
            "n",
            "city"
        ]
    );
    assert!(found[0].starts_with("_row_id|Utf8View|NO"), "{found:?}");
    assert!(found[4].contains("FixedSizeBinary(32)"), "{found:?}");
    assert_eq!(
        one(&ctx, "select count(*) from sg.embeddings.\"u.v-1\"").await,
        "2"
    );
    // Made by another process after this one listed.
    world
        .other()
        .publish("late", Change::add(rows(0..4, 1)))
        .await;
    assert_eq!(
        one(&ctx, "select count(*) from sg.embeddings.late").await,
        "4"
    );
    for unknown in ["none", "\"no such name!\"", "\"t@x\"", "\"../x\""] {
        let sql = format!("select * from sg.embeddings.{unknown}");
        assert!(code(&ctx, &sql).await.contains("not found"), "{sql}");
    }
}

#[tokio::test]
async fn an_embedding_table_is_changed_by_verbs_only() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..3, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    query(&ctx, &format!("create table s as select * from {T}"))
        .await
        .unwrap();
    for sql in [
        format!("insert into {T} select * from s"),
        format!("insert overwrite {T} select * from s"),
        format!("delete from {T}"),
        format!("delete from {T} where _row_id in (select _row_id from s)"),
        format!("explain delete from {T} where false"),
        format!("update {T} set n = 1"),
        format!("update {T} set n = 1 where _row_id = 'x'"),
        format!("truncate table {T}"),
        format!("merge into {T} a using s b on a._row_id = b._row_id when matched then delete"),
        "create table sg.embeddings.x as select * from s".to_owned(),
        "create view sg.embeddings.x as select * from s".to_owned(),
        "create schema sg.x".to_owned(),
        "drop schema sg.embeddings cascade".to_owned(),
    ] {
        let found = match code(&ctx, &sql).await {
            // EXPLAIN shows the error as a row.
            shown if sql.starts_with("explain") => {
                let plan = query(&ctx, &sql).await.unwrap().join("\n");
                assert!(plan.contains("[ReadOnlyTable]"), "{shown} {plan}");
                continue;
            }
            found => found,
        };
        assert_eq!(found, "ReadOnlyTable", "{sql}");
    }
    // DataFusion swallows the refusal; the table stays.
    let drop = format!("drop table {T}");
    assert!(code(&ctx, &drop).await.contains("doesn't exist"));
    query(&ctx, &format!("drop table if exists {T}"))
        .await
        .unwrap();
    let plan = ctx.state().create_logical_plan(&drop).await.unwrap();
    let error = stratagraph_providers::check_ddl(&plan, "sg").unwrap_err();
    assert!(error.to_string().contains("use drop_embeddings"), "{error}");
    assert_eq!(one(&ctx, &format!("select count(*) from {T}")).await, "3");
}

#[tokio::test]
async fn hints_that_are_not_understood_are_errors() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..3, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    for hint in [
        "with (snapshot = 'x')",
        "with (branch = 'b')",
        "with (version = 'x')",
        "with (version = -1)",
        "with (version = 0, version = 0)",
        "with (version = 0, other = 1)",
        "with (nolock)",
    ] {
        let sql = format!("select * from {T} {hint}");
        assert_eq!(code(&ctx, &sql).await, "InvalidArgument", "{sql}");
    }
    let twice = "select * from sg.embeddings.\"t@0\" with (version = 0)";
    assert_eq!(code(&ctx, twice).await, "InvalidArgument");
    let sample = format!("select * from {T} tablesample (10 percent)");
    assert_eq!(code(&ctx, &sample).await, "NotYetSupported");
    query(&ctx, "set datafusion.sql_parser.dialect = 'databricks'")
        .await
        .unwrap();
    let as_of = |as_of: &str| format!("select count(*) from {T} {as_of}");
    assert_eq!(one(&ctx, &as_of("version as of 0")).await, "3");
    for (text, expected) in [
        ("version as of 7", "VersionUnavailable"),
        ("timestamp as of '2020-01-01'", "NotYetSupported"),
        ("version as of 0 with (version = 0)", "InvalidArgument"),
    ] {
        let sql = as_of(text);
        assert_eq!(code(&ctx, &sql).await, expected, "{sql}");
    }
    query(&ctx, "set datafusion.sql_parser.dialect = 'generic'")
        .await
        .unwrap();
    // Tables of the host and common table expressions are theirs to say.
    query(&ctx, "create table host as values (1)")
        .await
        .unwrap();
    assert_eq!(
        one(&ctx, "select count(*) from host with (version = 3)").await,
        "1"
    );
    let cte = "with t as (select 1 x union all select 2) select count(*) from t with (version = 0)";
    assert_eq!(one(&ctx, cte).await, "2");
}
