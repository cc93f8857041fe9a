//! Rows that wait for a later step: in memory while the host's pool has room, else in its spill files.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::spill_file::SpillFile;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Result;
use stratagraph_providers::from_datafusion;

use crate::host::Host;

/// Share of a bounded pool that all spools of a verb hold in memory together.
const POOL_SHARE: usize = 4;

/// Makes the segments of one spool.
pub(crate) struct Spooler {
    host: Host,
    manager: SpillManager,
    purpose: &'static str,
    /// Bytes that one segment may hold in memory.
    cap: usize,
}

impl fmt::Debug for Spooler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spooler({})", self.purpose)
    }
}

impl Spooler {
    /// A spool of rows of `schema` in up to `segments` segments.
    pub(crate) fn new(
        host: &Host,
        schema: SchemaRef,
        purpose: &'static str,
        segments: usize,
    ) -> Arc<Self> {
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let cap = host
            .memory_limit()
            .map_or(usize::MAX, |limit| limit / POOL_SHARE / segments.max(1));
        Arc::new(Self {
            host: host.clone(),
            manager: SpillManager::new(host.runtime(), metrics, schema),
            purpose,
            cap,
        })
    }

    /// Columns of the rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.manager.schema()
    }

    /// A new segment.
    pub(crate) fn segment(self: &Arc<Self>) -> SegmentWriter {
        SegmentWriter {
            spooler: Arc::clone(self),
            memory: self.host.memory(self.purpose),
            state: State::Memory(Vec::new()),
            rows: 0,
            bytes: 0,
        }
    }
}

enum State {
    Memory(Vec<RecordBatch>),
    File(SpillWriter),
}

/// Appends a batch, or without one ends the file. DataFusion does not export the type behind it.
type SpillWriter = Box<dyn FnMut(Option<&RecordBatch>) -> Spilled + Send>;
type Spilled = datafusion::error::Result<Option<Arc<dyn SpillFile>>>;

/// One segment while it is written. A partition has its own, so that partitions do not wait for each
/// other.
pub(crate) struct SegmentWriter {
    spooler: Arc<Spooler>,
    memory: MemoryReservation,
    state: State,
    rows: u64,
    bytes: u64,
}

impl SegmentWriter {
    /// Adds rows, whose buffers belong to this batch alone.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let bytes = batch.get_array_memory_size();
        self.rows += batch.num_rows() as u64;
        self.bytes += bytes as u64;
        if let State::Memory(batches) = &mut self.state {
            let fits = self.memory.size().saturating_add(bytes) <= self.spooler.cap;
            if fits && self.memory.try_grow(bytes).is_ok() {
                batches.push(batch);
                return Ok(());
            }
        }
        self.spill(batch).map_err(from_datafusion)
    }

    fn spill(&mut self, batch: RecordBatch) -> datafusion::error::Result<()> {
        if let State::Memory(batches) = &mut self.state {
            let batches = std::mem::take(batches);
            let mut file = self
                .spooler
                .manager
                .create_in_progress_file(self.spooler.purpose)?;
            for batch in &batches {
                file.append_batch(batch)?;
            }
            drop(batches);
            self.memory.free();
            self.state = State::File(Box::new(move |batch| match batch {
                Some(batch) => file.append_batch(batch).map(|_| None),
                None => file.finish(),
            }));
        }
        if let State::File(write) = &mut self.state {
            write(Some(&batch))?;
        }
        Ok(())
    }

    /// Ends the segment.
    pub(crate) fn finish(self) -> Result<Segment> {
        let rows = match self.state {
            State::Memory(batches) => Rows::Memory(batches),
            State::File(mut write) => match write(None).map_err(from_datafusion)? {
                Some(file) => Rows::File(file),
                None => Rows::Memory(Vec::new()),
            },
        };
        Ok(Segment {
            inner: Arc::new(Inner {
                spooler: self.spooler,
                _memory: self.memory,
                rows,
            }),
            rows: self.rows,
            bytes: self.bytes,
        })
    }
}

enum Rows {
    Memory(Vec<RecordBatch>),
    File(Arc<dyn SpillFile>),
}

struct Inner {
    spooler: Arc<Spooler>,
    rows: Rows,
    /// Held for as long as the rows are.
    _memory: MemoryReservation,
}

/// Rows of one partition.
#[derive(Clone)]
pub(crate) struct Segment {
    inner: Arc<Inner>,
    rows: u64,
    bytes: u64,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_spilled() { "disk" } else { "memory" };
        write!(f, "Segment({} rows in {place})", self.rows)
    }
}

