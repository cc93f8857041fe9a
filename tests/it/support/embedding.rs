//! Embedding tables over a source in memory, without a query engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, FixedSizeBinaryBuilder, FixedSizeListArray, RecordBatch, StringArray,
};
use arrow::compute::concat;
use futures::TryStreamExt;
use object_store::ObjectStore;
use stratagraph::ann::Metric;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::resolve::{self, EMBEDDING_TYPE, TableSnapshot};
use stratagraph::embed::{Embedder, HashEmbedder, Role, embed_checked};
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph::publish::definition::{Definition, ModelRef, SourceRef};
use stratagraph::publish::{
    AttachRequest, CompactRequest, Deletes, DeltaSource, Made, Merge, NewTable, Published,
    RefreshRequest, Requester, RestoreRequest, StagedDelta, attach,
};
use stratagraph::search::build::{Index, VectorKind, build};
use stratagraph::search::{TextColumn, VectorColumn};
use stratagraph::store::Stager;
use stratagraph::table::fold::SourceFolder;
use stratagraph::table::ledger::{Ledger, LedgerChange, Reject};
use stratagraph::table::manifest::{Fragment, Segment};
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::schema::{arrow_schema, embedding_schema, id};
use stratagraph::table::verify::{Verdict, verify};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::text::Analyser;
use stratagraph::{Result, digest::Digest};

/// Width of the test model.
pub const DIMENSIONS: usize = 8;

/// Key to text: what a source holds.
pub type Rows = BTreeMap<String, String>;

/// A source that others may change while it is read.
#[derive(Debug, Clone, Default)]
pub struct Source(Arc<Mutex<Rows>>);

impl Source {
    /// A source of these rows.
    pub fn new(rows: &[(&str, &str)]) -> Self {
        let source = Self::default();
        rows.iter().for_each(|(k, v)| source.set(k, v));
        source
    }

    /// Adds or changes a row.
    pub fn set(&self, key: &str, text: &str) {
        self.0
            .lock()
            .unwrap()
            .insert(key.to_owned(), text.to_owned());
    }

    /// Deletes a row.
    pub fn remove(&self, key: &str) {
        self.0.lock().unwrap().remove(key);
    }

    /// All rows.
    pub fn rows(&self) -> Rows {
        self.0.lock().unwrap().clone()
    }
}

fn hash(text: &str) -> [u8; 32] {
    *Digest::of(text.as_bytes()).as_bytes()
}

/// Diffs a [`Source`] with a base version and embeds what changed.
#[derive(Debug)]
pub struct Driver {
    catalog: Arc<Catalog>,
    source: Source,
    deletes: Deletes,
    /// Vectors by key and content hash.
    known: BTreeMap<(String, [u8; 32]), Vec<f32>>,
    /// Every (key, text) that was given to the model, in order.
    pub inferred: Vec<(String, String)>,
}

impl Driver {
    /// A driver without vectors.
    pub fn new(catalog: &Arc<Catalog>, source: &Source, deletes: Deletes) -> Self {
        let (catalog, source) = (Arc::clone(catalog), source.clone());
        Self {
            catalog,
            source,
            deletes,
            known: BTreeMap::new(),
            inferred: Vec::new(),
        }
    }

