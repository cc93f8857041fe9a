//! One snapshot per execution of a plan.
//!
//! An analyzer rule gives every provider of a statement one shared [`StatementPin`]; the first scan
//! resolves it with one look at the head. Cached and optimised plans are analysed again before they
//! run again, and the rule always replaces the pin that it finds, so each run has its own.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::datasource::{TableProvider, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, TableSource, WriteOp};
use datafusion::optimizer::AnalyzerRule;
use stratagraph::catalog::{Catalog, SnapshotPin};
use tokio::sync::OnceCell;

use crate::dml::compile;
use crate::function::FunctionProvider;
use crate::hooks::{PlannedWrite, TableWrite};
use crate::lateral::{self, LateralProvider};
use crate::metadata::Metadata;
use crate::versioned::VersionedTableProvider;

type Snapshot = Arc<OnceCell<Arc<SnapshotPin>>>;

/// The snapshots that one statement reads, one per store, and the results its verbs share.
#[derive(Debug, Default)]
pub struct StatementPin {
    snapshots: Mutex<Vec<(usize, Snapshot)>>,
    results: Mutex<HashMap<u64, Weak<dyn Any + Send + Sync>>>,
    /// Whether the look is made whatever the session's `max_staleness` is.
    fresh: AtomicBool,
    time: OnceLock<i64>,
}

impl StatementPin {
    /// A pin that is resolved already: for work that reads one known snapshot.
    pub fn resolved(snapshot: Arc<SnapshotPin>) -> Arc<Self> {
        let pin = Self::default();
        let cell = pin.cell(snapshot.catalog());
        // The cell is new, so this cannot fail.
        let _ = cell.set(snapshot);
        Arc::new(pin)
    }

    fn cell(&self, catalog: &Arc<Catalog>) -> Snapshot {
        let store = Arc::as_ptr(catalog) as usize;
        let mut snapshots = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cell)) = snapshots.iter().find(|(known, _)| *known == store) {
            return Arc::clone(cell);
        }
        let cell = Snapshot::default();
        snapshots.push((store, Arc::clone(&cell)));
        cell
    }

    /// The snapshot of a store: one look, made by whoever asks first. A failed look is not kept.
    pub async fn snapshot(
        &self,
        metadata: &Metadata,
        max_staleness: Duration,
    ) -> stratagraph::Result<Arc<SnapshotPin>> {
        let cell = self.cell(metadata.catalog());
        let max_staleness = match self.fresh.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => max_staleness,
        };
        let look = || async { metadata.pin(max_staleness).await.map(Arc::new) };
        cell.get_or_try_init(look).await.cloned()
    }

    /// The moment that the statement calls now, in microseconds since 1970-01-01 UTC: that at which it was
    /// asked first.
    pub fn now(&self, metadata: &Metadata) -> i64 {
        *self.time.get_or_init(|| metadata.now())
    }

    /// The value that all scans of one call share in this statement. The plans hold it, so that a
    /// statement that is planned again starts anew even where its pin is found again.
    pub(crate) fn shared<T: Any + Send + Sync + Default>(&self, call: u64) -> Arc<T> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let known = results.get(&call).and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|value| value.downcast::<T>().ok()) {
            return known;
        }
        let made = Arc::new(T::default());
        let shared: Arc<dyn Any + Send + Sync> = Arc::clone(&made) as _;
        results.insert(call, Arc::downgrade(&shared));
        made
    }
}

/// The copy of a provider of ours that `pin` belongs to; `None` for anything that the rule leaves
/// alone: foreign providers, explicit versions and sealed ones.
fn pinned(provider: &Arc<dyn TableProvider>, pin: &Arc<StatementPin>) -> Result<Option<Provider>> {
    if let Some(table) = provider.downcast_ref::<VersionedTableProvider>() {
        return Ok(table.pinned(pin).map(|copy| Arc::new(copy) as Provider));
    }
    if let Some(function) = provider.downcast_ref::<FunctionProvider>() {
        let copy = function.pinned(pin)?;
        return Ok(copy.map(|copy| Arc::new(copy) as Provider));
    }
    if let Some(lateral) = provider.downcast_ref::<LateralProvider>() {
        return Ok(Some(Arc::new(lateral.pinned(pin)?)));
    }
    Ok(None)
}

