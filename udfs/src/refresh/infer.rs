//! From sorted rows to a fragment: texts through the model in bounded batches, vectors in key order.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, StringArray, UInt64Array,
};
use arrow::compute::take;
use arrow::datatypes::Int8Type;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use stratagraph::embed::{Embedded, EmbeddedBuilder, Embedder, Role};
use stratagraph::env::Env;
use stratagraph::store::{Stager, Store};
use stratagraph::table::manifest::SchemaVersion;
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use super::diff::CARRIED;
use super::earlier::{EarlierReader, Known};
use super::included::column;
use super::scan::pieces;
use super::sink::{Inferred, Sink};
use crate::embedding;
use crate::host::Host;

/// Vector components that one batch of the pipeline holds.
const CHUNK_COMPONENTS: usize = 2 * 1024 * 1024;
/// Rows of a batch, at most.
const CHUNK_ROWS: usize = 4_096;
/// Rows below which a batch is not made smaller to fit into memory.
const LEAST_ROWS: usize = 16;
/// Share of a bounded pool that the batches in flight hold together.
const POOL_SHARE: usize = 16;
/// Batches in flight of a model that computes elsewhere.
const REMOTE_BATCHES: usize = 4;
/// Batches in flight of a model that computes here, at most.
const LOCAL_BATCHES: usize = 16;

/// What the rows of one table have in common.
pub(crate) struct Pipeline {
    pub(crate) host: Host,
    pub(crate) env: Env,
    pub(crate) store: Arc<Store>,
    pub(crate) model: Arc<dyn Embedder>,
    /// The columns of the table.
    pub(crate) schema: SchemaVersion,
    /// `_source_id` of every row.
    pub(crate) source_id: String,
    /// `_model_id` of every row.
    pub(crate) model_id: String,
    /// Number of included columns.
    pub(crate) included: usize,
}

/// Vectors that need no model.
pub(crate) struct Reused {
    /// Of earlier attempts.
    pub(crate) earlier: EarlierReader,
    /// Of rows that keep the vector of their live row.
    pub(crate) carried: EarlierReader,
}

/// Some rows on their way.
struct Chunk {
    keys: StringArray,
    hashes: FixedSizeBinaryArray,
    texts: StringArray,
    marks: Option<FixedSizeBinaryArray>,
    included: Vec<ArrayRef>,
    /// Rows that need no model, in order.
    known: Vec<(usize, Known)>,
}

/// Rows with their vectors or refusals.
pub(super) struct Answer {
    pub(super) keys: StringArray,
    pub(super) hashes: FixedSizeBinaryArray,
    /// Marks, where columns are included.
    pub(super) marks: Option<FixedSizeBinaryArray>,
    /// The included columns.
    pub(super) included: Vec<ArrayRef>,
    pub(super) embedded: Embedded,
    /// Rows given to the model.
    pub(super) inferred: u64,
}

impl Pipeline {
    /// Embeds rows of [`super::scan::source_schema`], with or without a class, that come sorted by key,
    /// and stages their fragment. `total` rows will come; what `reused` holds is not given to the model.
    pub(crate) async fn run(
        &self,
        rows: BoxStream<'static, Result<RecordBatch>>,
        total: u64,
        reused: Reused,
        stage: &mut Stager,
    ) -> Result<Inferred> {
        let flights = match self.model.sync() {
            Some(_) => self.host.parallelism().min(LOCAL_BATCHES),
            None => REMOTE_BATCHES,
        };
        let buffers = self.host.memory("vectors");
        let mut chunk_rows = self.reserve(&buffers, flights)?;
        if self.model.sync().is_some() {
            // A small delta is shared out between the threads too; a server takes it in one request.
            let share = usize::try_from(total.div_ceil(flights as u64)).unwrap_or(usize::MAX);
            chunk_rows = chunk_rows.min(share.max(LEAST_ROWS));
        }
        let chunks = chunks(rows, chunk_rows, self.included, reused);
        let mut answers = answers(Arc::clone(&self.model), chunks, flights);
        let mut sink = Sink::new(self)?;
        self.env.progress.report("embedding", 0, total);
        let mut done = 0;
        while let Some(answer) = answers.try_next().await? {
            done += answer.keys.len() as u64;
            sink.take(answer, stage).await?;
            self.env.progress.report("embedding", done, total);
        }
        sink.finish(stage).await
    }

    /// Takes memory for the batches in flight, each with its texts, its answer and the written copy.
    /// With little memory the batches are smaller.
    fn reserve(&self, memory: &MemoryReservation, flights: usize) -> Result<usize> {
        let dimensions = self.model.dimensions().max(1);
        let most = self.model.limits().rows.min(CHUNK_ROWS);
        let mut rows = most.min(CHUNK_COMPONENTS / dimensions).max(1);
        let share = self
            .host
            .memory_limit()
            .map_or(usize::MAX, |limit| limit / POOL_SHARE);
        loop {
            let bytes = (flights + 1) * rows * dimensions * size_of::<f32>() * 2;
            let small = rows <= LEAST_ROWS;
            match memory.try_grow(bytes) {
                Ok(()) if bytes <= share || small => return Ok(rows),
                Err(error) if small => return Err(from_datafusion(error)),
                Ok(()) => memory.shrink(bytes),
                Err(_) => {}
            }
            rows = (rows / 2).max(1);
        }
    }
}

