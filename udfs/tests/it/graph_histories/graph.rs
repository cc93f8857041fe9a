//! Commits, branches and pins of a graph: what is there, and what a verb makes of it.

use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use super::three_way::{self, Conflict};

/// A state that some branch had. Commits are known by their place among all of them, so an ancestor is
/// always before its descendants.
#[derive(Debug, Clone)]
pub struct Commit {
    pub id: String,
    /// Catalog version.
    pub version: u64,
    /// Unlike the name of a branch, never given twice.
    pub branch: u64,
    pub parents: Vec<usize>,
    pub state: State,
    /// Whether nothing is left to optimise.
    pub is_optimal: bool,
}

#[derive(Debug, Clone)]
pub struct Branch {
    pub uid: u64,
    /// Its own commits, oldest first.
    pub all: Vec<usize>,
    pub retained: BTreeSet<usize>,
    /// The commit that it was made from.
    fork: Option<usize>,
}

impl Branch {
    pub fn head(&self) -> usize {
        self.all[self.all.len() - 1]
    }
}

#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub commits: Vec<Commit>,
    pub branches: BTreeMap<String, Branch>,
    /// Branch and commit by the name of the pin.
    pub pins: BTreeMap<String, (u64, usize)>,
    uids: u64,
}

/// Which states expire.
#[derive(Debug, Clone)]
pub enum Before {
    Version(u64),
    Commit(String),
}

/// How a merge comes about, and what it makes; or its conflicts.
pub type Merged = Result<(&'static str, State), BTreeSet<Conflict>>;

type Code = &'static str;

impl Graph {
    pub fn branch(&self, name: &str) -> Result<&Branch, Code> {
        self.branches.get(name).ok_or("NotFound")
    }

    /// The retained commit of this id in any branch.
    pub fn commit_of(&self, id: &str) -> Option<usize> {
        let mut retained = self.branches.values().flat_map(|b| &b.retained);
        retained.find(|at| self.commits[**at].id == id).copied()
    }

    /// What a branch was at a catalog version, if it and what came next is retained: without the latter
    /// nobody knows for how long it was.
    pub fn at_version(&self, branch: &Branch, version: u64) -> Result<usize, Code> {
        let made_by = |at: &&usize| self.commits[**at].version <= version;
        let place = branch.all.iter().take_while(made_by).count();
        let at = *place
            .checked_sub(1)
            .and_then(|p| branch.all.get(p))
            .ok_or("VersionUnavailable")?;
        let next_is_known = branch
            .all
            .get(place)
            .is_none_or(|next| branch.retained.contains(next));
        let is_known = next_is_known || self.commits[at].version == version;
        match is_known && branch.retained.contains(&at) {
            true => Ok(at),
            false => Err("VersionUnavailable"),
        }
    }

    /// A commit on a branch, or the first one of a new branch.
    pub fn commit(
        &mut self,
        name: &str,
        id: String,
        version: u64,
        parents: Vec<usize>,
        state: State,
    ) {
        let at = self.commits.len();
        if !self.branches.contains_key(name) {
            let branch = Branch {
                uid: self.uids,
                all: Vec::new(),
                retained: BTreeSet::new(),
                fork: parents.first().copied(),
            };
            self.uids += 1;
            self.branches.insert(name.to_owned(), branch);
        }
        let branch = self.branches.get_mut(name).unwrap();
        branch.all.push(at);
        branch.retained.insert(at);
        self.commits.push(Commit {
            id,
            version,
            branch: branch.uid,
            parents,
            state,
            is_optimal: false,
        });
    }

    /// A commit and all that it descends from.
    fn lineage(&self, of: usize) -> BTreeSet<usize> {
        let (mut all, mut open) = (BTreeSet::new(), vec![of]);
        while let Some(at) = open.pop() {
            if all.insert(at) {
                open.extend(&self.commits[at].parents);
            }
        }
        all
    }

    /// Whether a branch can be deleted.
    pub fn deletable(&self, name: &str) -> Result<(), Code> {
        let branch = self.branch(name)?;
        let is_child = |b: &Branch| {
            b.fork
                .is_some_and(|at| self.commits[at].branch == branch.uid)
        };
        if name == "main" || self.branches.values().any(is_child) {
            return Err("BranchProtected");
        }
        match self.pins.values().any(|(uid, _)| *uid == branch.uid) {
            true => Err("Pinned"),
            false => Ok(()),
        }
    }

    /// What a merge leads to, or why there is none.
    pub fn merged(&self, from: &str, into: &str, delete: bool) -> Result<Merged, Code> {
        let (source, target) = (self.branch(from)?.head(), self.branch(into)?.head());
        if from == into {
            return Err("InvalidArgument");
        }
        if delete {
            self.deletable(from)?;
        }
        let common = &self.lineage(source) & &self.lineage(target);
        let base = *common.last().unwrap();
        let state = |at: usize| &self.commits[at].state;
        Ok(match base {
            base if base == source => Ok(("already_up_to_date", state(target).clone())),
            base if base == target => Ok(("fast_forward", state(source).clone())),
            base => three_way::merge(state(base), state(source), state(target))
                .map(|merged| ("merged", merged)),
        })
    }

    /// Forgets older states of a branch; how many.
    pub fn expire(&mut self, name: &str, before: &Before) -> Result<usize, Code> {
        let branch = self.branch(name)?;
        let mut newest_first = branch.retained.iter().rev().copied();
        let first = match before {
            Before::Version(v) => newest_first.find(|at| self.commits[*at].version <= *v),
            Before::Commit(id) => Some(
                newest_first
                    .find(|at| self.commits[*at].id == *id)
                    .ok_or("NotFound")?,
            ),
        };
        let mut stays: BTreeSet<usize> = BTreeSet::from([branch.head()]);
        stays.extend(self.pins.values().map(|(_, at)| *at));
        for other in self.branches.values().filter(|b| b.uid != branch.uid) {
            stays.extend(other.fork);
            let lineage = self.lineage(other.head());
            let mut newest_first = lineage.into_iter().rev();
            stays.extend(newest_first.find(|at| self.commits[*at].branch == branch.uid));
        }
        let branch = self.branches.get_mut(name).unwrap();
        let before = branch.retained.len();
        branch
            .retained
            .retain(|at| *at >= first.unwrap_or(0) || stays.contains(at));
        Ok(before - branch.retained.len())
    }
}
