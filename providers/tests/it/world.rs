//! A store in memory, a way to publish versions of a table, and sessions over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result as DfResult;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::{ObjectStore, path::Path};
use roaring::RoaringBitmap;
use stratagraph::catalog::Catalog;
use stratagraph::env::Env;
use stratagraph::ident::Name;
use stratagraph::store::Store;
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::manifest::{Layout, SchemaVersion};
use stratagraph::table::schema::{arrow_schema, embedding_schema};
use stratagraph::table::writer::FragmentWriter;
use stratagraph_providers::{
    FunctionRegistry, Metadata, PinRule, PlainFunction, Settings, StratagraphCatalog,
    StratagraphRelations,
};

use super::probes;
use super::publish::Publish;

/// A row of the tests' table.
#[derive(Debug, Clone)]
pub struct Row {
    pub key: String,
    pub n: Option<i64>,
    pub city: Option<String>,
}

impl Row {
    pub fn new(i: usize, salt: u64) -> Self {
        let mix = (i as u64 ^ salt.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        Self {
            key: format!("k{i:06}"),
            n: (!mix.is_multiple_of(11)).then_some((mix % 100) as i64),
            city: (mix % 7 != 3).then(|| format!("c{}", mix % 5)),
        }
    }
}

pub fn rows(range: std::ops::Range<usize>, salt: u64) -> Vec<Row> {
    range.map(|i| Row::new(i, salt)).collect()
}

/// The columns of the tests' table.
pub fn schema() -> SchemaVersion {
    let included = [
        Field::new("n", DataType::Int64, true),
        Field::new("city", DataType::Utf8, true),
    ];
    embedding_schema(2, &included).unwrap()
}

/// Rows as stored.
pub fn batch(rows: &[Row], schema: &SchemaRef) -> RecordBatch {
    let keys = StringArray::from_iter_values(rows.iter().map(|r| &r.key));
    let numbers = rows
        .iter()
        .flat_map(|r| [r.n.unwrap_or(-1) as f32, r.key.len() as f32]);
    let DataType::FixedSizeList(item, width) = schema.field(3).data_type() else {
        panic!("vector")
    };
    let vectors = FixedSizeListArray::new(
        Arc::clone(item),
        *width,
        Arc::new(Float32Array::from_iter_values(numbers)),
        None,
    );
    let hashes = rows.iter().map(|r| {
        let mut hash = [0u8; 32];
        hash[..8].copy_from_slice(&r.n.unwrap_or(-1).to_le_bytes());
        hash
    });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "src"))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "hash:2"))),
        Arc::new(vectors),
        Arc::new(FixedSizeBinaryArray::try_from_iter(hashes).unwrap()),
        Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.n))),
        Arc::new(StringArray::from_iter(
            rows.iter().map(|r| r.city.as_deref()),
        )),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

/// A new version: fragments to add, positions to kill by entry number.
#[derive(Debug, Clone, Default)]
pub struct Change {
    pub add: Vec<(Vec<Row>, RoaringBitmap)>,
    pub kill: BTreeMap<u64, RoaringBitmap>,
    pub schema: Option<SchemaVersion>,
}

impl Change {
    pub fn add(rows: Vec<Row>) -> Self {
        Self::add_masked(rows, RoaringBitmap::new())
    }

    pub fn add_masked(rows: Vec<Row>, dead: RoaringBitmap) -> Self {
        Self {
            add: vec![(rows, dead)],
            ..Self::default()
        }
    }

    pub fn and(mut self, rows: Vec<Row>, dead: RoaringBitmap) -> Self {
        self.add.push((rows, dead));
        self
    }
}

/// A store and what this process knows of it.
pub struct World {
    pub store: Arc<Store>,
    pub catalog: Arc<Catalog>,
    pub metadata: Arc<Metadata>,
}

impl World {
    pub fn new() -> Self {
        Self::over(Arc::new(Store::memory()))
    }

    /// Another process over the same objects.
    pub fn other(&self) -> Self {
        self.through(Arc::clone(self.store.inner()))
    }

