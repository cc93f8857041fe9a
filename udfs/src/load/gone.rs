//! Stored rows that go without a row in their place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use roaring::RoaringBitmap;
use stratagraph::Result;
use stratagraph::table::read::TableReader;

use super::plans::SPOOLS;
use crate::host::Host;
use crate::spool::{Spool, Spooler};

/// Rows of one type that go.
pub(crate) struct Gone {
    /// Their ids as `k`, those too that no stored row has.
    pub(crate) ids: Spool,
    /// Where the stored ones are, by entry number.
    pub(crate) positions: BTreeMap<u64, RoaringBitmap>,
}

impl Gone {
    /// Finds the rows of some ids.
    pub(crate) async fn find(
        host: &Host,
        stored: &TableReader,
        ids: &BTreeSet<String>,
    ) -> Result<Self> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, false)]));
        let mut segment = Spooler::new(host, Arc::clone(&schema), "deleted ids", SPOOLS).segment();
        let column = Arc::new(StringArray::from_iter_values(ids)) as _;
        segment.push(RecordBatch::try_new(Arc::clone(&schema), vec![column])?)?;
        let keys: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut positions: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
        for hit in stored.lookup(&keys).await? {
            positions.entry(hit.entry).or_default().insert(hit.position);
        }
        Ok(Self {
            ids: Spool::new(schema, vec![segment.finish()?]),
            positions,
        })
    }

    /// Number of stored rows that go.
    pub(crate) fn rows(&self) -> u64 {
        self.positions.values().map(RoaringBitmap::len).sum()
    }
}
