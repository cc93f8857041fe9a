//! Cuts a stream of rows into chunks and row groups by the rows alone, so that a fragment's bytes do
//! not depend on how its rows arrived.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};

use crate::{Result, limits};

/// A chunk ends at this many raw bytes, however few its rows are.
const CHUNK_BYTES: u64 = 8 * 1024 * 1024;
/// A row group ends at this many raw bytes: what a writer and a reader hold at once.
const ROW_GROUP_BYTES: u64 = 16 * 1024 * 1024;

/// Rows that are written with one call, and whether they end a row group.
pub(crate) struct Chunk {
    pub rows: RecordBatch,
    pub ends_group: bool,
}

/// Collects rows into chunks. A chunk ends where a page of 2,048 rows ends, counted from the start of
/// its row group, or once it holds [`CHUNK_BYTES`].
pub(crate) struct Chunker {
    schema: SchemaRef,
    pending: Vec<RecordBatch>,
    rows: usize,
    bytes: u64,
    group_rows: usize,
    group_bytes: u64,
}

impl Chunker {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            pending: Vec::new(),
            rows: 0,
            bytes: 0,
            group_rows: 0,
            group_bytes: 0,
        }
    }

    /// Raw bytes of rows that wait for their chunk to end.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Adds rows; returns the chunks that they complete.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<Vec<Chunk>> {
        let mut sizes = vec![0u64; batch.num_rows()];
        for column in batch.columns() {
            add_value_bytes(column, &mut sizes);
        }
        let (mut chunks, mut start) = (Vec::new(), 0);
        for (row, size) in sizes.iter().enumerate() {
            self.rows += 1;
            self.bytes = self.bytes.saturating_add(*size);
            let page_ends = (self.group_rows + self.rows).is_multiple_of(limits::PAGE_ROWS);
            if page_ends || self.bytes >= CHUNK_BYTES {
                self.pending.push(batch.slice(start, row + 1 - start));
                start = row + 1;
                chunks.push(self.cut()?);
            }
        }
        if start < batch.num_rows() {
            self.pending
                .push(batch.slice(start, batch.num_rows() - start));
        }
        Ok(chunks)
    }

    /// The last, partial chunk.
    pub(crate) fn finish(&mut self) -> Result<Option<Chunk>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.cut().map(Some)
    }

    fn cut(&mut self) -> Result<Chunk> {
        let rows = concat_batches(&self.schema, &self.pending)?;
        self.pending.clear();
        self.group_rows += self.rows;
        self.group_bytes = self.group_bytes.saturating_add(self.bytes);
        (self.rows, self.bytes) = (0, 0);
        let ends_group =
            self.group_rows >= limits::ROW_GROUP_ROWS || self.group_bytes >= ROW_GROUP_BYTES;
        if ends_group {
            (self.group_rows, self.group_bytes) = (0, 0);
        }
        Ok(Chunk { rows, ends_group })
    }
}

/// Adds the raw bytes of each value to `sizes`, one element a row. Depends on values only, not on how
/// the array is cut or padded.
fn add_value_bytes(array: &dyn Array, sizes: &mut [u64]) {
    let add_offsets = |offsets: &[i32], sizes: &mut [u64]| {
        for (size, pair) in sizes.iter_mut().zip(offsets.windows(2)) {
            *size += (pair[1] - pair[0]) as u64 + 4;
        }
    };
    match array.data_type() {
        DataType::Utf8 => add_offsets(array.as_string::<i32>().value_offsets(), sizes),
        DataType::Binary => add_offsets(array.as_binary::<i32>().value_offsets(), sizes),
        DataType::FixedSizeBinary(n) => sizes.iter_mut().for_each(|s| *s += *n as u64),
        DataType::FixedSizeList(item, n) => match item.data_type().primitive_width() {
            Some(width) => sizes
                .iter_mut()
                .for_each(|s| *s += *n as u64 * width as u64),
            None => {
                let list = array.as_fixed_size_list();
                let mut inner = vec![0; list.values().len()];
                add_value_bytes(list.values(), &mut inner);
                for (size, items) in sizes.iter_mut().zip(inner.chunks((*n).max(1) as usize)) {
                    *size += items.iter().sum::<u64>();
                }
            }
        },
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
            let items = list.values().slice(first, last - first);
            let mut inner = vec![0; items.len()];
            add_value_bytes(&items, &mut inner);
            for (size, pair) in sizes.iter_mut().zip(offsets.windows(2)) {
                let (from, to) = (pair[0] as usize - first, pair[1] as usize - first);
                *size += inner[from..to].iter().sum::<u64>() + 4;
            }
        }
        other => {
            let width = other.primitive_width().unwrap_or(1) as u64;
            sizes.iter_mut().for_each(|s| *s += width);
        }
    }
}
