//! The execution of a traversal: a streaming operator over batches of source rows.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraints, internal_err, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::ProjectionMapping;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
    SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use datafusion_proto_models::protobuf::PhysicalPlanNode;
use futures::{StreamExt, stream};
use stratagraph::graph::topology::{Pairs, Reached, Walk};

use super::expand_metrics::ExpandMetrics;
use super::expand_node::{EdgeHandle, ExpandSpec};
use super::memory::PoolBudget;
use crate::error::{ResultExt, not_encoded};

/// Targets of one source that are searched one by one.
const TARGETS: usize = 8;

/// For each input row, all nodes that its source reaches; see [`super::ExpandNode`]. Partitions and
/// their order are the input's. Its memory is a consumer of the task's pool.
pub struct ExpandExec {
    input: Arc<dyn ExecutionPlan>,
    src: Column,
    /// Where it must end, if that is known.
    target: Option<Column>,
    edge: EdgeHandle,
    spec: ExpandSpec,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ExpandExec {
    /// Expands the column `src` of `input`.
    ///
    /// # Errors
    /// `Plan` for a column that `input` has not, or of another type than UInt64.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        src: Column,
        edge: EdgeHandle,
        spec: ExpandSpec,
    ) -> Result<Self> {
        spec.options(1).check(edge.edges()).df()?;
        let below = input.schema();
        check_column(&below, &src)?;
        let mut fields: Vec<_> = below.fields().iter().cloned().collect();
        fields.extend(spec.fields());
        let schema = Arc::new(Schema::new_with_metadata(fields, below.metadata().clone()));
        Ok(Self {
            properties: properties(&input, &schema)?,
            input,
            src,
            target: None,
            edge,
            spec,
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Only rows that reach the node in the column `target`.
    ///
    /// # Errors
    /// `Plan` for a column that the input has not, or of another type than UInt64.
    pub fn with_target(self, target: Column) -> Result<Self> {
        check_column(&self.input.schema(), &target)?;
        Ok(Self {
            target: Some(target),
            ..self
        })
    }

    /// The same over another input.
    fn over(
        &self,
        input: Arc<dyn ExecutionPlan>,
        place: impl Fn(&Column) -> Column,
    ) -> Result<Self> {
        let (edge, spec) = (self.edge.clone(), self.spec.clone());
        let expand = Self::try_new(input, place(&self.src), edge, spec)?;
        match &self.target {
            Some(target) => expand.with_target(place(target)),
            None => Ok(expand),
        }
    }

    fn show(&self) -> String {
        let shown = self.spec.show(&self.edge, &self.src);
        match &self.target {
            Some(target) => format!("{shown}, target={target}"),
            None => shown,
        }
    }

    /// The edge table.
    pub fn edge(&self) -> &EdgeHandle {
        &self.edge
    }

    /// What it asks for.
    pub fn spec(&self) -> &ExpandSpec {
        &self.spec
    }

    fn child_columns(&self) -> usize {
        self.input.schema().fields().len()
    }
}

fn check_column(schema: &Schema, column: &Column) -> Result<()> {
    let found = schema.fields().get(column.index()).map(|f| f.data_type());
    match found == Some(&DataType::UInt64) {
        true => Ok(()),
        false => {
            plan_err!("{column} is not a UInt64 column of the input of a traversal")
        }
    }
}

/// What the input promises of its columns still holds, except that a row is there once.
fn properties(input: &Arc<dyn ExecutionPlan>, schema: &SchemaRef) -> Result<Arc<PlanProperties>> {
    let below = input.schema();
    let columns: Vec<usize> = (0..below.fields().len()).collect();
    let mapping = ProjectionMapping::from_indices(&columns, &below)?;
    let kept = input.equivalence_properties();
    let kept = kept.project(&mapping, Arc::clone(schema));
    let properties = PlanProperties::new(
        kept.with_constraints(Constraints::default()),
        Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
        EmissionType::Incremental,
        input.boundedness(),
    );
    Ok(Arc::new(
        properties.with_scheduling_type(SchedulingType::Cooperative),
    ))
}

impl fmt::Debug for ExpandExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExpandExec({})", self.show())
    }
}

impl DisplayAs for ExpandExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.show();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "ExpandExec: {shown}")
            }
            DisplayFormatType::TreeRender => writeln!(f, "{shown}"),
        }
    }
}

