//! What goes wrong in other graph engines, and must not here.

use std::sync::Arc;

use super::reads::{ask, people};
use crate::graph_load::support::{Overwrite, load, world};

fn call(body: &str, rest: &str) -> String {
    format!("SELECT * FROM graph_query('g', $$ query {body} $$ {rest})")
}

/// A missing or misspelled parameter answered with every row.
#[tokio::test]
async fn a_missing_parameter_is_an_error() {
    let world = people().await;
    let body = "q($who: String) { match { $p: Person { name: $who } } return { $p.name } }";
    assert_eq!(world.code(&call(body, "")).await, "QueryInvalid");
    assert_eq!(
        world.code(&call(body, ", {'whom': 'Alice'}")).await,
        "QueryInvalid"
    );
    let typo = "q($who: String) { match { $p: Person { name: $whom } } return { $p.name } }";
    assert_eq!(
        world.code(&call(typo, ", {'who': 'Alice'}")).await,
        "QueryInvalid"
    );
    assert_eq!(
        world.sql(&call(body, ", {'who': 'Alice'}")).await,
        [["Alice"]]
    );
    let quoted = world
        .sql(&call(body, r#", '{"who": "O\"Brien'' OR 1=1"}'"#))
        .await;
    assert!(quoted.is_empty());
}

/// Anonymous variables, repeated bindings and repeated traversals shadowed each other's columns.
#[tokio::test]
async fn names_never_shadow() {
    let world = people().await;
    let two = "match { $p: Person  $p knows $_  $p worksAt $_ } return { $p.name }";
    assert_eq!(ask(&world, two).await, ["Alice", "Alice", "Bob"]);
    let twice = "match { $p: Person { name: \"Alice\" }  $p: Person  $p.age = 30  $p knows $f  $p knows $f } return { $f.name }";
    assert_eq!(ask(&world, twice).await, ["Bob", "Charlie"]);
    let closing =
        "match { $a knows $b  $b knows $c  $a <knows> $c  $c <knows> $a } return { $a.name }";
    assert_eq!(ask(&world, closing).await, Vec::<String>::new());
    let inner =
        "match { $p: Person  not { $p knows $x }  not { $p worksAt $x } } return { $p.name }";
    assert_eq!(ask(&world, inner).await, ["Charlie", "Diana"]);
}

/// A condition on an outer variable inside of a negation.
#[tokio::test]
async fn outer_conditions_hold_inside() {
    let world = people().await;
    let text =
        "match { $p: Person  not { $p knows $f  $p.name starts_with \"Al\" } } return { $p.name }";
    assert_eq!(ask(&world, text).await, ["Bob", "Charlie", "Diana"]);
    let nested =
        "match { $p: Person  not { $p knows $f  not { $f.age < $p.age } } } return { $p.name }";
    assert_eq!(ask(&world, nested).await, ["Charlie", "Diana"]);
}

/// Equal names in one answer.
#[tokio::test]
async fn result_columns_have_one_name_each() {
    let world = people().await;
    let body = "q() { match { $p: Person } return { $p.name, $p.name } }";
    assert_eq!(world.code(&call(body, "")).await, "QueryInvalid");
}

/// Sums of 64-bit integers wrapped, or lost digits as floats.
#[tokio::test]
async fn sums_are_exact_or_errors() {
    let world = world("node N { name: String @key  n: I64  u: U64 }").await;
    let row = |name: &str, n: i64, u: u64| {
        format!("{{\"type\":\"N\",\"data\":{{\"name\":\"{name}\",\"n\":{n},\"u\":{u}}}}}\n")
    };
    let text = row("a", i64::MAX - 1, u64::MAX) + &row("b", 1, 0);
    load(&world.sg, &text, Overwrite).await.unwrap();
    let sums = "match { $p: N } return { sum($p.n) as n, sum($p.u) as u }";
    assert_eq!(
        ask(&world, sums).await,
        [format!("{}|{}", i64::MAX, u64::MAX)]
    );
    let exact = format!(
        "match {{ $p: N  $p.n = {} }} return {{ $p.name }}",
        i64::MAX - 1
    );
    assert_eq!(ask(&world, &exact).await, ["a"]);
    load(&world.sg, &(text + &row("c", 1, 1)), Overwrite)
        .await
        .unwrap();
    let sql = call("q() { match { $p: N } return { sum($p.n) as n } }", "");
    assert!(
        world.try_sql(&sql).await.is_err(),
        "a sum that does not fit is no number"
    );
}

/// Rows that another commit adds while a query runs, and types read at different states.
#[tokio::test]
async fn a_statement_reads_one_state() {
    let world = people().await;
    let sql = "SELECT (SELECT count(*) FROM sg.g.\"Person\") AS people, \
               (SELECT count(*) FROM graph_query('g', 'query q() { match { $p: Person } return { $p.name } }')) AS asked";
    assert_eq!(world.sql(sql).await, [["4", "4"]]);
}

/// Asked of nothing: empty tables, no edges, unknown names.
#[tokio::test]
async fn empty_graphs_have_answers() {
    let world = world(super::reads::SCHEMA).await;
    for (body, expected) in [
        ("match { $p: Person } return { count() as n }", vec!["0"]),
        ("match { $p knows{1,3} $f } return { $p.name }", vec![]),
        (
            "match { $p: Person  not { $p knows $_ } } return { $p.name }",
            vec![],
        ),
        ("match { $p $w:knows $f } return { $w.since }", vec![]),
        (
            "match { $p: Person  optional { $p knows $f } } return { $f.name }",
            vec![],
        ),
    ] {
        assert_eq!(ask(&world, body).await, expected, "{body}");
    }
    let alone = "{\"type\":\"Person\",\"data\":{\"name\":\"a\"}}";
    load(&world.sg, alone, Overwrite).await.unwrap();
    let idle = "match { $p: Person  not { $p knows $_ } } return { $p.name }";
    assert_eq!(ask(&world, idle).await, ["a"]);
    let reach = "SELECT * FROM graph_reach('g', 'knows', ['a', 'zz'], 1, 3)";
    assert!(world.sql(reach).await.is_empty());
}

/// A plan that was made for another schema of the graph.
#[tokio::test]
async fn a_plan_does_not_outlive_its_schema() {
    let world = world("node N { name: String @key  x: I32? }").await;
    let ask = "graph_query('g', 'query q() { match { $n: N } return { $n.name, $n.x } }')";
    world
        .sql(&format!("PREPARE p AS SELECT * FROM {ask}"))
        .await;
    world
        .sql(&format!("CREATE VIEW v AS SELECT * FROM {ask}"))
        .await;
    assert!(world.sql("EXECUTE p").await.is_empty());
    world.sg.graph_drop("g").await.unwrap();
    world
        .sg
        .graph_create("g", "node N { name: String @key  x: String? }")
        .await
        .unwrap();
    let row = "{\"type\":\"N\",\"data\":{\"name\":\"a\",\"x\":\"one\"}}";
    load(&world.sg, row, Overwrite).await.unwrap();
    assert_eq!(world.code("SELECT * FROM v").await, "SchemaChanged");
    assert_eq!(world.code("EXECUTE p").await, "SchemaChanged");
    assert_eq!(
        world.sql(&format!("SELECT * FROM {ask}")).await,
        [["a", "one"]]
    );
}

/// Hosts without the relation planner call table functions by position.
#[tokio::test]
async fn plain_calls_have_the_same_answers() {
    let world = people().await;
    let plain = datafusion::prelude::SessionContext::new();
    for name in ["graph_query", "graph_reach"] {
        let function = world.ctx.table_function(name).unwrap();
        plain.register_udtf(name, Arc::clone(function.function()));
    }
    for sql in [
        "SELECT \"p.name\" FROM graph_query('g', 'query q() { match { $p: Person } return { $p.age, $p.name } }') \
         WHERE \"p.age\" > 28 ORDER BY 1",
        "SELECT count(*) FROM graph_query('g', 'query q() { match { $p knows $f } return { $p.name } }')",
        "SELECT id FROM graph_reach('g', 'knows', ['Alice'], 1, 2) WHERE distance = 2",
    ] {
        let batches = plain.sql(sql).await.unwrap().collect().await.unwrap();
        assert_eq!(crate::world::table(&batches), world.sql(sql).await, "{sql}");
    }
}

/// EXPLAIN said nothing of the pattern.
#[tokio::test]
async fn explain_shows_the_pattern() {
    let world = people().await;
    let sql = "EXPLAIN SELECT * FROM graph_query('g', 'query q() { match { $p: Person { name: \"Bob\" }  \
               $p knows{1,2} $f  not { $f worksAt $_ } } return { $f.name } }')";
    let plan: Vec<String> = world.sql(sql).await.into_iter().flatten().collect();
    let plan = plan.join("\n");
    for part in [
        "PatternExec: query q()",
        "$p: Person",
        "{1,2}",
        "not",
        "ExpandExec: edge=Knows",
    ] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
}

/// Lines longer than a limit that nobody could change.
#[tokio::test]
async fn the_length_of_a_line_is_a_setting() {
    let world = world("node N { name: String @key }").await;
    let row = "{\"type\":\"N\",\"data\":{\"name\":\"a\"}}";
    world.sql("SET stratagraph.line_bytes = 10").await;
    let error = load(&world.sg, row, Overwrite).await.unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
    world.sql("SET stratagraph.line_bytes = 100").await;
    load(&world.sg, row, Overwrite).await.unwrap();
}
