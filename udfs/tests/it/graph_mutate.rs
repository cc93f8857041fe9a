//! `graph_mutate`, from statements to one commit.

mod model;
mod requests;
mod rules;
mod statements;
mod support;
mod sweep;
