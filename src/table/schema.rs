//! Columns of versioned tables: system columns, properties and Arrow schemas.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use super::manifest::{Column, Layout, SchemaVersion};
pub use super::types::{parse_type, stored_type, type_text};
use crate::{Error, Result, limits};

/// Reserved property ids of system columns; a Parquet field id is an i32, so ids stay below 2^31.
pub mod id {
    /// `_row_id` of an embedding table.
    pub const ROW_ID: u64 = 1;
    /// `_source_id` of an embedding table.
    pub const SOURCE_ID: u64 = 2;
    /// `_model_id` of an embedding table.
    pub const MODEL_ID: u64 = 3;
    /// `vector` of an embedding table.
    pub const VECTOR: u64 = 4;
    /// `_content_hash` of an embedding table.
    pub const CONTENT_HASH: u64 = 5;
    /// `_dead_through_version` of a mask delta.
    pub const DEAD_THROUGH: u64 = 6;
    /// `reason` of a ledger delta.
    pub const REASON: u64 = 7;
    /// `_rid` of a node or an edge.
    pub const RID: u64 = 8;
    /// `id` of a node or an edge.
    pub const ID: u64 = 9;
    /// `src` of an edge.
    pub const SRC: u64 = 10;
    /// `dst` of an edge.
    pub const DST: u64 = 11;
    /// `_src_rid` of an edge.
    pub const SRC_RID: u64 = 12;
    /// `_dst_rid` of an edge.
    pub const DST_RID: u64 = 13;
    /// The first id that a property or an included column may have.
    pub const FIRST_USER: u64 = 16;
    /// The last id.
    pub const LAST: u64 = i32::MAX as u64;
}

/// Bytes of a column name.
const COLUMN_NAME_BYTES: usize = 1024;
/// The column that holds the key: unique among live rows, and what lookups search.
pub fn key_column(layout: Layout) -> u64 {
    match layout {
        Layout::Embedding | Layout::Neighbors => id::ROW_ID,
        Layout::Node | Layout::Edge => id::ID,
    }
}

/// The columns that rows are sorted by, most significant first.
pub fn sort_columns(layout: Layout) -> &'static [u64] {
    match layout {
        Layout::Embedding | Layout::Neighbors => &[id::ROW_ID],
        Layout::Node => &[id::ID],
        Layout::Edge => &[id::SRC_RID, id::DST_RID, id::ID],
    }
}

fn column(id: u64, name: &str, data_type: &str, nullable: bool) -> Column {
    Column {
        id,
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        nullable,
    }
}

/// The schema of an embedding table of width `dimensions` with the included source columns, whose
/// property ids count up from [`id::FIRST_USER`] in the given order.
///
/// # Errors
/// `ResourceLimitExceeded` for a width or a number of columns, `InvalidArgument` for a name that is
/// taken twice, `NotYetSupported` for a type without a stored form.
pub fn embedding_schema(dimensions: usize, included: &[Field]) -> Result<SchemaVersion> {
    limit("dimensions", dimensions, limits::DIMENSIONS)?;
    if dimensions == 0 {
        return Err(invalid("dimensions", "a vector has at least one dimension"));
    }
    let mut columns = system_columns(Layout::Embedding);
    if let Some(vector) = columns.iter_mut().find(|c| c.id == id::VECTOR) {
        vector.data_type = format!("fixed_size_list<float32,{dimensions}>");
    }
    for (next, field) in (id::FIRST_USER..).zip(included) {
        let text = type_text(field.data_type())?;
        columns.push(column(next, field.name(), &text, field.is_nullable()));
    }
    finish(Layout::Embedding, 0, columns)
}

/// The schema of a node or edge type: system columns, then its properties.
///
/// # Errors
/// As [`embedding_schema`]; `InvalidArgument` also for a property id below [`id::FIRST_USER`].
pub fn graph_schema(layout: Layout, id: u64, properties: &[Column]) -> Result<SchemaVersion> {
    let mut columns = system_columns(layout);
    columns.extend(properties.iter().cloned());
    finish(layout, id, columns)
}

/// The schema of a neighbour graph: the rows of a key, best first.
///
/// # Errors
/// None: the columns are fixed.
pub fn neighbors_schema() -> Result<SchemaVersion> {
    let mut columns = system_columns(Layout::Neighbors);
    let own = [
        ("neighbor_id", "utf8"),
        ("similarity", "float32"),
        ("rank", "int64"),
    ];
    let own = (id::FIRST_USER..).zip(own);
    columns.extend(own.map(|(id, (name, data_type))| column(id, name, data_type, false)));
    finish(Layout::Neighbors, 0, columns)
}

fn finish(layout: Layout, id: u64, columns: Vec<Column>) -> Result<SchemaVersion> {
    let schema = SchemaVersion { id, columns };
    match check(layout, &schema) {
        Ok(()) => Ok(schema),
        Err(Problem::Limit(error)) => Err(error),
        Err(Problem::Wrong(column, reason)) => Err(invalid(&column, reason)),
    }
}

