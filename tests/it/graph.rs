//! The languages of graphs, their input, their topology and their branches.

mod branches;
mod evolve;
mod footprint;
mod input;
mod maintenance;
mod mutate;
mod query;
mod schema;
mod topology;
