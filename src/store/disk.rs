//! The few file operations that durable objects need, behind a trait so that tests can cut the power
//! between any two of them (`sim::power`).

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

/// What a file system says about one file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// Bytes.
    pub size: u64,
    /// Time of the last write.
    pub modified: SystemTime,
    /// Number of the file in its file system; 0 where there is none.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: String,
    /// A directory, else a regular file.
    pub is_dir: bool,
}

/// An open file. It stays readable after its name is removed or given to another file.
pub trait DiskFile: Debug + Send + Sync {
    /// Writes `chunks` at the end.
    fn append(&self, chunks: &[Bytes]) -> io::Result<()>;
    /// Returns once the content has reached the medium.
    fn sync(&self) -> io::Result<()>;
    /// Size, time and number.
    fn metadata(&self) -> io::Result<FileMeta>;
    /// Exactly the bytes of `range`, or an error.
    fn read_at(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// A file system. All paths are absolute.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens a new empty file; `AlreadyExists` when the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives the file `from` the second name `to`; `AlreadyExists` when the name is taken.
    fn link_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Moves the name `from` to `to` and replaces what was there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes one directory; `AlreadyExists` when the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns once the names in the directory have reached the medium.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes the name of a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Size, time and number of a file or directory.
    fn metadata(&self, path: &Path) -> io::Result<FileMeta>;
    /// The files and directories of a directory, in any order. Everything else, symbolic links among
    /// it, is left out.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes a directory with its ancestors and returns those that were not there, outermost first.
    fn create_dir_all(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut missing = Vec::new();
        for dir in path.ancestors() {
            match self.create_dir(dir) {
                Ok(()) => {
                    missing.push(dir.to_path_buf());
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(dir.to_path_buf()),
                Err(e) if is_there(self, dir, &e) => break,
                Err(e) => return Err(e),
            }
        }
        missing.reverse();
        // Somebody else may be making the same ones meanwhile, and one of them may be ours already.
        for dir in &missing {
            match self.create_dir(dir) {
                Err(e) if !is_there(self, dir, &e) => return Err(e),
                _ => {}
            }
        }
        Ok(missing)
    }
}

/// Whether `create_dir` failed only because the directory is there. Read-only file systems say
/// `ReadOnlyFilesystem` and `/` says what it likes, so the directory itself is asked.
fn is_there<D: Disk + ?Sized>(disk: &D, dir: &Path, error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::NotFound && disk.metadata(dir).is_ok_and(|m| m.is_dir)
}

/// The file system of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct StdDisk;

/// The lock holds position and access together, which `seek` then `read` need.
#[derive(Debug)]
struct StdFile(Mutex<File>);

impl StdFile {
    fn with<T>(&self, work: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DiskFile for StdFile {
    fn append(&self, chunks: &[Bytes]) -> io::Result<()> {
        self.with(|file| {
            file.seek(SeekFrom::End(0))?;
            chunks.iter().try_for_each(|chunk| file.write_all(chunk))
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file| file.sync_all())
    }

    fn metadata(&self) -> io::Result<FileMeta> {
        self.with(|file| file_meta(&file.metadata()?))
    }

    fn read_at(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.with(|file| {
            let wanted = range.end.saturating_sub(range.start);
            // The range comes from a caller, the bound of the allocation from the file itself.
            let held = file.metadata()?.len().saturating_sub(range.start);
            if wanted > held {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let wanted = usize::try_from(wanted).map_err(io::Error::other)?;
            let mut bytes = vec![0; wanted];
            file.seek(SeekFrom::Start(range.start))?;
            file.read_exact(&mut bytes)?;
            Ok(bytes.into())
        })
    }
}

impl Disk for StdDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(StdFile(Mutex::new(file))))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(StdFile(Mutex::new(File::open(path)?))))
    }

    fn link_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Other systems cannot open directories; they journal names by themselves.
    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<FileMeta> {
        file_meta(&fs::metadata(path)?)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // A name that is not UTF-8 is no object's.
            if let Ok(name) = entry.file_name().into_string()
                && (kind.is_dir() || kind.is_file())
            {
                let is_dir = kind.is_dir();
                entries.push(DirEntry { name, is_dir });
            }
        }
        Ok(entries)
    }
}

fn file_meta(metadata: &fs::Metadata) -> io::Result<FileMeta> {
    Ok(FileMeta {
        size: metadata.len(),
        modified: metadata.modified()?,
        inode: inode(metadata),
        is_dir: metadata.is_dir(),
    })
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_metadata: &fs::Metadata) -> u64 {
    0
}
