//! Checks the order of rows and finds the range of their keys.

use std::cmp::Ordering;

use arrow::array::{Array, AsArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::datatypes::UInt64Type;

use super::manifest::{KeyRange, Layout};
use super::schema::{key_column, sort_columns};
use crate::{Error, Result, limits};

/// The values that rows of a batch are sorted by.
#[derive(Debug, Clone)]
pub(crate) struct SortKeys {
    rids: Option<(PrimitiveArray<UInt64Type>, PrimitiveArray<UInt64Type>)>,
    key: StringArray,
}

/// One row's sort values: (`_src_rid`, `_dst_rid`) of an edge, else zeros, then the key.
pub(crate) type SortValue<'a> = (u64, u64, &'a str);

impl SortKeys {
    /// Takes the sort columns out of a batch whose columns have the given property ids.
    pub(crate) fn of(layout: Layout, batch: &RecordBatch, ids: &[u64]) -> Result<Self> {
        let column = |id: u64| {
            let found = ids.iter().position(|i| *i == id).map(|i| batch.column(i));
            found.ok_or_else(|| missing(id))
        };
        let rid = |id: u64| {
            let array = column(id)?.as_primitive_opt::<UInt64Type>().cloned();
            array.ok_or_else(|| missing(id))
        };
        let key = column(key_column(layout))?.as_string_opt::<i32>().cloned();
        let rids = match sort_columns(layout) {
            [src, dst, _] => Some((rid(*src)?, rid(*dst)?)),
            _ => None,
        };
        let key = key.ok_or_else(|| missing(key_column(layout)))?;
        Ok(Self { rids, key })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.key.len()
    }

    /// The key of a row.
    pub(crate) fn key(&self, row: usize) -> &str {
        self.key.value(row)
    }

    /// The sort values of a row.
    pub(crate) fn get(&self, row: usize) -> SortValue<'_> {
        match &self.rids {
            Some((src, dst)) => (src.value(row), dst.value(row), self.key.value(row)),
            None => (0, 0, self.key.value(row)),
        }
    }
}

fn missing(id: u64) -> Error {
    Error::corrupt(
        "batch",
        "columns",
        format!("sort column {id}"),
        "none of its type",
    )
}

/// Follows rows in file order.
#[derive(Debug)]
pub(crate) struct OrderCheck {
    layout: Layout,
    last: Option<(u64, u64, String)>,
    range: Option<(String, String)>,
}

impl OrderCheck {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            last: None,
            range: None,
        }
    }

    /// Takes the next rows; the first one out of order as (row, its key).
    ///
    /// Embedding tables may hold a key more than once: `generate` keeps every row of its source.
    pub(crate) fn push(&mut self, keys: &SortKeys) -> Option<(usize, String)> {
        let equal_ok = matches!(self.layout, Layout::Embedding | Layout::Neighbors);
        let mut disorder = None;
        for row in 0..keys.len() {
            let order = match (&self.last, row) {
                (_, 1..) => keys.get(row - 1).cmp(&keys.get(row)),
                (Some((a, b, key)), 0) => (*a, *b, key.as_str()).cmp(&keys.get(0)),
                (None, 0) => Ordering::Less,
            };
            let sorted = order == Ordering::Less || (equal_ok && order == Ordering::Equal);
            if !sorted && disorder.is_none() {
                disorder = Some((row, keys.key(row).to_owned()));
            }
        }
        self.extend_range(keys, disorder.is_none());
        if let Some(last) = keys.len().checked_sub(1) {
            let (a, b, key) = keys.get(last);
            self.last = Some((a, b, key.to_owned()));
        }
        disorder
    }

    fn extend_range(&mut self, keys: &SortKeys, sorted: bool) {
        let all = || (0..keys.len()).map(|row| keys.key(row));
        let ends = match sorted && self.layout != Layout::Edge {
            true => (all().next(), all().next_back()),
            false => (all().min(), all().max()),
        };
        let (Some(min), Some(max)) = ends else {
            return;
        };
        match &mut self.range {
            None => self.range = Some((min.to_owned(), max.to_owned())),
            Some((low, high)) => {
                if min < low.as_str() {
                    min.clone_into(low);
                }
                if max > high.as_str() {
                    max.clone_into(high);
                }
            }
        }
    }

    /// The range of all keys; `None` without rows.
    pub(crate) fn range(&self) -> Option<KeyRange> {
        self.range
            .as_ref()
            .map(|(min, max)| KeyRange::new(min, max))
    }
}

/// Refuses keys that are longer than [`limits::KEY_BYTES`].
pub(crate) fn check_key_bytes(keys: &SortKeys) -> Result<()> {
    let longest = (0..keys.len()).map(|row| keys.key(row).len()).max();
    match longest {
        Some(value) if value > limits::KEY_BYTES => Err(Error::ResourceLimitExceeded {
            what: "bytes of a key",
            value: value as u64,
            limit: limits::KEY_BYTES as u64,
        }),
        _ => Ok(()),
    }
}
