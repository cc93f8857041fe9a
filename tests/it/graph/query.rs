//! The query language: text to checked query, parameters, limits.

mod fixture;
mod fuzz;
mod limits;
mod mutations;
mod params;
mod results;
mod scopes;
mod searches;
mod shapes;
mod syntax;
mod types;
