//! `graph_load` and `graph_load_table`, from records to one commit.

mod again;
mod embed;
pub mod model;
mod modes;
mod races;
mod rules;
pub mod support;
mod sweep;
mod tables;
