//! Tests.

mod support;
mod table_mask;
mod table_model;
mod table_schema;
mod table_writer;
