//! Token tables: a text's vector is the mean of one vector per token, whatever their order.
//!
//! The built-in `static:minilm-l6-128` and directories as Model2Vec writes them, `static:/dir`.

#[cfg(feature = "minilm")]
pub(super) mod builtin;
mod floats;
mod load;
mod rows;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use self::rows::{Rows, Scratch};
use super::files::ModelFiles;
use super::tokenize::Tokenizer;
use super::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, RejectReason, Role,
    SyncEmbedder,
};
use crate::{Result, limits};

/// The version of the arithmetic and of the tokenizer. Raise it whenever any text may get another
/// vector from the same files.
const ALGORITHM: u32 = 1;

/// Components that one batch may fill: 16 MiB of Float32.
const BATCH_COMPONENTS: usize = 4 * 1024 * 1024;
const BATCH_ROWS: usize = 8_192;

/// A model that adds up rows of a table.
#[derive(Debug)]
pub(super) struct TokenTable {
    spec: String,
    definition: ModelDefinition,
    tokenizer: Tokenizer,
    rows: Rows,
    /// The token that has no part in a vector.
    skipped: Option<u32>,
    /// Whether vectors have the length 1.
    normalised: bool,
}

impl TokenTable {
    /// The model of a directory: `model.safetensors`, the files of a tokenizer and, if it is there,
    /// `config.json`, which may say `"normalize": false`.
    ///
    /// As Model2Vec does, unknown words have no part in a vector. Texts are not cut: its limit of 512
    /// tokens is an argument of its calls and in none of its files.
    pub(super) fn of_directory(spec: &str, files: &mut ModelFiles) -> Result<Self> {
        let tokenizer = Tokenizer::of_directory(files)?;
        let normalised = load::normalised(files)?;
        let rows = load::rows(files, tokenizer.size())?;
        let mut parameters = parameters();
        parameters.insert("files".to_owned(), Value::Object(files.digests()));
        parameters.insert("pooling".to_owned(), json!("mean"));
        let definition = ModelDefinition::new(
            "static",
            ALGORITHM,
            rows.dimensions(),
            normalised,
            parameters,
        )?;
        Ok(Self {
            spec: spec.to_owned(),
            definition,
            skipped: tokenizer.unknown(),
            tokenizer,
            rows,
            normalised,
        })
    }
}

/// What every definition of a table says.
fn parameters() -> Map<String, Value> {
    let mut parameters = Map::new();
    parameters.insert("max_text_bytes".to_owned(), json!(limits::TEXT_BYTES));
    parameters
}

#[async_trait]
impl Embedder for TokenTable {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn dimensions(&self) -> usize {
        self.rows.dimensions()
    }

    fn definition(&self) -> &ModelDefinition {
        &self.definition
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            rows: (BATCH_COMPONENTS / self.dimensions()).clamp(1, BATCH_ROWS),
            bytes: limits::TEXT_BYTES,
        }
    }

    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        Some(self)
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.embed_now(role, texts)
    }
}

impl SyncEmbedder for TokenTable {
    /// Documents and queries are embedded alike.
    fn embed_now(&self, _role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let mut out = EmbeddedBuilder::new(&self.spec, self.dimensions(), texts.len())?;
        let mut scratch = Scratch::new(&self.rows);
        let mut vector = vec![0.0; self.dimensions()];
        let mut ids = Vec::new();
        for text in texts {
            match text.unwrap_or_default() {
                "" => out.reject(RejectReason::Empty),
                text if text.len() > limits::TEXT_BYTES => out.reject(RejectReason::TooLong),
                text => {
                    ids.clear();
                    self.tokenizer.encode(text, usize::MAX, &mut ids)?;
                    if let Some(skipped) = self.skipped {
                        ids.retain(|id| *id != skipped);
                    }
                    match scratch.pool(&self.rows, &ids, self.normalised, &mut vector) {
                        Ok(()) => out.push(&vector)?,
                        Err(reason) => out.reject(reason),
                    }
                }
            }
        }
        out.finish()
    }
}
