//! A table of the store as a DataFusion table.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, project_schema};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{InsertOp, MergeIntoClause};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, WriteOp};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::join_all;
use stratagraph::Error;
use stratagraph::catalog::Head;
use stratagraph::catalog::graph::{self, At, GraphSnapshot};
use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::graph::schema::GraphType;
use stratagraph::search::TableSearch;
use stratagraph::table::file::FragmentFile;
use stratagraph::table::read::TableReader;

use crate::columns::PlannedTable;
use crate::error::ResultExt;
use crate::exec::{NearestRows, NearestRowsExec, WriteExec, WriteJob};
use crate::function::RunContext;
use crate::hooks::{PlannedWrite, WriteHooks, read_only};
use crate::metadata::Metadata;
use crate::pin::StatementPin;
use crate::scan::{FragmentScan, live_fragments, property_ids};
use crate::settings::Settings;
use crate::statement::key_of;

/// Fragments that a first statement opens while it looks at the head.
const OPENED_AHEAD: usize = 4;

/// Which version a provider reads.
#[derive(Debug, Clone)]
enum Reads {
    /// The current one of the statement's snapshot.
    Current,
    /// A version by number.
    Version(u64),
    /// A past state of the graph that the table belongs to.
    At(At),
    /// One that is resolved already.
    Snapshot(Arc<TableSnapshot>),
}

/// A table at the statement's snapshot, or at a version.
///
/// The schema is what was known when the statement was planned; a scan maps it by property id to the
/// schema of the snapshot that the statement pins.
#[derive(Debug, Clone)]
pub struct VersionedTableProvider {
    metadata: Arc<Metadata>,
    planned: Arc<PlannedTable>,
    reads: Reads,
    pin: Option<Arc<StatementPin>>,
    sealed: bool,
    hooks: Option<Arc<dyn WriteHooks>>,
    /// What the statement that it is the target of does.
    write: Option<Arc<PlannedWrite>>,
    /// The only rows that a scan must find, where a statement wants the nearest ones.
    nearest: Option<Arc<NearestRows>>,
}

impl VersionedTableProvider {
    /// The current version of a table.
    pub fn current(metadata: Arc<Metadata>, planned: Arc<PlannedTable>) -> Self {
        Self {
            metadata,
            planned,
            reads: Reads::Current,
            pin: None,
            sealed: false,
            hooks: None,
            write: None,
            nearest: None,
        }
    }

    /// A version of a table. One that does not exist plans; its scan is `VersionUnavailable`.
    pub fn at_version(metadata: Arc<Metadata>, planned: Arc<PlannedTable>, version: u64) -> Self {
        Self {
            reads: Reads::Version(version),
            ..Self::current(metadata, planned)
        }
    }

    /// A snapshot that is resolved already, read under `pin` and never pinned anew.
    pub fn of_snapshot(
        metadata: Arc<Metadata>,
        snapshot: Arc<TableSnapshot>,
        pin: Option<Arc<StatementPin>>,
    ) -> stratagraph::Result<Self> {
        let planned = Arc::new(PlannedTable::of(&snapshot)?);
        Ok(Self {
            reads: Reads::Snapshot(snapshot),
            pin,
            sealed: true,
            ..Self::current(metadata, planned)
        })
    }

    /// The table of a type with its row ids, in a state that is resolved already; for plans that are
    /// made inside a statement.
    pub async fn of_type(
        metadata: Arc<Metadata>,
        snapshot: &GraphSnapshot,
        of: &GraphType,
        pin: Arc<StatementPin>,
    ) -> stratagraph::Result<Self> {
        let table = snapshot.table(metadata.catalog().store(), of.id).await?;
        let planned = Arc::new(PlannedTable::of_type(snapshot, of, true)?);
        Ok(Self {
            reads: Reads::Snapshot(Arc::new(table)),
            pin: Some(pin),
            sealed: true,
            ..Self::current(metadata, planned)
        })
    }

