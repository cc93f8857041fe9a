//! What this process knows about the store, for hooks of DataFusion that cannot wait.
//!
//! Filled by every look at the head: at install, after own commits, by every statement and by the
//! catalog's asynchronous lookups.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use stratagraph::catalog::graph::{self, At, GraphSnapshot};
use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::catalog::{Catalog, Head, SnapshotPin};
use stratagraph::ident::{BranchName, Name};
use stratagraph::{Error, Result};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::columns::PlannedTable;
use crate::pin::StatementPin;

/// Catalogs with more datasets list their names only when somebody asks, not at every new head.
const LISTED_DATASETS: u64 = 1_024;
/// How long a statement of a host without the analyzer rule can find its pin again.
const FALLBACK_MICROS: i64 = 1_000_000;

/// What a statement is called where nothing better is known: session and start stamp.
pub(crate) type StatementKey = (String, Option<i64>);

#[derive(Debug)]
struct Fallback {
    key: StatementKey,
    made: i64,
    pin: Weak<StatementPin>,
    /// Held for a statement that nothing else has pinned; its scans may be of empty tables, whose
    /// plans hold nothing.
    held: Option<Arc<StatementPin>>,
}

/// One store as this process knows it. All providers of an installation share it.
#[derive(Debug)]
pub struct Metadata {
    catalog: Arc<Catalog>,
    listed: AtomicU64,
    looked_at: AtomicI64,
    names: RwLock<Arc<BTreeMap<String, DatasetKind>>>,
    tables: RwLock<HashMap<String, Arc<PlannedTable>>>,
    graphs: RwLock<HashMap<(String, String), Arc<GraphSnapshot>>>,
    fallback: Mutex<Vec<Fallback>>,
}

