//! Merges of branches: three states of a graph by id, in one commit.

mod commit;
mod decide;
pub(super) mod diff;
mod rows;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::commit::{Content, Merge};
use self::decide::{Found, Plan, Rids, decide, removed};
use self::diff::diff;
use super::branch::{Delete, check_deletable};
use super::graph::{GraphCommit, Removed, TableWrite};
use super::successor::Requester;
use crate::catalog::branch::{common_ancestor, lineage};
use crate::catalog::graph::{At, GraphSnapshot, graph};
use crate::catalog::manifest::{Ancestor, BranchManifest};
use crate::catalog::{Catalog, Head};
use crate::env::Env;
use crate::graph::conflict::MergeConflicts;
use crate::graph::evolve::same_meaning;
use crate::ident::{BranchName, Name};
use crate::store::{PageTree, Stager, Store};
use crate::table::manifest::{SchemaVersion, TableManifest};
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::{Error, Result};

/// A merge of one branch into another.
#[derive(Debug, Clone)]
pub struct MergeBranch {
    /// The graph.
    pub graph: Name,
    /// The branch whose changes are taken.
    pub source: BranchName,
    /// The branch that takes them.
    pub into: BranchName,
    /// Whether the source is deleted in the same commit.
    pub delete_source: bool,
    /// Whether to find out only.
    pub dry_run: bool,
    /// Who asks.
    pub requester: Requester,
}

/// How a merge came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MergeKind {
    /// The target has everything of the source.
    AlreadyUpToDate,
    /// The source has everything of the target, which takes its tables.
    FastForward,
    /// Both had changes of their own.
    Merged,
}

impl MergeKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlreadyUpToDate => "already_up_to_date",
            Self::FastForward => "fast_forward",
            Self::Merged => "merged",
        }
    }
}

/// What a merge did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOutcome {
    /// How it came about.
    pub kind: MergeKind,
    /// The new head of the target; `None` for a dry run and where nothing was to merge.
    pub commit: Option<GraphCommit>,
    /// Conflicts of a dry run, all of them counted.
    pub total: u64,
    /// The first of them.
    pub conflicts: MergeConflicts,
}

/// Both branches, and the newest state that both descend from.
struct States {
    base: (String, Ancestor),
    source: GraphSnapshot,
    target: GraphSnapshot,
}

/// Merges the head of a branch into another one: all of it, or nothing.
///
/// Rows are compared by id in three states: the heads, and the newest state that both descend from. What
/// one side alone changed is taken, what both changed to the same content stays. A row that the target
/// has keeps its row id, and edges that are taken follow. Holds about 200 bytes a row that one side
/// changed, taken from `env`; rows themselves stream.
///
/// # Errors
/// `MergeConflicts` with everything that both sides cannot agree on; `SchemaDiverged`; `NotFound`;
/// `InvalidArgument` for one branch twice; `BranchProtected` and `Pinned` for a source to delete;
/// `ReadSetChanged` if the target, or a source to delete, moved meanwhile; the commit's own.
pub async fn merge_branch(
    catalog: &Arc<Catalog>,
    env: &Env,
    mut stage: Stager,
    request: MergeBranch,
) -> Result<MergeOutcome> {
    let pin = catalog.pin().await?;
    let states = states(catalog.store(), pin.head(), &request).await?;
    let mut outcome = MergeOutcome {
        kind: states.kind(),
        commit: None,
        total: 0,
        conflicts: MergeConflicts::default(),
    };
    let content = match outcome.kind {
        MergeKind::AlreadyUpToDate => {
            if request.delete_source && !request.dry_run {
                Delete::of(&states.source, request.requester.clone())
                    .run(catalog, stage)
                    .await?;
            }
            return Ok(outcome);
        }
        MergeKind::FastForward => Content::Source,
        MergeKind::Merged => {
            let mut found = Found::default();
            let planned = plan(catalog.store(), env, &states, &mut found).await?;
            (outcome.total, outcome.conflicts) = (found.total, found.list);
            if outcome.total > 0 && !request.dry_run {
                return Err(Error::MergeConflicts {
                    from: format!("{}@{}", request.graph, request.source),
                    into: format!("{}@{}", request.graph, request.into),
                    total: outcome.total,
                    conflicts: outcome.conflicts,
                });
            }
            match request.dry_run {
                true => Content::Tables(Vec::new()),
                false => Content::Tables(planned.stage(env, &mut stage, &states).await?),
            }
        }
    };
    if !request.dry_run {
        let merge = Merge::new(states, content, &request);
        outcome.commit = Some(merge.run(catalog, stage).await?);
    }
    Ok(outcome)
}

async fn states(store: &Store, head: &Head, request: &MergeBranch) -> Result<States> {
    let invalid = || Error::InvalidArgument {
        function: "graph_branch_merge".to_owned(),
        argument: "into".to_owned(),
        reason: "a branch is merged into another one, not into itself".to_owned(),
    };
    let name = &request.graph;
    let source = graph(store, head, name, &request.source, &At::Head).await?;
    let target = graph(store, head, name, &request.into, &At::Head).await?;
    if source.manifest.branch == target.manifest.branch {
        return Err(invalid());
    }
    if request.delete_source {
        let named = (&request.source, source.manifest.branch.as_str());
        check_deletable(store, head, &source.dataset, name, named).await?;
    }
    let of_source = lineage(&source.manifest, &source.manifest_ref);
    let of_target = lineage(&target.manifest, &target.manifest_ref);
    // Every branch descends from the main branch, which stays as long as the graph.
    let base = common_ancestor(&of_source, &of_target).ok_or_else(|| {
        let (key, expected) = (&target.manifest_ref.key, "a common ancestor");
        Error::corrupt("version manifest", key, expected, "none")
    })?;
    Ok(States {
        base,
        source,
        target,
    })
}

