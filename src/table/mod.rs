//! Versioned tables: immutable Parquet fragments, deletion masks and their manifests.

pub mod bitmap;
pub mod manifest;
