//! `rejected_rows`: what the model refuses for good.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::ident::Name;
use stratagraph::table::ledger::Ledger;
use stratagraph::table::manifest::Entry;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::RejectedRow;

/// The reject ledger of the current version, by key.
pub(crate) async fn rejected_rows(run: &Run, name: &Name) -> Result<Vec<RejectedRow>> {
    let table = run.table(name, None).await?;
    let store = run.catalog().store();
    let entries = table.table.entries.entries(store).await?;
    let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
    let budget = run.host.env(run.catalog().env()).budget;
    let ledger = Ledger::load(store, &budget, &entries).await?;
    let row = |(key, reject): (&str, &stratagraph::table::ledger::Reject)| RejectedRow {
        _row_id: key.to_owned(),
        reason: reject.reason.clone(),
    };
    Ok(ledger.iter().map(row).collect())
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    let spec = FunctionSpec::read("rejected_rows", args);
    ReportFunction::of::<RejectedRow>(engine, spec, |call| {
        Box::pin(async move {
            let name = call.name("table")?;
            answer(&rejected_rows(&call.run, &name).await?)
        })
    })
}
