//! Rows of the session: columns by name, values without loss.

use super::support::*;

const TYPES: &str = r#"
node Thing {
    key: U64 @key
    small: I32?
    ratio: F64?
    short: F32?
    day: Date?
    at: DateTime?
    tags: [String]?
    counts: [I32]?
    on: Bool?
    v: Vector(2)?
}
edge Next: Thing -> Thing { weight: F64? }
"#;

#[tokio::test]
async fn queries_and_tables_load_by_the_names_of_their_columns() {
    let world = world(TYPES).await;
    world
        .sql(
            "CREATE TABLE things AS SELECT * FROM (VALUES \
             (1, 10, 0.5, DATE '2024-01-02', TIMESTAMP '2024-01-02T03:04:05', ['a', 'b'], [1, 2], true, [1.0, 0.5]), \
             (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)) \
             v(key, small, ratio, day, at, tags, counts, \"on\", v)",
        )
        .await;
    let row = world
        .row("SELECT * FROM graph_load_table('g', 'Thing', 'things', 'append')")
        .await;
    assert_eq!(row[4..6], ["2", "0"]);
    let things = world
        .sql("SELECT id, small, day, at, tags, counts, v FROM sg.g.\"Thing\" ORDER BY id")
        .await;
    assert_eq!(
        things[0],
        [
            "1",
            "10",
            "2024-01-02",
            "2024-01-02T03:04:05Z",
            "[a, b]",
            "[1, 2]",
            "[1.0, 0.5]"
        ]
    );
    assert_eq!(things[1][1..], ["NULL"; 6]);
    let edges = "(SELECT a.key AS \"from\", b.key AS \"to\", 0.5 AS weight FROM things a CROSS JOIN things b)";
    let row = world
        .row(&format!(
            "SELECT * FROM graph_load_table('g', 'Next', {edges}, mode => 'append')"
        ))
        .await;
    assert_eq!(row[4..6], ["0", "4"]);
    let edges = "(SELECT '1' AS src, '2' AS dst, 'e' AS id)";
    for _ in 0..2 {
        world
            .row(&format!(
                "SELECT * FROM graph_load_table('g', 'next', {edges}, 'merge')"
            ))
            .await;
    }
    assert_eq!(rows(&world, "Next").await.len(), 5);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let world = world(TYPES).await;
    let call = |of: &str, query: &str| {
        format!("SELECT * FROM graph_load_table('g', '{of}', (SELECT {query}), 'append')")
    };
    for query in [
        "1 AS key, 2 AS other",
        "1 AS small",
        "1 AS key, '7' AS small",
        "1 AS key, 1.5 AS small",
        "1 AS key, '2024-01-01' AS day",
        "1 AS key, 3 AS tags",
    ] {
        assert_eq!(
            world.code(&call("Thing", query)).await,
            "InvalidArgument",
            "{query}"
        );
    }
    assert_eq!(
        world.code(&call("Next", "'1' AS \"from\"")).await,
        "InvalidArgument"
    );
    assert_eq!(world.code(&call("No", "1 AS key")).await, "InvalidArgument");
    for query in [
        "1 AS key, 3000000000 AS small",
        "-1 AS key",
        "1 AS key, 9007199254740993 AS ratio",
        "1 AS key, [1, NULL] AS counts",
        "1 AS key, [1, 3000000000] AS counts",
        "1 AS key, [1.0] AS v",
        "CAST(NULL AS BIGINT) AS key",
        "1 AS key, CAST('NaN' AS DOUBLE) AS ratio",
    ] {
        assert_eq!(
            world.code(&call("Thing", query)).await,
            "RecordsInvalid",
            "{query}"
        );
    }
    let ends = "'1' AS \"from\", CAST(NULL AS VARCHAR) AS \"to\"";
    assert_eq!(world.code(&call("Next", ends)).await, "RecordsInvalid");
    assert_eq!(snapshot(&world.sg).await.manifest.version, 0);
}
