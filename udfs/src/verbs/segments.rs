//! `segments`: what answers a search of the current version.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use stratagraph::Result;
use stratagraph::table::manifest::Fragment;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::SegmentRow;
use crate::search::Target;

const FUNCTION: &str = "segments";

/// A row for each fragment and each column that is searched: columns of vectors, and those of texts that
/// have an index in some fragment.
pub(crate) async fn segments(run: &Run, table: &str) -> Result<Vec<SegmentRow>> {
    let target = Target::find(run, FUNCTION, table, None).await?;
    let entries = target.reader().entries().await?;
    let fragments = || {
        entries
            .iter()
            .filter_map(|e| Some((e.stamp, e.fragment.as_ref()?)))
    };
    let indexed = fragments().flat_map(|(_, f)| f.segments.iter().map(|s| s.column));
    let indexed: BTreeSet<u64> = indexed.collect();
    let searched = target.columns.iter().filter(|c| {
        let vectors = matches!(c.field.data_type(), DataType::FixedSizeList(..));
        vectors || indexed.contains(&c.id)
    });
    let searched: Vec<(u64, &str)> = searched.map(|c| (c.id, c.field.name().as_str())).collect();
    let mut rows = Vec::new();
    for (stamp, fragment) in fragments() {
        rows.extend(
            searched
                .iter()
                .map(|(id, name)| row(stamp, fragment, *id, name)),
        );
    }
    Ok(rows)
}

fn row(stamp: u64, fragment: &Fragment, column: u64, name: &str) -> SegmentRow {
    let segment = fragment.segments.iter().find(|s| s.column == column);
    SegmentRow {
        fragment: fragment.file.object.key.clone(),
        version: stamp,
        kind: segment.map_or("exact", |s| s.kind.as_str()).to_owned(),
        rows: fragment.rows,
        // What has no index is read row by row, none left out.
        covered_rows: segment.map_or(fragment.rows, |s| s.rows),
        bytes: segment.map_or(0, |s| s.file.object.size),
        column: name.to_owned(),
        dead_rows: fragment.dead.rows,
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    ReportFunction::of::<SegmentRow>(engine, FunctionSpec::read(FUNCTION, args), |call| {
        Box::pin(async move { answer(&segments(&call.run, call.args.text("table")?).await?) })
    })
}
