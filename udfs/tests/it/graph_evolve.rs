//! `graph_apply_schema` and `graph_changes`.

mod changes;
mod kinds;
mod races;
mod sweep;
