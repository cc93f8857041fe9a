//! Neighbours of few nodes from the pages of fragments that can hold their edges.
//!
//! A fragment stands in the order of its sources, so the page bounds of that column leave little to
//! read; those of destinations rarely do.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use futures::stream::{StreamExt, TryStreamExt};

use super::layer::Side;
use super::lists::{Lists, from_pairs, narrow, pair};
use super::pace::Pace;
use crate::graph::query::Direction;
use crate::table::manifest::Column;
use crate::table::open::OpenFragment;
use crate::table::projection::Projection;
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::table::stream::stream;
use crate::{Error, Result};

/// Fragments that are opened at once.
const CONCURRENT_OPENS: usize = 8;
/// Bytes of a pair and of its share of the lists that are made of pairs.
const PAIR_BYTES: usize = 24;
/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// All fragments of an edge table with live rows, opened.
pub(super) struct Index {
    reader: TableReader,
    fragments: Vec<Arc<OpenFragment>>,
    columns: Vec<Column>,
    sides: Vec<Side>,
}

/// Pages to read.
pub(super) struct Pages {
    /// Side, fragment, positions.
    parts: Vec<(Side, usize, Vec<Range<u32>>)>,
    /// Rows in all of them.
    pub(super) rows: u64,
}

impl Index {
    /// Reads the footers.
    pub(super) async fn open(reader: &TableReader, direction: Direction) -> Result<Self> {
        let entries = reader.entries().await?;
        let live = entries
            .iter()
            .filter(|e| e.fragment.as_ref().is_some_and(|f| f.dead.rows < f.rows));
        // Boxed one by one: a closure that borrows its argument is not general enough for callers
        // whose futures must be Send.
        let mut opening = Vec::new();
        for entry in live {
            opening.push(futures::FutureExt::boxed(reader.open(entry)));
        }
        let opened = futures::stream::iter(opening).buffered(CONCURRENT_OPENS);
        let opened: Vec<Option<Arc<OpenFragment>>> = opened.try_collect().await?;
        Ok(Self {
            reader: reader.clone(),
            fragments: opened.into_iter().flatten().collect(),
            columns: reader.columns(Some(&[id::SRC_RID, id::DST_RID]))?,
            sides: match direction {
                Direction::Out => vec![Side::Out],
                Direction::In => vec![Side::In],
                Direction::Both => vec![Side::Out, Side::In],
            },
        })
    }

    /// Rows that the whole adjacency is made of.
    pub(super) fn rows(&self) -> u64 {
        let rows: u64 = self.fragments.iter().map(|f| u64::from(f.rows)).sum();
        rows * self.sides.len() as u64
    }

    /// The pages that can hold edges of `frontier`, which ascends.
    pub(super) fn pages(&self, frontier: &[u32]) -> Result<Pages> {
        let (mut parts, mut rows) = (Vec::new(), 0);
        for side in &self.sides {
            let column = match side {
                Side::Out => id::SRC_RID,
                Side::In => id::DST_RID,
            };
            for (number, open) in self.fragments.iter().enumerate() {
                let leaf = open.root(column).and_then(|root| open.leaf(root));
                let leaf = leaf.ok_or_else(|| {
                    Error::corrupt("fragment", open.file.key(), "row ids of both ends", "none")
                })?;
                let mut may = |min, max| {
                    let moved = |stored| open.shifted(column, stored);
                    meets(frontier, moved(min), moved(max))
                };
                let groups = 0..open.groups.len();
                let ranges: Vec<Range<u32>> = groups
                    .flat_map(|group| open.number_pages(group, leaf, &mut may))
                    .collect();
                rows += ranges
                    .iter()
                    .map(|r| u64::from(r.end - r.start))
                    .sum::<u64>();
                if !ranges.is_empty() {
                    parts.push((*side, number, ranges));
                }
            }
        }
        Ok(Pages { parts, rows })
    }

    /// The neighbours of `frontier`, which ascends, from `pages`, each once if they are to be `distinct`;
    /// `memory` holds them too. An edge from a node to itself is one edge in both directions too.
    pub(super) async fn lists(
        &self,
        frontier: &[u32],
        pages: &Pages,
        distinct: bool,
        memory: &mut Reservation,
        pace: &mut Pace,
    ) -> Result<Lists> {
        let mut pairs: Vec<u64> = Vec::new();
        for (side, number, ranges) in &pages.parts {
            let open = &self.fragments[*number];
            let projection = Projection::new(open, &self.columns, false)?;
            let (dead, budget) = (Arc::clone(&open.dead), self.reader.budget());
            let mut rows = stream(open, projection, ranges, dead, BATCH_ROWS, budget)?;
            while let Some(batch) = rows.try_next().await? {
                let column = |i: usize| batch.column(i).as_primitive_opt::<UInt64Type>();
                let (Some(src), Some(dst)) = (column(0), column(1)) else {
                    let (key, found) = (open.file.key(), "other columns");
                    return Err(Error::corrupt(
                        "fragment",
                        key,
                        "row ids of both ends",
                        found,
                    ));
                };
                let (keys, ends) = match side {
                    Side::Out => (src, dst),
                    Side::In => (dst, src),
                };
                let (held, before) = (memory.bytes(), pairs.len());
                memory.grow(batch.num_rows() * PAIR_BYTES)?;
                for (key, end) in keys.values().iter().zip(ends.values()) {
                    let (key, end) = (narrow(*key)?, narrow(*end)?);
                    let again = *side == Side::In && self.sides.len() > 1 && key == end;
                    if !again && frontier.binary_search(&key).is_ok() {
                        pairs.push(pair(key, end));
                    }
                }
                memory.resize(held + (pairs.len() - before) * PAIR_BYTES)?;
                if pace.due(batch.num_rows()) {
                    Pace::rest().await;
                }
            }
        }
        Ok(from_pairs(pairs, distinct))
    }
}

/// Whether one of `frontier` lies from `min` to `max`.
fn meets(frontier: &[u32], min: u64, max: u64) -> bool {
    let first = frontier.partition_point(|key| u64::from(*key) < min);
    frontier
        .get(first)
        .is_some_and(|key| u64::from(*key) <= max)
}
