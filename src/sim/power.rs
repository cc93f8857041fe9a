//! A disk in memory that knows what was synced, and what is left of it when the power goes.

mod files;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::{Rng, lock};
use crate::store::disk::FileMeta;

/// What becomes of everything that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// It happened to be written.
    Keep,
    /// It is gone: old names, old contents; files that were never synced are empty.
    Drop,
    /// Names are there, contents are zeros.
    Zero,
    /// Names are there, files are empty.
    Empty,
    /// Names are gone, contents are there.
    DropNames,
    /// Each name and each content for itself, by seed.
    Seeded(u64),
}

#[derive(Debug, Clone)]
enum Node {
    File {
        data: Vec<u8>,
        synced: Option<Vec<u8>>,
        modified: u64,
    },
    Dir {
        names: BTreeMap<String, u64>,
        synced: BTreeMap<String, u64>,
    },
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    ticks: u64,
    trace: Vec<String>,
    fail_once: BTreeMap<u64, ErrorKind>,
    cut_at: Option<u64>,
}

const ROOT: u64 = 1;

/// The disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

impl Default for SimDisk {
    fn default() -> Self {
        let root = Node::Dir {
            names: BTreeMap::new(),
            synced: BTreeMap::new(),
        };
        Self::of(BTreeMap::from([(ROOT, root)]), 0)
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn of(nodes: BTreeMap<u64, Node>, ticks: u64) -> Self {
        let next = nodes.keys().next_back().map_or(ROOT, |last| *last) + 1;
        Self(Arc::new(Mutex::new(State {
            nodes,
            next,
            ticks,
            trace: Vec::new(),
            fail_once: BTreeMap::new(),
            cut_at: None,
        })))
    }

    /// Number of operations so far; numbers of operations begin at 0.
    pub fn ops(&self) -> u64 {
        lock(&self.0).trace.len() as u64
    }

    /// The operations so far.
    pub fn trace(&self) -> Vec<String> {
        lock(&self.0).trace.clone()
    }

    /// Fails operation `op` and every later one, without effect: the process ends there.
    pub fn cut_at(&self, op: u64) {
        lock(&self.0).cut_at = Some(op);
    }

    /// Fails operation `op` alone, without effect.
    pub fn fail_once(&self, op: u64, kind: ErrorKind) {
        lock(&self.0).fail_once.insert(op, kind);
    }

    /// Lets operations work again after [`cut_at`](Self::cut_at): a process was killed, the system
    /// lives on with everything it had in memory.
    pub fn revive(&self) {
        lock(&self.0).cut_at = None;
    }

    /// Cuts the power and returns the disk as the next start finds it. This one fails from now on.
    pub fn power_cut(&self, cut: PowerCut) -> SimDisk {
        let mut state = lock(&self.0);
        state.cut_at = Some(0);
        let mut survival = Survival::new(cut);
        let nodes = state.nodes.iter().map(|(number, node)| {
            let left = match node {
                Node::File {
                    data,
                    synced,
                    modified,
                } => {
                    let left = survival.content(data, synced.as_deref());
                    Node::File {
                        synced: Some(left.clone()),
                        data: left,
                        modified: *modified,
                    }
                }
                Node::Dir { names, synced } => {
                    let left = survival.names(names, synced);
                    Node::Dir {
                        synced: left.clone(),
                        names: left,
                    }
                }
            };
            (*number, left)
        });
        Self::of(nodes.collect(), state.ticks)
    }

    /// Runs one counted operation, unless its time to fail has come.
    fn op<T>(
        &self,
        name: &str,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = lock(&self.0);
        let number = state.trace.len() as u64;
        if state.cut_at.is_some_and(|cut| number >= cut) {
            return Err(io::Error::other("the process has ended"));
        }
        state.trace.push(format!("{name} {}", path.display()));
        match state.fail_once.remove(&number) {
            Some(kind) => Err(kind.into()),
            None => work(&mut state),
        }
    }
}

/// Decides what an unsynced state becomes.
struct Survival {
    cut: PowerCut,
    rng: Rng,
}

impl Survival {
    fn new(cut: PowerCut) -> Self {
        let seed = match cut {
            PowerCut::Seeded(seed) => seed,
            _ => 0,
        };
        Self {
            cut,
            rng: Rng::new(seed),
        }
    }

