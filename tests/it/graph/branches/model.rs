//! Random histories of branches against a model in memory, with crashes between any two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::branch::branches;
use stratagraph::catalog::graph::At;
use stratagraph::graph::conflict::ConflictKind;
use stratagraph::publish::branch::create_branch;
use stratagraph::publish::merge::MergeKind;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Rng};
use stratagraph::{Error, Result};

use super::expire_request;
use super::three_way::{self, Conflict};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, change, content, create, delete, fork, fork_of, merge, merge_of, name,
    optimize, state,
};
use crate::sweep::crash::block_on;

const STEPS: u64 = 15;
const FAULTS: [Fault; 5] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
];

#[derive(Debug, Clone, PartialEq)]
struct Branch {
    /// Unlike a name, never given twice.
    id: u64,
    versions: BTreeMap<u64, Content>,
    /// The branch and the version that it was made from.
    fork: Option<(u64, u64)>,
    /// Newest versions of other branches that it descends from.
    ancestry: BTreeMap<u64, u64>,
}

impl Branch {
    fn head(&self) -> u64 {
        self.versions.keys().next_back().copied().unwrap_or(0)
    }

    fn content(&self) -> &Content {
        &self.versions[&self.head()]
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    branches: BTreeMap<String, Branch>,
    next_id: u64,
    /// All versions that ever were, by branch id and version, in the order of their numbers.
    archive: BTreeMap<(u64, u64), (usize, Content)>,
}

#[derive(Debug, Clone)]
enum Op {
    Change(String, Change),
    Fork(String, String),
    /// From the retained version at this place.
    ForkOlder(String, String, usize),
    Delete(String),
    /// Source, target, whether the source is deleted.
    Merge(String, String, bool),
    Expire(String, u64),
    /// A version with the same content, if there is anything to win.
    Optimize(String),
    Collect,
}

/// What an operation leads to: the next model, or the code of its error.
type Expected = Result<Model, &'static str>;

/// What a merge leads to: how and what content, or its conflicts.
type Merged = Result<(MergeKind, Content), BTreeSet<Conflict>>;

impl Model {
    fn created() -> Self {
        let main = Branch {
            id: 0,
            versions: BTreeMap::from([(0, Content::default())]),
            fork: None,
            ancestry: BTreeMap::new(),
        };
        Self {
            branches: BTreeMap::from([("main".to_owned(), main)]),
            next_id: 1,
            archive: BTreeMap::from([((0, 0), (0, Content::default()))]),
        }
    }

    /// Files the heads of branches.
    fn filed(mut self) -> Self {
        for branch in self.branches.values() {
            let (place, key) = (self.archive.len(), (branch.id, branch.head()));
            let head = || (place, branch.content().clone());
            self.archive.entry(key).or_insert_with(head);
        }
        self
    }

    fn merged(&self, source: &Branch, target: &Branch) -> Merged {
        let lineage = |b: &Branch| {
            let mut all = b.ancestry.clone();
            all.insert(b.id, b.head());
            all
        };
        let (a, b) = (lineage(source), lineage(target));
        let common = a
            .iter()
            .filter_map(|(id, v)| Some((*id, *b.get(id)?.min(v))));
        let base = common.max_by_key(|key| self.archive[key].0).unwrap();
        if base == (source.id, source.head()) {
            return Ok((MergeKind::AlreadyUpToDate, target.content().clone()));
        }
        if base == (target.id, target.head()) {
            return Ok((MergeKind::FastForward, source.content().clone()));
        }
        let base = &self.archive[&base].1;
        let content = three_way::merge(base, source.content(), target.content())?;
        Ok((MergeKind::Merged, content))
    }

