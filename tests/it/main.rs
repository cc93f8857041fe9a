//! The engine's integration tests: one binary, no DataFusion.

mod embed;
mod protocol_model;
