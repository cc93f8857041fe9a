//! Uploads one object while its bytes are made.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, TryStreamExt};
use object_store::{MultipartUpload, PutMultipartOptions, UploadPart};

use crate::store::{DataFile, FileSums, Stager, Store};
use crate::{Error, Result};

/// Bytes of a part, and of the smallest object that is uploaded in parts. Equal parts suit every
/// store; S3 wants at least 5 MiB.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts of an object (S3).
const PARTS: u64 = 10_000;
/// Parts on their way at once.
const PARTS_IN_FLIGHT: usize = 4;

/// Sums and uploads bytes: one put below [`PART_BYTES`], else parts. An upload that is not finished
/// leaves no object; one that is dropped aborts its parts in the background where a runtime is left.
pub(crate) struct Upload {
    store: Arc<Store>,
    key: String,
    sums: FileSums,
    buffer: Vec<u8>,
    multipart: Option<Box<dyn MultipartUpload>>,
    parts: FuturesUnordered<UploadPart>,
}

impl Upload {
    /// Makes no store call yet.
    pub(crate) fn new(store: Arc<Store>, key: String) -> Self {
        Self {
            store,
            key,
            sums: FileSums::default(),
            buffer: Vec::new(),
            multipart: None,
            parts: FuturesUnordered::new(),
        }
    }

    /// The object's key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Bytes held in memory.
    pub(crate) fn memory(&self) -> usize {
        self.buffer.capacity() + self.parts.len() * PART_BYTES
    }

    /// Takes the next bytes; waits while too many parts are on their way.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.sums.update(bytes);
        while !bytes.is_empty() {
            // A full buffer waits for the next byte: the last part is never empty.
            if self.buffer.len() == PART_BYTES {
                let part = std::mem::take(&mut self.buffer);
                self.send(part).await?;
            }
            let room = PART_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    async fn send(&mut self, part: Vec<u8>) -> Result<()> {
        let (value, limit) = (self.sums.size(), PARTS * PART_BYTES as u64);
        if value > limit {
            let what = "bytes of a fragment";
            return Err(Error::ResourceLimitExceeded { what, value, limit });
        }
        if self.multipart.is_none() {
            let path = self.store.path(&self.key);
            let options = PutMultipartOptions::default();
            let upload = self.store.inner().put_multipart_opts(&path, options).await;
            self.multipart = Some(upload.map_err(|e| self.failed(e))?);
        }
        while self.parts.len() >= PARTS_IN_FLIGHT {
            self.parts.try_next().await.map_err(|e| self.failed(e))?;
        }
        if let Some(upload) = &mut self.multipart {
            self.parts.push(upload.put_part(part.into()));
            // One poll starts the request; it goes on while the next rows are encoded.
            if let Some(Some(Err(error))) = self.parts.next().now_or_never() {
                return Err(self.failed(error));
            }
        }
        Ok(())
    }

    /// Waits until a part has arrived; false if none is on its way.
    pub(crate) async fn settle_one(&mut self) -> Result<bool> {
        let arrived = self.parts.try_next().await.map_err(|e| self.failed(e))?;
        Ok(arrived.is_some())
    }

    fn failed(&self, source: object_store::Error) -> Error {
        Error::storage("put", &self.key, source)
    }

    /// Makes the object visible. `footer` goes into the reference.
    pub(crate) async fn finish(mut self, footer: u64, stage: &mut Stager) -> Result<DataFile> {
        match self.complete().await {
            Ok(()) => {}
            Err(error) => {
                self.abort().await;
                return Err(error);
            }
        }
        std::mem::take(&mut self.sums).finish(std::mem::take(&mut self.key), footer, stage)
    }

    /// Leaves a small object to the puts of `stage`, which go together; a large one is made visible now.
    pub(crate) async fn finish_later(
        mut self,
        footer: u64,
        stage: &mut Stager,
    ) -> Result<DataFile> {
        if self.multipart.is_some() || self.buffer.len() == PART_BYTES {
            return self.finish(footer, stage).await;
        }
        stage.put_later(&self.key, std::mem::take(&mut self.buffer));
        std::mem::take(&mut self.sums).finish(std::mem::take(&mut self.key), footer, stage)
    }

    async fn complete(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.buffer);
        if self.multipart.is_none() && rest.len() < PART_BYTES {
            return self.store.put_object(&self.key, rest.into()).await;
        }
        self.send(rest).await?;
        while let Some(()) = self.parts.try_next().await.map_err(|e| self.failed(e))? {}
        if let Some(upload) = &mut self.multipart {
            let done = upload.complete().await;
            done.map_err(|e| Error::storage("put", &self.key, e))?;
        }
        self.multipart = None;
        Ok(())
    }

    /// Gives the upload up; parts that were sent are deleted as far as the store lets us.
    pub(crate) async fn abort(&mut self) {
        self.parts.clear();
        if let Some(mut upload) = self.multipart.take()
            && let Err(error) = upload.abort().await
        {
            tracing::warn!(key = %self.key, %error, "abort of an upload failed");
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.multipart.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move { upload.abort().await }));
        }
    }
}
