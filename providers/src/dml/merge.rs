//! `MERGE INTO` as a join whose rows say which clause takes them.

use std::collections::BTreeMap;

use datafusion::common::{Column, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{
    MergeIntoAction, MergeIntoClause, MergeIntoClauseKind, MergeIntoOp,
};
use datafusion::logical_expr::{Case, Expr, LogicalPlan, LogicalPlanBuilder, lit};

use super::lift::{Lift, has_subquery};
use super::{not_yet, refuse_key};
use crate::hooks::{MERGE_ACTION, MERGE_OLD, MergeAction, TableWrite};

/// Is true in the rows that the source has.
const SOURCE: &str = "__stratagraph_source";

/// The rows of a merge of `source` into the rows of `target`. Rows that no clause takes are left out.
pub(super) fn compile(
    op: &MergeIntoOp,
    source: LogicalPlan,
    target: LogicalPlan,
    key: &str,
) -> Result<(TableWrite, LogicalPlan)> {
    let columns = columns_of(&target);
    let nulls = nulls(&target)?;
    let mut actions = Vec::new();
    for clause in &op.clauses {
        actions.push(action(clause, key)?);
    }
    let (op, pairs) = pairs(op, source, target)?;
    let rows = taken(&op, pairs, find(&columns, key)?)?;
    let values = values(&op, &columns, &nulls);
    let old = find(&columns, key)?.clone();
    let mut shown = vec![name(MERGE_ACTION), old.alias(MERGE_OLD)];
    for (column, value) in columns.iter().zip(values) {
        shown.push(value.alias(column_name(column)));
    }
    let plan = LogicalPlanBuilder::from(rows).project(shown)?.build()?;
    Ok((TableWrite::Merge { actions }, plan))
}

fn name(column: &str) -> Expr {
    Expr::Column(Column::new_unqualified(column))
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().iter();
    columns
        .map(|field| Expr::Column(Column::from(field)))
        .collect()
}

/// A NULL of the type of each column.
fn nulls(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let fields = plan.schema().fields().iter();
    fields
        .map(|field| Ok(lit(ScalarValue::try_from(field.data_type())?)))
        .collect()
}

fn column_name(column: &Expr) -> &str {
    match column {
        Expr::Column(column) => &column.name,
        _ => "",
    }
}

fn find<'a>(columns: &'a [Expr], wanted: &str) -> Result<&'a Expr> {
    let found = columns.iter().find(|c| column_name(c) == wanted);
    found.ok_or_else(|| not_yet(format!("MERGE INTO a table without a column {wanted:?}")))
}

fn action(clause: &MergeIntoClause, key: &str) -> Result<MergeAction> {
    Ok(match &clause.action {
        MergeIntoAction::Delete => MergeAction::Delete,
        MergeIntoAction::Insert { .. } => MergeAction::Insert,
        MergeIntoAction::Update(values) => {
            let assigned: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
            refuse_key("MERGE INTO", &assigned, key)?;
            MergeAction::Update { assigned }
        }
    })
}

/// The pairs of a merge, with the rows of one side alone that a clause may take, and the merge without
/// subqueries.
fn pairs(
    op: &MergeIntoOp,
    source: LogicalPlan,
    target: LogicalPlan,
) -> Result<(MergeIntoOp, LogicalPlan)> {
    let by_source = |c: &MergeIntoClause| c.kind == MergeIntoClauseKind::NotMatchedBySource;
    let by_target = |c: &MergeIntoClause| c.kind.is_not_matched_by_target();
    let alone = (
        op.clauses.iter().any(by_source),
        op.clauses.iter().any(by_target),
    );
    let join = match alone {
        (false, false) => JoinType::Inner,
        (true, false) => JoinType::Left,
        (false, true) => JoinType::Right,
        (true, true) => JoinType::Full,
    };
    let mut marked = columns_of(&source);
    marked.push(lit(true).alias(SOURCE));
    let source = LogicalPlanBuilder::from(source).project(marked)?.build()?;
    let mut lift = Lift::default();
    let (source, on) = lift.lift(source, vec![op.on.clone()])?;
    let (target, on) = lift.lift(target, on)?;
    for on in &on {
        if has_subquery(on)? {
            let feature = "a subquery over both tables in ON of MERGE INTO (compute it in USING)";
            return Err(not_yet(feature.to_owned()));
        }
    }
    let rows = LogicalPlanBuilder::from(target)
        .join_on(source, join, on.clone())?
        .build()?;
    let others = op.exprs().into_iter().skip(1).cloned().collect();
    let (rows, others) = lift.lift(rows, others)?;
    let exprs = on.into_iter().chain(others).collect();
    Ok((op.with_new_exprs(exprs)?, rows))
}

