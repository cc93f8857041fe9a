//! What users of other graph engines report, by the numbers of their trackers: each with the answer that is
//! expected here. What the language alone answers is in `tests/it/graph/query`, searches are in
//! `search_issues.rs`.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use object_store::memory::InMemory;
use stratagraph_udfs::find_error;
use tokio::time::Instant;

use super::reads::{ask, people};
use crate::graph_load::support::{Append, Merge, Overwrite, load, world};
use crate::world::{World, counting};

fn call(body: &str) -> String {
    format!("SELECT * FROM graph_query('g', $$ query q() {{ {body} }} $$)")
}

async fn explain(world: &World, sql: &str) -> String {
    let plan = world.sql(&format!("EXPLAIN {sql}")).await;
    let plan: Vec<String> = plan.into_iter().map(|row| row.join("\n")).collect();
    plan.join("\n")
}

const NOTES: &str = r#"
node Note { name: String @key  title: String?  body: String?  size: I32  v: Vector(2)?  w: Vector(2)? @index(metric = "l2") }
edge Cites: Note -> Note { since: I32? }
"#;

fn note(n: usize, title: &str, body: &str) -> String {
    let angle = n as f64 / 100.0;
    format!(
        "{{\"type\":\"Note\",\"data\":{{\"name\":\"n{n:03}\",\"title\":\"{title}\",\"body\":\"{body}\",\
         \"size\":{n},\"v\":[{},{}]}}}}",
        angle.cos(),
        angle.sin()
    )
}

async fn notes(rows: &[String]) -> World {
    let world = world(NOTES).await;
    load(&world.sg, &rows.join("\n"), Append).await.unwrap();
    world
}

/// A later search of a variable, or an order by `bm25`, took the place of an earlier one.
#[tokio::test]
async fn searches_of_one_variable_all_hold() {
    let world = notes(&[
        note(1, "red", "apple"),
        note(2, "red", "pear"),
        note(3, "blue", "apple"),
        note(4, "red", "apple apple"),
    ])
    .await;
    let names = |conditions: &str, order: &str| {
        format!(
            "match {{ $d: Note  {conditions} }} return {{ $d.name }} order {{ {order} }} limit 10"
        )
    };
    let (title, body) = (
        "search($d.title, \"red\")",
        "match_text($d.body, \"apple\")",
    );
    for both in [format!("{title}  {body}"), format!("{body}  {title}")] {
        assert_eq!(
            ask(&world, &names(&both, "$d.name")).await,
            ["n001", "n004"]
        );
        // The order is by another text, and by the same one.
        assert_eq!(
            ask(&world, &names(&both, "bm25($d.title, \"red\"), $d.name")).await,
            ["n001", "n004"]
        );
        assert_eq!(
            ask(&world, &names(&both, "bm25($d.body, \"apple\")")).await,
            ["n004", "n001"]
        );
        assert_eq!(
            ask(&world, &names(&both, "nearest($d.v, [1.0, 0.0])")).await,
            ["n001", "n004"]
        );
    }
    let neither = format!("{title}  not {{ $d.size > 0  {body} }}");
    assert_eq!(ask(&world, &names(&neither, "$d.name")).await, ["n002"]);
    let one_text = "search($d.body, \"apple\")  search($d.body, \"pear\")";
    assert!(
        ask(&world, &names(one_text, "bm25($d.body, \"apple\")"))
            .await
            .is_empty()
    );
}

/// omnigraph#574: a limit that goes into the search, before a condition that it does not know, leaves fewer rows.
#[tokio::test]
async fn a_limit_is_filled_whatever_the_best_rows_are() {
    // The best by words are the ones that the condition and the traversal rule out.
    let rows: Vec<String> = (0..400)
        .map(|n| {
            note(
                n,
                "x",
                match n {
                    0..200 => "apple apple apple",
                    _ => "apple and many other words",
                },
            )
        })
        .chain((200..400).map(|n| {
            format!("{{\"edge\":\"Cites\",\"from\":\"n{n:03}\",\"to\":\"n000\",\"data\":{{\"since\":{n}}}}}")
        }))
        .collect();
    let world = notes(&rows).await;
    for (clauses, order) in [
        ("$d.size >= 200", "bm25($d.body, \"apple\")"),
        ("$d cites $x", "bm25($d.body, \"apple\")"),
        (
            "$d cites $x  $x.name = \"n000\"",
            "nearest($d.v, [1.0, 0.0])",
        ),
        (
            "not { $x cites $y  $x.name = $d.name  $d.size < 0 }  $d.size >= 200",
            "nearest($d.v, [1.0, 0.0])",
        ),
        (
            "$d.size >= 200",
            "rrf(nearest($d.v, [1.0, 0.0]), bm25($d.body, \"apple\"))",
        ),
    ] {
        let body = format!(
            "match {{ $d: Note  {clauses} }} return {{ $d.size }} order {{ {order} }} limit 10"
        );
        let sizes = ask(&world, &body).await;
        assert_eq!(sizes.len(), 10, "{body}");
        assert!(
            sizes.iter().all(|n| n.parse::<usize>().unwrap() >= 200),
            "{body}: {sizes:?}"
        );
    }
}

