//! Verbs and reads of graphs, one a file.

mod branches;
mod changes;
mod create;
mod drop;
mod evolve;
mod expire;
mod indexes;
mod list;
mod literal;
mod load;
mod merge;
mod mutate;
mod optimize;
mod params;
mod query;
mod reach;
mod schema;

use std::sync::Arc;

pub use branches::BranchFrom;
pub(crate) use branches::{graph_branch_create, graph_branch_delete, graph_branches};
pub use changes::GraphState;
pub(crate) use changes::graph_changes;
pub(crate) use create::graph_create;
pub(crate) use drop::graph_drop;
pub use evolve::ApplySchema;
pub(crate) use evolve::graph_apply_schema;
pub use expire::ExpireBefore;
pub(crate) use expire::graph_expire;
pub(crate) use indexes::graph_indexes;
pub(crate) use list::graphs;
pub use load::{GraphLoad, GraphLoadTable, LoadSource, TableSource};
pub(crate) use load::{graph_load, graph_load_table, graph_load_violations};
pub use merge::GraphMerge;
pub(crate) use merge::{graph_branch_merge, graph_merge_conflicts};
pub use mutate::GraphMutate;
pub(crate) use mutate::graph_mutate;
pub(crate) use optimize::graph_optimize;
pub use params::QueryParams;
pub(crate) use schema::graph_schema;
use stratagraph_providers::TableFunction;

use crate::engine::Engine;

/// The table functions of graphs.
pub(crate) fn functions(engine: &Arc<Engine>) -> Vec<Arc<dyn TableFunction>> {
    let mut functions = vec![
        changes::function(engine),
        create::function(engine),
        drop::function(engine),
        evolve::function(engine),
        expire::function(engine),
        indexes::function(engine),
        list::function(engine),
        mutate::function(engine),
        optimize::function(engine),
        query::function(engine),
        reach::function(engine),
        schema::function(engine),
        merge::function(engine),
    ];
    functions.extend(branches::functions(engine));
    functions.extend(load::functions(engine));
    functions
}
