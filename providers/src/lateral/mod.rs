//! `LATERAL` calls of our functions: what stands on the right is planned and run for each row of the left,
//! with the row's values in the place of its columns. DataFusion can only make a join of such a thing, which a
//! call with arguments is none.

mod exec;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::datasource::{TableProvider, TableType, provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Join, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::Error;

use self::exec::LateralExec;
use crate::error::{bad_argument, to_datafusion};
use crate::function::{FunctionProvider, HIDDEN, is_plain, project};
use crate::pin::{StatementPin, pin_plan, seal_plan};
use crate::relation::scan_name;

/// The rows of a left side, each with the answers of a right side that reads its columns.
#[derive(Clone)]
pub(crate) struct LateralProvider {
    left: LogicalPlan,
    right: LogicalPlan,
    /// The columns of the left side that the right one reads.
    outer: Vec<Column>,
    /// Whether a row without answers stays.
    keeps: bool,
    schema: SchemaRef,
}

impl fmt::Debug for LateralProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateralProvider")
    }
}

/// A plan whose lateral calls are tables.
///
/// # Errors
/// `NotYetSupported` for other joins than inner and left ones `ON TRUE`, `InvalidArgument` for a function that
/// changes something.
pub(crate) fn compile(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !takes_from_outside(&plan)? {
        return Ok(plan);
    }
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_subquery(&join.right) && takes_from_outside(&join.right)? => {
            Ok(Transformed::yes(joined(join)?))
        }
        other => Ok(Transformed::no(other)),
    });
    let plan = plan.data()?;
    match takes_from_outside(&plan)? {
        true => Err(not_lateral()),
        false => Ok(plan),
    }
}

fn not_lateral() -> DataFusionError {
    let feature =
        "a call with columns of other tables in PREPARE, or in a subquery that is not LATERAL";
    let feature = feature.to_owned();
    to_datafusion(Error::NotYetSupported { feature })
}

/// Refuses what DataFusion makes of a lateral call where plans are optimised without having been analysed, and
/// of a call in a correlated subquery: a join of a call that has no argument yet.
#[derive(Debug, Default)]
pub struct LateralRule;

impl OptimizerRule for LateralRule {
    fn name(&self) -> &str {
        "stratagraph_lateral"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Join(join) = &plan {
            let on = join.on.iter().flat_map(|(left, right)| [left, right]);
            for expr in on.chain(&join.filter) {
                if expr.exists(|e| Ok(is_hidden(e)))? {
                    return Err(not_lateral());
                }
            }
        }
        Ok(Transformed::no(plan))
    }
}

/// Whether a call in a plan takes an argument from outside.
fn takes_from_outside(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            found |=
                filter.predicate.exists(|e| Ok(is_hidden(e)))? && filter.predicate.contains_outer();
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn is_hidden(expr: &Expr) -> bool {
    // Those of a merge are named so, too, but are values of its rows.
    matches!(expr, Expr::Column(column) if column.name.starts_with(HIDDEN)
        && column.relation.is_some())
}

/// A subquery under names of its own.
fn is_subquery(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_subquery(&alias.input),
        LogicalPlan::Projection(projection) => is_subquery(&projection.input),
        _ => false,
    }
}

fn joined(join: Join) -> Result<LogicalPlan> {
    let on = join
        .on
        .iter()
        .map(|(left, right)| left.clone().eq(right.clone()));
    let filter = conjunction(on.chain(join.filter.clone())).filter(|on| *on != lit(true));
    let keeps = match (join.join_type, &filter) {
        (JoinType::Inner, _) => false,
        (JoinType::Left, None) => true,
        _ => {
            let feature = "a LATERAL call under another join than INNER, or LEFT ... ON TRUE";
            let feature = feature.to_owned();
            return Err(to_datafusion(Error::NotYetSupported { feature }));
        }
    };
    let provider = LateralProvider::new(&join, keeps)?;
    let parts = [&join.left, &join.right].map(|side| side.display_indent_schema().to_string());
    let scan = TableReference::bare(scan_name("lateral", &parts));
    let mut shown = Vec::with_capacity(join.schema.fields().len());
    for (at, (qualifier, field)) in join.schema.iter().enumerate() {
        let column = Expr::Column(Column::new(Some(scan.clone()), name(at)));
        shown.push(column.alias_qualified(qualifier.cloned(), field.name()));
    }
    let rows = LogicalPlanBuilder::scan(scan, provider_as_source(Arc::new(provider)), None)?;
    let rows = rows.project(shown)?;
    match filter {
        Some(filter) => rows.filter(filter)?.build(),
        None => rows.build(),
    }
}

