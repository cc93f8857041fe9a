//! Objects as local files that survive a power cut: an answered put is on the medium, and an object
//! is there completely or not at all.
//!
//! A put writes a file under `.tmp`, syncs it, gives it its final name (create: a hard link, which
//! fails when the name is taken; overwrite: a rename) and syncs the directory. Where an overwrite finds
//! nothing to replace, content and name are synced together: a power cut before the answer may leave the
//! name with other content, which nobody was told to be there. Readers of this process and of others see
//! whole objects all the same. `object_store`'s own
//! local store syncs nothing. Directories are never removed. Deletes are not synced: a deleted object
//! may come back after a power cut, where the next sweep finds it again.

mod dirs;
mod errors;
mod read;
mod temp;
mod upload;
mod walk;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::disk::{Disk, FileMeta, StdDisk};
use dirs::Directories;
use errors::{generic, name_error, not_implemented, store_error, write_error};
use read::put_result;
use temp::TempFile;
use upload::LocalUpload;
use walk::Walk;

const STORE: &str = "LocalStore";
/// Directory of unfinished files, directly under the root.
const TEMP: &str = ".tmp";
/// Objects that one step of a list reads.
const LIST_CHUNK: usize = 1024;

/// Where file operations run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// On the calling thread: for simulations, where every step must be repeatable.
    Inline,
    /// On tokio's blocking pool; on the calling thread where there is no runtime.
    Pool,
}

/// An object store on a directory of a [`Disk`].
#[derive(Debug, Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    blocking: Blocking,
    dirs: Directories,
}

/// The synced bytes of an object without a name; they go when this is dropped.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    temp: TempFile,
    meta: FileMeta,
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.inner.root.display())
    }
}

impl LocalStore {
    /// A store on the directory `root` of the operating system's files. Touches nothing before the
    /// first call; the first put makes the directory.
    pub fn new(root: impl AsRef<FilePath>) -> io::Result<Self> {
        Self::on(Arc::new(StdDisk), root, Blocking::Pool)
    }

    /// A store on the directory `root` of `disk`.
    pub fn on(
        disk: Arc<dyn Disk>,
        root: impl AsRef<FilePath>,
        blocking: Blocking,
    ) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        Ok(Self {
            inner: Arc::new(Inner {
                disk,
                dirs: Directories::new(root.clone()),
                root,
                blocking,
            }),
        })
    }

    /// The directory of the store.
    pub fn root(&self) -> &FilePath {
        &self.inner.root
    }

    /// Removes files of unfinished puts that were last written before `older_than`, and returns their
    /// number. A put or upload that is still running but older loses its file and fails.
    pub async fn sweep_temp(&self, older_than: SystemTime) -> Result<u64> {
        self.run(move |inner| temp::sweep(inner, older_than)).await
    }

    /// Writes and syncs the bytes of an object that will be created, so that only its name is left to do.
    pub(crate) async fn ready(&self, location: &Path, bytes: Bytes) -> Result<ReadyFile> {
        let location = location.clone();
        self.run(move |inner| inner.ready(&location, &[bytes]))
            .await
    }

    /// Creates the object whose bytes are ready; `AlreadyExists` when the name is taken.
    pub(crate) async fn create(&self, location: &Path, ready: ReadyFile) -> Result<PutResult> {
        let location = location.clone();
        self.run(move |inner| inner.create(&location, ready)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Inner>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run(Arc::clone(&self.inner), work).await
    }

    fn walk(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        // A list that has ended takes no further step: each is a change of threads.
        let walk = Some(Walk::new(prefix, offset));
        stream::try_unfold((walk, inner), |(walk, inner)| async move {
            let Some(mut walk) = walk else {
                return Ok(None);
            };
            let (batch, walk) = run(Arc::clone(&inner), move |inner| {
                let batch = walk.next_batch(inner, LIST_CHUNK)?;
                Ok((batch, (!walk.is_done()).then_some(walk)))
            })
            .await?;
            let items = stream::iter(batch.into_iter().map(Ok));
            Ok::<_, Error>(Some((items, (walk, inner))))
        })
        .try_flatten()
        .boxed()
    }
}

/// Runs file operations where the store's [`Blocking`] says.
async fn run<T: Send + 'static>(
    inner: Arc<Inner>,
    work: impl FnOnce(&Arc<Inner>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let runtime = tokio::runtime::Handle::try_current();
    match (inner.blocking, runtime) {
        (Blocking::Pool, Ok(runtime)) => runtime.spawn_blocking(move || work(&inner)).await?,
        _ => work(&inner),
    }
}

impl Inner {
    /// The file of an object. `Path` refuses `..` and separators; a name that would leave the root or
    /// meet an unfinished file is refused once more here.
    fn file_of(&self, location: &Path) -> Result<PathBuf> {
        let mut file = self.root.clone();
        for (index, part) in location.parts().enumerate() {
            let name = part.as_ref();
            let mut components = FilePath::new(name).components();
            let plain = matches!(components.next(), Some(Component::Normal(c)) if c == name)
                && components.next().is_none();
            if !plain || (index == 0 && name == TEMP) {
                return Err(generic(format!("{location} is not the name of an object")));
            }
            file.push(name);
        }
        if location.is_root() {
            return Err(generic("the empty name is not the name of an object"));
        }
        Ok(file)
    }

