//! DML: what the crate above does for INSERT, DELETE, UPDATE, MERGE and TRUNCATE.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::logical_expr::dml::{InsertOp, MergeIntoClause};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::Error;

use crate::columns::PlannedTable;
use crate::error::to_datafusion;
use crate::pin::StatementPin;
use crate::versioned::VersionedTableProvider;

/// A change of a table, as SQL asked for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TableWrite {
    /// `INSERT INTO`, `INSERT OVERWRITE`, `REPLACE INTO`.
    Insert {
        /// Rows in the order of the table's schema.
        input: Arc<dyn ExecutionPlan>,
        /// Which of the three.
        op: InsertOp,
    },
    /// `DELETE`.
    Delete,
    /// `UPDATE`.
    Update {
        /// Column and new value.
        assignments: Vec<(String, Expr)>,
    },
    /// `MERGE INTO`.
    Merge {
        /// Rows of the USING side.
        source: Arc<dyn ExecutionPlan>,
        /// The target's columns, then the source's.
        schema: DFSchemaRef,
        /// The join condition.
        on: Expr,
        /// What to do with matches.
        clauses: Vec<MergeIntoClause>,
    },
    /// `TRUNCATE`.
    Truncate,
}

/// Turns changes into plans. Hooks are called when a statement is planned and under EXPLAIN, so they
/// must not change anything: the plan that they give does, when it is executed.
#[async_trait]
pub trait WriteHooks: Debug + Send + Sync {
    /// A plan with one row and one UInt64 column `count`.
    ///
    /// `rows` is the analysed input of DELETE, UPDATE and MERGE, with the statement's pin and sealed
    /// against a second one: it says which rows, where the filters that DataFusion hands over do not.
    async fn plan_write(
        &self,
        state: &dyn Session,
        table: &VersionedTableProvider,
        write: TableWrite,
        rows: Option<Arc<LogicalPlan>>,
        pin: Option<Arc<StatementPin>>,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

/// What a table answers to DML without hooks: its rows come from verbs.
pub(crate) fn read_only(
    table: &PlannedTable,
    write: &TableWrite,
) -> datafusion::error::DataFusionError {
    let verb = match (&table.graph, write) {
        (Some(_), TableWrite::Truncate | TableWrite::Delete) => "graph_load with mode 'overwrite'",
        (Some(_), _) => "graph_load or graph_load_table",
        (None, TableWrite::Insert { .. }) => {
            "refresh_embeddings after changing the source, or import_embeddings"
        }
        (None, TableWrite::Truncate) => "drop_embeddings",
        (None, _) => "refresh_embeddings after changing the source",
    };
    to_datafusion(Error::ReadOnlyTable {
        table: table.label(),
        verb,
    })
}
