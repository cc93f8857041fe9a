//! The execution of DML: the rows of its plan, taken once, before the one row of its answer.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
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
use futures::stream;
use stratagraph::Error;

use crate::error::{bad_argument, not_encoded, to_datafusion};
use crate::function::RunContext;
use crate::hooks::{PlannedWrite, WriteHooks};
use crate::settings::Settings;
use crate::versioned::VersionedTableProvider;

/// A statement and who carries it out.
#[derive(Clone)]
pub(crate) struct WriteJob {
    pub(crate) hooks: Arc<dyn WriteHooks>,
    pub(crate) table: VersionedTableProvider,
    pub(crate) planned: PlannedWrite,
    pub(crate) context: RunContext,
}

/// Gives the rows of its input to the write hooks of a table and answers with their number. Nothing
/// happens before it is executed.
pub struct WriteExec {
    job: WriteJob,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

fn count_schema() -> SchemaRef {
    let count = Field::new("count", DataType::UInt64, false);
    Arc::new(Schema::new(vec![count]))
}

impl WriteExec {
    pub(crate) fn new(job: WriteJob, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            job,
            input,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn statement(&self) -> &'static str {
        self.job.planned.write.statement()
    }
}

impl fmt::Debug for WriteExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteExec({})", self.statement())
    }
}

impl DisplayAs for WriteExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (statement, table) = (self.statement(), self.job.table.planned().label());
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "WriteExec: {statement} {table}")
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "statement={statement}")?;
                writeln!(f, "table={table}")
            }
        }
    }
}

impl ExecutionPlan for WriteExec {
    fn name(&self) -> &str {
        "WriteExec"
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

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    /// The last row of an id counts, so rows keep their order.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self::new(self.job.clone(), input))),
            None => Ok(self),
        }
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded(self.statement()))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let statement = self.statement();
        if partition != 0 {
            let reason = format!("partition {partition} of 1");
            return Err(bad_argument(statement, "$", reason));
        }
        if !Settings::of(task.session_config().options()).allow_writes {
            let verb = statement.to_owned();
            return Err(to_datafusion(Error::WritesNotAllowed { verb }));
        }
        let rows = self.input.execute(0, Arc::clone(&task))?;
        let WriteJob {
            hooks,
            table,
            planned,
            context,
        } = self.job.clone();
        let context = RunContext { task, ..context };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let time = MetricBuilder::new(&self.metrics).subset_time("run_time", partition);
        let affected = MetricBuilder::new(&self.metrics).counter("affected_rows", partition);
        let work = async move {
            let timer = time.timer();
            // A task of its own: the work goes on while nobody polls, and dropping it cancels.
            let work = SpawnedTask::spawn(hooks.write(table, planned, rows, context));
            let count = work.join().await.map_err(|error| {
                to_datafusion(Error::TaskFailed {
                    operation: statement,
                    source: Box::new(error),
                })
            })?;
            timer.done();
            let count = count.map_err(to_datafusion)?;
            affected.add(usize::try_from(count).unwrap_or(usize::MAX));
            metrics.record_output(1);
            let column = Arc::new(UInt64Array::from(vec![count]));
            Ok(RecordBatch::try_new(count_schema(), vec![column])?)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            count_schema(),
            stream::once(work),
        )))
    }
}