/// omnigraph#750, #789: an answer depended on the order in which variables were declared.
#[tokio::test]
async fn the_order_of_clauses_changes_no_answer() {
    let mut rows: Vec<String> = (0..30)
        .map(|n| note(n, ["red", "blue"][n % 2], ["apple", "pear", "plum"][n % 3]))
        .collect();
    rows.extend((0..30).map(|n| {
        format!(
            "{{\"edge\":\"Cites\",\"from\":\"n{:03}\",\"to\":\"n{:03}\"}}",
            n % 7,
            (n * 11) % 30
        )
    }));
    let world = notes(&rows).await;
    let clauses = [
        "$a: Note",
        "$a cites $b",
        "search($b.body, \"apple\")",
        "$b.title = \"red\"",
    ];
    let mut answers = Vec::new();
    for order in permutations(4) {
        let all: Vec<&str> = order.iter().map(|at| clauses[*at]).collect();
        let body = format!(
            "match {{ {} }} return {{ $a.name, $b.name }} order {{ nearest($b.v, [1.0, 0.0]), $a.name }} limit 5",
            all.join("  ")
        );
        answers.push((body.clone(), ask(&world, &body).await));
    }
    assert_eq!(answers.len(), 24);
    assert!(answers[0].1.len() > 1, "{answers:?}");
    for (body, answer) in &answers[1..] {
        assert_eq!(answer, &answers[0].1, "{body}");
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for rest in permutations(n - 1) {
        for at in 0..n {
            let mut one = rest.clone();
            one.insert(at, n - 1);
            all.push(one);
        }
    }
    all
}

/// omnigraph#787, #788: the direction of a rank, and the keys behind it, were ignored.
#[tokio::test]
async fn directions_and_keys_of_ranks_count_or_are_refused() {
    // Each is first by one rank and second by the other: equal sums.
    let world = notes(&[note(1, "x", "apple"), note(2, "x", "apple apple")]).await;
    let sum = "rrf(nearest($d.v, [1.0, 0.0]), bm25($d.body, \"apple\"))";
    let ordered = |keys: &str| {
        format!("match {{ $d: Note }} return {{ $d.name }} order {{ {keys} }} limit 5")
    };
    for (keys, expected) in [
        (format!("{sum}, $d.name"), ["n001", "n002"]),
        (format!("{sum}, $d.name desc"), ["n002", "n001"]),
        (format!("{sum} desc, $d.size desc"), ["n002", "n001"]),
        ("bm25($d.body, \"apple\") desc".to_owned(), ["n002", "n001"]),
        (
            "bm25($d.title, \"x\"), $d.size desc".to_owned(),
            ["n002", "n001"],
        ),
        (
            "nearest($d.v, [1.0, 0.0]), $d.size desc".to_owned(),
            ["n001", "n002"],
        ),
    ] {
        assert_eq!(ask(&world, &ordered(&keys)).await, expected, "{keys}");
    }
    for refused in [
        "nearest($d.v, [1.0, 0.0]) desc".to_owned(),
        "nearest($d.v, [1.0, 0.0]) asc".to_owned(),
        "bm25($d.body, \"apple\") asc".to_owned(),
        format!("{sum} asc"),
        format!("$d.name, {sum}"),
    ] {
        let code = world.code(&call(&ordered(&refused))).await;
        assert_eq!(code, "QueryInvalid", "{refused}");
    }
}

/// The documentation said cosine, and the distance was Euclidean.
#[tokio::test]
async fn the_distance_is_that_of_the_property() {
    let world = world(NOTES).await;
    let row = |name: &str, v: &str| {
        format!(
            "{{\"type\":\"Note\",\"data\":{{\"name\":\"{name}\",\"size\":0,\"v\":{v},\"w\":{v}}}}}"
        )
    };
    let rows = [row("far", "[10, 1]"), row("near", "[1, 1]")].join("\n");
    load(&world.sg, &rows, Append).await.unwrap();
    let by = |property: &str| {
        format!(
            "match {{ $d: Note }} return {{ $d.name }} order {{ nearest($d.{property}, [1.0, 0.0]) }} limit 2"
        )
    };
    assert_eq!(ask(&world, &by("v")).await, ["far", "near"]);
    assert_eq!(ask(&world, &by("w")).await, ["near", "far"]);
}

/// A part of a pattern that no typed binding introduces was left out.
#[tokio::test]
async fn parts_without_a_typed_binding_count() {
    let world = people().await;
    for (body, expected) in [
        (
            "match { $p: Person  $a knows $b } return { count() as n }",
            "12",
        ),
        (
            "match { $a knows $b  $c worksAt $d } return { count() as n }",
            "6",
        ),
        (
            "match { $a knows $b  $c worksAt $d  $d.name = \"Nothing\" } return { count() as n }",
            "0",
        ),
        (
            "match { $p: Person  $_ worksAt $d  $d.name = \"Nothing\" } return { count() as n }",
            "0",
        ),
        (
            "match { $p: Person  $a $w:knows $b  $w.since > 2012 } return { count() as n }",
            "4",
        ),
    ] {
        assert_eq!(ask(&world, body).await, [expected], "{body}");
    }
}

/// `now()` failed in a read, or dropped the condition that it stood in.
#[tokio::test]
async fn now_is_a_value_of_reads() {
    let world = people().await;
    for (body, expected) in [
        (
            "match { $p: Person { seen: now() } } return { $p.name }",
            vec![],
        ),
        (
            "match { $p: Person  $p.seen > now() } return { $p.name }",
            vec![],
        ),
        (
            "match { $p: Person  not ($p.seen < now()) } return { $p.name }",
            vec![],
        ),
        (
            "match { $p: Person  not { $p knows $f  $f.seen < now() } } return { $p.name }",
            vec!["Bob", "Charlie", "Diana"],
        ),
        (
            "match { $p: Person  now() is null } return { $p.name }",
            vec![],
        ),
    ] {
        assert_eq!(ask(&world, body).await, expected, "{body}");
    }
    // One moment for the whole query.
    let rows = world
        .sql(&call(
            "match { $p: Person } return { now() as a, now() as b }",
        ))
        .await;
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row == &rows[0] && row[0] == row[1] && row[0] != "NULL"),
        "{rows:?}"
    );
    // And for all queries of a statement.
    let one = call("match { $p: Person } return { $p.name as name, now() as t }");
    let other =
        call("match { $p: Person  $p.name != \"\" } return { $p.name as name, now() as t }");
    let both = format!("SELECT a.t = b.t FROM ({one}) a JOIN ({other}) b ON a.name = b.name");
    assert_eq!(world.sql(&both).await, vec![["true"]; 4]);
}

