//! Builders and models that tests share.

pub mod tables;
