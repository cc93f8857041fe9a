//! What is read of one fragment for searches, kept by its key.

use std::sync::Arc;

use arrow::array::{Array, AsArray, FixedSizeListArray, RecordBatch};
use arrow::datatypes::Float32Type;
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use super::text::TextColumn;
use super::vector::VectorColumn;
use crate::ann::{self, Vectors};
use crate::store::{DataFile, VerifiedFile};
use crate::table::manifest::{Entry, Segment};
use crate::table::open::OpenFragment;
use crate::table::projection::Projection;
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;
use crate::table::stream::{BatchStream, stream};
use crate::text::{self, TextSegment};
use crate::{Error, Result};

/// Rows of a batch that is read.
const BATCH_ROWS: usize = 8_192;

/// One fragment of the table.
pub(super) struct Rows<'a> {
    pub(super) reader: &'a TableReader,
    pub(super) entry: &'a Entry,
    pub(super) open: Arc<OpenFragment>,
}

impl<'a> Rows<'a> {
    /// `None` for an entry without a fragment.
    pub(super) async fn open(reader: &'a TableReader, entry: &'a Entry) -> Result<Option<Self>> {
        let open = reader.open(entry).await?;
        Ok(open.map(|open| Self {
            reader,
            entry,
            open,
        }))
    }

    fn key(&self) -> &str {
        self.open.file.key()
    }

    /// One column of some rows, dead ones included.
    pub(super) fn column(&self, column: u64, rows: Option<&RoaringBitmap>) -> Result<BatchStream> {
        let columns = self.reader.columns(Some(&[column]))?;
        let projection = Projection::new(&self.open, &columns, true)?;
        let (ranges, hidden) = match rows {
            None => (vec![self.open.positions()], RoaringBitmap::new()),
            Some(rows) => {
                let (first, last) = (rows.min().unwrap_or(0), rows.max().map_or(0, |l| l + 1));
                let mut hidden = RoaringBitmap::new();
                hidden.insert_range(first..last);
                (std::iter::once(first..last).collect(), hidden - rows)
            }
        };
        let budget = self.reader.budget();
        let hidden = Arc::new(hidden);
        stream(&self.open, projection, &ranges, hidden, BATCH_ROWS, budget)
    }

    /// Bytes of all vectors of a column.
    fn vector_bytes(&self, column: &VectorColumn) -> usize {
        let rows = self.open.rows as usize;
        let components = rows.saturating_mul(column.dimensions);
        let bytes = components.saturating_mul(size_of::<f32>());
        match self.segment(column) {
            Some(_) => bytes,
            None => bytes.saturating_add(Vectors::sketch_bytes(rows, column.dimensions)),
        }
    }