    fn merge(&self, from: &str, into: &str, delete: bool) -> Expected {
        let (source, target) = (self.branches.get(from), self.branches.get(into));
        let (source, target) = source.zip(target).ok_or("NotFound")?;
        if from == into {
            return Err("InvalidArgument");
        }
        let child = |b: &Branch| b.fork.is_some_and(|(of, _)| of == source.id);
        if delete && (from == "main" || self.branches.values().any(child)) {
            return Err("BranchProtected");
        }
        let (kind, content) = self.merged(source, target).map_err(|_| "MergeConflicts")?;
        let mut next = self.clone();
        if kind != MergeKind::AlreadyUpToDate {
            let mut merged = target.clone();
            let version = target.head().max(source.head()) + 1;
            merged.versions.insert(version, content);
            let theirs = source.ancestry.iter().map(|(id, v)| (*id, *v));
            for (id, version) in theirs.chain([(source.id, source.head())]) {
                let known = merged.ancestry.entry(id).or_insert(version);
                *known = version.max(*known);
            }
            merged.ancestry.remove(&target.id);
            next.branches.insert(into.to_owned(), merged);
        }
        if delete {
            next.branches.remove(from);
        }
        Ok(next)
    }

    fn fork(&self, new: &str, from: &str, version: Option<u64>) -> Expected {
        let Some(source) = self.branches.get(from) else {
            return Err("NotFound");
        };
        if self.branches.contains_key(new) {
            return Err("AlreadyExists");
        }
        let version = version.unwrap_or(source.head());
        let mut ancestry = source.ancestry.clone();
        ancestry.insert(source.id, version);
        let content = source.versions[&version].clone();
        let branch = Branch {
            id: self.next_id,
            versions: BTreeMap::from([(version + 1, content)]),
            fork: Some((source.id, version)),
            ancestry,
        };
        let mut next = self.clone();
        next.next_id += 1;
        next.branches.insert(new.to_owned(), branch);
        Ok(next)
    }

    fn expire(&self, branch: &str, before: u64) -> Expected {
        let mut next = self.clone();
        let Some(expired) = next.branches.get_mut(branch) else {
            return Err("NotFound");
        };
        let (id, head) = (expired.id, expired.head());
        let others = self.branches.values();
        let shared: BTreeSet<u64> = others
            .flat_map(|b| {
                let fork = b.fork.filter(|(of, _)| *of == id).map(|(_, v)| v);
                fork.into_iter().chain(b.ancestry.get(&id).copied())
            })
            .collect();
        let stays = |v: &u64| *v >= before || *v == head || shared.contains(v);
        expired.versions.retain(|v, _| stays(v));
        Ok(next)
    }

    fn after(&self, op: &Op) -> Expected {
        let mut next = self.clone();
        match op {
            Op::Change(name, change) => {
                let Some(branch) = next.branches.get_mut(name) else {
                    return Err("NotFound");
                };
                let (version, content) = (branch.head() + 1, change.on(branch.content()));
                branch.versions.insert(version, content);
            }
            Op::Fork(new, from) => return self.fork(new, from, None),
            Op::ForkOlder(new, from, at) => {
                let Some(source) = self.branches.get(from) else {
                    return Err("NotFound");
                };
                return self.fork(new, from, source.versions.keys().nth(*at).copied());
            }
            Op::Delete(name) => {
                let Some(gone) = next.branches.remove(name) else {
                    return Err("NotFound");
                };
                let mut others = next.branches.values();
                let child = |b: &Branch| b.fork.is_some_and(|(of, _)| of == gone.id);
                if name == "main" || others.any(child) {
                    return Err("BranchProtected");
                }
            }
            Op::Merge(from, into, delete) => return self.merge(from, into, *delete),
            Op::Expire(name, before) => return self.expire(name, *before),
            Op::Optimize(name) => {
                let Some(branch) = next.branches.get_mut(name) else {
                    return Err("NotFound");
                };
                let (version, content) = (branch.head() + 1, branch.content().clone());
                branch.versions.insert(version, content);
            }
            Op::Collect => {}
        }
        Ok(next)
    }
}

impl Op {
    fn choose(rng: &mut Rng, model: &Model, step: u64) -> Self {
        match step {
            0 => return Self::Change("main".to_owned(), some_change(rng)),
            1 => return Self::Fork("a".to_owned(), "main".to_owned()),
            _ => {}
        }
        let names = ["main", "a", "b/1", "b/2"];
        let there: Vec<&String> = model.branches.keys().collect();
        // Mostly branches that are there.
        let pick = |rng: &mut Rng| match rng.below(4) {
            0 => names[rng.below(4) as usize].to_owned(),
            _ => there[rng.below(there.len() as u64) as usize].clone(),
        };
        let (one, other) = (pick(rng), pick(rng));
        let known = model.branches.get(&one);
        let versions = known.map_or(1, |b| b.versions.len() as u64);
        match rng.below(21) {
            0..=6 => Self::Change(one, some_change(rng)),
            7 | 8 => Self::Fork(other, one),
            9 => Self::ForkOlder(other, one, rng.below(versions) as usize),
            10 => Self::Delete(one),
            11..=14 => Self::Merge(one, other, rng.below(4) == 0),
            18..=20 => Self::Optimize(one),
            15 | 16 => Self::Expire(one, rng.below(known.map_or(1, Branch::head) + 2)),
            _ => Self::Collect,
        }
    }

