//! What a mutation is refused for; nothing is changed then.

use stratagraph_udfs::GraphMutate;

use super::support::*;

fn one(of: &str, id: &str, rule: &'static str) -> Vec<(String, String, &'static str)> {
    vec![(of.to_owned(), id.to_owned(), rule)]
}

#[tokio::test]
async fn rows_break_the_rules_of_loads() {
    let world = people().await;
    let sg = &world.sg;
    let null = [("n", stratagraph::graph::value::Value::Null)];
    for (body, id, rule) in [
        (r#"insert Person { name: "x", age: 151 }"#, "x", "range"),
        (r#"insert Person { name: "x", code: "A1" }"#, "x", "check"),
        (
            r#"update Person set { age: -1 } where name = "bo""#,
            "bo",
            "range",
        ),
        (
            r#"update Person set { code: "A1" } where name = "bo""#,
            "bo",
            "check",
        ),
        (
            r#"insert Person { name: "x", email: "ann@x" }"#,
            "x",
            "unique",
        ),
        (
            r#"update Person set { email: "ann@x" } where name = "bo""#,
            "bo",
            "unique",
        ),
        (
            r#"update Person set { email: "e@x" } where age is not null"#,
            "bo",
            "unique",
        ),
    ] {
        assert_eq!(
            breaks(sg, call(body)).await,
            one("Person", id, rule),
            "{body}"
        );
    }
    let missing = with("$n: String?", &null, "insert Place { title: $n }");
    assert_eq!(breaks(sg, missing).await[0].2, "required");
    let missing = with(
        "$n: String?",
        &null,
        r#"insert Knows { from: $n, to: "bo" }"#,
    );
    assert_eq!(breaks(sg, missing).await[0].2, "required");
    let wrong = with(
        "$s: String",
        &[("s", text("gone"))],
        r#"update Person set { status: $s } where name = "bo""#,
    );
    assert_eq!(breaks(sg, wrong).await, one("Person", "bo", "enum"));
    let found = breaks(sg, call(r#"insert Knows { from: "ann", to: "nobody" }"#)).await;
    assert_eq!((found[0].0.as_str(), found[0].2), ("Knows", "reference"));
    let found = breaks(sg, call(r#"insert Lives { from: "ann", to: "h" }"#)).await;
    assert_eq!((found[0].0.as_str(), found[0].2), ("Lives", "unique"));
}

#[tokio::test]
async fn a_key_is_not_updated() {
    let world = people().await;
    let body = r#"update Person set { name: "x" } where name = "ann""#;
    assert_eq!(fails(&world.sg, call(body)).await, "QueryInvalid");
}

#[tokio::test]
async fn a_value_that_a_delete_frees_may_be_taken() {
    let world = people().await;
    let sg = &world.sg;
    let body = r#"delete Person where name = "ann" insert Person { name: "x", email: "ann@x" }"#;
    let mixed = GraphMutate {
        mixed: true,
        ..call(body)
    };
    assert_eq!(done(sg, mixed).await, (2, 3));
    let body = r#"update Person set { email: null } where name = "x"
        update Person set { email: "ann@x" } where name = "bo""#;
    assert_eq!(done(sg, call(body)).await, (2, 0));
}

#[tokio::test]
async fn sources_keep_their_fewest_and_most_edges() {
    let schema = "node P { name: String @key } node Q { name: String @key } \
                  edge E: P -> Q @card(1..2)";
    let world = world(schema).await;
    let sg = &world.sg;
    // A node without edges is fine, as long as it never had one.
    let body = r#"insert P { name: "p" } insert P { name: "lone" }
        insert Q { name: "q" } insert Q { name: "r" } insert Q { name: "s" }
        insert E { from: "p", to: "q" } insert E { from: "p", to: "r" }"#;
    assert_eq!(done(sg, call(body)).await, (5, 2));
    let most = breaks(sg, call(r#"insert E { from: "p", to: "s" }"#)).await;
    assert_eq!(most, one("E", "p", "cardinality"));
    assert_eq!(
        breaks(sg, call(r#"delete E where from = "p""#)).await,
        one("E", "p", "cardinality")
    );
    // An edge that moves leaves its source.
    let moved = call(r#"update E set { from: "lone" } where from = "p""#);
    assert_eq!(breaks(sg, moved).await, one("E", "p", "cardinality"));
    assert_eq!(done(sg, call(r#"delete E where to = "q""#)).await, (0, 1));
    // The last edge goes with its destination, but not with its source.
    assert_eq!(
        breaks(sg, call(r#"delete Q where name = "r""#)).await,
        one("E", "p", "cardinality")
    );
    assert_eq!(done(sg, call(r#"delete P where name = "p""#)).await, (1, 1));
}

#[tokio::test]
async fn a_source_with_edges_has_the_fewest_at_once() {
    let world = world("node P { name: String @key } edge E: P -> P @card(2..)").await;
    let sg = &world.sg;
    let first = r#"insert P { name: "p" } insert E { from: "p", to: "p" }"#;
    assert_eq!(breaks(sg, call(first)).await, one("E", "p", "cardinality"));
    let two = format!("{first} insert E {{ from: \"p\", to: \"p\" }}");
    assert_eq!(done(sg, call(&two)).await, (1, 2));
}

#[tokio::test]
async fn a_statement_that_fails_undoes_those_before_it() {
    let world = people().await;
    let sg = &world.sg;
    let before = rows(&world, "Person").await;
    let body = r#"insert Person { name: "x" } insert Knows { from: "x", to: "nobody" }"#;
    assert_eq!(breaks(sg, call(body)).await[0].2, "reference");
    assert_eq!(rows(&world, "Person").await, before);
    assert_eq!(
        done(sg, call(r#"insert Person { name: "x" }"#)).await,
        (1, 0)
    );
}