impl Metadata {
    /// Knows nothing yet; no store call.
    pub fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            catalog,
            listed: AtomicU64::new(0),
            looked_at: AtomicI64::new(i64::MIN),
            names: RwLock::default(),
            tables: RwLock::default(),
            graphs: RwLock::default(),
            fallback: Mutex::default(),
        })
    }

    /// The catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Looks at the head and learns all names. For install, own commits and hosts that ask.
    pub async fn refresh(&self) -> Result<Arc<Head>> {
        let started = self.now();
        let head = self.catalog.look().await?;
        self.looked_at.fetch_max(started, Ordering::Relaxed);
        self.list(&head).await?;
        Ok(head)
    }

    /// A pinned snapshot at most `max_staleness` old.
    pub async fn pin(&self, max_staleness: Duration) -> Result<SnapshotPin> {
        let started = self.now();
        let age = started.saturating_sub(self.looked_at.load(Ordering::Relaxed));
        let allowed = i64::try_from(max_staleness.as_micros()).unwrap_or(i64::MAX);
        if allowed > 0
            && age <= allowed
            && let Some(head) = self.catalog.cached()
            && let Some(pin) = self.catalog.try_pin(head)
        {
            return Ok(pin);
        }
        let pin = self.catalog.pin().await?;
        self.looked_at.fetch_max(started, Ordering::Relaxed);
        let is_news = pin.version > self.listed.load(Ordering::Relaxed);
        if is_news && pin.body.datasets.len() <= LISTED_DATASETS {
            // Names serve completion and listings only: a page that cannot be read fails the
            // statements that need it, not this one.
            if let Err(error) = self.list(pin.head()).await {
                tracing::warn!(%error, "the names of the catalog could not be listed");
            }
        }
        Ok(pin)
    }

    pub(crate) fn now(&self) -> i64 {
        self.catalog.env().clock.now_micros()
    }

    async fn list(&self, head: &Head) -> Result<()> {
        if self.listed.load(Ordering::Relaxed) >= head.version && head.version > 0 {
            return Ok(());
        }
        let datasets = resolve::datasets(self.catalog.store(), head).await?;
        let names: BTreeMap<String, DatasetKind> =
            datasets.into_iter().map(|(n, d)| (n, d.kind)).collect();
        let known = |name: &String, _: &mut Arc<PlannedTable>| names.contains_key(name);
        write(&self.tables).retain(known);
        write(&self.graphs).retain(|(name, _), _| names.contains_key(name));
        let mut current = write(&self.names);
        // Another task may have listed a newer head meanwhile.
        if self.listed.fetch_max(head.version, Ordering::Relaxed) <= head.version {
            *current = Arc::new(names);
        }
        Ok(())
    }

    /// Names of all datasets that are known, with their kinds.
    pub fn datasets(&self) -> Arc<BTreeMap<String, DatasetKind>> {
        Arc::clone(&read(&self.names))
    }

    /// The columns of an embedding table, from the newest snapshot that is known; looks only when
    /// the name is not known. `None` when there is no such table.
    pub async fn table(&self, name: &Name) -> Result<Option<Arc<PlannedTable>>> {
        if let Some(head) = self.catalog.cached()
            && let Some(found) = self.table_in(&head, name).await?
        {
            return Ok(Some(found));
        }
        let head = self.refresh().await?;
        self.table_in(&head, name).await
    }

    async fn table_in(&self, head: &Head, name: &Name) -> Result<Option<Arc<PlannedTable>>> {
        match resolve::table(self.catalog.store(), head, name, None).await {
            Ok(snapshot) => self.learn(&snapshot).map(Some),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The columns of one version of a table.
    pub async fn version(&self, name: &Name, version: u64) -> Result<Arc<PlannedTable>> {
        let head = self.catalog.known().await?;
        let store = self.catalog.store();
        let found = match resolve::table(store, &head, name, Some(version)).await {
            // The version may be newer than what is known.
            Err(Error::VersionUnavailable { .. } | Error::NotFound { .. }) => {
                let head = self.refresh().await?;
                resolve::table(store, &head, name, Some(version)).await?
            }
            other => other?,
        };
        PlannedTable::of(&found).map(Arc::new)
    }

    /// The newest known state of a branch of a graph; looks only when it is not known. `None` when
    /// there is no such graph or branch.
    pub async fn graph(
        &self,
        name: &Name,
        branch: &BranchName,
    ) -> Result<Option<Arc<GraphSnapshot>>> {
        if let Some(head) = self.catalog.cached()
            && let Some(found) = self.graph_in(&head, name, branch).await?
        {
            return Ok(Some(found));
        }
        let head = self.refresh().await?;
        self.graph_in(&head, name, branch).await
    }

    async fn graph_in(
        &self,
        head: &Head,
        name: &Name,
        branch: &BranchName,
    ) -> Result<Option<Arc<GraphSnapshot>>> {
        match graph::graph(self.catalog.store(), head, name, branch, &At::Head).await {
            Ok(state) => Ok(Some(self.learn_graph(&state, &At::Head))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps the newest state of a branch.
    pub(crate) fn learn_graph(&self, state: &GraphSnapshot, at: &At) -> Arc<GraphSnapshot> {
        let (name, branch) = (state.name.as_str(), state.branch.as_str());
        let known = self.known_graph(name, branch);
        if let Some(known) = known.filter(|known| known.manifest_ref == state.manifest_ref) {
            return known;
        }
        let learned = Arc::new(state.clone());
        if *at == At::Head {
            let key = (name.to_owned(), branch.to_owned());
            write(&self.graphs).insert(key, Arc::clone(&learned));
        }
        learned
    }

    /// A state that this process has seen, without any wait.
    pub fn known_graph(&self, name: &str, branch: &str) -> Option<Arc<GraphSnapshot>> {
        let key = (name.to_owned(), branch.to_owned());
        read(&self.graphs).get(&key).cloned()
    }

    /// For planning hooks: a state of a branch. Only one that this process has never seen waits.
    ///
    /// # Errors
    /// `NotFound`, and `MetadataNotLoaded` where waiting would block the runtime.
    pub fn graph_now(&self, name: &Name, branch: &BranchName) -> Result<Arc<GraphSnapshot>> {
        if let Some(known) = self.known_graph(name.as_str(), branch.as_str()) {
            return Ok(known);
        }
        let missing = || Error::NotFound {
            what: "graph",
            name: match *branch == BranchName::main() {
                true => name.to_string(),
                false => format!("{name}@{branch}"),
            },
        };
        let call = "Stratagraph::refresh_metadata()";
        wait(name.as_str(), call, self.graph(name, branch))??.ok_or_else(missing)
    }

    /// For planning hooks: a past state of a branch. `None` for one that is not there, and where a wait
    /// would block the runtime.
    pub fn graph_past(&self, name: &Name, branch: &BranchName, at: &At) -> Option<GraphSnapshot> {
        let store = self.catalog.store();
        let past = async {
            let head = self.catalog.known().await?;
            match graph::graph(store, &head, name, branch, at).await {
                // The state may be newer than what is known.
                Err(Error::VersionUnavailable { .. } | Error::NotFound { .. }) => {
                    let head = self.refresh().await?;
                    graph::graph(store, &head, name, branch, at).await
                }
                other => other,
            }
        };
        let call = "Stratagraph::refresh_metadata()";
        wait(name.as_str(), call, past).ok()?.ok()
    }

    /// For planning hooks: the columns that a type of a graph had in a past state. `None` for a state
    /// that is not there, and where a wait would block the runtime.
    pub(crate) fn past_columns(&self, now: &PlannedTable, at: &At) -> Option<Arc<PlannedTable>> {
        let of = now.graph.as_ref()?;
        let state = self.graph_past(&now.name, &of.branch, at)?;
        let type_then = state.schema.by_id(of.type_id)?;
        PlannedTable::of_past(&state, type_then, now)
            .ok()
            .map(Arc::new)
    }

    /// Keeps the columns of a current version.
    pub(crate) fn learn(&self, snapshot: &TableSnapshot) -> Result<Arc<PlannedTable>> {
        let name = snapshot.name.as_str();
        if let Some(known) = read(&self.tables).get(name)
            && known.is_of(snapshot)
        {
            return Ok(Arc::clone(known));
        }
        let planned = Arc::new(PlannedTable::of(snapshot)?);
        write(&self.tables).insert(name.to_owned(), Arc::clone(&planned));
        Ok(planned)
    }

    /// The columns of a table that this process has seen, without any wait.
    pub fn known_table(&self, name: &str) -> Option<Arc<PlannedTable>> {
        read(&self.tables).get(name).cloned()
    }

    /// For planning hooks: the columns of a table. Only one that this process has never seen waits.
    ///
    /// # Errors
    /// `NotFound`, and `MetadataNotLoaded` where waiting would block the runtime.
    pub fn table_now(&self, name: &Name) -> Result<Arc<PlannedTable>> {
        if let Some(known) = self.known_table(name.as_str()) {
            return Ok(known);
        }
        let missing = || Error::NotFound {
            what: "embedding table",
            name: name.to_string(),
        };
        let call = "Stratagraph::refresh_metadata()";
        wait(name.as_str(), call, self.table(name))??.ok_or_else(missing)
    }

    /// The schema that SQL sees of a table, without a wait where it is known.
    pub fn schema_now(&self, name: &Name) -> Result<SchemaRef> {
        self.table_now(name).map(|table| Arc::clone(&table.schema))
    }

    /// The pin of a statement that no analyzer rule has pinned, or not all of it: a provider inside
    /// a foreign one is out of the rule's sight.
    pub(crate) fn fallback_pin(&self, key: StatementKey) -> Arc<StatementPin> {
        let now = self.now();
        let mut pins = self.fallback(now);
        let found = pins.iter().find(|entry| entry.key == key);
        if let Some(pin) = found.and_then(|entry| entry.pin.upgrade()) {
            return pin;
        }
        let pin = Arc::new(StatementPin::default());
        pins.push(Fallback {
            key,
            made: now,
            pin: Arc::downgrade(&pin),
            held: Some(Arc::clone(&pin)),
        });
        pin
    }

    /// Lets the rest of a statement find the pin that the analyzer rule gave one of its scans.
    pub(crate) fn remember_pin(&self, key: StatementKey, pin: &Arc<StatementPin>) {
        let now = self.now();
        let mut pins = self.fallback(now);
        let known = |entry: &Fallback| entry.key == key && entry.pin.strong_count() > 0;
        if !pins.iter().any(known) {
            pins.push(Fallback {
                key,
                made: now,
                pin: Arc::downgrade(pin),
                held: None,
            });
        }
    }

    fn fallback(&self, now: i64) -> MutexGuard<'_, Vec<Fallback>> {
        let mut pins = self.fallback.lock().unwrap_or_else(PoisonError::into_inner);
        pins.retain(|entry| {
            let fresh = now.saturating_sub(entry.made) < FALLBACK_MICROS;
            fresh && (entry.held.is_some() || entry.pin.strong_count() > 0)
        });
        pins
    }
}

/// For planning hooks, which cannot await: waits where a blocked thread cannot stop the runtime.
///
/// # Errors
/// Anywhere else `MetadataNotLoaded`, which says that `call` loads what is known as `name`.
pub fn wait<F: Future>(name: &str, call: &'static str, future: F) -> Result<F::Output> {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            Ok(tokio::task::block_in_place(|| handle.block_on(future)))
        }
        _ => Err(Error::MetadataNotLoaded {
            name: name.to_owned(),
            call,
        }),
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