    async fn run(&self, catalog: &Arc<Catalog>) -> Result<()> {
        match self {
            Self::Change(branch, of) => change(catalog, branch, of).await.map(drop),
            Self::Fork(new, from) => fork(catalog, new, from).await.map(drop),
            Self::ForkOlder(new, from, at) => {
                let source = state(catalog, from, &At::Head).await?;
                let history = &source.current.history;
                let history = history.walk(catalog.store(), &mut |_| {}).await?;
                let commits = history.iter().map(|e| e.commit_id.clone());
                let at = commits.chain([source.commit_id().to_owned()]).nth(*at);
                let at = At::Commit(at.unwrap());
                let stage = catalog.begin().await?;
                let made = create_branch(catalog, stage, fork_of(new, from, at)).await;
                made.map(drop)
            }
            Self::Delete(branch) => delete(catalog, branch).await.map(drop),
            Self::Merge(from, into, delete) => {
                let mut request = merge_of(from, into);
                request.delete_source = *delete;
                merge(catalog, request).await.map(drop)
            }
            Self::Expire(branch, before) => {
                let request = expire_request(branch, *before);
                catalog.expire(request).await.map(drop)
            }
            Self::Optimize(branch) => optimize(catalog, branch).await.map(drop),
            Self::Collect => catalog.collect_garbage(0, false).await.map(drop),
        }
    }
}

pub fn some_change(rng: &mut Rng) -> Change {
    let mut change = Change::default();
    let person = |rng: &mut Rng| format!("p{}", rng.below(4));
    for _ in 0..1 + rng.below(4) {
        let (a, b, n) = (person(rng), person(rng), rng.below(4) as i64);
        let edge = format!("k{}", rng.below(8));
        change = match rng.below(7) {
            0 => change.without(&a),
            1 => change.unknown(&edge),
            2..=4 => change.person(&a, n),
            _ => change.person(&a, n).person(&b, n).knows(&edge, &a, &b, n),
        };
    }
    change
}

/// All versions of all branches.
type All = BTreeMap<String, BTreeMap<u64, Content>>;

/// What a store holds, as a new process sees it.
async fn all(store: Arc<dyn ObjectStore>, seed: u64) -> Result<All> {
    let catalog = process(store, seed);
    let head = catalog.look().await?;
    let mut all = All::new();
    for branch in branches(catalog.store(), &head, &name("g")).await? {
        let branch = branch.name.to_string();
        let now = state(&catalog, &branch, &At::Head).await?;
        let history = &now.current.history;
        let mut versions = BTreeMap::from([(now.manifest.version, content(&catalog, &now).await?)]);
        for entry in history.walk(catalog.store(), &mut |_| {}).await? {
            let old = state(&catalog, &branch, &At::Commit(entry.commit_id)).await?;
            versions.insert(entry.version, content(&catalog, &old).await?);
        }
        all.insert(branch, versions);
    }
    Ok(all)
}

fn versions(model: &Model) -> All {
    let branches = model.branches.iter();
    branches
        .map(|(n, b)| (n.clone(), b.versions.clone()))
        .collect()
}

/// A dry run says how a merge would go, or which conflicts it has.
async fn tell(catalog: &Arc<Catalog>, model: &Model, (from, into): (&str, &str), what: &str) {
    let (source, target) = (model.branches.get(from), model.branches.get(into));
    let Some((source, target)) = source.zip(target).filter(|_| from != into) else {
        return;
    };
    let mut request = merge_of(from, into);
    request.dry_run = true;
    let found = match merge(catalog, request).await {
        // The process began before a collection of another one.
        Err(Error::WriterFenced { .. }) => return,
        found => found.unwrap(),
    };
    let conflicts = found.conflicts.0.into_iter();
    let conflicts: BTreeSet<Conflict> = conflicts.map(|c| (c.type_name, c.id, c.kind)).collect();
    match model.merged(source, target) {
        Ok((kind, _)) => {
            assert_eq!((found.kind, conflicts.len()), (kind, 0), "{what}");
            SEEN.lock().unwrap().0.insert(kind.as_str());
        }
        Err(expected) => {
            assert_eq!(conflicts, expected, "{what}");
            let kinds = expected.into_iter().map(|(_, _, kind)| kind);
            SEEN.lock().unwrap().1.extend(kinds);
        }
    }
}

/// Outcomes and conflicts that the histories had.
static SEEN: Mutex<(BTreeSet<&str>, BTreeSet<ConflictKind>)> =
    Mutex::new((BTreeSet::new(), BTreeSet::new()));

async fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let base = FaultBase::new(Arc::new(InMemory::new()));
    let mut catalog = process(base.store(), 1);
    create(&catalog).await.unwrap();
    let mut model = Model::created();
    for step in 0..STEPS {
        let what = format!("seed {seed}, step {step}");
        let op = Op::choose(&mut rng, &model, step);
        let mut after = model.after(&op).map(Model::filed);
        if let Op::Merge(from, into, _) = &op {
            tell(&catalog, &model, (from, into), &what).await;
        }
        let crash = rng.below(6) == 0;
        let outcome = if crash {
            let handle = FaultStore::on(&base);
            let fault = FAULTS[rng.below(FAULTS.len() as u64) as usize];
            handle.plan(rng.below(16), fault);
            let outcome = op.run(&process(handle.store(), 100 + step)).await;
            base.settle().await;
            catalog = process(base.store(), 200 + step);
            outcome
        } else {
            op.run(&catalog).await
        };
        // Whether there is anything to optimise is a matter of fragments, which the model has not.
        let unsure = crash && outcome.is_err() || matches!(op, Op::Optimize(_));
        if unsure && after.is_ok() {
            let found = all(base.store(), 300 + step).await.unwrap();
            if found == versions(&model) {
                after = Ok(model.clone());
            }
        }
        match (after, outcome) {
            (Ok(next), Ok(())) => model = next,
            (Ok(next), Err(_)) if crash => model = next,
            (Err(code), Err(error)) if crash || error.code() == code => {}
            (expected, found) => panic!("{what}: {op:?} gave {found:?}, not {expected:?}"),
        }
        if crash
            || step + 1 == STEPS
            || matches!(op, Op::Collect | Op::Expire(..) | Op::Optimize(_))
        {
            let found = all(base.store(), 400 + step).await;
            let found = found.unwrap_or_else(|e| panic!("{what}: {op:?}: {e}"));
            assert_eq!(found, versions(&model), "{what}: {op:?}");
        }
    }
    no_orphans(base.store(), 500).await.unwrap();
    audit(base.store(), &Told::default())
        .await
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
}

#[test]
fn histories_of_branches_equal_the_model() {
    let soak = std::env::var_os("SOAK").is_some();
    for seed in 0..if soak { 10_000 } else { 500 } {
        block_on(history(seed));
    }
    let seen = SEEN.lock().unwrap();
    let kinds = ["already_up_to_date", "fast_forward", "merged"];
    assert!(kinds.iter().all(|kind| seen.0.contains(kind)), "{seen:?}");
    let kinds = [
        ConflictKind::DivergentInsert,
        ConflictKind::DivergentUpdate,
        ConflictKind::DeleteVsUpdate,
        ConflictKind::OrphanEdge,
    ];
    assert!(kinds.iter().all(|kind| seen.1.contains(kind)), "{seen:?}");
}
