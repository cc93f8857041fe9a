//! One try to commit a load on one state of a branch.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use datafusion::datasource::TableProvider;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::slot::CommitKind;
use stratagraph::env::Env;
use stratagraph::graph::schema::GraphType;
use stratagraph::publish::graph::{
    GraphCommit, GraphWrite, Removed, TableWrite, write_graph, write_graph_exactly,
};
use stratagraph::store::Stager;
use stratagraph::table::manifest::TableManifest;
use stratagraph::table::read::TableReader;
use stratagraph::{Error, Result};
use stratagraph_providers::VersionedTableProvider;

use super::found::Found;
use super::gone::Gone;
use super::keys::{Keyed, Keys};
use super::models::Models;
use super::rows::Loaded;
use super::{LoadMode, Request, write};
use crate::engine::Run;
use crate::host::Host;
use crate::spool::Spool;

/// A type that the load touches or that its edges refer to.
pub(crate) struct TypeState<'a> {
    pub(crate) of: &'a GraphType,
    pub(crate) stored: Arc<TableManifest>,
    reader: TableReader,
    /// Whether all its stored rows go.
    pub(crate) replaced: bool,
    /// Its rows of the load.
    pub(crate) keyed: Option<Keyed>,
    /// Its stored rows that go without a row in their place.
    pub(crate) gone: Option<Gone>,
    /// Of an edge type, the same rows with the row ids of their ends, in the order of a fragment.
    pub(crate) ended: Option<Spool>,
}

impl TypeState<'_> {
    /// The stored rows that stay unless the load replaces them; `None` without any.
    pub(crate) fn surviving(&self) -> Option<TableReader> {
        let some = self.stored.live_rows > 0 && !self.replaced;
        some.then(|| self.reader.clone())
    }

    /// The rows of the load.
    pub(crate) fn loaded(&self) -> Option<&Spool> {
        self.keyed.as_ref().map(|keyed| &keyed.rows)
    }
}

/// One try.
pub(crate) struct Attempt<'a> {
    pub(crate) run: &'a Run,
    pub(crate) request: &'a Request,
    pub(crate) loaded: &'a Loaded,
    pub(crate) models: &'a Models,
    pub(crate) env: Env,
    base: &'a GraphSnapshot,
    types: BTreeMap<u64, TypeState<'a>>,
}

impl<'a> Attempt<'a> {
    /// Reads what is stored of all types.
    pub(crate) async fn begin(
        run: &'a Run,
        request: &'a Request,
        loaded: &'a Loaded,
        models: &'a Models,
        base: &'a GraphSnapshot,
    ) -> Result<Self> {
        let (store, env) = (run.catalog().store(), run.host.env(run.catalog().env()));
        let mut types = BTreeMap::new();
        for of in &base.schema.types {
            let stored = base.table(store, of.id).await?.table;
            let named = loaded.named.contains(&of.id) || request.types.contains(&of.id);
            let reader = TableReader::new(Arc::clone(store), &env, Arc::clone(&stored));
            let gone = match loaded.gone.get(&of.id) {
                Some(ids) => Some(Gone::find(&run.host, &reader, ids).await?),
                None => None,
            };
            let state = TypeState {
                of,
                reader,
                stored,
                gone,
                replaced: request.mode == LoadMode::Overwrite && named,
                keyed: None,
                ended: None,
            };
            types.insert(of.id, state);
        }
        Ok(Self {
            run,
            request,
            loaded,
            models,
            env,
            base,
            types,
        })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.run.host
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = &TypeState<'a>> {
        self.types.values()
    }

