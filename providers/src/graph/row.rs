//! A plan whose rows are assignments of variables, and where each variable's columns are in it.

use std::collections::BTreeMap;

use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use stratagraph::graph::query::{self, End, Var};

use super::names::column_expr;

/// A column of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Field {
    /// The row id.
    Rid,
    /// The id.
    Id,
    /// A property by id.
    Property(u64),
}

/// A plan and what its columns are.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) plan: LogicalPlan,
    pub(super) columns: BTreeMap<(Var, Field), String>,
    /// Columns of searches and ranks.
    pub(super) scores: Vec<(query::Expr, String)>,
    /// Whether it begins with a node that is found by its key, so that it has few rows.
    pub(super) selective: bool,
    /// The column of how many assignments a row stands for, if it is not one.
    pub(super) count: Option<String>,
    /// The variable each of whose nodes has one row, if there is nothing else.
    pub(super) unique: Option<Var>,
}

impl Row {
    /// Rows of a plan with these columns of variables.
    pub(super) fn of(plan: LogicalPlan, columns: BTreeMap<(Var, Field), String>) -> Self {
        Self {
            plan,
            columns,
            scores: Vec::new(),
            selective: false,
            count: None,
            unique: None,
        }
    }

    /// The column's name, if the variable has it here.
    pub(super) fn name(&self, var: Var, field: Field) -> Option<&str> {
        self.columns.get(&(var, field)).map(String::as_str)
    }

    /// Whether there is a column for a search or a rank.
    pub(super) fn has_score(&self, expr: &query::Expr) -> bool {
        self.scores.iter().any(|(known, _)| known == expr)
    }

    /// Whether a variable is bound.
    pub(super) fn binds(&self, var: Var) -> bool {
        self.columns.contains_key(&(var, Field::Rid))
    }

    /// The column as an expression.
    pub(super) fn expr(&self, var: Var, field: Field) -> Result<Expr> {
        let name = self.name(var, field);
        name.map(column_expr)
            .ok_or_else(|| plan_datafusion_err!("variable {var} has no column {field:?} here"))
    }
}

/// Where an expression finds the columns of variables.
pub(super) trait Columns {
    /// The column of a variable.
    fn column(&self, var: Var, field: Field) -> Result<Expr>;

    /// The id at an end of an edge; only rows of a statement have it.
    fn end(&self, var: Var, end: End) -> Result<Expr> {
        plan_err!("variable {var} has no column {end:?} here")
    }

    /// What a result column or an aggregate is here, where there are any.
    fn result(&self, expr: &query::Expr) -> Result<Expr> {
        plan_err!("{expr:?} does not stand where rows are filtered")
    }
}

impl Columns for Row {
    fn column(&self, var: Var, field: Field) -> Result<Expr> {
        self.expr(var, field)
    }

    fn result(&self, expr: &query::Expr) -> Result<Expr> {
        match self.scores.iter().find(|(known, _)| known == expr) {
            Some((_, name)) => Ok(column_expr(name)),
            None => plan_err!("{expr:?} does not stand where rows are filtered"),
        }
    }
}

/// The columns of two rows that are joined: the first one that has it.
pub(super) struct Joined<'a>(pub(super) &'a Row, pub(super) &'a Row);

impl Columns for Joined<'_> {
    fn column(&self, var: Var, field: Field) -> Result<Expr> {
        match self.0.name(var, field) {
            Some(name) => Ok(column_expr(name)),
            None => self.1.expr(var, field),
        }
    }

    fn result(&self, expr: &query::Expr) -> Result<Expr> {
        match self.0.has_score(expr) {
            true => self.0.result(expr),
            false => self.1.result(expr),
        }
    }
}
