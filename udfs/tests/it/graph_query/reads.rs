//! What queries answer over a graph of four people, two companies and few edges.

use crate::graph_load::support::{Append, Overwrite, load, world};
use crate::world::World;

pub const SCHEMA: &str = "
node Person {
  name: String @key
  age: I32?
  score: F64?
  ratio: F32?
  active: Bool?
  born: Date?
  seen: DateTime?
  nickName: String?
  tags: [String]?
}
node Company { name: String @key }
edge Knows: Person -> Person { since: I32?  note: String? }
edge WorksAt: Person -> Company { role: String? }
";

pub const PEOPLE: &str = r#"
{"type":"Person","data":{"name":"Alice","age":30,"score":1.5,"ratio":0.1,"active":true,"born":"1990-01-02","seen":"2024-01-02T03:04:05Z","nickName":"Al","tags":["red","blue"]}}
{"type":"Person","data":{"name":"Bob","age":25,"score":2.0,"ratio":0.5,"active":false,"born":"1995-06-07","seen":"2024-02-02T03:04:05Z","nickName":"Bobby","tags":[]}}
{"type":"Person","data":{"name":"Charlie","age":35,"score":2.5,"active":true,"nickName":"100%_x"}}
{"type":"Person","data":{"name":"Diana","age":28}}
{"type":"Company","data":{"name":"Acme"}}
{"type":"Company","data":{"name":"Globex"}}
{"edge":"Knows","from":"Alice","to":"Bob","data":{"id":"k1","since":2010,"note":"school"}}
{"edge":"Knows","from":"Alice","to":"Charlie","data":{"id":"k2","since":2015}}
{"edge":"Knows","from":"Bob","to":"Diana","data":{"id":"k3"}}
{"edge":"WorksAt","from":"Alice","to":"Acme","data":{"id":"w1","role":"cto"}}
{"edge":"WorksAt","from":"Bob","to":"Globex","data":{"id":"w2"}}
"#;

pub async fn people() -> World {
    let world = world(SCHEMA).await;
    load(&world.sg, PEOPLE, Overwrite).await.unwrap();
    world
}

/// The rows of a query, sorted unless it orders them; columns joined by `|`.
pub async fn ask(world: &World, body: &str) -> Vec<String> {
    let sql = format!("SELECT * FROM graph_query('g', $$ query q() {{ {body} }} $$)");
    let rows = world.sql(&sql).await;
    let mut rows: Vec<String> = rows.into_iter().map(|row| row.join("|")).collect();
    if !body.contains("order {") {
        rows.sort();
    }
    rows
}

async fn check(world: &World, cases: &[(&str, &[&str])]) {
    for (body, expected) in cases {
        assert_eq!(ask(world, body).await, *expected, "{body}");
    }
}

#[tokio::test]
async fn traversals_follow_edges_either_way() {
    let world = people().await;
    check(&world, &[
        ("match { $p: Person { name: \"Alice\" }  $p knows $f } return { $f.name }", &["Bob", "Charlie"]),
        ("match { $p: Person { name: \"Diana\" }  $f knows $p } return { $f.name }", &["Bob"]),
        ("match { $c: Company { name: \"Acme\" }  $c worksAt $p } return { $p.name }", &["Alice"]),
        ("match { $p: Person { name: \"Bob\" }  $p <knows> $f } return { $f.name }", &["Alice", "Diana"]),
        ("match { $p: Person { name: \"Charlie\" }  $p <knows>{1,2} $f } return { $f.name }", &["Alice", "Bob"]),
        // A condition on the far end, written before and after.
        ("match { $p knows $f  $f: Person { age: 25 } } return { $p.name }", &["Alice"]),
        ("match { $f: Person  $f.age > 26  $p knows $f } return { $p.name, $f.name }", &["Alice|Charlie", "Bob|Diana"]),
        // Several variables of one path, a condition in its middle, two ways out of one node.
        ("match { $a knows $b  $b knows $c } return { $a.name, $b.name, $c.name }", &["Alice|Bob|Diana"]),
        ("match { $a knows $b  $b: Person { name: \"Charlie\" }  $b knows $c } return { $c.name }", &[]),
        ("match { $p knows $f  $p worksAt $c } return { $p.name, $f.name, $c.name }",
         &["Alice|Bob|Acme", "Alice|Charlie|Acme", "Bob|Diana|Globex"]),
        ("match { $a worksAt $c  $b worksAt $c  $a.name != $b.name } return { $a.name }", &[]),
        // No condition names a node type: the edge does.
        ("match { $p worksAt $c } return { $p.name, $c.name }", &["Alice|Acme", "Bob|Globex"]),
        ("match { $_ knows $f  $_ worksAt $c } return { $f.name, $c.name }",
         &["Bob|Acme", "Bob|Globex", "Charlie|Acme", "Charlie|Globex", "Diana|Acme", "Diana|Globex"]),
    ]).await;
}