    /// Gives the synced file `temp` its final name and makes the name durable.
    fn publish(&self, temp: &FilePath, location: &Path, create: bool) -> Result<()> {
        let target = self.file_of(location)?;
        let dir = target.parent().unwrap_or(&self.root);
        let mut retry = true;
        loop {
            (self.dirs.prepare(&*self.disk, dir))
                .map_err(|e| write_error("making the directory", location, e))?;
            let named = if create {
                self.disk.link_new(temp, &target)
            } else {
                self.disk.rename(temp, &target)
            };
            match named {
                Ok(()) => break,
                // Somebody removed an empty directory that this process had seen.
                Err(e) if retry && e.kind() == io::ErrorKind::NotFound => {
                    self.dirs.forget();
                    retry = false;
                }
                Err(source) => return Err(name_error(location, source)),
            }
        }
        (self.dirs.publish(&*self.disk, dir))
            .map_err(|e| write_error("syncing the directory", location, e))
    }

    fn put(
        self: &Arc<Self>,
        location: &Path,
        data: &PutPayload,
        create: bool,
    ) -> Result<PutResult> {
        let chunks: Vec<Bytes> = data.iter().cloned().collect();
        if create {
            let ready = self.ready(location, &chunks)?;
            return self.create(location, ready);
        }
        let (temp, meta) = self.write(location, &chunks)?;
        if !self.publish_new(&temp, location)? {
            (temp.file.sync()).map_err(|e| write_error("syncing", location, e))?;
            temp.publish(location, false)?;
        }
        Ok(put_result(&meta))
    }

    /// A file that is not synced.
    fn write(self: &Arc<Self>, location: &Path, chunks: &[Bytes]) -> Result<(TempFile, FileMeta)> {
        self.file_of(location)?;
        let temp = TempFile::create(self, location)?;
        let meta = temp.file.append(chunks).and_then(|()| temp.file.metadata());
        let meta = meta.map_err(|e| write_error("writing", location, e))?;
        Ok((temp, meta))
    }

    /// A synced file that waits for its name.
    fn ready(self: &Arc<Self>, location: &Path, chunks: &[Bytes]) -> Result<ReadyFile> {
        self.file_of(location)?;
        let temp = TempFile::create(self, location)?;
        let meta = (temp.file.append(chunks))
            .and_then(|()| temp.file.sync())
            .and_then(|()| temp.file.metadata())
            .map_err(|e| write_error("writing", location, e))?;
        Ok(ReadyFile { temp, meta })
    }

    /// Gives a synced file a name that must be free.
    fn create(&self, location: &Path, ready: ReadyFile) -> Result<PutResult> {
        ready.temp.publish(location, true)?;
        Ok(put_result(&ready.meta))
    }

    /// Gives an unsynced file a free name and syncs both together; false if the name is taken.
    fn publish_new(&self, temp: &TempFile, location: &Path) -> Result<bool> {
        let target = self.file_of(location)?;
        let dir = target.parent().unwrap_or(&self.root);
        let mut retry = true;
        let fresh = loop {
            let fresh = (self.dirs.make(&*self.disk, dir, false))
                .map_err(|e| write_error("making the directory", location, e))?;
            match self.disk.link_new(temp.path(), &target) {
                Ok(()) => break fresh,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                // Somebody removed an empty directory that this process had seen.
                Err(e) if retry && e.kind() == io::ErrorKind::NotFound => {
                    self.dirs.forget();
                    retry = false;
                }
                Err(source) => return Err(name_error(location, source)),
            }
        };
        let names = || {
            (self.dirs.sync(&*self.disk, fresh))
                .and_then(|()| self.dirs.publish(&*self.disk, dir))
                .map_err(|e| write_error("syncing the directory", location, e))
        };
        let content = || {
            let synced = temp.file.sync();
            synced.map_err(|e| write_error("syncing", location, e))
        };
        match self.blocking {
            Blocking::Inline => content().and_then(|()| names())?,
            // Both wait for the same step of the medium.
            Blocking::Pool => std::thread::scope(|scope| {
                let content = scope.spawn(content);
                let named = names();
                let synced = content.join();
                synced.unwrap_or_else(|_| Err(generic("a sync did not end")))?;
                named
            })?,
        }
        Ok(true)
    }

    fn delete(&self, location: &Path) -> Result<()> {
        let path = self.file_of(location)?;
        (self.disk.remove_file(&path)).map_err(|e| store_error("deleting", location, e))
    }

    fn copy(self: &Arc<Self>, from: &Path, to: &Path, create: bool) -> Result<()> {
        // A second name for the same file is a copy, because files are never changed in place.
        let source = self.file_of(from)?;
        self.file_of(to)?;
        self.open(from)?;
        if create {
            return self.publish(&source, to, true);
        }
        temp::link_over(self, &source, to)
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if !opts.attributes.is_empty() {
            return Err(not_implemented("`put_opts` with attributes"));
        }
        let create = match opts.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return Err(not_implemented("`put_opts` with `PutMode::Update`")),
        };
        let location = location.clone();
        self.run(move |inner| inner.put(&location, &payload, create))
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !opts.attributes.is_empty() {
            return Err(not_implemented("`put_multipart_opts` with attributes"));
        }
        let location = location.clone();
        let upload = self.run(move |inner| LocalUpload::begin(inner, location));
        Ok(Box::new(upload.await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let location = location.clone();
        self.run(move |inner| inner.get(&location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (location, ranges) = (location.clone(), ranges.to_vec());
        self.run(move |inner| inner.get_ranges(&location, &ranges))
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        locations
            .and_then(move |location| {
                run(Arc::clone(&inner), move |inner| {
                    inner.delete(&location).map(|()| location)
                })
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        self.run(move |inner| walk::list_level(inner, &prefix))
            .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        let create = options.mode == CopyMode::Create;
        self.run(move |inner| inner.copy(&from, &to, create)).await
    }
}
