//! The handle: every verb as a typed Rust call.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::prelude::SessionContext;
use stratagraph::Result;
use stratagraph::catalog::Catalog;
use stratagraph::embed::{Embedder, Handshake, ModelRegistry};
use stratagraph::graph::input::Grammar;
use stratagraph::ident::{Name, TxnId, VersionedName};
use stratagraph::publish::{Deletes, Requester};
use stratagraph_providers::Metadata;

use crate::engine::{Engine, Run};
use crate::host::Host;
use crate::load::LoadMode;
use crate::pinned::PinnedSource;
use crate::report::{
    BranchReport, BranchRow, ChangeRow, CommitRow, CommitStatus, ConflictRow, DropReport,
    ExpireReport, GarbageReport, GenerateReport, GraphChangeRow, GraphCreateReport,
    GraphDropReport, GraphExpireReport, GraphIndexRow, GraphLoadReport, GraphMutateReport,
    GraphOptimizeRow, GraphRow, GraphSchemaRow, IndexReport, ModelRow, NeighborReport, PinRow,
    RecomputeRow, RefreshPlan, RefreshReport, RejectedRow, SchemaStepRow, SegmentRow, StalenessRow,
    TableRow, VerifyRow, VersionRow, ViolationRow,
};
use crate::verbs::{
    self, ApplySchema, BranchFrom, BuildIndex, Cascade, CommitFilter, CompactOptions, CreatePin,
    ExpireBefore, GenerateEmbeddings, GraphLoad, GraphLoadTable, GraphMerge, GraphMutate,
    GraphState, HybridSearch, ImportEmbeddings, NeighborGraph, RefreshOptions, Search, SearchHit,
    TextSearch, VectorSearch, Wanted,
};

/// A store, opened for the session on which it was installed. Clones share everything.
///
/// The SQL functions of the same names are thin over these calls: a verb gives the same identity,
/// digests and counts either way.
///
/// ```no_run
/// # use datafusion::prelude::SessionContext;
/// # use stratagraph_udfs::{GenerateEmbeddings, Options, RefreshOptions, install};
/// # async fn example(ctx: SessionContext) -> stratagraph::Result<()> {
/// let store = install(&ctx, Options::new("file:///data/sg")).await?;
/// let table = GenerateEmbeddings::new("docs", ["title", "body"], "id").name("docs_vectors");
/// store.generate_embeddings(table).await?;
/// // ... rows are edited, added, or deleted in the source ...
/// let report = store.refresh_embeddings("docs_vectors", RefreshOptions::default()).await?;
/// assert_eq!(report.outcome, "published");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stratagraph {
    engine: Arc<Engine>,
    session: SessionContext,
}

impl std::fmt::Debug for Stratagraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stratagraph({})", self.engine.root)
    }
}

impl Stratagraph {
    pub(crate) fn new(engine: Arc<Engine>, session: SessionContext) -> Self {
        Self { engine, session }
    }

    /// One call: the session as it is now, and a snapshot of its own.
    fn run(&self) -> Run {
        Run::new(Arc::clone(&self.engine), Host::new(self.session.state()))
    }

