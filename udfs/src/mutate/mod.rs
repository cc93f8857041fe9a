//! The statements of a mutation, run on one state of a branch.
//!
//! ```text
//! statement ──► rows of the state and of the statements before ──► values and rules ──► changes by type
//! ```
//!
//! Nothing is written here: all changes of a call become one load, which checks them as a whole.

mod body;
mod changes;
mod publish;
mod rows;
mod statement;
mod values;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use datafusion::execution::memory_pool::MemoryReservation;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::input::Rules;
use stratagraph::graph::minted::MintedIds;
use stratagraph::graph::query::Mutation;
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::value::Value;
use stratagraph::{Error, Result};

pub(crate) use body::{digest, json_of};
pub(crate) use publish::{EDGES, NODES, counts, publish};
pub(crate) use rows::evaluate_rows;

use crate::engine::Run;
use crate::load::Loaded;
use changes::Changes;

/// What a call is given.
pub(crate) struct Call<'a> {
    pub(crate) mutation: &'a Mutation,
    /// Values of the parameters in their order.
    pub(crate) params: &'a [Value],
    /// When it began, microseconds since 1970-01-01 UTC.
    pub(crate) now: i64,
    /// Whether vectors are filled.
    pub(crate) fill: bool,
}

/// What the statements of a call do to a state.
pub(crate) struct Outcome {
    pub(crate) loaded: Loaded,
    /// Nodes and edges that were written or deleted, each counted once.
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
}

impl Outcome {
    /// What the commit says of it.
    pub(crate) fn counts(&self) -> BTreeMap<String, i64> {
        counts(self.nodes, self.edges)
    }
}

/// The statements of a call while they run.
struct Evaluation<'a> {
    run: &'a Run,
    base: &'a GraphSnapshot,
    call: &'a Call<'a>,
    rules: Rules,
    ids: MintedIds,
    /// By type id.
    changes: BTreeMap<u64, Changes>,
    /// Type and id of every row that a statement wrote or deleted.
    affected: BTreeSet<(u64, String)>,
    /// Number of the last row that was written.
    record: u64,
    memory: MemoryReservation,
}

/// Runs the statements of a call. Nothing is written.
///
/// # Errors
/// `RecordsInvalid` for rows that break a rule of their own, those of the parameters and of reads.
pub(crate) async fn evaluate(run: &Run, base: &GraphSnapshot, call: &Call<'_>) -> Result<Outcome> {
    let mut evaluation = Evaluation::new(run, base, call)?;
    for statement in &call.mutation.statements {
        evaluation.statement(statement).await?;
    }
    evaluation.outcome()
}

impl<'a> Evaluation<'a> {
    fn new(run: &'a Run, base: &'a GraphSnapshot, call: &'a Call<'a>) -> Result<Self> {
        let env = run.host.env(run.catalog().env());
        Ok(Self {
            run,
            base,
            call,
            rules: Rules::new(&base.schema, call.fill)?,
            ids: MintedIds::after(&env.ids.unique()),
            changes: BTreeMap::new(),
            affected: BTreeSet::new(),
            record: 0,
            memory: run.host.memory("changed rows"),
        })
    }

    fn of(&self, type_id: u64) -> Result<&'a GraphType> {
        self.base.schema.by_id(type_id).ok_or_else(|| {
            let key = &self.base.manifest_ref.key;
            Error::corrupt("graph schema", key, format!("type {type_id}"), "none")
        })
    }

    fn outcome(self) -> Result<Outcome> {
        let mut all = BTreeMap::new();
        for (type_id, changes) in self.changes {
            all.insert(type_id, changes.finish()?);
        }
        let edge = |type_id: &u64| {
            self.base
                .schema
                .by_id(*type_id)
                .is_some_and(GraphType::is_edge)
        };
        let edges = self.affected.iter().filter(|(of, _)| edge(of)).count() as u64;
        Ok(Outcome {
            loaded: Loaded::changes(&self.run.host, all)?,
            nodes: self.affected.len() as u64 - edges,
            edges,
        })
    }
}