    fn state(&self, type_id: u64) -> Result<&TypeState<'a>> {
        self.types.get(&type_id).ok_or_else(|| {
            let key = &self.base.manifest_ref.key;
            Error::corrupt("graph schema", key, format!("type {type_id}"), "none")
        })
    }

    /// Puts rows of a node type in the place of those that it has.
    pub(crate) fn replace_rows(&mut self, type_id: u64, rows: Spool) {
        let Some(state) = self.types.get_mut(&type_id) else {
            return;
        };
        if let Some(keyed) = &mut state.keyed {
            keyed.rows = rows;
        }
    }

    /// The stored rows of a type with their row ids, as a table.
    pub(crate) async fn table(&self, of: &GraphType) -> Result<Arc<dyn TableProvider>> {
        let metadata = Arc::clone(&self.run.engine.metadata);
        let pin = Arc::clone(self.run.pin());
        let table = VersionedTableProvider::of_type(metadata, self.base, of, pin).await?;
        Ok(Arc::new(table))
    }

    /// Finds everything that is wrong and gives the rows their row ids. Nothing is staged.
    pub(crate) async fn check(&mut self) -> Result<Found> {
        let mut found = self.loaded.found.clone();
        self.keys(&mut found).await?;
        self.ends(&mut found).await?;
        self.removed_nodes(&mut found).await?;
        self.unique(&mut found).await?;
        self.cardinality(&mut found).await?;
        if found.is_empty() {
            // Models run only for a load that is sound otherwise.
            self.embed(&mut found).await?;
        }
        Ok(found)
    }

    async fn keys(&mut self, found: &mut Found) -> Result<()> {
        let counters = &self.base.dataset.next_rids;
        for (type_id, input) in &self.loaded.types {
            let Some(state) = self.types.get_mut(type_id) else {
                continue;
            };
            let known = input.given && state.stored.live_rows > 0;
            let keys = Keys {
                host: &self.run.host,
                of: state.of,
                mode: self.request.mode,
                stored: known.then(|| state.reader.clone()),
                counter: counters.get(type_id).copied().unwrap_or(0),
            };
            self.env.progress.report("ids", 0, input.rows.rows());
            state.keyed = Some(keys.run(input, found).await?);
        }
        Ok(())
    }

    async fn ends(&mut self, found: &mut Found) -> Result<()> {
        let mut ids = BTreeMap::new();
        let mut ended = Vec::new();
        for edge in self.states() {
            let (Some(ends), Some(rows)) = (&edge.of.edge, edge.loaded()) else {
                continue;
            };
            let (from, to) = (self.state(ends.from)?, self.state(ends.to)?);
            for node in [from, to] {
                if let Entry::Vacant(place) = ids.entry(node.of.id) {
                    place.insert(self.node_ids(node).await?);
                }
            }
            self.env.progress.report("ends", 0, rows.rows());
            let (from, to) = ((from.of, &ids[&ends.from]), (to.of, &ids[&ends.to]));
            let rows = self.with_ends(edge, rows, from, to, found).await?;
            ended.push((edge.of.id, rows));
        }
        for (type_id, rows) in ended {
            if let Some(state) = self.types.get_mut(&type_id) {
                state.ended = Some(rows);
            }
        }
        Ok(())
    }

    /// Whether there is anything to write.
    pub(crate) fn writes(&self) -> bool {
        self.states().any(|state| {
            let rows = state.loaded().is_some_and(|rows| rows.rows() > 0);
            let replaced = state.replaced && state.stored.live_rows > 0;
            rows || replaced || state.gone.as_ref().is_some_and(|gone| gone.rows() > 0)
        })
    }

    /// Rows of nodes and of edges that are written or go, each counted once.
    pub(crate) fn affected(&self) -> (u64, u64) {
        let (mut nodes, mut edges) = (0, 0);
        for state in self.states() {
            let written = state.loaded().map_or(0, Spool::rows);
            let known = state.keyed.as_ref().map_or(0, |keyed| keyed.known);
            let gone = match state.replaced {
                true => state.stored.live_rows.saturating_sub(known),
                false => state.gone.as_ref().map_or(0, Gone::rows),
            };
            let of = if state.of.is_edge() {
                &mut edges
            } else {
                &mut nodes
            };
            *of += written + gone;
        }
        (nodes, edges)
    }

    /// Rows that are written.
    pub(crate) fn written(&self) -> u64 {
        let rows = self.states().filter_map(TypeState::loaded);
        rows.map(Spool::rows).sum()
    }

    /// Stages what is large and commits.
    ///
    /// # Errors
    /// `ReadSetChanged` when another commit touched what this one stands on.
    pub(crate) async fn commit(
        &self,
        stage: Stager,
        kind: CommitKind,
        counts: BTreeMap<String, i64>,
    ) -> Result<GraphCommit> {
        let (stage, write) = self.write(stage, kind, counts).await?;
        match self.request.exact {
            true => write_graph_exactly(self.run.catalog(), stage, write).await,
            false => write_graph(self.run.catalog(), stage, write).await,
        }
    }

    async fn write(
        &self,
        mut stage: Stager,
        kind: CommitKind,
        counts: BTreeMap<String, i64>,
    ) -> Result<(Stager, GraphWrite)> {
        let mut tables = Vec::new();
        for state in self.states() {
            let new = write::new_rows(self, state, &mut stage).await?;
            let gone = state.gone.as_ref().filter(|gone| gone.rows() > 0);
            let none = new.is_empty() && !state.replaced && gone.is_none();
            if none {
                continue;
            }
            let keyed = state.keyed.as_ref();
            let known = keyed.map_or(0, |keyed| keyed.known);
            let mut removed = keyed.map_or_else(BTreeMap::new, |keyed| keyed.replaced.clone());
            for (entry, positions) in gone.iter().flat_map(|gone| &gone.positions) {
                *removed.entry(*entry).or_default() |= positions;
            }
            tables.push(TableWrite {
                type_id: state.of.id,
                removed: match state.replaced {
                    true => Removed::All,
                    false => Removed::Positions(removed),
                },
                fragments: new.fragments,
                rows: new.rows,
                new_rids: keyed.map_or(0, |keyed| keyed.new_rids),
                insert_only: known == 0 && !state.replaced && gone.is_none(),
            });
        }
        let write = GraphWrite {
            base: self.base.clone(),
            fork: self
                .request
                .forks(self.base)
                .then(|| self.request.branch.clone()),
            kind,
            tables,
            counts,
            requester: self.request.requester.clone(),
        };
        Ok((stage, write))
    }
}
