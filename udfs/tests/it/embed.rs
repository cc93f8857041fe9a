//! `embed` and `embed_checked`: with models of this process, and with one that must be waited for.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::execution::FunctionRegistry;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::embed::testing::{CountingEmbedder, Fault, FaultyEmbedder};
use stratagraph::embed::{
    BatchLimits, Embedder, HashEmbedder, ModelPolicy, ModelRegistry, RejectReason,
};
use stratagraph_udfs::{Options, install};

use crate::world::{World, docs, strings, table, typed};

/// A world with `remote`, which is `hash:16` without a synchronous path.
struct Remote {
    world: World,
    model: Arc<CountingEmbedder>,
    faulty: Arc<FaultyEmbedder>,
}

fn hash(dimensions: usize) -> Arc<dyn Embedder> {
    Arc::new(HashEmbedder::new(dimensions).unwrap())
}

impl Remote {
    async fn new(rows: usize) -> Self {
        let world = World::new().await;
        world.docs.set(&docs(rows));
        let faulty = Arc::new(FaultyEmbedder::new("remote", hash(16)));
        let limits = BatchLimits {
            rows: 7,
            bytes: 1 << 20,
        };
        let counted = CountingEmbedder::new("remote", Arc::clone(&faulty) as _);
        let model = Arc::new(counted.with_limits(limits));
        let registered = Arc::clone(&model) as Arc<dyn Embedder>;
        world.sg.register_model("remote", registered).unwrap();
        Self {
            world,
            model,
            faulty,
        }
    }

    /// The rows of a statement in which `$m` stands for the model: the same with the remote and with
    /// the local one. Gives what the remote model was given.
    async fn same(&self, sql: &str) -> Vec<String> {
        self.model.reset();
        let remote = self.world.sql(&sql.replace("$m", "remote")).await;
        let local = self.world.sql(&sql.replace("$m", "hash:16")).await;
        assert_eq!(remote, local, "{sql}");
        let mut texts: Vec<String> = self.model.texts().into_iter().flatten().collect();
        texts.sort();
        texts
    }
}

#[tokio::test]
async fn rows_go_to_a_local_model_once_a_text() {
    let world = World::new().await;
    let mut rows = docs(40);
    for (at, row) in rows.iter_mut().enumerate() {
        row.1 = (at % 4 > 0).then(|| format!("title {}", at % 3));
    }
    world.docs.set(&rows);
    // One partition and one batch.
    world
        .sql("CREATE TABLE one AS SELECT * FROM docs ORDER BY id")
        .await;
    world.model.reset();
    let rows = world
        .sql("SELECT title, array_length(embed(title, 'counting')), embed(title, 'counting') IS NOT DISTINCT FROM embed(title, 'hash:16') FROM one")
        .await;
    assert_eq!(rows.len(), 40);
    for row in &rows {
        let width = if row[0] == "NULL" { "NULL" } else { "16" };
        assert_eq!(row[1..], strings(&[width, "true"]), "{row:?}");
    }
    let mut texts = world.model.texts();
    texts.sort();
    texts.dedup();
    let distinct = ["title 0", "title 1", "title 2"].map(|text| Some(text.to_owned()));
    assert_eq!(texts, distinct);
    assert!(world.model.rows() % 3 == 0, "a text goes to a call once");
}

#[tokio::test]
async fn a_constant_call_is_a_literal_when_a_plan_is_made() {
    let world = World::new().await;
    world.docs.set(&docs(100));
    let sql = "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'hash:16'), embed('blue', 'counting')) LIMIT 3";
    let plans = world.sql(&format!("EXPLAIN {sql}")).await;
    let physical = &plans[1][1];
    assert!(!physical.contains("counting"), "{physical}");
    assert!(physical.contains("embed(body@"), "{physical}");
    let planned = world.model.rows();
    assert!(
        planned >= 1
            && world
                .model
                .texts()
                .iter()
                .all(|t| t.as_deref() == Some("blue"))
    );
    let rows = world.sql(sql).await;
    assert_eq!(rows.len(), 3);
    assert_eq!(world.model.rows(), 2 * planned, "and never when it runs");
}

