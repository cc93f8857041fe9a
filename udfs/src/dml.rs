//! INSERT, REPLACE, UPDATE, DELETE and MERGE on the tables of a graph: the rows of their plans go the way
//! of loads and mutations, one commit a statement.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::prelude::DataFrame;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::schema::GraphType;
use stratagraph::{Error, Result};
use stratagraph_providers::{
    FunctionProvider, PlannedTable, PlannedWrite, RunContext, TableWrite, VersionedTableProvider,
    WriteHooks, from_datafusion, pin_plan, seal_plan,
};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::load::{self, ATTEMPTS, LoadMode, Loaded, Models, Request};
use crate::mutate::{counts, evaluate_rows, publish};

/// The write hooks of an installation.
#[derive(Debug)]
pub(crate) struct Dml {
    engine: Arc<Engine>,
}

impl Dml {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[async_trait]
impl WriteHooks for Dml {
    async fn write(
        self: Arc<Self>,
        table: VersionedTableProvider,
        planned: PlannedWrite,
        rows: SendableRecordBatchStream,
        context: RunContext,
    ) -> Result<u64> {
        let run = Run::of_statement(Arc::clone(&self.engine), &context);
        let statement = planned.write.statement();
        let label = table.planned().label();
        let span = tracing::info_span!("dml", statement, table = label);
        let work = async {
            run.host.check_writes(statement)?;
            let job = Job::new(&run, table.planned(), &planned)?;
            let count = match planned.write {
                TableWrite::Insert(_) => job.insert(rows).await?,
                _ => job.change(rows).await?,
            };
            tracing::info!(count, "done");
            Ok(count)
        };
        work.instrument(span).await
    }
}

/// A statement while it runs.
struct Job<'a> {
    run: &'a Run,
    table: &'a PlannedTable,
    type_id: u64,
    planned: &'a PlannedWrite,
    request: Request,
}

impl<'a> Job<'a> {
    fn new(run: &'a Run, table: &'a PlannedTable, planned: &'a PlannedWrite) -> Result<Self> {
        let Some(of) = &table.graph else {
            return Err(Error::ReadOnlyTable {
                table: table.label(),
                verb: "refresh_embeddings after changing the source",
            });
        };
        let settings = run.host.settings();
        let mode = match planned.write {
            TableWrite::Insert(InsertOp::Append) => LoadMode::Append,
            TableWrite::Insert(InsertOp::Overwrite) => LoadMode::Overwrite,
            _ => LoadMode::Merge,
        };
        let types = match mode {
            LoadMode::Overwrite => BTreeSet::from([of.type_id]),
            LoadMode::Append | LoadMode::Merge => BTreeSet::new(),
        };
        let request = Request {
            graph: table.name.clone(),
            branch: of.branch.clone(),
            from: None,
            mode,
            types,
            // A statement can read any rows for those that it changes.
            exact: true,
            fill: settings.fill_vectors,
            requester: run.requester(),
        };
        let asked = (&request.requester, GraphAction::Change);
        run.authorize(asked.0, asked.1, &request.graph, &request.branch)?;
        Ok(Self {
            run,
            table,
            type_id: of.type_id,
            planned,
            request,
        })
    }

    /// The state of the branch that a run sees. It has the columns that the statement was planned with.
    async fn base(&self, run: &Run) -> Result<GraphSnapshot> {
        let (graph, branch) = (&self.request.graph, &self.request.branch);
        let base = run.graph(graph, branch, None).await?;
        let same = match base.schema.by_id(self.type_id) {
            Some(of) => PlannedTable::of_type(&base, of, false)?.columns == self.table.columns,
            None => false,
        };
        if same {
            return Ok(base);
        }
        run.learn_branch(graph, branch).await;
        Err(Error::SchemaChanged {
            table: self.table.label(),
            detail: "it has other columns now".to_owned(),
        })
    }

