//! The `filter` argument of a search: a predicate in the host's SQL, over the columns of the version
//! that is searched.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, tree_node::TreeNode};
use datafusion::logical_expr::{Expr, ExprSchemable};
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::table::schema::id;
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use crate::host::Host;

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: "search".to_owned(),
        argument: "filter".to_owned(),
        reason: reason.into(),
    }
}

/// The columns that a filter may use: the key and the included ones, as plans see them.
fn columns(table: &TableSnapshot) -> Result<Schema> {
    let missing = || {
        let name = table.name.as_str();
        Error::corrupt("table manifest", name, "a schema", "none")
    };
    let schema = table.table.current_schema().ok_or_else(missing)?;
    let usable = schema
        .columns
        .iter()
        .filter(|c| c.id == id::ROW_ID || c.id >= id::FIRST_USER);
    let field = |column| {
        let field = stratagraph::table::schema::arrow_field(column)?;
        let data_type = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            other => other.clone(),
        };
        Ok(Field::new(field.name(), data_type, field.is_nullable()))
    };
    Ok(Schema::new(usable.map(field).collect::<Result<Vec<_>>>()?))
}

/// Parses a predicate. Whatever is no predicate over these columns is `InvalidArgument`, with
/// DataFusion's words.
pub(crate) fn parse(host: &Host, table: &TableSnapshot, text: &str) -> Result<Expr> {
    let schema = DFSchema::try_from(columns(table)?).map_err(from_datafusion)?;
    let parsed = host.state().create_logical_expr(text, &schema);
    let expr = parsed.map_err(|e| invalid(e.strip_backtrace()))?;
    let foreign = expr.exists(|node| {
        Ok(matches!(
            node,
            Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::Placeholder(_)
                | Expr::OuterReferenceColumn(_, _)
                | Expr::Unnest(_)
        ))
    });
    if foreign.map_err(from_datafusion)? {
        return Err(invalid(
            "subqueries, aggregates, windows and parameters are not allowed",
        ));
    }
    match expr
        .get_type(&schema)
        .map_err(|e| invalid(e.strip_backtrace()))?
    {
        DataType::Boolean | DataType::Null => Ok(expr),
        other => Err(invalid(format!(
            "expected a predicate, not a value of type {other}"
        ))),
    }
}
