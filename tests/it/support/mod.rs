//! What several test rooms share.

pub mod append;
pub mod audit;
pub mod embedding;
pub mod graphs;
pub mod tables;