impl ExecutionPlan for ExpandExec {
    fn name(&self) -> &str {
        "ExpandExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let ends = std::iter::once(&self.src).chain(&self.target);
        let ends = ends.map(|column| Arc::new(column.clone()) as PhysicalExprRef);
        apply_expression_roots(ends.collect::<Vec<_>>(), f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("a traversal has one input");
        };
        if options.children_properties == ChildrenPropertiesMode::Recompute {
            return Ok(Arc::new(self.over(input, Column::clone)?));
        }
        Ok(Arc::new(Self {
            input,
            src: self.src.clone(),
            target: self.target.clone(),
            edge: self.edge.clone(),
            spec: self.spec.clone(),
            schema: Arc::clone(&self.schema),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
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
        Err(not_encoded("a traversal"))
    }

    /// Filters on the input's columns hold of a row before it is expanded too.
    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let columns = (0..self.child_columns()).collect();
        let child = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            columns,
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(child))
    }

    /// Leaves out the input's columns that nobody above wants.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let below = self.child_columns();
        let wanted = projection.expr().iter();
        let wanted = wanted.flat_map(|e| collect_columns(&e.expr));
        let used: BTreeSet<usize> = wanted
            .map(|column| column.index())
            .filter(|index| *index < below)
            .chain([self.src.index()])
            .chain(self.target.as_ref().map(Column::index))
            .collect();
        if used.len() == below {
            return Ok(None);
        }
        // Old places in the order of the new ones; the added columns follow.
        let places: Vec<usize> = used.into_iter().collect();
        let moved = |column: &Column| {
            let index = match places.binary_search(&column.index()) {
                Ok(place) => place,
                Err(_) => places.len() + column.index().saturating_sub(below),
            };
            Column::new(column.name(), index)
        };
        let schema = self.input.schema();
        let narrow = places.iter().map(|index| {
            let name = schema.field(*index).name();
            ProjectionExpr::new(Arc::new(Column::new(name, *index)), name.clone())
        });
        let input = ProjectionExec::try_new(narrow.collect::<Vec<_>>(), Arc::clone(&self.input))?;
        let expand = self.over(Arc::new(input), moved)?;
        let mut above = Vec::with_capacity(projection.expr().len());
        for projected in projection.expr() {
            let change = |expr: Arc<dyn PhysicalExpr>| {
                Ok(match expr.downcast_ref::<Column>() {
                    Some(column) => Transformed::yes(Arc::new(moved(column)) as _),
                    None => Transformed::no(expr),
                })
            };
            let expr = Arc::clone(&projected.expr).transform(change).data()?;
            above.push(ProjectionExpr::new(expr, projected.alias.clone()));
        }
        let schema = projection.schema();
        let expand = Arc::new(expand);
        let above = ProjectionExec::try_new_with_schema_metadata(above, expand, schema.as_ref())?;
        Ok(Some(Arc::new(above)))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let budget = PoolBudget::of(task.memory_pool(), &format!("Expand[{partition}]"));
        let edges = self.edge.edges().with_budget(budget);
        let options = self.spec.options(task.session_config().batch_size());
        let state = Expanding {
            input: self.input.execute(partition, task)?,
            pairs: match self.target {
                Some(_) => Some(Pairs::new(&edges, options.clone()).df()?),
                None => None,
            },
            walk: Walk::new(&edges, options).df()?,
            src: self.src.index(),
            target: self.target.as_ref().map_or(0, Column::index),
            single: self.spec.max == 1,
            batch: None,
            schema: Arc::clone(&self.schema),
            metrics: ExpandMetrics::new(&self.metrics, partition),
        };
        let rows = stream::try_unfold(state, |mut state| async move {
            let batch = state.next().await;
            // Also where it ends or fails, so that what was done shows.
            let mut stats = state.walk.stats();
            if let Some(pairs) = &state.pairs {
                stats.add(pairs.stats());
            }
            state.metrics.show(stats);
            Ok(batch?.map(|batch| (batch, state)))
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            self.schema(),
            rows.boxed(),
        ))))
    }
}

