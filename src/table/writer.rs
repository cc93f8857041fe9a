//! Writes the sorted rows of one fragment as one Parquet object.
//!
//! The bytes are a function of the rows and the schema: not of batch sizes, time, host or key.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use super::bitmap::DeadRows;
use super::chunk::{Chunk, Chunker};
use super::conform::conform;
use super::manifest::{Fragment, KeyRange, Layout, SchemaVersion};
use super::order::{OrderCheck, SortKeys, check_key_bytes};
use super::properties::writer_options;
use super::reservation::Reservation;
use super::schema::arrow_schema;
use super::upload::Upload;
use crate::env::Env;
use crate::store::{DataFile, Stager, Store};
use crate::{Error, Result};

/// Rows of a fragment: positions are u32 and `u32::MAX` is never one.
const ROWS: u64 = u32::MAX as u64;

/// Streams sorted batches into one fragment.
///
/// Bytes leave memory as row groups close. Nothing is visible before [`FragmentWriter::finish`]
/// returns; a writer that is dropped leaves no object.
pub struct FragmentWriter {
    layout: Layout,
    schema_id: u64,
    ids: Vec<u64>,
    schema: SchemaRef,
    writer: ArrowWriter<Vec<u8>>,
    chunker: Chunker,
    order: OrderCheck,
    upload: Upload,
    memory: Reservation,
    rows: u64,
}