    async fn fragment(
        &mut self,
        rows: &[(String, String)],
        stage: &mut Stager,
    ) -> Result<Option<Fragment>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let model = HashEmbedder::new(DIMENSIONS)?;
        let mut vectors: Vec<ArrayRef> = Vec::new();
        for (key, text) in rows {
            let entry = (key.clone(), hash(text));
            if !self.known.contains_key(&entry) {
                let answer = embed_checked(&model, Role::Document, &[Some(text)]).await?;
                self.inferred.push((key.clone(), text.clone()));
                let values = answer.vectors.value(0);
                let floats =
                    arrow::array::AsArray::as_primitive::<arrow::datatypes::Float32Type>(&values);
                self.known.insert(entry.clone(), floats.values().to_vec());
            }
            vectors.push(Arc::new(arrow::array::Float32Array::from(
                self.known[&entry].clone(),
            )));
        }
        let schema = embedding_schema(DIMENSIONS, &[])?;
        let arrow = arrow_schema(&schema)?;
        let values = concat(&vectors.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
        let item = match arrow.field(3).data_type() {
            arrow::datatypes::DataType::FixedSizeList(item, _) => Arc::clone(item),
            other => panic!("vector column is {other}"),
        };
        let vectors = FixedSizeListArray::try_new(item, DIMENSIONS as i32, values, None)?;
        let mut hashes = FixedSizeBinaryBuilder::new(32);
        for (_, text) in rows {
            hashes.append_value(hash(text))?;
        }
        let column = |text: &str| Arc::new(StringArray::from(vec![text; rows.len()])) as ArrayRef;
        let keys = StringArray::from_iter_values(rows.iter().map(|(k, _)| k));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(keys),
            column("memory"),
            column(model.spec()),
            Arc::new(vectors),
            Arc::new(hashes.finish()),
        ];
        let batch = RecordBatch::try_new(arrow, columns)?;
        let key = stage.reserve("parquet")?;
        let (store, env) = (Arc::clone(self.catalog.store()), self.catalog.env().clone());
        let layout = stratagraph::table::manifest::Layout::Embedding;
        let mut writer = FragmentWriter::new(store, &env, layout, &schema, key)?;
        writer.write(&batch).await?;
        writer.finish(stage).await
    }

    async fn current(&self, base: &TableSnapshot) -> Result<(BTreeMap<String, [u8; 32]>, Ledger)> {
        let store = Arc::clone(self.catalog.store());
        let reader = TableReader::new(
            Arc::clone(&store),
            self.catalog.env(),
            Arc::clone(&base.table),
        );
        let mut rows = BTreeMap::new();
        let mut scan = reader
            .scan(&ReadOptions::columns(&[id::ROW_ID, id::CONTENT_HASH]))
            .await?;
        while let Some(batch) = scan.try_next().await? {
            let keys = arrow::array::AsArray::as_string::<i32>(batch.column(0));
            let hashes = arrow::array::AsArray::as_fixed_size_binary(batch.column(1));
            for row in 0..batch.num_rows() {
                let hash = hashes.value(row).try_into().unwrap();
                let twice = rows.insert(keys.value(row).to_owned(), hash);
                assert!(twice.is_none(), "I7: key {} is live twice", keys.value(row));
            }
        }
        let entries = reader.entries().await?;
        let ledger = Ledger::load(&store, &self.catalog.env().budget, &entries).await?;
        Ok((rows, ledger))
    }
}

#[async_trait::async_trait]
impl DeltaSource for Driver {
    async fn delta(
        &mut self,
        base: &TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<StagedDelta>> {
        let source = self.source.rows();
        let (live, ledger) = self.current(base).await?;
        let (mut embed, mut superseded, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        let (mut changes, mut folder) = (Vec::new(), SourceFolder::default());
        for (key, text) in &source {
            folder.add(key, &hash(text));
            let same_reject = ledger.get(key).is_some_and(|r| r.hash == hash(text));
            if live.get(key) == Some(&hash(text)) || same_reject {
                continue;
            }
            touched.push(key.clone());
            superseded.extend(live.contains_key(key).then(|| key.clone()));
            let reject = text.trim().is_empty().then(|| Reject {
                hash: hash(text),
                reason: "empty".to_owned(),
            });
            if reject.is_some() || ledger.get(key).is_some() {
                changes.push(LedgerChange {
                    key: key.clone(),
                    reject: reject.clone(),
                });
            }
            if reject.is_none() {
                embed.push((key.clone(), text.clone()));
            }
        }
        if self.deletes == Deletes::Tombstone {
            superseded.extend(live.keys().filter(|k| !source.contains_key(*k)).cloned());
            touched.extend(live.keys().filter(|k| !source.contains_key(*k)).cloned());
        }
        if touched.is_empty() {
            return Ok(None);
        }
        for (key, _) in ledger.iter().filter(|(k, _)| !source.contains_key(*k)) {
            changes.push(LedgerChange {
                key: key.to_owned(),
                reject: None,
            });
            touched.push(key.to_owned());
        }
        superseded.sort();
        touched.sort();
        changes.sort();
        let fragment = self.fragment(&embed, stage).await?;
        let (fold, counts) = (Some(folder.finish(true)), BTreeMap::new());
        Ok(Some(StagedDelta {
            fragment,
            superseded,
            touched,
            ledger: changes,
            fold,
            source_files: None,
            counts,
        }))
    }
}

/// A table name.
pub fn table_name() -> Name {
    Name::parse("docs").unwrap()
}

fn definition() -> Result<Definition> {
    let model = HashEmbedder::new(DIMENSIONS)?;
    let reference = ModelRef {
        spec: model.spec().to_owned(),
        definition: model.definition().canonical().to_owned(),
    };
    let source = SourceRef {
        name: ["m", "s", "docs"].map(str::to_owned),
        columns: Vec::new(),
    };
    Ok(Definition::new(
        source,
        vec!["text".to_owned()],
        "id".to_owned(),
        reference,
        DIMENSIONS as u64,
    ))
}

/// Generates the table from the source; the transaction is known whatever the outcome.
pub async fn generate(
    catalog: &Arc<Catalog>,
    source: &Source,
) -> (Option<TxnId>, Result<Published>) {
    let mut stage = match catalog.begin().await {
        Ok(stage) => stage,
        Err(e) => return (None, Err(e)),
    };
    let txn = Some(stage.txn().clone());
    let run = async {
        let mut driver = Driver::new(catalog, source, Deletes::Tombstone);
        let rows: Vec<_> = source.rows().into_iter().collect();
        let (good, empty): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, t)| !t.trim().is_empty());
        let reject = |text: &str| {
            Some(Reject {
                hash: hash(text),
                reason: "empty".to_owned(),
            })
        };
        let ledger = empty
            .into_iter()
            .map(|(key, t)| LedgerChange {
                key,
                reject: reject(&t),
            })
            .collect();
        let fragment = driver.fragment(&good, &mut stage).await?;
        let delta = StagedDelta {
            fragment,
            ledger,
            ..StagedDelta::default()
        };
        let new = NewTable {
            name: table_name(),
            made: Made::Generated(definition()?),
            schema: embedding_schema(DIMENSIONS, &[])?,
            requester: Requester::default(),
        };
        stratagraph::publish::create(catalog, stage, new, delta).await
    };
    let outcome = run.await;
    (txn, outcome)
}

