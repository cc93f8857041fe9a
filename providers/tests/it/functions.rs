//! Table functions: how often they run, how arguments arrive, what they see.

use std::sync::atomic::Ordering;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::probes::{CANCELLED, runs};
use super::world::{Change, World, code, one, query, rows};

async fn session() -> SessionContext {
    World::new().session(SessionConfig::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_runs_as_often_as_its_plan_is_executed() {
    let ctx = session().await;
    let cases = [
        ("a1", "select * from probe('a1')", 1),
        ("a2", "explain select * from probe('a2')", 0),
        ("a3", "explain analyze select * from probe('a3')", 1),
        ("a4", "select count(*) from probe('a4')", 1),
        ("a5", "select * from probe('a5') limit 0", 0),
        ("a6", "select * from probe('a6') where false", 0),
        ("a7", "select * from probe('a7') limit 1", 1),
        (
            "a8",
            "with r as (select * from probe('a8')) select * from r union all select * from r",
            1,
        ),
        ("a9", "select args from probe('a9') where tag = 'none'", 1),
        (
            "b1",
            "with r as (select * from probe('b1')) select * from r a join r b on a.tag = b.tag",
            1,
        ),
        ("b2", "create view v as select * from probe('b2')", 0),
        ("b2", "select * from v", 1),
        ("b2", "select tag from v limit 1", 2),
        ("b3", "prepare p as select * from probe('b3')", 0),
        ("b3", "execute p", 1),
        ("b3", "execute p", 2),
        ("b4", "create table t as select * from probe('b4')", 1),
        (
            "b5",
            "select 1 where 'b5' in (select tag from probe('b5'))",
            1,
        ),
        ("b6", "select (select max(tag) from probe('b6'))", 1),
    ];
    for (tag, sql, expected) in cases {
        query(&ctx, sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(runs(tag), expected, "{sql}");
    }
    let frame = ctx.sql("select * from probe('b7')").await.unwrap();
    frame.clone().collect().await.unwrap();
    frame.collect().await.unwrap();
    assert_eq!(runs("b7"), 2);
    assert_eq!(
        code(&ctx, "select * from probe('fail')").await,
        "InvalidArgument"
    );
    // A recursive query executes its body again and again.
    let recursive = "with recursive r as (select 0 n union all \
        select n + 1 from r, (select * from probe('b8') limit 1) where n < 3) select max(n) from r";
    assert_eq!(one(&ctx, recursive).await, "3");
    assert_eq!(runs("b8"), 1);
}

#[tokio::test]
async fn hosts_without_rules_run_a_verb_once_too() {
    let ctx = World::new().bare_session(SessionConfig::new()).await;
    let twice = "with r as (select * from probe('c1')) select * from r union all select * from r";
    assert_eq!(query(&ctx, twice).await.unwrap().len(), 4);
    assert_eq!(runs("c1"), 1);
    let frame = ctx.sql("select * from probe('c2')").await.unwrap();
    frame.clone().collect().await.unwrap();
    frame.collect().await.unwrap();
    assert_eq!(runs("c2"), 2);
    let different = "select (select max(args) from probe('c3', 1)) a, (select max(args) from probe('c3', 2)) b, \
        (select count(*) from seen()) c";
    assert_eq!(one(&ctx, different).await, "second|second|1");
    let two = "select a.args, b.args from probe('c4', 1) a, probe('c4', 2) b where a.args <> 'second' and b.args <> 'second'";
    assert_eq!(one(&ctx, two).await, "k=Int(1)|k=Int(2)");
    let named = code(&ctx, "select * from probe('c5', k => 1)").await;
    assert!(named.starts_with("foreign"), "{named}");
    assert_eq!(
        code(&ctx, "select * from probe('c5', 'x')").await,
        "InvalidArgument"
    );
}

#[tokio::test]
async fn arguments_arrive_by_name_and_position() {
    let ctx = session().await;
    ctx.sql("create table host as values (1), (2), (3)")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let shown = [
        ("probe('d')", "k=Int(7)"),
        ("PROBE(d, K => 3)", "k=Int(3)"),
        ("probe(K := 1 + 1, TAG => 'd')", "k=Int(2)"),
        ("probe('d', k = 4)", "k=Int(4)"),
        ("probe('d', NULL)", "k=Int(7)"),
        (
            "probe('d', columns => 'a, b')",
            "k=Int(7) columns=Names([\"a\", \"b\"])",
        ),
        (
            "probe('d', columns => ['a', 'b'])",
            "k=Int(7) columns=Names([\"a\", \"b\"])",
        ),
        (
            "probe('d', 1, 'x', [1, 2.5])",
            "k=Int(1) columns=Names([\"x\"]) query=Vector([1.0, 2.5])",
        ),
        (
            "probe('d', query => 'it' || 's')",
            "k=Int(7) query=Text(\"its\")",
        ),
        (
            "probe('d', source => host)",
            "k=Int(7) source=Text(\"host\")",
        ),
        (
            "probe('d', source => public.\"Host\")",
            "k=Int(7) source=Text(\"public.Host\")",
        ),
        (
            "probe('d', source => (select * from host where column1 > 1))",
            "k=Int(7) source=2 rows",
        ),
        ("probe('d', flag => true)", "k=Int(7) flag=Bool(true)"),
        (
            "probe('d', params => {'x': 1, 'y': 'z'})",
            "k=Int(7) params=struct of 2",
        ),
        ("probe('d', params => '{}')", "k=Int(7) params=Text(\"{}\")"),
        ("probe('d', mode => 'm')", "k=Int(7) mode=Text(\"m\")"),
    ];
    for (call, expected) in shown {
        let sql = format!("select args from {call} where args <> 'second'");
        assert_eq!(one(&ctx, &sql).await, expected, "{call}");
        let lateral = format!(
            "select p.args from host h, lateral {call} p where p.args <> 'second' and column1 = 1"
        );
        assert_eq!(one(&ctx, &lateral).await, expected, "lateral {call}");
    }
    let refused = [
        "probe()",
        "probe(NULL)",
        "probe('d', k => 'x')",
        "probe('d', k => 1.5)",
        "probe('d', k => host)",
        "probe('d', nothing => 1)",
        "probe('d', k => 1, k => 2)",
        "probe('d', tag => 'e')",
        "probe(tag => 'd', 1)",
        "probe('d', 1, 'x', 'q', host, true, '{}', 'm', 9)",
        "probe('d', query => (select 1))",
        "probe('d', *)",
        "probe('d') with (version = 1)",
    ];
    for call in refused {
        let sql = format!("select * from {call}");
        assert_eq!(code(&ctx, &sql).await, "InvalidArgument", "{call}");
    }
    let correlated = "select * from host h, lateral probe('d', k => h.column1) p";
    assert_eq!(code(&ctx, correlated).await, "InvalidArgument");
    let message = query(&ctx, "select * from probe('d', k => 'x')")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("argument k of probe: expected an integer"),
        "{message}"
    );
}

#[tokio::test]
async fn parameters_arrive_when_they_are_bound() {
    let ctx = session().await;
    for sql in [
        "prepare p1(bigint) as select args from probe('e1', k => $1) where args <> 'second'",
        "prepare p2 as select args from probe('e1', k => $1) where args <> 'second'",
        "prepare p3 as select args from probe($1, query => upper($2)) where args <> 'second'",
        "prepare p4 as select a.args x, b.args y from probe('e1', $1) a join probe('e1', k => $2) b \
            on a.tag = b.tag where a.args <> 'second' and b.args <> 'second'",
    ] {
        query(&ctx, sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    for (sql, expected) in [
        ("execute p1(3)", "k=Int(3)"),
        ("execute p1(4)", "k=Int(4)"),
        ("execute p2(5)", "k=Int(5)"),
        ("execute p2(NULL)", "k=Int(7)"),
        ("execute p3('e2', 'abc')", "k=Int(7) query=Text(\"ABC\")"),
        ("execute p4(1, 2)", "k=Int(1)|k=Int(2)"),
    ] {
        assert_eq!(one(&ctx, sql).await, expected, "{sql}");
    }
    assert_eq!(code(&ctx, "execute p2(2.5)").await, "InvalidArgument");
    assert_eq!(code(&ctx, "execute p3(NULL, 'x')").await, "InvalidArgument");
    let bound = |value: ScalarValue| {
        let ctx = ctx.clone();
        async move {
            let sql = "select args from probe('e3', query => $1) where args <> 'second'";
            let frame = ctx.sql(sql).await.unwrap();
            let frame = frame.with_param_values(vec![value]).unwrap();
            super::world::lines(&frame.collect().await.unwrap()).remove(0)
        }
    };
    let items = [ScalarValue::from(1.5f64), ScalarValue::from(0.1f64)];
    let list = ScalarValue::List(ScalarValue::new_list(&items, &DataType::Float64, true));
    assert_eq!(bound(list).await, "k=Int(7) query=Vector([1.5, 0.1])");
    assert_eq!(
        bound(ScalarValue::from("word")).await,
        "k=Int(7) query=Text(\"word\")"
    );
    assert_eq!(bound(ScalarValue::Utf8(None)).await, "k=Int(7)");
    assert_eq!(
        code(&ctx, "select * from probe('e4', k => $1)").await,
        "InvalidArgument"
    );
    assert_eq!(
        code(&ctx, "select * from probe('e4', mode => $1)").await,
        "InvalidArgument"
    );
    assert_eq!(runs("e4"), 0);
}

#[tokio::test]
async fn calls_with_other_arguments_are_other_calls() {
    let ctx = session().await;
    for (sql, expected) in [
        (
            "select (select min(args) from probe('f1', k => 1)) a, (select min(args) from probe('f1', k => 2)) b",
            "k=Int(1)|k=Int(2)",
        ),
        (
            "select a.args, b.args from probe('f1', 1) a join probe('f1', 2) b on a.tag = b.tag \
                where a.args < 'l' and b.args < 'l'",
            "k=Int(1)|k=Int(2)",
        ),
        (
            "select count(*) from (select * from probe('f1', 1) union select * from probe('f1', 2))",
            "3",
        ),
        (
            "select p, q from (with x as (select 1 a) select min(args) p \
                from probe('f1', source => (select * from x))), \
                (with x as (select 1 a union all select 2) select min(args) q \
                from probe('f1', source => (select * from x)))",
            "k=Int(7) source=1 rows|k=Int(7) source=2 rows",
        ),
    ] {
        assert_eq!(one(&ctx, sql).await, expected, "{sql}");
    }
    let plan = query(&ctx, "explain select * from probe('f2', k => 2)")
        .await
        .unwrap();
    let again = query(&ctx, "explain select * from probe('f2', k => 2)")
        .await
        .unwrap();
    assert_eq!(plan, again);
    assert!(plan.join("\n").contains("VerbExec: probe"), "{plan:?}");
}

#[tokio::test]
async fn writes_can_be_switched_off() {
    let ctx = session().await;
    query(&ctx, "set stratagraph.allow_writes = false")
        .await
        .unwrap();
    assert_eq!(
        code(&ctx, "select * from probe('g1')").await,
        "WritesNotAllowed"
    );
    assert_eq!(code(&ctx, "select * from seen()").await, "no error, 1 rows");
    assert_eq!(runs("g1"), 0);
    query(&ctx, "set stratagraph.allow_writes = true")
        .await
        .unwrap();
    query(&ctx, "select * from probe('g1')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_stream_cancels_a_verb() {
    let ctx = session().await;
    let frame = ctx.sql("select * from stuck()").await.unwrap();
    let before = CANCELLED.load(Ordering::SeqCst);
    let waited = tokio::time::timeout(std::time::Duration::from_millis(100), frame.collect()).await;
    assert!(waited.is_err());
    for _ in 0..100 {
        if CANCELLED.load(Ordering::SeqCst) > before {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the verb goes on");
}

#[tokio::test]
async fn a_read_sees_the_snapshot_of_its_statement() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..3, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    let other = world.other();
    let sql = "select c.catalog_version, d.catalog_version, count(t._row_id) \
        from sg.embeddings.t, seen() c, (select * from seen()) d group by 1, 2";
    assert_eq!(one(&ctx, sql).await, "1|1|3");
    other.publish("t", Change::add(rows(3..5, 1))).await;
    assert_eq!(one(&ctx, sql).await, "2|2|5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_may_be_a_plan() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..30, 1))).await;
    let config = || SessionConfig::new().with_target_partitions(3);
    for ctx in [
        world.session(config()).await,
        world.bare_session(config()).await,
    ] {
        for sql in [
            "select count(*) from {t}",
            "select * from {t} where n > 40",
            "select city, count(*) from {t} group by city",
            "select a._row_id, b.n from {t} a join {t} b on a._row_id = b._row_id where a.n < 50",
            "select distinct s.city from {t} s union select city from {t} where n is null",
            "select _row_id from {t} order by n, _row_id limit 4",
            "select 1 from {t} limit 2",
        ] {
            let mut ours = query(&ctx, &sql.replace("{t}", "streamed('t')"))
                .await
                .unwrap();
            let mut table = query(&ctx, &sql.replace("{t}", "sg.embeddings.t"))
                .await
                .unwrap();
            ours.sort();
            table.sort();
            assert_eq!(ours, table, "{sql}");
        }
        assert_eq!(
            code(&ctx, "select * from streamed('none')").await,
            "NotFound"
        );
    }
}
