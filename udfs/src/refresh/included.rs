//! Source columns that ride along in the fragments, outside the content hash.
//!
//! A row's *mark* is the content hash over its content hash and its included columns: where only the
//! mark differs, the row is changed and its vector is not.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeBinaryArray, new_empty_array};
use arrow::compute::cast;
use arrow::datatypes::Field;
use stratagraph::embed::{content_hash, render};
use stratagraph::table::manifest::SchemaVersion;
use stratagraph::table::schema::{arrow_field, id, stored_type};
use stratagraph::{Error, Result};

/// The included columns of a table, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Included {
    /// Name and stored type; each may be NULL.
    pub(crate) fields: Vec<Field>,
}

impl Included {
    /// Columns of a source.
    ///
    /// # Errors
    /// `NotYetSupported` for a type without a stored form, `InvalidArgument` for one without a text.
    pub(crate) fn of_source<'a>(columns: impl Iterator<Item = &'a Field>) -> Result<Self> {
        let field = |column: &Field| {
            let stored = stored_type(column.data_type())?;
            render(&new_empty_array(&stored))?;
            Ok(Field::new(column.name(), stored, true))
        };
        let fields = columns.map(field).collect::<Result<_>>()?;
        Ok(Self { fields })
    }

    /// Those of a table.
    pub(crate) fn of_table(schema: &SchemaVersion) -> Result<Self> {
        let columns = schema.columns.iter().filter(|c| c.id >= id::FIRST_USER);
        let fields = columns.map(arrow_field).collect::<Result<_>>()?;
        Ok(Self { fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Columns of a source in their stored form.
    pub(crate) fn stored(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let pairs = self.fields.iter().zip(columns);
        pairs
            .map(|(field, column)| Ok(cast(column, field.data_type())?))
            .collect()
    }

    /// The marks of rows with these content hashes and stored columns.
    pub(crate) fn marks(
        &self,
        hashes: &FixedSizeBinaryArray,
        stored: &[ArrayRef],
    ) -> Result<FixedSizeBinaryArray> {
        let hashes: ArrayRef = Arc::new(hashes.clone());
        let mut columns = vec![hashes];
        for column in stored {
            columns.push(render(column)?);
        }
        content_hash(&columns)
    }

    /// The same, as SQL over the columns of a table.
    pub(crate) fn marks_sql(&self) -> String {
        let quoted = |f: &Field| format!(", \"{}\"", f.name().replace('"', "\"\""));
        let columns: String = self.fields.iter().map(quoted).collect();
        format!("content_hash(_content_hash{columns})")
    }
}

/// The included columns of a batch, or an error that says what is wrong with it.
pub(crate) fn column(columns: &[ArrayRef], at: usize) -> Result<&ArrayRef> {
    columns.get(at).ok_or_else(|| Error::TaskFailed {
        operation: "included columns",
        source: format!("a batch of {} columns has none at {at}", columns.len()).into(),
    })
}