/// What a refresh did.
#[derive(Debug)]
pub struct Ran {
    /// The version, if one was published.
    pub published: Option<Published>,
    /// What the model was given.
    pub inferred: Vec<(String, String)>,
    /// Attempts made.
    pub attempts: u32,
}

/// A transaction and the id of the table's dataset.
async fn begin(catalog: &Arc<Catalog>) -> Result<(Stager, String)> {
    let head = catalog.look().await?;
    let dataset = resolve::embedding_dataset(catalog.store(), &head, &table_name()).await?;
    Ok((catalog.begin().await?, dataset.id))
}

/// Refreshes the table; the transaction is known whatever the outcome.
pub async fn refresh(
    catalog: &Arc<Catalog>,
    source: &Source,
    deletes: Deletes,
) -> (Option<TxnId>, Result<Ran>) {
    let (stage, dataset) = match begin(catalog).await {
        Ok(begun) => begun,
        Err(e) => return (None, Err(e)),
    };
    let txn = Some(stage.txn().clone());
    let request = RefreshRequest {
        name: table_name(),
        dataset,
        deletes,
        requester: Requester::default(),
    };
    let driver = Driver::new(catalog, source, deletes);
    let outcome = stratagraph::publish::refresh(catalog, stage, request, driver).await;
    let ran = |r: stratagraph::publish::Refreshed<Driver>| Ran {
        published: r.published,
        inferred: r.driver.inferred,
        attempts: r.attempts,
    };
    (txn, outcome.map(ran))
}

/// Compacts the table.
pub async fn compact(
    catalog: &Arc<Catalog>,
    entries: Option<Vec<u64>>,
) -> (Option<TxnId>, Result<Published>) {
    let (stage, dataset) = match begin(catalog).await {
        Ok(begun) => begun,
        Err(e) => return (None, Err(e)),
    };
    let txn = Some(stage.txn().clone());
    let request = CompactRequest {
        name: table_name(),
        dataset,
        merge: entries.map_or(Merge::All, Merge::Entries),
        requester: Requester::default(),
    };
    let outcome = stratagraph::publish::compact(catalog, stage, request).await;
    (
        txn,
        outcome.map(|c| c.published.expect("something to merge")),
    )
}

/// Merges small fragments and those with many dead rows; `None` if there was nothing to win.
pub async fn compact_tiered(catalog: &Arc<Catalog>) -> (Option<TxnId>, Result<Option<Published>>) {
    let (stage, dataset) = match begin(catalog).await {
        Ok(begun) => begun,
        Err(e) => return (None, Err(e)),
    };
    let txn = stage.txn().clone();
    let merge = Merge::Tiered {
        max_bytes: 1 << 20,
        min_masked: 0.3,
    };
    let request = CompactRequest {
        name: table_name(),
        dataset,
        merge,
        requester: Requester::default(),
    };
    let outcome = stratagraph::publish::compact(catalog, stage, request).await;
    let outcome = outcome.map(|c| c.published);
    let nothing = matches!(&outcome, Ok(None));
    (Some(txn).filter(|_| !nothing), outcome)
}