/// Rows in batches of at most `chunk_rows`, with what is known of them.
fn chunks(
    rows: BoxStream<'static, Result<RecordBatch>>,
    chunk_rows: usize,
    included: usize,
    reused: Reused,
) -> BoxStream<'static, Result<Chunk>> {
    let small = rows
        .map_ok(move |batch| futures::stream::iter(pieces(&batch, chunk_rows).map(Ok::<_, Error>)))
        .try_flatten()
        .boxed();
    let state = (small, reused);
    futures::stream::try_unfold(state, move |(mut small, mut reused)| async move {
        let Some(batch) = small.try_next().await? else {
            return Ok::<_, Error>(None);
        };
        let chunk = look_up(&batch, included, &mut reused).await?;
        Ok(Some((chunk, (small, reused))))
    })
    .boxed()
}

/// The model's answers in the order of the rows, `flights` of them under way at a time.
fn answers(
    model: Arc<dyn Embedder>,
    chunks: BoxStream<'static, Result<Chunk>>,
    flights: usize,
) -> BoxStream<'static, Result<Answer>> {
    chunks
        .map_ok(move |chunk| embed(Arc::clone(&model), chunk))
        .try_buffered(flights)
        .boxed()
}

async fn look_up(batch: &RecordBatch, included: usize, reused: &mut Reused) -> Result<Chunk> {
    let columns = batch.columns();
    // With included columns the mark stands before them.
    let own = 3 + usize::from(included > 0);
    let marks = match included {
        0 => None,
        _ => Some(column(columns, 3)?.as_fixed_size_binary().clone()),
    };
    let class = columns
        .get(own + included)
        .map(|c| c.as_primitive::<Int8Type>());
    let chunk = Chunk {
        marks,
        included: (own..own + included)
            .map(|at| column(columns, at).cloned())
            .collect::<Result<_>>()?,
        keys: batch.column(0).as_string::<i32>().clone(),
        hashes: batch.column(1).as_fixed_size_binary().clone(),
        texts: batch.column(2).as_string::<i32>().clone(),
        known: Vec::new(),
    };
    if reused.earlier.is_empty() && reused.carried.is_empty() {
        return Ok(chunk);
    }
    let mut known = Vec::new();
    for row in 0..chunk.keys.len() {
        let (key, hash) = (chunk.keys.value(row), chunk.hashes.value(row));
        let mut found = None;
        if class.is_some_and(|class| class.value(row) == CARRIED) {
            found = reused.carried.find(key, hash).await?;
        }
        if found.is_none() {
            found = reused.earlier.find(key, hash).await?;
        }
        known.extend(found.map(|k| (row, k)));
    }
    Ok(Chunk { known, ..chunk })
}

/// Gives the rows that are not known to the model.
async fn embed(model: Arc<dyn Embedder>, chunk: Chunk) -> Result<Answer> {
    let Chunk {
        keys,
        hashes,
        texts,
        marks,
        included,
        known,
    } = chunk;
    let rows = texts.len();
    let missing: Vec<usize> = {
        let mut known = known.iter().map(|(row, _)| *row).peekable();
        (0..rows)
            .filter(|row| known.next_if_eq(row).is_none())
            .collect()
    };
    let inferred = missing.len() as u64;
    let fresh = if missing.is_empty() {
        EmbeddedBuilder::new(model.spec(), model.dimensions(), 0)?.finish()?
    } else {
        let texts = pick(&texts, &missing)?;
        embedding::embed(Arc::clone(&model), Role::Document, texts).await?
    };
    let embedded = match known.is_empty() {
        true => fresh,
        false => weave(model.as_ref(), rows, &missing, &fresh, known)?,
    };
    Ok(Answer {
        keys,
        hashes,
        marks,
        included,
        embedded,
        inferred,
    })
}

/// The texts of some rows, which ascend.
fn pick(texts: &StringArray, rows: &[usize]) -> Result<StringArray> {
    if rows.len() == texts.len() {
        return Ok(texts.clone());
    }
    let rows = UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    Ok(take(texts, &rows, None)?.as_string::<i32>().clone())
}

/// One answer for all rows out of the model's for the missing ones and what was known.
fn weave(
    model: &dyn Embedder,
    rows: usize,
    missing: &[usize],
    fresh: &Embedded,
    known: Vec<(usize, Known)>,
) -> Result<Embedded> {
    let mut out = EmbeddedBuilder::new(model.spec(), model.dimensions(), rows)?;
    out.truncated(fresh.truncated);
    let mut refused = fresh.errors.iter().peekable();
    let mut known = known.into_iter().peekable();
    let mut missing = missing.iter().enumerate();
    for row in 0..rows {
        match known.next_if(|(known, _)| *known == row) {
            Some((_, Known::Vector(vector))) => out.push(&vector)?,
            Some((_, Known::Refused(reason))) => out.reject(reason),
            None => {
                let slot = missing.next().map_or(0, |(slot, _)| slot);
                match refused.next_if(|(refused, _)| *refused == slot) {
                    Some((_, reason)) => out.reject(*reason),
                    None => {
                        let vector = fresh.vectors.value(slot);
                        out.push(
                            vector
                                .as_primitive::<arrow::datatypes::Float32Type>()
                                .values(),
                        )?;
                    }
                }
            }
        }
    }
    out.finish()
}
