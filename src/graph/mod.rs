//! Property graphs: the schema language `.pg`, the query language `.gq`, and what both compile to.

pub mod conflict;
pub mod diagnostic;
pub mod evolve;
pub mod input;
pub mod minted;
pub mod query;
pub mod schema;
pub mod topology;
pub mod value;
pub mod violation;
