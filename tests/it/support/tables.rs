//! Builds tables of any layout from rows, and the rows that must come out again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int64Array,
    RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Float32Type, Int64Type, UInt32Type, UInt64Type};
use futures::TryStreamExt;
use roaring::RoaringBitmap;
use stratagraph::env::Env;
use stratagraph::ident::TxnId;
use stratagraph::search::build::{Index, build};
use stratagraph::store::{PageTree, Stager, Store};
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::ledger::{LedgerChange, write_ledger};
use stratagraph::table::manifest::{
    Column, Endpoints, Entry, Fragment, Layout, RidShift, SchemaVersion, TableManifest,
};
use stratagraph::table::mask::{mask_digest, write_mask};
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::schema::{arrow_schema, embedding_schema, graph_schema, id};
use stratagraph::table::writer::FragmentWriter;

/// Width of test vectors.
pub const DIM: usize = 3;
/// Type ids of test tables.
pub const NODE_TYPE: u64 = 1;
pub const EDGE_TYPE: u64 = 2;

/// A row of a test table; only the columns of its layout count.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct Row {
    pub key: String,
    pub rid: u64,
    pub src_rid: u64,
    pub dst_rid: u64,
    pub vector: [f32; DIM],
    pub hash: Option<[u8; 32]>,
    pub text: Option<String>,
    pub number: Option<i64>,
}

impl Row {
    /// A row whose other columns follow from key and `seed`.
    pub fn new(key: &str, seed: u64) -> Self {
        let f = seed as f32;
        Self {
            key: key.to_owned(),
            rid: seed,
            src_rid: seed % 7,
            dst_rid: seed % 5,
            vector: [f, -f, f / 3.0],
            hash: (!seed.is_multiple_of(11)).then_some([seed as u8; 32]),
            text: (!seed.is_multiple_of(3)).then(|| format!("text {seed}")),
            number: (!seed.is_multiple_of(4)).then_some(seed as i64 - 50),
        }
    }

    fn order(&self, layout: Layout) -> (u64, u64, &str) {
        match layout {
            Layout::Edge => (self.src_rid, self.dst_rid, &self.key),
            _ => (0, 0, &self.key),
        }
    }
}

/// Sorts rows as a layout does.
pub fn sort(layout: Layout, rows: &mut [Row]) {
    rows.sort_by(|a, b| a.order(layout).cmp(&b.order(layout)));
}

fn property(id: u64, name: &str, data_type: &str) -> Column {
    Column {
        id,
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        nullable: true,
    }
}

/// The schema of test tables: the columns of the layout, `text`, and `number` if `wide`.
pub fn schema(layout: Layout, wide: bool) -> SchemaVersion {
    let mut schema = match layout {
        Layout::Embedding => {
            let text = Field::new("text", DataType::Utf8View, true);
            let number = Field::new("number", DataType::Int64, true);
            embedding_schema(DIM, &[text, number]).unwrap()
        }
        _ => {
            let text = property(id::FIRST_USER, "text", "utf8");
            let number = property(id::FIRST_USER + 1, "number", "int64");
            graph_schema(layout, 0, &[text, number]).unwrap()
        }
    };
    if !wide {
        schema.columns.pop();
    }
    schema.id = u64::from(wide);
    schema
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn column(id: u64, rows: &[Row]) -> ArrayRef {
    match id {
        id::ROW_ID | id::ID => texts(rows.iter().map(|r| Some(r.key.as_str()))),
        id::SOURCE_ID => texts(rows.iter().map(|_| Some("source"))),
        id::MODEL_ID => texts(rows.iter().map(|_| Some("model"))),
        id::VECTOR => {
            let values: Vec<f32> = rows.iter().flat_map(|r| r.vector).collect();
            let item = Arc::new(Field::new("item", DataType::Float32, false));
            let values = Arc::new(Float32Array::from(values));
            Arc::new(FixedSizeListArray::new(item, DIM as i32, values, None))
        }
        id::CONTENT_HASH => {
            let hashes = rows.iter().map(|r| r.hash);
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(hashes, 32).unwrap())
        }
        id::RID => numbers(rows.iter().map(|r| r.rid)),
        id::SRC => texts(rows.iter().map(|_| Some("src"))),
        id::DST => texts(rows.iter().map(|_| Some("dst"))),
        id::SRC_RID => numbers(rows.iter().map(|r| r.src_rid)),
        id::DST_RID => numbers(rows.iter().map(|r| r.dst_rid)),
        id::FIRST_USER => texts(rows.iter().map(|r| r.text.as_deref())),
        _ => Arc::new(rows.iter().map(|r| r.number).collect::<Int64Array>()),
    }
}