/// A number of another variable was cast to the type on the left.
#[tokio::test]
async fn numbers_of_two_variables_compare_by_value() {
    let world =
        world("node N { name: String @key  i: I32?  l: I64?  u: U64?  f: F64?  s: F32? }").await;
    let rows = [
        "{\"name\":\"odd\",\"i\":2,\"l\":9007199254740993,\"u\":18446744073709551615,\"f\":2.7,\"s\":0.1}",
        "{\"name\":\"even\",\"i\":-1,\"l\":-1,\"u\":9223372036854775809,\"f\":9007199254740992.0,\"s\":2.0}",
        "{\"name\":\"third\",\"i\":2147483647,\"l\":9007199254740992,\"u\":9007199254740993,\
          \"f\":9223372036854775808.0,\"s\":16777216.0}",
        "{\"name\":\"last\",\"i\":16777217,\"l\":9223372036854775807,\"u\":0,\"f\":0.1,\"s\":-0.0}",
    ]
    .map(|data| format!("{{\"type\":\"N\",\"data\":{data}}}"))
    .join("\n");
    load(&world.sg, &rows, Overwrite).await.unwrap();
    for (left, right, expected) in [
        // An integer beside a fraction, and beside a float of the same value.
        ("odd.i", "odd.f", "<"),
        ("odd.i", "even.s", "="),
        ("even.i", "last.s", "<"),
        // Beyond 2^53 and beyond 2^24.
        ("odd.l", "even.f", ">"),
        ("third.l", "even.f", "="),
        ("third.u", "even.f", ">"),
        ("odd.l", "third.u", "="),
        ("last.i", "third.s", ">"),
        ("last.l", "third.f", "<"),
        // Signed beside unsigned.
        ("even.l", "odd.u", "<"),
        ("even.i", "last.u", "<"),
        ("even.u", "third.f", ">"),
        ("odd.u", "third.f", ">"),
        // Two widths of floats: what is stored as 0.1 is not the same.
        ("odd.s", "last.f", ">"),
        ("last.s", "last.u", "="),
    ] {
        for (a, b, is) in [
            (left, right, expected),
            (
                right,
                left,
                match expected {
                    "<" => ">",
                    ">" => "<",
                    same => same,
                },
            ),
        ] {
            let side = |var: &str, of: &str| {
                let (name, property) = of.split_once('.').unwrap();
                (
                    format!("${var}: N {{ name: \"{name}\" }}"),
                    format!("${var}.{property}"),
                )
            };
            let ((bind_a, a_value), (bind_b, b_value)) = (side("a", a), side("b", b));
            for operator in ["=", "!=", "<", "<=", ">", ">="] {
                let holds = match operator {
                    "=" => is == "=",
                    "!=" => is != "=",
                    "<" => is == "<",
                    ">" => is == ">",
                    "<=" => is != ">",
                    _ => is != "<",
                };
                let body = format!(
                    "match {{ {bind_a}  {bind_b}  {a_value} {operator} {b_value} }} return {{ count() as n }}"
                );
                let expected = if holds { "1" } else { "0" };
                assert_eq!(ask(&world, &body).await, [expected], "{a} {operator} {b}");
            }
        }
    }
}

