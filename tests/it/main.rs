//! The engine's integration tests: one binary, no DataFusion.

mod catalog;
mod embed;
mod protocol_model;
mod support;
