//! Gives rows the columns of their nodes: few are looked up, more are joined to a scan.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array};
use arrow::compute::{cast, concat_batches, interleave, take};
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
    SchedulingType,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, stream};

use super::hydrate_node::HydrateSpec;
use super::memory::PoolBudget;
use crate::error::{ResultExt, not_encoded};

/// Rows up to which their nodes are looked up. Each costs the page that it lies in.
const FEW: usize = 512;

type Ready = Shared<BoxFuture<'static, Result<Arc<Rows>, Arc<DataFusionError>>>>;

/// Rows with the columns of their nodes; see [`super::HydrateNode`]. Partitions are those of the scan; of
/// few rows all are in the first one. Its memory is a consumer of the task's pool.
pub struct HydrateExec {
    rows: Arc<dyn ExecutionPlan>,
    scan: Arc<dyn ExecutionPlan>,
    spec: HydrateSpec,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    ready: Mutex<Option<Ready>>,
    metrics: ExecutionPlanMetricsSet,
}

impl HydrateExec {
    /// Hydrates `rows`.
    ///
    /// # Errors
    /// `Plan` for inputs without the row ids that the spec names.
    pub fn try_new(
        rows: Arc<dyn ExecutionPlan>,
        scan: Arc<dyn ExecutionPlan>,
        spec: HydrateSpec,
    ) -> Result<Self> {
        let (below, nodes) = (rows.schema(), scan.schema());
        rid_of(&below, &spec.rid)?;
        let scanned = rid_of(&nodes, &spec.scanned)?;
        let mut fields: Vec<_> = below.fields().iter().cloned().collect();
        let columns = nodes.fields().iter().enumerate();
        fields.extend(
            columns
                .filter(|(at, _)| *at != scanned)
                .map(|(_, f)| Arc::clone(f)),
        );
        let schema = Arc::new(Schema::new_with_metadata(fields, below.metadata().clone()));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(scan.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            rows,
            scan,
            spec,
            schema,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            ready: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn show(&self) -> String {
        let below = self.rows.schema().fields().len();
        let columns = self.schema.fields().iter().skip(below);
        let columns: Vec<&str> = columns.map(|field| field.name().as_str()).collect();
        self.spec.show(&columns)
    }

    /// All rows, once for all partitions: whichever of them is polled reads them.
    fn ready(&self, task: &Arc<TaskContext>) -> Result<Ready> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = ready.as_ref() {
            return Ok(ready.clone());
        }
        let consumer = MemoryConsumer::new("stratagraph Hydrate");
        let reading = Reading {
            input: self.rows.execute(0, Arc::clone(task))?,
            rid: rid_of(&self.rows.schema(), &self.spec.rid)?,
            nodes: self.scan.schema(),
            spec: self.spec.clone(),
            schema: Arc::clone(&self.schema),
            memory: consumer.register(task.memory_pool()),
            task: Arc::clone(task),
            metrics: self.metrics.clone(),
        };
        let work = async move { reading.all().await.map(Arc::new).map_err(Arc::new) };
        let shared = work.boxed().shared();
        *ready = Some(shared.clone());
        Ok(shared)
    }
}

fn rid_of(schema: &Schema, name: &str) -> Result<usize> {
    match schema.index_of(name) {
        Ok(at) => Ok(at),
        Err(_) => plan_err!("{name} is not a column of the input of a hydration"),
    }
}

fn rids(batch: &RecordBatch, column: usize) -> Result<&UInt64Array> {
    let column = batch.columns().get(column);
    match column.and_then(|c| c.as_primitive_opt::<UInt64Type>()) {
        Some(rids) => Ok(rids),
        None => internal_err!("row ids are a UInt64 column"),
    }
}

/// What the rows came to.
enum Rows {
    /// The answer.
    Few(RecordBatch),
    /// Rows, and where in `order` those of a row id are.
    Many {
        rows: RecordBatch,
        order: Vec<u32>,
        places: HashMap<u64, (u32, u32)>,
        _memory: MemoryReservation,
    },
}

/// Reads the rows.
struct Reading {
    input: SendableRecordBatchStream,
    rid: usize,
    /// The schema of the scan.
    nodes: SchemaRef,
    spec: HydrateSpec,
    schema: SchemaRef,
    memory: MemoryReservation,
    task: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
}

impl Reading {
    async fn all(mut self) -> Result<Rows> {
        let mut batches = Vec::new();
        while let Some(batch) = self.input.next().await.transpose()? {
            // Rows, the one batch that they become, and their order.
            let order = batch.num_rows() * 48;
            self.memory
                .try_grow(batch.get_array_memory_size() * 2 + order)?;
            batches.push(batch);
        }
        let rows = concat_batches(&self.input.schema(), &batches)?;
        drop(batches);
        match rows.num_rows() <= FEW {
            true => self.look_up(&rows).await.map(Rows::Few),
            false => self.ordered(rows),
        }
    }