#[tokio::test]
async fn hops_are_shortest_distances() {
    let world = world(SCHEMA).await;
    let mut text = String::new();
    for name in ["a", "b", "c", "d", "loop"] {
        text.push_str(&format!(
            "{{\"type\":\"Person\",\"data\":{{\"name\":\"{name}\"}}}}\n"
        ));
    }
    for (from, to) in [
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
        ("d", "a"),
        ("loop", "loop"),
        ("loop", "a"),
        ("a", "b"),
    ] {
        text.push_str(&format!(
            "{{\"edge\":\"Knows\",\"from\":\"{from}\",\"to\":\"{to}\"}}\n"
        ));
    }
    load(&world.sg, &text, Overwrite).await.unwrap();
    let reach = |from: &str, hops: &str| {
        format!(
            "match {{ $p: Person {{ name: \"{from}\" }}  $p knows{hops} $f }} return {{ $f.name }}"
        )
    };
    for (from, hops, expected) in [
        ("a", "", vec!["b"]),
        ("a", "{1,3}", vec!["b", "c", "d"]),
        ("a", "{2,3}", vec!["c", "d"]),
        ("a", "{2,2}", vec!["c"]),
        // A cycle ends, and never gives its start back.
        ("a", "{1,9}", vec!["b", "c", "d"]),
        ("a", "{4,4}", vec![]),
        // An edge to oneself is one hop, and no more.
        ("loop", "", vec!["a", "loop"]),
        ("loop", "{1,5}", vec!["a", "b", "c", "d", "loop"]),
        ("loop", "{2,2}", vec!["b"]),
    ] {
        assert_eq!(
            ask(&world, &reach(from, hops)).await,
            expected,
            "{from}{hops}"
        );
    }
    // Parallel edges are one pair, and two edges.
    let pairs = ask(
        &world,
        "match { $p: Person { name: \"a\" }  $p knows $f } return { count() as n }",
    );
    assert_eq!(pairs.await, ["1"]);
    let edges = ask(
        &world,
        "match { $p: Person { name: \"a\" }  $p $w:knows $f } return { count() as n }",
    );
    assert_eq!(edges.await, ["2"]);
    // Seen from either end, the edge to oneself is one edge.
    let own = "match { $p: Person { name: \"loop\" }  $p $w:<knows> $f } return { $f.name }";
    assert_eq!(ask(&world, own).await, ["a", "loop"]);
}

#[tokio::test]
async fn negation_is_about_rows() {
    let world = people().await;
    check(&world, &[
        ("match { $p: Person  not { $p worksAt $_ } } return { $p.name }", &["Charlie", "Diana"]),
        ("match { $p: Person  not { $p knows $_ } } return { $p.name }", &["Charlie", "Diana"]),
        ("match { $p: Person  not { $p <knows> $_ } } return { $p.name }", &[]),
        ("match { $p: Person  not { $p worksAt $c  $c.name = \"Acme\" } } return { $p.name }",
         &["Bob", "Charlie", "Diana"]),
        ("match { $p: Person  not { $p worksAt $c  $c: Company { name: \"Acme\" } } } return { $p.name }",
         &["Bob", "Charlie", "Diana"]),
        ("match { $p: Person  not { $p worksAt $c  not { $c.name = \"Acme\" } } } return { $p.name }",
         &["Alice", "Charlie", "Diana"]),
        // Always true inside: the same as without.
        ("match { $p: Person  not { $p knows $f  $f.name != \"\" } } return { $p.name }", &["Charlie", "Diana"]),
        // Bounds, fan-out, conditions of the outer row alone, two negations.
        ("match { $p: Person  not { $p knows{2,2} $_ } } return { $p.name }", &["Bob", "Charlie", "Diana"]),
        ("match { $p knows $f  not { $f knows $g  not { $g.age > 100 } } } return { $p.name, $f.name }",
         &["Alice|Charlie", "Bob|Diana"]),
        ("match { $p: Person  not { $p knows $f  $p.age < 30 } } return { $p.name }", &["Alice", "Charlie", "Diana"]),
        ("match { $p: Person  not { $p.name contains \"li\" } } return { $p.name }", &["Bob", "Diana"]),
        ("match { $p: Person  not { $p knows $_ }  not { $p.age > 30 } } return { $p.name }", &["Diana"]),
        // A node outside that is found by its key: the block starts from it.
        ("match { $p: Person { name: \"Alice\" }  $p knows $f  not { $f knows $_ } } return { $f.name }", &["Charlie"]),
        // Compared across, not joined.
        ("match { $p: Person  not { $q: Person  $q.age > $p.age } } return { $p.name }", &["Charlie"]),
    ]).await;
}

