//! Nearest vectors: exact scans, and indexes over the vectors of one fragment.
//!
//! A node of an index is a row position of its fragment. [`Vectors`] holds the vectors themselves,
//! [`top_k`] searches them under a bitmap of live rows: through an [`Index`] where that is faster, by an
//! exact scan where it is not, always with exact distances ([`Query::distance`]) and as many rows as
//! there are. An index is a proximity graph ([`build_hnsw`]) or an inverted file ([`build_ivf`]); it goes
//! to the store as one object ([`encode`], [`open`]). Everything here computes; nothing reads or writes.

mod batch;
mod frame;
mod graph;
mod index;
mod ivf;
mod lanes;
mod metric;
mod recall;
mod scratch;
mod search;
mod segment;
mod sketch;
#[cfg(test)]
mod tests;
mod top;
mod vectors;

pub use batch::top_k_batch;
pub use graph::{Graph, GraphParams, build as build_hnsw};
pub use index::Index;
pub use ivf::{Ivf, IvfParams, build as build_ivf};
pub use metric::{Metric, Query};
pub use recall::RecallPoint;
pub use scratch::Scratch;
pub use search::{Answer, Regime, SearchOptions, Thresholds, top_k};
pub use segment::{Expected, encode, open};
pub use top::TopK;
pub use vectors::Vectors;