/// The same of items: one that the list's type does not have is no item, and not the one that it is cut to.
#[tokio::test]
async fn items_are_found_by_value() {
    let world =
        world("node N { name: String @key  whole: [I32]?  wide: [F64]?  x: F64?  l: I64? }").await;
    let rows = [
        "{\"name\":\"a\",\"whole\":[2,3],\"wide\":[9007199254740992.0,0.5],\"x\":2.7,\"l\":9007199254740993}",
        "{\"name\":\"b\",\"whole\":[],\"x\":2.0,\"l\":9007199254740992}",
        "{\"name\":\"c\",\"l\":4294967298}",
    ]
    .map(|data| format!("{{\"type\":\"N\",\"data\":{data}}}"))
    .join("\n");
    load(&world.sg, &rows, Overwrite).await.unwrap();
    for (condition, expected) in [
        ("$p.whole contains $q.x", vec!["a|b"]),
        ("not ($p.whole contains $q.x)", vec!["a|a", "b|a", "b|b"]),
        ("$p.wide contains $q.l", vec!["a|b"]),
        ("not ($p.wide contains $q.l)", vec!["a|a", "a|c"]),
        ("$p.whole contains $q.l", vec![]),
    ] {
        let body = format!("match {{ $p: N  $q: N  {condition} }} return {{ $p.name, $q.name }}");
        assert_eq!(ask(&world, &body).await, expected, "{condition}");
    }
}

/// `@range(a, ..b)` was stored as a minimum.
#[tokio::test]
async fn a_range_without_a_lower_end_is_a_maximum() {
    let world =
        world("node N { name: String @key  a: I32?  b: F64? @range(..0.5)  @range(a, ..10) }")
            .await;
    let row = |data: &str| format!("{{\"type\":\"N\",\"data\":{{{data}}}}}");
    let fine = [
        row("\"name\":\"low\",\"a\":-2147483648,\"b\":-1e300"),
        row("\"name\":\"end\",\"a\":10,\"b\":0.5"),
    ];
    load(&world.sg, &fine.join("\n"), Append).await.unwrap();
    for data in ["\"name\":\"x\",\"a\":11", "\"name\":\"x\",\"b\":0.51"] {
        let error = load(&world.sg, &row(data), Append).await.unwrap_err();
        assert_eq!(error.code(), "RecordsInvalid", "{data}");
    }
}

