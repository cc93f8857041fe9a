//! What a search looks for, as a vector.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::Float32Type;
use stratagraph::ann::Query;
use stratagraph::embed::{Embedder, Handshake, Role};
use stratagraph::graph::schema::Property;
use stratagraph::graph::value::ValueType;
use stratagraph::search::{RowAt, VectorColumn, take};
use stratagraph::table::schema::id;
use stratagraph::{Error, Result};

use super::target::Target;
use crate::embedding;
use crate::engine::Run;

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// What is like this text, embedded with the model of the column.
    Text(String),
    /// What is like this vector.
    Vector(Vec<f32>),
    /// What is like the row of this key.
    Row(String),
}

fn invalid(function: &str, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: function.to_owned(),
        argument: "query".to_owned(),
        reason: reason.into(),
    }
}

/// The vector of a text, with the model that a property was declared with.
pub(crate) async fn embed_for_property(
    run: &Run,
    function: &str,
    property: Option<&Property>,
    text: &str,
) -> Result<Vec<f32>> {
    let declared = property.and_then(|p| Some((p, p.embed.as_ref()?)));
    let Some((property, declared)) = declared else {
        let reason = "the column has no model of its own; give a vector";
        return Err(invalid(function, reason));
    };
    let default = run.host.settings().default_model;
    let spec = declared.model.as_ref().unwrap_or(&default);
    let (_, model) = run.engine.model(spec, Handshake::Known).await?;
    let (found, width) = (model.dimensions(), &property.value_type);
    if *width != ValueType::Vector(u32::try_from(found).unwrap_or(u32::MAX)) {
        let name = &property.name;
        let reason = format!("the model of {name} makes vectors of {found}, it is a {width}");
        return Err(invalid(function, reason));
    }
    embed(function, model, text).await
}

async fn embed(function: &str, model: Arc<dyn Embedder>, text: &str) -> Result<Vec<f32>> {
    let answer = embedding::embed(model, Role::Query, StringArray::from(vec![text])).await?;
    if let Some((_, reason)) = answer.errors.first() {
        let reason = format!("the model refuses this text: {reason}");
        return Err(invalid(function, reason));
    }
    let vector = answer.vectors.value(0);
    Ok(vector.as_primitive::<Float32Type>().values().to_vec())
}

impl Target {
    /// The query over a column of vectors.
    pub(crate) async fn query(&self, column: &VectorColumn, wanted: &Wanted) -> Result<Query> {
        let vector = match wanted {
            Wanted::Vector(vector) if vector.len() == column.dimensions => vector.clone(),
            Wanted::Vector(vector) => {
                let (found, width) = (vector.len(), column.dimensions);
                let reason = format!("has {found} components, the column {width}");
                return Err(self.invalid("query", reason));
            }
            Wanted::Text(text) => self.embed(column, text).await?,
            Wanted::Row(key) => self.vector_of(column, key).await?,
        };
        Query::new(column.metric, vector).ok_or_else(|| {
            let reason = "expected finite components that are not all zero";
            self.invalid("query", reason)
        })
    }

    async fn embed(&self, column: &VectorColumn, text: &str) -> Result<Vec<f32>> {
        let engine = &self.run.engine;
        let model = match (self.definition(), self.property(column.column)) {
            (Some(definition), _) if column.column == id::VECTOR => {
                let name = &self.snapshot.name;
                engine.model_of(name, definition, Handshake::Known).await?
            }
            (_, property) => {
                return embed_for_property(&self.run, self.function, property, text).await;
            }
        };
        embed(self.function, model, text).await
    }

    /// The vector of a key: of its last row, if it has several.
    async fn vector_of(&self, column: &VectorColumn, key: &str) -> Result<Vec<f32>> {
        let reader = self.reader();
        let found = reader.lookup(&[key]).await?;
        let last = found.last().ok_or_else(|| Error::NotFound {
            what: "row",
            name: key.to_owned(),
        })?;
        let row = RowAt {
            entry: last.entry,
            position: last.position,
        };
        let batch = take(&reader, &[row], &[column.column]).await?;
        let list = batch.column(0).as_fixed_size_list();
        if list.is_null(0) {
            return Err(self.invalid("row_id", format!("the row {key:?} has no vector")));
        }
        Ok(list
            .value(0)
            .as_primitive::<Float32Type>()
            .values()
            .to_vec())
    }
}