#[tokio::test]
async fn bound_edges_have_properties() {
    let world = people().await;
    check(&world, &[
        ("match { $p $w:knows $f  $w.since > 2012 } return { $f.name, $w.since, $w.id }", &["Charlie|2015|k2"]),
        ("match { $p: Person { name: \"Bob\" }  $p $w:knows $f } return { $w.since, $w.note }", &["NULL|NULL"]),
        ("match { $p $w:knows $f } return { $p.name, min($w.since) as first }", &["Alice|2010", "Bob|NULL"]),
        ("match { $p: Person  not { $p $w:knows $f  $w.since is not null } } return { $p.name }",
         &["Bob", "Charlie", "Diana"]),
        ("match { $b: Person { name: \"Bob\" }  $a $w:knows $b } return { $a.name, $w.note }", &["Alice|school"]),
    ]).await;
}

#[tokio::test]
async fn conditions_have_three_values() {
    let world = people().await;
    check(&world, &[
        ("match { $p: Person  $p.score != 2.0 } return { $p.name }", &["Alice", "Charlie"]),
        ("match { $p: Person  $p.score is null } return { $p.name }", &["Diana"]),
        ("match { $p: Person  $p.score is not null and $p.age < 30 } return { $p.name }", &["Bob"]),
        ("match { $p: Person  $p.age < 26 or $p.age > 34 } return { $p.name }", &["Bob", "Charlie"]),
        ("match { $p: Person  not ($p.score > 2.0) } return { $p.name }", &["Alice", "Bob"]),
        ("match { $p: Person  $p.active = true } return { $p.name }", &["Alice", "Charlie"]),
        ("match { $p: Person { active: false } } return { $p.name }", &["Bob"]),
        ("match { $p: Person  $p.born >= date(\"1995-01-01\") } return { $p.name }", &["Bob"]),
        ("match { $p: Person  $p.seen < datetime(\"2024-01-31T00:00:00Z\") } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $p.seen < now() } return { $p.name }", &["Alice", "Bob"]),
        // Numbers of other types compare exactly.
        ("match { $p: Person  $p.age = 25.5 } return { $p.name }", &[]),
        ("match { $p: Person  $p.age > 27.5  $p.age < 30.5 } return { $p.name }", &["Alice", "Diana"]),
        ("match { $p: Person  $p.age = 30.0 } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $p.age < 99999999999 } return { $p.name }", &["Alice", "Bob", "Charlie", "Diana"]),
        ("match { $p: Person  $p.age > -1 } return { count() as n }", &["4"]),
        ("match { $p: Person  $p.ratio = 0.1 } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $p.score = 2 } return { $p.name }", &["Bob"]),
        ("match { $p: Person  $q: Person  $p.age = $q.score } return { $p.name }", &[]),
        // Text is compared by bytes; nothing in it is a pattern.
        ("match { $p: Person  $p.nickName contains \"%_\" } return { $p.name }", &["Charlie"]),
        ("match { $p: Person  $p.nickName starts_with \"Bo\" } return { $p.name }", &["Bob"]),
        ("match { $p: Person  $p.nickName starts_with \"bo\" } return { $p.name }", &[]),
        ("match { $p: Person  \"Alice B\" starts_with $p.name } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $p.name contains $p.nickName } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $q: Person  $q.name contains $p.nickName } return { $p.name, $q.name }", &["Alice|Alice"]),
        // Lists: an item, not a part of one.
        ("match { $p: Person { tags: \"red\" } } return { $p.name }", &["Alice"]),
        ("match { $p: Person  $p.tags contains \"re\" } return { $p.name }", &[]),
        ("match { $p: Person  not ($p.tags contains \"red\") } return { $p.name }", &["Bob"]),
    ]).await;
}

