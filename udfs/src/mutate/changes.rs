//! What the statements of a call have made of the rows of one type.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use stratagraph::Result;
use stratagraph::graph::schema::GraphType;

use crate::load::{TypeChanges, rows_schema};

/// Written rows and deleted ids. Both hide stored rows of the same ids.
pub(super) struct Changes {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The newest row of each id: its batch and its place there.
    rows: BTreeMap<String, (usize, usize)>,
    gone: BTreeSet<String>,
    /// Whether a stored row may have the id of a written one.
    given: bool,
}

impl Changes {
    pub(super) fn new(of: &GraphType) -> Self {
        Self {
            schema: rows_schema(of),
            batches: Vec::new(),
            rows: BTreeMap::new(),
            gone: BTreeSet::new(),
            given: false,
        }
    }

    /// Adds rows in the columns of [`rows_schema`]; `fresh` if their ids were made for them.
    pub(super) fn write(&mut self, batch: &RecordBatch, fresh: bool) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec())?;
        let at = self.batches.len();
        for (row, id) in batch.column(1).as_string::<i32>().iter().enumerate() {
            if let Some(id) = id {
                self.rows.insert(id.to_owned(), (at, row));
            }
        }
        self.batches.push(batch);
        self.given |= !fresh;
        Ok(())
    }

    pub(super) fn delete(&mut self, id: &str) {
        self.rows.remove(id);
        self.gone.insert(id.to_owned());
    }

    /// Whether the stored row of an id is no longer what the call sees.
    pub(super) fn hides(&self, id: &str) -> bool {
        self.rows.contains_key(id) || self.gone.contains(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.gone.is_empty()
    }

    /// The written rows in the order of their ids; `None` without any.
    pub(super) fn rows(&self) -> Result<Option<RecordBatch>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let places: Vec<(usize, usize)> = self.rows.values().copied().collect();
        Ok(Some(interleave_record_batch(&batches, &places)?))
    }

    pub(super) fn finish(mut self) -> Result<TypeChanges> {
        let rows = self.rows()?;
        self.gone.retain(|id| !self.rows.contains_key(id));
        Ok(TypeChanges {
            rows,
            given: self.given,
            gone: self.gone,
        })
    }
}