/// Whether a column could be null followed from the rows that a query happened to find.
#[tokio::test]
async fn the_columns_of_an_answer_are_the_same_whatever_is_found() {
    // Each query has an answer of both: one that is full of values, and one of nulls.
    let full = people().await;
    let sparse = world(super::reads::SCHEMA).await;
    let rows = [
        "{\"type\":\"Person\",\"data\":{\"name\":\"a\"}}",
        "{\"edge\":\"Knows\",\"from\":\"a\",\"to\":\"a\"}",
    ];
    load(&sparse.sg, &rows.join("\n"), Overwrite).await.unwrap();
    for body in [
        "match { $p: Person } return { $p.name, $p.age, $p.tags }",
        "match { $p: Person  optional { $p worksAt $c } } return { $p.name, $c.name, now() as t }",
        "match { $p: Person } return { max($p.age) as a, sum($p.score) as s, count() as n }",
        "match { $p $w:knows $f } return { $f.name, $w.since, count() as n }",
    ] {
        let (mut plans, mut batches) = (Vec::new(), Vec::new());
        for world in [&full, &sparse] {
            let frame = world.ctx.sql(&call(body)).await.unwrap();
            let columns = |schema: &Schema| -> Vec<String> {
                let fields = schema.fields().iter();
                let shown =
                    fields.map(|f| format!("{} {} {}", f.name(), f.data_type(), f.is_nullable()));
                shown.collect()
            };
            plans.push(columns(frame.schema().as_arrow()));
            let rows = frame.collect().await.unwrap();
            assert!(!rows.is_empty(), "{body}");
            batches.extend(rows.iter().map(|batch| columns(&batch.schema())));
        }
        assert_eq!(plans[0], plans[1]);
        assert!(batches.iter().all(|b| *b == batches[0]), "{batches:?}");
    }
}

/// Days and moments in conditions: literals, parameters, bindings, and texts that are none.
#[tokio::test]
async fn days_and_moments_are_values_and_no_texts() {
    let world = people().await;
    for (condition, expected) in [
        ("$p.born = date(\"1990-01-02\")", vec!["Alice"]),
        ("$p.born != date(\"1990-01-02\")", vec!["Bob"]),
        ("$p.born < date(\"1990-01-02\")", vec![]),
        ("$p.born <= date(\"1990-01-02\")", vec!["Alice"]),
        ("date(\"1994-01-01\") < $p.born", vec!["Bob"]),
        ("$p: Person { born: date(\"1995-06-07\") }", vec!["Bob"]),
        // The same moment in another zone.
        (
            "$p.seen = datetime(\"2024-01-02T05:04:05+02:00\")",
            vec!["Alice"],
        ),
        ("$p.seen > datetime(\"2024-01-02T03:04:05Z\")", vec!["Bob"]),
    ] {
        let body = format!("match {{ $p: Person  {condition} }} return {{ $p.name }}");
        assert_eq!(ask(&world, &body).await, expected, "{condition}");
    }
    let asked = "SELECT * FROM graph_query('g', $$ query q($d: Date) { match { $p: Person { born: $d } } \
                 return { $p.name } } $$, ";
    assert_eq!(
        world
            .sql(&format!("{asked}'{{\"d\": \"1990-01-02\"}}')"))
            .await,
        [["Alice"]]
    );
    assert_eq!(
        world
            .sql(&format!("{asked}{{'d': DATE '1995-06-07'}})"))
            .await,
        [["Bob"]]
    );
    for refused in [
        format!("{asked}'{{\"d\": \"1990-01-02'' OR 1=1\"}}')"),
        format!("{asked}'{{\"d\": \"1990-02-30\"}}')"),
        call("match { $p: Person  $p.born = \"1990-01-02\" } return { $p.name }"),
        call("match { $p: Person  $p.born = date(\"1990-13-01\") } return { $p.name }"),
        call("match { $p: Person  $p.born = $p.seen } return { $p.name }"),
    ] {
        assert_eq!(world.code(&refused).await, "QueryInvalid", "{refused}");
    }
}

/// A graph of `nodes` nodes, each of which knows `out` others.
async fn ring(world: &World, nodes: usize, out: usize) {
    let mut rows: Vec<String> = (0..nodes)
        .map(|n| {
            format!(
                "{{\"type\":\"N\",\"data\":{{\"name\":\"n{n:05}\",\"x\":{}}}}}",
                n % 100
            )
        })
        .collect();
    for n in 0..nodes {
        rows.extend((0..out).map(|k| {
            let to = (n * (k + 2) + 7 * k + 1) % nodes;
            format!("{{\"edge\":\"E\",\"from\":\"n{n:05}\",\"to\":\"n{to:05}\"}}")
        }));
    }
    load(&world.sg, &rows.join("\n"), Append).await.unwrap();
}