/// Makes an older version current again.
pub async fn restore(catalog: &Arc<Catalog>, version: u64) -> (Option<TxnId>, Result<Published>) {
    let stage = match begin(catalog).await {
        Ok((stage, _)) => stage,
        Err(e) => return (None, Err(e)),
    };
    let txn = Some(stage.txn().clone());
    let request = RestoreRequest {
        name: table_name(),
        version,
        requester: Requester::default(),
    };
    let outcome = stratagraph::publish::restore(catalog, stage, request).await;
    (txn, outcome.map(|(published, _)| published))
}

/// The columns that searches of the test table use.
pub fn indexes() -> [Index; 2] {
    let column = VectorColumn {
        column: id::VECTOR,
        dimensions: DIMENSIONS,
        metric: Metric::Cosine,
    };
    let texts = TextColumn {
        column: id::ROW_ID,
        analyser: Analyser::parse("simple").unwrap(),
    };
    let kind = VectorKind::Hnsw;
    [Index::Vector { column, kind }, Index::Text(texts)]
}

/// Builds indexes over vectors and keys of all fragments, and attaches them.
pub async fn index(catalog: &Arc<Catalog>) -> (Option<TxnId>, Result<u64>) {
    let (mut stage, dataset) = match begin(catalog).await {
        Ok(begun) => begun,
        Err(e) => return (None, Err(e)),
    };
    let txn = stage.txn().clone();
    let outcome = build_all(catalog, &mut stage, dataset).await;
    let outcome = match outcome {
        Ok(request) => attach(catalog, stage, request).await,
        Err(e) => Err(e),
    };
    (Some(txn), outcome)
}

async fn build_all(
    catalog: &Arc<Catalog>,
    stage: &mut Stager,
    dataset: String,
) -> Result<AttachRequest> {
    let head = catalog.look().await?;
    let table = resolve::table(catalog.store(), &head, &table_name(), None).await?;
    let (store, env) = (Arc::clone(catalog.store()), catalog.env());
    let reader = TableReader::new(store, env, Arc::clone(&table.table));
    let mut segments: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
    for entry in reader.entries().await?.iter() {
        for index in indexes() {
            let built = build(&reader, entry, &index, 1, env, stage).await?;
            let fragment = entry.fragment.as_ref().map(|f| f.file.object.key.clone());
            segments
                .entry(fragment.unwrap_or_default())
                .or_default()
                .extend(built);
        }
    }
    Ok(AttachRequest {
        name: table_name(),
        dataset,
        branch: BranchName::main(),
        type_id: EMBEDDING_TYPE,
        segments,
        requester: Requester::default(),
    })
}

/// The live keys with their content hashes of a version, in key order.
pub async fn content(
    catalog: &Arc<Catalog>,
    version: Option<u64>,
) -> Result<BTreeMap<String, [u8; 32]>> {
    let head = catalog.look().await?;
    let table = resolve::table(catalog.store(), &head, &table_name(), version).await?;
    Ok(Driver::new(catalog, &Source::default(), Deletes::Tombstone)
        .current(&table)
        .await?
        .0)
}

/// What the table of a source must hold.
pub fn expected(rows: &Rows) -> BTreeMap<String, [u8; 32]> {
    let embeddable = rows.iter().filter(|(_, t)| !t.trim().is_empty());
    embeddable.map(|(k, t)| (k.clone(), hash(t))).collect()
}

/// Verification of the current version finds nothing wrong.
pub async fn all_match(base: Arc<dyn ObjectStore>) {
    let catalog = super::audit::process(base, 77);
    let head = catalog.look().await.unwrap();
    let table = resolve::table(catalog.store(), &head, &table_name(), None)
        .await
        .unwrap();
    let checks = verify(
        catalog.store(),
        catalog.env(),
        &table.manifest,
        &table.manifest_ref,
    )
    .await;
    let bad: Vec<_> = checks
        .iter()
        .filter(|c| c.verdict != Verdict::Match)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(checks.last().unwrap().kind, "identity");
}