    fn ordered(self, rows: RecordBatch) -> Result<Rows> {
        let keys = rids(&rows, self.rid)?;
        let present = keys.iter().zip(0u32..).filter(|(rid, _)| rid.is_some());
        let mut order: Vec<u32> = present.map(|(_, row)| row).collect();
        order.sort_unstable_by_key(|row| keys.value(*row as usize));
        let mut places = HashMap::new();
        let mut from = 0u32;
        for same in order.chunk_by(|a, b| keys.value(*a as usize) == keys.value(*b as usize)) {
            let until = from + same.len() as u32;
            places.insert(keys.value(same[0] as usize), (from, until));
            from = until;
        }
        Ok(Rows::Many {
            rows,
            order,
            places,
            _memory: self.memory,
        })
    }

    /// The rows with the columns of their nodes, which are read where they lie.
    async fn look_up(self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = |name| MetricBuilder::new(&self.metrics).counter(name, 0);
        let keys = rids(rows, self.rid)?;
        let mut wanted: Vec<u64> = keys.iter().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let scanned = rid_of(&self.nodes, &self.spec.scanned)?;
        let fields = self.nodes.fields().iter().enumerate();
        let fields = fields
            .filter(|(at, _)| *at != scanned)
            .map(|(_, field)| field);
        let columns: Option<Vec<u64>> = fields
            .clone()
            .map(|field| {
                let known = self.spec.columns.iter();
                known
                    .clone()
                    .find(|(name, _)| name == field.name())
                    .map(|(_, id)| *id)
            })
            .collect();
        let Some(columns) = columns else {
            return internal_err!("a column of a node has no property id");
        };
        let budget = PoolBudget::of(self.task.memory_pool(), "Hydrate look-up");
        let (found, bytes) = self
            .spec
            .table
            .rows(&wanted, &columns, &budget)
            .await
            .df()?;
        count("looked_up_nodes").add(wanted.len());
        count("bytes_read").add(usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut places = HashMap::new();
        for (number, batch) in found.iter().enumerate() {
            for (row, rid) in rids(batch, 0)?.values().iter().enumerate() {
                places.insert(*rid, (number, row));
            }
        }
        let there = keys.iter().zip(0u32..);
        let there = there.filter_map(|(rid, row)| Some((row, *places.get(&rid?)?)));
        let (kept, sources): (Vec<u32>, Vec<(usize, usize)>) = there.unzip();
        let mut out = taken(rows, &UInt32Array::from(kept))?;
        for (at, field) in fields.enumerate() {
            let parts: Vec<&dyn arrow::array::Array> = found
                .iter()
                .map(|batch| batch.column(at + 1).as_ref())
                .collect();
            let column = match parts.is_empty() {
                true => arrow::array::new_empty_array(field.data_type()),
                false => interleave(&parts, &sources)?,
            };
            out.push(cast(&column, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(sources.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            out,
            &options,
        )?)
    }
}

fn taken(batch: &RecordBatch, rows: &UInt32Array) -> Result<Vec<ArrayRef>> {
    let columns = batch.columns().iter();
    let columns = columns.map(|column| Ok(take(column, rows, None)?));
    columns.collect()
}

impl fmt::Debug for HydrateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HydrateExec({})", self.show())
    }
}

impl DisplayAs for HydrateExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.show();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "HydrateExec: {shown}")
            }
            DisplayFormatType::TreeRender => writeln!(f, "{shown}"),
        }
    }
}

