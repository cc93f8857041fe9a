//! The rows of a load as its commit takes them.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use stratagraph::store::Stager;
use stratagraph::table::manifest::{Fragment, Layout};
use stratagraph::table::schema::arrow_schema;
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, Result, limits};

use super::attempt::{Attempt, TypeState};

/// New rows of a type, as a commit takes them.
#[derive(Default)]
pub(crate) struct NewRows {
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) rows: Vec<RecordBatch>,
}

impl NewRows {
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty() && self.rows.is_empty()
    }
}

/// Stages the rows of a type, or holds them where they are few: the commit writes them then.
pub(crate) async fn new_rows(
    attempt: &Attempt<'_>,
    state: &TypeState<'_>,
    stage: &mut Stager,
) -> Result<NewRows> {
    let of = state.of;
    let (layout, rows) = match of.is_edge() {
        true => (Layout::Edge, state.ended.as_ref()),
        false => (Layout::Node, state.loaded()),
    };
    let Some(rows) = rows.filter(|rows| rows.rows() > 0) else {
        return Ok(NewRows::default());
    };
    let schema = state
        .stored
        .current_schema()
        .ok_or_else(|| Error::corrupt("table manifest", of.name.as_str(), "a schema", "none"))?;
    let order = places(layout, of.properties.len());
    let fields = arrow_schema(schema)?;
    let ordered = move |batch: RecordBatch| -> Result<RecordBatch> {
        let columns = order.iter().map(|at| Arc::clone(batch.column(*at)));
        Ok(RecordBatch::try_new(
            Arc::clone(&fields),
            columns.collect(),
        )?)
    };
    let mut batches = rows.read().map(move |batch| batch.and_then(&ordered));
    if rows.bytes() <= limits::HELD_BYTES as u64 {
        return Ok(NewRows {
            rows: batches.try_collect().await?,
            ..NewRows::default()
        });
    }
    let (store, key) = (attempt.run.catalog().store(), stage.reserve("parquet")?);
    let mut writer = FragmentWriter::new(Arc::clone(store), &attempt.env, layout, schema, key)?;
    while let Some(batch) = batches.try_next().await? {
        writer.write(&batch).await?;
        let progress = &attempt.env.progress;
        progress.report("write", writer.rows(), rows.rows());
    }
    Ok(NewRows {
        fragments: writer.finish(stage).await?.into_iter().collect(),
        ..NewRows::default()
    })
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
