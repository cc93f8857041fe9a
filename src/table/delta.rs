//! Delta objects: small Parquet objects of rows that are sorted by a unique key (`_row_id`, their
//! first column). Mask deltas and ledger deltas are two of them.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::chunk::{Chunk, Chunker};
use super::file::read_error;
use super::manifest::{Column, DeltaObject, SchemaVersion};
use super::properties::writer_options;
use super::schema::arrow_schema;
use crate::store::{Stager, Store};
use crate::{Error, Result, limits};

/// Rows of a batch that a builder of a delta makes at once.
pub(crate) const BATCH_ROWS: usize = 8_192;
const READ_ROWS: usize = 8_192;

/// Refuses a key that no fragment can hold.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.len() > limits::KEY_BYTES {
        let (value, limit) = (key.len() as u64, limits::KEY_BYTES as u64);
        let what = "bytes of a key";
        return Err(Error::ResourceLimitExceeded { what, value, limit });
    }
    Ok(())
}

/// What kind of delta.
pub(crate) struct DeltaKind {
    /// Its name in errors.
    pub artifact: &'static str,
    schema: SchemaRef,
    ids: Vec<u64>,
}

impl DeltaKind {
    /// A kind with the given columns: (property id, name, type, nullable), the key first.
    pub(crate) fn new(artifact: &'static str, columns: &[(u64, &str, &str, bool)]) -> Result<Self> {
        let column = |(id, name, data_type, nullable): &(u64, &str, &str, bool)| Column {
            id: *id,
            name: (*name).to_owned(),
            data_type: (*data_type).to_owned(),
            nullable: *nullable,
        };
        let columns: Vec<Column> = columns.iter().map(column).collect();
        Ok(Self {
            artifact,
            ids: columns.iter().map(|c| c.id).collect(),
            schema: arrow_schema(&SchemaVersion { id: 0, columns })?,
        })
    }

    /// The Arrow schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Loads the bytes of a delta, through the cache where they are small.
    pub(crate) async fn load(&self, store: &Store, delta: &DeltaObject) -> Result<Bytes> {
        if delta.object.size <= limits::METADATA_BYTES {
            store.get(self.artifact, &delta.object).await
        } else {
            store.get_uncached(self.artifact, &delta.object).await
        }
    }

    /// Decodes a delta and hands its batches to `each`, after checking schema, number and order.
    pub(crate) fn decode(
        &self,
        delta: &DeltaObject,
        bytes: Bytes,
        each: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let key = &delta.object.key;
        let options = ArrowReaderOptions::new().with_schema(Arc::clone(&self.schema));
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)
            .map_err(|e| read_error(key, e))?;
        let rows = reader.metadata().file_metadata().num_rows();
        if u64::try_from(rows).ok() != Some(delta.entries) {
            let (expected, found) = (format!("{} rows", delta.entries), format!("{rows} rows"));
            return Err(Error::corrupt(self.artifact, key, expected, found));
        }
        let reader = reader.with_batch_size(READ_ROWS).build();
        let (mut last, mut seen): (Option<String>, u64) = (None, 0);
        for batch in reader.map_err(|e| read_error(key, e))? {
            let batch = batch?;
            let keys = self.keys(key, &batch)?;
            check_unique(self.artifact, key, &mut last, keys)?;
            seen += batch.num_rows() as u64;
            each(&batch)?;
        }
        if seen != delta.entries {
            let (expected, found) = (format!("{} rows", delta.entries), format!("{seen} rows"));
            return Err(Error::corrupt(self.artifact, key, expected, found));
        }
        Ok(())
    }

    /// The key column of a batch.
    pub(crate) fn keys<'a>(&self, path: &str, batch: &'a RecordBatch) -> Result<&'a StringArray> {
        let keys = batch
            .columns()
            .first()
            .and_then(|c| c.as_string_opt::<i32>());
        keys.ok_or_else(|| Error::corrupt(self.artifact, path, "a key column", "another type"))
    }
}

fn check_unique(
    artifact: &'static str,
    path: &str,
    last: &mut Option<String>,
    keys: &StringArray,
) -> Result<()> {
    for row in 0..keys.len() {
        let before = match row {
            0 => last.as_deref(),
            _ => Some(keys.value(row - 1)),
        };
        if before.is_some_and(|before| before >= keys.value(row)) {
            return Err(Error::corrupt(
                artifact,
                path,
                "keys in order, each once",
                "another order",
            ));
        }
    }
    if let Some(row) = keys.len().checked_sub(1) {
        *last = Some(keys.value(row).to_owned());
    }
    Ok(())
}

/// Writes a delta object from sorted batches.
pub(crate) struct DeltaWriter<'a> {
    kind: &'a DeltaKind,
    writer: ArrowWriter<Vec<u8>>,
    chunker: Chunker,
    last: Option<String>,
    rows: u64,
}

impl<'a> DeltaWriter<'a> {
    pub(crate) fn new(kind: &'a DeltaKind) -> Result<Self> {
        let options = writer_options(None, &kind.schema, &kind.ids)?;
        let schema = Arc::clone(&kind.schema);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema, options)
            .map_err(|e| read_error(kind.artifact, e))?;
        Ok(Self {
            kind,
            writer,
            chunker: Chunker::new(Arc::clone(&kind.schema)),
            last: None,
            rows: 0,
        })
    }

    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys = self.kind.keys(self.kind.artifact, batch)?;
        check_unique(self.kind.artifact, "new delta", &mut self.last, keys)?;
        self.rows += batch.num_rows() as u64;
        for chunk in self.chunker.push(batch)? {
            self.encode(&chunk)?;
        }
        Ok(())
    }

    fn encode(&mut self, chunk: &Chunk) -> Result<()> {
        let written = self.writer.write(&chunk.rows);
        written.map_err(|e| read_error(self.kind.artifact, e))?;
        if chunk.ends_group {
            let flushed = self.writer.flush();
            flushed.map_err(|e| read_error(self.kind.artifact, e))?;
        }
        Ok(())
    }

    /// Stages the object; `None` without rows.
    pub(crate) fn finish(mut self, stage: &mut Stager) -> Result<Option<DeltaObject>> {
        if let Some(chunk) = self.chunker.finish()? {
            self.encode(&chunk)?;
        }
        if self.rows == 0 {
            return Ok(None);
        }
        let bytes = self.writer.into_inner();
        let bytes = bytes.map_err(|e| read_error(self.kind.artifact, e))?;
        Ok(Some(DeltaObject {
            object: stage.add("parquet", bytes)?,
            entries: self.rows,
        }))
    }
}