impl FragmentWriter {
    /// A writer of the object `key`, which the caller has reserved. Makes no store call.
    pub fn new(
        store: Arc<Store>,
        env: &Env,
        layout: Layout,
        schema: &SchemaVersion,
        key: String,
    ) -> Result<Self> {
        super::schema::check_stored(layout, schema, &key)?;
        let ids: Vec<u64> = schema.columns.iter().map(|c| c.id).collect();
        let arrow = arrow_schema(schema)?;
        let options = writer_options(Some(layout), &arrow, &ids)?;
        let writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&arrow), options)
            .map_err(|e| parquet_error(&key, e))?;
        Ok(Self {
            layout,
            schema_id: schema.id,
            ids,
            chunker: Chunker::new(Arc::clone(&arrow)),
            schema: arrow,
            writer,
            order: OrderCheck::new(layout),
            upload: Upload::new(store, key),
            memory: Reservation::new(&env.budget),
            rows: 0,
        })
    }

    /// The Arrow schema of the rows it takes: columns by position and name, views and large forms
    /// are brought to the stored types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows taken.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the next rows, in the layout's order.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that do not fit the schema or stand out of order,
    /// `ResourceLimitExceeded` for a key or a fragment that is too large, `Storage` for the upload.
    /// After an error the writer can only be dropped.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let done = self.try_write(batch).await;
        if done.is_err() {
            self.upload.abort().await;
        }
        done
    }

    async fn try_write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let rows = conform(batch, &self.schema)?;
        let keys = SortKeys::of(self.layout, &rows, &self.ids)?;
        check_key_bytes(&keys)?;
        if let Some((row, key)) = self.order.push(&keys) {
            let row = self.rows + row as u64;
            return Err(out_of_order(row, &key));
        }
        self.rows += rows.num_rows() as u64;
        if self.rows > ROWS {
            let (what, value, limit) = ("rows of a fragment", self.rows, ROWS);
            return Err(Error::ResourceLimitExceeded { what, value, limit });
        }
        for chunk in self.chunker.push(&rows)? {
            self.encode(chunk).await?;
        }
        self.account().await
    }

    async fn encode(&mut self, chunk: Chunk) -> Result<()> {
        let encoded = self.writer.write(&chunk.rows);
        encoded.map_err(|e| parquet_error(self.upload.key(), e))?;
        self.account().await?;
        if chunk.ends_group {
            let flushed = self.writer.flush();
            flushed.map_err(|e| parquet_error(self.upload.key(), e))?;
            self.drain().await?;
        }
        // Encoding never waits by itself; let others run between chunks.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        let synced = self.writer.sync();
        synced.map_err(|e| parquet_error(self.upload.key(), e.into()))?;
        let bytes = std::mem::take(self.writer.inner_mut());
        self.upload.push(&bytes).await?;
        self.account().await
    }

    /// Takes the memory that is held now. Where there is not enough, parts that are on their way
    /// arrive first. A row group that closes is copied once, so it counts twice.
    async fn account(&mut self) -> Result<()> {
        loop {
            let encoded = self.writer.memory_size().saturating_mul(2);
            let held = self.chunker.pending_bytes() + self.upload.memory();
            match self.memory.resize(encoded.saturating_add(held)) {
                Err(error) if !self.upload.settle_one().await? => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Ends the object and describes it; `None`, and no object, if there were no rows. The checksums
    /// of a large object become an object of `stage`.
    ///
    /// # Errors
    /// `Storage` for the upload, in which case no object is left.
    pub async fn finish(mut self, stage: &mut Stager) -> Result<Option<Fragment>> {
        let Some(keys) = self.order.range() else {
            return Ok(None);
        };
        let footer = self.ended().await?;
        let file = self.upload.finish(footer, stage).await?;
        Ok(Some(fragment(file, self.rows, keys, self.schema_id)))
    }

    /// As [`FragmentWriter::finish`], for a fragment that a commit makes: a small object is put together
    /// with the other objects of `stage`.
    ///
    /// # Errors
    /// As [`FragmentWriter::finish`].
    pub(crate) async fn finish_later(mut self, stage: &mut Stager) -> Result<Option<Fragment>> {
        let Some(keys) = self.order.range() else {
            return Ok(None);
        };
        let footer = self.ended().await?;
        let file = self.upload.finish_later(footer, stage).await?;
        Ok(Some(fragment(file, self.rows, keys, self.schema_id)))
    }

    /// Ends the bytes; the length of the footer.
    async fn ended(&mut self) -> Result<u64> {
        let ended = self.end().await;
        if ended.is_err() {
            self.upload.abort().await;
        }
        ended
    }

    async fn end(&mut self) -> Result<u64> {
        if let Some(chunk) = self.chunker.finish()? {
            self.encode(chunk).await?;
        }
        let ended = self.writer.finish();
        let metadata = ended.map_err(|e| parquet_error(self.upload.key(), e))?;
        let size = self.writer.bytes_written() as u64;
        self.drain().await?;
        Ok(size.saturating_sub(page_index_start(&metadata).unwrap_or(size)))
    }

    /// Gives the fragment up and deletes what was uploaded of it.
    pub async fn abort(mut self) {
        self.upload.abort().await;
    }
}

fn fragment(file: DataFile, rows: u64, keys: KeyRange, schema: u64) -> Fragment {
    Fragment {
        file,
        rows,
        keys,
        schema,
        shift: Default::default(),
        dead: DeadRows::default(),
        segments: Vec::new(),
    }
}

/// Where the page index starts; it stands right before the Parquet footer, so that one read from here
/// to the end of the file fetches both.
pub(crate) fn page_index_start(metadata: &ParquetMetaData) -> Option<u64> {
    let columns = metadata.row_groups().iter().flat_map(|g| g.columns());
    let offsets = columns.flat_map(|c| [c.column_index_offset(), c.offset_index_offset()]);
    offsets.flatten().min().and_then(|o| u64::try_from(o).ok())
}

fn parquet_error(key: &str, source: ParquetError) -> Error {
    Error::Parquet {
        path: key.to_owned(),
        source,
    }
}

fn out_of_order(row: u64, key: &str) -> Error {
    let shown: String = key.chars().take(80).collect();
    Error::InvalidArgument {
        function: "write of a fragment".to_owned(),
        argument: "rows".to_owned(),
        reason: format!("row {row} with key {shown:?} is out of order or not unique"),
    }
}