/// System columns of a layout in file order. The width of `vector` is the table's own.
fn system_columns(layout: Layout) -> Vec<Column> {
    match layout {
        Layout::Embedding => vec![
            column(id::ROW_ID, "_row_id", "utf8", false),
            column(id::SOURCE_ID, "_source_id", "utf8", false),
            column(id::MODEL_ID, "_model_id", "utf8", true),
            column(id::VECTOR, "vector", "fixed_size_list<float32,1>", false),
            column(
                id::CONTENT_HASH,
                "_content_hash",
                "fixed_size_binary<32>",
                true,
            ),
        ],
        Layout::Neighbors => vec![column(id::ROW_ID, "_row_id", "utf8", false)],
        Layout::Node => vec![
            column(id::RID, "_rid", "uint64", false),
            column(id::ID, "id", "utf8", false),
        ],
        Layout::Edge => vec![
            column(id::RID, "_rid", "uint64", false),
            column(id::ID, "id", "utf8", false),
            column(id::SRC, "src", "utf8", false),
            column(id::DST, "dst", "utf8", false),
            column(id::SRC_RID, "_src_rid", "uint64", false),
            column(id::DST_RID, "_dst_rid", "uint64", false),
        ],
    }
}

enum Problem {
    Limit(Error),
    Wrong(String, &'static str),
}

/// Checks a schema that came from a manifest.
///
/// # Errors
/// `Corrupt` for a schema that this module would not have made.
pub(crate) fn check_stored(
    layout: Layout,
    schema: &SchemaVersion,
    artifact_path: &str,
) -> Result<()> {
    check(layout, schema).map_err(|problem| match problem {
        Problem::Limit(error) => error,
        Problem::Wrong(column, reason) => {
            let found = format!("schema {} with column {column:?}", schema.id);
            Error::corrupt("schema", artifact_path, reason, found)
        }
    })
}

fn check(layout: Layout, schema: &SchemaVersion) -> Result<(), Problem> {
    let wrong = |c: &Column, reason| Err(Problem::Wrong(c.name.clone(), reason));
    limit("columns", schema.columns.len(), limits::COLUMNS).map_err(Problem::Limit)?;
    let system = system_columns(layout);
    if schema.columns.len() < system.len() {
        return Err(Problem::Wrong(
            String::new(),
            "all system columns of the layout",
        ));
    }
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (i, c) in schema.columns.iter().enumerate() {
        let data_type = parse_type(&c.data_type);
        match system.get(i) {
            Some(s) if s.id == id::VECTOR => {
                let vector = matches!(&data_type, Some(DataType::FixedSizeList(f, _))
                    if *f.data_type() == DataType::Float32 && !f.is_nullable());
                if (c.id, c.name.as_str(), c.nullable) != (s.id, "vector", false) || !vector {
                    return wrong(c, "a vector column of the layout");
                }
            }
            Some(s) if s != c => return wrong(c, "the system columns of the layout first"),
            Some(_) => {}
            None if !(id::FIRST_USER..=id::LAST).contains(&c.id) => {
                return wrong(c, "a property id from 16 to 2147483647");
            }
            None => {}
        }
        if data_type.is_none() {
            return wrong(c, "a known data type");
        }
        if c.name.is_empty() || c.name.len() > COLUMN_NAME_BYTES {
            return wrong(c, "a column name of 1-1024 bytes");
        }
        if !ids.insert(c.id) || !names.insert(c.name.as_str()) {
            return wrong(c, "every column name and property id once");
        }
    }
    Ok(())
}

/// The Arrow schema of a fragment: columns in file order, each with its property id as Parquet field
/// id, no other metadata.
///
/// # Errors
/// `Corrupt` for a type that this build does not know.
pub fn arrow_schema(schema: &SchemaVersion) -> Result<SchemaRef> {
    let fields = schema.columns.iter().map(arrow_field);
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// The Arrow field of a column, with its property id.
pub fn arrow_field(column: &Column) -> Result<Field> {
    let data_type = parse_type(&column.data_type).ok_or_else(|| {
        Error::corrupt(
            "schema",
            &column.name,
            "a known data type",
            &column.data_type,
        )
    })?;
    let metadata = [(PARQUET_FIELD_ID_META_KEY.to_owned(), column.id.to_string())];
    let field = Field::new(&column.name, data_type, column.nullable);
    Ok(field.with_metadata(HashMap::from(metadata)))
}

fn limit(what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value > limit {
        let (value, limit) = (value as u64, limit as u64);
        return Err(Error::ResourceLimitExceeded { what, value, limit });
    }
    Ok(())
}

fn invalid(argument: &str, reason: &str) -> Error {
    Error::InvalidArgument {
        function: "schema".to_owned(),
        argument: argument.to_owned(),
        reason: format!("expected {reason}"),
    }
}
