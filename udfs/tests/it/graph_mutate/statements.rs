//! What each statement does.

use stratagraph::graph::value::Value;
use stratagraph_udfs::GraphMutate;

use super::support::*;

#[tokio::test]
async fn an_insert_makes_a_row_and_with_a_key_replaces_one() {
    let world = people().await;
    let sg = &world.sg;
    assert_eq!(
        done(sg, call(r#"insert Person { name: "di", age: 5 }"#)).await,
        (1, 0)
    );
    // All of the row is replaced: what is not given is null.
    assert_eq!(
        done(sg, call(r#"insert Person { name: "ann", age: 31 }"#)).await,
        (1, 0)
    );
    let found = rows(&world, "Person").await;
    assert_eq!(found[0], "ann ann 31 NULL NULL NULL");
    assert_eq!(found[3], "di di 5 NULL NULL NULL");
    // Without a key every insert is a row of its own, with an id of its own.
    for _ in 0..2 {
        assert_eq!(
            done(sg, call(r#"insert Place { title: "Inn" }"#)).await,
            (1, 0)
        );
    }
    assert_eq!(rows(&world, "Place").await.len(), 3);
}

#[tokio::test]
async fn statements_see_what_those_before_them_did() {
    let world = people().await;
    let body = r#"
        insert Person { name: "di", age: 1 }
        insert Knows { from: "di", to: "ann", since: 7 }
        update Person set { age: 2 } where name = "di" and age = 1
        update Person set { status: "active" } where age = 2
        update Knows set { since: 8 } where from = "di"
        insert Person { name: "di", age: 9 }"#;
    assert_eq!(done(&world.sg, call(body)).await, (1, 1));
    assert_eq!(rows(&world, "Person").await[3], "di di 9 NULL NULL NULL");
    let sql = "SELECT src, dst, since FROM sg.g.\"Knows\" WHERE since IS NOT NULL";
    assert_eq!(world.sql(sql).await, [["di", "ann", "8"]]);
    assert_eq!(version(&world.sg).await, 2);
}

#[tokio::test]
async fn an_update_sets_values_of_the_rows_of_a_condition() {
    let world = people().await;
    let sg = &world.sg;
    let body = r#"update Person set { code: name, age: null } where age >= 30 or name = "cy""#;
    assert_eq!(done(sg, call(body)).await, (3, 0));
    assert_eq!(
        rows(&world, "Person").await,
        [
            "ann ann NULL ann@x NULL ann",
            "bo bo NULL NULL NULL bo",
            "cy cy NULL NULL NULL cy"
        ]
    );
    // Row ids stay: the edges still find their ends.
    let query = "SELECT * FROM graph_query('g', 'query q() { match { $p: Person { name: \"ann\" } \
                 $p knows $q } return { $q.code } }')";
    assert_eq!(world.sql(query).await, [["bo"]]);
    let narrow = with(
        "$n: I64",
        &[("n", Value::Int(7))],
        r#"update Person set { age: $n } where age is null and code != "bo""#,
    );
    assert_eq!(done(sg, narrow).await, (2, 0));
    let wide = with(
        "$n: I64",
        &[("n", Value::Int(1 << 40))],
        "update Person set { age: $n } where age is null",
    );
    assert_eq!(fails(sg, wide).await, "InvalidArgument");
}

#[tokio::test]
async fn edges_are_updated_with_their_ends() {
    let world = people().await;
    let body = r#"update Knows set { to: "cy", since: 3 } where from = "ann""#;
    assert_eq!(done(&world.sg, call(body)).await, (0, 1));
    assert_eq!(rows(&world, "Knows").await[0], "k1 ann cy 3");
    let query = "SELECT * FROM graph_query('g', 'query q() { match { $p: Person { name: \"ann\" } \
                 $p knows $q } return { $q.name } }')";
    assert_eq!(world.sql(query).await, [["cy"]]);
    let found = breaks(
        &world.sg,
        call(r#"update Knows set { from: "nobody" } where from = "ann""#),
    );
    assert_eq!(
        found.await,
        [("Knows".to_owned(), "k1".to_owned(), "reference")]
    );
}

#[tokio::test]
async fn a_delete_takes_the_edges_of_its_nodes() {
    let world = people().await;
    let sg = &world.sg;
    assert_eq!(
        done(sg, call(r#"delete Person where name = "ann""#)).await,
        (1, 3)
    );
    assert_eq!(rows(&world, "Knows").await, ["k2 bo cy NULL"]);
    assert_eq!(rows(&world, "Lives").await, ["l2 bo h NULL"]);
    // Nodes and an edge that goes with them, counted once.
    let body = r#"delete Place where title = "Home" delete Lives where from = "bo"
        delete Person where name = "bo" or name = "cy" delete Person where name = "bo""#;
    assert_eq!(done(sg, call(body)).await, (3, 2));
    for of in ["Person", "Place", "Knows", "Lives"] {
        assert!(rows(&world, of).await.is_empty(), "{of}");
    }
}

#[tokio::test]
async fn deletes_beside_others_are_asked_for() {
    let world = people().await;
    let sg = &world.sg;
    let body = r#"
        insert Person { name: "di" }
        delete Person where name = "ann" or name = "di"
        insert Person { name: "ann", age: 1 }
        insert Knows { from: "ann", to: "bo" }"#;
    assert_eq!(fails(sg, call(body)).await, "QueryInvalid");
    let mixed = GraphMutate {
        mixed: true,
        ..call(body)
    };
    // ann, di; three edges of the old ann and the new one.
    assert_eq!(done(sg, mixed).await, (2, 4));
    assert_eq!(rows(&world, "Person").await[0], "ann ann 1 NULL NULL NULL");
    assert_eq!(rows(&world, "Knows").await.len(), 2);
    // What comes and goes in one call leaves no commit.
    let both = GraphMutate {
        mixed: true,
        ..call(r#"insert Person { name: "ed" } delete Person where name = "ed""#)
    };
    assert_eq!(nothing(sg, both).await.affected_nodes, 1);
    let dangling = GraphMutate {
        mixed: true,
        ..call(r#"delete Person where name = "cy" insert Knows { from: "bo", to: "cy" }"#)
    };
    let found = breaks(sg, dangling).await;
    assert_eq!((found[0].0.as_str(), found[0].2), ("Knows", "reference"));
}

#[tokio::test]
async fn an_upsert_replaces_all_of_a_row_or_what_it_names() {
    let world = people().await;
    let sg = &world.sg;
    let partial = r#"upsert Person partial { name: "ann", age: 31 }
        upsert Person partial { name: "di", age: 1 }
        upsert Person partial { name: "di", code: "x" }"#;
    assert_eq!(done(sg, call(partial)).await, (2, 0));
    let found = rows(&world, "Person").await;
    assert_eq!(found[0], "ann ann 31 ann@x NULL NULL");
    assert_eq!(found[3], "di di 1 NULL NULL x");
    assert_eq!(
        done(sg, call(r#"upsert Person { name: "ann", age: 32 }"#)).await,
        (1, 0)
    );
    assert_eq!(rows(&world, "Person").await[0], "ann ann 32 NULL NULL NULL");
}

#[tokio::test]
async fn what_meets_no_row_makes_no_commit() {
    let world = people().await;
    for body in [
        r#"update Person set { age: 1 } where name = "nobody""#,
        r#"delete Person where name = "nobody" delete Knows where since = 1"#,
        // Nothing compares with null.
        "delete Knows where since < 5 or since >= 5 or not (since = 1)",
    ] {
        let report = nothing(&world.sg, call(body)).await;
        assert_eq!(
            (report.affected_nodes, report.affected_edges),
            (0, 0),
            "{body}"
        );
    }
}

#[tokio::test]
async fn now_is_one_moment_and_lists_and_vectors_are_values() {
    let schema = "node Log { name: String @key  at: DateTime?  also: DateTime?  tags: [String]?  v: Vector(2)?  day: Date? }";
    let world = world(schema).await;
    let sg = &world.sg;
    let body = r#"insert Log { name: "a", at: now(), tags: ["x", "y"], v: [1, 2.5], day: date("2024-02-29") }
        insert Log { name: "b", at: now(), tags: [] }
        update Log set { also: now() } where at = now()"#;
    assert_eq!(done(sg, call(body)).await, (2, 0));
    let sql = "SELECT name, tags, v, day, at = also FROM sg.g.\"Log\" ORDER BY id";
    assert_eq!(
        world.sql(sql).await,
        [
            ["a", "[x, y]", "[1.0, 2.5]", "2024-02-29", "true"],
            ["b", "[]", "NULL", "NULL", "true"]
        ]
    );
    let values = [
        ("tags", Value::List(vec![text("z")])),
        ("v", Value::List(vec![Value::Float(3.0), Value::Float(4.0)])),
    ];
    let call = with(
        "$tags: [String], $v: Vector(2)",
        &values,
        r#"update Log set { tags: $tags, v: $v } where tags contains "x""#,
    );
    assert_eq!(done(sg, call).await, (1, 0));
    let sql = "SELECT tags, v FROM sg.g.\"Log\" WHERE name = 'a'";
    assert_eq!(world.sql(sql).await, [["[z]", "[3.0, 4.0]"]]);
}

#[tokio::test]
async fn vectors_are_filled_and_follow_their_text() {
    let schema = "node Doc { name: String @key  text: String?  v: Vector(16)? @embed(\"text\", model=\"counting\") }";
    let world = world(schema).await;
    let sg = &world.sg;
    let filled = |body: &str| GraphMutate {
        fill: true,
        ..call(body)
    };
    done(sg, filled(r#"insert Doc { name: "a", text: "one" }"#)).await;
    assert_eq!(world.model.rows(), 1);
    let sql = "SELECT v FROM sg.g.\"Doc\"";
    let one = world.sql(sql).await;
    done(
        sg,
        filled(r#"update Doc set { text: "one" } where name = "a""#),
    )
    .await;
    assert_eq!((world.model.rows(), world.sql(sql).await == one), (1, true));
    done(
        sg,
        filled(r#"update Doc set { text: "two" } where name = "a""#),
    )
    .await;
    assert_eq!(
        (world.model.rows(), world.sql(sql).await == one),
        (2, false)
    );
}

#[tokio::test]
async fn names_keep_their_case() {
    let world = world("node Item { itemCode: String @key  unitPrice: I64? } edge PartOf: Item -> Item { sortKey: I32? }").await;
    let sg = &world.sg;
    let body = r#"insert Item { itemCode: "A", unitPrice: 1 }
        insert partOf { from: "A", to: "A", sortKey: 2 }
        update Item set { unitPrice: 5 } where unitPrice < 3
        update partOf set { sortKey: 4 } where sortKey = 2"#;
    assert_eq!(done(sg, call(body)).await, (1, 1));
    let body = r#"update Item set { unitPrice: 6 } where unitPrice = 5 and itemCode = "A""#;
    assert_eq!(done(sg, call(body)).await, (1, 0));
    assert_eq!(
        done(sg, call("delete partOf where sortKey = 4")).await,
        (0, 1)
    );
    assert_eq!(rows(&world, "Item").await, ["A A 6"]);
}
