//! Rows as a statement sees them: those of the state, under what the statements before it made.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr as Df, lit};
use datafusion::prelude::DataFrame;
use stratagraph::graph::query::{End, Expr, Variable};
use stratagraph::graph::schema::GraphType;
use stratagraph::{Error, Result};
use stratagraph_providers::{RowColumn, RowExprs, VersionedTableProvider, from_datafusion};

use super::Evaluation;
use crate::host::Joins;
use crate::load::rows_schema;

/// Bytes of a row, about, where nothing is known of it.
const ROW_BYTES: usize = 64;

/// Which rows.
pub(super) enum Wanted<'a> {
    /// Those for which a condition holds.
    Condition(&'a Variable, &'a Expr),
    /// The one of an id.
    Id(&'a str),
    /// Edges with one of these nodes at one of these ends.
    Ends(&'a [End], &'a [String]),
}

/// Names of the columns of a relation.
type Namer<'n> = dyn Fn(RowColumn) -> Option<String> + Sync + 'n;

fn column(name: &str) -> Df {
    Df::Column(Column::new_unqualified(name))
}

fn stored_name(of: &GraphType, wanted: RowColumn) -> Option<String> {
    Some(match wanted {
        RowColumn::Id => "id".to_owned(),
        RowColumn::End(End::From) => "src".to_owned(),
        RowColumn::End(End::To) => "dst".to_owned(),
        RowColumn::Property(id) => of.property_by_id(id)?.name.clone(),
    })
}

fn written_name(of: &GraphType, wanted: RowColumn) -> Option<String> {
    Some(match wanted {
        RowColumn::Id => "k".to_owned(),
        RowColumn::End(End::From) => "s".to_owned(),
        RowColumn::End(End::To) => "d".to_owned(),
        RowColumn::Property(id) => {
            let at = of.properties.iter().position(|p| p.id == id)?;
            format!("p{at}")
        }
    })
}

/// All columns of a row but its record number, in the order of [`rows_schema`].
fn row_columns(of: &GraphType) -> Vec<RowColumn> {
    let ends = [End::From, End::To].into_iter().filter(|_| of.is_edge());
    let ends = ends.map(RowColumn::End);
    let properties = of.properties.iter().map(|p| RowColumn::Property(p.id));
    std::iter::once(RowColumn::Id)
        .chain(ends)
        .chain(properties)
        .collect()
}

