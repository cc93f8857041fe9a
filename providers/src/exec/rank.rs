//! The execution of a ranking.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float32Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::ProjectionMapping;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, EmissionType, ReplaceChildrenOptions, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::{StreamExt, TryStreamExt, stream};
use roaring::RoaringTreemap;

use super::memory::PoolBudget;
use super::rank_measure::Measures;
use super::rank_node::RankSpec;
use super::search_metrics::SearchMetrics;
use crate::error::{ResultExt, not_encoded};

/// Adds a measure to its input's rows; see [`super::RankNode`]. One partition, in the input's order.
pub struct RankExec {
    input: Arc<dyn ExecutionPlan>,
    rids: Vec<Column>,
    spec: RankSpec,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RankExec {
    /// Ranks the entities whose row ids stand in the columns `rids` of `input`.
    ///
    /// # Errors
    /// `Plan` for a column that `input` has not, or of another type than UInt64.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        rids: Vec<Column>,
        spec: RankSpec,
    ) -> Result<Self> {
        let below = input.schema();
        for rid in &rids {
            let found = below.fields().get(rid.index()).map(|f| f.data_type());
            if !matches!(found, Some(DataType::UInt64 | DataType::UInt32)) {
                return plan_err!("{rid} is not a UInt64 column of a ranking's input");
            }
        }
        let mut fields: Vec<_> = below.fields().iter().cloned().collect();
        fields.push(spec.field());
        let schema = Arc::new(Schema::new_with_metadata(fields, below.metadata().clone()));
        Ok(Self {
            properties: properties(&input, &schema, &spec)?,
            input,
            rids,
            spec,
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

fn properties(
    input: &Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
    spec: &RankSpec,
) -> Result<Arc<PlanProperties>> {
    let below = input.schema();
    let columns: Vec<usize> = (0..below.fields().len()).collect();
    let mapping = ProjectionMapping::from_indices(&columns, &below)?;
    let kept = input.equivalence_properties();
    let kept = kept.project(&mapping, Arc::clone(schema));
    let emission = match spec.needs_rows() {
        true => EmissionType::Final,
        false => EmissionType::Incremental,
    };
    let partitioning = Partitioning::UnknownPartitioning(1);
    let properties = PlanProperties::new(kept, partitioning, emission, input.boundedness());
    Ok(Arc::new(
        properties.with_scheduling_type(SchedulingType::Cooperative),
    ))
}

impl fmt::Debug for RankExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RankExec({})", self.spec.show())
    }
}

impl DisplayAs for RankExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.spec.show();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "RankExec: {shown}")
            }
            DisplayFormatType::TreeRender => writeln!(f, "{shown}"),
        }
    }
}

impl ExecutionPlan for RankExec {
    fn name(&self) -> &str {
        "RankExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let rids = self
            .rids
            .iter()
            .map(|rid| Arc::new(rid.clone()) as PhysicalExprRef);
        apply_expression_roots(rids.collect::<Vec<_>>(), f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("a ranking has one input");
        };
        let (rids, spec) = (self.rids.clone(), self.spec.clone());
        Ok(Arc::new(Self::try_new(input, rids, spec)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("a ranking has one input");
        };
        let (rids, spec) = (self.rids.clone(), self.spec.clone());
        Ok(Arc::new(Self::try_new(input, rids, spec)?))
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
        Err(not_encoded("a ranking"))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 || self.input.output_partitioning().partition_count() != 1 {
            return internal_err!("a ranking has one partition");
        }
        let consumer = MemoryConsumer::new("stratagraph Rank rows");
        let state = RankState {
            memory: consumer.register(task.memory_pool()),
            measures: Measures::new(
                &self.spec,
                PoolBudget::of(task.memory_pool(), "Rank"),
                SearchMetrics::new(&self.metrics),
            ),
            input: self.input.execute(0, task)?,
            rids: self.rids.iter().map(Column::index).collect(),
            spec: self.spec.clone(),
            schema: Arc::clone(&self.schema),
            metrics: BaselineMetrics::new(&self.metrics, 0),
        };
        let rows = stream::once(state.start()).try_flatten();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            self.schema(),
            rows.boxed(),
        ))))
    }
}