/// A partition at work.
struct Expanding {
    input: SendableRecordBatchStream,
    walk: Walk,
    /// Searches from both ends, where both are known.
    pairs: Option<Pairs>,
    /// Place of the source column.
    src: usize,
    /// Place of the target column.
    target: usize,
    /// Whether only neighbours are reached.
    single: bool,
    /// The batch that is being expanded.
    batch: Option<RecordBatch>,
    schema: SchemaRef,
    metrics: ExpandMetrics,
}

impl Expanding {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = &self.batch {
                if let Some(mut reached) = self.walk.next().await.df()? {
                    if self.pairs.is_some() {
                        keep(&mut reached, rids(batch, self.target)?);
                        if reached.rows.is_empty() {
                            continue;
                        }
                    }
                    let out = attach(batch, reached, &self.schema)?;
                    self.metrics.baseline.record_output(out.num_rows());
                    return Ok(Some(out));
                }
                self.batch = None;
            }
            let Some(batch) = self.input.next().await.transpose()? else {
                self.metrics.baseline.done();
                return Ok(None);
            };
            let src = rids(&batch, self.src)?;
            if let Some(pairs) = &mut self.pairs
                && (self.single || is_spread(src))
            {
                let found = joined(pairs, src, rids(&batch, self.target)?).await?;
                let out = attach(&batch, found, &self.schema)?;
                if out.num_rows() > 0 {
                    self.metrics.baseline.record_output(out.num_rows());
                    return Ok(Some(out));
                }
                continue;
            }
            self.walk.begin(src).await.df()?;
            self.batch = Some(batch);
        }
    }
}

fn rids(batch: &RecordBatch, at: usize) -> Result<&UInt64Array> {
    let column = batch.columns().get(at);
    match column.and_then(|c| c.as_primitive_opt::<UInt64Type>()) {
        Some(column) => Ok(column),
        None => internal_err!("an end of a traversal is not a UInt64 column"),
    }
}

/// Whether sources are so many that each of them has few targets; one with many of them is followed
/// once for all.
fn is_spread(sources: &UInt64Array) -> bool {
    let mut distinct: Vec<u64> = sources.iter().flatten().collect();
    let all = distinct.len();
    distinct.sort_unstable();
    distinct.dedup();
    all <= distinct.len() * TARGETS
}

/// Leaves the rows that reached their target.
fn keep(reached: &mut Reached, targets: &UInt64Array) {
    let mut kept = Reached::default();
    for (at, (row, dst)) in reached.rows.iter().zip(&reached.dst).enumerate() {
        let target = *row as usize;
        if targets.is_valid(target) && targets.value(target) == *dst {
            kept.rows.push(*row);
            kept.dst.push(*dst);
            kept.hops.extend(reached.hops.get(at));
        }
    }
    *reached = kept;
}

/// The rows whose source reaches their target. A NULL reaches nothing, and nothing reaches it.
async fn joined(
    pairs: &mut Pairs,
    sources: &UInt64Array,
    targets: &UInt64Array,
) -> Result<Reached> {
    let mut found = Reached::default();
    for (row, ends) in sources.iter().zip(targets).enumerate() {
        let (Some(source), Some(target)) = ends else {
            continue;
        };
        if let Some(distance) = pairs.distance(source, target).await.df()? {
            found.rows.push(row as u32);
            found.dst.push(target);
            found.hops.push(distance);
        }
    }
    Ok(found)
}

/// The rows of the input that reached something, with what they reached.
fn attach(batch: &RecordBatch, reached: Reached, schema: &SchemaRef) -> Result<RecordBatch> {
    let rows = UInt32Array::from(reached.rows);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for column in batch.columns() {
        columns.push(take(column.as_ref(), &rows, None)?);
    }
    columns.push(Arc::new(UInt64Array::from(reached.dst)));
    if columns.len() < schema.fields().len() {
        columns.push(Arc::new(UInt32Array::from(reached.hops)));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
