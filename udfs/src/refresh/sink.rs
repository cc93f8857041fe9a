//! The end of the pipeline: rows with a vector go into the fragment, the others are remembered.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use stratagraph::Result;
use stratagraph::embed::RejectReason;
use stratagraph::store::Stager;
use stratagraph::table::ledger::{LedgerChange, Reject};
use stratagraph::table::manifest::{Fragment, Layout};
use stratagraph::table::schema::arrow_schema;
use stratagraph::table::writer::FragmentWriter;
use stratagraph_providers::from_datafusion;

use super::earlier::Hash;
use super::infer::{Answer, Pipeline};

/// A row that got no vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) key: String,
    pub(crate) hash: Hash,
    /// What the fold of the source has of it: the content hash, or the mark with included columns.
    pub(crate) mark: Hash,
    pub(crate) reason: RejectReason,
    /// Whether another row of the key has a vector.
    pub(crate) shadowed: bool,
}

/// What became of the rows.
#[derive(Debug)]
pub(crate) struct Inferred {
    /// The rows with vectors, staged.
    pub(crate) fragment: Option<Fragment>,
    /// The others, in key order.
    pub(crate) refusals: Vec<Refusal>,
    /// Whether each key came once.
    pub(crate) unique: bool,
    /// Rows given to the model.
    pub(crate) inferred: u64,
    /// Rows of which the model read only the beginning.
    pub(crate) truncated: u64,
    /// Holds the memory of the refusals.
    _memory: MemoryReservation,
}

impl Inferred {
    /// Whether a row was refused for a passing reason, so that the next refresh tries it again.
    pub(crate) fn has_passing(&self) -> bool {
        self.refusals.iter().any(|r| !r.reason.is_lasting())
    }

    /// What is refused for good, by key and each key once. A key that also has a live row is no
    /// reject: it is in the table.
    pub(crate) fn rejects(&self) -> Vec<LedgerChange> {
        let lasting = |r: &&Refusal| r.reason.is_lasting() && !r.shadowed;
        let changes = self.refusals.iter().filter(lasting).map(|r| LedgerChange {
            key: r.key.clone(),
            reject: Some(Reject {
                hash: r.hash,
                reason: r.reason.as_str().to_owned(),
            }),
        });
        let mut changes: Vec<_> = changes.collect();
        changes.dedup_by(|later, first| later.key == first.key);
        changes
    }
}

/// The rows of one key, which stand together.
#[derive(Debug, Default)]
struct Group {
    key: Option<String>,
    /// Whether one of them has a vector.
    live: bool,
    /// Where their refusals start.
    from: usize,
}

/// Takes answers in key order.
pub(super) struct Sink<'a> {
    pipeline: &'a Pipeline,
    schema: SchemaRef,
    writer: Option<FragmentWriter>,
    refusals: Vec<Refusal>,
    memory: MemoryReservation,
    group: Group,
    unique: bool,
    inferred: u64,
    truncated: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn new(pipeline: &'a Pipeline) -> Result<Self> {
        Ok(Self {
            schema: arrow_schema(&pipeline.schema)?,
            memory: pipeline.host.memory("refused rows"),
            pipeline,
            writer: None,
            refusals: Vec::new(),
            group: Group::default(),
            unique: true,
            inferred: 0,
            truncated: 0,
        })
    }

    pub(super) async fn take(&mut self, answer: Answer, stage: &mut Stager) -> Result<()> {
        self.inferred += answer.inferred;
        self.truncated += answer.embedded.truncated;
        self.note(&answer)?;
        if answer.embedded.errors.len() == answer.keys.len() {
            return Ok(());
        }
        let batch = self.batch(answer)?;
        if self.writer.is_none() {
            self.writer = Some(self.open(stage)?);
        }
        match &mut self.writer {
            Some(writer) => writer.write(&batch).await,
            None => Ok(()),
        }
    }

    /// Follows the keys: refusals, and rows that share a key.
    fn note(&mut self, answer: &Answer) -> Result<()> {
        let keys = &answer.keys;
        let mut refused = answer.embedded.errors.iter().peekable();
        for row in 0..keys.len() {
            let key = keys.value(row);
            let same = match row {
                0 => self.group.key.as_deref() == Some(key),
                _ => keys.value(row - 1) == key,
            };
            if same {
                self.unique = false;
            } else {
                (self.group.live, self.group.from) = (false, self.refusals.len());
            }
            match refused.next_if(|(refused, _)| *refused == row) {
                Some((_, reason)) => self.refuse(answer, row, *reason)?,
                None if !self.group.live => {
                    self.group.live = true;
                    let earlier = &mut self.refusals[self.group.from..];
                    earlier.iter_mut().for_each(|r| r.shadowed = true);
                }
                None => {}
            }
        }
        if let Some(last) = keys.len().checked_sub(1) {
            self.group.key = Some(keys.value(last).to_owned());
        }
        Ok(())
    }

    fn refuse(&mut self, answer: &Answer, row: usize, reason: RejectReason) -> Result<()> {
        let key = answer.keys.value(row).to_owned();
        let bytes = key.len() + size_of::<Refusal>();
        self.memory.try_grow(bytes).map_err(from_datafusion)?;
        let hash = |hashes: &FixedSizeBinaryArray| hashes.value(row).try_into().unwrap_or_default();
        self.refusals.push(Refusal {
            key,
            hash: hash(&answer.hashes),
            mark: hash(answer.marks.as_ref().unwrap_or(&answer.hashes)),
            reason,
            shadowed: self.group.live,
        });
        Ok(())
    }

    fn open(&self, stage: &mut Stager) -> Result<FragmentWriter> {
        let (store, key) = (Arc::clone(&self.pipeline.store), stage.reserve("parquet")?);
        let (env, schema) = (&self.pipeline.env, &self.pipeline.schema);
        FragmentWriter::new(store, env, Layout::Embedding, schema, key)
    }

    fn batch(&self, answer: Answer) -> Result<RecordBatch> {
        let vectors: ArrayRef = Arc::new(answer.embedded.vectors);
        let live = is_not_null(&vectors)?;
        let keep = |array: &dyn Array| filter(array, &live);
        let vectors = keep(&vectors)?;
        let constant = |text: &str| -> ArrayRef {
            let texts = std::iter::repeat_n(text, vectors.len());
            Arc::new(StringArray::from_iter_values(texts))
        };
        let mut columns = vec![
            keep(&answer.keys)?,
            constant(&self.pipeline.source_id),
            constant(&self.pipeline.model_id),
            Arc::clone(&vectors),
            keep(&answer.hashes)?,
        ];
        for column in &answer.included {
            columns.push(keep(column)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    pub(super) async fn finish(self, stage: &mut Stager) -> Result<Inferred> {
        let fragment = match self.writer {
            Some(writer) => writer.finish(stage).await?,
            None => None,
        };
        Ok(Inferred {
            fragment,
            refusals: self.refusals,
            unique: self.unique,
            inferred: self.inferred,
            truncated: self.truncated,
            _memory: self.memory,
        })
    }
}
