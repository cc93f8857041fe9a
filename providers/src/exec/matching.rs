//! The execution of a pattern: reads the nodes of its variables, folds, and enumerates what is left.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
    SchedulingType,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::graph::topology::{MatchCursor, Matched, Matching};

use super::expand_metrics::ExpandMetrics;
use super::match_node::MatchSpec;
use super::memory::PoolBudget;
use crate::error::{ResultExt, not_encoded};

type Ready = Shared<BoxFuture<'static, Result<Arc<Matching>, Arc<DataFusionError>>>>;

/// The kept variables of a pattern; see [`super::MatchNode`]. Its partitions share out what is
/// enumerated; where all is folded there is one. Its memory is a consumer of the task's pool.
pub struct MatchExec {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    of: Vec<usize>,
    spec: MatchSpec,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    ready: Mutex<Option<Ready>>,
    metrics: ExecutionPlanMetricsSet,
}

impl MatchExec {
    /// Matches a pattern in up to `partitions` partitions; `of` are the variables of the inputs.
    pub fn new(
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        of: Vec<usize>,
        spec: MatchSpec,
        partitions: usize,
    ) -> Self {
        let schema: SchemaRef = Arc::new(Schema::new(spec.fields()));
        let partitions = if spec.is_unique() {
            1
        } else {
            partitions.max(1)
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            inputs,
            of,
            spec,
            schema,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            ready: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn fresh(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        Self {
            inputs,
            of: self.of.clone(),
            spec: self.spec.clone(),
            schema: Arc::clone(&self.schema),
            properties: Arc::clone(&self.properties),
            ready: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The work before the first row, once for all partitions: whichever of them is polled does it.
    fn ready(&self, task: &Arc<TaskContext>) -> Result<Ready> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = ready.as_ref() {
            return Ok(ready.clone());
        }
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            inputs.push(input.execute(0, Arc::clone(task))?);
        }
        let (of, spec) = (self.of.clone(), self.spec.clone());
        let (task, metrics) = (Arc::clone(task), self.metrics.clone());
        let work = async move {
            let prepared = prepare(inputs, &of, &spec, &task, &metrics).await;
            prepared.map(Arc::new).map_err(Arc::new)
        };
        let shared = work.boxed().shared();
        *ready = Some(shared.clone());
        Ok(shared)
    }
}

/// Reads the nodes of the variables, all at once, and folds.
async fn prepare(
    inputs: Vec<SendableRecordBatchStream>,
    of: &[usize],
    spec: &MatchSpec,
    task: &TaskContext,
    metrics: &ExecutionPlanMetricsSet,
) -> Result<Matching> {
    let time = MetricBuilder::new(metrics).subset_time("fold_time", 0);
    let memory = MemoryConsumer::new("stratagraph Match nodes").register(task.memory_pool());
    let mut nodes = vec![None; spec.variables.len()];
    let reading = inputs.into_iter().map(|mut input| async move {
        let mut rids: Vec<u64> = Vec::new();
        while let Some(batch) = input.try_next().await? {
            let column = batch.columns().first();
            let Some(column) = column.and_then(|c| c.as_primitive_opt::<UInt64Type>()) else {
                return internal_err!("the nodes of a pattern are a UInt64 column");
            };
            rids.extend(column.iter().flatten());
        }
        Ok(rids)
    });
    for (var, rids) in of.iter().zip(futures::future::try_join_all(reading).await?) {
        memory.try_grow(size_of_val(rids.as_slice()))?;
        if let Some(place) = nodes.get_mut(*var) {
            *place = Some(rids);
        }
    }
    let timer = time.timer();
    let budget = PoolBudget::of(task.memory_pool(), "Match");
    for (var, table, id) in &spec.keys {
        let found = table.rid(id, &budget).await.df()?;
        if let Some(place) = nodes.get_mut(*var) {
            *place = Some(found.into_iter().collect());
        }
    }
    let matching = Matching::prepare(&spec.pattern(Some(&budget)), &nodes)
        .await
        .df()?;
    timer.done();
    ExpandMetrics::new(metrics, 0).show(matching.stats().clone());
    Ok(matching)
}

impl fmt::Debug for MatchExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatchExec({})", self.spec.show())
    }
}