    /// The same table whose rows are changed by `hooks`.
    pub fn with_hooks(mut self, hooks: Arc<dyn WriteHooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// The same table of which only the nearest rows are wanted; `None` if that was said already.
    pub(crate) fn with_nearest(&self, nearest: NearestRows) -> Option<Self> {
        self.nearest.is_none().then(|| Self {
            nearest: Some(Arc::new(nearest)),
            ..self.clone()
        })
    }

    /// The same table at another version.
    pub(crate) fn with_version(&self, version: u64) -> Self {
        Self {
            reads: Reads::Version(version),
            ..self.clone()
        }
    }

    /// The same table in a past state of its graph, with the columns that it had there. Where they are
    /// not known the scan says what is wrong with the state.
    pub(crate) fn with_snapshot(&self, at: At) -> Self {
        let past = self.metadata.past_columns(&self.planned, &at);
        Self {
            planned: past.unwrap_or_else(|| Arc::clone(&self.planned)),
            reads: Reads::At(at),
            ..self.clone()
        }
    }

    /// Whether it names its version.
    pub(crate) fn is_explicit(&self) -> bool {
        !matches!(self.reads, Reads::Current)
    }

    /// A copy that reads the snapshot of `pin`; `None` if its pin stays. An explicit version takes
    /// the pin too: it says from which head the version is reached and protects its objects.
    pub(crate) fn pinned(&self, pin: &Arc<StatementPin>) -> Option<Self> {
        (!self.sealed).then(|| Self {
            pin: Some(Arc::clone(pin)),
            ..self.clone()
        })
    }

    pub(crate) fn sealed(mut self) -> Self {
        self.sealed = true;
        self
    }

    pub(crate) fn with_write(mut self, write: PlannedWrite) -> Self {
        self.write = Some(Arc::new(write));
        self
    }

    pub(crate) fn planned_write(&self) -> Option<&PlannedWrite> {
        self.write.as_deref()
    }

    /// The column that names a row: the first that SQL sees.
    pub(crate) fn key(&self) -> &str {
        let first = self.planned.columns.first();
        first.map_or("", |column| column.field.name())
    }

    pub(crate) fn has_hooks(&self) -> bool {
        self.hooks.is_some()
    }

    /// The table's columns as planned.
    pub fn planned(&self) -> &Arc<PlannedTable> {
        &self.planned
    }

    /// What the process knows of the store.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// The version that a scan of this statement reads, and the pin that holds it.
    pub async fn resolve(
        &self,
        state: &dyn Session,
    ) -> stratagraph::Result<(Arc<TableSnapshot>, Arc<StatementPin>)> {
        let pin = match &self.pin {
            Some(pin) => {
                self.metadata.remember_pin(key_of(state), pin);
                Arc::clone(pin)
            }
            None => self.metadata.fallback_pin(key_of(state)),
        };
        if let Reads::Snapshot(snapshot) = &self.reads {
            return Ok((Arc::clone(snapshot), pin));
        }
        let staleness = Settings::of(state.config_options()).max_staleness;
        let head = pin.snapshot(&self.metadata, staleness).await?;
        let snapshot = self.in_head(&head).await?;
        if self.planned.graph.is_none() && matches!(self.reads, Reads::Current) {
            self.metadata.learn(&snapshot)?;
        }
        Ok((Arc::new(snapshot), pin))
    }

    /// The version that is read, in the snapshot of a head.
    async fn in_head(&self, head: &Head) -> stratagraph::Result<TableSnapshot> {
        let store = self.metadata.catalog().store();
        let name = &self.planned.name;
        let Some(of) = &self.planned.graph else {
            let version = match &self.reads {
                Reads::Version(version) => Some(*version),
                _ => None,
            };
            return resolve::table(store, head, name, version).await;
        };
        let at = match &self.reads {
            Reads::At(at) => at,
            _ => &At::Head,
        };
        let state = graph::graph(store, head, name, &of.branch, at).await?;
        self.metadata.learn_graph(&state, at);
        // A type that was dropped and made again has another id.
        if state.schema.by_id(of.type_id).is_none() {
            return Err(Error::SchemaChanged {
                table: self.planned.label(),
                detail: "the type is not in this state of the graph".to_owned(),
            });
        }
        state.table(store, of.type_id).await
    }

    /// Opens the table's first fragments as this process knows them, once for each version of its
    /// columns, so that a cold statement does not wait for the head and for the files in turn. What
    /// fails here is for the scan to meet.
    async fn open_ahead(&self) {
        let Some(head) = self.metadata.catalog().cached() else {
            return;
        };
        if !matches!(self.reads, Reads::Current) || self.planned.opened.swap(true, Relaxed) {
            return;
        }
        let store = self.metadata.catalog().store();
        let Ok(snapshot) = self.in_head(&head).await else {
            return;
        };
        if let Ok(fragments) = live_fragments(store, &snapshot).await {
            let first = fragments.iter().take(OPENED_AHEAD);
            let open = first.map(|f| async move {
                let file = FragmentFile::new(Arc::clone(store), Arc::new(f.file.clone()));
                file.metadata().await.is_ok()
            });
            join_all(open).await;
        }
    }

    /// A scan of the rows that can be the nearest.
    fn nearest_rows(
        &self,
        nearest: &NearestRows,
        snapshot: &TableSnapshot,
        pin: Arc<StatementPin>,
        projection: Option<&Vec<usize>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ids = property_ids(&self.planned, snapshot)?;
        let all: Vec<usize> = (0..ids.len()).collect();
        let chosen = projection.unwrap_or(&all);
        let columns = chosen.iter().filter_map(|at| ids.get(*at).copied());
        let of = self
            .planned
            .columns
            .iter()
            .position(|c| c.id == nearest.property);
        let wanted = NearestRows {
            property: of
                .and_then(|at| ids.get(at).copied())
                .unwrap_or(nearest.property),
            ..nearest.clone()
        };
        let catalog = self.metadata.catalog();
        let (store, table) = (Arc::clone(catalog.store()), Arc::clone(&snapshot.table));
        let reader = TableReader::new(store, catalog.env(), table);
        Ok(Arc::new(NearestRowsExec::new(
            self.planned.label(),
            TableSearch::new(reader),
            wanted,
            columns.collect(),
            project_schema(&self.planned.schema, projection)?,
            pin,
        )))
    }

    /// DML that no rule has compiled: what DataFusion gives of it is not what the statement says.
    fn refuse<T>(&self, write: &WriteOp) -> Result<T> {
        Err(read_only(&self.planned, write))
    }
}

#[async_trait]
impl TableProvider for VersionedTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.planned.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Fragments are pruned here; rows are filtered by the plan, which pushes predicates into
        // the file source on its own.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The newest known head is nearly always still the head, so its files are opened meanwhile.
        let (resolved, ()) = futures::join!(self.resolve(state), self.open_ahead());
        let (snapshot, pin) = resolved.df()?;
        if let (Some(nearest), true) = (&self.nearest, filters.is_empty()) {
            return self.nearest_rows(nearest, &snapshot, pin, projection);
        }
        let scan = FragmentScan {
            state,
            store: self.metadata.catalog().store(),
            snapshot: &snapshot,
            planned: &self.planned,
            pin,
        };
        // A limit holds for filtered rows, and the filters are not evaluated here.
        let limit = limit.filter(|_| filters.is_empty());
        scan.plan(projection, filters, limit).await
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(hooks), Some(planned)) = (&self.hooks, &self.write) else {
            return self.refuse(&WriteOp::Insert(op));
        };
        let pin = match &self.pin {
            Some(pin) => Arc::clone(pin),
            None => self.metadata.fallback_pin(key_of(state)),
        };
        let context = RunContext::of(state, pin, &self.metadata);
        let table = Self {
            write: None,
            ..self.clone()
        };
        let job = WriteJob {
            hooks: Arc::clone(hooks),
            table,
            planned: planned.as_ref().clone(),
            context,
        };
        Ok(Arc::new(WriteExec::new(job, input)))
    }

    async fn delete_from(
        &self,
        _state: &dyn Session,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse(&WriteOp::Delete)
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse(&WriteOp::Update)
    }

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse(&WriteOp::Truncate)
    }

    async fn merge_into(
        &self,
        _state: &dyn Session,
        _source: Arc<dyn ExecutionPlan>,
        _schema: DFSchemaRef,
        _on: Expr,
        _clauses: Vec<MergeIntoClause>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse(&WriteOp::Update)
    }
}