const RING: &str = "node N { name: String @key  x: I32 } edge E: N -> N";

/// omnigraph#763: a negation over a traversal took 1.6 s for 2,000 outer rows and failed at 8,000.
#[tokio::test]
async fn a_negation_over_a_traversal_takes_thousands_of_rows() {
    let world = world(RING).await;
    ring(&world, 8_000, 5).await;
    let body = "match { $p: N  not { $p e $f  $f.x > $p.x } } return { $p.name }";
    let sql = "SELECT p.name FROM sg.g.\"N\" p WHERE NOT EXISTS (SELECT 1 FROM sg.g.\"E\" e JOIN sg.g.\"N\" f \
               ON f.id = e.dst WHERE e.src = p.id AND f.x > p.x)";
    let mut expected: Vec<String> = world.sql(sql).await.concat();
    expected.sort();
    assert!(expected.len() > 500 && expected.len() < 7_500);
    let started = Instant::now();
    assert_eq!(ask(&world, body).await, expected);
    println!("8,000 outer rows: {:?}", started.elapsed());
    // Two hops within the block: 8,000 rows, each with 30 inner ones.
    let deep = "match { $p: N  not { $p e{1,2} $f  $f.x > $p.x } } return { count() as n }";
    let found: usize = ask(&world, deep).await[0].parse().unwrap();
    assert!(found < expected.len(), "{found}");
}

async fn bounded(bytes: usize) -> World {
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    let model = counting();
    let store = Arc::new(InMemory::new());
    let world = World::with(ctx, store, 1, Arc::clone(&model) as _, model).await;
    world.sg.graph_create("g", RING).await.unwrap();
    world
}

