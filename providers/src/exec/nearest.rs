//! The rows of a table that can be the first ones by distance: a scan that leaves out all others.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::ann::{Metric, Query};
use stratagraph::search::{Allowed, Nearest, RowAt, Slack, TableSearch, VectorColumn, take};
use stratagraph::table::read::ReadOptions;

use super::memory::PoolBudget;
use super::search_metrics::SearchMetrics;
use crate::error::{ResultExt, not_encoded, to_datafusion};
use crate::pin::StatementPin;

/// What the first rows are near to.
#[derive(Debug, Clone, PartialEq)]
pub struct NearestRows {
    /// Property id of the vectors.
    pub property: u64,
    /// Name of the column, for plans.
    pub column: String,
    /// What is near.
    pub metric: Metric,
    /// The vector.
    pub vector: Vec<f32>,
    /// First rows that are wanted.
    pub rows: usize,
    /// Whether an index may be used.
    pub approximate: bool,
}

impl NearestRows {
    /// How much distances can differ that are computed in f32 and in f64 and from a vector that was rounded,
    /// with room to spare.
    fn slack(&self) -> Slack {
        let relative = (self.vector.len() as f32 / 8.0 + 64.0) * f32::EPSILON;
        let norm = self.vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        let scale = match self.metric {
            Metric::Cosine => 1.0,
            Metric::L2 | Metric::Dot => norm,
        };
        Slack {
            absolute: relative * scale,
            relative,
        }
    }

    fn show(&self) -> String {
        let (column, metric, rows) = (&self.column, self.metric.as_str(), self.rows);
        let mode = if self.approximate { "auto" } else { "exact" };
        format!("column={column}, metric={metric}, rows={rows}, ann={mode}")
    }
}

/// Emits the rows that can be among the first by distance, in no order; all live rows if fewer have a
/// distance than are wanted. One partition.
pub struct NearestRowsExec {
    label: String,
    search: TableSearch,
    wanted: NearestRows,
    /// Property ids of the columns.
    columns: Vec<u64>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Keeps the version's objects.
    pin: Arc<StatementPin>,
}

impl NearestRowsExec {
    /// The columns `columns` of a table, called and typed as `schema` says.
    pub(crate) fn new(
        label: String,
        search: TableSearch,
        wanted: NearestRows,
        columns: Vec<u64>,
        schema: SchemaRef,
        pin: Arc<StatementPin>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            label,
            search,
            wanted,
            columns,
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            pin,
        }
    }

    fn show(&self) -> String {
        format!("table={}, {}", self.label, self.wanted.show())
    }
}

impl fmt::Debug for NearestRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NearestRowsExec({})", self.show())
    }
}

impl DisplayAs for NearestRowsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "NearestRowsExec: {}", self.show())
            }
            DisplayFormatType::TreeRender => writeln!(f, "{}", self.show()),
        }
    }
}

impl ExecutionPlan for NearestRowsExec {
    fn name(&self) -> &str {
        "NearestRowsExec"
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

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("a scan of the nearest rows has no input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn try_to_proto(
        &self,
        _context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<PhysicalPlanNode>> {
        Err(not_encoded("a scan of the nearest rows"))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("a scan of the nearest rows has one partition");
        }
        let scan = Scan {
            search: self
                .search
                .with_budget(PoolBudget::of(task.memory_pool(), "NearestRows")),
            wanted: self.wanted.clone(),
            columns: self.columns.clone(),
            schema: Arc::clone(&self.schema),
            batch_rows: task.session_config().batch_size(),
            metrics: BaselineMetrics::new(&self.metrics, 0),
            searched: SearchMetrics::new(&self.metrics),
            _pin: Arc::clone(&self.pin),
        };
        let rows = stream::once(scan.start()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows.boxed(),
        )))
    }
}

/// A scan at work.
struct Scan {
    search: TableSearch,
    wanted: NearestRows,
    columns: Vec<u64>,
    schema: SchemaRef,
    batch_rows: usize,
    metrics: BaselineMetrics,
    searched: SearchMetrics,
    _pin: Arc<StatementPin>,
}

type Rows = stream::BoxStream<'static, Result<RecordBatch>>;

impl Scan {
    async fn start(self) -> Result<Rows> {
        let wanted = &self.wanted;
        let column = VectorColumn {
            column: wanted.property,
            dimensions: wanted.vector.len(),
            metric: wanted.metric,
        };
        let Some(query) = Query::new(wanted.metric, wanted.vector.clone()) else {
            return self.all().await;
        };
        let nearest = Nearest {
            query: &query,
            k: wanted.rows,
            exact: !wanted.approximate,
        };
        let slack = wanted.slack();
        let found = self
            .search
            .nearest_within(&column, nearest, &Allowed::All, slack);
        let (found, searched) = found.await.df()?;
        self.searched.add(&searched);
        if found.len() < wanted.rows {
            return self.all().await;
        }
        let places: Vec<RowAt> = found.iter().map(|f| f.row).collect();
        let batch = take(self.search.reader(), &places, &self.columns)
            .await
            .df()?;
        let batch = typed(&batch, &self.schema)?;
        self.metrics.record_output(batch.num_rows());
        Ok(stream::iter([Ok(batch)]).boxed())
    }

    /// Rows without a distance come last, so all rows are wanted.
    async fn all(self) -> Result<Rows> {
        let options = ReadOptions {
            batch_rows: self.batch_rows,
            ..ReadOptions::columns(&self.columns)
        };
        let rows = self.search.reader().scan(&options).await.df()?;
        Ok(rows
            .map_err(to_datafusion)
            .map(move |batch| {
                let batch = typed(&batch?, &self.schema)?;
                self.metrics.record_output(batch.num_rows());
                Ok(batch)
            })
            .boxed())
    }
}

/// Stored columns as a plan calls and types them.
fn typed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(array, field)| cast(array, field.data_type()));
    let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
