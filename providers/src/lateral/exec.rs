//! The execution of lateral calls: one plan a row, several rows at once.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    execute_stream,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Error;

use crate::error::{not_encoded, to_datafusion};
use crate::function::FunctionProvider;

/// What is run for each row.
struct Right {
    plan: LogicalPlan,
    /// Columns of the left side in it, and where they stand there.
    outer: Vec<(Column, usize)>,
    /// Whether a row without answers stays.
    keeps: bool,
    session: Arc<SessionState>,
    schema: SchemaRef,
}

/// The rows of its input, each with the answers to what its values ask.
pub(super) struct LateralExec {
    input: Arc<dyn ExecutionPlan>,
    right: Arc<Right>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LateralExec {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        plan: LogicalPlan,
        outer: Vec<(Column, usize)>,
        keeps: bool,
        session: Arc<SessionState>,
        schema: SchemaRef,
    ) -> Self {
        let right = Right {
            plan,
            outer,
            keeps,
            session,
            schema,
        };
        Self::of(input, Arc::new(right))
    }

    fn of(input: Arc<dyn ExecutionPlan>, right: Arc<Right>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&right.schema)),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            input,
            right,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl Right {
    /// The plan for a row: its values in the place of its columns, and each call one of its own.
    fn bound(&self, row: &[ScalarValue]) -> Result<LogicalPlan> {
        let value = |expr: Expr| match &expr {
            Expr::OuterReferenceColumn(_, column) => {
                let found = self.outer.iter().position(|(outer, _)| outer == column);
                Ok(match found.and_then(|at| row.get(at)) {
                    Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
                    None => Transformed::no(expr),
                })
            }
            _ => Ok(Transformed::no(expr)),
        };
        let plan = self.plan.clone().transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::TableScan(mut scan) => {
                    let provider = source_as_provider(&scan.source);
                    let function = provider.as_ref().ok();
                    if let Some(call) = function.and_then(|p| p.downcast_ref::<FunctionProvider>())
                    {
                        scan.source = provider_as_source(Arc::new(call.again()));
                    }
                    LogicalPlan::TableScan(scan)
                }
                other => other,
            };
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let bound = expr.transform(value)?;
                Ok(bound.update_data(|expr| name.restore(expr)))
            })
        });
        plan.data()
    }

    /// All answers to a row, with the memory that they take.
    async fn answers(
        &self,
        row: &[ScalarValue],
        task: Arc<TaskContext>,
    ) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
        let plan = self.bound(row)?;
        let plan = self.session.create_physical_plan(&plan).await?;
        let memory = MemoryConsumer::new("LATERAL").register(task.memory_pool());
        let mut answers = Vec::new();
        let mut stream = execute_stream(plan, task)?;
        while let Some(batch) = stream.try_next().await? {
            memory.try_grow(batch.get_array_memory_size())?;
            answers.push(batch);
        }
        Ok((answers, memory))
    }

    /// A row beside its answers.
    fn beside(
        &self,
        left: &RecordBatch,
        row: usize,
        answers: &[RecordBatch],
    ) -> Result<Vec<RecordBatch>> {
        let mut rows = Vec::new();
        for batch in answers.iter().filter(|batch| batch.num_rows() > 0) {
            let mut columns = repeated(left, row, batch.num_rows())?;
            columns.extend(batch.columns().iter().cloned());
            rows.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        }
        if rows.is_empty() && self.keeps {
            let mut columns = repeated(left, row, 1)?;
            let right = self.schema.fields().iter().skip(columns.len());
            let right: Vec<ArrayRef> = right.map(|f| new_null_array(f.data_type(), 1)).collect();
            columns.extend(right);
            rows.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        }
        Ok(rows)
    }
}

fn repeated(batch: &RecordBatch, row: usize, times: usize) -> Result<Vec<ArrayRef>> {
    let places = UInt64Array::from(vec![row as u64; times]);
    let columns = batch.columns().iter();
    let columns = columns.map(|column| Ok(take(column, &places, None)?));
    columns.collect()
}

impl fmt::Debug for LateralExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateralExec")
    }
}

impl DisplayAs for LateralExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outer: Vec<String> = self
            .right
            .outer
            .iter()
            .map(|(c, _)| c.to_string())
            .collect();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "LateralExec: for each [{}]", outer.join(", "))
            }
            DisplayFormatType::TreeRender => writeln!(f, "for each {}", outer.join(", ")),
        }
    }
}

impl ExecutionPlan for LateralExec {
    fn name(&self) -> &str {
        "LateralExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("LATERAL has one input");
        };
        Ok(Arc::new(Self::of(
            Arc::clone(input),
            Arc::clone(&self.right),
        )))
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded("LATERAL"))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&task))?;
        let partitions = self.input.output_partitioning().partition_count();
        let at_once = task.session_config().target_partitions() / partitions.max(1);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let calls = MetricBuilder::new(&self.metrics).counter("calls", partition);
        let right = Arc::clone(&self.right);
        let rows = input.map_ok(move |batch| {
            let (right, task) = (Arc::clone(&right), Arc::clone(&task));
            calls.add(batch.num_rows());
            let rows = 0..batch.num_rows();
            stream::iter(rows)
                .map(move |row| one(Arc::clone(&right), batch.clone(), row, Arc::clone(&task)))
                .buffered(at_once.max(1))
                .map_ok(|(batches, memory)| {
                    stream::iter(batches).map(move |batch| {
                        let _held = &memory;
                        Ok(batch)
                    })
                })
                .try_flatten()
        });
        let rows = rows.try_flatten().inspect_ok(move |batch: &RecordBatch| {
            metrics.record_output(batch.num_rows());
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// One row, in a task of its own: planning is work for a thread, and dropping it cancels.
async fn one(
    right: Arc<Right>,
    left: RecordBatch,
    row: usize,
    task: Arc<TaskContext>,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let work = SpawnedTask::spawn(async move {
        let values = right.outer.iter();
        let values = values.map(|(_, at)| ScalarValue::try_from_array(left.column(*at), row));
        let values: Vec<ScalarValue> = values.collect::<Result<_>>()?;
        let (answers, memory) = right.answers(&values, task).await?;
        Ok((right.beside(&left, row, &answers)?, memory))
    });
    let done = work.join().await;
    done.map_err(|e| {
        to_datafusion(Error::TaskFailed {
            operation: "LATERAL",
            source: Box::new(e),
        })
    })?
}
