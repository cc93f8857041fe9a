//! What plans of masked tables look like, and that indexes still work in them.

use datafusion::prelude::SessionConfig;
use roaring::RoaringBitmap;

use super::oracle::{Random, case};
use super::world::{Change, World, query, rows};

#[tokio::test]
async fn a_plan_is_one_ordinary_scan() {
    let mut random = Random(14);
    let unmasked = case(&mut random, &[3_000, 500], 0.0, false).await;
    let masked = case(&mut random, &[3_000, 500], 0.2, false).await;
    let explain = |world: World, sql: &'static str| async move {
        let ctx = world
            .session(SessionConfig::new().with_target_partitions(2))
            .await;
        let plan = query(&ctx, &format!("explain format indent {sql}"))
            .await
            .unwrap();
        plan.into_iter()
            .find(|line| line.starts_with("physical_plan"))
            .unwrap()
    };
    for sql in [
        "select _row_id from sg.embeddings.t where _row_id > 'k000100'",
        "select city, count(*) from sg.embeddings.t group by city",
        "select _row_id from sg.embeddings.t order by n limit 5",
        "select n from sg.embeddings.t limit 5",
    ] {
        let operators = |plan: String| {
            let names = plan
                .lines()
                .map(|l| l.trim().split(':').next().unwrap_or_default().to_owned());
            names.collect::<Vec<_>>()
        };
        let (plain, hidden) = (
            explain(unmasked.world.other(), sql).await,
            explain(masked.world.other(), sql).await,
        );
        assert_eq!(operators(plain.clone()), operators(hidden.clone()), "{sql}");
        assert_eq!(hidden.matches("DataSourceExec").count(), 1, "{hidden}");
        assert!(!hidden.contains("UnionExec"), "{hidden}");
    }
    // Counts come from the manifest; bounds of masked files never do.
    let count = explain(masked.world.other(), "select count(*) from sg.embeddings.t").await;
    assert!(count.contains("PlaceholderRowExec"), "{count}");
    let bounds = explain(
        masked.world.other(),
        "select max(_row_id) from sg.embeddings.t",
    )
    .await;
    assert!(bounds.contains("DataSourceExec"), "{bounds}");
    let bounds = explain(
        unmasked.world.other(),
        "select max(_row_id) from sg.embeddings.t",
    )
    .await;
    assert!(!bounds.contains("DataSourceExec"), "{bounds}");
    let filter = explain(
        masked.world.other(),
        "select n from sg.embeddings.t where _row_id = 'k000007'",
    )
    .await;
    assert!(
        filter.contains("predicate=_row_id") && filter.contains("required_guarantees"),
        "{filter}"
    );
    // The key range of one of the two fragments excludes the key.
    let pruned = explain(
        masked.world.other(),
        "select n from sg.embeddings.t where _row_id < 'k000007'",
    )
    .await;
    assert_eq!(pruned.matches(".parquet").count(), 1, "{pruned}");
    let none = explain(
        masked.world.other(),
        "select n from sg.embeddings.t where _row_id > 'z'",
    )
    .await;
    assert!(none.contains("EmptyExec"), "{none}");
}

#[tokio::test]
async fn an_empty_table_has_no_rows() {
    let world = World::new();
    world.publish("t", Change::default()).await;
    let mut dead = RoaringBitmap::new();
    dead.insert_range(0..4);
    world
        .publish("gone", Change::add_masked(rows(0..4, 1), dead))
        .await;
    let ctx = world.session(SessionConfig::new()).await;
    for table in ["t", "gone"] {
        for (sql, expected) in [
            ("select count(*) from {t}", vec!["0"]),
            ("select * from {t}", vec![]),
            ("select max(_row_id) from {t}", vec!["NULL"]),
            ("select 1 from {t} a join {t} b using (_row_id)", vec![]),
        ] {
            let sql = sql.replace("{t}", &format!("sg.embeddings.{table}"));
            assert_eq!(query(&ctx, &sql).await.unwrap(), expected, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_key_is_found_by_index() {
    let world = World::new();
    let mut dead = RoaringBitmap::new();
    dead.insert_range(0..100);
    world
        .publish("t", Change::add_masked(rows(0..70_000, 1), dead))
        .await;
    let ctx = world
        .session(SessionConfig::new().with_target_partitions(1))
        .await;
    let analyze = |sql: &'static str| {
        let ctx = ctx.clone();
        async move {
            query(&ctx, &format!("explain analyze {sql}"))
                .await
                .unwrap()
                .join("\n")
        }
    };
    // No such key, within the range of the first of two row groups.
    let bloom = analyze("select n from sg.embeddings.t where _row_id = 'k000200x'").await;
    assert!(
        bloom.contains("row_groups_pruned_bloom_filter=1 total"),
        "{bloom}"
    );
    assert!(
        bloom.contains("row_groups_pruned_statistics=2 total"),
        "{bloom}"
    );
    let pages = analyze("select n from sg.embeddings.t where _row_id = 'k000200'").await;
    assert!(pages.contains("output_rows=1"), "{pages}");
    assert!(pages.contains("page_index_rows_pruned="), "{pages}");
    assert!(!pages.contains("page_index_rows_pruned=0 total"), "{pages}");
    let counted = pages.split("bytes_scanned=").nth(1).unwrap();
    assert!(!counted.starts_with("0,"), "{pages}");
}
