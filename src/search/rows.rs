//! Which rows of a version may answer a search.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use crate::table::manifest::{Entry, Layout};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::schema::key_column;
use crate::{Error, Result};

/// Rows by entry number and position.
pub type Positions = BTreeMap<u64, RoaringBitmap>;

/// Rows that may answer, as a predicate sees them.
#[derive(Debug, Clone, Default)]
pub enum Allowed {
    /// All of them.
    #[default]
    All,
    /// These alone.
    Rows(Positions),
}

impl Allowed {
    /// The rows of one entry; `None` for all of them.
    pub fn of(&self, entry: u64) -> Option<RoaringBitmap> {
        match self {
            Self::All => None,
            Self::Rows(rows) => Some(rows.get(&entry).cloned().unwrap_or_default()),
        }
    }
}

/// Collects positions of batches that end with the entry and position columns.
pub fn add_positions(into: &mut Positions, batch: &RecordBatch) -> Result<()> {
    let (entries, positions) = position_columns(batch)?;
    for (entry, position) in entries.iter().zip(positions) {
        into.entry(*entry).or_default().insert(*position);
    }
    Ok(())
}

/// The two columns with which [`ReadOptions::with_positions`] ends a batch.
pub(super) fn position_columns(batch: &RecordBatch) -> Result<(&[u64], &[u32])> {
    let width = batch.num_columns();
    let column = |back: usize| {
        let at = width.checked_sub(back)?;
        batch.columns().get(at)
    };
    let entries = column(2).and_then(|c| c.as_primitive_opt::<UInt64Type>());
    let positions = column(1).and_then(|c| c.as_primitive_opt::<UInt32Type>());
    match (entries, positions) {
        (Some(entries), Some(positions)) => Ok((entries.values(), positions.values())),
        _ => Err(Error::corrupt(
            "fragment",
            "positions",
            "an entry and a position a row",
            "other columns",
        )),
    }
}

/// Rows of a version that another row of the same key replaces: of equal keys the last one counts.
/// Reads the column of keys.
///
/// # Errors
/// As [`TableReader::scan`].
pub async fn superseded(reader: &TableReader) -> Result<Positions> {
    let columns = [key_column(reader.table().layout)];
    let options = ReadOptions::columns(&columns).with_positions();
    let mut rows = reader.scan(&options).await?;
    let mut found = Positions::new();
    let mut last: Option<(String, u64, u32)> = None;
    while let Some(batch) = rows.try_next().await? {
        let keys = batch.column(0).as_string::<i32>();
        let (entries, positions) = position_columns(&batch)?;
        for ((key, entry), position) in keys.iter().zip(entries).zip(positions) {
            let key = key.unwrap_or_default();
            match &mut last {
                Some((known, old, at)) if known == key => {
                    found.entry(*old).or_default().insert(*at);
                    (*old, *at) = (*entry, *position);
                }
                other => *other = Some((key.to_owned(), *entry, *position)),
            }
        }
    }
    Ok(found)
}

/// Rows of an entry's fragment that are alive, and of these the ones that may answer.
#[derive(Debug, Clone)]
pub(super) struct LiveRows {
    pub(super) live: RoaringBitmap,
    pub(super) answer: Option<RoaringBitmap>,
}

impl LiveRows {
    /// `replaced` is what [`superseded`] found.
    pub(super) async fn of(
        reader: &TableReader,
        entry: &Entry,
        replaced: &Positions,
        allowed: &Allowed,
    ) -> Result<Self> {
        let rows = entry.fragment.as_ref().map_or(0, |f| f.rows);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut live = RoaringBitmap::new();
        live.insert_range(0..rows);
        live -= reader.dead_rows(entry).await?;
        if let Some(replaced) = replaced.get(&entry.id) {
            live -= replaced;
        }
        let answer = allowed.of(entry.id).map(|allowed| allowed & &live);
        Ok(Self { live, answer })
    }

    /// Rows that may answer.
    pub(super) fn answer(&self) -> &RoaringBitmap {
        self.answer.as_ref().unwrap_or(&self.live)
    }
}

/// Whether rows of one fragment stand in the order of their keys, so that positions order equal values.
pub(super) fn positions_order_keys(layout: Layout) -> bool {
    layout != Layout::Edge
}
