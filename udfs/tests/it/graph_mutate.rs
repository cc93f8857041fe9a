//! `graph_mutate`, from statements to one commit.

mod branches;
mod model;
mod races;
mod requests;
mod rules;
mod statements;
pub mod support;
mod sweep;
mod writers;
