//! `graph_changes`: what differs between two states of a branch.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use futures::TryStreamExt;
use stratagraph::Result;
use stratagraph::catalog::graph::{At, GraphSnapshot};
use stratagraph::graph::schema::GraphType;
use stratagraph::publish::changes::{content_columns, marks, marks_schema};
use stratagraph::table::read::TableReader;
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::query::graph_and_branch;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::load::{Plan, SPOOLS};
use crate::report::GraphChangeRow;
use crate::spool::{Spool, Spooler};

const READ: &str = "graph_changes";

/// Bytes of a change beside its texts.
const ROW_BYTES: usize = 96;

/// A state of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphState {
    /// The one that this commit made.
    Commit(String),
    /// The one that was current at this catalog version.
    Catalog(u64),
}

impl From<&GraphState> for At {
    fn from(state: &GraphState) -> Self {
        match state {
            GraphState::Commit(id) => Self::Commit(id.clone()),
            GraphState::Catalog(version) => Self::Catalog(*version),
        }
    }
}

/// The rows that differ between two states of a branch: by type in the order of the newer schema, then
/// by id. A row is its properties and its ends; where it lies is nothing.
pub(crate) async fn graph_changes(
    run: &Run,
    graph: &str,
    branch: Option<&str>,
    (from, to): (&GraphState, &GraphState),
) -> Result<Vec<GraphChangeRow>> {
    let span = tracing::info_span!("graph_changes", graph);
    let work = async {
        let (name, branch) = graph_and_branch(READ, graph, branch)?;
        let from = run.graph(&name, &branch, Some(&from.into())).await?;
        let to = run.graph(&name, &branch, Some(&to.into())).await?;
        let mut changes = Changes {
            run,
            rows: Vec::new(),
            memory: run.host.memory("changes of a graph"),
        };
        for of in &to.schema.types {
            let before = from.schema.by_id(of.id).map(|before| (&from, before));
            changes.of_type(before, Some((&to, of))).await?;
        }
        for of in &from.schema.types {
            if to.schema.by_id(of.id).is_none() {
                changes.of_type(Some((&from, of)), None).await?;
            }
        }
        Ok(changes.rows)
    };
    work.instrument(span).await
}

struct Changes<'a> {
    run: &'a Run,
    rows: Vec<GraphChangeRow>,
    memory: datafusion::execution::memory_pool::MemoryReservation,
}

/// A type in one of the states.
type Side<'a> = Option<(&'a GraphSnapshot, &'a GraphType)>;

impl Changes<'_> {
    async fn reader(&self, side: Side<'_>) -> Result<Option<TableReader>> {
        let Some((state, of)) = side else {
            return Ok(None);
        };
        let catalog = self.run.catalog();
        let table = state.table(catalog.store(), of.id).await?.table;
        let env = self.run.host.env(catalog.env());
        Ok(Some(TableReader::new(
            Arc::clone(catalog.store()),
            &env,
            table,
        )))
    }

    /// The rows of one side that the other has not in the same place; they wait in a spool, which
    /// spills.
    async fn side(
        &self,
        ours: Option<&TableReader>,
        theirs: Option<&TableReader>,
        content: &[u64],
    ) -> Result<Spool> {
        let schema = marks_schema();
        let host = &self.run.host;
        let spooler = Spooler::new(host, Arc::clone(&schema), "rows that differ", SPOOLS);
        let mut segment = spooler.segment();
        if let Some(ours) = ours {
            let mut rows = marks(ours, theirs, content).await?;
            while let Some(batch) = rows.try_next().await? {
                segment.push(batch)?;
            }
        }
        Ok(Spool::new(schema, vec![segment.finish()?]))
    }

    async fn of_type(&mut self, from: Side<'_>, to: Side<'_>) -> Result<()> {
        let Some((_, of)) = to.or(from) else {
            return Ok(());
        };
        let content = match (from, to) {
            (Some((_, before)), Some((_, after))) => content_columns(before, after)?,
            _ => Vec::new(),
        };
        let (old, new) = (self.reader(from).await?, self.reader(to).await?);
        let before = self.side(old.as_ref(), new.as_ref(), &content).await?;
        let after = self.side(new.as_ref(), old.as_ref(), &content).await?;
        if before.rows() == 0 && after.rows() == 0 {
            return Ok(());
        }
        let plan = Plan::new(&self.run.host)
            .with_rows("old", &before)?
            .with_rows("new", &after)?
            .holding(before.rows());
        let sql = "SELECT k, c FROM (SELECT coalesce(n.k, o.k) AS k, \
                   CASE WHEN o.k IS NULL THEN 'added' WHEN n.k IS NULL THEN 'deleted' \
                   WHEN o.m <> n.m THEN 'changed' END AS c \
                   FROM old o FULL JOIN new n ON o.k = n.k) d WHERE c IS NOT NULL ORDER BY k";
        let memory = &self.memory;
        let take = |rows: &mut Vec<GraphChangeRow>, batch: RecordBatch| {
            let text = |column: usize| {
                arrow::compute::cast(batch.column(column), &arrow::datatypes::DataType::Utf8)
            };
            let (keys, kinds) = (text(0)?, text(1)?);
            let (keys, kinds) = (keys.as_string::<i32>(), kinds.as_string::<i32>());
            for (key, change) in keys.iter().zip(kinds).filter_map(|(k, c)| k.zip(c)) {
                let bytes = ROW_BYTES + of.name.len() + key.len();
                memory
                    .try_grow(bytes)
                    .map_err(stratagraph_providers::from_datafusion)?;
                rows.push(GraphChangeRow {
                    r#type: of.name.clone(),
                    id: key.to_owned(),
                    change: change.to_owned(),
                });
            }
            Ok(())
        };
        let rows = plan.fold(sql, Vec::new, take).await?;
        self.rows.extend(rows);
        Ok(())
    }
}

fn state_of(args: &BoundArgs, name: &str) -> Result<GraphState> {
    match args.get(name) {
        ArgValue::Text(commit) => Ok(GraphState::Commit(commit.clone())),
        ArgValue::Int(version) => match u64::try_from(*version) {
            Ok(version) => Ok(GraphState::Catalog(version)),
            Err(_) => Err(args.invalid(name, "a catalog version is not negative")),
        },
        _ => Err(args.invalid(name, "expected a commit id or a catalog version")),
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("from", ArgType::Snapshot),
        ArgSpec::required("to", ArgType::Snapshot),
        ArgSpec::optional("branch", ArgType::Name),
    ];
    let spec = FunctionSpec::read(READ, args);
    ReportFunction::of::<GraphChangeRow>(engine, spec, |call| {
        Box::pin(async move {
            let args = &call.args;
            let (from, to) = (state_of(args, "from")?, state_of(args, "to")?);
            let (graph, branch) = (args.text("graph")?, args.opt_text("branch"));
            answer(&graph_changes(&call.run, graph, branch, (&from, &to)).await?)
        })
    })
}
