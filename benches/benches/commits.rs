//! One-row commits through the transaction API at growing depth: calls and bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray,
};
use datafusion::arrow::datatypes::DataType;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::Result;
use stratagraph::catalog::{Catalog, resolve};
use stratagraph::embed::{Embedder, HashEmbedder};
use stratagraph::env::Env;
use stratagraph::ident::Name;
use stratagraph::publish::definition::{Definition, ModelRef, SourceRef};
use stratagraph::publish::{
    self, Deletes, DeltaSource, Made, NewTable, RefreshRequest, Requester, StagedDelta,
};
use stratagraph::sim::FaultStore;
use stratagraph::store::{Stager, Store};
use stratagraph::table::manifest::Layout;
use stratagraph::table::schema::{arrow_schema, embedding_schema};
use stratagraph::table::writer::FragmentWriter;

const WIDTH: usize = 4;

struct AddRow(Arc<Catalog>, u64);

#[async_trait::async_trait]
impl DeltaSource for AddRow {
    async fn delta(
        &mut self,
        _base: &resolve::TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<StagedDelta>> {
        let schema = embedding_schema(WIDTH, &[])?;
        let arrow = arrow_schema(&schema)?;
        let DataType::FixedSizeList(item, _) = arrow.field(3).data_type() else {
            unreachable!()
        };
        let values = Arc::new(Float32Array::from(vec![0.5; WIDTH])) as ArrayRef;
        let vector = FixedSizeListArray::new(Arc::clone(item), WIDTH as i32, values, None);
        let key = format!("k{:08}", self.1);
        let text = |t: &str| Arc::new(StringArray::from(vec![t])) as ArrayRef;
        let hash = Arc::new(FixedSizeBinaryArray::try_from_iter([[0u8; 32]].iter())?) as ArrayRef;
        let batch = RecordBatch::try_new(
            arrow,
            vec![text(&key), text("s"), text("m"), Arc::new(vector), hash],
        )?;
        let (object, env) = (stage.reserve("parquet")?, self.0.env().clone());
        let mut writer = FragmentWriter::new(
            Arc::clone(self.0.store()),
            &env,
            Layout::Embedding,
            &schema,
            object,
        )?;
        writer.write(&batch).await?;
        let fragment = writer.finish(stage).await?;
        Ok(Some(StagedDelta {
            fragment,
            touched: vec![key],
            ..StagedDelta::default()
        }))
    }
}

fn new_table() -> Result<NewTable> {
    let model = HashEmbedder::new(WIDTH)?;
    let definition = model.definition().canonical().to_owned();
    let model = ModelRef {
        spec: model.spec().to_owned(),
        definition,
    };
    let source = SourceRef {
        name: ["m", "s", "t"].map(str::to_owned),
        columns: Vec::new(),
    };
    Ok(NewTable {
        name: Name::parse("t")?,
        made: Made::Generated(Definition::new(
            source,
            vec!["x".into()],
            "id".into(),
            model,
            WIDTH as u64,
        )),
        schema: embedding_schema(WIDTH, &[])?,
        requester: Requester::default(),
    })
}

async fn add(catalog: &Arc<Catalog>, dataset: &str, n: u64) {
    let request = RefreshRequest {
        name: Name::parse("t").unwrap(),
        dataset: dataset.to_owned(),
        deletes: Deletes::Tombstone,
        requester: Requester::default(),
    };
    let stage = catalog.begin().await.unwrap();
    publish::refresh(catalog, stage, request, AddRow(Arc::clone(catalog), n))
        .await
        .unwrap();
}

pub async fn run() {
    let counted = FaultStore::new(Arc::new(InMemory::new()));
    let store = Store::new(counted.store(), Path::default(), "memory:///", true);
    let catalog = Catalog::new(Arc::new(store), Env::fixed(1));
    let stage = catalog.begin().await.unwrap();
    publish::create(
        &catalog,
        stage,
        new_table().unwrap(),
        StagedDelta::default(),
    )
    .await
    .unwrap();
    let head = catalog.look().await.unwrap();
    let dataset = resolve::embedding_dataset(catalog.store(), &head, &Name::parse("t").unwrap())
        .await
        .unwrap()
        .id;
    println!(
        "\n| depth | store calls of a one-row commit | bytes put | bytes got |\n|---|---|---|---|"
    );
    let mut n = 0;
    for depth in [1, 1_000, 10_000] {
        while n + 16 < depth {
            add(&catalog, &dataset, n).await;
            n += 1;
        }
        // The mean of sixteen: a full page is written every sixteenth time.
        counted.reset();
        for _ in 0..16 {
            add(&catalog, &dataset, n).await;
            n += 1;
        }
        let mut bytes: BTreeMap<bool, u64> = BTreeMap::new();
        counted
            .trace()
            .iter()
            .for_each(|c| *bytes.entry(c.op.is_write()).or_default() += c.bytes);
        let of = |write| bytes.get(&write).copied().unwrap_or(0) / 16;
        println!(
            "| {depth} | {:.1} | {} | {} |",
            counted.calls() as f64 / 16.0,
            of(true),
            of(false)
        );
    }
}