/// A ranking at work.
struct RankState {
    input: SendableRecordBatchStream,
    rids: Vec<usize>,
    spec: RankSpec,
    schema: SchemaRef,
    measures: Measures,
    memory: MemoryReservation,
    metrics: BaselineMetrics,
}

type Rows = stream::BoxStream<'static, Result<RecordBatch>>;

impl RankState {
    async fn start(mut self) -> Result<Rows> {
        let (held, input): (Vec<RecordBatch>, Option<SendableRecordBatchStream>) =
            match self.spec.needs_rows() {
                false => (Vec::new(), Some(self.input)),
                true => {
                    let mut held = Vec::new();
                    while let Some(batch) = self.input.try_next().await? {
                        self.memory.try_grow(batch.get_array_memory_size())?;
                        held.push(batch);
                    }
                    (held, None)
                }
            };
        let work = async {
            let rows = Entities::of(&held, &self.rids)?;
            let timer = self.metrics.elapsed_compute().timer();
            let values = self.measures.of(&rows, &held, &self.rids).await.df()?;
            timer.done();
            Ok::<_, datafusion::error::DataFusionError>(values)
        };
        let values = Arc::new(work.await?);
        let held = stream::iter(held.into_iter().map(Ok));
        let batches: Rows = match input {
            Some(input) => input.boxed(),
            None => held.boxed(),
        };
        let Some(entity) = self.rids.first().copied() else {
            return internal_err!("a ranking is of a column of row ids");
        };
        let (schema, metrics, memory) = (self.schema, self.metrics, self.memory);
        let only = self.spec.only_ranked;
        let rows = batches.map(move |batch| {
            // Rows that are held are accounted until the last of them is given away.
            let _held = &memory;
            let batch = measured(&batch?, entity, &values, only, &schema)?;
            metrics.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(rows
            .try_filter(|batch| std::future::ready(batch.num_rows() > 0))
            .boxed())
    }
}

/// The distinct row ids in each column of row ids.
pub(super) struct Entities(pub(super) Vec<RoaringTreemap>);

impl Entities {
    fn of(batches: &[RecordBatch], rids: &[usize]) -> Result<Self> {
        let mut entities = vec![RoaringTreemap::new(); rids.len()];
        for batch in batches {
            for (of, entities) in rids.iter().zip(&mut entities) {
                if batch.column(*of).data_type() == &DataType::UInt64 {
                    entities.extend(column_of(batch, *of)?.iter().flatten());
                }
            }
        }
        Ok(Self(entities))
    }
}

/// A column of row ids.
pub(super) fn column_of(
    batch: &RecordBatch,
    at: usize,
) -> Result<&arrow::array::PrimitiveArray<UInt64Type>> {
    let column = batch.columns().get(at);
    match column.and_then(|c| c.as_primitive_opt::<UInt64Type>()) {
        Some(column) => Ok(column),
        None => internal_err!("a ranking's row ids are a UInt64 column"),
    }
}

/// A batch with the measure of each row.
fn measured(
    batch: &RecordBatch,
    entity: usize,
    values: &HashMap<u64, f32>,
    only_ranked: bool,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let rids = column_of(batch, entity)?;
    let value = |rid: Option<u64>| values.get(&rid?).copied();
    let measures: Float32Array = rids.iter().map(value).collect();
    let ranked = only_ranked.then(|| {
        let valid = (0..measures.len()).map(|row| measures.is_valid(row));
        BooleanArray::from_iter(valid.map(Some))
    });
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(measures) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
    match ranked {
        Some(ranked) => Ok(filter_record_batch(&batch, &ranked)?),
        None => Ok(batch),
    }
}
