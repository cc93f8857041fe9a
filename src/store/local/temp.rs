//! Unfinished files.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use object_store::Result;
use object_store::path::Path;

use super::errors::write_error;
use super::{Inner, TEMP};
use crate::store::disk::DiskFile;

/// Names tried before giving up; other processes may use the same ones.
const NAMES_TRIED: u32 = 10_000;

/// A name under `.tmp` that is removed when it is no longer needed.
#[derive(Debug)]
struct TempName {
    inner: Arc<Inner>,
    path: PathBuf,
    owned: bool,
}

impl Drop for TempName {
    fn drop(&mut self) {
        if self.owned {
            // What stays is swept later.
            let _ = self.inner.disk.remove_file(&self.path);
        }
    }
}

impl TempName {
    /// Tries names until `make` finds a free one.
    fn claim<T>(
        inner: &Arc<Inner>,
        mut make: impl FnMut(&FilePath) -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = inner.root.join(TEMP);
        let process = std::process::id();
        for _ in 0..NAMES_TRIED {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{process:x}-{number:x}"));
            let made = match make(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    // The root first, so that what is made above it is known to be new.
                    inner.dirs.prepare(&*inner.disk, &inner.root)?;
                    inner.disk.create_dir_all(&dir)?;
                    make(&path)
                }
                made => made,
            };
            match made {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(made) => {
                    let name = Self {
                        inner: Arc::clone(inner),
                        path,
                        owned: true,
                    };
                    return Ok((name, made));
                }
            }
        }
        Err(io::Error::other("no free name for an unfinished file"))
    }

    fn publish(mut self, location: &Path, create: bool) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let published = inner.publish(&self.path, location, create);
        // A rename took the name away, and it may be another process's by now.
        self.owned = create || published.is_err();
        published
    }
}

/// A new file under a temporary name.
#[derive(Debug)]
pub(super) struct TempFile {
    name: TempName,
    pub(super) file: Arc<dyn DiskFile>,
}

impl TempFile {
    pub(super) fn create(inner: &Arc<Inner>, location: &Path) -> Result<Self> {
        let (name, file) = TempName::claim(inner, |path| inner.disk.create_new(path))
            .map_err(|e| write_error("creating an unfinished file", location, e))?;
        Ok(Self { name, file })
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &FilePath {
        &self.name.path
    }

    /// Gives the synced file its final name.
    pub(super) fn publish(self, location: &Path, create: bool) -> Result<()> {
        self.name.publish(location, create)
    }
}

/// Gives `source` the name `to` too, in place of what is there.
pub(super) fn link_over(inner: &Arc<Inner>, source: &FilePath, to: &Path) -> Result<()> {
    let (mut name, ()) = TempName::claim(inner, |path| inner.disk.link_new(source, path))
        .map_err(|e| write_error("linking", to, e))?;
    let published = inner.publish(&name.path, to, false);
    // A rename between two names of one file does nothing, and leaves this one.
    name.owned = true;
    published
}

/// Removes unfinished files last written before `older_than`.
pub(super) fn sweep(inner: &Arc<Inner>, older_than: SystemTime) -> Result<u64> {
    let dir = inner.root.join(TEMP);
    let entries = match inner.disk.read_dir(&dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(|e| write_error("listing", TEMP, e))?,
    };
    let mut removed = 0;
    for entry in entries.iter().filter(|e| !e.is_dir) {
        let path = dir.join(&entry.name);
        let swept = inner.disk.metadata(&path).and_then(|meta| {
            let old = meta.modified < older_than;
            if old {
                inner.disk.remove_file(&path)?;
            }
            Ok(u64::from(old))
        });
        match swept {
            // Its owner was quicker.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            swept => removed += swept.map_err(|e| write_error("sweeping", TEMP, e))?,
        }
    }
    Ok(removed)
}
