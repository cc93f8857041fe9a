//! The engine's integration tests: one binary, no DataFusion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod catalog;
mod corruption;
mod embed;
mod golden;
mod graph;
mod histories;
mod kill;
mod limits;
mod protocol_model;
mod publish;
mod s3_server;
mod search;
mod sim_store;
mod support;
mod sweep;
mod table_faults;
mod table_forged;
mod table_mask;
mod table_model;
mod table_schema;
mod table_verify;
mod table_writer;
