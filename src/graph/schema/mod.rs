//! A compiled graph schema: node types, edge types, their properties and constraints.
//!
//! It is kept with the graph as canonical JSON. Ids are what data refers to; names may change.

mod annotations;
mod ast;
mod compile;
mod constraints;
mod fields;
mod findings;
mod parse;
mod rules;
mod stored;
mod text;
mod types;
mod values;

use serde::{Deserialize, Serialize};

use super::value::ValueType;
use crate::table::manifest::{Column, Layout};
use crate::table::schema::{graph_schema, type_text};
use crate::{Error, Result, digest};

pub use rules::pattern;

/// The format of a stored schema.
pub const FORMAT: u64 = 1;

/// The schema of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSchema {
    /// Format of this object.
    pub format: u64,
    /// The text that it was compiled from.
    pub source: String,
    /// Node and edge types in the order of the text.
    pub types: Vec<GraphType>,
    /// Interfaces in the order of the text.
    pub interfaces: Vec<Interface>,
    /// The next type id.
    pub next_type: u64,
    /// The next property id; ids are unique in the graph.
    pub next_property: u64,
}

/// Property contracts that node types can take over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Names of its properties.
    pub properties: Vec<String>,
}

/// A node type or an edge type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphType {
    /// Type id, from 1; kept by a rename.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// What an edge type connects; `None` for a node type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub edge: Option<EdgeEnds>,
    /// Interfaces that a node type implements.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub implements: Vec<String>,
    /// Its properties, inherited ones first, then in the order of the text.
    pub properties: Vec<Property>,
    /// Property ids of the key in the order of the text; empty for edges and types without a key.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub key: Vec<u64>,
    /// Unique tuples in the order of the text; the key is not repeated here.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unique: Vec<Vec<Member>>,
    /// Declared indexes in the order of the text.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub indexes: Vec<Index>,
    /// Ranges of numeric properties.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ranges: Vec<Range>,
    /// Patterns of text properties.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub checks: Vec<Check>,
    /// Annotations that mean nothing to the engine, kept as written.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub annotations: Vec<Annotation>,
}

/// What an edge type connects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeEnds {
    /// Type id of the sources.
    pub from: u64,
    /// Type id of the destinations.
    pub to: u64,
    /// Fewest edges of a source that has any.
    pub min: u64,
    /// Most edges of a source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<u64>,
}

/// A property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Property {
    /// Property id, from 16; kept by a rename; the field id in Parquet.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its type.
    pub value_type: ValueType,
    /// Whether it may be null.
    pub nullable: bool,
    /// How a vector is made from text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub embed: Option<Embed>,
    /// Annotations that mean nothing to the engine, kept as written.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub annotations: Vec<Annotation>,
}

/// How a vector property is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Property id of the text.
    pub source: u64,
    /// The model; `None` is the session's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
}

/// A member of a unique tuple or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// The source of an edge.
    Src,
    /// The destination of an edge.
    Dst,
    /// A property by id.
    Property(u64),
}

/// A declared index: what to build, never what is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// What it covers.
    pub members: Vec<Member>,
    /// Options as written, by name: `metric`, `kind`, `analyzer`.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty", default)]
    pub options: std::collections::BTreeMap<String, String>,
}

/// Inclusive bounds of a numeric property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Property id.
    pub property: u64,
    /// Least value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min: Option<Bound>,
    /// Greatest value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<Bound>,
}

/// A bound, kept exact. An integer is decimal text, so that JSON readers do not round it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// An integer within the ranges of I64 and U64.
    Int(String),
    /// A finite float in its shortest decimal text.
    Float(String),
}

/// A regular expression that a text property must contain a match of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Property id.
    pub property: u64,
    /// The expression, not anchored.
    pub pattern: String,
}

/// `@name(value, key = "value")`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    /// Its name.
    pub name: String,
    /// Its positional value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// Its named values.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty", default)]
    pub named: std::collections::BTreeMap<String, String>,
}

