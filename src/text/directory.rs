//! The files of one segment as tantivy names them and opens them: parts of one object, read-only.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchHandle, WritePtr,
};
use tantivy::index::SegmentId;
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};

use super::guard::unreadable;
use crate::Result;

/// tantivy names files by the id of their segment; one that never varies keeps bytes deterministic.
const SEGMENT: &str = "00000000000000000000000000000000";
/// The field, and what its analyser is registered as.
pub(super) const FIELD: &str = "text";

pub(super) fn segment_id(key: &str) -> Result<SegmentId> {
    SegmentId::from_uuid_string(SEGMENT).map_err(|_| unreadable(key, "the id of a segment"))
}

/// The file of a section.
pub(super) fn file(extension: &str) -> PathBuf {
    PathBuf::from(format!("{SEGMENT}.{extension}"))
}

pub(super) fn schema() -> (Schema, Field) {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(FIELD)
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let mut schema = Schema::builder();
    let options = TextOptions::default().set_indexing_options(indexing);
    let field = schema.add_text_field(FIELD, options);
    (schema.build(), field)
}

/// Files by name.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectDirectory(Arc<HashMap<PathBuf, OwnedBytes>>);

impl ObjectDirectory {
    pub(super) fn new(files: HashMap<PathBuf, OwnedBytes>) -> Self {
        Self(Arc::new(files))
    }

    fn find(&self, path: &Path) -> Result<&OwnedBytes, OpenReadError> {
        let file = self.0.get(path);
        file.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "a text segment is read-only",
    )
}

impl Directory for ObjectDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(self.find(path)?.clone()))
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.0.contains_key(path))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        Ok(self.find(path)?.as_slice().to_vec())
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        Err(DeleteError::IoError {
            io_error: Arc::new(refused()),
            filepath: path.to_owned(),
        })
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::wrap_io_error(refused(), path.to_owned()))
    }

    fn atomic_write(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(refused())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _: &Lock) -> Result<DirectoryLock, LockError> {
        // Nothing else changes the files.
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
