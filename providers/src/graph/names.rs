//! Names of the columns inside a lowered pattern: readable, and each once in the whole plan, because
//! filters are matched to traversals by name.

use std::cell::RefCell;
use std::collections::HashSet;

use datafusion::common::Column;
use datafusion::logical_expr::Expr;

/// Gives names.
#[derive(Debug, Default)]
pub(super) struct Names(RefCell<HashSet<String>>);

impl Names {
    /// `wanted`, or `wanted#n` if it is taken.
    pub(super) fn unique(&self, wanted: &str) -> String {
        let mut taken = self.0.borrow_mut();
        let mut name = wanted.to_owned();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}#{number}");
        }
        name
    }
}

/// A column by its exact name.
pub(super) fn column(name: &str) -> Column {
    Column::new_unqualified(name)
}

/// The same as an expression.
pub(super) fn column_expr(name: &str) -> Expr {
    Expr::Column(column(name))
}
