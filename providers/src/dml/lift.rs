//! Subqueries of expressions as columns of the rows below. DataFusion takes `IN` and `EXISTS` as conditions
//! of a filter alone and no subquery in the condition of a join; what a scalar subquery says of each row it
//! takes in any projection. So a condition becomes counts of rows, which say as much, `NULL` included.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, out_ref_col, scalar_subquery, when,
};

use super::not_yet;

/// Gives columns names that nothing else has in a statement.
#[derive(Default)]
pub(super) struct Lift {
    columns: usize,
    operands: Vec<Expr>,
    subqueries: Vec<Expr>,
}

/// Whether an expression has a subquery.
pub(super) fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|e| Ok(is_subquery(e)))
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
    )
}

impl Lift {
    /// Rows with one more column for each subquery in `exprs` that reads no other columns than theirs, and
    /// the expressions over these columns.
    ///
    /// # Errors
    /// `NotYetSupported` for a subquery below another one's operand, and for `ANY` and `ALL`.
    pub(super) fn lift(
        &mut self,
        rows: LogicalPlan,
        exprs: Vec<Expr>,
    ) -> Result<(LogicalPlan, Vec<Expr>)> {
        let schema = Arc::clone(rows.schema());
        let mut lifted = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let over = expr.transform_down(|expr| {
                if !is_subquery(&expr) || !reads_only(&expr, &schema) {
                    return Ok(Transformed::no(expr));
                }
                let value = self.value(&expr, &schema)?;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            })?;
            lifted.push(over.data);
        }
        let mut rows = rows;
        for columns in [
            std::mem::take(&mut self.operands),
            std::mem::take(&mut self.subqueries),
        ] {
            if !columns.is_empty() {
                let all = rows.schema().columns().into_iter().map(Expr::Column);
                let all: Vec<Expr> = all.chain(columns).collect();
                rows = LogicalPlanBuilder::from(rows).project(all)?.build()?;
            }
        }
        Ok((rows, lifted))
    }

    fn name(&mut self) -> String {
        self.columns += 1;
        format!("__stratagraph_subquery_{}", self.columns)
    }

    /// The column of a scalar subquery.
    fn column(&mut self, subquery: Expr) -> Expr {
        let name = self.name();
        self.subqueries.push(subquery.alias(&name));
        Expr::Column(Column::new_unqualified(name))
    }

    /// How many rows a plan has, or how many of them a column has a value in.
    fn count(&mut self, rows: LogicalPlanBuilder, of: Expr) -> Result<Expr> {
        let none: [Expr; 0] = [];
        let counted = rows.aggregate(none, [count(of)])?.build()?;
        Ok(self.column(scalar_subquery(Arc::new(counted))))
    }

    fn value(&mut self, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        match expr {
            Expr::ScalarSubquery(_) => Ok(self.column(expr.clone())),
            Expr::Exists(Exists { subquery, negated }) => {
                let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
                let found = self.count(rows, lit(1))?.gt(lit(0i64));
                negate_if(*negated, when(found, lit(true)).otherwise(lit(false))?)
            }
            Expr::InSubquery(of) => self.membership(of, schema),
            _ => Err(not_yet(
                "ANY or ALL of a subquery in MERGE INTO (use EXISTS)".to_owned(),
            )),
        }
    }

    /// `x IN (subquery)`: true for an equal value; else unknown for a NULL on either side, unless there is
    /// nothing to be equal to.
    fn membership(&mut self, of: &InSubquery, schema: &DFSchema) -> Result<Expr> {
        if has_subquery(&of.expr)? {
            let feature = "a subquery on the left of IN (subquery) in MERGE INTO";
            return Err(not_yet(feature.to_owned()));
        }
        let (_, field) = of.expr.to_field(schema)?;
        let name = self.name();
        self.operands.push(of.expr.as_ref().clone().alias(&name));
        let operand = Column::new_unqualified(name);
        let rows = of.subquery.subquery.as_ref();
        let value = Expr::Column(Column::from(rows.schema().qualified_field(0)));
        let rows = || LogicalPlanBuilder::from(rows.clone());
        let equal = out_ref_col(field.data_type().clone(), operand.clone());
        let equal = rows().filter(value.clone().eq(equal))?;
        let found = self.count(equal, lit(1))?.gt(lit(0i64));
        let all = self.count(rows(), lit(1))?;
        let values = self.count(rows(), value)?;
        let no_operand = Expr::Column(operand)
            .is_null()
            .and(all.clone().gt(lit(0i64)));
        let unknown = no_operand.or(all.gt(values));
        let value = when(found, lit(true))
            .when(unknown, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(false))?;
        negate_if(of.negated, value)
    }
}

fn negate_if(negated: bool, value: Expr) -> Result<Expr> {
    Ok(if negated { !value } else { value })
}

/// Whether all columns of the rows outside that a subquery reads are among these.
fn reads_only(subquery: &Expr, schema: &DFSchema) -> bool {
    let (operand, inner) = match subquery {
        Expr::InSubquery(of) => (Some(&of.expr), &of.subquery),
        Expr::SetComparison(of) => (Some(&of.expr), &of.subquery),
        Expr::Exists(of) => (None, &of.subquery),
        Expr::ScalarSubquery(inner) => (None, inner),
        _ => return false,
    };
    let outer = inner.outer_ref_columns.iter().all(|column| match column {
        Expr::OuterReferenceColumn(_, column) => schema.has_column(column),
        _ => false,
    });
    outer
        && operand.is_none_or(|operand| {
            operand
                .column_refs()
                .into_iter()
                .all(|c| schema.has_column(c))
        })
}
