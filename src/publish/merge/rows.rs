//! Writes the rows that a merge takes into fragments of the target.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::{
    SortColumn, concat_batches, filter_record_batch, lexsort_to_indices, not, take_record_batch,
};
use arrow::datatypes::UInt64Type;
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use super::decide::{Rids, Take};
use crate::env::Env;
use crate::graph::schema::GraphType;
use crate::publish::moves::with_live;
use crate::store::Stager;
use crate::table::manifest::{Entry, Fragment, TableManifest};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::table::writer::FragmentWriter;
use crate::{Error, Result};

/// Writes the rows of `takes` as rows of `target`, with the row ids of the merged state.
///
/// Rows stay in the order of the source, except edges of which an end has another row id now: those
/// are sorted in memory and make a fragment of their own.
pub(super) async fn fragments(
    env: &Env,
    stage: &mut Stager,
    (of, target): (&GraphType, &TableManifest),
    source: &TableReader,
    takes: &BTreeMap<String, Take>,
    rids: &BTreeMap<u64, Rids>,
) -> Result<Vec<Fragment>> {
    if takes.is_empty() {
        return Ok(Vec::new());
    }
    let (entries, options) = (taken(source, takes).await?, ReadOptions::default());
    let mapping = Mapping::new(of, source, takes, rids)?;
    let mut rows = source.scan_entries(&entries, &options).await?;
    let (mut in_order, mut moved) = (writer(env, stage, source, target)?, Vec::new());
    let mut memory = Reservation::new(source.budget());
    while let Some(batch) = rows.try_next().await? {
        let (batch, is_moved) = mapping.apply(&batch)?;
        if is_moved.true_count() == 0 {
            in_order.write(&batch).await?;
            continue;
        }
        let stays = filter_record_batch(&batch, &not(&is_moved)?)?;
        in_order.write(&stays).await?;
        let goes = filter_record_batch(&batch, &is_moved)?;
        // Once here, once more while they are sorted.
        memory.grow(goes.get_array_memory_size().saturating_mul(2))?;
        moved.push(goes);
    }
    let mut fragments: Vec<Fragment> = in_order.finish(stage).await?.into_iter().collect();
    if let Some(first) = moved.first() {
        let all = concat_batches(&first.schema(), &moved)?;
        let mut sorted = writer(env, stage, source, target)?;
        sorted.write(&mapping.sorted(&all)?).await?;
        fragments.extend(sorted.finish(stage).await?);
    }
    Ok(fragments)
}

fn writer(
    env: &Env,
    stage: &mut Stager,
    source: &TableReader,
    target: &TableManifest,
) -> Result<FragmentWriter> {
    let path = format!("type {}", target.type_id);
    let missing = || Error::corrupt("table manifest", &path, "a schema", "none");
    let schema = target.current_schema().ok_or_else(missing)?;
    let (store, key) = (Arc::clone(source.store()), stage.reserve("parquet")?);
    FragmentWriter::new(store, env, target.layout, schema, key)
}

/// The entries of the rows that are taken, with no others live.
async fn taken(source: &TableReader, takes: &BTreeMap<String, Take>) -> Result<Vec<Entry>> {
    let mut positions: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for take in takes.values() {
        positions
            .entry(take.entry)
            .or_default()
            .insert(take.position);
    }
    let entries = source.entries().await?;
    let taken = entries.iter();
    let taken = taken.filter_map(|entry| Some(with_live(entry, positions.get(&entry.id)?)));
    taken.collect()
}

/// Row ids of the source as row ids of the merged state.
struct Mapping<'a> {
    ids: Vec<u64>,
    takes: &'a BTreeMap<String, Take>,
    /// By column, for the columns of ends.
    ends: Vec<(u64, Option<&'a BTreeMap<u64, u64>>)>,
}

impl<'a> Mapping<'a> {
    fn new(
        of: &GraphType,
        source: &TableReader,
        takes: &'a BTreeMap<String, Take>,
        rids: &'a BTreeMap<u64, Rids>,
    ) -> Result<Self> {
        let moved = |type_id: u64| rids.get(&type_id).map(|rids| &rids.moved);
        let ends = of.edge.as_ref();
        let ends = ends.map(|e| [(id::SRC_RID, moved(e.from)), (id::DST_RID, moved(e.to))]);
        let ids = source.columns(None)?.iter().map(|c| c.id).collect();
        Ok(Self {
            ids,
            takes,
            ends: ends.into_iter().flatten().collect(),
        })
    }

    fn place(&self, id: u64) -> Result<usize> {
        let missing = || Error::corrupt("batch", "columns", format!("column {id}"), "none");
        self.ids.iter().position(|i| *i == id).ok_or_else(missing)
    }

    /// The rows with their new row ids, and which of them have an end that moved.
    fn apply(&self, batch: &RecordBatch) -> Result<(RecordBatch, BooleanArray)> {
        let wrong = || Error::corrupt("batch", "columns", "ids and row ids", "others");
        let (mut columns, keys) = (batch.columns().to_vec(), batch.column(self.place(id::ID)?));
        let keys = keys.as_string_opt::<i32>().ok_or_else(wrong)?;
        let rid = |key: Option<&str>| key.and_then(|key| self.takes.get(key)).map(|take| take.rid);
        let rids: UInt64Array = keys.iter().map(rid).collect();
        columns[self.place(id::RID)?] = Arc::new(rids);
        let mut is_moved = vec![false; batch.num_rows()];
        for (column, moved) in &self.ends {
            let Some(moved) = moved.filter(|moved| !moved.is_empty()) else {
                continue;
            };
            let place = self.place(*column)?;
            let ends = columns[place].as_primitive_opt::<UInt64Type>();
            let ends = ends.ok_or_else(wrong)?.values().iter().enumerate();
            let mapped = ends.map(|(row, rid)| {
                let to = moved.get(rid);
                is_moved[row] |= to.is_some();
                *to.unwrap_or(rid)
            });
            let mapped: ArrayRef = Arc::new(UInt64Array::from_iter_values(mapped));
            columns[place] = mapped;
        }
        let batch = RecordBatch::try_new(batch.schema(), columns)?;
        Ok((batch, is_moved.into()))
    }

    /// Edges in the order of their layout.
    fn sorted(&self, edges: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = Vec::new();
        for id in [id::SRC_RID, id::DST_RID, id::ID] {
            columns.push(SortColumn {
                values: Arc::clone(edges.column(self.place(id)?)),
                options: None,
            });
        }
        let order = lexsort_to_indices(&columns, None)?;
        Ok(take_record_batch(edges, &order)?)
    }
}