/// The name of a column, which both sides may have.
fn name(at: usize) -> String {
    format!("c{at}")
}

impl LateralProvider {
    fn new(join: &Join, keeps: bool) -> Result<Self> {
        let mut outer: Vec<Column> = Vec::new();
        let right = join
            .right
            .as_ref()
            .clone()
            .transform_down(|node| match node {
                LogicalPlan::Subquery(subquery) => {
                    for column in &subquery.outer_ref_columns {
                        match column {
                            Expr::OuterReferenceColumn(_, column)
                                if join.left.schema().has_column(column) =>
                            {
                                if !outer.contains(column) {
                                    outer.push(column.clone());
                                }
                            }
                            other => {
                                let reason = "is no column of the rows before LATERAL";
                                return Err(bad_argument("LATERAL", &other.to_string(), reason));
                            }
                        }
                    }
                    let inner = subquery.subquery.as_ref().clone();
                    Ok(Transformed::new(inner, true, TreeNodeRecursion::Jump))
                }
                other => Ok(Transformed::no(other)),
            });
        let right = right.data()?;
        refuse_verbs(&right)?;
        for side in [join.left.as_ref(), &right] {
            if !side.get_parameter_names()?.is_empty() {
                let feature = "a parameter of PREPARE in a FROM with a LATERAL call".to_owned();
                return Err(to_datafusion(Error::NotYetSupported { feature }));
            }
        }
        let fields = join.schema.fields().iter().enumerate();
        let fields = fields.map(|(at, field)| field.as_ref().clone().with_name(name(at)));
        Ok(Self {
            left: join.left.as_ref().clone(),
            right,
            outer,
            keeps,
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
        })
    }

    /// A condition as one on the left side; `None` if it is about the answers.
    fn on_left(&self, filter: &Expr) -> Result<Option<Expr>> {
        let schema = self.left.schema();
        let mut alone = true;
        let filter = filter.clone().transform(|expr| match &expr {
            Expr::Column(column) => match self.schema.index_of(&column.name) {
                Ok(at) if at < schema.fields().len() => {
                    let column = Column::from(schema.qualified_field(at));
                    Ok(Transformed::yes(Expr::Column(column)))
                }
                _ => {
                    alone = false;
                    Ok(Transformed::no(expr))
                }
            },
            _ => Ok(Transformed::no(expr)),
        });
        let filter = filter.data()?;
        Ok(alone.then_some(filter))
    }

    /// A copy that reads the snapshot of `pin` on both sides.
    pub(crate) fn pinned(&self, pin: &Arc<StatementPin>) -> Result<Self> {
        Ok(Self {
            left: pin_plan(self.left.clone(), pin)?,
            right: pin_plan(self.right.clone(), pin)?,
            ..self.clone()
        })
    }

    /// A copy whose sides keep their pin.
    pub(crate) fn sealed(&self) -> Result<Self> {
        Ok(Self {
            left: seal_plan(self.left.clone())?,
            right: seal_plan(self.right.clone())?,
            ..self.clone()
        })
    }
}

/// A verb runs once a statement, not once a row.
fn refuse_verbs(right: &LogicalPlan) -> Result<()> {
    right.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(function) = provider.downcast_ref::<FunctionProvider>()
            && function.spec().writes
        {
            let reason = "changes something: call it once for each value";
            return Err(bad_argument(function.spec().name, "LATERAL", reason));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

#[async_trait]
impl TableProvider for LateralProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    /// Rows that are not wanted ask nothing.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let claim = |filter: &&Expr| {
            Ok(match is_plain(filter)? && self.on_left(filter)?.is_some() {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Unsupported,
            })
        };
        filters.iter().map(claim).collect()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(session) = state.as_any().downcast_ref::<SessionState>() else {
            let feature = "LATERAL under a session that is not DataFusion's own".to_owned();
            return Err(to_datafusion(Error::NotYetSupported { feature }));
        };
        let sides = self.sealed()?;
        let mut outer = Vec::with_capacity(self.outer.len());
        for column in &self.outer {
            outer.push((column.clone(), self.left.schema().index_of_column(column)?));
        }
        let mut left = LogicalPlanBuilder::from(sides.left);
        for filter in filters {
            if let Some(filter) = self.on_left(filter)? {
                left = left.filter(filter)?;
            }
        }
        let left = session.create_physical_plan(&left.build()?).await?;
        let session = Arc::new(session.clone());
        let plan = LateralExec::new(left, sides.right, outer, self.keeps, session, self.schema());
        project(Arc::new(plan), projection.cloned(), &self.schema)
    }
}