#[tokio::test]
async fn groups_orders_and_numbers_of_rows() {
    let world = people().await;
    check(&world, &[
        ("match { $p knows $f } return { $p.name, count($f) as n } order { n desc }", &["Alice|2", "Bob|1"]),
        ("match { $p: Person } return { count($p) as n }", &["4"]),
        ("match { $p: Person  $p.age > 99 } return { count() as n, max($p.age) as m }", &["0|NULL"]),
        ("match { $p: Person  $p.age > 99 } return { $p.name, count() as n }", &[]),
        ("match { $p worksAt $c } return { $c.name, sum($p.age) as s, avg($p.age) as a, min($p.age) as l }",
         &["Acme|30|30.0|30", "Globex|25|25.0|25"]),
        ("match { $p: Person } return { min($p.name) as a, max($p.name) as z }", &["Alice|Diana"]),
        ("match { $p: Person } return { min($p.born) as a, max($p.active) as z }", &["1990-01-02|true"]),
        ("match { $p: Person } return { count($p.score) as n }", &["3"]),
        ("match { $p knows $f } return { count(distinct $p) as n }", &["2"]),
        ("match { $p: Person } return distinct { $p.active } order { $p.active }", &["NULL", "false", "true"]),
        ("match { $a knows $b  $b knows $c } return { $a.name, count($c) as n }", &["Alice|1"]),
        // Nulls first ascending, last descending; ids break ties.
        ("match { $p: Person } return { $p.name } order { $p.score }", &["Diana", "Alice", "Bob", "Charlie"]),
        ("match { $p: Person } return { $p.name } order { $p.score desc }", &["Charlie", "Bob", "Alice", "Diana"]),
        ("match { $p: Person } return { $p.name } order { $p.active }", &["Diana", "Bob", "Alice", "Charlie"]),
        ("match { $p: Person } return { $p.name } order { $p.active desc, $p.age desc }",
         &["Charlie", "Alice", "Bob", "Diana"]),
        ("match { $p knows $f } return { $f.name } order { $p.name } limit 2", &["Bob", "Charlie"]),
        ("match { $p: Person } return { $p.name } order { $p.age } skip 1 limit 2", &["Diana", "Alice"]),
        ("match { $p: Person } return { $p.name } order { $p.age } limit 0", &[]),
        // What orders need not be returned; what is returned may be the node.
        ("match { $p: Person } return { $p } order { $p.age desc } limit 1", &["Charlie"]),
        ("match { $p worksAt $c } return { $c.name, count() as n } order { count() desc, $c.name desc }",
         &["Globex|1", "Acme|1"]),
    ]).await;
}

#[tokio::test]
async fn optional_blocks_keep_rows() {
    let world = people().await;
    check(&world, &[
        ("match { $p: Person  optional { $p worksAt $c } } return { $p.name, $c.name }",
         &["Alice|Acme", "Bob|Globex", "Charlie|NULL", "Diana|NULL"]),
        ("match { $p: Person  optional { $p knows $f  $f.age > 30 } } return { $p.name, $f.name }",
         &["Alice|Charlie", "Bob|NULL", "Charlie|NULL", "Diana|NULL"]),
        ("match { $p: Person  optional { $p worksAt $c }  $c.name is null } return { $p.name }", &["Charlie", "Diana"]),
        ("match { $p: Person  optional { $p knows $f } } return { $p.name, count($f) as n } order { n desc, $p.name }",
         &["Alice|2", "Bob|1", "Charlie|0", "Diana|0"]),
        ("match { $p: Person  optional { $p knows $f  $f.age < $p.age } } return { $p.name, $f.name }",
         &["Alice|Bob", "Bob|NULL", "Charlie|NULL", "Diana|NULL"]),
        ("match { $p: Person { name: \"Alice\" }  optional { $p knows $f  not { $f worksAt $_ } } } return { $f.name }",
         &["Charlie"]),
    ]).await;
}

#[tokio::test]
async fn a_past_state_keeps_its_answer() {
    let world = people().await;
    let before = world
        .row("SELECT max(version), max(commit_id) FROM commits('g')")
        .await[0]
        .clone();
    let more = "{\"edge\":\"WorksAt\",\"from\":\"Diana\",\"to\":\"Acme\"}";
    load(&world.sg, more, Append).await.unwrap();
    let idle = "query q() { match { $p: Person  not { $p worksAt $_ } } return { $p.name } order { $p.name } }";
    let now = world
        .sql(&format!("SELECT * FROM graph_query('g', '{idle}')"))
        .await;
    assert_eq!(now, [["Charlie"]]);
    let sql = format!("SELECT * FROM graph_query('g', '{idle}', snapshot => {before})");
    assert_eq!(world.sql(&sql).await, [["Charlie"], ["Diana"]]);
    let commit = world
        .row("SELECT commit_id FROM commits('g') ORDER BY version LIMIT 1 OFFSET 1")
        .await;
    let sql = format!(
        "SELECT * FROM graph_query('g', '{idle}', snapshot => '{}')",
        commit[0]
    );
    assert_eq!(world.sql(&sql).await, [["Charlie"], ["Diana"]]);
    let table = format!("SELECT count(*) FROM sg.g.\"WorksAt\" WITH (snapshot = {before})");
    assert_eq!(world.sql(&table).await, [["2"]]);
    assert_eq!(
        world
            .code(&format!(
                "SELECT * FROM graph_query('g', '{idle}', snapshot => 'no')"
            ))
            .await,
        "NotFound"
    );
    assert_eq!(
        world
            .code(&format!(
                "SELECT * FROM graph_query('g', '{idle}', snapshot => 0)"
            ))
            .await,
        "VersionUnavailable"
    );
}
