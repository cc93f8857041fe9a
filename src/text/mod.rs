//! Full-text search over the fragments of one table.
//!
//! A [`TextSegment`] is the inverted index of one text column of one immutable fragment, a document per
//! row position. [`search`] answers a [`TextQuery`] over all segments of a version at once, and scores
//! by the rows that are alive in that version and by no others: BM25 as an index built from them alone
//! would compute it. One [`Analyser`] makes the terms of indexes, of queries and of rows that have no
//! index yet, so that an index changes speed and never answers.
//!
//! Everything here computes; nothing waits or reads a store.

mod analyser;
mod bits;
mod builder;
mod container;
mod cursor;
mod directory;
mod expand;
mod guard;
mod matcher;
mod pace;
mod query;
mod search;
mod segment;
mod statistics;
#[cfg(test)]
mod tests;
mod top;

pub use analyser::{Analyser, TermAt};
pub use builder::SegmentBuilder;
pub use query::{Mode, TextQuery};
pub use search::{Hit, Part, search};
pub use segment::{Expected, TextSegment};

/// What errors call the object of this module.
const ARTIFACT: &str = "text segment";