impl ExecutionPlan for HydrateExec {
    fn name(&self) -> &str {
        "HydrateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows, &self.scan]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![
            Distribution::SinglePartition,
            Distribution::UnspecifiedDistribution,
        ]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(scan), Some(rows)) if children.is_empty() => {
                Ok(Arc::new(Self::try_new(rows, scan, self.spec.clone())?))
            }
            _ => internal_err!("a hydration has two inputs"),
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
        let (rows, scan) = (Arc::clone(&self.rows), Arc::clone(&self.scan));
        Ok(Arc::new(Self::try_new(rows, scan, self.spec.clone())?))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded("a hydration"))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let state = Joining {
            ready: self.ready(&task)?,
            scan: Arc::clone(&self.scan),
            nodes: None,
            scanned: rid_of(&self.scan.schema(), &self.spec.scanned)?,
            partition,
            pairs: (Vec::new(), Vec::new()),
            batch: None,
            at: 0,
            batch_rows: task.session_config().batch_size().max(1),
            schema: Arc::clone(&self.schema),
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
struct Joining {
    ready: Ready,
    scan: Arc<dyn ExecutionPlan>,
    /// The partition's nodes, once they are needed.
    nodes: Option<SendableRecordBatchStream>,
    /// Place of the row id in a scan.
    scanned: usize,
    partition: usize,
    /// Rows, and nodes of the batch, that belong together.
    pairs: (Vec<u32>, Vec<u32>),
    batch: Option<RecordBatch>,
    /// Pairs that are done.
    at: usize,
    batch_rows: usize,
    schema: SchemaRef,
    task: Arc<TaskContext>,
    metrics: BaselineMetrics,
}

impl Joining {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let ready = self.ready.clone().await;
        let ready = ready.map_err(DataFusionError::Shared)?;
        let batch = match ready.as_ref() {
            Rows::Few(answer) => {
                let first = self.partition == 0 && self.at == 0;
                self.at = 1;
                (first && answer.num_rows() > 0).then(|| answer.clone())
            }
            Rows::Many {
                rows,
                order,
                places,
                ..
            } => self.join(rows, order, places).await?,
        };
        match &batch {
            Some(batch) => self.metrics.record_output(batch.num_rows()),
            None => self.metrics.done(),
        }
        Ok(batch)
    }

    async fn join(
        &mut self,
        rows: &RecordBatch,
        order: &[u32],
        places: &HashMap<u64, (u32, u32)>,
    ) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.batch.take() {
                let until = self.pairs.0.len().min(self.at + self.batch_rows);
                let of = |all: &[u32]| UInt32Array::from(all[self.at..until].to_vec());
                let (left, right) = (of(&self.pairs.0), of(&self.pairs.1));
                let mut columns = taken(rows, &left)?;
                let mut nodes = taken(&batch, &right)?;
                nodes.remove(self.scanned);
                columns.extend(nodes);
                if until < self.pairs.0.len() {
                    (self.at, self.batch) = (until, Some(batch));
                }
                let options = RecordBatchOptions::new().with_row_count(Some(left.len()));
                let schema = Arc::clone(&self.schema);
                let out = RecordBatch::try_new_with_options(schema, columns, &options)?;
                return Ok(Some(out));
            }
            let nodes = match &mut self.nodes {
                Some(nodes) => nodes,
                None => {
                    let nodes = self.scan.execute(self.partition, Arc::clone(&self.task))?;
                    self.nodes.insert(nodes)
                }
            };
            let Some(batch) = nodes.next().await.transpose()? else {
                return Ok(None);
            };
            let timer = self.metrics.elapsed_compute().timer();
            let (left, right) = &mut self.pairs;
            left.clear();
            right.clear();
            for (rid, node) in rids(&batch, self.scanned)?.iter().zip(0u32..) {
                if let Some((from, until)) = rid.and_then(|rid| places.get(&rid)) {
                    let mine = &order[*from as usize..*until as usize];
                    left.extend_from_slice(mine);
                    right.resize(left.len(), node);
                }
            }
            timer.done();
            self.at = 0;
            self.batch = (!left.is_empty()).then_some(batch);
        }
    }
}
