//! Graphs in plans: their tables, and patterns lowered to joins and traversals.
//!
//! A pattern becomes a logical plan over the tables of one snapshot, which the host's optimizer sees
//! whole; only traversals are nodes of our own. The order of the joins is ours.

mod answer;
mod expr;
mod inner;
mod lower;
mod names;
mod needs;
mod numbers;
mod query;
mod ranks;
mod reach;
mod reduce;
mod row;
mod row_expr;
mod sources;
mod subquery;
mod tables;

pub use answer::answer_schema;
pub use inner::plan_inner;
pub use query::GraphQuery;
pub use reach::{GraphReach, Seeds};
pub use row_expr::{RowColumn, RowExprs};
pub use sources::GraphSources;
pub use tables::{GraphTables, split_branch};
