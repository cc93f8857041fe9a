//! What a query returns: groups, distinct rows, order, number of rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    AggregateUDF, Expr as Df, LogicalPlanBuilder, SortExpr, cast, lit, when,
};
use stratagraph::graph::query::{Aggregate, Count, Expr, Output, Query, Rank, Var};
use stratagraph::graph::value::{Scalar, Value};

use super::expr::answer_type;
use super::lower::Lowering;
use super::names::column_expr;
use super::needs::orders_by_ids;
use super::ranks::{Wanted, searches};
use super::reduce::counts_rows;
use super::row::{Columns, Field, Row};

/// Digits of a sum of 64-bit integers that cannot overflow while it is made.
const SUM_DIGITS: u8 = 38;

/// The columns of a query's answer, all nullable.
pub fn answer_schema(query: &Query) -> SchemaRef {
    let fields = query
        .outputs
        .iter()
        .map(|output| ArrowField::new(&output.name, answer_type(&output.value_type), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

impl Lowering<'_> {
    /// The answer over the rows of the pattern.
    pub(super) fn answer(&self, row: Row) -> Result<LogicalPlanBuilder> {
        let query = self.query;
        let (skip, fetch) = (
            self.count(query.skip.as_ref())?,
            self.count(query.limit.as_ref())?,
        );
        let wanted = match query.aggregates() || query.distinct {
            true => None,
            false => fetch.map(|fetch| fetch.saturating_add(skip.unwrap_or(0))),
        };
        let mut row = self.ranked(row, wanted)?;
        for var in &self.late {
            row = self.hydrate(row, *var)?;
        }
        let plan = match (query.aggregates(), query.distinct) {
            (true, _) => self.grouped(row)?,
            (false, true) => self.distinct(row)?,
            (false, false) => self.plain(row)?,
        };
        let plan = match (skip, fetch) {
            (None, None) => plan,
            (skip, fetch) => plan.limit(skip.unwrap_or(0), fetch)?,
        };
        let shown = query
            .outputs
            .iter()
            .enumerate()
            .map(|(at, output)| column_expr(&place(at)).alias(&output.name));
        plan.project(shown.collect::<Vec<_>>())
    }

    /// A row with the columns of all ranks. The first order key leaves only rows that have the rank, of
    /// the best `wanted` entities at least.
    fn ranked(&self, mut row: Row, wanted: Option<usize>) -> Result<Row> {
        let keys = self.query.order.iter().map(|key| &key.expr);
        let resolved = keys.map(|expr| match expr {
            Expr::Output(at) => self.query.outputs.get(*at).map_or(expr, |o| &o.expr),
            other => other,
        });
        let keys: Vec<&Expr> = resolved.collect();
        if let Some(Expr::Rank(rank)) = keys.first() {
            let chosen = match rank.as_ref() {
                // All that match are found at once.
                Rank::Bm25 { .. } => None,
                Rank::Nearest { .. } | Rank::Hops { .. } | Rank::Rrf { .. } => wanted,
            };
            let first = Wanted {
                only_ranked: true,
                top: chosen,
            };
            row = self.with_rank(row, keys[0], first)?;
        }
        let outputs = self.query.outputs.iter().map(|output| &output.expr);
        let mut others = Vec::new();
        for expr in outputs.chain(keys) {
            searches(expr, &mut |inner| others.push(inner));
        }
        for expr in others {
            row = self.with_rank(row, expr, Wanted::default())?;
        }
        Ok(row)
    }

    /// Each row as it is.
    fn plain(&self, row: Row) -> Result<LogicalPlanBuilder> {
        let mut shown = Vec::new();
        for (at, output) in self.query.outputs.iter().enumerate() {
            let value = self.scalars.lower(&output.expr, &row)?;
            shown.push(self.typed(value, output).alias(place(at)));
        }
        let mut keys = Vec::new();
        for key in &self.query.order {
            let name = self.names.unique("order");
            let columns = WithOutputs {
                lowering: self,
                row: &row,
            };
            shown.push(self.scalars.lower(&key.expr, &columns)?.alias(&name));
            keys.push(sorted(column_expr(&name), key.descending));
        }
        if orders_by_ids(self.query) {
            for name in self.ids_by_name(&row) {
                let tie = self.names.unique("tie");
                shown.push(column_expr(&name).alias(&tie));
                keys.push(sorted(column_expr(&tie), false));
            }
        }
        let plan = LogicalPlanBuilder::from(row.plan).project(shown)?;
        order(plan, keys)
    }

    /// Columns with the ids of all variables, in the order of the variables' names.
    fn ids_by_name(&self, row: &Row) -> Vec<String> {
        let ids = row
            .columns
            .iter()
            .filter(|((_, field), _)| *field == Field::Id);
        let mut ids: Vec<(&str, &String)> = ids
            .filter_map(|((var, _), name)| {
                Some((self.query.variables.get(*var)?.name.as_str(), name))
            })
            .collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Equal rows once. The order can only name result columns.
    fn distinct(&self, row: Row) -> Result<LogicalPlanBuilder> {
        let mut shown = Vec::new();
        for (at, output) in self.query.outputs.iter().enumerate() {
            let value = self.scalars.lower(&output.expr, &row)?;
            shown.push(self.typed(value, output).alias(place(at)));
        }
        let plan = LogicalPlanBuilder::from(row.plan)
            .project(shown)?
            .distinct()?;
        let mut keys = Vec::new();
        for key in &self.query.order {
            let value = self.scalars.lower(&key.expr, &Results::default())?;
            keys.push(sorted(value, key.descending));
        }
        order(plan, self.with_ties(keys, |_| true))
    }

    /// Result columns break ties, so that the order is total.
    fn with_ties(&self, mut keys: Vec<SortExpr>, of: impl Fn(&Output) -> bool) -> Vec<SortExpr> {
        if !keys.is_empty() {
            let ties = self.query.outputs.iter().enumerate().filter(|(_, o)| of(o));
            keys.extend(ties.map(|(at, _)| sorted(column_expr(&place(at)), false)));
        }
        keys
    }

    /// One row for each group, which the outputs without an aggregate are the key of.
    fn grouped(&self, row: Row) -> Result<LogicalPlanBuilder> {
        let outputs = self.query.outputs.iter().enumerate();
        let (grouping, computed): (Vec<_>, Vec<_>) =
            outputs.partition(|(_, output)| !output.expr.aggregates());
        let keys = self.query.order.iter().map(|key| &key.expr);
        let mut results = Results::default();
        let mut aggregates: Vec<(String, Df)> = Vec::new();
        let mut only_rows = true;
        for wanted in computed
            .iter()
            .map(|(_, o)| &o.expr)
            .chain(keys)
            .flat_map(aggregates_in)
        {
            if results.aggregates.iter().all(|(known, _)| known != wanted) {
                only_rows &= counts_rows(self.query, wanted);
                let value = self.aggregate(wanted, &row, &mut aggregates)?;
                results.aggregates.push((wanted.clone(), value));
            }
        }
        let mut groups = Vec::new();
        for (at, output) in &grouping {
            groups.push(
                self.scalars
                    .lower(&output.expr, &row)
                    .map(|g| g.alias(place(*at))),
            );
        }
        let deferred = self.deferred.filter(|_| groups.iter().any(Result::is_err));
        let names: Vec<String> = aggregates.iter().map(|(name, _)| name.clone()).collect();
        let row = match deferred {
            Some(var) if only_rows && row.unique == Some(var) => self.counted(row, var, &names)?,
            Some(var) => self.grouped_by_rid(row, var, named(aggregates))?,
            None => {
                let groups = groups.into_iter().collect::<Result<Vec<_>>>()?;
                let plan = LogicalPlanBuilder::from(row.plan);
                let plan = plan.aggregate(groups, named(aggregates))?;
                Row::of(plan.build()?, Default::default())
            }
        };
        let mut shown = Vec::new();
        for (at, output) in grouping {
            let value = match deferred {
                Some(_) => self.scalars.lower(&output.expr, &row)?,
                None => column_expr(&place(at)),
            };
            shown.push(self.typed(value, output).alias(place(at)));
        }
        for (at, output) in computed {
            let value = self.scalars.lower(&output.expr, &results)?;
            shown.push(self.typed(value, output).alias(place(at)));
        }
        shown.extend(names.iter().map(|name| column_expr(name)));
        let mut keys = Vec::new();
        for key in &self.query.order {
            let value = self.scalars.lower(&key.expr, &results)?;
            keys.push(sorted(value, key.descending));
        }
        let plan = LogicalPlanBuilder::from(row.plan).project(shown)?;
        order(
            plan,
            self.with_ties(keys, |output| !output.expr.aggregates()),
        )
    }

    /// Groups by the row id of a variable, with the columns of the variable joined to the groups.
    fn grouped_by_rid(&self, row: Row, var: Var, aggregates: Vec<Df>) -> Result<Row> {
        let rid = self.names.unique("group");
        let key = row.expr(var, Field::Rid)?.alias(&rid);
        let plan = LogicalPlanBuilder::from(row.plan).aggregate(vec![key], aggregates)?;
        let groups = Row {
            selective: row.selective,
            ..Row::of(plan.build()?, [((var, Field::Rid), rid)].into())
        };
        self.hydrate(groups, var)
    }

    /// Rows that are groups already: the number of assignments under all `names`.
    fn counted(&self, row: Row, var: Var, names: &[String]) -> Result<Row> {
        let rid = self.names.unique("group");
        let mut shown = vec![row.expr(var, Field::Rid)?.alias(&rid)];
        let count = row.count.as_deref().map_or(lit(1i64), column_expr);
        shown.extend(names.iter().map(|name| count.clone().alias(name)));
        let plan = LogicalPlanBuilder::from(row.plan).project(shown)?;
        let groups = Row {
            selective: row.selective,
            ..Row::of(plan.build()?, [((var, Field::Rid), rid)].into())
        };
        self.hydrate(groups, var)
    }

    /// An aggregate over groups whose columns are added to `columns`.
    fn aggregate(&self, expr: &Expr, row: &Row, columns: &mut Vec<(String, Df)>) -> Result<Df> {
        let Expr::Aggregate {
            function,
            argument,
            distinct,
        } = expr
        else {
            return internal_err!("{expr:?} is not an aggregate");
        };
        let argument = argument.as_deref();
        let value = match argument {
            None => None,
            Some(Expr::Id(var)) if *function == Aggregate::Count => match distinct {
                false if row.name(*var, Field::Rid).is_none() => None,
                _ => Some(row.expr(*var, Field::Rid)?),
            },
            Some(argument) => Some(self.scalars.lower(argument, row)?),
        };
        let of = argument.and_then(|a| self.scalars.type_of(a)?.scalar());
        let mut add = |function: Arc<AggregateUDF>, value: Df, distinct: bool| {
            let name = self.names.unique("aggregate");
            columns.push((name.clone(), call(function, value, distinct)));
            column_expr(&name)
        };
        let count = row.count.as_deref().filter(|_| !distinct).map(column_expr);
        let Some(count) = count else {
            let (function, value) = unweighted(*function, value.unwrap_or(lit(1i64)), of);
            return Ok(add(function, value, *distinct));
        };
        // Rows of optional blocks multiply what was counted within 64 bits.
        let digits = DataType::Decimal128(SUM_DIGITS, 0);
        let present = match &value {
            Some(value) => when(value.clone().is_not_null(), count.clone()).end()?,
            None => count.clone(),
        };
        let present = match self.query.pattern.optionals.is_empty() {
            true => present,
            false => cast(present, digits.clone()),
        };
        let value = value.unwrap_or(lit(1i64));
        let real = DataType::Float64;
        Ok(match function {
            Aggregate::Count => {
                let rows = add(sum_udaf(), present, false);
                coalesce(vec![cast(rows, DataType::Int64), lit(0i64)])
            }
            Aggregate::Sum if of.is_some_and(Scalar::is_integer) => {
                let product = cast(value, digits.clone()) * cast(count, digits);
                add(sum_udaf(), product, false)
            }
            Aggregate::Sum => add(
                sum_udaf(),
                cast(value, real.clone()) * cast(count, real),
                false,
            ),
            Aggregate::Avg => {
                let product = cast(value, real.clone()) * cast(count, real.clone());
                let sum = add(sum_udaf(), product, false);
                let rows = add(sum_udaf(), present, false);
                sum / cast(rows, real)
            }
            Aggregate::Min => add(min_udaf(), value, false),
            Aggregate::Max => add(max_udaf(), value, false),
        })
    }

    /// How many of the first rows are wanted, if not all.
    pub(super) fn first_rows(&self) -> Result<Option<usize>> {
        let skip = self.count(self.query.skip.as_ref())?.unwrap_or(0);
        let fetch = self.count(self.query.limit.as_ref())?;
        Ok(fetch.map(|fetch| fetch.saturating_add(skip)))
    }

    /// A value in the declared type of its column; a sum that does not fit is an error there.
    fn typed(&self, value: Df, output: &Output) -> Df {
        cast(value, answer_type(&output.value_type))
    }

    fn count(&self, count: Option<&Count>) -> Result<Option<usize>> {
        let number = match count {
            None => return Ok(None),
            Some(Count::Literal(number)) => usize::try_from(*number).ok(),
            Some(Count::Param(at)) => match self.scalars.params.get(*at) {
                Some(Value::Int(number)) => usize::try_from(*number).ok(),
                _ => return plan_err!("a number of rows is an integer, not null"),
            },
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => plan_err!("a number of rows is not negative"),
        }
    }
}

/// The columns of a row, and result columns as what they are made of.
struct WithOutputs<'a> {
    lowering: &'a Lowering<'a>,
    row: &'a Row,
}

impl Columns for WithOutputs<'_> {
    fn column(&self, var: Var, field: Field) -> Result<Df> {
        self.row.expr(var, field)
    }

    fn result(&self, expr: &Expr) -> Result<Df> {
        match expr {
            Expr::Rank(_) => self.row.result(expr),
            Expr::Output(at) => match self.lowering.query.outputs.get(*at) {
                Some(output) => self.lowering.scalars.lower(&output.expr, self.row),
                None => internal_err!("there is no result column {at}"),
            },
            other => internal_err!("{other:?} in a query that does not group"),
        }
    }
}

/// Result columns and aggregates after a grouping.
#[derive(Default)]
struct Results {
    aggregates: Vec<(Expr, Df)>,
}

impl Columns for Results {
    fn column(&self, var: Var, field: Field) -> Result<Df> {
        internal_err!("variable {var} has no {field:?} after a grouping")
    }

    fn result(&self, expr: &Expr) -> Result<Df> {
        if let Expr::Output(at) = expr {
            return Ok(column_expr(&place(*at)));
        }
        match self.aggregates.iter().find(|(known, _)| known == expr) {
            Some((_, value)) => Ok(value.clone()),
            None => internal_err!("{expr:?} was not computed"),
        }
    }
}

/// The aggregates within an expression.
fn aggregates_in(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Aggregate { .. } => vec![expr],
        Expr::Compare(_, a, b)
        | Expr::HasItem(a, b)
        | Expr::HasText(a, b)
        | Expr::StartsWith(a, b) => [a, b].into_iter().flat_map(|e| aggregates_in(e)).collect(),
        Expr::And(all) | Expr::Or(all) => all.iter().flat_map(aggregates_in).collect(),
        Expr::Not(a) | Expr::IsNull(a) => aggregates_in(a),
        _ => Vec::new(),
    }
}

