//! `neighbor_graph`: the rows most like each row, as a table that remembers what it was made from.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float32Type};
use datafusion::catalog::TableProvider;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::prelude::col;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::ann::{self, Metric, Query};
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
use crate::pinned::PinnedSource;
use crate::report::NeighborReport;

const VERB: &str = "neighbor_graph";
/// Rows whose neighbours one task finds.
const ROWS_AT_ONCE: usize = 256;
/// Bytes that the answers of one task take, unless one row takes more.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

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
        let k = check_k(VERB, graph.k)?;
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
    vectors: ann::Vectors,
    /// The last row that was read: of rows with one key the last one counts.
    pending: Option<(String, Vec<f32>)>,
    /// Set when nobody waits for an answer any more.
    stop: AtomicBool,
    memory: MemoryReservation,
    /// Bytes of the pool.
    limit: u64,
}

impl Vectors {
    async fn read(run: &Run, source: &PinnedSource) -> Result<Self> {
        let context = run
            .host
            .private(Joins::SortMerge, row_bytes(source.table()));
        let provider = source.provider()?;
        let width = match provider
            .schema()
            .field_with_name("vector")
            .map(|f| f.data_type().clone())
        {
            Ok(DataType::FixedSizeList(_, width)) => usize::try_from(width).unwrap_or(0),
            _ => 0,
        };
        let rows = usize::try_from(source.table().table.live_rows).unwrap_or(usize::MAX);
        let mut all = Self {
            keys: Vec::new(),
            vectors: ann::Vectors::with_capacity(Metric::Cosine, width.max(1), 0)?,
            pending: None,
            stop: AtomicBool::new(false),
            memory: run.host.memory("vectors of a neighbour graph"),
            limit: run
                .host
                .memory_limit()
                .map_or(u64::MAX, |bytes| bytes as u64),
        };
        all.grow(rows.saturating_mul(width.next_multiple_of(16) * size_of::<f32>()))?;
        all.vectors = ann::Vectors::with_capacity(Metric::Cosine, width.max(1), rows)?;
        let work = async {
            let order = ["_row_id", "_content_hash"].map(|c| col(c).sort(true, false));
            let rows = context.read_table(provider)?.sort(order.to_vec())?;
            rows.select_columns(&["_row_id", "vector"])?
                .execute_stream()
                .await
        };
        let mut rows = work.await.map_err(from_datafusion)?;
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            all.take(&batch)?;
        }
        all.settle();
        Ok(all)
    }

    /// Takes memory for the answers of the tasks in flight, and says how many rows each may have.
    fn reserve_answers(&mut self, k: usize, tasks: usize) -> Result<usize> {
        let key = self.keys.iter().map(String::len).max().unwrap_or(0);
        // Held twice: as hits, and as the columns that they become.
        let row = k.saturating_mul(2 * (size_of::<(f32, u32)>() + key) + size_of::<u64>());
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
        let keys = arrow::compute::cast(batch.column(0), &DataType::Utf8)?;
        let keys = keys.as_string::<i32>();
        let vectors = batch.column(1).as_fixed_size_list();
        self.grow(batch.num_rows() * size_of::<String>() + keys.value_data().len())?;
        for row in 0..keys.len() {
            let key = keys.value(row);
            if self.pending.as_ref().is_some_and(|(last, _)| last != key) {
                self.settle();
            }
            let vector = vectors.value(row);
            let vector = vector.as_primitive::<Float32Type>().values().to_vec();
            self.pending = Some((key.to_owned(), vector));
        }
        Ok(())
    }

    fn settle(&mut self) {
        if let Some((key, vector)) = self.pending.take() {
            self.keys.push(key);
            self.vectors.push(Some(&vector));
        }
    }

    /// The neighbours of some rows, in key order, best first.
    fn neighbors(&self, rows: Range<usize>, k: usize, least: Option<f32>) -> Result<RecordBatch> {
        let all = self.vectors.present();
        // A row without a direction has no neighbours.
        let query = |row: usize| {
            let position = u32::try_from(row).ok().filter(|p| all.contains(*p))?;
            let vector = self.vectors.row(position).to_vec();
            Some((row, Query::new(Metric::Cosine, vector)?))
        };
        let (owners, queries): (Vec<usize>, Vec<Query>) = rows.filter_map(query).unzip();
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Cancelled { operation: VERB });
        }
        // The row itself is among its nearest, unless so many others are equal to it.
        let best = ann::top_k_batch(&self.vectors, &queries, k.saturating_add(1), all);
        let found: Vec<_> = owners.into_iter().zip(best).collect();
        self.batch(&found, k, least)
    }

    fn batch(
        &self,
        found: &[(usize, Vec<(f32, u32)>)],
        k: usize,
        least: Option<f32>,
    ) -> Result<RecordBatch> {
        let (mut ids, mut neighbors) = (Vec::new(), Vec::new());
        let (mut similarities, mut ranks) = (Vec::new(), Vec::new());
        for (row, best) in found {
            let others = best.iter().filter(|(_, other)| *other as usize != *row);
            let others = others.map(|(distance, other)| (1.0 - distance, *other as usize));
            let near = others.filter(|(s, _)| least.is_none_or(|least| *s >= least));
            for (rank, (similarity, other)) in (1i64..).zip(near.take(k)) {
                ids.push(self.keys[*row].as_str());
                neighbors.push(self.keys[other].as_str());
                similarities.push(similarity);
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
