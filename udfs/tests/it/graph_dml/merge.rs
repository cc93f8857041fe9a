//! MERGE INTO: which clause takes a row, and what two rows cannot both do.

use super::support::*;

async fn people_are(world: &crate::world::World) -> String {
    let rows = world
        .sql("SELECT name, age FROM sg.g.\"Person\" ORDER BY name")
        .await;
    let rows = rows.into_iter().map(|row| row.join("="));
    rows.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn one_statement_updates_deletes_and_inserts() {
    let world = people().await;
    let sql = "MERGE INTO sg.g.\"Person\" AS p \
        USING (VALUES ('ann', 31), ('bo', NULL), ('dee', 7), ('eve', NULL)) AS s(name, age) \
        ON p.name = s.name \
        WHEN MATCHED AND s.age IS NULL THEN DELETE \
        WHEN MATCHED THEN UPDATE SET age = s.age + 1, email = 'new@x' \
        WHEN NOT MATCHED AND s.age IS NOT NULL THEN INSERT (name, age) VALUES (s.name, s.age) \
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = 0";
    let before = version(&world.sg).await;
    assert_eq!(done(&world, sql).await, 4);
    assert_eq!(version(&world.sg).await, before + 1);
    assert_eq!(people_are(&world).await, "ann=32 cy=0 dee=7");
    // What a deleted node had goes with it.
    assert_eq!(rows(&world, "Knows").await, ["k3 cy ann NULL"]);
    assert_eq!(rows(&world, "Lives").await, ["l1 ann h NULL"]);
}

#[tokio::test]
async fn rows_that_no_clause_takes_are_left_alone() {
    let world = people().await;
    let nothing = "MERGE INTO sg.g.\"Person\" p USING (VALUES ('zoe', 1)) s(k, v) ON p.name = s.k \
        WHEN MATCHED THEN DELETE";
    let before = version(&world.sg).await;
    assert_eq!(done(&world, nothing).await, 0);
    assert_eq!(version(&world.sg).await, before);
    // NULL keys meet nothing, and are new.
    let nulls = "MERGE INTO sg.g.\"Knows\" k USING (VALUES (CAST(NULL AS VARCHAR), 'ann', 'cy')) \
        s(id, a, b) ON k.id = s.id \
        WHEN NOT MATCHED THEN INSERT (src, dst, since) VALUES (s.a, s.b, 5)";
    assert_eq!(done(&world, nulls).await, 1);
    let found = world
        .sql("SELECT src, dst FROM sg.g.\"Knows\" WHERE since = 5")
        .await;
    assert_eq!(found.concat(), ["ann", "cy"]);
    // Any condition joins.
    let ranges = "MERGE INTO sg.g.\"Person\" p USING (VALUES (35, 45, 1)) s(lo, hi, v) \
        ON p.age BETWEEN s.lo AND s.hi WHEN MATCHED THEN UPDATE SET age = s.v";
    assert_eq!(done(&world, ranges).await, 1);
    assert_eq!(people_are(&world).await, "ann=30 bo=1 cy=NULL");
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_as_a_whole() {
    let world = people().await;
    let merge = |using: &str, rest: &str| {
        format!(
            "MERGE INTO sg.g.\"Person\" p USING (VALUES {using}) s(k, v) ON p.name = s.k {rest}"
        )
    };
    let twice = merge(
        "('ann', 1), ('ann', 2)",
        "WHEN MATCHED THEN UPDATE SET age = s.v",
    );
    assert_eq!(fails(&world, &twice).await, "RecordsInvalid");
    let (_, message) = world.error(&twice).await;
    assert!(
        message.contains("several rows are to change it"),
        "{message}"
    );
    let both = merge(
        "('new', 1), ('new', 2)",
        "WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k, s.v)",
    );
    assert_eq!(fails(&world, &both).await, "RecordsInvalid");
    // The condition meets nothing, and the key is there.
    let known = "MERGE INTO sg.g.\"Person\" p USING (VALUES ('ann', 1)) s(k, v) ON false \
        WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k, s.v)";
    assert_eq!(fails(&world, known).await, "KeyConflict");
    // Unless the statement itself removes it.
    let instead = "MERGE INTO sg.g.\"Person\" p USING (VALUES ('ann', 1)) s(k, v) ON false \
        WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k, s.v) \
        WHEN NOT MATCHED BY SOURCE AND p.name = 'ann' THEN DELETE";
    assert_eq!(done(&world, instead).await, 1);
    assert_eq!(people_are(&world).await, "ann=1 bo=40 cy=NULL");
    let key = merge("('ann', 1)", "WHEN MATCHED THEN UPDATE SET name = 'x'");
    assert_eq!(fails(&world, &key).await, "InvalidArgument");
    let id = merge("('ann', 1)", "WHEN MATCHED THEN UPDATE SET id = 'x'");
    assert_eq!(fails(&world, &id).await, "InvalidArgument");
    let rule = merge("('bo', 151)", "WHEN MATCHED THEN UPDATE SET age = s.v");
    assert_eq!(fails(&world, &rule).await, "RecordsInvalid");
}

/// People who know each other since different times, or an unknown one.
async fn acquainted() -> crate::world::World {
    let world = people().await;
    for (id, since) in [("k1", 30), ("k2", 40)] {
        let sql = format!("UPDATE sg.g.\"Knows\" SET since = {since} WHERE id = '{id}'");
        assert_eq!(done(&world, &sql).await, 1);
    }
    world
}

/// Conditions over the target, `s` (the source) and other tables.
const CONDITIONS: [&str; 16] = [
    "s.v IN (SELECT since FROM sg.g.\"Knows\")",
    "s.v NOT IN (SELECT since FROM sg.g.\"Knows\")",
    "s.v NOT IN (SELECT since FROM sg.g.\"Knows\" WHERE since IS NOT NULL)",
    "s.v NOT IN (SELECT since FROM sg.g.\"Knows\" WHERE false)",
    "\"Person\".age IN (SELECT age FROM sg.g.\"Person\" WHERE age > 30)",
    "\"Person\".age + 0 NOT IN (SELECT age FROM sg.g.\"Person\" WHERE age > 30)",
    "EXISTS (SELECT 1 FROM sg.g.\"Knows\" k WHERE k.src = \"Person\".id)",
    "NOT EXISTS (SELECT 1 FROM sg.g.\"Knows\" k WHERE k.src = \"Person\".id)",
    "NOT EXISTS (SELECT 1 FROM sg.g.\"Knows\" k WHERE k.src = \"Person\".id AND k.dst = s.k)",
    "EXISTS (SELECT 1 FROM sg.g.\"Knows\" WHERE since > 1000000)",
    "\"Person\".id IN (SELECT k.src FROM sg.g.\"Knows\" k WHERE k.dst <> k.src)",
    "s.k IN (SELECT k.src FROM sg.g.\"Knows\" k) OR s.v > 35",
    "NOT (s.k IN (SELECT k.src FROM sg.g.\"Knows\" k) AND s.v > 35)",
    "s.v > (SELECT min(age) FROM sg.g.\"Person\")",
    "s.v > (SELECT count(*) FROM sg.g.\"Knows\" k WHERE k.dst = \"Person\".id) * 30",
    "s.v = (SELECT max(age) FROM sg.g.\"Person\" q WHERE q.name = s.k)",
];

#[tokio::test]
async fn conditions_may_be_subqueries() {
    let source = "(VALUES ('ann', 30), ('bo', NULL), ('cy', 40), ('zoe', 7)) s(k, v)";
    for condition in CONDITIONS {
        let world = acquainted().await;
        let oracle = format!(
            "SELECT \"Person\".name FROM sg.g.\"Person\" JOIN {source} ON \"Person\".name = s.k WHERE {condition} \
             ORDER BY 1"
        );
        let oracle = world.sql(&oracle).await;
        let merge = format!(
            "MERGE INTO sg.g.\"Person\" USING {source} ON \"Person\".name = s.k \
             WHEN MATCHED AND {condition} THEN UPDATE SET status = 'active' \
             WHEN MATCHED THEN UPDATE SET status = 'left'"
        );
        assert_eq!(done(&world, &merge).await, 3, "{condition}");
        let taken = "SELECT name FROM sg.g.\"Person\" WHERE status = 'active' ORDER BY 1";
        assert_eq!(world.sql(taken).await, oracle, "{condition}");
    }
}

#[tokio::test]
async fn a_join_may_ask_for_rows_of_other_tables() {
    let source = "(VALUES ('ann', 30), ('bo', NULL), ('cy', 40)) s(k, v)";
    let conditions = CONDITIONS
        .iter()
        .filter(|c| !(c.contains("\"Person\".") && c.contains("s.")));
    for condition in conditions {
        let world = acquainted().await;
        let oracle = format!(
            "SELECT \"Person\".name FROM sg.g.\"Person\" JOIN {source} ON \"Person\".name = s.k WHERE {condition} \
             ORDER BY 1"
        );
        let oracle = world.sql(&oracle).await;
        // A row of which the condition does not hold is one without a partner.
        let merge = format!(
            "MERGE INTO sg.g.\"Person\" USING {source} ON \"Person\".name = s.k AND ({condition}) \
             WHEN MATCHED THEN UPDATE SET status = 'active' \
             WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k || 'x', 1) \
             WHEN NOT MATCHED BY SOURCE THEN UPDATE SET status = 'left'"
        );
        assert_eq!(
            done(&world, &merge).await,
            6 - oracle.len() as u64,
            "{condition}"
        );
        let taken = "SELECT name FROM sg.g.\"Person\" WHERE status = 'active' ORDER BY 1";
        assert_eq!(world.sql(taken).await, oracle, "{condition}");
    }
}

#[tokio::test]
async fn values_may_be_subqueries() {
    let world = acquainted().await;
    let merge = "MERGE INTO sg.g.\"Person\" USING (VALUES ('ann'), ('dee')) s(k) ON \"Person\".name = s.k \
        WHEN MATCHED THEN UPDATE SET age = (SELECT count(*) FROM sg.g.\"Knows\" k WHERE k.src = \"Person\".id) \
        WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.k, (SELECT max(age) FROM sg.g.\"Person\"))";
    let knows = "SELECT count(*) FROM sg.g.\"Knows\" WHERE src = 'ann'";
    let knows = world.sql(knows).await[0][0].clone();
    assert_eq!(done(&world, merge).await, 2);
    assert_eq!(
        people_are(&world).await,
        format!("ann={knows} bo=40 cy=NULL dee=40")
    );
}

#[tokio::test]
async fn a_merge_with_subqueries_can_be_prepared() {
    let world = acquainted().await;
    let merge = "PREPARE m AS MERGE INTO sg.g.\"Person\" USING (VALUES ('ann')) s(k) ON \"Person\".name = s.k \
        WHEN MATCHED AND \"Person\".age IN (SELECT age FROM sg.g.\"Person\" WHERE age < 33) \
        THEN UPDATE SET age = \"Person\".age + 1";
    world.sql(merge).await;
    for expected in ["31", "32", "33", "33"] {
        world.sql("EXECUTE m").await;
        let age = "SELECT age FROM sg.g.\"Person\" WHERE name = 'ann'";
        assert_eq!(world.sql(age).await[0][0], expected);
    }
}