    /// The engine's catalog of this store.
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.engine.catalog()
    }

    /// What this process knows of the store.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.engine.metadata
    }

    /// The models that SQL can name; register more at any time.
    pub fn models(&self) -> &ModelRegistry {
        &self.engine.models
    }

    /// Offers a model to SQL as `name`, which is what tables made with it remember.
    ///
    /// # Errors
    /// `AlreadyExists` for a name that is taken, `InvalidIdentifier`.
    pub fn register_model(&self, name: &str, model: Arc<dyn Embedder>) -> Result<()> {
        self.models().register(name, model)
    }

    /// Opens a model and, if it is behind a server that was not asked yet, asks who it is. Planning
    /// on a current-thread runtime cannot do that itself.
    ///
    /// # Errors
    /// Those of the model: `ModelNotFound`, `ModelInvalid`, `ModelFailed`, `SourceNotAllowed`.
    pub async fn open_model(&self, model: &str) -> Result<()> {
        self.engine.model(model, Handshake::Known).await.map(drop)
    }

    /// The store's root, without secrets.
    pub fn root(&self) -> &str {
        &self.engine.root
    }

    /// Looks at the store, so that planning knows the tables that other processes have made since.
    pub async fn refresh_metadata(&self) -> Result<()> {
        self.engine.load_metadata(usize::MAX).await
    }

    /// Makes a graph without rows. `schema` is text of the schema language, or a path that ends in
    /// `.pg`.
    ///
    /// # Errors
    /// `SchemaInvalid` with everything that is wrong, `NotYetSupported`, `AlreadyExists`, and the
    /// commit's own.
    pub async fn graph_create(&self, graph: &str, schema: &str) -> Result<GraphCreateReport> {
        verbs::graph::graph_create(&self.run(), &Name::parse(graph)?, schema).await
    }

    /// All graphs.
    pub async fn graphs(&self) -> Result<Vec<GraphRow>> {
        verbs::graph::graphs(&self.run()).await
    }

    /// Types, properties and constraints of `graph` or `graph@branch`.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn graph_schema(&self, graph: &str) -> Result<Vec<GraphSchemaRow>> {
        verbs::graph::graph_schema(&self.run(), graph).await
    }

    /// Loads records into a graph, all of them in one commit or none.
    ///
    /// # Errors
    /// `RecordsInvalid` with what is wrong with the records, `KeyConflict` for an append whose ids
    /// exist and that is sound otherwise, `ReadSetChanged` for an overwrite that another commit
    /// outran; those of the files, the models and the commit. Nothing is changed then.
    pub async fn graph_load(&self, load: GraphLoad) -> Result<GraphLoadReport> {
        verbs::graph::graph_load(&self.run(), load).await
    }

    /// What [`graph_load`](Self::graph_load) would refuse, the first ones by record, type, id and
    /// rule. Nothing is written.
    ///
    /// # Errors
    /// Those of the files and of the models.
    pub async fn graph_load_violations(&self, load: GraphLoad) -> Result<Vec<ViolationRow>> {
        verbs::graph::graph_load_violations(&self.run(), load).await
    }

    /// Loads rows of a table or a query of the session into one type of a graph.
    ///
    /// # Errors
    /// `InvalidArgument` for columns that do not fit the type, else as
    /// [`graph_load`](Self::graph_load).
    pub async fn graph_load_table(&self, load: GraphLoadTable) -> Result<GraphLoadReport> {
        verbs::graph::graph_load_table(&self.run(), load).await
    }

    /// Runs the statements of a mutation, all of them in one commit or none.
    ///
    /// # Errors
    /// `QueryInvalid` for what does not compile, `RecordsInvalid` for rows that break the schema,
    /// `PreconditionFailed` for a branch that is not at `if_commit`, `RequestIdReused`,
    /// `ReadSetChanged` where it updates or deletes and another commit came first; those of the
    /// models and of the commit. Nothing is changed then.
    pub async fn graph_mutate(&self, call: GraphMutate) -> Result<GraphMutateReport> {
        verbs::graph::graph_mutate(&self.run(), call).await
    }

    /// Loads JSONL in the strict grammar.
    ///
    /// # Errors
    /// As [`graph_load`](Self::graph_load).
    pub async fn load_graph_batch(
        &self,
        graph: &str,
        branch: &str,
        data: &str,
        mode: LoadMode,
    ) -> Result<GraphLoadReport> {
        self.load_graph_batch_as(graph, branch, None, data, mode, None)
            .await
    }

    /// As [`load_graph_batch`](Self::load_graph_batch): a branch that is missing is made from
    /// `base`, and the commit names `actor`.
    ///
    /// # Errors
    /// As [`graph_load`](Self::graph_load).
    pub async fn load_graph_batch_as(
        &self,
        graph: &str,
        branch: &str,
        base: Option<&str>,
        data: &str,
        mode: LoadMode,
        actor: Option<&str>,
    ) -> Result<GraphLoadReport> {
        let load = GraphLoad {
            branch: branch.to_owned(),
            base: base.map(str::to_owned),
            requester: Requester {
                actor: actor.map(str::to_owned),
                request_id: None,
            },
            ..GraphLoad::of_text(graph, data, mode)
        };
        self.graph_load(load).await
    }

    /// Loads JSONL in the compatible grammar.
    ///
    /// # Errors
    /// As [`graph_load`](Self::graph_load).
    pub async fn load(
        &self,
        graph: &str,
        branch: &str,
        data: &str,
        mode: LoadMode,
    ) -> Result<GraphLoadReport> {
        self.load_as(graph, branch, None, data, mode, None).await
    }

    /// As [`load`](Self::load): a branch that is missing is made from `base`, and the commit names
    /// `actor`.
    ///
    /// # Errors
    /// As [`graph_load`](Self::graph_load).
    pub async fn load_as(
        &self,
        graph: &str,
        branch: &str,
        base: Option<&str>,
        data: &str,
        mode: LoadMode,
        actor: Option<&str>,
    ) -> Result<GraphLoadReport> {
        let load = GraphLoad {
            branch: branch.to_owned(),
            base: base.map(str::to_owned),
            grammar: Grammar::Compatible,
            requester: Requester {
                actor: actor.map(str::to_owned),
                request_id: None,
            },
            ..GraphLoad::of_text(graph, data, mode)
        };
        self.graph_load(load).await
    }

    /// Drops a graph with all its branches.
    ///
    /// # Errors
    /// `NotFound`, `Pinned`, and the commit's own.
    pub async fn graph_drop(&self, graph: &str) -> Result<GraphDropReport> {
        verbs::graph::graph_drop(&self.run(), &Name::parse(graph)?).await
    }

    /// Makes a branch of a graph, which shares everything with what it is made from.
    pub async fn graph_branch_create(
        &self,
        graph: &str,
        branch: &str,
        from: BranchFrom,
    ) -> Result<BranchReport> {
        verbs::graph::graph_branch_create(&self.run(), &Name::parse(graph)?, branch, &from).await
    }

    /// Deletes a branch of a graph.
    pub async fn graph_branch_delete(&self, graph: &str, branch: &str) -> Result<BranchReport> {
        verbs::graph::graph_branch_delete(&self.run(), &Name::parse(graph)?, branch).await
    }

    /// The branches of a graph by name.
    pub async fn graph_branches(&self, graph: &str) -> Result<Vec<BranchRow>> {
        verbs::graph::graph_branches(&self.run(), &Name::parse(graph)?).await
    }

    /// Gives a branch of a graph another schema, and tells the steps; none if it has it already.
    ///
    /// # Errors
    /// `SchemaInvalid` with everything that is wrong with the text, `SchemaChangeRefused` with the steps
    /// that cannot be done, `RecordsInvalid` with stored rows that break the new schema, and the
    /// commit's own. Nothing is changed then.
    pub async fn graph_apply_schema(&self, apply: &ApplySchema) -> Result<Vec<SchemaStepRow>> {
        verbs::graph::graph_apply_schema(&self.run(), apply).await
    }

    /// The rows that differ between two states of a branch, by type and id. What only moved is the same.
    ///
    /// # Errors
    /// `NotFound` for the graph, the branch or a commit; `VersionUnavailable`.
    pub async fn graph_changes(
        &self,
        graph: &str,
        branch: Option<&str>,
        from: &GraphState,
        to: &GraphState,
    ) -> Result<Vec<GraphChangeRow>> {
        verbs::graph::graph_changes(&self.run(), graph, branch, (from, to)).await
    }

    /// Merges a branch of a graph into another: all of its changes, or nothing.
    pub async fn graph_branch_merge(&self, merge: &GraphMerge) -> Result<BranchReport> {
        verbs::graph::graph_branch_merge(&self.run(), merge).await
    }

    /// What keeps a branch from being merged; nothing is written.
    pub async fn graph_merge_conflicts(&self, merge: &GraphMerge) -> Result<Vec<ConflictRow>> {
        verbs::graph::graph_merge_conflicts(&self.run(), merge).await
    }

    /// Merges the fragments of each type of `graph` (or `graph@branch`) into one without dead rows and
    /// builds the indexes that are declared, in one commit. Where nothing is to do there is no commit.
    ///
    /// # Errors
    /// `NotFound`, `ParentMoved` for a graph that is dropped meanwhile, those of memory and of the commit.
    /// Nothing is changed then, except as `CommitUnknown` says.
    pub async fn graph_optimize(&self, graph: &str) -> Result<Vec<GraphOptimizeRow>> {
        verbs::graph::graph_optimize(&self.run(), graph, None).await
    }

    /// Indexes of `graph` (or `graph@branch`), and how many rows they cover.
    pub async fn graph_indexes(&self, graph: &str) -> Result<Vec<GraphIndexRow>> {
        verbs::graph::graph_indexes(&self.run(), graph, None).await
    }

    /// Forgets older states of `graph` (or `graph@branch`) and deletes what only they referenced: never a
    /// head, a pinned state, or one that a branch was made from or has merged.
    ///
    /// # Errors
    /// `NotFound` for the graph, the branch or the commit; the commit's own.
    pub async fn graph_expire(
        &self,
        graph: &str,
        before: &ExpireBefore,
    ) -> Result<GraphExpireReport> {
        verbs::graph::graph_expire(&self.run(), graph, before, None).await
    }

    /// Makes a table from a source of the session and publishes it as version 0.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidKey` (both before any model call), refusals of arguments and models,
    /// and the commit's own. Nothing is changed then, except as `CommitUnknown` says.
    pub async fn generate_embeddings(&self, table: GenerateEmbeddings) -> Result<GenerateReport> {
        verbs::generate(&self.run(), table).await
    }

    /// Brings a table to the state of its source: rows whose content changed are embedded again and
    /// published as the next version. Readers see one version at a time.
    ///
    /// # Errors
    /// `NotRefreshable`, `DefinitionDrift`, `SourceNotFound`, `SourceMismatch`, `InvalidKey` and
    /// `NonUniqueKey`, all before any model call; `ParentMoved` if the table was dropped, restored
    /// or redefined meanwhile; and the commit's own.
    pub async fn refresh_embeddings(
        &self,
        table: &str,
        options: RefreshOptions,
    ) -> Result<RefreshReport> {
        verbs::refresh_embeddings(&self.run(), &Name::parse(table)?, options).await
    }

    /// Counts what a refresh would do. No model runs, nothing is written.
    pub async fn refresh_plan(&self, table: &str, deletes: Deletes) -> Result<RefreshPlan> {
        verbs::refresh_plan(&self.run(), &Name::parse(table)?, deletes).await
    }

    /// The rows that the model refuses for good, by key.
    pub async fn rejected_rows(&self, table: &str) -> Result<Vec<RejectedRow>> {
        verbs::rejected_rows(&self.run(), &Name::parse(table)?).await
    }

    /// The retained versions of a table, newest first.
    pub async fn versions(&self, table: &str) -> Result<Vec<VersionRow>> {
        verbs::versions(&self.run(), &Name::parse(table)?).await
    }

    /// All live vectors in key order: columns `_row_id`, `vector`. `table` may be `docs@3`.
    pub async fn read_vectors(&self, table: &str) -> Result<Vec<RecordBatch>> {
        let VersionedName { name, version } = VersionedName::parse(table)?;
        verbs::read_vectors(&self.run(), &name, version).await
    }

    /// The rows that are most like a text, a vector or another row; best first.
    pub async fn search(&self, table: &str, search: Search) -> Result<Vec<SearchHit>> {
        verbs::search(&self.run(), &Name::parse(table)?, search).await
    }

    /// The `k` rows that are most like the row of a key, that row included.
    pub async fn search_by_id(&self, table: &str, row_id: &str, k: u64) -> Result<Vec<SearchHit>> {
        let search = Search::new(Wanted::Row(row_id.to_owned()), k);
        self.search(table, search).await
    }

    /// The rows of a table with the nearest vectors, nearest first: its columns, `_distance`, `_rank`.
    pub async fn vector_search(&self, search: VectorSearch) -> Result<RecordBatch> {
        verbs::vector_search(&self.run(), search).await
    }

    /// The rows of a table whose texts match best, best first: its columns, `_score`, `_rank`.
    pub async fn text_search(&self, search: TextSearch) -> Result<RecordBatch> {
        verbs::text_search(&self.run(), search).await
    }

    /// Both in one order: the table's columns, `_score`, `_vector_rank`, `_text_rank`.
    pub async fn hybrid_search(&self, search: HybridSearch) -> Result<RecordBatch> {
        verbs::hybrid_search(&self.run(), search).await
    }

    /// Builds an index over a column of a table: `t`, or `g.Type` of a graph. Searches find the same rows
    /// with it and without it.
    pub async fn build_index(&self, index: BuildIndex) -> Result<IndexReport> {
        verbs::build_index(&self.run(), index).await
    }

    /// Reads everything that the current version consists of and compares it with its manifest.
    pub async fn verify_materialization(&self, table: &str) -> Result<Vec<VerifyRow>> {
        verbs::verify_materialization(&self.run(), &Name::parse(table)?).await
    }

    /// Rewrites live rows as fewer fragments and publishes them as a new version. No model runs;
    /// vectors stay byte for byte, and every search has the same answer.
    ///
    /// # Errors
    /// `ParentMoved` if the table was dropped or restored meanwhile, and the commit's own.
    pub async fn compact_embeddings(
        &self,
        table: &str,
        options: CompactOptions,
    ) -> Result<RefreshReport> {
        verbs::compact_embeddings(&self.run(), &Name::parse(table)?, options).await
    }

    /// Forgets the versions below `before` and deletes what nothing else references. The current
    /// version and pinned ones stay; version 0 goes only with `include_base`.
    pub async fn expire_versions(
        &self,
        table: &str,
        before: u64,
        include_base: bool,
    ) -> Result<ExpireReport> {
        verbs::expire_versions(&self.run(), &Name::parse(table)?, before, include_base).await
    }

    /// Publishes the content of an older version as a new one.
    ///
    /// # Errors
    /// `VersionUnavailable`, `ParentMoved` if the table was dropped meanwhile, the commit's own.
    pub async fn restore_version(&self, table: &str, version: u64) -> Result<RefreshReport> {
        verbs::restore_version(&self.run(), &Name::parse(table)?, version).await
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`.
    pub async fn rename_embeddings(&self, table: &str, name: &str) -> Result<DropReport> {
        verbs::rename_embeddings(&self.run(), &Name::parse(table)?, &Name::parse(name)?).await
    }

    /// The keys whose row differs between two versions, in key order.
    pub async fn changes(&self, table: &str, from: u64, to: u64) -> Result<Vec<ChangeRow>> {
        verbs::changes(&self.run(), &Name::parse(table)?, from, to).await
    }

    /// What answers a search of the current version.
    pub async fn segments(&self, table: &str) -> Result<Vec<SegmentRow>> {
        verbs::segments(&self.run(), table).await
    }

    /// The default model and the registered ones.
    pub async fn embedding_models(&self) -> Result<Vec<ModelRow>> {
        verbs::embedding_models(&self.run()).await
    }

    /// Pins a version durably: expiry keeps it, and its table cannot be dropped.
    ///
    /// # Errors
    /// `AlreadyExists` for the name of a pin, `NotFound`, `VersionUnavailable`, the commit's own.
    pub async fn create_pin(&self, pin: CreatePin) -> Result<PinRow> {
        verbs::create_pin(&self.run(), pin).await
    }

    /// Drops a durable pin.
    pub async fn drop_pin(&self, name: &str) -> Result<PinRow> {
        verbs::drop_pin(&self.run(), &Name::parse(name)?).await
    }

    /// All durable pins, by name.
    pub async fn pins(&self) -> Result<Vec<PinRow>> {
        verbs::pins(&self.run()).await
    }

    /// Deletes what nothing references. Transactions that are open meanwhile are refused when they
    /// commit (`WriterFenced`), so call it when none is expected.
    pub async fn collect_garbage(&self, dry_run: bool) -> Result<GarbageReport> {
        verbs::collect_garbage(&self.run(), dry_run).await
    }

    /// Makes a table of vectors that someone else made. It can be searched and compacted, and never
    /// refreshed.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidKey`, `NonUniqueKey`, `InvalidArgument` for vectors that are missing,
    /// of several lengths, zero or not finite; nothing is staged before the counts are known.
    pub async fn import_embeddings(&self, import: ImportEmbeddings) -> Result<GenerateReport> {
        verbs::import_embeddings(&self.run(), import).await
    }

    /// Finds the rows most like each row of a table and publishes them as a table of its own, which
    /// names the version that it was made from. Holds all vectors in memory.
    pub async fn neighbor_graph(&self, graph: NeighborGraph) -> Result<NeighborReport> {
        verbs::neighbor_graph(&self.run(), graph).await
    }

    /// Whether a table is still what its definition and its inputs say. Runs no model.
    pub async fn staleness(&self, table: &str) -> Result<StalenessRow> {
        verbs::staleness(&self.run(), &Name::parse(table)?).await
    }

    /// Makes a table again from its definition, under `name` or the next free `{table}__r{n}`; works
    /// also where the current manifest is lost.
    pub async fn recompute(
        &self,
        table: &str,
        cascade: Cascade,
        name: Option<&str>,
    ) -> Result<Vec<RecomputeRow>> {
        let name = name.map(Name::parse).transpose()?;
        verbs::recompute(&self.run(), &Name::parse(table)?, cascade, name).await
    }

    /// The current version of a table, resolved once: the anchor that a result made from it names, its
    /// rows and its searches are all of that one version.
    pub async fn pin_current_version(&self, table: &str) -> Result<PinnedSource> {
        PinnedSource::of(&self.run(), &Name::parse(table)?).await
    }

    /// Drops a table.
    ///
    /// # Errors
    /// `NotFound`, and `Pinned` for a table with durable pins.
    pub async fn drop_embeddings(&self, table: &str) -> Result<DropReport> {
        verbs::drop_embeddings(&self.run(), &Name::parse(table)?).await
    }

    /// All embedding tables by name.
    pub async fn embedding_tables(&self) -> Result<Vec<TableRow>> {
        verbs::embedding_tables(&self.run()).await
    }

    /// Commits, newest first.
    pub async fn commits(&self, filter: CommitFilter) -> Result<Vec<CommitRow>> {
        verbs::commits(&self.run(), &filter).await
    }

    /// What became of a transaction.
    pub async fn commit_status(&self, txn: &str) -> Result<CommitStatus> {
        verbs::commit_status(&self.run(), &TxnId::parse(txn)?).await
    }
}
