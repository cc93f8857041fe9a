//! Versioned tables: immutable Parquet fragments, deletion masks and their manifests.

pub mod bitmap;
mod chunk;
pub mod compact;
mod conform;
mod delta;
pub mod file;
pub mod fold;
mod footer;
mod guard;
pub mod identity;
pub mod ledger;
pub mod lookup;
pub mod manifest;
pub mod mask;
pub mod merge;
pub(crate) mod open;
mod order;
pub(crate) mod projection;
mod properties;
pub mod read;
pub mod reservation;
pub mod schema;
pub(crate) mod stream;
mod types;
pub(crate) mod upload;
pub mod verify;
pub mod writer;

pub use projection::{ENTRY_COLUMN, POSITION_COLUMN};
pub use stream::BatchStream;
