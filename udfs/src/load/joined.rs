//! Edges with the row ids of their ends, joined and sorted in memory where all of them are there: a
//! plan copies every column at each of its steps, here the rows are copied once, into their places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use stratagraph::{Error, Result};
use twox_hash::XxHash3_128;

use crate::host::Host;
use crate::spool::Spool;

/// Share of a bounded pool that a join takes besides its rows.
const POOL_SHARE: usize = 8;
/// Rows of a sorted batch.
const BATCH_ROWS: usize = 8_192;
/// Memory of the ends of a row and of its place.
const ROW_BYTES: u64 = (2 * size_of::<u64>() + size_of::<Place>()) as u64;
/// Memory of a place in a map of ids.
const SLOT_BYTES: u64 = 40;

/// A hash is as good as a hash of itself.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let first = bytes.first_chunk().copied().unwrap_or_default();
        self.0 = u64::from_le_bytes(first);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Row ids of nodes by id.
pub(super) struct RowIds {
    batches: Vec<(StringArray, UInt64Array)>,
    /// Batch and row by the hash of the id.
    places: HashMap<u64, (u32, u32), BuildHasherDefault<AsIs>>,
}

fn hash(id: &str) -> u64 {
    XxHash3_128::oneshot(id.as_bytes()) as u64
}

impl RowIds {
    /// Those of columns `k` and `x` of batches; `None` if two ids have one hash.
    fn new(rows: &[RecordBatch]) -> Option<Self> {
        let mut batches = Vec::with_capacity(rows.len());
        let mut places = HashMap::default();
        places.reserve(rows.iter().map(RecordBatch::num_rows).sum());
        for (at, batch) in rows.iter().enumerate() {
            let ids = batch.column_by_name("k")?.as_string_opt::<i32>()?.clone();
            let rids = batch
                .column_by_name("x")?
                .as_primitive_opt::<UInt64Type>()?;
            for (row, id) in ids.iter().enumerate() {
                let place = (u32::try_from(at).ok()?, u32::try_from(row).ok()?);
                if places.insert(hash(id?), place).is_some() {
                    return None;
                }
            }
            batches.push((ids, rids.clone()));
        }
        Some(Self { batches, places })
    }

    fn get(&self, id: &str) -> Option<u64> {
        let (batch, row) = self.places.get(&hash(id))?;
        let (ids, rids) = self.batches.get(*batch as usize)?;
        let row = *row as usize;
        (ids.value(row) == id).then(|| rids.value(row))
    }

    fn all(&self, ends: &StringArray) -> UInt64Array {
        ends.iter()
            .map(|end| end.and_then(|end| self.get(end)))
            .collect()
    }
}

/// Edges and the nodes of their ends, in memory.
pub(super) struct Joined {
    edges: Vec<RecordBatch>,
    ends: [Arc<RowIds>; 2],
    memory: MemoryReservation,
}

impl Joined {
    /// `None` where rows are on disk already, or have no room beside others.
    pub(super) async fn new(
        host: &Host,
        edges: &Spool,
        nodes: [&[Spool]; 2],
    ) -> Result<Option<Self>> {
        let ids = nodes
            .iter()
            .flat_map(|spools| spools.iter())
            .map(Spool::rows);
        let bytes = edges.rows() * ROW_BYTES + ids.sum::<u64>() * SLOT_BYTES;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let most = host
            .memory_limit()
            .map_or(usize::MAX, |limit| limit / POOL_SHARE);
        let memory = host.memory("ends of edges");
        if bytes > most || memory.try_grow(bytes).is_err() {
            return Ok(None);
        }
        let (Some(edges), Some(from), Some(to)) = (edges.held(), held(nodes[0]), held(nodes[1]))
        else {
            return Ok(None);
        };
        let same = std::ptr::eq(nodes[0], nodes[1]);
        // The work goes on if nobody waits for it any more, so what accounts for its memory goes along.
        let ends = apart(move || {
            let from = Arc::new(RowIds::new(&from)?);
            let to = if same {
                Arc::clone(&from)
            } else {
                Arc::new(RowIds::new(&to)?)
            };
            Some(([from, to], memory))
        });
        Ok(ends.await?.map(|(ends, memory)| Self {
            edges,
            ends,
            memory,
        }))
    }