impl States {
    fn kind(&self) -> MergeKind {
        let is_base = |state: &GraphSnapshot| {
            let (branch, ancestor) = &self.base;
            *branch == state.manifest.branch && ancestor.version == state.manifest.version
        };
        if is_base(&self.source) {
            MergeKind::AlreadyUpToDate
        } else if is_base(&self.target) {
            MergeKind::FastForward
        } else {
            MergeKind::Merged
        }
    }
}

/// What a merge does to the tables of the target, by type.
struct Planned {
    tables: Vec<(u64, Plan, TableReader, TableReader)>,
    rids: BTreeMap<u64, Rids>,
    memory: Reservation,
}

/// Compares all types, node types first: edges follow their ends.
async fn plan(
    store: &Arc<Store>,
    env: &Env,
    states: &States,
    found: &mut Found,
) -> Result<Planned> {
    let base = BranchManifest::load(store, &states.base.1.manifest).await?;
    let (source, target) = (&states.source, &states.target);
    // A change that both sides made gave both the same ids.
    if !same_meaning(&source.schema, &target.schema) {
        return Err(Error::SchemaDiverged {
            from: format!("{}@{}", source.name, source.branch),
            into: format!("{}@{}", target.name, target.branch),
        });
    }
    let reader = |table: Arc<TableManifest>| TableReader::new(Arc::clone(store), env, table);
    let mut planned = Planned {
        tables: Vec::new(),
        rids: BTreeMap::new(),
        memory: Reservation::new(&env.budget),
    };
    let mut gone: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let schema = &target.schema;
    let types = schema.types.len() as u64;
    for (done, of) in (0..).zip(schema.nodes().chain(schema.edges())) {
        let (source, target) = (
            source.table(store, of.id).await?.table,
            target.table(store, of.id).await?.table,
        );
        let base = under(base.table(store, of.id).await?, &target);
        let (base, source, target) = (reader(base), reader(source), reader(target));
        env.progress.report("merge", done, types);
        let of_source = diff(of, &base, &source).await?;
        let deleted = planned.rids.values().any(|r| !r.gone_target.is_empty());
        if of_source.rows.is_empty() && of.is_edge() && !deleted {
            continue;
        }
        let of_target = diff(of, &base, &target).await?;
        let decided = decide(of, &of_source, &of_target, &mut planned.rids, found);
        if let Some(ends) = of.edge.as_ref().filter(|e| e.min > 0 || e.max.is_some()) {
            let (sides, gone) = ((&of_source, &of_target), gone.get(&ends.from));
            rules::cardinality(of, ends, sides, &target, gone, found).await?;
        }
        if !of.is_edge() {
            gone.insert(of.id, removed(&of_source, &of_target));
        }
        planned.memory.grow(decided.bytes())?;
        planned.tables.push((of.id, decided, source, target));
    }
    Ok(planned)
}

/// The table of the base with the columns of the merged state, so that rows can be compared; without
/// rows where both sides have added the type since.
fn under(base: Option<TableManifest>, target: &TableManifest) -> Arc<TableManifest> {
    let Some(mut base) = base else {
        return Arc::new(TableManifest {
            entries: PageTree::default(),
            live_rows: 0,
            dead_rows: 0,
            fragments: 0,
            ..target.clone()
        });
    };
    let columns = target.current_schema().map(|schema| &schema.columns);
    let own = base.current_schema().map(|schema| &schema.columns);
    if let Some(columns) = columns.filter(|columns| own != Some(*columns)) {
        let mut columns = columns.clone();
        // Rows that have no value for a column that is required by now were deleted before it came.
        let later = columns.iter_mut();
        let later = later.filter(|c| c.id >= id::FIRST_USER);
        later.for_each(|column| column.nullable = true);
        let newest = base.schemas.iter().map(|schema| schema.id).max();
        base.schemas.push(SchemaVersion {
            id: newest.map_or(0, |newest| newest + 1),
            columns,
        });
    }
    Arc::new(base)
}

impl Planned {
    /// Stages the rows that come, and finds those that go.
    async fn stage(
        self,
        env: &Env,
        stage: &mut Stager,
        states: &States,
    ) -> Result<Vec<TableWrite>> {
        let mut writes = Vec::new();
        for (type_id, plan, source, target) in &self.tables {
            let Some(of) = states.target.schema.by_id(*type_id) else {
                continue;
            };
            if plan.kills.is_empty() && plan.takes.is_empty() {
                continue;
            }
            let keys: Vec<&str> = plan.kills.iter().map(String::as_str).collect();
            let mut removed: BTreeMap<u64, roaring::RoaringBitmap> = BTreeMap::new();
            for row in target.lookup(&keys).await? {
                removed.entry(row.entry).or_default().insert(row.position);
            }
            let of = (of, target.table().as_ref());
            let fragments = rows::fragments(env, stage, of, source, &plan.takes, &self.rids);
            writes.push(TableWrite {
                type_id: *type_id,
                removed: Removed::Positions(removed),
                fragments: fragments.await?,
                rows: Vec::new(),
                new_rids: 0,
                insert_only: plan.kills.is_empty(),
            });
        }
        Ok(writes)
    }
}
