//! `ORDER BY distance(vector, constant) LIMIT k` over a table: the scan leaves out rows that cannot be
//! among the first.
//!
//! The sort stays as it is and computes DataFusion's own distances, of few rows: those that our distances
//! say are the first, and all that are as near within the rounding of both. The rewrite does not fire
//! where anything but columns stands between the sort and the scan (a filter, a join, another limit), for
//! another direction or order of nulls, or for a vector that is no constant.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, TableScan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use stratagraph::ann::Metric;

use crate::exec::NearestRows;
use crate::settings::{AnnMode, Settings};
use crate::versioned::VersionedTableProvider;

/// The rule.
#[derive(Debug, Default, Clone, Copy)]
pub struct NearestRule;

impl OptimizerRule for NearestRule {
    fn name(&self) -> &str {
        "stratagraph_nearest"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Sort(sort) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let Some((scan, mut nearest)) = wanted(sort) else {
            return Ok(Transformed::no(plan));
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<VersionedTableProvider>() else {
            return Ok(Transformed::no(plan));
        };
        let planned = table.planned();
        let column = planned
            .columns
            .iter()
            .find(|c| *c.field.name() == nearest.column);
        let Some(column) = column.filter(|c| is_vector(c.field.data_type(), nearest.vector.len()))
        else {
            return Ok(Transformed::no(plan));
        };
        nearest.property = column.id;
        nearest.approximate = Settings::of(&config.options()).ann == AnnMode::Auto;
        let Some(table) = table.with_nearest(nearest) else {
            return Ok(Transformed::no(plan));
        };
        let source = provider_as_source(Arc::new(table));
        plan.transform_down(|node| match node {
            LogicalPlan::TableScan(scan) => {
                let source = Arc::clone(&source);
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan {
                    source,
                    ..scan
                })))
            }
            other => Ok(Transformed::no(other)),
        })
    }
}

fn is_vector(data_type: &DataType, width: usize) -> bool {
    match data_type {
        DataType::FixedSizeList(item, found) => {
            item.data_type() == &DataType::Float32 && usize::try_from(*found) == Ok(width)
        }
        _ => false,
    }
}

/// The scan below a sort and what its first rows are near to, if only columns stand between the two.
fn wanted(sort: &Sort) -> Option<(&TableScan, NearestRows)> {
    let rows = sort.fetch.filter(|rows| *rows > 0)?;
    let first = sort
        .expr
        .first()
        .filter(|key| key.asc && !key.nulls_first)?;
    let (mut expr, mut below) = (first.expr.clone(), sort.input.as_ref());
    loop {
        match below {
            LogicalPlan::Projection(projection) => {
                let place = |column: &Column| projection.schema.maybe_index_of_column(column);
                let inner = |column: &Column| {
                    Some(
                        projection
                            .expr
                            .get(place(column)?)?
                            .clone()
                            .unalias_nested()
                            .data,
                    )
                };
                expr = replaced(expr, &inner)?;
                below = projection.input.as_ref();
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let inner = |column: &Column| {
                    let place = alias.schema.maybe_index_of_column(column)?;
                    Some(Expr::Column(
                        alias.input.schema().columns().get(place)?.clone(),
                    ))
                };
                expr = replaced(expr, &inner)?;
                below = alias.input.as_ref();
            }
            LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
                return Some((scan, near(&expr, rows)?));
            }
            _ => return None,
        }
    }
}

/// An expression with its columns replaced; `None` if one is not known.
fn replaced(expr: Expr, inner: &dyn Fn(&Column) -> Option<Expr>) -> Option<Expr> {
    let mut whole = true;
    let change = |part: Expr| {
        let Expr::Column(column) = &part else {
            return Ok(Transformed::no(part));
        };
        match inner(column) {
            Some(other) => Ok(Transformed::yes(other)),
            None => {
                whole = false;
                Ok(Transformed::no(part))
            }
        }
    };
    // Upwards: what takes the place of a column is not looked at again.
    let changed = expr.transform_up(change).ok()?;
    whole.then_some(changed.data)
}

/// What an order by a distance asks for.
fn near(expr: &Expr, rows: usize) -> Option<NearestRows> {
    let Expr::ScalarFunction(call) = bare(expr) else {
        return None;
    };
    let metric = match call.func.name() {
        "cosine_distance" => Metric::Cosine,
        "array_distance" => Metric::L2,
        _ => return None,
    };
    let [a, b] = call.args.as_slice() else {
        return None;
    };
    let (column, vector) = match (bare(a), bare(b)) {
        (Expr::Column(column), Expr::Literal(vector, _)) => (column, vector),
        (Expr::Literal(vector, _), Expr::Column(column)) => (column, vector),
        _ => return None,
    };
    Some(NearestRows {
        property: 0,
        column: column.name.clone(),
        metric,
        vector: components(vector)?,
        rows,
        approximate: false,
    })
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        Expr::Cast(cast) => bare(&cast.expr),
        other => other,
    }
}

/// The components of a literal vector, rounded to f32.
fn components(vector: &ScalarValue) -> Option<Vec<f32>> {
    let items = match vector {
        ScalarValue::List(list) if list.is_valid(0) => list.value(0),
        ScalarValue::LargeList(list) if list.is_valid(0) => list.value(0),
        ScalarValue::FixedSizeList(list) if list.is_valid(0) => list.value(0),
        _ => return None,
    };
    if !items.data_type().is_numeric() || items.null_count() > 0 {
        return None;
    }
    let wide = arrow::compute::cast(&items, &DataType::Float64).ok()?;
    let wide = wide.as_primitive::<Float64Type>().values();
    Some(wide.iter().map(|x| *x as f32).collect())
}
