//! Which directories are known to be on the medium.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::TEMP;
use crate::store::disk::Disk;

/// Directories remembered; beyond that all are forgotten, which only costs syncs.
const REMEMBERED: usize = 65_536;

#[derive(Debug)]
pub(super) struct Directories {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Directories whose own names were synced by this process.
    durable: BTreeSet<PathBuf>,
    /// Directories with a new name whose sync failed.
    suspect: BTreeSet<PathBuf>,
}

/// Directories that are not known to be on the medium.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    dirs: Vec<PathBuf>,
    /// Directories to sync, and whether that must succeed.
    to_sync: Vec<(bool, PathBuf)>,
}

impl Directories {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `dir` and syncs whatever its existence rests on.
    pub(super) fn prepare(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let fresh = self.make(disk, dir, true)?;
        self.sync(disk, fresh)
    }

    /// Makes `dir`, and says what has to be synced before anything in it is durable.
    ///
    /// That another process made a directory does not mean that it lived to sync it: every ancestor
    /// that this process has not synced itself counts as new. The directory just before it in name
    /// order is synced too where `in_order`. A log that goes on in a new directory would otherwise outlive
    /// its last entry in the old one, which its writer may have linked but not synced yet.
    pub(super) fn make(&self, disk: &dyn Disk, dir: &Path, in_order: bool) -> io::Result<Fresh> {
        if self.state().durable.contains(dir) {
            return Ok(Fresh::default());
        }
        let made = disk.create_dir_all(dir)?;
        let fresh: Vec<&Path> = {
            let state = self.state();
            (dir.ancestors().filter(|a| !state.durable.contains(*a))).collect()
        };
        let mut to_sync = BTreeSet::new();
        for dir in &fresh {
            let Some(parent) = dir.parent() else { continue };
            to_sync.insert(parent.to_path_buf());
            if in_order && parent.starts_with(&self.root) {
                to_sync.extend(sibling_before(disk, dir)?);
            }
        }
        let ours = |dir: &Path| {
            let made = || made.iter().any(|made| made.parent() == Some(dir));
            dir.starts_with(&self.root) || made()
        };
        Ok(Fresh {
            dirs: fresh.into_iter().map(Path::to_path_buf).collect(),
            // Above the root a sync is a precaution, and may be forbidden.
            to_sync: to_sync.into_iter().map(|dir| (ours(&dir), dir)).collect(),
        })
    }

    /// Syncs what new directories rest on.
    pub(super) fn sync(&self, disk: &dyn Disk, fresh: Fresh) -> io::Result<()> {
        for (ours, dir) in &fresh.to_sync {
            match disk.sync_dir(dir) {
                Err(e) if *ours => return Err(e),
                _ => {}
            }
        }
        let mut state = self.state();
        if state.durable.len() + fresh.dirs.len() > REMEMBERED {
            state.durable.clear();
        }
        state.durable.extend(fresh.dirs);
        Ok(())
    }

    /// Forgets what is known, after a directory turned out to be gone.
    pub(super) fn forget(&self) {
        self.state().durable.clear();
    }

    /// Syncs the names in `dir` after one was added.
    pub(super) fn publish(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let synced = disk.sync_dir(dir);
        if synced.is_err() {
            self.state().suspect.insert(dir.to_path_buf());
        }
        synced
    }

    /// Syncs `dir` before something in it is read, if an earlier sync of it failed. The writer of that
    /// failed put may now read its object back, see its own bytes and conclude that it is stored.
    pub(super) fn settle(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        if !self.state().suspect.contains(dir) {
            return Ok(());
        }
        disk.sync_dir(dir)?;
        self.state().suspect.remove(dir);
        Ok(())
    }
}

fn sibling_before(disk: &dyn Disk, dir: &Path) -> io::Result<Option<PathBuf>> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name().and_then(|n| n.to_str()))
    else {
        return Ok(None);
    };
    let before = disk
        .read_dir(parent)?
        .into_iter()
        .filter(|e| e.is_dir && e.name != TEMP && e.name.as_str() < name)
        .max_by(|a, b| a.name.cmp(&b.name));
    Ok(before.map(|e| parent.join(e.name)))
}
