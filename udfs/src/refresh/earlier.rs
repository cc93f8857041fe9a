//! What earlier attempts of the same refresh have computed: another commit touched the same keys, the
//! difference is made again, and no (key, content hash) is given to the model twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, FixedSizeListArray, RecordBatch, StringArray};
use arrow::datatypes::Float32Type;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use stratagraph::embed::RejectReason;
use stratagraph::store::Store;
use stratagraph::table::file::{FragmentFile, read_error};
use stratagraph::table::manifest::Fragment;
use stratagraph::table::schema::id;
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use crate::host::Host;

/// Rows that a cursor holds.
const CURSOR_ROWS: usize = 1024;
/// Bytes of a fragment that a cursor holds at most: about one row group.
const CURSOR_BYTES: usize = 16 * 1024 * 1024;
/// Memory of a remembered refusal besides its key.
const REFUSAL_BYTES: usize = 96;

/// Content hash.
pub(crate) type Hash = [u8; 32];

/// Vectors and refusals of earlier attempts.
#[derive(Debug)]
pub(crate) struct Earlier {
    store: Arc<Store>,
    fragments: Vec<Fragment>,
    refusals: BTreeMap<String, (Hash, RejectReason)>,
    memory: MemoryReservation,
}

/// What is known of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    /// Its vector.
    Vector(Vec<f32>),
    /// That it has none.
    Refused(RejectReason),
}

impl Earlier {
    pub(crate) fn new(host: &Host, store: Arc<Store>) -> Self {
        Self {
            store,
            fragments: Vec::new(),
            refusals: BTreeMap::new(),
            memory: host.memory("refused rows"),
        }
    }

    /// Remembers a staged fragment; its bytes are in the store already.
    pub(crate) fn keep(&mut self, fragment: Fragment) {
        self.fragments.push(fragment);
    }

    /// Remembers a refusal.
    pub(crate) fn refuse(&mut self, key: &str, hash: Hash, reason: RejectReason) -> Result<()> {
        let bytes = key.len() + REFUSAL_BYTES;
        self.memory.try_grow(bytes).map_err(from_datafusion)?;
        self.refusals.insert(key.to_owned(), (hash, reason));
        Ok(())
    }

    /// A reader that is asked for keys in ascending order.
    pub(crate) async fn reader(&self) -> Result<EarlierReader> {
        let mut cursors = Vec::with_capacity(self.fragments.len());
        // The newest first: it has most of what is asked for.
        for fragment in self.fragments.iter().rev() {
            let held = usize::try_from(fragment.file.object.size).unwrap_or(usize::MAX);
            let memory = self.memory.new_empty();
            memory
                .try_grow(held.min(CURSOR_BYTES))
                .map_err(from_datafusion)?;
            cursors.push(Cursor::open(&self.store, fragment, memory).await?);
        }
        let refusals = self.refusals.clone();
        Ok(EarlierReader { cursors, refusals })
    }
}

/// Reads [`Earlier`] alongside sorted keys: every fragment is sorted by the same order.
pub(crate) struct EarlierReader {
    cursors: Vec<Cursor>,
    refusals: BTreeMap<String, (Hash, RejectReason)>,
}

impl EarlierReader {
    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.cursors.is_empty() && self.refusals.is_empty()
    }

    /// What is known of a row. Keys must not descend from call to call.
    pub(crate) async fn find(&mut self, key: &str, hash: &[u8]) -> Result<Option<Known>> {
        if let Some((refused, reason)) = self.refusals.get(key)
            && refused.as_slice() == hash
        {
            return Ok(Some(Known::Refused(*reason)));
        }
        for cursor in &mut self.cursors {
            if let Some(vector) = cursor.find(key, hash).await? {
                return Ok(Some(Known::Vector(vector)));
            }
        }
        Ok(None)
    }
}

/// A place in a sorted fragment.
struct Cursor {
    path: String,
    rows: ParquetRecordBatchStream<FragmentFile>,
    batch: Option<RecordBatch>,
    row: usize,
    _memory: MemoryReservation,
}

impl Cursor {
    async fn open(
        store: &Arc<Store>,
        fragment: &Fragment,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let path = fragment.file.object.key.clone();
        let file = FragmentFile::new(Arc::clone(store), Arc::new(fragment.file.clone()));
        let wrong = |e: ParquetError| read_error(&path, e);
        let builder = ParquetRecordBatchStreamBuilder::new(file)
            .await
            .map_err(wrong)?;
        // Fragments of embedding tables start with the system columns, in the order of their ids.
        let wanted = [id::ROW_ID, id::VECTOR, id::CONTENT_HASH].map(|id| id as usize - 1);
        let columns = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let rows = builder
            .with_projection(columns)
            .with_batch_size(CURSOR_ROWS)
            .build()
            .map_err(wrong)?;
        let mut cursor = Self {
            rows,
            path,
            batch: None,
            row: 0,
            _memory: memory,
        };
        cursor.next_batch().await?;
        Ok(cursor)
    }

    async fn next_batch(&mut self) -> Result<()> {
        let next = self.rows.try_next().await;
        self.batch = next.map_err(|e| read_error(&self.path, e))?;
        self.row = 0;
        Ok(())
    }

    /// The vector of (key, hash); leaves the cursor at the first row of a greater key, or at the row.
    async fn find(&mut self, key: &str, hash: &[u8]) -> Result<Option<Vec<f32>>> {
        loop {
            let Some(batch) = &self.batch else {
                return Ok(None);
            };
            let (keys, vectors, hashes) = self.columns(batch)?;
            while self.row < keys.len() {
                let current = keys.value(self.row);
                if current > key {
                    return Ok(None);
                }
                if current == key && hashes.is_valid(self.row) && hashes.value(self.row) == hash {
                    let vector = vectors.value(self.row);
                    return Ok(Some(vector.as_primitive::<Float32Type>().values().to_vec()));
                }
                self.row += 1;
            }
            self.next_batch().await?;
        }
    }

    fn columns<'a>(&self, batch: &'a RecordBatch) -> Result<Columns<'a>> {
        let keys = batch.column(0).as_string_opt::<i32>();
        let vectors = batch.column(1).as_fixed_size_list_opt();
        let hashes = batch.column(2).as_fixed_size_binary_opt();
        match (keys, vectors, hashes) {
            (Some(keys), Some(vectors), Some(hashes)) => Ok((keys, vectors, hashes)),
            _ => {
                let (expected, found) = ("the columns of an embedding table", batch.schema());
                Err(Error::corrupt("fragment", &self.path, expected, found))
            }
        }
    }
}

type Columns<'a> = (
    &'a StringArray,
    &'a FixedSizeListArray,
    &'a arrow::array::FixedSizeBinaryArray,
);