    /// A process over `inner`.
    pub fn through(&self, inner: Arc<dyn ObjectStore>) -> Self {
        Self::over(Arc::new(Store::new(
            inner,
            Path::default(),
            "memory:///",
            true,
        )))
    }

    fn over(store: Arc<Store>) -> Self {
        let catalog = Catalog::new(Arc::clone(&store), Env::system());
        let metadata = Metadata::new(Arc::clone(&catalog));
        Self {
            store,
            catalog,
            metadata,
        }
    }

    pub async fn publish(&self, name: &str, change: Change) {
        let schema = change.schema.unwrap_or_else(schema);
        let mut stage = self.catalog.begin().await.unwrap();
        let mut fragments = Vec::new();
        for (rows, dead) in change.add {
            let key = stage.reserve("parquet").unwrap();
            let env = self.catalog.env();
            let store = Arc::clone(&self.store);
            let mut writer =
                FragmentWriter::new(store, env, Layout::Embedding, &schema, key).unwrap();
            let arrow = Arc::clone(writer.schema());
            writer.write(&batch(&rows, &arrow)).await.unwrap();
            let mut fragment = writer.finish(&mut stage).await.unwrap().unwrap();
            fragment.dead = DeadRows::from_bitmap(&dead).unwrap();
            fragments.push(fragment);
        }
        stage.flush(&self.store).await.unwrap();
        let name = Name::parse(name).unwrap();
        let kill = change.kill;
        let publish = Publish {
            name,
            schema,
            fragments,
            kill,
        };
        self.catalog.commit(stage, publish).await.unwrap();
    }

    /// A session with everything installed.
    pub async fn session(&self, config: SessionConfig) -> SessionContext {
        let mut registry = FunctionRegistry::default();
        for function in probes::all() {
            registry.add(function);
        }
        let ctx = self.bare_session(config).await;
        ctx.add_analyzer_rule(Arc::new(PinRule));
        let relations = StratagraphRelations::new(Arc::new(registry), Arc::clone(&self.metadata));
        ctx.register_relation_planner(Arc::new(relations)).unwrap();
        ctx
    }

    /// A session of a host that takes no rules and no relation planner.
    pub async fn bare_session(&self, config: SessionConfig) -> SessionContext {
        self.metadata.refresh().await.unwrap();
        self.cold_session(config)
    }

    /// A session that knows nothing of the store yet.
    pub fn cold_session(&self, config: SessionConfig) -> SessionContext {
        let config = config.with_option_extension(Settings::default());
        let ctx = SessionContext::new_with_config(config);
        let metadata = Arc::clone(&self.metadata);
        ctx.register_catalog("sg", Arc::new(StratagraphCatalog::new(metadata)));
        for function in probes::all() {
            let name = function.spec().name;
            let plain = PlainFunction::new(function, Arc::clone(&self.metadata));
            ctx.register_udtf(name, Arc::new(plain));
        }
        ctx
    }
}

/// Rows as text, in the order that they came.
pub fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut out = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<_> = columns.iter().map(|c| c.value(row).to_string()).collect();
            out.push(cells.join("|"));
        }
    }
    out
}

pub async fn query(ctx: &SessionContext, sql: &str) -> DfResult<Vec<String>> {
    Ok(lines(&ctx.sql(sql).await?.collect().await?))
}

pub async fn one(ctx: &SessionContext, sql: &str) -> String {
    let found = query(ctx, sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(found.len(), 1, "{sql}: {found:?}");
    found[0].clone()
}

/// The code of our error that a statement fails with.
pub async fn code(ctx: &SessionContext, sql: &str) -> String {
    match query(ctx, sql).await {
        Ok(found) => format!("no error, {} rows", found.len()),
        Err(error) => match stratagraph_providers::find_error(&error) {
            Some(found) => found.code().to_owned(),
            None => format!("foreign: {error}"),
        },
    }
}

pub fn plan_schema() -> SchemaRef {
    arrow_schema(&schema()).unwrap()
}
