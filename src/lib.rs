//! Stratagraph's engine: versioned tables of immutable Parquet fragments, deletion masks and version
//! manifests on any object store, with atomic commits of any number of tables.
//!
//! The engine links no query engine. `docs/architecture.md` tells how the parts fit together,
//! `docs/format.md` the bytes on the store.

pub mod ann;
pub mod catalog;
pub mod digest;
pub mod embed;
pub mod env;
mod error;
pub mod graph;
pub mod ident;
pub mod limits;
pub mod publish;
pub mod search;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod store;
pub mod table;
pub mod text;

pub use error::{BoxError, Error, KeyScan, Kind, NotRefreshableReason, Protection, Result};