impl DisplayAs for MatchExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.spec.show();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "MatchExec: {shown}")
            }
            DisplayFormatType::TreeRender => writeln!(f, "{shown}"),
        }
    }
}

impl ExecutionPlan for MatchExec {
    fn name(&self) -> &str {
        "MatchExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.inputs.len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.len() == self.inputs.len() {
            true => Ok(Arc::new(self.fresh(children))),
            false => internal_err!("a pattern has {} inputs", self.inputs.len()),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.fresh(self.inputs.clone())))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Unknown
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded("a pattern"))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let count = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let state = Enumerating {
            ready: self.ready(&task)?,
            part: (partition, self.properties.partitioning.partition_count()),
            cursor: None,
            top: self.spec.top,
            batch_rows: task.session_config().batch_size(),
            schema: Arc::clone(&self.schema),
            counts: (count("bound_nodes"), count("visited_edges")),
            task,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = stream::try_unfold(state, |mut state| async move {
            let batch = state.next().await?;
            Ok(batch.map(|batch| (batch, state)))
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            self.schema(),
            rows.boxed(),
        ))))
    }
}

/// A partition at work.
struct Enumerating {
    ready: Ready,
    /// Which part of how many it reads.
    part: (usize, usize),
    cursor: Option<MatchCursor>,
    top: Option<usize>,
    batch_rows: usize,
    schema: SchemaRef,
    counts: (Count, Count),
    task: Arc<TaskContext>,
    metrics: BaselineMetrics,
}

impl Enumerating {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => {
                let ready = self.ready.clone().await;
                let ready = ready.map_err(DataFusionError::Shared)?;
                MatchCursor::new(&ready, self.part.0, self.part.1)
            }
        };
        let before = cursor.stats();
        let timer = self.metrics.elapsed_compute().timer();
        let matched = match self.top.take() {
            Some(top) => self.best(&mut cursor, top).await?,
            None => cursor.next(self.batch_rows).await.df()?,
        };
        timer.done();
        let now = cursor.stats();
        self.counts.0.add((now.frontier - before.frontier) as usize);
        self.counts.1.add((now.edges - before.edges) as usize);
        self.cursor = Some(cursor);
        let Some(matched) = matched else {
            self.metrics.done();
            return Ok(None);
        };
        let batch = self.batch(matched)?;
        self.metrics.record_output(batch.num_rows());
        Ok(Some(batch))
    }

    fn batch(&self, matched: Matched) -> Result<RecordBatch> {
        let columns = matched.columns.into_iter();
        let mut columns: Vec<ArrayRef> = columns
            .map(|rids| Arc::new(UInt64Array::from(rids)) as ArrayRef)
            .collect();
        if columns.len() < self.schema.fields().len() {
            columns.push(Arc::new(Int64Array::from(matched.counts)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(matched.rows));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }

    /// All rows that have at least as many assignments as the last of the `top` first.
    async fn best(&self, cursor: &mut MatchCursor, top: usize) -> Result<Option<Matched>> {
        let pool = self.task.memory_pool();
        let memory = MemoryConsumer::new("stratagraph Match top").register(pool);
        let mut rows: Vec<(i64, u64)> = Vec::new();
        while let Some(part) = cursor.next(self.batch_rows).await.df()? {
            memory.try_grow(part.rows * size_of::<(i64, u64)>())?;
            let rids = part.columns.first().into_iter().flatten();
            rows.extend(part.counts.iter().copied().zip(rids.copied()));
        }
        if top == 0 || rows.is_empty() {
            return Ok(None);
        }
        let place = top.min(rows.len()) - 1;
        let (_, last, _) = rows.select_nth_unstable_by(place, |a, b| b.cmp(a));
        let least = last.0;
        rows.retain(|(count, _)| *count >= least);
        let (counts, rids) = rows.into_iter().unzip();
        let columns: Vec<Vec<u64>> = vec![rids];
        let counts: Vec<i64> = counts;
        Ok(Some(Matched {
            rows: counts.len(),
            columns,
            counts,
        }))
    }
}
