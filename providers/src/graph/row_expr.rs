//! Conditions of a mutation's statement over the columns of one table.

use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use datafusion::logical_expr::Expr as Df;
use stratagraph::graph::query::{End, Expr, Param, Var, Variable};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::value::Value;

use super::expr::Scalars;
use super::names::column_expr;
use super::row::{Columns, Field};

/// A column of the row that a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowColumn {
    /// Its id.
    Id,
    /// A property by id.
    Property(u64),
    /// The id at an end of an edge.
    End(End),
}

/// What the conditions of one statement are made of.
#[derive(Debug, Clone, Copy)]
pub struct RowExprs<'a> {
    /// The row.
    pub row: &'a Variable,
    /// Declared parameters.
    pub declared: &'a [Param],
    /// The schema of the graph.
    pub schema: &'a GraphSchema,
    /// Values of the parameters in their order.
    pub params: &'a [Value],
    /// When the call began, microseconds since 1970-01-01 UTC.
    pub now: i64,
}

impl RowExprs<'_> {
    /// A condition over the columns that `name` names.
    ///
    /// # Errors
    /// Those of a plan, for a column without a name.
    pub fn lower(&self, expr: &Expr, name: &dyn Fn(RowColumn) -> Option<String>) -> Result<Df> {
        let scalars = Scalars {
            variables: std::slice::from_ref(self.row),
            declared: self.declared,
            schema: self.schema,
            params: self.params,
            now: self.now,
        };
        scalars.lower(expr, &Named(name))
    }
}

/// Columns of one variable by their names.
struct Named<'a>(&'a dyn Fn(RowColumn) -> Option<String>);

impl Named<'_> {
    fn named(&self, column: RowColumn) -> Result<Df> {
        let name = (self.0)(column);
        let name = name.ok_or_else(|| plan_datafusion_err!("the row has no column {column:?}"))?;
        Ok(column_expr(&name))
    }
}

impl Columns for Named<'_> {
    fn column(&self, _: Var, field: Field) -> Result<Df> {
        match field {
            Field::Id => self.named(RowColumn::Id),
            Field::Property(id) => self.named(RowColumn::Property(id)),
            Field::Rid => Err(plan_datafusion_err!("a statement reads no row ids")),
        }
    }

    fn end(&self, _: Var, end: End) -> Result<Df> {
        self.named(RowColumn::End(end))
    }
}
