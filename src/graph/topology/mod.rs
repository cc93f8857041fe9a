//! The neighbours of nodes: who is joined to whom, without properties.
//!
//! An [`EdgeTable`] is one edge type of one version. A [`Walk`] follows its edges from batches of source
//! nodes. It reads the pages that hold few sources' edges, or loads the [`Topology`]: for each fragment
//! the row ids of both ends as adjacency lists, made of those two columns alone and kept in the cache
//! of the store. Fragments never change, so versions and branches share theirs; dead rows and shifts of
//! row ids are applied while neighbours are looked up.

mod beside;
mod edges;
mod index;
mod lanes;
mod layer;
mod lists;
mod matching;
mod options;
mod pace;
mod pairs;
mod persist;
mod search;
mod selective;
mod stats;
mod union;
mod walk;

pub use edges::EdgeTable;
pub use matching::{
    MatchCursor, MatchHop, MatchNodes, MatchPattern, MatchStats, Matched, Matching,
};
pub use options::{ReachOptions, TraversalMode};
pub use pairs::Pairs;
pub use persist::encode_topology;
pub use stats::{HopStats, ReachStats};
pub use union::Topology;
pub use walk::{Reached, Walk};
