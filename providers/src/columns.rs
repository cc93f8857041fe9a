//! The columns of a table as SQL sees them, and how a planned schema reads a pinned one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::graph::schema::{GraphType, table_columns};
use stratagraph::ident::{BranchName, Name};
use stratagraph::table::manifest::{Layout, SchemaVersion, TableManifest};
use stratagraph::table::schema::{arrow_schema, graph_schema};
use stratagraph::{Error, Result};

/// Columns that the engine keeps for itself.
const INTERNAL: [&str; 3] = ["_rid", "_src_rid", "_dst_rid"];

/// A column of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedColumn {
    /// Property id.
    pub id: u64,
    /// Its field in the plan.
    pub field: Arc<Field>,
}

/// The type of a graph that a table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeOf {
    /// Branch of the graph.
    pub branch: BranchName,
    /// Type id.
    pub type_id: u64,
    /// Name of the type.
    pub type_name: String,
}

/// The columns that a table had when a statement was planned.
#[derive(Debug)]
pub struct PlannedTable {
    /// The dataset: a table, or a graph.
    pub name: Name,
    /// Its type, if the dataset is a graph.
    pub graph: Option<TypeOf>,
    /// Its dataset; another one under the same name is another table.
    pub dataset: String,
    /// Key of the manifest that they were read from.
    manifest: String,
    /// Visible columns.
    pub columns: Vec<PlannedColumn>,
    /// The schema that SQL sees.
    pub schema: SchemaRef,
    /// Whether a statement of this process has opened the first files of that version.
    pub(crate) opened: AtomicBool,
}

impl PlannedTable {
    /// The visible columns of a snapshot.
    pub fn of(snapshot: &TableSnapshot) -> Result<Self> {
        let columns = columns_of(&snapshot.name, &snapshot.table)?;
        Ok(Self {
            name: snapshot.name.clone(),
            graph: None,
            dataset: snapshot.manifest.dataset.clone(),
            manifest: snapshot.manifest_ref.key.clone(),
            schema: schema_of(&columns),
            columns,
            opened: AtomicBool::new(false),
        })
    }

    /// The columns of a type of a graph: those that SQL sees, or with `internal` all of them.
    pub fn of_type(snapshot: &GraphSnapshot, of: &GraphType, internal: bool) -> Result<Self> {
        let manifest = &snapshot.manifest_ref.key;
        let stored = graph_schema(of.layout(), 0, &table_columns(of)?)?;
        let mut columns = all_columns(&stored)?;
        columns.retain(|c| internal || !INTERNAL.contains(&c.field.name().as_str()));
        Ok(Self {
            name: snapshot.name.clone(),
            graph: Some(TypeOf {
                branch: snapshot.branch.clone(),
                type_id: of.id,
                type_name: of.name.clone(),
            }),
            dataset: snapshot.manifest.dataset.clone(),
            manifest: manifest.clone(),
            schema: schema_of(&columns),
            columns,
            opened: AtomicBool::new(false),
        })
    }

    /// The columns that a type had in a past state. Those that are still there have the names that they
    /// have `now`, unless another one had such a name then.
    pub fn of_past(state: &GraphSnapshot, of: &GraphType, now: &Self) -> Result<Self> {
        let mut past = Self::of_type(state, of, false)?;
        let name = |column: &PlannedColumn| {
            let same = now.columns.iter().find(|c| c.id == column.id);
            same.unwrap_or(column).field.name().clone()
        };
        let names: Vec<String> = past.columns.iter().map(name).collect();
        if names.iter().collect::<BTreeSet<_>>().len() == names.len() {
            for (column, name) in past.columns.iter_mut().zip(names) {
                column.field = Arc::new(column.field.as_ref().clone().with_name(name));
            }
            past.schema = schema_of(&past.columns);
        }
        past.graph.clone_from(&now.graph);
        Ok(past)
    }

    /// What the table is called in messages.
    pub fn label(&self) -> String {
        match &self.graph {
            None => self.name.to_string(),
            Some(of) if of.branch == BranchName::main() => {
                format!("{}.{}", self.name, of.type_name)
            }
            Some(of) => format!("{}@{}.{}", self.name, of.branch, of.type_name),
        }
    }

    /// The columns that every embedding table has, for one whose manifests are gone: the width of
    /// its vectors is not known.
    pub fn unknown(name: Name, dataset: String) -> Self {
        let item = Arc::new(Field::new("item", DataType::Float32, false));
        let types = [
            ("_row_id", DataType::Utf8View),
            ("_source_id", DataType::Utf8View),
            ("_model_id", DataType::Utf8View),
            ("vector", DataType::List(item)),
            ("_content_hash", DataType::FixedSizeBinary(32)),
        ];
        let column = |(i, (name, data_type)): (usize, (&str, DataType))| PlannedColumn {
            id: i as u64 + 1,
            field: Arc::new(Field::new(name, data_type, true)),
        };
        let columns: Vec<_> = types.into_iter().enumerate().map(column).collect();
        Self {
            name,
            graph: None,
            dataset,
            manifest: String::new(),
            schema: schema_of(&columns),
            columns,
            opened: AtomicBool::new(false),
        }
    }

