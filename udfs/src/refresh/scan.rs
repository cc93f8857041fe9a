//! The one scan of a source: keys, content hashes and texts, spooled; NULL keys counted.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, execute_stream_partitioned,
};
use futures::TryStreamExt;
use stratagraph::digest::Digest;
use stratagraph::embed::{CONTENT_HASH_BYTES, assemble, content_hash, render};
use stratagraph::publish::definition::Definition;
use stratagraph::table::fold::SourceFolder;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::from_datafusion;

use super::included::Included;
use super::unique::KeyHashes;
use crate::engine::Run;
use crate::host::Host;
use crate::source::Source;
use crate::spool::{Segment, SegmentWriter, Spool, Spooler};

/// Key of a source row.
pub(crate) const KEY: &str = "k";
/// Content hash of a source row.
pub(crate) const HASH: &str = "h";
/// Text of a source row; NULL if there is none.
pub(crate) const TEXT: &str = "t";

/// Mark of a source row, where columns are included.
pub(crate) const MARK: &str = "x";

/// Columns of a spooled source: key, content hash, text; with included columns, the mark and those,
/// as `i0`, `i1`, ...
pub(crate) fn source_schema(included: &Included) -> SchemaRef {
    let hash = DataType::FixedSizeBinary(CONTENT_HASH_BYTES);
    let mut fields = vec![
        Field::new(KEY, DataType::Utf8, false),
        Field::new(HASH, hash.clone(), false),
        Field::new(TEXT, DataType::Utf8, true),
    ];
    if !included.is_empty() {
        fields.push(Field::new(MARK, hash, false));
    }
    let own = included.fields.iter().enumerate();
    fields.extend(own.map(|(i, f)| Field::new(format!("i{i}"), f.data_type().clone(), true)));
    Arc::new(Schema::new(fields))
}

/// A source, read to its end.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// Its rows.
    pub(crate) rows: Spool,
    /// Their fold.
    pub(crate) folder: SourceFolder,
    /// Their keys, until they were asked.
    pub(crate) keys: Option<KeyHashes>,
    /// Digest of the files that they were read from, if they are known to have stood still.
    pub(crate) files: Option<Digest>,
}

/// As [`scan`], with the digest of the source's files.
pub(crate) async fn scan_with_files(
    run: &Run,
    source: &Source,
    definition: &Definition,
    included: &Included,
) -> Result<Scanned> {
    let before = source.files(run).await?;
    let mut scanned = scan(&run.host, source, definition, included).await?;
    if before.is_some() && before == source.files(run).await? {
        scanned.files = before;
    }
    Ok(scanned)
}

/// Reads the source of `definition` once, all partitions at a time.
///
/// # Errors
/// `InvalidKey` with the exact number of NULL keys, after the complete scan.
async fn scan(
    host: &Host,
    source: &Source,
    definition: &Definition,
    included: &Included,
) -> Result<Scanned> {
    let context = host.context();
    let frame = source.rows(&context, definition).await?;
    let task = Arc::new(frame.task_ctx());
    let plan = frame
        .create_physical_plan()
        .await
        .map_err(from_datafusion)?;
    let plan = spread(plan, host.workers()).map_err(from_datafusion)?;
    let partitions = execute_stream_partitioned(plan, task).map_err(from_datafusion)?;
    let schema = source_schema(included);
    let spooler = Spooler::new(host, Arc::clone(&schema), "source rows", partitions.len());
    // Tasks are aborted when they are dropped, so a caller that goes away stops the scan.
    let tasks: Vec<_> = partitions
        .into_iter()
        .map(|rows| {
            let segment = spooler.segment();
            SpawnedTask::spawn(scan_partition(
                host.clone(),
                rows,
                segment,
                included.clone(),
            ))
        })
        .collect();
    let mut whole = Part::new(host);
    let mut segments = Vec::with_capacity(tasks.len());
    for task in tasks {
        let joined = task.join().await.map_err(|e| Error::TaskFailed {
            operation: "source scan",
            source: Box::new(e),
        })?;
        let (part, segment) = joined?;
        whole.nulls += part.nulls;
        whole.folder.merge(&part.folder);
        whole.keys.merge(part.keys);
        segments.push(segment);
    }
    if whole.nulls > 0 {
        return Err(Error::InvalidKey {
            column: definition.key_column.clone(),
            null_count: whole.nulls,
        });
    }
    Ok(Scanned {
        rows: Spool::new(schema, segments),
        folder: whole.folder,
        keys: Some(whole.keys),
        files: None,
    })
}

