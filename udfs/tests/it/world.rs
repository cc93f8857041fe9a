//! A session with a source that can be edited, a store in memory, and a model that counts.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::embed::testing::CountingEmbedder;
use stratagraph::embed::{Embedder, HashEmbedder, ModelPolicy, ModelRegistry};
use stratagraph::env::Env;
use stratagraph_udfs::{Options, Stratagraph, find_error, install};

/// A row of the source: key, title, body.
pub type Doc = (Option<String>, Option<String>, Option<String>);

pub fn doc(id: &str, title: &str, body: &str) -> Doc {
    let some = |text: &str| Some(text.to_owned());
    (some(id), some(title), some(body))
}

/// `n` rows with different texts.
pub fn docs(n: usize) -> Vec<Doc> {
    let word = |i: usize| ["red", "green", "blue", "amber", "violet"][i % 5];
    (0..n)
        .map(|i| {
            doc(
                &format!("k{i:04}"),
                &format!("title {i}"),
                &format!("{} body {i}", word(i)),
            )
        })
        .collect()
}

pub fn docs_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Utf8, true),
        Field::new("title", DataType::Utf8, true),
        Field::new("body", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
    ]))
}

pub fn docs_batch(rows: &[Doc]) -> RecordBatch {
    let column = |f: &dyn Fn(&Doc) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(rows.iter().map(f)))
    };
    let columns = vec![
        column(&|r| r.0.clone()),
        column(&|r| r.1.clone()),
        column(&|r| r.2.clone()),
        Arc::new(Int64Array::from_iter_values(0..rows.len() as i64)) as ArrayRef,
    ];
    RecordBatch::try_new(docs_schema(), columns).unwrap()
}

/// A table whose rows can be exchanged, in two partitions; counts its scans.
#[derive(Debug)]
pub struct Docs {
    rows: Mutex<Vec<RecordBatch>>,
    scans: AtomicUsize,
}

impl Docs {
    pub fn set(&self, rows: &[Doc]) {
        let (left, right) = rows.split_at(rows.len() / 2);
        *self.rows.lock().unwrap() = vec![docs_batch(left), docs_batch(right)];
    }

    pub fn scans(&self) -> usize {
        self.scans.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl TableProvider for Docs {
    fn schema(&self) -> SchemaRef {
        docs_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        let partitions = self
            .rows
            .lock()
            .unwrap()
            .iter()
            .map(|b| vec![b.clone()])
            .collect();
        let table = MemTable::try_new(docs_schema(), partitions)?;
        table.scan(state, projection, filters, limit).await
    }
}

/// A session with the plugin.
pub struct World {
    pub ctx: SessionContext,
    pub sg: Stratagraph,
    pub docs: Arc<Docs>,
    /// The model `counting`: `hash:16`, counted.
    pub model: Arc<CountingEmbedder>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({:?})", self.sg)
    }
}

pub fn counting() -> Arc<CountingEmbedder> {
    let hash = Arc::new(HashEmbedder::new(16).unwrap());
    Arc::new(CountingEmbedder::new("counting", hash))
}

fn session() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    SessionContext::new_with_config(config.with_information_schema(true))
}

impl World {
    /// On a store of its own.
    pub async fn new() -> Self {
        Self::over(Arc::new(InMemory::new()), 1).await
    }

    /// On a store that others may share; `seed` makes its ids differ from theirs.
    pub async fn over(store: Arc<InMemory>, seed: u64) -> Self {
        let ctx = session();
        let model = counting();
        Self::with(ctx, store, seed, Arc::clone(&model) as _, model).await
    }

    pub async fn with(
        ctx: SessionContext,
        store: Arc<InMemory>,
        seed: u64,
        registered: Arc<dyn Embedder>,
        model: Arc<CountingEmbedder>,
    ) -> Self {
        let models = ModelRegistry::default();
        models.register("counting", registered).unwrap();
        let options = Options::new("memory:///test")
            .with_object_store(store, Path::default(), true)
            .with_env(Env::fixed(seed))
            .with_models(models);
        Self::installed(ctx, options, model).await
    }

    /// On a store that others may share; SQL may name models by paths and URLs.
    pub async fn trusting(store: Arc<InMemory>) -> Self {
        Self::trusting_in(store, Env::fixed(1)).await
    }

    /// The same in an environment.
    pub async fn trusting_in(store: Arc<InMemory>, env: Env) -> Self {
        let ctx = session();
        let policy = ModelPolicy {
            allow_paths_and_urls: true,
            hub_cache: None,
        };
        let options = Options::new("memory:///test")
            .with_object_store(store, Path::default(), true)
            .with_env(env)
            .with_model_policy(policy);
        Self::installed(ctx, options, counting()).await
    }

    async fn installed(
        ctx: SessionContext,
        options: Options,
        model: Arc<CountingEmbedder>,
    ) -> Self {
        let sg = install(&ctx, options).await.unwrap();
        let docs = Arc::new(Docs {
            rows: Mutex::new(vec![docs_batch(&[])]),
            scans: AtomicUsize::new(0),
        });
        ctx.register_table("docs", Arc::clone(&docs) as _).unwrap();
        Self {
            ctx,
            sg,
            docs,
            model,
        }
    }

    /// A table `t` of `docs` by the counting model, made through SQL.
    pub async fn generated(rows: &[Doc]) -> Self {
        let world = Self::new().await;
        world.docs.set(rows);
        world.generate("t").await;
        world
    }

    pub async fn generate(&self, name: &str) -> Vec<Vec<String>> {
        self.sql(&format!(
            "SELECT * FROM generate_embeddings('docs', 'counting', ['title', 'body'], 'id', '{name}')"
        ))
        .await
    }

    pub async fn try_sql(&self, sql: &str) -> DfResult<Vec<RecordBatch>> {
        self.ctx.sql(sql).await?.collect().await
    }

    /// All rows as text.
    pub async fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        let batches = self.try_sql(sql).await;
        table(&batches.unwrap_or_else(|e| panic!("{sql}: {e}")))
    }

    /// The one row as text.
    pub async fn row(&self, sql: &str) -> Vec<String> {
        let rows = self.sql(sql).await;
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.into_iter().next().unwrap()
    }

    /// The code and text of the typed error of a statement.
    pub async fn error(&self, sql: &str) -> (&'static str, String) {
        match self.try_sql(sql).await {
            Ok(batches) => panic!("{sql}: {:?}", table(&batches)),
            Err(error) => typed(&error, sql),
        }
    }

    pub async fn code(&self, sql: &str) -> &'static str {
        self.error(sql).await.0
    }
}

pub fn typed(error: &DataFusionError, sql: &str) -> (&'static str, String) {
    match find_error(error) {
        Some(found) => (found.code(), found.to_string()),
        None => panic!("{sql}: not a typed error: {error}"),
    }
}

pub fn table(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut out = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            out.push(columns.iter().map(|c| c.value(row).to_string()).collect());
        }
    }
    out
}

pub fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}