    /// Whether these are the columns of a snapshot.
    pub(crate) fn is_of(&self, snapshot: &TableSnapshot) -> bool {
        self.manifest == snapshot.manifest_ref.key
    }
}

fn schema_of(columns: &[PlannedColumn]) -> SchemaRef {
    let fields: Vec<_> = columns.iter().map(|c| Arc::clone(&c.field)).collect();
    Arc::new(Schema::new(fields))
}

/// The visible columns of a table in file order, typed as plans see them.
pub(crate) fn columns_of(name: &Name, table: &TableManifest) -> Result<Vec<PlannedColumn>> {
    let current = table
        .current_schema()
        .ok_or_else(|| Error::corrupt("table manifest", name.as_str(), "a schema", "none"))?;
    Ok(all_columns(current)?
        .into_iter()
        .filter(|c| {
            matches!(table.layout, Layout::Embedding | Layout::Neighbors)
                || !INTERNAL.contains(&c.field.name().as_str())
        })
        .collect())
}

/// All columns of a schema version.
pub(crate) fn all_columns(schema: &SchemaVersion) -> Result<Vec<PlannedColumn>> {
    let disk = arrow_schema(schema)?;
    let typed = schema.columns.iter().zip(disk.fields());
    Ok(typed
        .map(|(column, field)| PlannedColumn {
            id: column.id,
            field: Arc::new(Field::new(
                field.name(),
                view_type(field.data_type()),
                field.is_nullable(),
            )),
        })
        .collect())
}

/// Strings and bytes are views in plans, as DataFusion reads any Parquet file.
fn view_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    }
}

/// Property ids of a planned schema in a pinned one: position for position of the plan.
///
/// The pinned schema may have more columns, other names, and columns that are narrower or that
/// cannot be NULL; anything else is [`Error::SchemaChanged`].
pub(crate) fn map_columns(
    planned: &PlannedTable,
    pinned_dataset: &str,
    pinned: &[PlannedColumn],
) -> Result<Vec<u64>> {
    let changed = |detail: String| Error::SchemaChanged {
        table: planned.label(),
        detail,
    };
    // Ids mean something within one dataset only.
    let same = planned.dataset == pinned_dataset;
    let find = |column: &PlannedColumn| {
        pinned.iter().find(|p| match same {
            true => p.id == column.id,
            false => p.field.name() == column.field.name(),
        })
    };
    planned
        .columns
        .iter()
        .map(|column| {
            let name = column.field.name();
            let found = find(column).ok_or_else(|| changed(format!("column {name:?} is gone")))?;
            let (was, is) = (column.field.data_type(), found.field.data_type());
            if !widens(is, was) {
                return Err(changed(format!("column {name:?} was {was}, is {is}")));
            }
            if found.field.is_nullable() && !column.field.is_nullable() {
                return Err(changed(format!("column {name:?} can be NULL now")));
            }
            Ok(found.id)
        })
        .collect()
}

/// Whether every value of `from` is a value of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    from == to
        || matches!(
            (from, to),
            (Int8, Int16 | Int32 | Int64)
                | (Int16, Int32 | Int64)
                | (Int32, Int64)
                | (UInt8, UInt16 | UInt32 | UInt64)
                | (UInt16, UInt32 | UInt64)
                | (UInt32, UInt64)
                | (Float32, Float64)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(id: u64, name: &str, data_type: DataType, nullable: bool) -> PlannedColumn {
        PlannedColumn {
            id,
            field: Arc::new(Field::new(name, data_type, nullable)),
        }
    }

    fn planned(columns: Vec<PlannedColumn>) -> PlannedTable {
        PlannedTable {
            schema: schema_of(&columns),
            columns,
            opened: AtomicBool::new(false),
            ..PlannedTable::unknown(Name::parse("t").unwrap(), "d1".to_owned())
        }
    }

    #[test]
    fn equal_or_wider_schemas_are_mapped() {
        let plan = planned(vec![
            column(1, "id", DataType::Utf8View, false),
            column(2, "n", DataType::Int64, true),
        ]);
        let wider = [
            column(3, "new", DataType::Utf8View, true),
            column(2, "renamed", DataType::Int32, false),
            column(1, "id", DataType::Utf8View, false),
        ];
        assert_eq!(map_columns(&plan, "d1", &wider).unwrap(), [1, 2]);
        let code = |pinned: &[PlannedColumn], dataset: &str| {
            map_columns(&plan, dataset, pinned).unwrap_err().code()
        };
        assert_eq!(code(&wider[2..], "d1"), "SchemaChanged");
        let nullable = [
            column(1, "id", DataType::Utf8View, true),
            column(2, "n", DataType::Int64, true),
        ];
        assert_eq!(code(&nullable, "d1"), "SchemaChanged");
        let narrower = [
            column(1, "id", DataType::Utf8View, false),
            column(2, "n", DataType::Utf8View, true),
        ];
        assert_eq!(code(&narrower, "d1"), "SchemaChanged");
        // Another table under the name: ids say nothing, names do.
        assert_eq!(code(&wider, "d2"), "SchemaChanged");
        let again = [
            column(7, "n", DataType::Int64, true),
            column(8, "id", DataType::Utf8View, false),
        ];
        assert_eq!(map_columns(&plan, "d2", &again).unwrap(), [8, 7]);
    }
}
