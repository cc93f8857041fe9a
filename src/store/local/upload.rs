//! Uploads in parts: one unfinished file, written in part order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::errors::{generic, write_error};
use super::read::put_result;
use super::temp::TempFile;
use super::{Inner, run};
use crate::store::disk::DiskFile;

#[derive(Debug)]
pub(super) struct LocalUpload {
    inner: Arc<Inner>,
    location: Path,
    /// None once completed or aborted.
    temp: Option<TempFile>,
    parts: Arc<Mutex<Parts>>,
    handed_out: usize,
}

/// Parts may arrive in any order; those that are too early wait in memory.
#[derive(Debug, Default)]
struct Parts {
    written: usize,
    waiting: BTreeMap<usize, PutPayload>,
    /// Set while a write is under way, so that a failed one spoils the upload.
    broken: bool,
}

impl Parts {
    fn add(&mut self, file: &dyn DiskFile, index: usize, data: PutPayload) -> io::Result<()> {
        self.waiting.insert(index, data);
        while let Some(next) = self.waiting.remove(&self.written) {
            if self.broken {
                return Err(io::Error::other("an earlier part of this upload failed"));
            }
            self.broken = true;
            let chunks: Vec<Bytes> = next.iter().cloned().collect();
            file.append(&chunks)?;
            self.broken = false;
            self.written += 1;
        }
        Ok(())
    }
}

impl LocalUpload {
    pub(super) fn begin(inner: &Arc<Inner>, location: Path) -> Result<Self> {
        inner.file_of(&location)?;
        Ok(Self {
            temp: Some(TempFile::create(inner, &location)?),
            inner: Arc::clone(inner),
            location,
            parts: Arc::default(),
            handed_out: 0,
        })
    }
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = self.handed_out;
        self.handed_out += 1;
        let Some(temp) = &self.temp else {
            return async { Err(generic("this upload was completed or aborted")) }.boxed();
        };
        let file = Arc::clone(&temp.file);
        let (parts, location) = (Arc::clone(&self.parts), self.location.clone());
        run(Arc::clone(&self.inner), move |_| {
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            (parts.add(&*file, index, data)).map_err(|e| write_error("writing", location, e))
        })
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let temp =
            (self.temp.take()).ok_or_else(|| generic("this upload was completed or aborted"))?;
        let written = {
            let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            (!parts.broken).then_some(parts.written)
        };
        if written != Some(self.handed_out) {
            return Err(generic("a part of this upload was not written"));
        }
        let location = self.location.clone();
        run(Arc::clone(&self.inner), move |_| {
            let meta = (temp.file.sync())
                .and_then(|()| temp.file.metadata())
                .map_err(|e| write_error("syncing", &location, e))?;
            temp.publish(&location, false)?;
            Ok(put_result(&meta))
        })
        .await
    }

    async fn abort(&mut self) -> Result<()> {
        let temp = self.temp.take();
        run(Arc::clone(&self.inner), move |_| {
            drop(temp);
            Ok(())
        })
        .await
    }
}
