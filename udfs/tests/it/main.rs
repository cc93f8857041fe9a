//! The SQL surface from outside: every verb through SQL and through Rust.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a test fails by panicking"
)]

mod defects;
#[cfg(feature = "candle")]
mod drift;
mod duplicates;
mod embed;
mod generate;
mod graph_dml;
mod graph_evolve;
mod graph_histories;
mod graph_kill;
mod graph_load;
mod graph_maintenance;
mod graph_mutate;
mod graph_query;
mod graph_sweep;
mod histories;
mod install;
mod models;
mod nearest;
mod processes;
mod race;
mod reads;
mod refresh;
mod refusals;
mod rejects;
mod remedies;
mod runs;
mod search;
mod search_issues;
mod secrets;
#[cfg(feature = "http")]
mod served;
mod spec_table;
mod spill;
mod sweep;
mod world;
