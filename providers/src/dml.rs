//! DML as one ordinary plan of rows.
//!
//! DataFusion 55.2 gives a provider the conditions of DELETE and UPDATE as a list that it takes from
//! the optimised input, which loses `WHERE false`, `IN (subquery)`, `EXISTS` and LIMIT. So the
//! analyzer rule compiles the whole analysed input into the plan of the rows that the statement is
//! about, and puts it into an insert: the one kind of DML whose plan DataFusion executes as it is.
//!
//! ```text
//! DELETE FROM t WHERE p    =>  insert into (t, Delete)  SELECT id FROM t WHERE p
//! UPDATE t SET a WHERE p   =>  insert into (t, Update)  SELECT *, a FROM t WHERE p
//! MERGE INTO t USING s     =>  insert into (t, Merge)   SELECT action, t.id, * FROM t JOIN s
//! ```

mod lift;
mod merge;

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, WriteOp};
use stratagraph::Error;

use crate::error::{bad_argument, to_datafusion};
use crate::hooks::TableWrite;
use crate::versioned::VersionedTableProvider;

/// The plan of the rows of a statement on a table, which is pinned, and what becomes of them. The
/// statement's input is pinned already.
///
/// # Errors
/// `NotYetSupported` for what no plan of rows says, `ReadOnlyTable` for a past state,
/// `InvalidArgument` for a new id.
pub(crate) fn compile(
    dml: &DmlStatement,
    input: LogicalPlan,
    table: &VersionedTableProvider,
) -> Result<(TableWrite, LogicalPlan)> {
    if table.is_explicit() {
        return Err(past(table));
    }
    match &dml.op {
        WriteOp::Insert(op) => Ok((TableWrite::Insert(*op), input)),
        WriteOp::Delete => Ok((TableWrite::Delete, ids(input, table)?)),
        WriteOp::Truncate => Ok((TableWrite::Delete, ids(scan(dml, table)?, table)?)),
        WriteOp::Update => {
            let assigned = assigned(&input, table)?;
            Ok((TableWrite::Update { assigned }, input))
        }
        WriteOp::MergeInto(op) => merge::compile(op, input, scan(dml, table)?, table.key()),
        other => Err(not_yet(format!("{other} on {}", table.planned().label()))),
    }
}

fn past(table: &VersionedTableProvider) -> DataFusionError {
    to_datafusion(Error::ReadOnlyTable {
        table: table.planned().label(),
        verb: "the table without its snapshot: the past does not change",
    })
}

fn not_yet(feature: String) -> DataFusionError {
    to_datafusion(Error::NotYetSupported { feature })
}

/// All rows of the target.
fn scan(dml: &DmlStatement, table: &VersionedTableProvider) -> Result<LogicalPlan> {
    let source = provider_as_source(Arc::new(table.clone()));
    LogicalPlanBuilder::scan(dml.table_name.clone(), source, None)?.build()
}

/// The ids of some rows.
fn ids(input: LogicalPlan, table: &VersionedTableProvider) -> Result<LogicalPlan> {
    if matches!(input, LogicalPlan::Limit(_)) {
        let feature = "LIMIT on DELETE (delete WHERE id IN (SELECT id ... ORDER BY ... LIMIT n))";
        return Err(not_yet(feature.to_owned()));
    }
    let (qualifier, field) = input
        .schema()
        .qualified_field_with_unqualified_name(table.key())?;
    let id = Expr::Column(Column::from((qualifier, field)));
    LogicalPlanBuilder::from(input).project([id])?.build()
}

/// The columns that an UPDATE assigns: all that its rows do not take as they are.
fn assigned(input: &LogicalPlan, table: &VersionedTableProvider) -> Result<Vec<String>> {
    if reads_past(input) {
        return Err(past(table));
    }
    // PREPARE keeps an optimised plan, which has no projection where nothing is computed.
    let LogicalPlan::Projection(rows) = input else {
        return Ok(Vec::new());
    };
    let mut assigned = Vec::new();
    for (expr, field) in rows.expr.iter().zip(rows.schema.fields()) {
        let value = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        if !matches!(value, Expr::Column(column) if column.name == *field.name()) {
            assigned.push(field.name().clone());
        }
    }
    refuse_key("UPDATE", &assigned, table.key())?;
    Ok(assigned)
}

/// An id names a row for as long as it lives.
fn refuse_key(statement: &str, assigned: &[String], key: &str) -> Result<()> {
    if assigned.iter().any(|column| column == key) {
        let reason = "the id of a row does not change; delete the row and insert another one";
        return Err(bad_argument(statement, key, reason));
    }
    Ok(())
}

/// Whether the rows under the conditions of an UPDATE are those of a past state.
fn reads_past(input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::TableScan(scan) => source_as_provider(&scan.source).is_ok_and(|provider| {
            let table = provider.downcast_ref::<VersionedTableProvider>();
            table.is_some_and(VersionedTableProvider::is_explicit)
        }),
        // Of a join the target is the first.
        other => other
            .inputs()
            .first()
            .is_some_and(|input| reads_past(input)),
    }
}