/// An aggregate of rows that are one assignment each, and its argument.
fn unweighted(function: Aggregate, value: Df, of: Option<Scalar>) -> (Arc<AggregateUDF>, Df) {
    let wide = matches!(of, Some(Scalar::I64 | Scalar::U64));
    match function {
        Aggregate::Count => (count_udaf(), value),
        // A sum in 64 bits would wrap.
        Aggregate::Sum if wide => {
            let digits = DataType::Decimal128(SUM_DIGITS, 0);
            (sum_udaf(), cast(value, digits))
        }
        Aggregate::Sum => (sum_udaf(), value),
        Aggregate::Avg => (avg_udaf(), cast(value, DataType::Float64)),
        Aggregate::Min => (min_udaf(), value),
        Aggregate::Max => (max_udaf(), value),
    }
}

fn named(columns: Vec<(String, Df)>) -> Vec<Df> {
    columns
        .into_iter()
        .map(|(name, value)| value.alias(&name))
        .collect()
}

fn call(function: Arc<AggregateUDF>, value: Df, distinct: bool) -> Df {
    let args = vec![value];
    Df::AggregateFunction(AggregateFunction::new_udf(
        function,
        args,
        distinct,
        None,
        Vec::new(),
        None,
    ))
}

/// Nulls come first ascending and last descending.
fn sorted(value: Df, descending: bool) -> SortExpr {
    value.sort(!descending, !descending)
}

fn order(plan: LogicalPlanBuilder, keys: Vec<SortExpr>) -> Result<LogicalPlanBuilder> {
    match keys.is_empty() {
        true => Ok(plan),
        false => plan.sort(keys),
    }
}

/// The column of a result by its place, while it is made.
fn place(at: usize) -> String {
    format!("out{at}")
}