/// Rows as a batch of a schema.
pub fn batch(schema: &SchemaVersion, rows: &[Row]) -> RecordBatch {
    let columns = schema.columns.iter().map(|c| column(c.id, rows)).collect();
    RecordBatch::try_new(arrow_schema(schema).unwrap(), columns).unwrap()
}

/// Rows of a batch with all columns of a wide test schema; columns that a layout lacks are zero.
pub fn rows_of(layout: Layout, batch: &RecordBatch) -> Vec<Row> {
    let schema = schema(layout, true);
    let find = |id: u64| {
        schema
            .columns
            .iter()
            .position(|c| c.id == id)
            .map(|i| batch.column(i))
    };
    let number =
        |id: u64, row: usize| find(id).map_or(0, |c| c.as_primitive::<UInt64Type>().value(row));
    let key = find(id::ROW_ID)
        .or(find(id::ID))
        .unwrap()
        .as_string::<i32>();
    let text = find(id::FIRST_USER).unwrap().as_string::<i32>();
    let numbers = find(id::FIRST_USER + 1)
        .unwrap()
        .as_primitive::<Int64Type>();
    (0..batch.num_rows())
        .map(|row| Row {
            key: key.value(row).to_owned(),
            rid: number(id::RID, row),
            src_rid: number(id::SRC_RID, row),
            dst_rid: number(id::DST_RID, row),
            vector: find(id::VECTOR).map_or([0.0; DIM], |c| {
                let values = c.as_fixed_size_list().value(row);
                values
                    .as_primitive::<Float32Type>()
                    .values()
                    .as_ref()
                    .try_into()
                    .unwrap()
            }),
            hash: find(id::CONTENT_HASH).and_then(|c| {
                let hashes = c.as_fixed_size_binary();
                hashes
                    .is_valid(row)
                    .then(|| hashes.value(row).try_into().unwrap())
            }),
            text: text.is_valid(row).then(|| text.value(row).to_owned()),
            number: numbers.is_valid(row).then(|| numbers.value(row)),
        })
        .collect()
}

/// What a reader of a layout must return for a row that was written under a narrow or wide schema.
pub fn expected(layout: Layout, wide: bool, row: &Row) -> Row {
    let mut row = row.clone();
    if layout == Layout::Embedding {
        row.rid = 0;
    } else {
        (row.vector, row.hash) = ([0.0; DIM], None);
    }
    if layout != Layout::Edge {
        (row.src_rid, row.dst_rid) = (0, 0);
    }
    if !wide {
        row.number = None;
    }
    row
}

/// A physical row of the model: where it lies, what it reads as, whether it is dead.
#[derive(Debug, Clone)]
pub struct Placed {
    pub entry: u64,
    pub position: u32,
    pub row: Row,
    pub dead: bool,
}

/// Builds a table and, beside it, the model of its rows.
pub struct TableBuilder {
    pub store: Arc<Store>,
    pub env: Env,
    pub stage: Stager,
    pub layout: Layout,
    pub model: Vec<Placed>,
    entries: BTreeMap<u64, Entry>,
}

impl TableBuilder {
    pub fn new(layout: Layout) -> Self {
        Self::on(Arc::new(Store::memory()), layout)
    }

    pub fn on(store: Arc<Store>, layout: Layout) -> Self {
        let unique = format!("T{layout:?}");
        Self {
            store,
            env: Env::fixed(0),
            stage: Stager::new(TxnId::new(0, &unique).unwrap()),
            layout,
            model: Vec::new(),
            entries: BTreeMap::new(),
        }
    }