/// Waits for tasks of partitions that end after the answer did.
async fn given_back(ctx: &SessionContext) {
    let pool = Arc::clone(&ctx.runtime_env().memory_pool);
    let started = Instant::now();
    while pool.reserved() > 0 {
        let held = pool.reserved();
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{held} bytes are held"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// kuzu#5177, #4459, #4608, #4540: paths of any length over cycles hang or take all memory.
#[tokio::test]
async fn cycles_in_little_memory_end_or_say_so() {
    let world = bounded(256 << 20).await;
    ring(&world, 1_000, 3).await;
    let all = call("match { $a <e>{1,64} $b } return { $a.name, $b.name }");
    let count = format!("SELECT count(*) FROM ({all})");
    // Each node reaches each other one; no node reaches itself but by its own edge.
    let loops = world
        .sql("SELECT count(DISTINCT src) FROM sg.g.\"E\" WHERE src = dst")
        .await;
    let loops: usize = loops[0][0].parse().unwrap();
    for mode in ["index", "adjacency", "auto"] {
        world
            .sql(&format!("SET stratagraph.traversal = '{mode}'"))
            .await;
        assert_eq!(
            world.sql(&count).await,
            [[(1_000 * 999 + loops).to_string()]],
            "{mode}"
        );
    }
    given_back(&world.ctx).await;
    // The same where the pairs cannot be held.
    let pool = Arc::new(GreedyMemoryPool::new(300_000));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let small = SessionContext::new_with_config_rt(
        SessionConfig::new().with_target_partitions(2),
        runtime.build_arc().unwrap(),
    );
    let function = world.ctx.table_function("graph_query").unwrap();
    small.register_udtf("graph_query", Arc::clone(function.function()));
    let ordered = format!("SELECT * FROM ({all}) ORDER BY 2, 1");
    world.sg.catalog().store().cache().clear();
    world.sg.catalog().store().indexes().clear();
    let error = match small.sql(&ordered).await {
        Ok(frame) => frame.collect().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(
        find_error(&error).is_some_and(|e| e.code() == "ResourcesExhausted")
            || error.to_string().contains("Resources exhausted"),
        "{error}"
    );
    given_back(&small).await;
}

/// The same: a traversal that its caller no longer waits for goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_traversal_ends_with_its_caller() {
    let world = bounded(1 << 30).await;
    ring(&world, 5_000, 6).await;
    world.sql("SET stratagraph.traversal = 'adjacency'").await;
    let pairs = call("match { $a <e>{1,64} $b } return { $a.name, $b.name }");
    let frame = world.ctx.sql(&pairs).await.unwrap();
    let mut rows = frame.execute_stream().await.unwrap();
    assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
    let task = tokio::spawn(async move {
        let mut found = 0;
        while let Some(batch) = rows.next().await {
            found += batch.unwrap().num_rows();
        }
        found
    });
    // 25 million pairs take far longer than this.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished());
    let pool = Arc::clone(&world.ctx.runtime_env().memory_pool);
    assert!(pool.reserved() > 0);
    let dropped = Instant::now();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    while pool.reserved() > 0 {
        assert!(dropped.elapsed() < Duration::from_secs(10), "it goes on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("ended {:?} after it was dropped", dropped.elapsed());
}

/// kuzu#5152, #5040, #2202: one question is fast or slow depending on how its start is spelled.
#[tokio::test]
async fn a_start_has_one_plan_however_it_is_spelled() {
    let world = world(RING).await;
    ring(&world, 500, 3).await;
    let query = |clauses: &str, rest: &str| {
        format!("SELECT \"f.name\" FROM graph_query('g', $$ query q{clauses} $$ {rest}")
    };
    let spelled = [
        query(
            "() { match { $p: N { name: \"n00007\" }  $p e $f } return { $p.name, $f.name } }",
            ")",
        ),
        query(
            "() { match { $p e $f  $p.name = \"n00007\" } return { $p.name, $f.name } }",
            ")",
        ),
        query(
            "() { match { $p e $f  \"n00007\" = $p.name } return { $p.name, $f.name } }",
            ")",
        ),
        query(
            "($n: String) { match { $p: N { name: $n }  $p e $f } return { $p.name, $f.name } }",
            ", {'n': 'n00007'})",
        ),
        query(
            "() { match { $p e $f } return { $p.name, $f.name } }",
            ") WHERE \"p.name\" = 'n00007'",
        ),
        query(
            "() { match { $p e $f } return { $p.name, $f.name } }",
            ") WHERE \"p.name\" = (SELECT 'n00007')",
        ),
    ];
    let mut answers = Vec::new();
    for sql in &spelled {
        let mut rows = world.sql(sql).await;
        rows.sort();
        answers.push(rows);
    }
    assert!(
        answers
            .iter()
            .all(|rows| *rows == answers[0] && !rows.is_empty()),
        "{answers:?}"
    );
    // The row ids of one node go into the traversal, not those of all.
    for sql in &spelled[..5] {
        let plan = explain(&world, &format!("ANALYZE {sql}")).await;
        let expand = plan
            .lines()
            .find(|line| line.contains("ExpandExec"))
            .unwrap();
        let one = ["hop_1_frontier=1,", "hop_1_frontier=1]"];
        assert!(one.iter().any(|one| expand.contains(one)), "{sql}\n{plan}");
    }
}

/// omnigraph#752: nothing said where the time of a query went; #533, #544: which path a hop took.
#[tokio::test]
async fn explain_analyze_says_what_each_hop_did() {
    let world = world(RING).await;
    ring(&world, 500, 3).await;
    let sql = call("match { $p: N { name: \"n00007\" }  $p e{1,2} $f } return { $f.name }");
    let plan = explain(&world, &format!("ANALYZE {sql}")).await;
    let expand = plan
        .lines()
        .find(|line| line.contains("ExpandExec"))
        .unwrap();
    for part in [
        "output_rows=",
        "elapsed_compute=",
        "hop_1_edges=",
        "hop_2_frontier=",
        "bytes_read=",
    ] {
        assert!(expand.contains(part), "{part} in {expand}");
    }
}

/// omnigraph#703, #704, #723: counts and traversals read all columns, vectors too.
#[tokio::test]
async fn counts_and_traversals_read_no_vectors() {
    let world = notes(&[note(1, "a", "b")]).await;
    for body in [
        "match { $d: Note } return { count($d) as n }",
        "match { $a cites $b } return { $a.name, count($b) as n }",
        "match { $a cites $b  not { $b cites $a } } return { $b.name }",
        "match { $a cites{1,3} $b  search($b.body, \"x\") } return { $a.name }",
    ] {
        let plan = explain(&world, &call(body)).await;
        for line in plan.lines().filter(|line| line.contains("projection=[")) {
            let columns = line
                .split("projection=[")
                .nth(1)
                .unwrap()
                .split(']')
                .next()
                .unwrap();
            let read: Vec<&str> = columns
                .split(", ")
                .map(|c| c.split(' ').next().unwrap())
                .collect();
            assert!(
                !read.iter().any(|c| ["v", "w", "title", "size"].contains(c)),
                "{body}: {line}"
            );
        }
    }
}

/// duckpgq#283: names of internal columns leak.
#[tokio::test]
async fn internal_columns_stay_inside() {
    let world = people().await;
    let columns = world
        .sql("SELECT column_name FROM information_schema.columns WHERE table_schema = 'g'")
        .await
        .concat();
    assert!(columns.contains(&"since".to_owned()), "{columns:?}");
    let leaked: Vec<&String> = columns
        .iter()
        .filter(|name| name.starts_with('_'))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    for column in ["_rid", "_src_rid", "_dst_rid"] {
        for of in ["Person", "Knows"] {
            let sql = format!("SELECT {column} FROM sg.g.\"{of}\"");
            let error = world.try_sql(&sql).await.unwrap_err().to_string();
            assert!(error.contains(column), "{error}");
        }
        let sql = call(&format!("match {{ $p: Person }} return {{ $p.{column} }}"));
        assert_eq!(world.code(&sql).await, "QueryInvalid");
    }
    let frame = world
        .ctx
        .sql(&call(
            "match { $p $w:knows $f } return { $p.name, $w.since }",
        ))
        .await;
    let names: Vec<String> = frame
        .unwrap()
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(names, ["p.name", "w.since"]);
}

/// datafusion#13545, KalamDB#378: a pattern beside tables of other kinds in one statement.
#[tokio::test]
async fn a_statement_joins_a_pattern_with_memory_and_files() {
    let world = people().await;
    let names: ArrayRef = Arc::new(StringArray::from(vec!["Alice", "Bob"]));
    let points: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
    let batch = RecordBatch::try_from_iter([("name", names), ("points", points)]).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    world.ctx.register_table("points", Arc::new(table)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pay.parquet").display().to_string();
    world
        .sql(&format!(
            "COPY (SELECT * FROM (VALUES ('Acme', 10), ('Globex', 20)) v(company, pay)) TO '{path}' STORED AS PARQUET"
        ))
        .await;
    world
        .sql(&format!(
            "CREATE EXTERNAL TABLE pay STORED AS PARQUET LOCATION '{path}'"
        ))
        .await;
    let pattern = call("match { $p worksAt $c } return { $p.name as person, $c.name as company }");
    let sql = format!(
        "SELECT q.person, pay.pay * points.points AS total, p.age FROM ({pattern}) q \
         JOIN points ON points.name = q.person JOIN pay ON pay.company = q.company \
         JOIN sg.g.\"Person\" p ON p.id = q.person ORDER BY 1"
    );
    assert_eq!(
        world.sql(&sql).await,
        [["Alice", "70", "30"], ["Bob", "160", "25"]]
    );
}

/// omnigraph#660: one of two parallel edges cannot be named.
#[tokio::test]
async fn parallel_edges_are_told_apart_by_their_ids() {
    let world = people().await;
    let twin = "{\"edge\":\"Knows\",\"from\":\"Alice\",\"to\":\"Bob\",\"data\":{\"id\":\"k9\",\"since\":1}}";
    load(&world.sg, twin, Merge).await.unwrap();
    let edges = "match { $p: Person { name: \"Alice\" }  $p $w:knows $f  $f.name = \"Bob\" } return { $w.id }";
    assert_eq!(ask(&world, edges).await, ["k1", "k9"]);
    let delete =
        stratagraph_udfs::GraphMutate::new("g", "query m() { delete Knows where id = \"k1\" }");
    assert_eq!(
        world.sg.graph_mutate(delete).await.unwrap().affected_edges,
        1
    );
    assert_eq!(ask(&world, edges).await, ["k9"]);
    let ends = "query m() { delete Knows where from = \"Alice\" and to = \"Bob\" }";
    let delete = stratagraph_udfs::GraphMutate::new("g", ends);
    assert_eq!(
        world.sg.graph_mutate(delete).await.unwrap().affected_edges,
        1
    );
    assert!(ask(&world, edges).await.is_empty());
}