#[tokio::test]
async fn parameters_are_texts() {
    let world = World::new().await;
    world.docs.set(&docs(30));
    let sql = "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'hash:16'), embed($1, 'counting')), id LIMIT 1";
    let frame = world.ctx.sql(sql).await.unwrap();
    for at in [3, 17] {
        let text = ScalarValue::from(format!("{} body {at}", ["blue", "amber"][at / 10]).as_str());
        let bound = frame.clone().with_param_values(vec![text]).unwrap();
        let batches = bound.collect().await.unwrap();
        assert_eq!(table(&batches).len(), 1);
    }
    let error = frame.with_param_values(vec![ScalarValue::from(7_i64)]);
    let error = match error {
        Ok(frame) => frame.collect().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(typed(&error, sql).0, "InvalidArgument");
}

#[tokio::test]
async fn no_plan_calls_a_remote_model() {
    let Remote { world, model, .. } = Remote::new(20).await;
    for (sql, shown) in [
        ("SELECT embed('a', 'remote')", "embed_remote(Utf8(\"a\")"),
        ("SELECT embed(body, 'remote') FROM docs", "AsyncFuncExec"),
        (
            "SELECT embed_checked(body, 'remote') FROM docs",
            "embed_checked_remote(",
        ),
        (
            "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'hash:16'), embed('a', 'remote'))",
            "ScalarSubqueryExec",
        ),
    ] {
        let plan = world
            .sql(&format!("EXPLAIN {sql}"))
            .await
            .concat()
            .join("\n");
        assert!(plan.contains(shown), "{sql}: {plan}");
        world
            .ctx
            .sql(sql)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
    }
    assert_eq!(model.calls(), 0);
    world
        .sql("SELECT embed(NULL, 'remote'), embed_checked(NULL, 'remote')")
        .await;
    assert_eq!(model.calls(), 0, "NULL is known without it");
}

#[tokio::test]
async fn a_constant_text_is_sent_once_a_statement_wherever_it_stands() {
    let remote = Remote::new(60).await;
    for sql in [
        "SELECT embed('blue', '$m', 'query')",
        "SELECT id, embed('blue', '$m') FROM docs ORDER BY id",
        "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'hash:16'), embed('blue', '$m')), id LIMIT 5",
        "SELECT id FROM docs WHERE cosine_distance(embed(body, 'hash:16'), embed('blue', '$m')) < 0.9 ORDER BY id",
        "SELECT max(cosine_distance(embed(body, 'hash:16'), embed('blue', '$m'))), min(array_distance(embed(title, 'hash:16'), embed('blue', '$m'))) FROM docs",
        "SELECT cosine_distance(embed(body, 'hash:16'), embed('blue', '$m')) < 0.8 AS near, count(*) FROM docs GROUP BY 1 ORDER BY 1",
        "SELECT a.id, b.id FROM docs a JOIN docs b ON a.n < b.n AND cosine_distance(embed(a.body, 'hash:16'), embed('blue', '$m')) < cosine_distance(embed(b.title, 'hash:16'), embed('blue', '$m')) - 0.5 ORDER BY 1, 2",
        "SELECT id, row_number() OVER (ORDER BY cosine_distance(embed(body, 'hash:16'), embed('blue', '$m')), id) FROM docs ORDER BY id",
        "WITH q AS (SELECT embed('blue', '$m') AS v) SELECT id FROM docs, q ORDER BY cosine_distance(embed(body, 'hash:16'), v), id LIMIT 5",
        "SELECT id FROM (SELECT id, cosine_distance(embed(body, 'hash:16'), embed('blue', '$m')) AS d FROM docs) WHERE d < 0.9 ORDER BY d, id",
        "SELECT CASE WHEN embed('blue', '$m') IS NULL THEN 1 ELSE 2 END",
    ] {
        assert_eq!(remote.same(sql).await, ["blue"], "{sql}");
    }
    // A host may switch such subqueries off.
    remote
        .world
        .sql("SET datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery = false")
        .await;
    let sql = "SELECT id, embed('blue', '$m') FROM docs ORDER BY id";
    let texts = remote.same(sql).await;
    assert!(
        !texts.is_empty() && texts.len() <= 4,
        "once a batch: {texts:?}"
    );
}

#[tokio::test]
async fn rows_wait_for_a_remote_model_in_select_lists_and_where() {
    let remote = Remote::new(60).await;
    let all: Vec<String> = {
        let mut all: Vec<String> = docs(60).into_iter().filter_map(|row| row.2).collect();
        all.sort();
        all
    };
    for sql in [
        "SELECT id, embed(body, '$m') FROM docs ORDER BY id",
        "SELECT id, embed_checked(body, '$m') FROM docs ORDER BY id",
        "SELECT id FROM docs WHERE cosine_distance(embed(body, '$m'), embed('blue', 'hash:16')) < 0.9 ORDER BY id",
        "WITH v AS (SELECT *, embed(body, '$m') AS vector FROM docs) SELECT id FROM v ORDER BY cosine_distance(vector, embed('blue', 'hash:16')), id",
        "WITH v AS (SELECT *, embed(body, '$m') AS vector FROM docs) SELECT id FROM v WHERE vector IS NOT NULL ORDER BY id",
        "WITH v AS (SELECT *, embed(body, '$m') AS vector FROM docs) SELECT max(cosine_distance(vector, embed('blue', 'hash:16'))), count(vector) FROM v",
    ] {
        assert_eq!(remote.same(sql).await, all, "{sql}");
        assert!(remote.model.calls() >= 60 / 7);
    }
    let sql = "SELECT n % 2, embed(concat('text ', n % 2), '$m') FROM docs WHERE n < 30 ORDER BY n";
    let mut texts = remote.same(sql).await;
    texts.dedup();
    assert_eq!(texts, ["text 0", "text 1"]);
    assert!(remote.model.rows() <= 4, "a text once a batch of rows");
}

#[tokio::test]
async fn where_datafusion_cannot_wait_the_error_says_what_to_write() {
    let Remote { world, model, .. } = Remote::new(20).await;
    for sql in [
        "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'remote'), embed('a', 'hash:16'))",
        "SELECT max(array_length(embed(body, 'remote'))), max(array_length(embed(title, 'remote'))) FROM docs",
        "SELECT embed(body, 'remote'), count(*) FROM docs GROUP BY 1",
        "SELECT a.id FROM docs a JOIN docs b ON cosine_distance(embed(a.body, 'remote'), embed(b.body, 'remote')) < 0.5",
        "SELECT a.id FROM docs a, docs b WHERE cosine_distance(embed(concat(a.body, b.body), 'remote'), embed('a', 'hash:16')) < 0.5",
        "SELECT row_number() OVER (ORDER BY array_length(embed(body, 'remote'))) FROM docs",
        "VALUES (embed('a', 'remote'))",
        "SELECT * FROM (VALUES (1, embed('a', 'remote'))) v(a, b)",
    ] {
        let (code, text) = world.error(sql).await;
        assert_eq!(code, "InvalidArgument", "{sql}");
        assert!(
            text.contains("compute the vectors in a CTE"),
            "{sql}: {text}"
        );
    }
    let sql = "SELECT id FROM docs ORDER BY embed_checked(body, 'remote')['error']";
    let (_, text) = world.error(sql).await;
    assert!(text.contains("of embed_checked:"), "{text}");
    let call = "SELECT * FROM search('t', embed('a', 'remote'), 3)";
    assert_eq!(world.code(call).await, "InvalidArgument");
    assert_eq!(model.calls(), 0);
}

#[tokio::test]
async fn refusals_and_failures_of_a_remote_model() {
    let remote = Remote::new(10).await;
    let world = &remote.world;
    remote.faulty.set(Some(Fault::Reject {
        needle: "body 3".to_owned(),
        reason: RejectReason::Rejected,
    }));
    let (code, text) = world.error("SELECT embed(body, 'remote') FROM docs").await;
    assert_eq!(code, "InvalidArgument");
    assert!(
        text.contains("model \"remote\" refuses \"amber body 3\": rejected; use embed_checked"),
        "{text}"
    );
    assert_eq!(
        world.code("SELECT embed('body 3', 'remote')").await,
        "InvalidArgument"
    );
    let sql = "SELECT id, e['error'] FROM (SELECT id, embed_checked(body, 'remote') AS e FROM docs) WHERE e['value'] IS NULL";
    assert_eq!(world.sql(sql).await, [strings(&["k0003", "rejected"])]);
    let row = world
        .row("SELECT embed_checked('body 3', 'remote')['error']")
        .await;
    assert_eq!(row, ["rejected"]);
    for fault in [
        Fault::FailAfter { calls: 0 },
        Fault::WrongWidth,
        Fault::MissingVector,
    ] {
        remote.faulty.set(Some(fault));
        for sql in [
            "SELECT embed(body, 'remote') FROM docs",
            "SELECT embed_checked(body, 'remote') FROM docs",
            "SELECT id FROM docs ORDER BY cosine_distance(embed(body, 'hash:16'), embed('a', 'remote'))",
        ] {
            assert_eq!(world.code(sql).await, "ModelFailed", "{sql}");
        }
    }
}

/// Sessions over one store, with the same functions but other settings and models.
async fn session(config: SessionConfig, dimensions: usize) -> SessionContext {
    let ctx = SessionContext::new_with_config(config);
    let models = ModelRegistry::default();
    models.register("mine", hash(dimensions)).unwrap();
    let options = Options::new("memory:///sessions")
        .with_object_store(Arc::new(InMemory::new()), Path::default(), true)
        .with_models(models);
    install(&ctx, options).await.unwrap();
    ctx
}

async fn cell(ctx: &SessionContext, sql: &str) -> String {
    let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
    table(&batches)[0][0].clone()
}

#[tokio::test]
async fn sessions_and_installations_do_not_see_each_other() {
    let one = session(SessionConfig::new(), 3).await;
    let two = session(SessionConfig::new(), 5).await;
    let width = "SELECT array_length(embed('x'))";
    set_default(&one, "mine").await;
    set_default(&two, "mine").await;
    assert_eq!(
        (cell(&one, width).await, cell(&two, width).await),
        ("3".into(), "5".into())
    );
    set_default(&two, "hash:7").await;
    assert_eq!(
        (cell(&one, width).await, cell(&two, width).await),
        ("3".into(), "7".into())
    );
    let (f, g) = (one.udf("embed").unwrap(), two.udf("embed").unwrap());
    assert_ne!(f, g);
    assert_eq!(f, one.udf("embed").unwrap());
    assert_ne!(one.udf("embed").unwrap(), one.udf("embed_checked").unwrap());
    // A plan keeps the default that it was made with, also when it runs after a SET.
    let frame = one.sql(width).await.unwrap();
    set_default(&one, "hash:9").await;
    assert_eq!(table(&frame.collect().await.unwrap())[0][0], "3");
    assert_eq!(cell(&one, width).await, "9");
    one.sql("RESET stratagraph.default_model")
        .await
        .unwrap_err();
    // A session that is made anew from this one has its setting.
    one.sql("SET datafusion.runtime.memory_limit = '1G'")
        .await
        .unwrap();
    assert_eq!(cell(&one, width).await, "9");
}

async fn set_default(ctx: &SessionContext, model: &str) {
    let sql = format!("SET stratagraph.default_model = '{model}'");
    ctx.sql(&sql).await.unwrap().collect().await.unwrap();
}

#[tokio::test]
async fn the_default_is_what_the_session_says_at_install() {
    let settings = stratagraph_providers::Settings {
        default_model: "hash:6".to_owned(),
        ..Default::default()
    };
    let mut config = SessionConfig::new();
    config.options_mut().extensions.insert(settings);
    let ctx = session(config, 3).await;
    assert_eq!(cell(&ctx, "SELECT array_length(embed('x'))").await, "6");
}

#[tokio::test]
async fn a_server_that_was_not_asked_is_typed_where_planning_cannot_wait() {
    let ctx = SessionContext::new();
    let policy = ModelPolicy {
        allow_paths_and_urls: true,
        ..ModelPolicy::default()
    };
    let options = Options::new("memory://unasked").with_model_policy(policy);
    install(&ctx, options).await.unwrap();
    let sql = "SELECT embed('x', 'openai:m@http://127.0.0.1:9/v1')";
    let error = ctx.sql(sql).await.unwrap_err();
    let (code, text) = typed(&error, sql);
    assert_eq!(code, "MetadataNotLoaded");
    assert!(
        text.contains("\"openai:m@http://127.0.0.1:9/v1\"")
            && text.contains("Stratagraph::open_model()"),
        "{text}"
    );
}

#[tokio::test]
async fn models_are_registered_and_opened_by_the_handle() {
    let world = World::new().await;
    world.sg.register_model("org/mine", hash(4)).unwrap();
    let taken = world.sg.register_model("org/mine", hash(5)).unwrap_err();
    assert_eq!(taken.code(), "AlreadyExists");
    let row = world
        .row("SELECT array_length(embed('x', 'org/mine'))")
        .await;
    assert_eq!(row, ["4"]);
    world.sg.open_model("org/mine").await.unwrap();
    world.sg.open_model("hash:12").await.unwrap();
    let error = world
        .sg
        .open_model("tei:http://127.0.0.1:9")
        .await
        .unwrap_err();
    assert_eq!(error.code(), "SourceNotAllowed");
    // What a table remembers is the name.
    world.docs.set(&docs(2));
    world
        .sql("SELECT * FROM generate_embeddings('docs', 'org/mine', 'body', 'id', 't')")
        .await;
    let rows = world
        .sql("SELECT DISTINCT _model_id FROM sg.embeddings.t")
        .await;
    assert_eq!(rows, [strings(&["org/mine"])]);
}
