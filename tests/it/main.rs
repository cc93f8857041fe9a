//! The engine's integration tests: one binary, no DataFusion.

mod protocol_model;