impl GraphSchema {
    /// Compiles a schema: types get ids from 1 and properties ids from
    /// [`FIRST_USER`](crate::table::schema::id::FIRST_USER), both in the order of the text.
    ///
    /// # Errors
    /// `SchemaInvalid` with everything that is wrong, in the order of the text; a text that the
    /// grammar refuses has one finding. `ResourceLimitExceeded`.
    pub fn compile(text: &str) -> Result<Self> {
        compile::compile(text)
    }

    /// Canonical JSON.
    ///
    /// # Errors
    /// `ResourceLimitExceeded` for more than a metadata object may hold.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let bytes = digest::canonical_json(self)?;
        let most = crate::limits::METADATA_BYTES as usize;
        text::limit("bytes of a compiled schema", bytes.len(), most)?;
        Ok(bytes)
    }

    /// Reads what [`encode`](Self::encode) wrote at `path`.
    ///
    /// # Errors
    /// `IncompatibleFormat`; `Corrupt` for bytes that no compiler of this format has made.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        stored::decode(path, bytes)
    }

    /// Why a graph of this schema cannot be made yet; `None` if it can.
    pub fn unsupported(&self) -> Option<Error> {
        let blob = |t: &GraphType| {
            let mut properties = t.properties.iter();
            let blob = properties.find(|p| p.value_type == ValueType::Blob)?;
            Some(format!("the Blob property {}.{}", t.name, blob.name))
        };
        let feature = self.types.iter().find_map(blob)?;
        Some(Error::NotYetSupported { feature })
    }

    /// A type by id.
    pub fn by_id(&self, id: u64) -> Option<&GraphType> {
        self.types.iter().find(|t| t.id == id)
    }

    /// Node types in the order of the text.
    pub fn nodes(&self) -> impl Iterator<Item = &GraphType> {
        self.types.iter().filter(|t| t.edge.is_none())
    }

    /// Edge types in the order of the text.
    pub fn edges(&self) -> impl Iterator<Item = &GraphType> {
        self.types.iter().filter(|t| t.edge.is_some())
    }

    /// A node type by its exact name.
    pub fn node(&self, name: &str) -> Option<&GraphType> {
        self.nodes().find(|t| t.name == name)
    }

    /// An edge type by its exact name, else by its name without regard to case (`dependsOn`).
    pub fn edge(&self, name: &str) -> Option<&GraphType> {
        let folded = name.to_lowercase();
        let exact = self.edges().find(|t| t.name == name);
        exact.or_else(|| self.edges().find(|t| t.name.to_lowercase() == folded))
    }
}

/// Columns of the properties of a type, for [`graph_schema`].
///
/// # Errors
/// None for a schema that compiled or was read: every type of a property has a stored form.
pub fn table_columns(graph_type: &GraphType) -> Result<Vec<Column>> {
    let column = |property: &Property| {
        Ok(Column {
            id: property.id,
            name: property.name.clone(),
            data_type: type_text(&property.value_type.arrow())?,
            nullable: property.nullable,
        })
    };
    graph_type.properties.iter().map(column).collect()
}

/// Columns that a table of a graph has beside the properties.
fn system_columns(edge: bool) -> Result<usize> {
    let layout = if edge { Layout::Edge } else { Layout::Node };
    Ok(graph_schema(layout, 0, &[])?.columns.len())
}

impl GraphType {
    /// The layout of its table.
    pub fn layout(&self) -> Layout {
        match self.edge {
            Some(_) => Layout::Edge,
            None => Layout::Node,
        }
    }

    /// Whether it is an edge type.
    pub fn is_edge(&self) -> bool {
        self.edge.is_some()
    }

    /// A property by name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|p| p.name == name)
    }

    /// A property by id.
    pub fn property_by_id(&self, id: u64) -> Option<&Property> {
        self.properties.iter().find(|p| p.id == id)
    }
}
