//! Operators that DataFusion does not have: a logical node, its planner and its execution each.

mod expand;
mod expand_metrics;
mod expand_node;
mod expand_planner;
mod memory;
mod pattern;

pub use expand::ExpandExec;
pub use expand_node::{EdgeHandle, ExpandNode, ExpandSpec};
pub use expand_planner::ExpandPlanner;
pub use memory::PoolBudget;
pub(crate) use pattern::PatternExec;
