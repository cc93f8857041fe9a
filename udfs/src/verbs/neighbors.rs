//! `neighbor_graph`: the rows most like each row, as a table that remembers what it was made from.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Float32Type;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::prelude::col;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::ident::Name;
use stratagraph::publish::definition::NeighborDefinition;
use stratagraph::publish::{Made, NewTable, Requester, StagedDelta, create};
use stratagraph::store::Stager;
use stratagraph::table::manifest::{Fragment, Layout};
use stratagraph::table::schema::{arrow_schema, neighbors_schema};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction, from_datafusion};
use tracing::Instrument;

use super::finished;
use super::generate::check_free;
use super::search::check_k;
use super::vectors::row_bytes;
use crate::engine::{Engine, Run, check_embeddings};
use crate::function::{ReportFunction, answer};
use crate::host::Joins;
use crate::kernel::{Best, Hit, Query};
use crate::pinned::PinnedSource;
use crate::report::NeighborReport;

const VERB: &str = "neighbor_graph";
/// Rows whose neighbours one task finds.
const ROWS_AT_ONCE: usize = 64;
/// Bytes that the answers of one task take, unless one row takes more.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Components that all of these rows are compared with before the next ones: they stay in cache.
const TILE_COMPONENTS: usize = 64 * 1024;

/// A neighbour graph to make.
#[derive(Debug, Clone, PartialEq)]
pub struct NeighborGraph {
    /// The table whose rows are compared.
    pub table: String,
    /// Neighbours of a row, at most; the row itself is none.
    pub k: u64,
    /// The least similarity.
    pub min_similarity: Option<f32>,
    /// Name of the new table; `{table}__neighbors` without one.
    pub name: Option<String>,
}

/// Runs the verb: candidates, vectors and provenance come from one pinned version.
pub(crate) async fn neighbor_graph(run: &Run, graph: NeighborGraph) -> Result<NeighborReport> {
    let span = tracing::info_span!("neighbor_graph", table = %graph.table, k = graph.k);
    let work = async {
        run.host.check_writes(VERB)?;
        let k = check_k(graph.k)?;
        let least = graph.min_similarity;
        if least.is_some_and(|least| !(-1.0..=1.0).contains(&least)) {
            return Err(Error::InvalidArgument {
                function: VERB.to_owned(),
                argument: "min_similarity".to_owned(),
                reason: "expected a number from -1 to 1".to_owned(),
            });
        }
        let name = match &graph.name {
            Some(name) => Name::parse(name)?,
            None => Name::parse(&graph.table)?.with_suffix("__neighbors")?,
        };
        check_free(run, &name).await?;
        let source = PinnedSource::of(&run.fresh().await?, &Name::parse(&graph.table)?).await?;
        check_embeddings(source.table())?;
        let mut vectors = Vectors::read(run, &source).await?;
        let k = k.min(vectors.keys.len().saturating_sub(1)).max(1);
        let at_once = vectors.reserve_answers(k, run.host.parallelism())?;
        let vectors = Arc::new(vectors);
        let mut stage = run.begin().await?;
        let wanted = Wanted { k, least, at_once };
        let fragment = write(run, &vectors, wanted, &mut stage).await?;
        let input = source.input_anchor().clone();
        let new = NewTable {
            name: name.clone(),
            made: Made::Neighbors(NeighborDefinition::new(input, graph.k, least)),
            schema: neighbors_schema()?,
            requester: Requester::default(),
        };
        let delta = StagedDelta {
            fragment,
            ..StagedDelta::default()
        };
        let published = create(run.catalog(), stage, new, delta).await?;
        run.learn(&name).await;
        Ok(finished(NeighborReport {
            table: name.to_string(),
            version: published.version,
            rows: published.live_rows,
            identity: published.identity.to_string(),
        }))
    };
    work.instrument(span).await
}

/// How neighbours are looked for.
#[derive(Clone, Copy)]
struct Wanted {
    k: usize,
    least: Option<f32>,
    /// Rows of one task.
    at_once: usize,
}

/// All live vectors in key order, in memory that is accounted: a pool that cannot hold them refuses.
struct Vectors {
    keys: Vec<String>,
    components: Vec<f32>,
    width: usize,
    /// Set when nobody waits for an answer any more.
    stop: AtomicBool,
    memory: MemoryReservation,
    /// Bytes of the pool.
    limit: u64,
}