/// Deals the batches of fewer partitions out: to hash them takes as long as to read them.
fn spread(
    plan: Arc<dyn ExecutionPlan>,
    workers: usize,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    if plan.output_partitioning().partition_count() >= workers {
        return Ok(plan);
    }
    let dealt = RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(workers))?;
    Ok(Arc::new(dealt))
}

#[derive(Debug)]
struct Part {
    nulls: u64,
    folder: SourceFolder,
    keys: KeyHashes,
}

impl Part {
    fn new(host: &Host) -> Self {
        Self {
            nulls: 0,
            folder: SourceFolder::default(),
            keys: KeyHashes::new(host),
        }
    }

    fn note(&mut self, keys: &StringArray, hashes: &FixedSizeBinaryArray) {
        for (key, hash) in keys.iter().zip(hashes.iter()) {
            let hash = hash.and_then(|h| h.try_into().ok());
            if let (Some(key), Some(hash)) = (key, hash) {
                self.folder.add(key, hash);
                self.keys.add(key);
            }
        }
    }
}

async fn scan_partition(
    host: Host,
    mut rows: SendableRecordBatchStream,
    mut segment: SegmentWriter,
    included: Included,
) -> Result<(Part, Segment)> {
    let mut part = Part::new(&host);
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        for batch in pieces(&batch, host.batch_rows(row_bytes)) {
            let keys = key_texts(batch.column(0))?;
            part.nulls += keys.null_count() as u64;
            if part.nulls > 0 {
                // The scan goes on to count; nothing else of it will be used.
                continue;
            }
            segment.push(digest(&mut part, keys, &batch.columns()[1..], &included)?)?;
        }
    }
    Ok((part, segment.finish()?))
}

/// A batch in pieces of at most `rows` rows: sources may give any size, and later steps hold some
/// batches at a time.
pub(crate) fn pieces(
    batch: &RecordBatch,
    rows: usize,
) -> impl Iterator<Item = RecordBatch> + use<> {
    let (batch, rows) = (batch.clone(), rows.max(1));
    (0..batch.num_rows())
        .step_by(rows)
        .map(move |start| batch.slice(start, rows.min(batch.num_rows() - start)))
}

/// The spooled form of rows whose columns are texts and then the included ones.
fn digest(
    part: &mut Part,
    keys: StringArray,
    columns: &[ArrayRef],
    included: &Included,
) -> Result<RecordBatch> {
    let (texts, own) = columns.split_at(columns.len().saturating_sub(included.len()));
    let texts = texts.iter().map(render).collect::<Result<Vec<_>>>()?;
    let hashes = content_hash(&texts)?;
    let mut more: Vec<ArrayRef> = Vec::new();
    if included.is_empty() {
        part.note(&keys, &hashes);
    } else {
        let own = included.stored(own)?;
        let marks = included.marks(&hashes, &own)?;
        part.note(&keys, &marks);
        more.push(Arc::new(marks));
        more.extend(own);
    }
    let texts = assemble(&texts)?;
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(hashes), Arc::new(texts)];
    columns.extend(more);
    Ok(RecordBatch::try_new(source_schema(included), columns)?)
}

/// The keys of a batch as text that owns its bytes.
fn key_texts(column: &ArrayRef) -> Result<StringArray> {
    let rendered = render(column)?;
    let texts = cast(&rendered, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let longest = texts.iter().flatten().map(str::len).max().unwrap_or(0);
    if longest > limits::KEY_BYTES {
        return Err(Error::ResourceLimitExceeded {
            what: "bytes of a key",
            value: longest as u64,
            limit: limits::KEY_BYTES as u64,
        });
    }
    // Spooled memory is counted by buffer: a slice must not share its buffers with others.
    Ok(match rendered.data_type() {
        DataType::Utf8 => StringArray::from_iter(texts.iter()),
        _ => texts.clone(),
    })
}

/// Whether a column can be a key: its values have a text that tells them apart.
pub(crate) fn can_be_key(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => can_be_key(values),
        DataType::RunEndEncoded(_, values) => can_be_key(values.data_type()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean => true,
        other => other.is_numeric() || other.is_temporal(),
    }
}
