//! The execution of a call: the whole work, once, before the first row.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Error;
use tokio::sync::OnceCell;

use super::args::BoundArgs;
use super::{RunContext, TableFunction};
use crate::error::{bad_argument, not_encoded, to_datafusion};
use crate::settings::Settings;

type Rows = Result<Arc<Vec<RecordBatch>>, Arc<DataFusionError>>;

/// The rows of a call, for all scans of it in one plan.
#[derive(Debug, Default)]
pub(crate) struct SharedResult(OnceCell<Rows>);

/// A call with everything it needs to run.
pub(crate) struct Call {
    pub(crate) function: Arc<dyn TableFunction>,
    pub(crate) args: BoundArgs,
    pub(crate) context: RunContext,
    pub(crate) schema: SchemaRef,
}

impl Call {
    async fn run(self: Arc<Self>, task: Arc<TaskContext>) -> Result<Vec<RecordBatch>> {
        let context = RunContext {
            task,
            ..self.context.clone()
        };
        let (function, args) = (Arc::clone(&self.function), self.args.clone());
        // A task of its own: the work goes on while nobody polls, and dropping it cancels.
        let work = SpawnedTask::spawn(function.run(args, context));
        let rows = work.join().await.map_err(|e| {
            to_datafusion(Error::TaskFailed {
                operation: self.function.spec().name,
                source: Box::new(e),
            })
        })?;
        let rows = rows.map_err(to_datafusion)?;
        rows.into_iter().map(|batch| self.conform(batch)).collect()
    }

    /// The batch under the schema that was planned.
    fn conform(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(
            |error| {
                let name = self.function.spec().name;
                DataFusionError::from(error).context(format!("the columns of {name}"))
            },
        )
    }
}

/// The counts of a report of one row, so that EXPLAIN ANALYZE shows what a verb did.
fn note_counts(metrics: &ExecutionPlanMetricsSet, partition: usize, rows: &[RecordBatch]) {
    let [report] = rows else { return };
    if report.num_rows() != 1 {
        return;
    }
    for (field, column) in report.schema().fields().iter().zip(report.columns()) {
        let count = column
            .as_primitive_opt::<Int64Type>()
            .filter(|c| c.is_valid(0));
        let count = count.and_then(|c| usize::try_from(c.value(0)).ok());
        if let Some(count) = count {
            let name = field.name().clone();
            MetricBuilder::new(metrics)
                .counter(name, partition)
                .add(count);
        }
    }
}

/// A leaf that runs a table function: one partition, no statistics, all work before the first row,
/// and one result for all scans of the call in the plan.
pub struct VerbExec {
    call: Arc<Call>,
    result: Arc<SharedResult>,
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl VerbExec {
    pub(crate) fn new(
        call: Arc<Call>,
        result: Arc<SharedResult>,
        projection: Option<Vec<usize>>,
    ) -> Result<Self> {
        let schema = match &projection {
            Some(columns) => Arc::new(call.schema.project(columns)?),
            None => Arc::clone(&call.schema),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            call,
            result,
            projection,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The function's name.
    pub fn function(&self) -> &'static str {
        self.call.function.spec().name
    }

    fn check_allowed(&self, task: &TaskContext) -> Result<()> {
        let settings = Settings::of(task.session_config().options());
        if self.call.function.spec().writes && !settings.allow_writes {
            let verb = self.function().to_owned();
            return Err(to_datafusion(Error::WritesNotAllowed { verb }));
        }
        Ok(())
    }
}

impl fmt::Debug for VerbExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may hold what a host does not want in its logs.
        write!(f, "VerbExec({})", self.function())
    }
}

impl DisplayAs for VerbExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "VerbExec: {}", self.function())
            }
            DisplayFormatType::TreeRender => writeln!(f, "function={}", self.function()),
        }
    }
}

impl ExecutionPlan for VerbExec {
    fn name(&self) -> &str {
        "VerbExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// A recursive query executes its body again; a verb has run then.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded(self.function()))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            let reason = format!("partition {partition} of 1");
            return Err(bad_argument(self.function(), "$", reason));
        }
        self.check_allowed(&task)?;
        let (call, result) = (Arc::clone(&self.call), Arc::clone(&self.result));
        let (projection, metrics) = (
            self.projection.clone(),
            BaselineMetrics::new(&self.metrics, partition),
        );
        let all = self.metrics.clone();
        let rows = async move {
            let time = MetricBuilder::new(&all).subset_time("run_time", partition);
            let timer = time.timer();
            let run = || async { call.run(task).await.map(Arc::new).map_err(Arc::new) };
            let rows = result.0.get_or_init(run).await.clone();
            timer.done();
            let rows = rows.map_err(DataFusionError::Shared)?;
            note_counts(&all, partition, &rows);
            let projected = move |batch: &RecordBatch| match &projection {
                Some(columns) => Ok(batch.project(columns)?),
                None => Ok(batch.clone()),
            };
            let rows: Vec<Result<RecordBatch>> = rows.iter().map(projected).collect();
            Ok::<_, DataFusionError>(stream::iter(rows))
        };
        let counted = stream::once(rows).try_flatten().map(move |batch| {
            if let Ok(batch) = &batch {
                metrics.record_output(batch.num_rows());
            }
            batch
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            counted,
        )))
    }
}
