//! Table functions of `docs/sql.md` that are not built yet, with the arguments that they will have.

use std::sync::Arc;

use stratagraph_providers::{ArgSpec, ArgType, TableFunction};

use crate::function::NotYet;

/// Name and arguments, in their positional order.
const FUNCTIONS: &[(&str, &[&str])] = &[
    ("graph_table", &["graph", "pattern", "branch", "snapshot"]),
    ("blob_stat", &["graph", "type", "id", "property"]),
];

pub(crate) fn functions() -> impl Iterator<Item = Arc<dyn TableFunction>> {
    FUNCTIONS.iter().map(|(name, args)| {
        // No argument is required: what is missing would hide why the call fails.
        let args = args.iter().map(|arg| ArgSpec::optional(arg, type_of(arg)));
        NotYet::of(name, args.collect())
    })
}

fn type_of(arg: &str) -> ArgType {
    match arg {
        "k" | "version" | "before" | "max_bytes" | "rrf_k" | "min_hops" | "max_hops"
        | "from_version" | "to_version" => ArgType::Int,
        "min_masked" | "min_similarity" => ArgType::Float,
        "exact" | "include_base" | "dry_run" | "delete_source" | "allow_data_loss" | "mixed" => {
            ArgType::Bool
        }
        "snapshot" | "from" | "to" => ArgType::Snapshot,
        "types" | "seeds" => ArgType::Names,
        "query" => ArgType::Query,
        "params" => ArgType::Params,
        "source" => ArgType::Relation,
        "weights" => ArgType::Vector,
        _ => ArgType::Name,
    }
}