    /// The edges of `schema`, whose last two columns are the row ids of the ends, `NULL` where there is
    /// no such node; in the order of the edges.
    pub(super) fn rows(
        &self,
        host: &Host,
        schema: &SchemaRef,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (ends, schema) = (self.ends.clone(), Arc::clone(schema));
        let tasks = stream::iter(self.edges.clone()).map(move |edges| {
            let (ends, schema) = (ends.clone(), Arc::clone(&schema));
            async move { apart(move || with_ends(&edges, &ends, schema)).await? }
        });
        tasks.buffered(host.workers()).boxed()
    }

    /// Batches of such rows by the row ids of their ends, then in the order in which they come.
    pub(super) async fn sorted(
        self,
        host: &Host,
        rows: Vec<RecordBatch>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let rows = Arc::new(rows);
        let (unsorted, memory) = (Arc::clone(&rows), self.memory);
        let places = apart(move || Ok::<_, Error>((places(&unsorted)?, memory)));
        let places = Arc::new(places.await??);
        let starts = (0..places.0.len()).step_by(BATCH_ROWS);
        let tasks = stream::iter(starts).map(move |start| {
            let (rows, places) = (Arc::clone(&rows), Arc::clone(&places));
            async move { apart(move || at(&rows, &places.0[start..])).await? }
        });
        Ok(tasks.buffered(host.workers()).boxed())
    }
}

fn held(spools: &[Spool]) -> Option<Vec<RecordBatch>> {
    let held: Option<Vec<_>> = spools.iter().map(Spool::held).collect();
    held.map(|batches| batches.concat())
}

/// Does work that takes long on a thread for such work.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = SpawnedTask::spawn_blocking(work).join().await;
    done.map_err(|e| Error::TaskFailed {
        operation: "ends of edges",
        source: Box::new(e),
    })
}

fn with_ends(
    edges: &RecordBatch,
    ends: &[Arc<RowIds>; 2],
    schema: SchemaRef,
) -> Result<RecordBatch> {
    let mut columns = edges.columns().to_vec();
    for (column, ids) in ["s", "d"].into_iter().zip(ends) {
        let texts = edges.column_by_name(column);
        let texts = texts.and_then(|array| array.as_string_opt::<i32>());
        let texts = texts.ok_or_else(|| misshapen(column))?;
        columns.push(Arc::new(ids.all(texts)) as ArrayRef);
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn misshapen(column: &str) -> Error {
    Error::corrupt("spooled rows", column, "ends of edges", "none")
}

/// Row ids of both ends, batch and row.
type Place = (u64, u64, u32, u32);

/// Where the rows stand, in their order.
fn places(rows: &[RecordBatch]) -> Result<Vec<Place>> {
    let mut places = Vec::with_capacity(rows.iter().map(RecordBatch::num_rows).sum());
    for (batch, rows) in (0u32..).zip(rows) {
        let ends = rows.columns().last_chunk();
        let Some([from, to]): Option<&[ArrayRef; 2]> = ends else {
            return Err(misshapen("a"));
        };
        let (from, to) = (
            from.as_primitive::<UInt64Type>(),
            to.as_primitive::<UInt64Type>(),
        );
        let ends = from.values().iter().zip(to.values());
        places.extend(ends.zip(0u32..).map(|((a, b), row)| (*a, *b, batch, row)));
    }
    places.sort_unstable();
    Ok(places)
}

/// The rows of the first of these places.
fn at(rows: &[RecordBatch], places: &[Place]) -> Result<RecordBatch> {
    let places = places.iter().take(BATCH_ROWS);
    let places: Vec<(usize, usize)> = places
        .map(|(_, _, batch, row)| (*batch as usize, *row as usize))
        .collect();
    let rows: Vec<&RecordBatch> = rows.iter().collect();
    Ok(interleave_record_batch(&rows, &places)?)
}
