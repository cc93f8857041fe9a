//! SQL logic tests: every `suites/**/*.slt` runs through `install` on sessions of plain DataFusion,
//! under each of the [`config`]s. `docs/testing.md` tells how a suite is written.

pub mod codes;
pub mod config;
pub mod connection;
pub mod render;
pub mod suite;
