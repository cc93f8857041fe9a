//! Embedding models, and the pure functions between a source row and its vector.
//!
//! ```text
//! columns ──render──► text columns ──text::assemble──► text ──Embedder──► vector, or a RejectReason
//!                          └──────content_hash──────► 32 bytes: what a refresh compares
//! ```
//!
//! A vector is a function of the text and the [`ModelDefinition`] alone: how rows are batched, which
//! machine computes them and what was computed before never show in it.

mod cells;
mod checked;
mod content_hash;
mod definition;
mod embedded;
mod files;
mod hash;
mod open;
mod policy;
mod redact;
mod registry;
#[cfg(feature = "http")]
mod remote;
mod render;
mod spec;
mod table;
#[cfg(any(test, feature = "sim"))]
pub mod testing;
mod text;
mod tokenize;
#[cfg(feature = "candle")]
mod transformer;

use async_trait::async_trait;

use crate::Result;

pub use checked::{batches, embed_checked, embed_checked_sync, embed_checked_until, validate};
pub use content_hash::{CONTENT_HASH_BYTES, content_hash};
pub use definition::{ModelDefinition, differences};
pub use embedded::{Embedded, EmbeddedBuilder, RejectReason, vector_type};
pub use hash::{HASH_ALGORITHM, HashEmbedder};
pub use policy::{ModelPolicy, default_model};
pub use redact::redact;
pub use registry::{Handshake, ModelRegistry};
pub use render::render;
pub use spec::{ModelSpec, StaticSource, parse_spec};
pub use text::{TEXT_RULE, assemble};
#[cfg(feature = "candle")]
pub use transformer::Transformer;

/// What a text is to the model. Some models embed a question differently from what it searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A stored row.
    Document,
    /// A search.
    Query,
}

/// The largest batch that a model takes in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Texts, at least 1.
    pub rows: usize,
    /// UTF-8 bytes of all texts together; a single text may be larger.
    pub bytes: usize,
}

/// A model that turns texts into vectors.
///
/// Call it through [`embed_checked`], which keeps the batches within [`limits`](Self::limits) and
/// holds the model to this contract.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// The canonical spec, free of secrets: `hash:384`.
    fn spec(&self) -> &str;

    /// Components of every vector, 1 to [`crate::limits::DIMENSIONS`].
    fn dimensions(&self) -> usize;

    /// Everything that changes vectors, and nothing else.
    fn definition(&self) -> &ModelDefinition;

    /// The largest batch.
    fn limits(&self) -> BatchLimits;

    /// The same model without awaiting, if it computes in this process.
    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        None
    }

    /// One slot per text, in the order of `texts`: a vector of finite numbers, not all zero, or a
    /// null with its reason. `None` is a row without text.
    ///
    /// An `Err` means that the whole call failed and says nothing about any row.
    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded>;
}

/// A model that computes in this process.
pub trait SyncEmbedder: Send + Sync {
    /// As [`Embedder::embed`], on the calling thread.
    fn embed_now(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded>;
}
