//! DML: what the crate above does for INSERT, UPDATE, DELETE, MERGE and TRUNCATE.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{LogicalPlan, WriteOp};
use stratagraph::Error;

use crate::columns::PlannedTable;
use crate::error::to_datafusion;
use crate::function::RunContext;
use crate::versioned::VersionedTableProvider;

/// What a statement does with the rows that its plan gives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableWrite {
    /// `INSERT INTO`, `INSERT OVERWRITE`, `REPLACE INTO`: the plan gives new rows in the columns of
    /// the table, NULL where the statement names no column.
    Insert(InsertOp),
    /// `DELETE` and `TRUNCATE`: the plan gives `id` of the rows that go.
    Delete,
    /// `UPDATE`: the plan gives whole rows as they are to be, in the columns of the table.
    Update {
        /// Columns that the statement assigns.
        assigned: Vec<String>,
    },
    /// `MERGE INTO`: the plan gives [`MERGE_ACTION`], [`MERGE_OLD`] and the columns of the table.
    Merge {
        /// What to do with a row, by its [`MERGE_ACTION`].
        actions: Vec<MergeAction>,
    },
}

/// What a clause of `MERGE INTO` does with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeAction {
    /// A new row.
    Insert,
    /// The row of the target with other values.
    Update {
        /// Columns that the clause assigns.
        assigned: Vec<String>,
    },
    /// The row of the target goes.
    Delete,
}

/// Int32 column of the rows of a `MERGE INTO`: which clause takes the row.
pub const MERGE_ACTION: &str = "__stratagraph_action";
/// The id of the target's row, NULL for a new one.
pub const MERGE_OLD: &str = "__stratagraph_old";

impl TableWrite {
    /// The statement's words.
    pub fn statement(&self) -> &'static str {
        match self {
            Self::Insert(InsertOp::Append) => "INSERT INTO",
            Self::Insert(InsertOp::Overwrite) => "INSERT OVERWRITE",
            Self::Insert(InsertOp::Replace) => "REPLACE INTO",
            Self::Delete => "DELETE",
            Self::Update { .. } => "UPDATE",
            Self::Merge { .. } => "MERGE INTO",
        }
    }
}

/// A statement on a table: what it does, and the analysed plan of its rows under the statement's pin.
#[derive(Debug, Clone)]
pub struct PlannedWrite {
    /// What becomes of the rows.
    pub write: TableWrite,
    /// Their plan; where another commit came first, an insert is planned anew from it.
    pub rows: Arc<LogicalPlan>,
}

/// Changes tables as DML asks.
#[async_trait]
pub trait WriteHooks: Debug + Send + Sync {
    /// Takes the rows of a statement and commits once. Called at most once for each execution of a
    /// plan, never when a statement is planned. Gives the number of rows of the table that were
    /// written or deleted. Dropping the future cancels it.
    async fn write(
        self: Arc<Self>,
        table: VersionedTableProvider,
        planned: PlannedWrite,
        rows: SendableRecordBatchStream,
        context: RunContext,
    ) -> stratagraph::Result<u64>;
}

/// What a table answers to DML that it has no hooks for: its rows come from verbs.
pub(crate) fn read_only(
    table: &PlannedTable,
    write: &WriteOp,
) -> datafusion::error::DataFusionError {
    let verb = match (&table.graph, write) {
        (Some(_), WriteOp::Truncate | WriteOp::Delete) => "graph_load with mode 'overwrite'",
        (Some(_), WriteOp::Insert(_)) => "graph_load or graph_load_table",
        (Some(_), _) => "graph_mutate",
        (None, WriteOp::Insert(_)) => {
            "refresh_embeddings after changing the source, or import_embeddings"
        }
        (None, WriteOp::Truncate) => "drop_embeddings",
        (None, _) => "refresh_embeddings after changing the source",
    };
    to_datafusion(Error::ReadOnlyTable {
        table: table.label(),
        verb,
    })
}
