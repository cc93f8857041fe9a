//! The definition of an embedding table: what its vectors are a function of.

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher, canonical_json, parse_canonical};
use crate::store::{ObjRef, Store};
use crate::{Error, Result};

/// Format of the definition object.
const FORMAT: u64 = 1;

/// A column of the recorded source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceColumn {
    /// Its name.
    pub name: String,
    /// Its type, as [`crate::table::schema`] spells it.
    pub data_type: String,
}

/// The source that a table was generated from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRef {
    /// Fully qualified name: catalog, schema, table.
    pub name: [String; 3],
    /// The columns that the table uses: key, texts, includes.
    pub columns: Vec<SourceColumn>,
}

/// The model, as far as it changes vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRef {
    /// Canonical spec, such as `hash:384`; holds no secret.
    pub spec: String,
    /// Canonical JSON text of the model's definition.
    pub definition: String,
}

/// An immutable object that every manifest of the table names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Format of the object.
    pub format: u64,
    /// The source.
    pub source: SourceRef,
    /// Text columns in the order in which they are joined.
    pub columns: Vec<String>,
    /// Key column.
    pub key_column: String,
    /// Included columns.
    pub include: Vec<String>,
    /// The model.
    pub model: ModelRef,
    /// Width of the vectors.
    pub dimensions: u64,
    /// Default metric of searches.
    pub metric: String,
}

impl Definition {
    /// A definition in the current format.
    pub fn new(
        source: SourceRef,
        columns: Vec<String>,
        key_column: String,
        model: ModelRef,
        dimensions: u64,
    ) -> Self {
        let (format, include, metric) = (FORMAT, Vec::new(), "cosine".to_owned());
        Self {
            format,
            source,
            columns,
            key_column,
            include,
            model,
            dimensions,
            metric,
        }
    }

    /// The hash of what changes vectors: model, text columns, key column and width. Where the source
    /// stands and which columns ride along do not count.
    pub fn hash(&self) -> Digest {
        let mut hasher = Hasher::new("stratagraph.definition.v1");
        hasher.part(self.model.definition.as_bytes());
        hasher.list(self.columns.iter().map(String::as_bytes));
        hasher.part(self.key_column.as_bytes());
        hasher.part(&self.dimensions.to_le_bytes());
        hasher.finish()
    }

    /// The hash that an identity folds: of a definition object, or of a table that has none.
    pub async fn hash_of(store: &Store, object: Option<&ObjRef>) -> Result<Digest> {
        match object {
            Some(object) => Ok(Self::load(store, object).await?.hash()),
            None => Ok(Hasher::new("stratagraph.definition.none.v1").finish()),
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        canonical_json(self)
    }

    /// Loads and checks a definition.
    pub async fn load(store: &Store, object: &ObjRef) -> Result<Self> {
        let bytes = store.get("definition", object).await?;
        let definition: Self = parse_canonical("definition", &object.key, &bytes)?;
        check_format(object, definition.format)?;
        Ok(definition)
    }
}

fn check_format(object: &ObjRef, found: u64) -> Result<()> {
    if found == FORMAT {
        return Ok(());
    }
    Err(Error::IncompatibleFormat {
        path: object.key.clone(),
        found,
        supported: FORMAT,
    })
}

/// A version of a table that another one was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Dataset id: a table made again under the name is another.
    pub dataset: String,
    /// Name of the table at the time.
    pub table: String,
    /// Version.
    pub version: u64,
    /// Identity of the version.
    pub identity: Digest,
}

/// The definition of a neighbour graph: what its rows are a function of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborDefinition {
    /// Format of the object.
    pub format: u64,
    /// What its rows were read from.
    pub input: Anchor,
    /// Neighbours of a row, at most.
    pub k: u64,
    /// The least similarity, as the shortest text that reads back as the same f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_similarity: Option<String>,
}

impl NeighborDefinition {
    /// A definition in the current format.
    pub fn new(input: Anchor, k: u64, min_similarity: Option<f32>) -> Self {
        let min_similarity = min_similarity.map(|least| least.to_string());
        Self {
            format: FORMAT,
            input,
            k,
            min_similarity,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        canonical_json(self)
    }

    /// Loads and checks a definition.
    pub async fn load(store: &Store, object: &ObjRef) -> Result<Self> {
        let bytes = store.get("definition", object).await?;
        let definition: Self = parse_canonical("definition", &object.key, &bytes)?;
        check_format(object, definition.format)?;
        Ok(definition)
    }
}