    /// Writes rows as a fragment in batches of `split` rows.
    pub async fn fragment(&mut self, wide: bool, rows: &[Row], split: usize) -> Option<Fragment> {
        let schema = schema(self.layout, wide);
        let key = self.stage.reserve("parquet").unwrap();
        let (store, layout) = (Arc::clone(&self.store), self.layout);
        let mut writer = FragmentWriter::new(store, &self.env, layout, &schema, key).unwrap();
        for part in rows.chunks(split.max(1)) {
            writer.write(&batch(&schema, part)).await.unwrap();
        }
        writer.finish(&mut self.stage).await.unwrap()
    }

    /// Adds an entry with the given rows in any order; returns its number.
    pub async fn add(&mut self, stamp: u64, wide: bool, rows: &[Row]) -> u64 {
        let mut rows = rows.to_vec();
        sort(self.layout, &mut rows);
        let fragment = self.fragment(wide, &rows, 1_000).await;
        let id = self.entries.len() as u64;
        for (position, row) in rows.iter().enumerate() {
            let row = expected(self.layout, wide, row);
            let position = position as u32;
            self.model.push(Placed {
                entry: id,
                position,
                row,
                dead: false,
            });
        }
        let entry = Entry {
            stamp,
            id,
            fragment,
            mask: None,
            rejects: None,
        };
        self.entries.insert(id, entry);
        id
    }

    fn edit(&mut self, id: u64) -> &mut Entry {
        self.entries.get_mut(&id).unwrap()
    }

    /// Shifts row ids of one type in an entry, in the model too.
    pub fn shift(&mut self, id: u64, type_id: u64, base: u64, shift: u64) {
        let layout = self.layout;
        let fragment = self.edit(id).fragment.as_mut().unwrap();
        fragment.shift.insert(type_id, RidShift { base, shift });
        let add = |rid: &mut u64| *rid += if *rid >= base { shift } else { 0 };
        for placed in self.model.iter_mut().filter(|p| p.entry == id) {
            match (layout, type_id) {
                (Layout::Node, NODE_TYPE) | (Layout::Edge, EDGE_TYPE) => add(&mut placed.row.rid),
                (Layout::Edge, NODE_TYPE) => {
                    add(&mut placed.row.src_rid);
                    add(&mut placed.row.dst_rid);
                }
                _ => {}
            }
        }
    }

    /// Kills positions of an entry.
    pub fn kill(&mut self, id: u64, positions: &BTreeSet<u32>) {
        let dead = DeadRows::from_bitmap(&RoaringBitmap::from_iter(positions)).unwrap();
        if let Some(fragment) = &mut self.edit(id).fragment {
            fragment.dead = dead;
        }
        for placed in self.model.iter_mut().filter(|p| p.entry == id) {
            placed.dead = positions.contains(&placed.position);
        }
    }

    /// Gives all fragments an index.
    pub async fn index(&mut self, index: &Index) {
        let table = self.finish().await;
        let reader = self.reader(&table);
        for entry in self.entries.values_mut() {
            let built = build(&reader, entry, index, 1, &self.env, &mut self.stage).await;
            if let (Some(segment), Some(fragment)) = (built.unwrap(), &mut entry.fragment) {
                fragment.set_segment(segment);
            }
        }
    }

    /// Moves the bitmap of an entry to an object.
    pub fn move_out(&mut self, id: u64) {
        let mut dead = self.edit(id).fragment.as_ref().unwrap().dead.clone();
        dead.move_out(&mut self.stage).unwrap();
        self.edit(id).fragment.as_mut().unwrap().dead = dead;
    }

    /// Gives an entry a mask delta; bitmaps follow in [`TableBuilder::settle_masks`].
    pub fn mask(&mut self, id: u64, keys: &BTreeMap<String, u64>) {
        let keys = keys.iter().map(|(k, h)| (k.as_str(), *h));
        let mask = write_mask(&mut self.stage, keys).unwrap();
        self.edit(id).mask = mask;
    }