/// The pairs and single rows that a clause takes, with the number of the clause.
fn taken(op: &MergeIntoOp, rows: LogicalPlan, id: &Expr) -> Result<LogicalPlan> {
    let mut shown = columns_of(&rows);
    let mut whens = Vec::new();
    for (at, clause) in op.clauses.iter().enumerate() {
        let (target, source) = (id.clone().is_not_null(), name(SOURCE).is_not_null());
        let there = match clause.kind.canonical() {
            MergeIntoClauseKind::Matched => target.and(source),
            MergeIntoClauseKind::NotMatchedBySource => target.and(name(SOURCE).is_null()),
            _ => id.clone().is_null().and(source),
        };
        let taken = match &clause.predicate {
            Some(predicate) => there.and(predicate.clone()),
            None => there,
        };
        whens.push((taken, number(at)));
    }
    shown.push(first_of(None, whens, None).alias(MERGE_ACTION));
    LogicalPlanBuilder::from(rows)
        .project(shown)?
        .filter(name(MERGE_ACTION).is_not_null())?
        .build()
}

fn number(at: usize) -> Expr {
    lit(i32::try_from(at).unwrap_or(i32::MAX))
}

fn first_of(of: Option<Expr>, whens: Vec<(Expr, Expr)>, other: Option<Expr>) -> Expr {
    let whens = whens.into_iter();
    Expr::Case(Case {
        expr: of.map(Box::new),
        when_then_expr: whens.map(|(w, t)| (Box::new(w), Box::new(t))).collect(),
        else_expr: other.map(Box::new),
    })
}

/// The value of each column of the target after the clause that takes the row.
fn values(op: &MergeIntoOp, columns: &[Expr], nulls: &[Expr]) -> Vec<Expr> {
    let mut of_clauses: Vec<(usize, Vec<Expr>)> = Vec::new();
    for (at, clause) in op.clauses.iter().enumerate() {
        match &clause.action {
            MergeIntoAction::Delete => {}
            MergeIntoAction::Update(values) => {
                let values: BTreeMap<&str, &Expr> =
                    values.iter().map(|(name, v)| (name.as_str(), v)).collect();
                let row = columns.iter();
                let row = row.map(|c| (*values.get(column_name(c)).unwrap_or(&c)).clone());
                of_clauses.push((at, row.collect()));
            }
            MergeIntoAction::Insert {
                columns: named,
                values,
            } => {
                let place = |column: &Expr| match named.is_empty() {
                    true => columns.iter().position(|c| c == column),
                    false => named.iter().position(|n| n == column_name(column)),
                };
                let row = columns.iter().zip(nulls);
                let row =
                    row.map(|(c, null)| place(c).and_then(|at| values.get(at)).unwrap_or(null));
                of_clauses.push((at, row.cloned().collect()));
            }
        }
    }
    let column = |(at, column): (usize, &Expr)| {
        let whens = of_clauses.iter();
        let whens: Vec<_> = whens
            .map(|(n, row)| (number(*n), row[at].clone()))
            .collect();
        match whens.iter().all(|(_, value)| value == column) {
            true => column.clone(),
            false => first_of(Some(name(MERGE_ACTION)), whens, Some(column.clone())),
        }
    };
    columns.iter().enumerate().map(column).collect()
}
