//! From records to one commit of a graph.
//!
//! ```text
//! records ──► rows by type ──► ids ──► ends ──► rules over rows ──► vectors ──► fragments ──► commit
//! ```
//!
//! Rows wait in spools, which spill. Nothing is staged before every rule holds. When another commit
//! comes first, all after the reading is done anew.

mod attempt;
mod checks;
mod embed;
mod ends;
mod few;
mod files;
mod found;
mod gone;
mod joined;
mod keys;
mod models;
mod plans;
mod proofs;
mod request;
mod rows;
mod table;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::slot::CommitKind;
use stratagraph::graph::input::{Findings, InputOptions, Source, read};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::violation::Violations;
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::Requester;
use stratagraph::publish::graph::GraphCommit;
use stratagraph::{Error, Result};

pub(crate) use attempt::Attempt;
pub(crate) use files::{find, of_text};
use found::Found;
pub(crate) use models::Models;
pub(crate) use plans::{Plan, SPOOLS};
pub(crate) use proofs::Prover;
pub(crate) use request::done_before as commit_before;
pub(crate) use rows::{Collector, Loaded, TypeChanges, rows_schema};
pub(crate) use table::{SourceColumns, read_rows};

use crate::engine::Run;
use crate::report::GraphLoadReport;

/// Tries of a load that other commits outrun.
pub(crate) const ATTEMPTS: u32 = 32;

/// What a load does with rows that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadMode {
    /// All rows of the types that the input has, or that are named, are replaced.
    Overwrite,
    /// No id may exist already.
    Append,
    /// A row of an id that exists is replaced as a whole; of several rows of one id the last counts.
    Merge,
}

/// What a load is asked to do, checked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) graph: Name,
    pub(crate) branch: BranchName,
    /// The branch that it is made from in the same commit, if there is none of its name.
    pub(crate) from: Option<BranchName>,
    pub(crate) mode: LoadMode,
    /// Ids of types that an overwrite replaces though the input has none of them.
    pub(crate) types: BTreeSet<u64>,
    /// Whether no other commit may come first: the caller has read more than the rows that it changes.
    pub(crate) exact: bool,
    /// Whether vectors are filled.
    pub(crate) fill: bool,
    pub(crate) requester: Requester,
}

impl Request {
    /// Whether the commit on a state makes the branch.
    pub(crate) fn forks(&self, base: &GraphSnapshot) -> bool {
        base.branch != self.branch
    }
}

/// The newest state of the branch that `run` sees, or of the one that the branch is to be made from.
pub(crate) async fn base(run: &Run, request: &Request) -> Result<GraphSnapshot> {
    let found = run.graph(&request.graph, &request.branch, None).await;
    match (found, &request.from) {
        (Err(Error::NotFound { what: "branch", .. }), Some(from)) => {
            run.graph(&request.graph, from, None).await
        }
        (found, _) => found,
    }
}

/// Reads JSONL files into rows.
pub(crate) async fn read_files(
    run: &Run,
    schema: &Arc<GraphSchema>,
    sources: Vec<Source>,
    options: InputOptions,
) -> Result<Loaded> {
    let env = run.host.env(run.catalog().env());
    let mut collector = Collector::new(&run.host, &env, schema);
    let summary = read(sources, Arc::clone(schema), options, &mut collector).await?;
    let (nodes, edges) = (summary.nodes, summary.edges);
    Ok(Loaded {
        types: collector.finish()?,
        named: summary.types,
        nodes,
        edges,
        found: Found::reading(summary.findings),
        places: Some(summary.places),
        gone: BTreeMap::new(),
    })
}

/// Rows that came without files.
pub(crate) fn loaded_rows(
    collector: Collector,
    named: u64,
    counts: (u64, u64),
    findings: Findings,
) -> Result<Loaded> {
    Ok(Loaded {
        types: collector.finish()?,
        named: BTreeSet::from([named]),
        nodes: counts.0,
        edges: counts.1,
        found: Found::reading(findings),
        places: None,
        gone: BTreeMap::new(),
    })
}

/// Finds what is wrong with a load. Nothing is written.
pub(crate) async fn violations(
    run: &Run,
    request: &Request,
    schema: &GraphSchema,
    loaded: &Loaded,
) -> Result<Violations> {
    let models = open_models(run, request, schema, loaded).await?;
    let run = run.fresh().await?;
    let base = base(&run, request).await?;
    same_schema(&base, schema)?;
    let mut attempt = Attempt::begin(&run, request, loaded, &models, &base).await?;
    Ok(attempt.check().await?.listed(loaded.places.as_ref()))
}

