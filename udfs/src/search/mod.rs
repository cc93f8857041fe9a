//! Searches of tables of the session's store: which table a name means, which rows a predicate takes,
//! which vector a query is, and what an answer looks like.

mod answer;
mod filter;
mod function;
mod query;
mod target;

pub(crate) use answer::Scores;
pub(crate) use function::search_function;
pub use query::Wanted;
pub(crate) use query::embed_for_property;
pub(crate) use target::Target;