    fn of<'b>(&self, base: &'b GraphSnapshot) -> Result<&'b GraphType> {
        base.schema.by_id(self.type_id).ok_or_else(|| {
            let key = &base.manifest_ref.key;
            Error::corrupt(
                "graph schema",
                key,
                format!("type {}", self.type_id),
                "none",
            )
        })
    }

    /// Rows that are written, or that go. What the statement read is the state that it changes.
    async fn change(&self, rows: SendableRecordBatchStream) -> Result<u64> {
        let (run, write) = (self.run, &self.planned.write);
        let stage = run.begin().await?;
        let base = self.base(run).await?;
        let of = self.of(&base)?;
        let fill = self.request.fill;
        let (outcome, count) = evaluate_rows(run, &base, of, write, rows, fill).await?;
        if outcome.loaded.is_empty() {
            return Ok(count);
        }
        let (loaded, counts) = (&outcome.loaded, outcome.counts());
        let mut models = None;
        let done = publish(
            run,
            &self.request,
            &base,
            loaded,
            &mut models,
            stage,
            |_| counts,
        );
        self.learn(done.await?.commit.is_some()).await;
        Ok(count)
    }

    /// New rows. Where another commit came first they are checked anew, and a source that reads this
    /// store is read anew; what an overwrite replaces must be what the statement saw.
    async fn insert(&self, rows: SendableRecordBatchStream) -> Result<u64> {
        let reads_store = reads_store(&self.planned.rows)?;
        let mut run = self.run.clone();
        let mut first = Some(rows);
        let mut read: Option<(GraphSnapshot, Loaded)> = None;
        let mut models: Option<Models> = None;
        for attempt in 1..=ATTEMPTS {
            // Begun first: what is read and staged after it is safe from a garbage collection.
            let stage = run.begin().await?;
            if attempt > 1 {
                run = run.fresh().await?;
            }
            let base = self.base(&run).await?;
            let loaded = match read.take().filter(|_| !reads_store) {
                Some((at, loaded)) => {
                    load::same_schema(&base, &at.schema)?;
                    loaded
                }
                None => {
                    let rows = match first.take() {
                        Some(rows) => rows,
                        None => self.read_anew(&run).await?,
                    };
                    let fill = self.request.fill;
                    // Models are asked for the texts of other rows.
                    models = None;
                    load::read_rows(&run, &base.schema, self.of(&base)?, rows, fill).await?
                }
            };
            let affected = |attempt: &load::Attempt<'_>| {
                let (nodes, edges) = attempt.affected();
                counts(nodes, edges)
            };
            let request = &self.request;
            let done = publish(&run, request, &base, &loaded, &mut models, stage, affected);
            match done.await {
                Err(Error::ReadSetChanged { .. }) if request.mode != LoadMode::Overwrite => {
                    tracing::debug!(attempt, "another commit came first");
                    read = Some((base, loaded));
                    run.back_off(attempt).await;
                }
                other => {
                    let done = other?;
                    self.learn(done.commit.is_some()).await;
                    return Ok(done.written);
                }
            }
        }
        Err(Error::CommitConflict {
            dataset: self.request.graph.to_string(),
            attempts: ATTEMPTS,
        })
    }

    /// The rows of the statement in the snapshot of another run.
    async fn read_anew(&self, run: &Run) -> Result<SendableRecordBatchStream> {
        let plan = pin_plan(self.planned.rows.as_ref().clone(), run.pin());
        let plan = plan.and_then(seal_plan).map_err(from_datafusion)?;
        let frame = DataFrame::new(run.host.context().state(), plan);
        frame.execute_stream().await.map_err(from_datafusion)
    }

    async fn learn(&self, committed: bool) {
        if committed {
            let (graph, branch) = (&self.request.graph, &self.request.branch);
            self.run.learn_branch(graph, branch).await;
        }
    }
}

/// Whether a plan reads tables or functions of ours.
fn reads_store(plan: &LogicalPlan) -> Result<bool> {
    let mut reads = false;
    let look = |node: &LogicalPlan| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            let table = provider.downcast_ref::<VersionedTableProvider>().is_some();
            reads |= table || provider.downcast_ref::<FunctionProvider>().is_some();
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(look).map_err(from_datafusion)?;
    Ok(reads)
}
