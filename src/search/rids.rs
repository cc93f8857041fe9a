//! From row ids to rows and back.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use futures::TryStreamExt;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::fragment::Rows;
use super::rows::Positions;
use super::{Found, TableSearch};
use crate::table::manifest::Entry;
use crate::table::schema::id;
use crate::{Error, Result};

impl TableSearch {
    /// The live rows of some row ids; an id that no live row has is left out.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says.
    pub async fn rows_of(&self, rids: &RoaringTreemap) -> Result<Positions> {
        let mut found = Positions::new();
        for entry in self.reader.entries().await?.iter() {
            let Some(ids) = self.rids(entry).await? else {
                continue;
            };
            let places = (0u32..).zip(ids.iter());
            let wanted = places.filter(|(_, rid)| rids.contains(**rid));
            let positions: RoaringBitmap = wanted.map(|(position, _)| position).collect();
            if !positions.is_empty() {
                found.insert(entry.id, positions);
            }
        }
        Ok(found)
    }

    /// The row ids of what was found, in its order.
    ///
    /// # Errors
    /// As [`TableSearch::rows_of`].
    pub async fn rids_of(&self, found: &[Found]) -> Result<Vec<u64>> {
        let missing = || Error::corrupt("table manifest", "search", "a row", "none");
        let mut known: std::collections::BTreeMap<u64, Arc<Vec<u64>>> = Default::default();
        for entry in self.reader.entries().await?.iter() {
            if found.iter().any(|f| f.row.entry == entry.id)
                && let Some(ids) = self.rids(entry).await?
            {
                known.insert(entry.id, ids);
            }
        }
        let rid = |f: &Found| {
            known
                .get(&f.row.entry)?
                .get(f.row.position as usize)
                .copied()
        };
        let rids = found.iter().map(rid).collect::<Option<Vec<u64>>>();
        rids.ok_or_else(missing)
    }

    /// The row ids of an entry's fragment by position, dead rows included.
    async fn rids(&self, entry: &Entry) -> Result<Option<Arc<Vec<u64>>>> {
        let Some(part) = Rows::open(&self.reader, entry).await? else {
            return Ok(None);
        };
        // The same fragment can be there under another shift in another branch.
        let shift = part
            .open
            .shift(id::RID)
            .map_or((0, 0), |s| (s.base, s.shift));
        let key = format!("rids:{}:{}:{}", shift.0, shift.1, part.open.file.key());
        let read = async {
            let mut ids = Vec::with_capacity(part.open.rows as usize);
            let mut batches = part.column(id::RID, None)?;
            while let Some(batch) = batches.try_next().await? {
                let column = batch.column(0).as_primitive_opt::<UInt64Type>();
                let column = column.ok_or_else(|| {
                    let found = batch.column(0).data_type();
                    Error::corrupt("fragment", part.open.file.key(), "row ids", found)
                })?;
                ids.extend_from_slice(column.values());
            }
            let bytes = ids.len() * size_of::<u64>();
            Ok((Arc::new(ids), bytes))
        };
        let cache = self.reader.store().indexes();
        Ok(Some(cache.get_or_make(&key, read).await?.0))
    }
}