impl Vectors {
    async fn read(run: &Run, source: &PinnedSource) -> Result<Self> {
        let memory = run.host.memory("vectors of a neighbour graph");
        let context = run
            .host
            .private(Joins::SortMerge, row_bytes(source.table()));
        let provider = source.provider()?;
        let work = async {
            let order = ["_row_id", "_content_hash"].map(|c| col(c).sort(true, false));
            let rows = context.read_table(provider)?.sort(order.to_vec())?;
            rows.select_columns(&["_row_id", "vector"])?
                .execute_stream()
                .await
        };
        let mut rows = work.await.map_err(from_datafusion)?;
        let mut all = Self {
            keys: Vec::new(),
            components: Vec::new(),
            width: 0,
            stop: AtomicBool::new(false),
            memory,
            limit: run
                .host
                .memory_limit()
                .map_or(u64::MAX, |bytes| bytes as u64),
        };
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            all.take(&batch)?;
        }
        Ok(all)
    }

    /// Takes memory for the answers of the tasks in flight, and says how many rows each may have.
    fn reserve_answers(&mut self, k: usize, tasks: usize) -> Result<usize> {
        let key = self.keys.iter().map(String::len).max().unwrap_or(0);
        // Held twice: as hits, and as the columns that they become.
        let row = k.saturating_mul(2 * (size_of::<Hit>() + key) + size_of::<u64>());
        let rows = (ANSWER_BYTES / row.max(1)).clamp(1, ROWS_AT_ONCE);
        self.grow(row.saturating_mul(rows).saturating_mul(tasks + 1))?;
        Ok(rows)
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        if self.memory.try_grow(bytes).is_ok() {
            return Ok(());
        }
        Err(Error::ResourceLimitExceeded {
            what: "bytes of vectors that a neighbour graph holds in the memory pool",
            value: self.memory.size().saturating_add(bytes) as u64,
            limit: self.limit,
        })
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8)?;
        let keys = keys.as_string::<i32>();
        let vectors = batch.column(1).as_fixed_size_list();
        self.width = usize::try_from(vectors.value_length()).unwrap_or(0);
        let bytes = batch.num_rows() * (self.width * size_of::<f32>() + size_of::<String>())
            + keys.value_data().len();
        self.grow(bytes)?;
        self.components.reserve_exact(batch.num_rows() * self.width);
        for row in 0..keys.len() {
            // Of rows with one key the last one counts.
            if self.keys.last().is_some_and(|last| last == keys.value(row)) {
                self.components.truncate(self.components.len() - self.width);
                self.keys.pop();
            }
            self.keys.push(keys.value(row).to_owned());
            let vector = vectors.value(row);
            self.components
                .extend_from_slice(vector.as_primitive::<Float32Type>().values());
        }
        Ok(())
    }

    fn vector(&self, row: usize) -> &[f32] {
        &self.components[row * self.width..(row + 1) * self.width]
    }

    /// The neighbours of some rows, in key order, best first.
    fn neighbors(&self, rows: Range<usize>, k: usize, least: Option<f32>) -> Result<RecordBatch> {
        let mut best: Vec<(Option<Query>, Best)> = rows
            .clone()
            .map(|row| (Query::new(self.vector(row).to_vec()), Best::new(k)))
            .collect();
        let tile = (TILE_COMPONENTS / self.width.max(1)).max(1);
        let mut similarities = Vec::with_capacity(tile);
        for start in (0..self.keys.len()).step_by(tile) {
            let end = (start + tile).min(self.keys.len());
            let others = &self.components[start * self.width..end * self.width];
            for (row, (query, best)) in rows.clone().zip(&mut best) {
                let Some(query) = query else { continue };
                query.similarities(others, &mut similarities);
                for (other, similarity) in (start..end).zip(&similarities) {
                    if other != row && least.is_none_or(|least| *similarity >= least) {
                        best.offer(&self.keys[other], *similarity);
                    }
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Cancelled { operation: VERB });
            }
        }
        self.batch(rows, best.into_iter().map(|(_, best)| best))
    }

    fn batch(&self, rows: Range<usize>, best: impl Iterator<Item = Best>) -> Result<RecordBatch> {
        let (mut ids, mut neighbors) = (Vec::new(), Vec::new());
        let (mut similarities, mut ranks) = (Vec::new(), Vec::new());
        for (row, best) in rows.zip(best) {
            for (rank, hit) in (1i64..).zip(best.into_sorted()) {
                ids.push(self.keys[row].as_str());
                neighbors.push(hit.key);
                similarities.push(hit.similarity);
                ranks.push(rank);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(ids)),
            Arc::new(StringArray::from_iter_values(neighbors)),
            Arc::new(Float32Array::from(similarities)),
            Arc::new(Int64Array::from(ranks)),
        ];
        Ok(RecordBatch::try_new(
            arrow_schema(&neighbors_schema()?)?,
            columns,
        )?)
    }
}

/// Stops the tasks that compute when the caller goes away: they run on threads that cannot be aborted.
struct StopOnDrop(Arc<Vectors>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

async fn write(
    run: &Run,
    vectors: &Arc<Vectors>,
    wanted: Wanted,
    stage: &mut Stager,
) -> Result<Option<Fragment>> {
    let Wanted { k, least, at_once } = wanted;
    let (store, env) = (run.catalog().store(), run.host.env(run.catalog().env()));
    let key = stage.reserve("parquet")?;
    let schema = neighbors_schema()?;
    let mut writer = FragmentWriter::new(Arc::clone(store), &env, Layout::Neighbors, &schema, key)?;
    let _stop = StopOnDrop(Arc::clone(vectors));
    let total = vectors.keys.len();
    let parts = (0..total).step_by(at_once);
    let tasks = parts.map(|start| {
        let vectors = Arc::clone(vectors);
        let rows = start..(start + at_once).min(total);
        async move {
            let task = SpawnedTask::spawn_blocking(move || vectors.neighbors(rows, k, least));
            task.join().await.map_err(|e| Error::TaskFailed {
                operation: VERB,
                source: Box::new(e),
            })?
        }
    });
    let mut found = stream::iter(tasks).buffered(run.host.parallelism());
    let mut done = 0;
    while let Some(rows) = found.try_next().await? {
        writer.write(&rows).await?;
        done = (done + at_once).min(total);
        env.progress.report("neighbours", done as u64, total as u64);
    }
    writer.finish(stage).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("k", ArgType::Int),
        ArgSpec::optional("min_similarity", ArgType::Float),
        ArgSpec::optional("name", ArgType::Name),
    ];
    ReportFunction::of::<NeighborReport>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let graph = NeighborGraph {
                table: call.args.text("table")?.to_owned(),
                k: call.args.opt_unsigned("k")?.unwrap_or(0),
                min_similarity: call
                    .args
                    .opt_float("min_similarity")
                    .map(|least| least as f32),
                name: call.args.opt_text("name").map(str::to_owned),
            };
            answer(&[neighbor_graph(&call.run, graph).await?])
        })
    })
}
