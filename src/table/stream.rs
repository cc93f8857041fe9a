//! Streams rows of one fragment, a window of a row group at a time.
//!
//! The Parquet reader holds all selected pages of what it is given at once, so it is given windows of
//! a bounded number of bytes instead of whole row groups.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::TryFutureExt;
use futures::stream::{BoxStream, StreamExt, TryStreamExt, try_unfold};
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use roaring::RoaringBitmap;

use super::file::{FragmentFile, read_error};
use super::guard::{decode, decode_async};
use super::mask::{live_ranges, select};
use super::open::OpenFragment;
use super::projection::Projection;
use super::reservation::Reservation;
use crate::env::Budget;
use crate::{Error, Result, limits};

/// A stream of batches.
pub type BatchStream = BoxStream<'static, Result<RecordBatch>>;

/// Uncompressed bytes of a window, and the rows that it has at least.
const WINDOW_BYTES: u64 = 8 * 1024 * 1024;
const WINDOW_ROWS: u64 = 128;

struct Window {
    group: usize,
    /// Sorted and disjoint, within the group.
    ranges: Vec<Range<u32>>,
}

struct Reading {
    stream: ParquetRecordBatchStream<FragmentFile>,
    /// Positions of the rows that are still to come.
    positions: std::iter::Flatten<std::vec::IntoIter<Range<u32>>>,
}

struct State {
    fragment: Arc<OpenFragment>,
    projection: Projection,
    dead: Arc<RoaringBitmap>,
    batch_rows: usize,
    windows: VecDeque<Window>,
    reading: Option<Reading>,
    _memory: Reservation,
}

/// Rows of `ranges` (sorted, disjoint) that are not in `dead`, in position order, in batches of at
/// most `batch_rows`.
pub(crate) fn stream(
    fragment: &Arc<OpenFragment>,
    projection: Projection,
    ranges: &[Range<u32>],
    dead: Arc<RoaringBitmap>,
    batch_rows: usize,
    budget: &Arc<dyn Budget>,
) -> Result<BatchStream> {
    let (windows, held) = plan(fragment, &projection, ranges);
    let mut memory = Reservation::new(budget);
    // Pages, and the batches made of them.
    memory.resize(
        usize::try_from(held)
            .unwrap_or(usize::MAX)
            .saturating_mul(2),
    )?;
    let state = State {
        fragment: Arc::clone(fragment),
        projection,
        dead,
        batch_rows: batch_rows.max(1),
        windows,
        reading: None,
        _memory: memory,
    };
    Ok(try_unfold(state, next).boxed())
}

/// Windows over `ranges`, and the uncompressed bytes of the largest.
fn plan(
    fragment: &OpenFragment,
    projection: &Projection,
    ranges: &[Range<u32>],
) -> (VecDeque<Window>, u64) {
    let (mut windows, mut held) = (VecDeque::new(), 0);
    for (group, all) in fragment.groups.iter().enumerate() {
        let stored = fragment.row_bytes(group, &projection.roots);
        let row_bytes = stored.saturating_add(projection.null_bytes).max(1);
        let most = window_rows(row_bytes);
        let (mut window, mut rows) = (Vec::new(), 0);
        // Ranges are sorted: those of earlier groups lie before the first that ends in this one.
        let first = ranges.partition_point(|r| r.end <= all.start);
        for range in ranges.iter().skip(first).take_while(|r| r.start < all.end) {
            let (mut start, end) = (range.start.max(all.start), range.end.min(all.end));
            while start < end {
                let stop = end.min(start.saturating_add(most - rows));
                window.push(start..stop);
                rows += stop - start;
                start = stop;
                held = held.max(row_bytes.saturating_mul(u64::from(rows)));
                if rows == most {
                    let ranges = std::mem::take(&mut window);
                    windows.push_back(Window { group, ranges });
                    rows = 0;
                }
            }
        }
        if !window.is_empty() {
            windows.push_back(Window {
                group,
                ranges: window,
            });
        }
    }
    (windows, held)
}

/// Rows of a window: whole pages where more than one fits.
fn window_rows(row_bytes: u64) -> u32 {
    let page = limits::PAGE_ROWS as u64;
    let rows = (WINDOW_BYTES / row_bytes).max(WINDOW_ROWS);
    let rows = if rows > page {
        rows / page * page
    } else {
        rows
    };
    u32::try_from(rows).unwrap_or(u32::MAX)
}

async fn next(mut state: State) -> Result<Option<(RecordBatch, State)>> {
    loop {
        let Some(reading) = &mut state.reading else {
            let Some(window) = state.windows.pop_front() else {
                return Ok(None);
            };
            state.reading = start(&state, &window)?;
            continue;
        };
        let key = state.fragment.file.key();
        let batch = reading.stream.try_next().map_err(|e| read_error(key, e));
        match decode_async("fragment", key, batch).await? {
            Some(batch) => {
                let rows = batch.num_rows();
                let positions: Vec<u32> = reading.positions.by_ref().take(rows).collect();
                if positions.len() != rows {
                    return Err(row_count(key, "more rows than it has"));
                }
                let batch = state.projection.apply(&batch, positions)?;
                return Ok(Some((batch, state)));
            }
            None if reading.positions.next().is_some() => {
                return Err(row_count(key, "fewer rows than it has"));
            }
            None => state.reading = None,
        }
    }
}

/// Opens a window; `None` if all its rows are dead.
fn start(state: &State, window: &Window) -> Result<Option<Reading>> {
    let ranges = window.ranges.iter();
    let live: Vec<Range<u32>> = ranges
        .flat_map(|r| live_ranges(&state.dead, r.clone()))
        .collect();
    let (Some(group), false) = (state.fragment.groups.get(window.group), live.is_empty()) else {
        return Ok(None);
    };
    let fragment = &state.fragment;
    let (file, meta) = (fragment.file.clone(), fragment.meta.clone());
    let build = || {
        ParquetRecordBatchStreamBuilder::new_with_metadata(file, meta)
            .with_row_groups(vec![window.group])
            .with_projection(state.projection.mask.clone())
            .with_row_selection(select(live.iter().cloned(), group))
            .with_batch_size(state.batch_rows)
            .build()
            .map_err(|e| read_error(fragment.file.key(), e))
    };
    let stream = decode("fragment", fragment.file.key(), build)?;
    Ok(Some(Reading {
        stream,
        positions: live.into_iter().flatten(),
    }))
}

fn row_count(key: &str, found: &str) -> Error {
    Error::corrupt("fragment", key, "the rows that its footer names", found)
}
