//! The operations of the simulated disk.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{Node, SimDisk, State};
use crate::store::disk::{DirEntry, Disk, DiskFile, FileMeta};

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.op("create", path, |state| {
            let modified = state.tick();
            let file = Node::File {
                data: Vec::new(),
                synced: None,
                modified,
            };
            state.add(path, file)
        })?;
        Ok(self.file(number))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.op("open", path, |state| state.find(path))?;
        Ok(self.file(number))
    }

    fn link_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op("link", to, |state| {
            let number = state.find(from)?;
            state.name(to, number)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op("rename", to, |state| {
            let number = state.find(from)?;
            let (dir, name) = state.place(to)?;
            let replaced = state.names(dir)?.get(&name).copied();
            if replaced == Some(number) {
                // POSIX: two names of one file stay as they are.
                return Ok(());
            }
            if replaced.is_some_and(|r| state.is_dir(r)) {
                return Err(ErrorKind::IsADirectory.into());
            }
            state.names_mut(dir)?.insert(name, number);
            let (dir, name) = state.place(from)?;
            state.names_mut(dir)?.remove(&name);
            Ok(())
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.op("mkdir", path, |state| {
            let dir = Node::Dir {
                names: BTreeMap::new(),
                synced: BTreeMap::new(),
            };
            state.add(path, dir).map(drop)
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.op("syncdir", path, |state| {
            let number = state.find(path)?;
            match state.nodes.get_mut(&number) {
                Some(Node::Dir { names, synced }) => *synced = names.clone(),
                _ => return Err(ErrorKind::NotADirectory.into()),
            }
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.op("remove", path, |state| {
            let (dir, name) = state.place(path)?;
            let number = state.find(path)?;
            if state.is_dir(number) {
                return Err(ErrorKind::IsADirectory.into());
            }
            state.names_mut(dir)?.remove(&name);
            Ok(())
        })
    }

    fn metadata(&self, path: &Path) -> io::Result<FileMeta> {
        self.op("stat", path, |state| state.meta(state.find(path)?))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.op("readdir", path, |state| {
            let names = state.names(state.find(path)?)?;
            let entries = names.iter().map(|(name, number)| DirEntry {
                name: name.clone(),
                is_dir: state.is_dir(*number),
            });
            // The reverse of name order, because no one may rely on an order.
            Ok(entries.rev().collect())
        })
    }
}

impl SimDisk {
    fn file(&self, number: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimFile {
            disk: self.clone(),
            number,
        })
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    number: u64,
}

impl DiskFile for SimFile {
    fn append(&self, chunks: &[Bytes]) -> io::Result<()> {
        self.op("append", |state, number| {
            let now = state.tick();
            match state.nodes.get_mut(&number) {
                Some(Node::File { data, modified, .. }) => {
                    chunks
                        .iter()
                        .for_each(|chunk| data.extend_from_slice(chunk));
                    *modified = now;
                    Ok(())
                }
                _ => Err(ErrorKind::IsADirectory.into()),
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.op("sync", |state, number| {
            if let Some(Node::File { data, synced, .. }) = state.nodes.get_mut(&number) {
                *synced = Some(data.clone());
            }
            Ok(())
        })
    }

    fn metadata(&self) -> io::Result<FileMeta> {
        self.op("fstat", |state, number| state.meta(number))
    }

    fn read_at(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.op("read", |state, number| {
            let Some(Node::File { data, .. }) = state.nodes.get(&number) else {
                return Err(ErrorKind::IsADirectory.into());
            };
            let bound = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let part = data.get(bound(range.start)..bound(range.end));
            let part = part.ok_or(ErrorKind::UnexpectedEof)?;
            Ok(Bytes::copy_from_slice(part))
        })
    }
}

impl SimFile {
    fn op<T>(
        &self,
        name: &str,
        work: impl FnOnce(&mut State, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let place = PathBuf::from(format!("#{}", self.number));
        let number = self.number;
        self.disk.op(name, &place, |state| work(state, number))
    }
}