    pub fn ledger(&mut self, id: u64, changes: &[LedgerChange]) {
        let rejects = write_ledger(&mut self.stage, changes).unwrap();
        self.edit(id).rejects = rejects;
    }

    /// Makes bitmaps from a model of the mask: key to horizon.
    pub fn settle_masks(&mut self, horizons: &BTreeMap<String, u64>) {
        let ids: Vec<u64> = self.entries.keys().copied().collect();
        for id in ids {
            let stamp = self.entries[&id].stamp;
            let hidden = |p: &&Placed| horizons.get(&p.row.key).is_some_and(|h| *h >= stamp);
            let mine = self.model.iter().filter(|p| p.entry == id);
            let dead: BTreeSet<u32> = mine.filter(hidden).map(|p| p.position).collect();
            self.kill(id, &dead);
        }
    }

    /// Writes pages and counts.
    pub async fn finish(&mut self) -> Arc<TableManifest> {
        let changes = self.entries.values();
        let changes = changes.map(|e| (Entry::key(e.stamp, e.id), Some(e.clone())));
        let entries = PageTree::default()
            .apply(&self.store, &mut self.stage, changes.collect())
            .await
            .unwrap();
        self.stage.flush(&self.store).await.unwrap();
        let fragments = self
            .entries
            .values()
            .filter(|e| e.fragment.is_some())
            .count();
        let dead = self.model.iter().filter(|p| p.dead).count() as u64;
        Arc::new(TableManifest {
            type_id: if self.layout == Layout::Edge {
                EDGE_TYPE
            } else {
                NODE_TYPE
            },
            incarnation_id: "i".to_owned(),
            layout: self.layout,
            endpoints: (self.layout == Layout::Edge).then_some(Endpoints {
                src: NODE_TYPE,
                dst: NODE_TYPE,
            }),
            schemas: vec![schema(self.layout, false), schema(self.layout, true)],
            entries,
            next_entry: self.entries.len() as u64,
            live_rows: self.model.len() as u64 - dead,
            dead_rows: dead,
            fragments: fragments as u64,
            rejects: 0,
            mask_digest: mask_digest(self.entries.values()),
            fold: None,
            source_files: None,
        })
    }

    pub fn reader(&self, table: &Arc<TableManifest>) -> TableReader {
        TableReader::new(Arc::clone(&self.store), &self.env, Arc::clone(table))
    }

    /// Live rows of the model in scan order.
    pub fn live(&self) -> Vec<Placed> {
        let mut live: Vec<Placed> = self.model.iter().filter(|p| !p.dead).cloned().collect();
        let stamp = |p: &Placed| (self.entries[&p.entry].stamp, p.entry);
        live.sort_by(|a, b| {
            let order = a.row.order(self.layout).cmp(&b.row.order(self.layout));
            order
                .then(stamp(a).cmp(&stamp(b)))
                .then(a.position.cmp(&b.position))
        });
        live
    }
}

/// All rows of a scan.
pub async fn scan(reader: &TableReader, options: &ReadOptions) -> Vec<RecordBatch> {
    reader
        .scan(options)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap()
}

/// Rows of a scan over all columns, with entry and position.
pub async fn scan_placed(reader: &TableReader, batch_rows: usize) -> Vec<(u64, u32, Row)> {
    let options = ReadOptions {
        batch_rows,
        ..ReadOptions::default()
    }
    .with_positions();
    let mut out = Vec::new();
    for batch in scan(reader, &options).await {
        assert!(batch.num_rows() <= batch_rows);
        let columns = batch.num_columns();
        let entries = batch.column(columns - 2).as_primitive::<UInt64Type>();
        let positions = batch.column(columns - 1).as_primitive::<UInt32Type>();
        for (row, value) in rows_of(reader.table().layout, &batch)
            .into_iter()
            .enumerate()
        {
            out.push((entries.value(row), positions.value(row), value));
        }
    }
    out
}

/// Runs a future on a current-thread runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}
