//! The input of a graph load: JSONL from any object store as typed batches with record numbers and
//! ids, and all that one record alone can be wrong about.
//!
//! [`read()`] drives it: [`Source`]s give lines, [`Input`] makes batches and violations of them.
//! Rows from elsewhere take the columns of [`input_schema`] and go through [`Rules::apply`].

mod batches;
mod columns;
mod findings;
mod ids;
mod layout;
mod lines;
mod nearest;
mod places;
mod read;
mod record;
mod rules;
mod scalar;
mod scan;
mod sources;
mod split;

pub use batches::{Input, Summary, TypedBatch};
pub use findings::Findings;
pub use ids::{assign_ids, canonical_ids};
pub use layout::{RECORD, input_schema, property_offset};
pub use lines::{Line, LineReader};
pub use places::Places;
pub use read::{Sink, read};
pub use rules::Rules;
pub use sources::{Source, glob};

use crate::{Error, Result, limits};

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grammar {
    /// One object a line, nothing that the schema does not know, nothing twice. A record's number
    /// is its line over all files.
    #[default]
    Strict,
    /// A sequence of objects, on any lines; unknown members are passed over and the last of
    /// duplicates counts. A record's number is its place in the sequence, from 1.
    Compatible,
}

/// What becomes of a value of a wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// A violation.
    #[default]
    Fail,
    /// Null where the property may be null, else a violation. Only in the compatible grammar.
    Null,
}

/// Options of an [`Input`].
#[derive(Debug, Clone)]
pub struct InputOptions {
    /// How records are written.
    pub grammar: Grammar,
    /// What becomes of a value of a wrong type.
    pub on_error: OnError,
    /// Whether a required vector with `@embed` may be missing, because a later stage fills it.
    pub fill_embeddings: bool,
    /// Most bytes of a line without its end, and of a record over several lines.
    pub line_bytes: usize,
    /// Violations that are listed.
    pub violations: usize,
}

impl Default for InputOptions {
    fn default() -> Self {
        Self {
            grammar: Grammar::default(),
            on_error: OnError::default(),
            fill_embeddings: false,
            line_bytes: limits::LINE_BYTES,
            violations: limits::VIOLATIONS,
        }
    }
}

impl InputOptions {
    fn check(&self) -> Result<()> {
        if self.on_error == OnError::Null && self.grammar == Grammar::Strict {
            return Err(Error::InvalidArgument {
                function: "graph_load".to_owned(),
                argument: "on_error".to_owned(),
                reason: "'null' needs grammar => 'compatible'".to_owned(),
            });
        }
        if self.line_bytes == 0 || self.line_bytes > limits::LINE_BYTES_MOST {
            return Err(Error::ResourceLimitExceeded {
                what: "setting for the bytes of a line",
                value: self.line_bytes as u64,
                limit: limits::LINE_BYTES_MOST as u64,
            });
        }
        Ok(())
    }
}

/// A text as messages show it: at most 80 characters.
fn shown(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
