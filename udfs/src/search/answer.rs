//! The rows of an answer: the table's columns, then scores and ranks.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use stratagraph::Result;
use stratagraph::search::{RowAt, take};

use super::target::Target;

/// Columns of an answer beside the table's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scores(pub(crate) &'static [(&'static str, DataType, bool)]);

impl Scores {
    /// The columns of an answer over a table.
    pub(crate) fn schema(self, table: &Schema) -> SchemaRef {
        let own = table.fields().iter().map(|f| f.as_ref().clone());
        let scores = self.0.iter();
        let scores = scores
            .map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable));
        Arc::new(Schema::new(own.chain(scores).collect::<Vec<_>>()))
    }
}

impl Target {
    /// The rows of an answer in the given order, with `scores` in the columns after them.
    pub(crate) async fn rows(
        &self,
        rows: &[RowAt],
        scores: Vec<ArrayRef>,
        schema: Scores,
    ) -> Result<RecordBatch> {
        let ids: Vec<u64> = self.columns.iter().map(|c| c.id).collect();
        let stored = take(&self.reader(), rows, &ids).await?;
        let mut columns = Vec::with_capacity(ids.len() + scores.len());
        for (array, column) in stored.columns().iter().zip(&self.columns) {
            columns.push(cast(array, column.field.data_type())?);
        }
        columns.extend(scores);
        Ok(RecordBatch::try_new(schema.schema(&self.schema), columns)?)
    }
}
