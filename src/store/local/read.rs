//! Reads: an object's file is opened once, so that its description and its bytes belong together
//! whatever happens to its name meanwhile.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, PutResult, Result,
};

use super::errors::{generic, not_implemented, store_error};
use super::{Inner, run};
use crate::store::disk::{DiskFile, FileMeta};

/// Bytes that one step of a read holds.
const READ_CHUNK: u64 = 4 * 1024 * 1024;

impl Inner {
    /// Opens an object for reading, together with its description.
    pub(super) fn open(&self, location: &Path) -> Result<(Arc<dyn DiskFile>, ObjectMeta)> {
        let path = self.file_of(location)?;
        let read = || -> io::Result<(Arc<dyn DiskFile>, FileMeta)> {
            // What is read here may be acted upon: it must not rest on a name that may vanish.
            self.dirs
                .settle(&*self.disk, path.parent().unwrap_or(&self.root))?;
            let file = self.disk.open(&path)?;
            let meta = file.metadata()?;
            if meta.is_dir {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok((file, meta))
        };
        let (file, meta) = read().map_err(|e| store_error("opening", location, e))?;
        Ok((file, object_meta(location.clone(), &meta)))
    }

    pub(super) fn get(self: &Arc<Self>, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(not_implemented("`get_opts` with a version"));
        }
        let (file, meta) = self.open(location)?;
        options.check_preconditions(&meta)?;
        let range = match options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..meta.size,
        };
        let stream = if options.head {
            stream::empty().boxed()
        } else if range.end - range.start <= READ_CHUNK {
            let bytes =
                (file.read_at(range.clone())).map_err(|e| store_error("reading", location, e))?;
            stream::iter([Ok(bytes)]).boxed()
        } else {
            chunks(Arc::clone(self), file, location.clone(), range.clone())
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream),
            meta,
            range,
            attributes: Default::default(),
        })
    }

    pub(super) fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (file, meta) = self.open(location)?;
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let range = GetRange::Bounded(range.clone()).as_range(meta.size);
            let bytes = file.read_at(range.map_err(generic)?);
            parts.push(bytes.map_err(|e| store_error("reading", location, e))?);
        }
        Ok(parts)
    }
}

/// The bytes of a large range, one chunk in memory at a time.
fn chunks(
    inner: Arc<Inner>,
    file: Arc<dyn DiskFile>,
    location: Path,
    range: Range<u64>,
) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(range.start, move |start| {
        let (inner, file, location) = (Arc::clone(&inner), Arc::clone(&file), location.clone());
        let end = range.end.min(start.saturating_add(READ_CHUNK));
        async move {
            if start >= end {
                return Ok(None);
            }
            let bytes = run(inner, move |_| {
                (file.read_at(start..end)).map_err(|e| store_error("reading", &location, e))
            });
            Ok(Some((bytes.await?, end)))
        }
    })
    .boxed()
}

pub(super) fn object_meta(location: Path, meta: &FileMeta) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::<Utc>::from(meta.modified),
        size: meta.size,
        e_tag: Some(e_tag(meta)),
        version: None,
    }
}

pub(super) fn put_result(meta: &FileMeta) -> PutResult {
    PutResult {
        e_tag: Some(e_tag(meta)),
        version: None,
    }
}

/// Inode, time and size: changes whenever a name is given to another file.
fn e_tag(meta: &FileMeta) -> String {
    let since_1970 = meta.modified.duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since_1970.unwrap_or_default().as_nanos();
    format!("{:x}-{nanos:x}-{:x}", meta.inode, meta.size)
}
