//! Tests.

mod s3_server;
mod sim_store;
