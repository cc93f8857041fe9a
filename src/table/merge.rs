//! Merges sorted streams of batches into one.

use std::cmp::Ordering;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use futures::stream::{StreamExt, TryStreamExt, try_unfold};

use super::manifest::Layout;
use super::order::SortKeys;
use super::stream::BatchStream;
use crate::Result;

/// Raw bytes at which an output batch ends.
const OUTPUT_BYTES: u64 = 32 * 1024 * 1024;

struct Cursor {
    stream: BatchStream,
    keys: Option<SortKeys>,
    /// Next row of the batch.
    row: usize,
    /// The batch's place in [`Merge::batches`].
    batch: usize,
    row_bytes: u64,
}

struct Merge {
    layout: Layout,
    schema: SchemaRef,
    /// Property ids of the columns; zero for columns that have none.
    ids: Vec<u64>,
    batch_rows: usize,
    cursors: Vec<Cursor>,
    /// Cursors that have a row, the one with the smallest row first.
    heap: Vec<usize>,
    /// Batches that the open output takes rows from.
    batches: Vec<RecordBatch>,
    rows: Vec<(usize, usize)>,
    bytes: u64,
}

/// The rows of `streams`, each sorted as `layout` sorts, in that order; equal rows in the order of
/// their streams. All batches have `schema`, and `ids` names the property of each of its columns (any
/// other number for a column that has none). Holds one batch a stream.
pub fn merge(
    layout: Layout,
    schema: SchemaRef,
    ids: Vec<u64>,
    mut streams: Vec<BatchStream>,
    batch_rows: usize,
) -> BatchStream {
    if streams.len() == 1
        && let Some(only) = streams.pop()
    {
        return only;
    }
    let cursor = |stream| Cursor {
        stream,
        keys: None,
        row: 0,
        batch: 0,
        row_bytes: 0,
    };
    let state = Merge {
        layout,
        schema,
        ids,
        batch_rows: batch_rows.max(1),
        cursors: streams.into_iter().map(cursor).collect(),
        heap: Vec::new(),
        batches: Vec::new(),
        rows: Vec::new(),
        bytes: 0,
    };
    futures::stream::once(start(state))
        .map_ok(|state| try_unfold(state, next))
        .try_flatten()
        .boxed()
}

async fn start(mut state: Merge) -> Result<Merge> {
    // All first batches are asked for at once: they come from different objects.
    let first = futures::future::try_join_all(state.cursors.iter_mut().map(Cursor::pull)).await?;
    for (cursor, batch) in first.into_iter().enumerate() {
        if let Some(batch) = batch {
            state.stand(cursor, batch)?;
            state.heap.push(cursor);
            state.rise();
        }
    }
    Ok(state)
}

async fn next(mut state: Merge) -> Result<Option<(RecordBatch, Merge)>> {
    while let Some(&top) = state.heap.first() {
        if state.rows.len() >= state.batch_rows || state.bytes >= OUTPUT_BYTES {
            break;
        }
        let cursor = &mut state.cursors[top];
        state.rows.push((cursor.batch, cursor.row));
        state.bytes += cursor.row_bytes;
        cursor.row += 1;
        let spent = cursor
            .keys
            .as_ref()
            .is_none_or(|keys| cursor.row >= keys.len());
        if spent && !state.fill(top).await? {
            state.heap.swap_remove(0);
        }
        state.sink();
    }
    if state.rows.is_empty() {
        return Ok(None);
    }
    let batch = state.emit()?;
    Ok(Some((batch, state)))
}

impl Cursor {
    /// The next batch that has rows; `None` at the end of the stream.
    async fn pull(&mut self) -> Result<Option<RecordBatch>> {
        self.keys = None;
        while let Some(batch) = self.stream.try_next().await? {
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

impl Merge {
    /// Gives a cursor its next batch; false at the end of its stream.
    async fn fill(&mut self, cursor: usize) -> Result<bool> {
        match self.cursors[cursor].pull().await? {
            Some(batch) => self.stand(cursor, batch).map(|()| true),
            None => Ok(false),
        }
    }

    /// Puts a cursor before the first row of a batch.
    fn stand(&mut self, cursor: usize, batch: RecordBatch) -> Result<()> {
        let cursor = &mut self.cursors[cursor];
        cursor.keys = Some(SortKeys::of(self.layout, &batch, &self.ids)?);
        cursor.row = 0;
        cursor.row_bytes = (batch.get_array_memory_size() / batch.num_rows().max(1)) as u64;
        cursor.batch = self.batches.len();
        self.batches.push(batch);
        Ok(())
    }

    /// The open output; batches that no cursor stands in are let go.
    fn emit(&mut self) -> Result<RecordBatch> {
        let column = |i: usize| {
            let arrays: Vec<&dyn Array> =
                self.batches.iter().map(|b| b.column(i).as_ref()).collect();
            interleave(&arrays, &self.rows)
        };
        let columns = (0..self.schema.fields().len()).map(column);
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let output = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mut kept = Vec::with_capacity(self.heap.len());
        for &cursor in &self.heap {
            let cursor = &mut self.cursors[cursor];
            kept.push(self.batches[cursor.batch].clone());
            cursor.batch = kept.len() - 1;
        }
        self.batches = kept;
        self.rows.clear();
        self.bytes = 0;
        Ok(output)
    }

    /// Whether the heap's place `a` holds a smaller row than `b`.
    fn less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        let (left, right) = (&self.cursors[a], &self.cursors[b]);
        let order = match (&left.keys, &right.keys) {
            (Some(l), Some(r)) => l.get(left.row).cmp(&r.get(right.row)),
            _ => Ordering::Equal,
        };
        order.then(a.cmp(&b)) == Ordering::Less
    }

    /// Restores the heap after a push.
    fn rise(&mut self) {
        let mut place = self.heap.len() - 1;
        while place > 0 && self.less(place, (place - 1) / 2) {
            self.heap.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    /// Restores the heap after its first place changed.
    fn sink(&mut self) {
        let mut place = 0;
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let mut least = place;
            for child in children {
                if child < self.heap.len() && self.less(child, least) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}
