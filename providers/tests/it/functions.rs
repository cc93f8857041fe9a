//! Table functions: how often they run, how arguments arrive, what they see.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionConfig, SessionContext};
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, Metadata, PlannedArgs, RunContext,
    TableFunction,
};

use super::world::{Change, World, code, one, query, rows};

/// Runs by tag: tests run side by side, so each uses tags of its own.
static RUNS: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
static CANCELLED: AtomicU64 = AtomicU64::new(0);

fn runs(tag: &str) -> u64 {
    RUNS.lock().unwrap().get(tag).copied().unwrap_or(0)
}

/// A verb that counts its runs and shows its arguments.
#[derive(Debug)]
struct Probe(FunctionSpec);

/// A read that shows the catalog version that its pin sees.
#[derive(Debug)]
struct Seen(FunctionSpec);

/// A verb that never ends.
#[derive(Debug)]
struct Stuck(FunctionSpec);

pub fn all() -> Vec<Arc<dyn TableFunction>> {
    let probe = vec![
        ArgSpec::required("tag", ArgType::Name),
        ArgSpec::or("k", ArgType::Int, ArgValue::Int(7)),
        ArgSpec::optional("columns", ArgType::Names),
        ArgSpec::optional("query", ArgType::Query),
        ArgSpec::optional("source", ArgType::Relation),
        ArgSpec::optional("flag", ArgType::Bool),
        ArgSpec::optional("params", ArgType::Params),
        ArgSpec::optional("mode", ArgType::Text).literal(),
    ];
    vec![
        Arc::new(Probe(FunctionSpec::verb("probe", probe))),
        Arc::new(Seen(FunctionSpec::read("seen", vec![]))),
        Arc::new(Stuck(FunctionSpec::verb("stuck", vec![]))),
    ]
}

fn text_schema(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|n| Field::new(*n, DataType::Utf8, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[async_trait]
impl TableFunction for Probe {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        Ok(text_schema(&["tag", "args"]))
    }

    async fn run(
        self: Arc<Self>,
        args: BoundArgs,
        context: RunContext,
    ) -> Result<Vec<RecordBatch>> {
        let tag = args.text("tag")?.to_owned();
        *RUNS.lock().unwrap().entry(tag.clone()).or_default() += 1;
        if tag == "fail" {
            return Err(args.invalid("tag", "fails"));
        }
        let mut shown = Vec::new();
        for arg in &self.0.args[1..] {
            match args.get(arg.name) {
                ArgValue::Null => {}
                ArgValue::Plan(plan) => {
                    let session = context.session.clone().unwrap();
                    let plan = session.create_physical_plan(plan).await;
                    let plan = plan.map_err(stratagraph_providers::from_datafusion)?;
                    let task = Arc::clone(&context.task);
                    let rows = datafusion::physical_plan::collect(plan, task).await;
                    let rows = rows.map_err(stratagraph_providers::from_datafusion)?;
                    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
                    shown.push(format!("{}={count} rows", arg.name));
                }
                ArgValue::Struct(ScalarValue::Struct(value)) => {
                    shown.push(format!("{}=struct of {}", arg.name, value.num_columns()));
                }
                value => shown.push(format!("{}={value:?}", arg.name)),
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values([&tag, &tag])),
            Arc::new(StringArray::from_iter_values([
                shown.join(" "),
                "second".to_owned(),
            ])),
        ];
        let schema = text_schema(&["tag", "args"]);
        Ok(vec![RecordBatch::try_new(schema, columns)?])
    }
}

#[async_trait]
impl TableFunction for Seen {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        let field = Field::new("catalog_version", DataType::Int64, false);
        Ok(Arc::new(Schema::new(vec![field])))
    }

    async fn run(self: Arc<Self>, _: BoundArgs, context: RunContext) -> Result<Vec<RecordBatch>> {
        let head = context
            .pin
            .snapshot(&context.metadata, Default::default())
            .await?;
        let column: ArrayRef = Arc::new(Int64Array::from(vec![head.version as i64]));
        let field = Field::new("catalog_version", DataType::Int64, false);
        let schema = Arc::new(Schema::new(vec![field]));
        Ok(vec![RecordBatch::try_new(schema, vec![column])?])
    }
}

struct CountDrop;

impl Drop for CountDrop {
    fn drop(&mut self) {
        CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl TableFunction for Stuck {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _: &PlannedArgs<'_>, _: &Arc<Metadata>) -> Result<SchemaRef> {
        Ok(text_schema(&["x"]))
    }

    async fn run(self: Arc<Self>, _: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        let _count = CountDrop;
        std::future::pending::<()>().await;
        Err(Error::Cancelled { operation: "stuck" })
    }
}

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
