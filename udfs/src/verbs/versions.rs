//! `versions`: the retained versions of a table.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::history::HistoryEntry;
use stratagraph::ident::Name;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{Micros, VersionRow};

fn row(entry: &HistoryEntry) -> VersionRow {
    VersionRow {
        version: entry.version,
        parent_version: entry.parent_version,
        kind: entry.kind.as_str().to_owned(),
        identity: entry.identity.map(|identity| identity.to_string()),
        live_rows: entry.live_rows,
        masked_rows: entry.dead_rows,
        fragments: entry.fragments,
        // Every fragment has one segment for its vectors.
        segments: entry.fragments,
        created_at: Micros(entry.time),
        current: false,
    }
}

/// All retained versions, newest first.
pub(crate) async fn versions(run: &Run, name: &Name) -> Result<Vec<VersionRow>> {
    let table = run.table(name, None).await?;
    let mut rows = Vec::new();
    if let Some(head) = table.dataset.main() {
        let tables = [table.table.as_ref().clone()];
        let current = table.current.history_entry(head, &tables);
        rows.push(VersionRow {
            current: true,
            ..row(&current)
        });
    }
    let store = run.catalog().store();
    let history = table.current.history.newest(store, usize::MAX).await?;
    rows.extend(history.iter().map(row));
    Ok(rows)
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    let spec = FunctionSpec::read("versions", args);
    ReportFunction::of::<VersionRow>(engine, spec, |call| {
        Box::pin(async move {
            let name = call.name("table")?;
            answer(&versions(&call.run, &name).await?)
        })
    })
}
