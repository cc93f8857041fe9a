//! The languages of graphs, their input and their topology.

mod input;
mod mutate;
mod query;
mod schema;
mod topology;
