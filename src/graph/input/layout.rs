//! The columns of a batch of records of one type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;

use crate::graph::schema::GraphType;
use crate::{Error, Result};

/// Name of the column of record numbers.
pub const RECORD: &str = "_record";

/// Columns of a batch: `_record UInt64`, `id Utf8`, for edges `src Utf8` and `dst Utf8`, then the
/// properties in the order of the schema. Properties and `id` may be null.
///
/// Columns go by position: a property may be called `id` too.
pub fn input_schema(graph_type: &GraphType) -> SchemaRef {
    let mut fields = vec![
        Field::new(RECORD, DataType::UInt64, false),
        Field::new("id", DataType::Utf8, true),
    ];
    if graph_type.is_edge() {
        fields.push(Field::new("src", DataType::Utf8, false));
        fields.push(Field::new("dst", DataType::Utf8, false));
    }
    fields.extend(
        graph_type
            .properties
            .iter()
            .map(|property| Field::new(&property.name, property.value_type.arrow(), true)),
    );
    Arc::new(Schema::new(fields))
}

/// Columns before the properties.
pub fn property_offset(graph_type: &GraphType) -> usize {
    if graph_type.is_edge() { 4 } else { 2 }
}

/// Whether two types are the same but for nulls among items, which a rule finds.
fn same(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::List(a), DataType::List(b)) => a.data_type() == b.data_type(),
        (DataType::FixedSizeList(a, width), DataType::FixedSizeList(b, other)) => {
            width == other && a.data_type() == b.data_type()
        }
        _ => a == b,
    }
}

/// A batch that is known to have these columns.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    pub graph_type: &'a GraphType,
    pub records: &'a UInt64Array,
    pub ids: &'a StringArray,
    pub properties: &'a [ArrayRef],
}

impl<'a> Rows<'a> {
    pub fn new(graph_type: &'a GraphType, batch: &'a RecordBatch) -> Result<Self> {
        let expected = input_schema(graph_type);
        let found = batch.schema();
        let wrong = || Error::InvalidArgument {
            function: "graph_load".to_owned(),
            argument: "batch".to_owned(),
            reason: format!(
                "the columns of type {} are {}, not {}",
                graph_type.name, expected, found
            ),
        };
        let pairs = expected.fields().iter().zip(found.fields());
        let mut pairs = pairs.map(|(a, b)| (a.data_type(), b.data_type()));
        if expected.fields().len() != found.fields().len() || !pairs.all(|(a, b)| same(a, b)) {
            return Err(wrong());
        }
        let columns = batch.columns();
        Ok(Self {
            graph_type,
            records: columns[0]
                .as_primitive_opt::<UInt64Type>()
                .ok_or_else(wrong)?,
            ids: columns[1].as_string_opt().ok_or_else(wrong)?,
            properties: &columns[property_offset(graph_type)..],
        })
    }

    /// The id of a row, or empty.
    pub fn id(&self, row: usize) -> &'a str {
        if self.ids.is_valid(row) {
            self.ids.value(row)
        } else {
            ""
        }
    }

    /// The column of a property.
    pub fn property(&self, id: u64) -> Option<(usize, &'a ArrayRef)> {
        let at = self.graph_type.properties.iter().position(|p| p.id == id)?;
        Some((at, &self.properties[at]))
    }
}
