//! Operators that DataFusion does not have: a logical node, its planner and its execution each.

mod expand;
mod expand_metrics;
mod expand_node;
mod hydrate;
mod hydrate_node;
mod match_node;
mod matching;
mod memory;
mod nearest;
mod node_table;
mod pattern;
mod planner;
mod rank;
mod rank_measure;
mod rank_node;
mod search_metrics;
mod write;

pub use expand::ExpandExec;
pub use expand_node::{EdgeHandle, ExpandNode, ExpandSpec};
pub use hydrate::HydrateExec;
pub use hydrate_node::{HydrateNode, HydrateSpec};
pub use match_node::{MatchEdge, MatchNode, MatchSpec};
pub use matching::MatchExec;
pub use memory::PoolBudget;
pub use nearest::{NearestRows, NearestRowsExec};
pub use node_table::NodeTable;
pub(crate) use pattern::PatternExec;
pub use planner::{ExpandPlanner, HydratePlanner, MatchPlanner, RankPlanner};
pub use rank::RankExec;
pub use rank_node::{Arm, Leg, Measure, Near, QueryEmbedder, RankNode, RankSpec, Ranking};
pub use write::WriteExec;
pub(crate) use write::WriteJob;
