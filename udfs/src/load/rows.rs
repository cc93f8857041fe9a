//! The rows of a load by type, as they were read: spooled, each with its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use stratagraph::Result;
use stratagraph::env::Env;
use stratagraph::graph::input::{Places, Sink, TypedBatch};
use stratagraph::graph::minted::MintedIds;
use stratagraph::graph::schema::{GraphSchema, GraphType};

use super::found::Found;
use super::plans::SPOOLS;
use crate::host::Host;
use crate::spool::{SegmentWriter, Spool, Spooler};

/// Columns of spooled rows: `r` the record, `k` the id, of edges `s` and `d` the ends, then the
/// properties as `p0`, `p1`, ... in the order of the schema.
pub(crate) fn rows_schema(of: &GraphType) -> SchemaRef {
    Arc::new(Schema::new(fields(of)))
}

/// The same with `x`, the row id.
pub(crate) fn keyed_schema(of: &GraphType) -> SchemaRef {
    let mut fields = fields(of);
    fields.push(Field::new("x", DataType::UInt64, false));
    Arc::new(Schema::new(fields))
}

/// The same with `a` and `b`, the row ids of the ends.
pub(crate) fn ended_schema(of: &GraphType) -> SchemaRef {
    let mut fields = fields(of);
    let rid = |name: &str| Field::new(name, DataType::UInt64, true);
    fields.extend(["x", "a", "b"].map(rid));
    Arc::new(Schema::new(fields))
}

fn fields(of: &GraphType) -> Vec<Field> {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let mut fields = vec![Field::new("r", DataType::UInt64, true), text("k")];
    if of.is_edge() {
        fields.extend([text("s"), text("d")]);
    }
    let properties = of.properties.iter().enumerate();
    fields
        .extend(properties.map(|(at, p)| Field::new(format!("p{at}"), p.value_type.arrow(), true)));
    fields
}

/// Rows of one type.
#[derive(Debug)]
pub(crate) struct TypeRows {
    pub(crate) rows: Spool,
    /// Whether the input gave an id. Without any the rows are sorted by their ids, and no id can be
    /// there already.
    pub(crate) given: bool,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Rows by type id.
    pub(crate) types: BTreeMap<u64, TypeRows>,
    /// Types that records named, good ones and bad.
    pub(crate) named: BTreeSet<u64>,
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
    /// What is wrong with single records.
    pub(crate) found: Found,
    /// Where records stand, if they came from files.
    pub(crate) places: Option<Places>,
    /// Ids of rows that go without a row in their place, by type id.
    pub(crate) gone: BTreeMap<u64, BTreeSet<String>>,
}

/// What becomes of the rows of one type.
#[derive(Debug)]
pub(crate) struct TypeChanges {
    /// New rows and those with other values, as [`rows_schema`] has them, in the order of their ids.
    pub(crate) rows: Option<RecordBatch>,
    /// Whether a stored row may have the id of one of them.
    pub(crate) given: bool,
    /// Ids of rows that go.
    pub(crate) gone: BTreeSet<String>,
}

impl Loaded {
    /// The rows of some changes; each of them was looked at by itself.
    pub(crate) fn changes(host: &Host, changes: BTreeMap<u64, TypeChanges>) -> Result<Self> {
        let (mut types, mut gone) = (BTreeMap::new(), BTreeMap::new());
        for (type_id, change) in changes {
            if let Some(batch) = change.rows {
                let schema = batch.schema();
                let spooler = Spooler::new(host, Arc::clone(&schema), "changed rows", SPOOLS);
                let mut segment = spooler.segment();
                segment.push(batch)?;
                let rows = TypeRows {
                    rows: Spool::new(schema, vec![segment.finish()?]),
                    given: change.given,
                };
                types.insert(type_id, rows);
            }
            if !change.gone.is_empty() {
                gone.insert(type_id, change.gone);
            }
        }
        Ok(Self {
            named: types.keys().copied().collect(),
            types,
            nodes: 0,
            edges: 0,
            found: Found::default(),
            places: None,
            gone,
        })
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty() && self.gone.is_empty()
    }
}

struct Writer {
    schema: SchemaRef,
    segment: SegmentWriter,
    given: bool,
}

/// Takes the batches of a load into spools.
pub(crate) struct Collector {
    host: Host,
    env: Env,
    schema: Arc<GraphSchema>,
    ids: MintedIds,
    writers: BTreeMap<u64, Writer>,
    rows: u64,
}

impl Collector {
    pub(crate) fn new(host: &Host, env: &Env, schema: &Arc<GraphSchema>) -> Self {
        Self {
            host: host.clone(),
            ids: MintedIds::after(&env.ids.unique()),
            env: env.clone(),
            schema: Arc::clone(schema),
            writers: BTreeMap::new(),
            rows: 0,
        }
    }

    fn take(&mut self, typed: TypedBatch) -> Result<()> {
        let Some(of) = self.schema.by_id(typed.type_id) else {
            return Ok(());
        };
        let spools = self.schema.types.len().max(1) + SPOOLS;
        let writer = self.writers.entry(typed.type_id).or_insert_with(|| {
            let schema = rows_schema(of);
            let spooler = Spooler::new(&self.host, Arc::clone(&schema), "loaded rows", spools);
            Writer {
                schema,
                segment: spooler.segment(),
                given: false,
            }
        });
        let mut columns = typed.batch.columns().to_vec();
        let ids = columns[1].as_string::<i32>();
        writer.given |= ids.null_count() < ids.len();
        if ids.null_count() > 0 {
            let mut all = StringBuilder::with_capacity(ids.len(), ids.len() * 26);
            for id in ids {
                match id {
                    Some(id) => all.append_value(id),
                    None => all.append_value(self.ids.mint()),
                }
            }
            columns[1] = Arc::new(all.finish()) as ArrayRef;
        }
        self.rows += typed.batch.num_rows() as u64;
        let batch = RecordBatch::try_new(Arc::clone(&writer.schema), columns)?;
        writer.segment.push(batch)
    }

    /// Ends the spools.
    pub(crate) fn finish(self) -> Result<BTreeMap<u64, TypeRows>> {
        let ended = self.writers.into_iter().map(|(id, writer)| {
            let segment = writer.segment.finish()?;
            let rows = TypeRows {
                rows: Spool::new(writer.schema, vec![segment]),
                given: writer.given,
            };
            Ok((id, rows))
        });
        ended.collect()
    }
}

#[async_trait]
impl Sink for Collector {
    async fn push(&mut self, batch: TypedBatch) -> Result<()> {
        self.take(batch)?;
        self.env.progress.report("read", self.rows, 0);
        // Parsing never waits by itself; whoever goes away stops it here.
        tokio::task::yield_now().await;
        Ok(())
    }
}
