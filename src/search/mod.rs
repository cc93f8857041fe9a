//! Searches of one table of one version: nearest vectors and matching texts, under its deletion mask and
//! any predicate.
//!
//! A fragment with an index over the asked column is searched through it, any other one row by row; the
//! rows and the values are the same. What is read of a fragment (vectors, graphs, postings) is kept by the
//! fragment's key within one byte budget, so that versions and branches share it.

mod apart;
pub mod build;
mod declared;
mod fragment;
mod fuse;
mod rids;
mod rows;
mod take;
mod text;
mod vector;

use std::sync::Arc;

use arrow::array::AsArray;

pub use declared::index_option;
pub(crate) use fragment::read_whole;
pub use fuse::{Fused, fuse};
pub use rows::{Allowed, Positions, add_positions, superseded};
pub use take::{RowAt, take};
pub use text::TextColumn;
pub use vector::{Nearest, Searched, Slack, VectorColumn};

use crate::Result;
use crate::env::Budget;
use crate::table::read::TableReader;
use crate::table::schema::key_column;

/// A row that was found, with its distance or score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The row.
    pub row: RowAt,
    /// Distance or score.
    pub value: f32,
}

/// Searches the columns of a table of a version. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TableSearch {
    reader: TableReader,
    replaced: Arc<Positions>,
}

impl TableSearch {
    /// A search of all live rows.
    pub fn new(reader: TableReader) -> Self {
        Self {
            reader,
            replaced: Arc::default(),
        }
    }

    /// The same without rows that are no answer although they are alive: what [`superseded`] found.
    pub fn without(self, replaced: Arc<Positions>) -> Self {
        Self { replaced, ..self }
    }

    /// The same search with its memory taken from another budget.
    pub fn with_budget(&self, budget: Arc<dyn Budget>) -> Self {
        Self {
            reader: self.reader.with_budget(budget),
            ..self.clone()
        }
    }

    /// The reader of the table.
    pub fn reader(&self) -> &TableReader {
        &self.reader
    }

    /// The first `k` of `found` in the order of `before`, then of keys. `found` holds the first `k` of
    /// each fragment.
    async fn merged(
        &self,
        mut found: Vec<Found>,
        k: usize,
        before: fn(f32, f32) -> std::cmp::Ordering,
    ) -> Result<Vec<Found>> {
        found.sort_by(|a, b| before(a.value, b.value).then_with(|| a.row.cmp(&b.row)));
        let one_fragment = found.windows(2).all(|w| w[0].row.entry == w[1].row.entry);
        let layout = self.reader.table().layout;
        if !(one_fragment && rows::positions_order_keys(layout)) {
            self.order_ties(&mut found, k, before).await?;
        }
        found.truncate(k);
        Ok(found)
    }

    /// Puts rows of equal values into the order of their keys, as far as the first `k` are concerned.
    async fn order_ties(
        &self,
        found: &mut Vec<Found>,
        k: usize,
        before: fn(f32, f32) -> std::cmp::Ordering,
    ) -> Result<()> {
        if let Some(last) = k.checked_sub(1).and_then(|last| found.get(last)) {
            let last = last.value;
            found.retain(|f| before(f.value, last).is_le());
        }
        let tied = |w: &[Found]| before(w[0].value, w[1].value).is_eq();
        if !found.windows(2).any(tied) {
            return Ok(());
        }
        let rows: Vec<RowAt> = found.iter().map(|f| f.row).collect();
        let key = key_column(self.reader.table().layout);
        let keys = take(&self.reader, &rows, &[key]).await?;
        let keys = keys.column(0).as_string::<i32>();
        let mut keyed: Vec<(Found, &str)> =
            found.iter().copied().zip(keys.iter().flatten()).collect();
        keyed.sort_by(|(a, x), (b, y)| before(a.value, b.value).then_with(|| x.cmp(y)));
        *found = keyed.into_iter().map(|(f, _)| f).collect();
        Ok(())
    }
}