/// Commits a load; once for a request id.
///
/// # Errors
/// `RecordsInvalid` or `KeyConflict` for what is wrong with the records, `ReadSetChanged` for an
/// overwrite that another commit outran, and the commit's own.
pub(crate) async fn commit(
    run: &Run,
    request: &Request,
    schema: &GraphSchema,
    loaded: &Loaded,
) -> Result<GraphLoadReport> {
    let models = open_models(run, request, schema, loaded).await?;
    for attempt in 1.. {
        // Begun first: what is read and staged after it is safe from a garbage collection.
        let stage = run.begin().await?;
        let run = run.fresh().await?;
        let base = base(&run, request).await?;
        if let Some(done) = done_before(&run, request, &base).await? {
            return Ok(done);
        }
        same_schema(&base, schema)?;
        let mut state = Attempt::begin(&run, request, loaded, &models, &base).await?;
        let found = state.check().await?;
        if let Some(error) = found.error(request.graph.as_str(), loaded.places.as_ref()) {
            return Err(error);
        }
        match state.commit(stage, CommitKind::Load, counts(loaded)).await {
            Err(Error::ReadSetChanged { .. })
                if (request.mode != LoadMode::Overwrite || request.forks(&base))
                    && attempt < ATTEMPTS =>
            {
                tracing::debug!(attempt, "another commit came first");
                run.back_off(attempt).await;
            }
            other => return Ok(report(request, loaded, &other?, request.forks(&base))),
        }
    }
    Err(Error::CommitConflict {
        dataset: request.graph.to_string(),
        attempts: ATTEMPTS,
    })
}

fn counts(loaded: &Loaded) -> BTreeMap<String, i64> {
    let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let counts = [
        ("nodes_loaded", int(loaded.nodes)),
        ("edges_loaded", int(loaded.edges)),
    ];
    counts.map(|(name, n)| (name.to_owned(), n)).into()
}

/// The report of an earlier call with the same request id.
pub(crate) async fn done_before(
    run: &Run,
    request: &Request,
    base: &GraphSnapshot,
) -> Result<Option<GraphLoadReport>> {
    let id = request.requester.request_id.as_deref();
    // What another branch was asked for is not what this one is.
    let id = id.filter(|_| !request.forks(base));
    let done = request::done_before(run.catalog().store(), base, id).await?;
    Ok(done.map(|manifest: BranchManifest| {
        let count = |name: &str| {
            let count = manifest.counts.get(name).copied().unwrap_or(0);
            u64::try_from(count).unwrap_or(0)
        };
        GraphLoadReport {
            graph: request.graph.to_string(),
            branch: request.branch.to_string(),
            base_branch: request.from.as_ref().map(BranchName::to_string),
            branch_created: manifest.parent_version.is_none(),
            nodes_loaded: count("nodes_loaded"),
            edges_loaded: count("edges_loaded"),
            commit_id: manifest.commit.id.clone(),
        }
    }))
}

/// The models that fill vectors, where that is asked for.
pub(crate) async fn open_models(
    run: &Run,
    request: &Request,
    schema: &GraphSchema,
    loaded: &Loaded,
) -> Result<Models> {
    match request.fill {
        true => Models::open(run, schema, loaded).await,
        false => Ok(Models::none(&run.host)),
    }
}

/// The rows were read by this schema.
pub(crate) fn same_schema(base: &GraphSnapshot, schema: &GraphSchema) -> Result<()> {
    if *base.schema == *schema {
        return Ok(());
    }
    Err(Error::SchemaChanged {
        table: base.name.to_string(),
        detail: "the schema of the graph is another one now".to_owned(),
    })
}

fn report(
    request: &Request,
    loaded: &Loaded,
    commit: &GraphCommit,
    branch_created: bool,
) -> GraphLoadReport {
    GraphLoadReport {
        graph: request.graph.to_string(),
        branch: request.branch.to_string(),
        base_branch: request.from.as_ref().map(BranchName::to_string),
        branch_created,
        nodes_loaded: loaded.nodes,
        edges_loaded: loaded.edges,
        commit_id: commit.commit_id.clone(),
    }
}
