//! The `filter` argument of a search: a predicate in the host's SQL, over the columns of the version
//! that is searched.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{DFSchema, tree_node::TreeNode};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_plan::PhysicalExpr;
use futures::TryStreamExt;
use stratagraph::Result;
use stratagraph::search::{Allowed, Positions, add_positions};
use stratagraph::table::read::ReadOptions;
use stratagraph::table::schema::id;
use stratagraph_providers::{PlannedColumn, from_datafusion};

use super::target::Target;

impl Target {
    /// Whether a predicate may use a column: not the system columns of an embedding table, beside the key.
    fn is_usable(&self, column: &PlannedColumn) -> bool {
        self.graph_type().is_some() || column.id == id::ROW_ID || column.id >= id::FIRST_USER
    }

    /// Parses a predicate. Whatever is no predicate over the table's columns is `InvalidArgument`, with
    /// DataFusion's words.
    fn parse(&self, text: &str) -> Result<Expr> {
        let invalid = |reason: String| self.invalid("filter", reason);
        let usable = self.columns.iter().filter(|column| self.is_usable(column));
        let usable: Vec<_> = usable.map(|column| Arc::clone(&column.field)).collect();
        let schema = DFSchema::try_from(Schema::new(usable)).map_err(from_datafusion)?;
        let parsed = self.run.host.state().create_logical_expr(text, &schema);
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
            let reason = "subqueries, aggregates, windows and parameters are not allowed";
            return Err(invalid(reason.to_owned()));
        }
        let of = expr.get_type(&schema);
        match of.map_err(|e| invalid(e.strip_backtrace()))? {
            DataType::Boolean | DataType::Null => Ok(expr),
            other => Err(invalid(format!(
                "expected a predicate, not a value of type {other}"
            ))),
        }
    }

    /// The rows that a predicate takes: only its own columns are read.
    pub(crate) async fn allowed(&self, filter: Option<&str>) -> Result<Allowed> {
        let Some(text) = filter else {
            return Ok(Allowed::All);
        };
        let expr = self.parse(text)?;
        let named = expr.column_refs();
        let is_named = |c: &&PlannedColumn| named.iter().any(|n| n.name == *c.field.name());
        let columns: Vec<&PlannedColumn> = self.columns.iter().filter(is_named).collect();
        let fields: Vec<_> = columns.iter().map(|c| Arc::clone(&c.field)).collect();
        let schema = Arc::new(Schema::new(fields));
        let typed = DFSchema::try_from(Arc::clone(&schema)).map_err(from_datafusion)?;
        let physical = self.run.host.state().create_physical_expr(expr, &typed);
        let physical = physical.map_err(|e| self.invalid("filter", e.strip_backtrace()))?;
        let ids: Vec<u64> = columns.iter().map(|c| c.id).collect();
        let options = ReadOptions::columns(&ids).with_positions();
        let (reader, mut taken) = (self.reader(), Positions::new());
        for entry in reader.entries().await?.iter() {
            let mut rows = reader.fragment_stream(entry, &options).await?;
            while let Some(batch) = rows.try_next().await? {
                add_positions(&mut taken, &kept(&batch, &schema, physical.as_ref())?)?;
            }
        }
        Ok(Allowed::Rows(taken))
    }
}

/// The rows of a batch for which a predicate is true.
fn kept(
    batch: &RecordBatch,
    schema: &SchemaRef,
    predicate: &dyn PhysicalExpr,
) -> Result<RecordBatch> {
    let typed = schema.fields().iter().zip(batch.columns());
    let typed = typed.map(|(field, array)| cast(array, field.data_type()));
    let typed = typed.collect::<Result<Vec<ArrayRef>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let typed = RecordBatch::try_new_with_options(Arc::clone(schema), typed, &options)?;
    let value = predicate.evaluate(&typed).map_err(from_datafusion)?;
    let value = value
        .into_array(batch.num_rows())
        .map_err(from_datafusion)?;
    let value = cast(&value, &DataType::Boolean)?;
    let holds = as_boolean_array(&value).map_err(from_datafusion)?;
    let holds = |row: &u32| holds.is_valid(*row as usize) && holds.value(*row as usize);
    let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    let rows = UInt32Array::from_iter_values((0..rows).filter(holds));
    Ok(take_record_batch(batch, &rows)?)
}
