//! The verbs and reads, one a file: what it does, its Rust type, its SQL function.

mod build_index;
mod changes;
mod commits;
mod compact;
mod drop;
mod expire;
mod generate;
pub(crate) mod graph;
mod hybrid_search;
mod import;
mod models;
mod neighbors;
mod not_yet;
mod pins;
mod recompute;
mod refresh;
mod rejected;
mod rename;
mod restore;
mod search;
mod segments;
mod staleness;
mod tables;
mod text_search;
mod vector_search;
mod vectors;
mod verify;
mod versions;

use std::sync::Arc;

use stratagraph_providers::FunctionRegistry;

pub use build_index::BuildIndex;
pub(crate) use build_index::build_index;
pub(crate) use changes::changes;
pub use commits::CommitFilter;
pub(crate) use commits::{commit_status, commits};
pub use compact::CompactOptions;
pub(crate) use compact::compact_embeddings;
pub(crate) use drop::drop_embeddings;
pub(crate) use expire::expire_versions;
pub use generate::GenerateEmbeddings;
pub(crate) use generate::generate;
pub use graph::{
    ApplySchema, BranchFrom, ExpireBefore, GraphLoad, GraphLoadTable, GraphMerge, GraphMutate,
    GraphState, LoadSource, QueryParams, TableSource,
};
pub use hybrid_search::HybridSearch;
pub(crate) use hybrid_search::hybrid_search;
pub use import::ImportEmbeddings;
pub(crate) use import::import_embeddings;
pub(crate) use models::embedding_models;
pub use neighbors::NeighborGraph;
pub(crate) use neighbors::neighbor_graph;
pub use pins::CreatePin;
pub(crate) use pins::{collect_garbage, create_pin, drop_pin, pins};
pub use recompute::Cascade;
pub(crate) use recompute::recompute;
pub use refresh::RefreshOptions;
pub(crate) use refresh::{refresh_embeddings, refresh_plan};
pub(crate) use rejected::rejected_rows;
pub(crate) use rename::rename_embeddings;
pub(crate) use restore::restore_version;
pub use search::{Search, SearchHit, Wanted};
pub(crate) use search::{search, search_in};
pub(crate) use segments::segments;
pub(crate) use staleness::staleness;
pub(crate) use tables::embedding_tables;
pub use text_search::TextSearch;
pub(crate) use text_search::text_search;
pub use vector_search::VectorSearch;
pub(crate) use vector_search::vector_search;
pub(crate) use vectors::read_vectors;
pub(crate) use verify::verify_materialization;
pub(crate) use versions::versions;

use crate::engine::Engine;

/// Tells subscribers what a verb did, inside the verb's span, whose time is the verb's.
pub(crate) fn finished<R: std::fmt::Debug>(report: R) -> R {
    tracing::info!(?report, "finished");
    report
}

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
        compact::function(engine),
        expire::function(engine),
        restore::function(engine),
        rename::function(engine),
        changes::function(engine),
        segments::function(engine),
        models::function(engine),
        import::function(engine),
        neighbors::function(engine),
        recompute::function(engine),
        staleness::function(engine),
        build_index::function(engine),
        vector_search::function(engine),
        text_search::function(engine),
        hybrid_search::function(engine),
    ];
    let pairs = [
        refresh::functions(engine),
        search::functions(engine),
        commits::functions(engine),
    ];
    let functions = single.into_iter().chain(pairs.into_iter().flatten());
    let functions = functions.chain(pins::functions(engine));
    for function in functions.chain(graph::functions(engine)) {
        registry.add(function);
    }
    registry
}