    fn segment(&self, column: &VectorColumn) -> Option<&'a Segment> {
        let fragment = self.entry.fragment.as_ref()?;
        fragment.segment(column.column, column.metric.as_str())
    }

    /// Whether the cache would keep all vectors of a column, and memory is there to read them.
    pub(super) fn can_hold(&self, column: &VectorColumn) -> bool {
        let bytes = self.vector_bytes(column);
        let mut memory = Reservation::new(self.reader.budget());
        bytes <= self.reader.store().indexes().most_made() && memory.resize(bytes).is_ok()
    }

    fn vectors_key(&self, column: &VectorColumn) -> String {
        let (of, metric, key) = (column.column, column.metric.as_str(), self.key());
        format!("vectors:{of}:{metric}:{key}")
    }

    /// The vectors of a column, if they are held.
    pub(super) fn held_vectors(&self, column: &VectorColumn) -> Option<Arc<Vectors>> {
        self.reader.store().indexes().get(&self.vectors_key(column))
    }

    /// All vectors of a column.
    pub(super) async fn vectors(&self, column: &VectorColumn) -> Result<Arc<Vectors>> {
        let cache = self.reader.store().indexes();
        let make = async {
            let mut memory = Reservation::new(self.reader.budget());
            memory.resize(self.vector_bytes(column))?;
            let vectors = Arc::new(self.read_vectors(column).await?);
            let bytes = vectors.bytes();
            Ok((vectors, bytes))
        };
        let (vectors, _) = cache.get_or_make(&self.vectors_key(column), make).await?;
        Ok(vectors)
    }

    async fn read_vectors(&self, column: &VectorColumn) -> Result<Vectors> {
        let rows = self.open.rows as usize;
        let mut vectors = Vectors::with_capacity(column.metric, column.dimensions, rows)?;
        let mut batches = self.column(column.column, None)?;
        while let Some(batch) = batches.try_next().await? {
            let list = lists(&batch, column.dimensions, self.key())?;
            for row in 0..list.len() {
                vectors.push(components(list, row));
            }
        }
        Ok(match self.segment(column) {
            Some(_) => vectors,
            None => vectors.sketched(),
        })
    }

    /// The index over a column of vectors, if the fragment has one that can be used. One that is
    /// damaged is left aside: the rows are read instead.
    pub(super) async fn vector_index(&self, column: &VectorColumn) -> Option<Arc<ann::Index>> {
        let fragment = self.entry.fragment.as_ref()?;
        let segment = self.segment(column)?;
        let expected = ann::Expected {
            rows: self.open.rows,
            dimensions: u32::try_from(column.dimensions).unwrap_or(u32::MAX),
            metric: column.metric,
            fragment: *fragment.file.object.sha256.as_bytes(),
        };
        let open = |bytes, key: &str| {
            let index = ann::open(bytes, key, expected)?;
            let bytes = index.bytes();
            Ok((index, bytes))
        };
        self.index(segment, open).await
    }

    async fn index<T: Send + Sync + 'static>(
        &self,
        segment: &Segment,
        open: impl FnOnce(bytes::Bytes, &str) -> Result<(T, usize)>,
    ) -> Option<Arc<T>> {
        let store = self.reader.store();
        let key = &segment.file.object.key;
        let make = async {
            let bytes = read_whole(self.reader, &segment.file).await?;
            let (index, bytes) = open(bytes, key)?;
            Ok((Arc::new(index), bytes))
        };
        match store.indexes().get_or_make(key, make).await {
            Ok((index, _)) => Some(index),
            Err(error) => {
                tracing::warn!(key, %error, "an index cannot be used; the rows are read instead");
                None
            }
        }
    }

    /// The postings of a column of texts: from its index, else made of the texts.
    pub(super) async fn postings(&self, column: &TextColumn) -> Result<Arc<TextSegment>> {
        let of = column.analyser.name();
        let fragment = self.entry.fragment.as_ref();
        if let Some(fragment) = fragment
            && let Some(segment) = fragment.segment(column.column, of)
        {
            let expected = text::Expected {
                rows: self.open.rows,
                analyser: &column.analyser,
                fragment: *fragment.file.object.sha256.as_bytes(),
            };
            let open = |bytes, key: &str| {
                let index = TextSegment::open(bytes, key, expected)?;
                let bytes = index.bytes();
                Ok((index, bytes))
            };
            if let Some(index) = self.index(segment, open).await {
                return Ok(index);
            }
        }
        let key = format!("texts:{}:{of}:{}", column.column, self.key());
        let make = async {
            let bytes = self.build_postings(column).await?;
            let expected = text::Expected {
                rows: self.open.rows,
                analyser: &column.analyser,
                fragment: [0; 32],
            };
            let index = TextSegment::open(bytes.into(), self.key(), expected)?;
            let bytes = index.bytes();
            Ok((Arc::new(index), bytes))
        };
        let cache = self.reader.store().indexes();
        Ok(cache.get_or_make(&key, make).await?.0)
    }

    async fn build_postings(&self, column: &TextColumn) -> Result<Vec<u8>> {
        super::build::postings(self, column, [0; 32]).await
    }
}

/// Reads an object whole and checks it.
pub(crate) async fn read_whole(reader: &TableReader, file: &DataFile) -> Result<bytes::Bytes> {
    let size = file.object.size;
    let mut memory = Reservation::new(reader.budget());
    memory.resize(usize::try_from(size).unwrap_or(usize::MAX))?;
    reader.count().add(size);
    let file = VerifiedFile::new(Arc::clone(reader.store()), Arc::new(file.clone()));
    file.read(0..size).await
}

/// The first column of a batch as vectors.
pub(super) fn lists<'b>(
    batch: &'b RecordBatch,
    dimensions: usize,
    key: &str,
) -> Result<&'b FixedSizeListArray> {
    let list = batch.column(0).as_fixed_size_list_opt();
    let fits = |list: &&FixedSizeListArray| {
        usize::try_from(list.value_length()).is_ok_and(|width| width == dimensions)
            && list.values().as_primitive_opt::<Float32Type>().is_some()
    };
    list.filter(fits).ok_or_else(|| {
        let expected = format!("vectors of {dimensions} components");
        Error::corrupt("fragment", key, expected, batch.column(0).data_type())
    })
}

/// The components of a row; `None` for NULL, and for a vector with a NULL in it.
pub(super) fn components(list: &FixedSizeListArray, row: usize) -> Option<&[f32]> {
    if list.is_null(row) {
        return None;
    }
    let child = list.values().as_primitive_opt::<Float32Type>()?;
    let width = usize::try_from(list.value_length()).ok()?;
    let start = usize::try_from(list.value_offset(row)).ok()?;
    let range = start..start.checked_add(width)?;
    let whole = child.null_count() == 0 || range.clone().all(|i| child.is_valid(i));
    whole.then(|| child.values().get(range)).flatten()
}
