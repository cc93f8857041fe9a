//! The verbs and reads, one a file: what it does, its Rust type, its SQL function.

mod commits;
mod drop;
mod filter;
mod generate;
mod not_yet;
mod refresh;
mod rejected;
mod search;
mod tables;
mod vectors;
mod verify;
mod versions;

use std::sync::Arc;

use stratagraph_providers::FunctionRegistry;

pub use commits::CommitFilter;
pub(crate) use commits::{commit_status, commits};
pub(crate) use drop::drop_embeddings;
pub use generate::GenerateEmbeddings;
pub(crate) use generate::generate;
pub use refresh::RefreshOptions;
pub(crate) use refresh::{refresh_embeddings, refresh_plan};
pub(crate) use rejected::rejected_rows;
pub(crate) use search::search;
pub use search::{Search, SearchHit, Wanted};
pub(crate) use tables::embedding_tables;
pub(crate) use vectors::read_vectors;
pub(crate) use verify::verify_materialization;
pub(crate) use versions::versions;

use crate::engine::Engine;

/// All table functions of an installation.
pub(crate) fn registry(engine: &Arc<Engine>) -> FunctionRegistry {
    let mut registry = FunctionRegistry::default();
    for function in not_yet::functions() {
        registry.add(function);
    }
    let single = [
        generate::function(engine),
        drop::function(engine),
        tables::function(engine),
        versions::function(engine),
        rejected::function(engine),
        vectors::function(engine),
        verify::function(engine),
    ];
    let pairs = [
        refresh::functions(engine),
        search::functions(engine),
        commits::functions(engine),
    ];
    for function in single.into_iter().chain(pairs.into_iter().flatten()) {
        registry.add(function);
    }
    registry
}