type Provider = Arc<dyn TableProvider>;

fn pin_source(
    source: &Arc<dyn TableSource>,
    pin: &Arc<StatementPin>,
) -> Result<Option<Arc<dyn TableSource>>> {
    // A source that is no provider (a work table, a foreign kind) is none of ours.
    let Ok(provider) = source_as_provider(source) else {
        return Ok(None);
    };
    Ok(pinned(&provider, pin)?.map(provider_as_source))
}

/// Gives every provider of ours in a plan `pin`, subqueries included.
pub fn pin_plan(plan: LogicalPlan, pin: &Arc<StatementPin>) -> Result<LogicalPlan> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => match pin_source(&scan.source, pin)? {
            Some(source) => {
                scan.source = source;
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        // The target of DML is not a child.
        LogicalPlan::Dml(dml) => match pin_dml(&dml, pin)? {
            Some(dml) => Ok(Transformed::yes(LogicalPlan::Dml(dml))),
            None => Ok(Transformed::no(LogicalPlan::Dml(dml))),
        },
        other => Ok(Transformed::no(other)),
    })
    .data()
}

/// DML on a table of ours that can be written: its target is pinned and has the plan of its rows,
/// which an insert executes whatever the statement was ([`crate::dml`]). Analysed again, it keeps that
/// plan and takes the new pin.
fn pin_dml(dml: &DmlStatement, pin: &Arc<StatementPin>) -> Result<Option<DmlStatement>> {
    let Ok(provider) = source_as_provider(&dml.target) else {
        return Ok(None);
    };
    let Some(table) = provider.downcast_ref::<VersionedTableProvider>() else {
        return Ok(None);
    };
    // A write does not go by what a session remembers of the head.
    pin.fresh.store(true, Ordering::Relaxed);
    let target = table.pinned(pin).unwrap_or_else(|| table.clone());
    let input = pin_plan(dml.input.as_ref().clone(), pin)?;
    let (write, rows) = match target.planned_write() {
        Some(planned) => (planned.write.clone(), input),
        None if target.has_hooks() => {
            let (write, rows) = compile(dml, input, &target)?;
            // The conditions of a merge have plans of their own.
            (write, pin_plan(rows, pin)?)
        }
        None => {
            let (name, target) = (dml.table_name.clone(), provider_as_source(Arc::new(target)));
            let (op, input) = (dml.op.clone(), Arc::new(input));
            return Ok(Some(DmlStatement::new(name, target, op, input)));
        }
    };
    let op = match write {
        TableWrite::Insert(op) => op,
        _ => InsertOp::Append,
    };
    let rows = Arc::new(rows);
    let target = target.with_write(PlannedWrite {
        write,
        rows: Arc::clone(&rows),
    });
    Ok(Some(DmlStatement::new(
        dml.table_name.clone(),
        provider_as_source(Arc::new(target)),
        WriteOp::Insert(op),
        rows,
    )))
}

/// Marks every provider of ours in a plan as one whose pin stays: for plans that are analysed again
/// inside a statement.
pub fn seal_plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        match source_as_provider(&scan.source).ok().map(|p| sealed(&p)) {
            Some(Some(provider)) => {
                scan.source = provider_as_source(provider?);
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            _ => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        }
    })
    .data()
}

/// A provider of ours whose pin stays.
fn sealed(provider: &Provider) -> Option<Result<Provider>> {
    if let Some(table) = provider.downcast_ref::<VersionedTableProvider>() {
        return Some(Ok(Arc::new(table.clone().sealed())));
    }
    if let Some(function) = provider.downcast_ref::<FunctionProvider>() {
        return Some(Ok(Arc::new(function.clone().sealed())));
    }
    let lateral = provider.downcast_ref::<LateralProvider>()?;
    let sealed = lateral.sealed();
    Some(sealed.map(|sealed| Arc::new(sealed) as Provider))
}

/// The analyzer rule: a fresh pin for each analysis of a plan.
#[derive(Debug, Default)]
pub struct PinRule;

impl AnalyzerRule for PinRule {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        pin_plan(lateral::compile(plan)?, &Arc::new(StatementPin::default()))
    }

    fn name(&self) -> &str {
        "stratagraph_pin"
    }
}
