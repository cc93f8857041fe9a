//! Tail merge: the rows of a commit are written together with the newest small fragments of their table.
//!
//! A fragment is taken while it is small and has at most twice the live rows gathered so far, so sizes
//! grow at least threefold from one small fragment to the next older one: a table has O(log n) of them,
//! and a row moves O(log n) times. Rows move as they are: values and row ids stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::UInt64Type;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::graph::TableWrite;
use crate::catalog::commit::Attempt;
use crate::store::ObjRef;
use crate::table::BatchStream;
use crate::table::manifest::{Entry, Fragment, RidShift, TableManifest};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::schema::id;
use crate::table::writer::FragmentWriter;
use crate::{Error, Result, limits};

/// What becomes of the new rows of a table.
#[derive(Default)]
pub(super) struct Tail {
    /// Entries whose live rows moved into the new fragments, by their keys in the tree.
    pub taken: Vec<Entry>,
    /// The new fragments, with the shift of their row ids.
    pub fragments: Vec<Fragment>,
    /// Objects of them that were staged before the attempt.
    pub staged: Vec<ObjRef>,
}

/// Where the newest of `entries` (live, in stamp order) begin that are written together with `rows` new
/// rows.
fn newest(entries: &[Entry], rows: u64) -> usize {
    let mut gathered = rows;
    let mut taken = 0;
    for entry in entries.iter().rev() {
        let Some(fragment) = &entry.fragment else {
            break;
        };
        let live = fragment.rows.saturating_sub(fragment.dead.rows);
        let small = fragment.file.object.size < limits::TAIL_BYTES;
        if !small || live > gathered.saturating_mul(2) {
            break;
        }
        gathered += live;
        taken += 1;
    }
    entries.len() - taken
}

/// Decides what the new rows of `write` are written together with, and writes them.
///
/// `entries` are those of `parent` in stamp order without the rows that the write removes.
pub(super) async fn tail(
    attempt: &mut Attempt<'_>,
    parent: &TableManifest,
    entries: &[Entry],
    write: &TableWrite,
    shift: &BTreeMap<u64, RidShift>,
) -> Result<Tail> {
    let staged: u64 = write.fragments.iter().map(|f| f.file.object.size).sum();
    let rows = write.new_rows();
    let shifted = |fragment: &Fragment| Fragment {
        shift: shift.clone(),
        ..fragment.clone()
    };
    let first = match staged < limits::TAIL_BYTES && rows > 0 {
        true => newest(entries, rows),
        false => entries.len(),
    };
    let taken = &entries[first..];
    let alone = write.rows.is_empty() && write.fragments.len() <= 1;
    if taken.is_empty() && (alone || staged >= limits::TAIL_BYTES) {
        let files = write.fragments.iter().flat_map(|f| f.file.objects());
        return Ok(Tail {
            taken: Vec::new(),
            staged: files.cloned().collect(),
            fragments: write.fragments.iter().map(shifted).collect(),
        });
    }
    let mut sources = taken.to_vec();
    sources.extend((0..).zip(&write.fragments).map(|(id, fragment)| Entry {
        stamp: u64::MAX,
        id,
        fragment: Some(shifted(fragment)),
        mask: None,
        rejects: None,
    }));
    let fragment = merged(attempt, parent, &sources, write, shift).await?;
    Ok(Tail {
        taken: taken.to_vec(),
        fragments: fragment.into_iter().collect(),
        staged: Vec::new(),
    })
}

/// One fragment of the live rows of `sources` and the rows that `write` holds.
async fn merged(
    attempt: &mut Attempt<'_>,
    parent: &TableManifest,
    sources: &[Entry],
    write: &TableWrite,
    shift: &BTreeMap<u64, RidShift>,
) -> Result<Option<Fragment>> {
    let (store, env) = (Arc::clone(attempt.store()), attempt.catalog.env().clone());
    let path = format!("type {}", parent.type_id);
    let missing = || Error::corrupt("table manifest", &path, "a schema", "none");
    let schema = parent.current_schema().ok_or_else(missing)?;
    let reader = TableReader::new(Arc::clone(&store), &env, Arc::new(parent.clone()));
    let options = ReadOptions::default();
    let held = held(parent, &reader, write, shift)?;
    let mut rows = reader
        .scan_with(sources, held.into_iter().collect(), &options)
        .await?;
    let key = attempt.stage.reserve("parquet")?;
    let mut writer = FragmentWriter::new(store, &env, parent.layout, schema, key)?;
    while let Some(batch) = rows.try_next().await? {
        writer.write(&batch).await?;
    }
    writer.finish_later(attempt.stage).await
}

/// The rows that the write holds, with their row ids as they are in this attempt.
fn held(
    parent: &TableManifest,
    reader: &TableReader,
    write: &TableWrite,
    shift: &BTreeMap<u64, RidShift>,
) -> Result<Option<BatchStream>> {
    if write.rows.is_empty() {
        return Ok(None);
    }
    let mut counted = vec![(id::RID, parent.type_id)];
    if let Some(ends) = parent.endpoints {
        counted.extend([(id::SRC_RID, ends.src), (id::DST_RID, ends.dst)]);
    }
    let ids: Vec<u64> = reader.columns(None)?.iter().map(|c| c.id).collect();
    let moves: Vec<(usize, RidShift)> = counted
        .iter()
        .filter_map(|(column, of)| {
            let place = ids.iter().position(|id| id == column)?;
            Some((place, *shift.get(of)?))
        })
        .collect();
    let schema = reader.schema(&ReadOptions::default())?;
    let batches: Result<Vec<RecordBatch>> = write
        .rows
        .iter()
        .map(|batch| {
            let mut columns = batch.columns().to_vec();
            for (place, shift) in &moves {
                columns[*place] = moved(&columns[*place], *shift)?;
            }
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        })
        .collect();
    Ok(Some(stream::iter(batches?.into_iter().map(Ok)).boxed()))
}

fn moved(rids: &ArrayRef, shift: RidShift) -> Result<ArrayRef> {
    let wrong = || Error::corrupt("rows of a write", "row ids", "integers", "others");
    let rids = rids.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
    let moved = rids.values().iter().map(|rid| match *rid >= shift.base {
        true => rid.saturating_add(shift.shift),
        false => *rid,
    });
    let moved: UInt64Array = moved.collect();
    debug_assert_eq!(moved.len(), rids.len());
    Ok(Arc::new(moved))
}