impl Evaluation<'_> {
    /// The rows of a type that are wanted, whole, in the columns of [`rows_schema`], by id.
    pub(super) async fn rows(&self, of: &GraphType, wanted: &Wanted<'_>) -> Result<RecordBatch> {
        self.read(of, wanted, &row_columns(of)).await
    }

    /// Their ids.
    pub(super) async fn ids(&self, of: &GraphType, wanted: &Wanted<'_>) -> Result<Vec<String>> {
        let rows = self.read(of, wanted, &[RowColumn::Id]).await?;
        let ids = rows.column(1).as_string::<i32>().iter().flatten();
        Ok(ids.map(str::to_owned).collect())
    }

    async fn read(
        &self,
        of: &GraphType,
        wanted: &Wanted<'_>,
        columns: &[RowColumn],
    ) -> Result<RecordBatch> {
        let whole = rows_schema(of);
        let fields = whole.fields().iter().take(columns.len() + 1).cloned();
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut found = self.stored(of, wanted, columns, &schema).await?;
        found.extend(self.written(of, wanted, columns, &schema).await?);
        for column in 0..schema.fields().len() {
            check_text(&found, column)?;
        }
        let rows = concat_batches(&schema, &found)?;
        let order = arrow::compute::sort_to_indices(rows.column(1), None, None)?;
        Ok(arrow::compute::take_record_batch(&rows, &order)?)
    }

    /// Stored rows that no statement has touched.
    async fn stored(
        &self,
        of: &GraphType,
        wanted: &Wanted<'_>,
        columns: &[RowColumn],
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let table = self.base.table(self.run.catalog().store(), of.id).await?;
        if table.table.live_rows == 0 {
            return Ok(Vec::new());
        }
        let metadata = Arc::clone(&self.run.engine.metadata);
        let pin = Arc::clone(self.run.pin());
        let table = VersionedTableProvider::of_type(metadata, self.base, of, pin).await?;
        let context = self.run.host.private(Joins::Hash, ROW_BYTES);
        let frame = context.read_table(Arc::new(table));
        let frame = frame.map_err(from_datafusion)?;
        let names = |column| stored_name(of, column);
        let found = self.select(frame, wanted, columns, &names, schema).await?;
        let changes = self.changes.get(&of.id);
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
            return Ok(found);
        };
        let seen = |batch: &RecordBatch| {
            let ids = batch.column(1).as_string::<i32>().iter();
            let seen = ids.map(|id| id.map(|id| !changes.hides(id)));
            Ok(filter_record_batch(batch, &BooleanArray::from_iter(seen))?)
        };
        found.iter().map(seen).collect()
    }

    /// Rows that statements have written.
    async fn written(
        &self,
        of: &GraphType,
        wanted: &Wanted<'_>,
        columns: &[RowColumn],
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let rows = match self.changes.get(&of.id) {
            Some(changes) => changes.rows()?,
            None => None,
        };
        let Some(rows) = rows else {
            return Ok(Vec::new());
        };
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).map_err(from_datafusion)?;
        let context = self.run.host.private(Joins::Hash, ROW_BYTES);
        let frame = context.read_table(Arc::new(table));
        let frame = frame.map_err(from_datafusion)?;
        let names = |column| written_name(of, column);
        self.select(frame, wanted, columns, &names, schema).await
    }

    async fn select(
        &self,
        frame: DataFrame,
        wanted: &Wanted<'_>,
        columns: &[RowColumn],
        names: &Namer<'_>,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let condition = self.condition(wanted, names)?;
        let shown = columns.iter().filter_map(|of| names(*of));
        let shown: Vec<Df> = shown.map(|name| column(&name)).collect();
        let frame = frame.filter(condition).and_then(|f| f.select(shown));
        let frame = frame.map_err(from_datafusion)?;
        let batches = frame.collect().await.map_err(from_datafusion)?;
        let with_record = |batch: RecordBatch| {
            let mut all: Vec<ArrayRef> = vec![new_null_array(&DataType::UInt64, batch.num_rows())];
            for (column, field) in batch.columns().iter().zip(schema.fields().iter().skip(1)) {
                all.push(cast(column, field.data_type())?);
            }
            Ok(RecordBatch::try_new(Arc::clone(schema), all)?)
        };
        batches.into_iter().map(with_record).collect()
    }

    fn condition(&self, wanted: &Wanted<'_>, names: &Namer<'_>) -> Result<Df> {
        let named = |of| names(of).map(|name| column(&name));
        let texts = |ids: &[String]| ids.iter().map(|id| lit(id.as_str())).collect::<Vec<_>>();
        match wanted {
            Wanted::Condition(row, condition) => {
                let exprs = RowExprs {
                    row,
                    declared: &self.call.mutation.params,
                    schema: &self.base.schema,
                    params: self.call.params,
                    now: self.call.now,
                };
                exprs.lower(condition, &names).map_err(from_datafusion)
            }
            Wanted::Id(id) => {
                let found = named(RowColumn::Id).map(|of| of.eq(lit(*id)));
                Ok(found.unwrap_or_else(|| lit(false)))
            }
            Wanted::Ends(ends, ids) => {
                let ends = ends.iter().filter_map(|end| named(RowColumn::End(*end)));
                let any = ends.map(|end| end.in_list(texts(ids), false));
                Ok(any.reduce(Df::or).unwrap_or_else(|| lit(false)))
            }
        }
    }
}

/// Refuses texts of a column that do not fit one array.
fn check_text(rows: &[RecordBatch], column: usize) -> Result<()> {
    let bytes = |batch: &RecordBatch| {
        let texts = batch.column(column).as_string_opt::<i32>()?;
        let offsets = texts.value_offsets();
        Some(offsets.last()?.abs_diff(*offsets.first()?))
    };
    let value: u64 = rows.iter().filter_map(bytes).map(u64::from).sum();
    let limit = i32::MAX as u64;
    match value <= limit {
        true => Ok(()),
        false => Err(Error::ResourceLimitExceeded {
            what: "bytes of one column of the rows that a statement changes",
            value,
            limit,
        }),
    }
}
