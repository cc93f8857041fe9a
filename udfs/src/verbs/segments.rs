//! `segments`: what answers a search of the current version.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::ident::Name;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::SegmentRow;

/// One segment for each fragment: all of this build read the fragment itself.
pub(crate) async fn segments(run: &Run, name: &Name) -> Result<Vec<SegmentRow>> {
    let table = run.table(name, None).await?;
    let entries = table.table.entries.entries(run.catalog().store()).await?;
    let row = |entry: stratagraph::table::manifest::Entry| {
        let (stamp, fragment) = (entry.stamp, entry.fragment?);
        Some(SegmentRow {
            fragment: fragment.file.object.key,
            version: stamp,
            kind: "exact".to_owned(),
            rows: fragment.rows,
            covered_rows: fragment.rows,
            bytes: 0,
        })
    };
    Ok(entries.into_iter().filter_map(|(_, e)| row(e)).collect())
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    ReportFunction::of::<SegmentRow>(engine, FunctionSpec::read("segments", args), |call| {
        Box::pin(async move { answer(&segments(&call.run, &call.name("table")?).await?) })
    })
}