impl Segment {
    fn is_spilled(&self) -> bool {
        matches!(self.inner.rows, Rows::File(_))
    }

    fn open(&self) -> datafusion::error::Result<SendableRecordBatchStream> {
        let manager = &self.inner.spooler.manager;
        match &self.inner.rows {
            Rows::Memory(batches) => Ok(Box::pin(MemoryStream::try_new(
                batches.clone(),
                Arc::clone(manager.schema()),
                None,
            )?)),
            Rows::File(file) => manager.read_spill_as_stream(Arc::clone(file), None),
        }
    }
}

impl PartitionStream for Segment {
    fn schema(&self) -> &SchemaRef {
        self.inner.spooler.manager.schema()
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (segment, schema) = (self.clone(), Arc::clone(PartitionStream::schema(self)));
        let opened = stream::once(async move { segment.open() }).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, opened))
    }
}

/// Rows of all partitions, to be read any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    schema: SchemaRef,
    segments: Vec<Segment>,
}

impl Spool {
    pub(crate) fn new(schema: SchemaRef, segments: Vec<Segment>) -> Self {
        Self { schema, segments }
    }

    /// Columns of the rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all segments.
    pub(crate) fn rows(&self) -> u64 {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Bytes of all rows in memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// Bytes of a row, about.
    pub(crate) fn row_bytes(&self) -> usize {
        usize::try_from(self.bytes() / self.rows().max(1)).unwrap_or(usize::MAX)
    }

    /// The spool as a table.
    pub(crate) fn table(&self) -> Result<Arc<dyn TableProvider>> {
        let partitions = self.segments.iter();
        let mut partitions: Vec<Arc<dyn PartitionStream>> =
            partitions.map(|s| Arc::new(s.clone()) as _).collect();
        if partitions.is_empty() {
            partitions.push(Arc::new(Nothing(Arc::clone(&self.schema))));
        }
        let table = StreamingTable::try_new(Arc::clone(&self.schema), partitions);
        Ok(Arc::new(table.map_err(from_datafusion)?))
    }

    /// The rows, if all of them are in memory.
    pub(crate) fn held(&self) -> Option<Vec<RecordBatch>> {
        let mut held = Vec::new();
        for segment in &self.segments {
            match &segment.inner.rows {
                Rows::Memory(batches) => held.extend_from_slice(batches),
                Rows::File(_) => return None,
            }
        }
        Some(held)
    }

    /// All rows, segment after segment.
    pub(crate) fn read(&self) -> stream::BoxStream<'static, Result<RecordBatch>> {
        let segments = self.segments.clone();
        stream::iter(segments)
            .map(|segment| segment.open())
            .try_flatten()
            .map_err(from_datafusion)
            .boxed()
    }
}

/// A partition without rows: a plan needs at least one.
#[derive(Debug)]
struct Nothing(SchemaRef);

impl PartitionStream for Nothing {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let nothing = stream::empty::<Result<RecordBatch, DataFusionError>>();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::StringArray;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    fn rows(n: usize) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("k", DataType::Utf8, false)]);
        let keys = StringArray::from_iter_values((0..n).map(|i| format!("key {i}")));
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys)]).unwrap()
    }

    #[tokio::test]
    async fn a_segment_moves_to_disk_when_the_pool_is_full() {
        let limit = 200_000;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(limit)))
            .build_arc()
            .unwrap();
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        let host = Host::new(context.state());
        let pool = Arc::clone(&host.runtime().memory_pool);
        for (batches, spilled) in [(2, false), (40, true)] {
            let spooler = Spooler::new(&host, rows(1).schema(), "test rows", 1);
            let mut segment = spooler.segment();
            for _ in 0..batches {
                segment.push(rows(1_000)).unwrap();
                assert!(pool.reserved() <= limit / POOL_SHARE);
            }
            let segment = segment.finish().unwrap();
            assert_eq!(segment.is_spilled(), spilled);
            assert_eq!(pool.reserved() == 0, spilled);
            let spool = Spool::new(rows(1).schema(), vec![segment.clone(), segment]);
            assert_eq!(spool.rows(), 2_000 * batches);
            // Read twice, as a table and as a stream.
            let table = context.read_table(spool.table().unwrap()).unwrap();
            assert_eq!(table.count().await.unwrap() as u64, spool.rows());
            let read: Vec<RecordBatch> = spool.read().try_collect().await.unwrap();
            let expected = rows(1_000);
            assert!(read.iter().all(|batch| *batch == expected));
            drop((spool, read));
            assert_eq!(pool.reserved(), 0);
        }
    }
}
