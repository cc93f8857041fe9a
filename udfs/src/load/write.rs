//! The fragments of a load.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use stratagraph::store::Stager;
use stratagraph::table::manifest::{Fragment, Layout};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, Result};

use super::attempt::{Attempt, TypeState};

/// Writes the rows of a type; `None` without any.
pub(crate) async fn fragment(
    attempt: &Attempt<'_>,
    state: &TypeState<'_>,
    stage: &mut Stager,
) -> Result<Option<Fragment>> {
    let of = state.of;
    let (layout, rows) = match of.is_edge() {
        true => (Layout::Edge, state.ended.as_ref()),
        false => (Layout::Node, state.loaded()),
    };
    let Some(rows) = rows.filter(|rows| rows.rows() > 0) else {
        return Ok(None);
    };
    let schema = state
        .stored
        .current_schema()
        .ok_or_else(|| Error::corrupt("table manifest", of.name.as_str(), "a schema", "none"))?;
    let order = places(layout, of.properties.len());
    let (store, key) = (attempt.run.catalog().store(), stage.reserve("parquet")?);
    let mut writer = FragmentWriter::new(Arc::clone(store), &attempt.env, layout, schema, key)?;
    let fields = Arc::clone(writer.schema());
    let mut batches = rows.read();
    while let Some(batch) = batches.try_next().await? {
        let columns = order.iter().map(|at| Arc::clone(batch.column(*at)));
        let batch = RecordBatch::try_new(Arc::clone(&fields), columns.collect())?;
        writer.write(&batch).await?;
        attempt
            .env
            .progress
            .report("write", writer.rows(), rows.rows());
    }
    writer.finish(stage).await
}

/// Where the columns of a fragment stand among those of spooled rows.
fn places(layout: Layout, properties: usize) -> Vec<usize> {
    match layout {
        Layout::Edge => {
            let rid = 4 + properties;
            let system = [rid, 1, 2, 3, rid + 1, rid + 2];
            system.into_iter().chain(4..rid).collect()
        }
        _ => {
            let rid = 2 + properties;
            [rid, 1].into_iter().chain(2..rid).collect()
        }
    }
}
