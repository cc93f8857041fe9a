//! The engine's integration tests: one binary, no DataFusion.

mod catalog;
mod embed;
mod protocol_model;
mod publish;
mod s3_server;
mod sim_store;
mod support;