    /// The rule for one name or one content.
    fn rule(&mut self) -> PowerCut {
        const RULES: [PowerCut; 5] = [
            PowerCut::Keep,
            PowerCut::Drop,
            PowerCut::Zero,
            PowerCut::Empty,
            PowerCut::DropNames,
        ];
        match self.cut {
            PowerCut::Seeded(_) => {
                let index = self.rng.below(RULES.len() as u64) as usize;
                RULES.get(index).copied().unwrap_or(PowerCut::Keep)
            }
            cut => cut,
        }
    }

    fn content(&mut self, data: &[u8], synced: Option<&[u8]>) -> Vec<u8> {
        if synced == Some(data) {
            return data.to_vec();
        }
        match self.rule() {
            PowerCut::Drop => synced.unwrap_or_default().to_vec(),
            PowerCut::Zero => vec![0; data.len()],
            PowerCut::Empty => Vec::new(),
            PowerCut::Keep | PowerCut::DropNames | PowerCut::Seeded(_) => data.to_vec(),
        }
    }

    fn names(
        &mut self,
        names: &BTreeMap<String, u64>,
        synced: &BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        let mut left = synced.clone();
        let both = names.keys().chain(synced.keys());
        for name in both.collect::<std::collections::BTreeSet<_>>() {
            if names.get(name) == synced.get(name)
                || matches!(self.rule(), PowerCut::Drop | PowerCut::DropNames)
            {
                continue;
            }
            match names.get(name) {
                Some(node) => left.insert(name.clone(), *node),
                None => left.remove(name),
            };
        }
        left
    }
}

impl State {
    fn names(&self, dir: u64) -> io::Result<&BTreeMap<String, u64>> {
        match self.nodes.get(&dir) {
            Some(Node::Dir { names, .. }) => Ok(names),
            Some(Node::File { .. }) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn names_mut(&mut self, dir: u64) -> io::Result<&mut BTreeMap<String, u64>> {
        match self.nodes.get_mut(&dir) {
            Some(Node::Dir { names, .. }) => Ok(names),
            Some(Node::File { .. }) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut at = ROOT;
        for component in path.components() {
            match component {
                Component::RootDir => at = ROOT,
                Component::Normal(name) => {
                    let name = name.to_str().ok_or(ErrorKind::InvalidFilename)?;
                    at = *self.names(at)?.get(name).ok_or(ErrorKind::NotFound)?;
                }
                _ => return Err(ErrorKind::InvalidInput.into()),
            }
        }
        Ok(at)
    }

    /// The directory of `path` and its name there.
    fn place(&self, path: &Path) -> io::Result<(u64, String)> {
        let parent = path.parent().ok_or(ErrorKind::AlreadyExists)?;
        let name = path.file_name().and_then(|n| n.to_str());
        let name = name.ok_or(ErrorKind::InvalidFilename)?;
        Ok((self.find(parent)?, name.to_owned()))
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<u64> {
        let number = self.next;
        self.name(path, number)?;
        self.next += 1;
        self.nodes.insert(number, node);
        Ok(number)
    }

    fn name(&mut self, path: &Path, number: u64) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let names = self.names_mut(dir)?;
        if names.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        names.insert(name, number);
        Ok(())
    }

    fn meta(&self, number: u64) -> io::Result<FileMeta> {
        let (size, ticks, is_dir) = match self.nodes.get(&number) {
            Some(Node::File { data, modified, .. }) => (data.len() as u64, *modified, false),
            Some(Node::Dir { .. }) => (0, 0, true),
            None => return Err(ErrorKind::NotFound.into()),
        };
        Ok(FileMeta {
            size,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(ticks),
            inode: number,
            is_dir,
        })
    }

    fn is_dir(&self, number: u64) -> bool {
        matches!(self.nodes.get(&number), Some(Node::Dir { .. }))
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}
