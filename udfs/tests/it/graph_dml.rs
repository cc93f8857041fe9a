//! INSERT, REPLACE, UPDATE, DELETE and MERGE on the tables of a graph.

mod merge;
mod oracle;
mod races;
mod rules;
mod support;
mod sweep;
mod visible;
