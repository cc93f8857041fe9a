//! Random histories of one table against a model in memory, with crashes and new processes between
//! any two steps: versions, contents and pins are equal at every step. Rejects are compared by the
//! histories through SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::Result;
use stratagraph::catalog::{Catalog, Expire, resolve};
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::Deletes;
use stratagraph::sim::{Fault, FaultBase, FaultStore, Rng};

use crate::support::audit::{Told, audit, process};
use crate::support::embedding::{
    Source, all_match, compact, compact_tiered, content, expected, generate, refresh, restore,
    table_name,
};
use crate::sweep::crash::block_on;

const STEPS: u64 = 30;
const FAULTS: [Fault; 5] = [
    Fault::FailBefore,
    Fault::EffectThenFail,
    Fault::EffectThenStop,
    Fault::StopBefore,
    Fault::Conflict409,
];

type Content = BTreeMap<String, [u8; 32]>;

/// What the store holds.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    versions: BTreeMap<u64, Content>,
    current: u64,
    pins: BTreeMap<String, u64>,
}

#[derive(Debug, Clone)]
enum Op {
    /// An object that nothing will ever name.
    Stage,
    Refresh,
    Compact,
    Tiered,
    Expire(u64, bool),
    Pin(String, u64),
    Unpin(String),
    Restore(u64),
    Collect,
}

impl Model {
    fn publish(&mut self, content: Content) {
        self.current += 1;
        self.versions.insert(self.current, content);
    }

    fn after(&self, op: &Op, source: &Source) -> Self {
        let mut next = self.clone();
        let now = self.versions[&self.current].clone();
        match op {
            Op::Stage | Op::Collect => {}
            Op::Refresh => {
                let wanted = expected(&source.rows());
                if wanted != now {
                    next.publish(wanted);
                }
            }
            Op::Compact | Op::Tiered => next.publish(now),
            Op::Expire(before, base) => {
                let pinned: Vec<u64> = self.pins.values().copied().collect();
                next.versions.retain(|v, _| {
                    v >= before || *v == self.current || (*v == 0 && !base) || pinned.contains(v)
                });
            }
            Op::Pin(name, version) => drop(next.pins.insert(name.clone(), *version)),
            Op::Unpin(name) => drop(next.pins.remove(name)),
            Op::Restore(version) => next.publish(self.versions[version].clone()),
        }
        next
    }

    /// What a store holds, as a new process sees it.
    async fn of(store: Arc<dyn ObjectStore>, seed: u64) -> Result<Self> {
        let catalog = process(store, seed);
        let head = catalog.look().await?;
        let table = resolve::table(catalog.store(), &head, &table_name(), None).await?;
        let history = table
            .current
            .history
            .walk(catalog.store(), &mut |_| {})
            .await?;
        let mut versions = BTreeMap::new();
        for version in history.iter().map(|e| e.version).chain([table.version()]) {
            versions.insert(version, content(&catalog, Some(version)).await?);
        }
        let pins = catalog.pins().await?.into_iter();
        Ok(Self {
            versions,
            current: table.version(),
            pins: pins.map(|(name, pin)| (name, pin.version)).collect(),
        })
    }
}

impl Op {
    async fn run(&self, catalog: &Arc<Catalog>, source: &Source) -> Result<()> {
        match self {
            Self::Stage => {
                let mut stage = catalog.begin().await?;
                let key = stage.reserve("json")?;
                catalog.store().put_object(&key, "left behind".into()).await
            }
            Self::Refresh => refresh(catalog, source, Deletes::Tombstone)
                .await
                .1
                .map(drop),
            Self::Compact => compact(catalog, None).await.1.map(drop),
            Self::Tiered => compact_tiered(catalog).await.1.map(drop),
            Self::Expire(before, include_base) => {
                let expire = Expire {
                    name: table_name(),
                    branch: BranchName::main(),
                    branch_id: None,
                    before: *before,
                    include_base: *include_base,
                    dataset: None,
                    expired: Vec::new(),
                };
                catalog.expire(expire).await.map(drop)
            }
            Self::Pin(name, version) => {
                let head = catalog.look().await?;
                let store = catalog.store();
                let table = resolve::table(store, &head, &table_name(), Some(*version)).await?;
                catalog
                    .create_pin(Name::parse(name)?, &table, None)
                    .await
                    .map(drop)
            }
            Self::Unpin(name) => catalog.drop_pin(Name::parse(name)?).await,
            Self::Restore(version) => restore(catalog, *version).await.1.map(drop),
            Self::Collect => catalog.collect_garbage(0, false).await.map(drop),
        }
    }
}

fn pick<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

fn edit(rng: &mut Rng, source: &Source) {
    for _ in 0..1 + rng.below(3) {
        let key = format!("k{}", rng.below(9));
        match rng.below(8) {
            0 => source.rows().keys().for_each(|key| source.remove(key)),
            1 | 2 => source.remove(&key),
            _ => source.set(&key, &format!("text {}", rng.below(6))),
        }
    }
}

fn choose(rng: &mut Rng, model: &Model, step: u64) -> Op {
    let versions: Vec<u64> = model.versions.keys().copied().collect();
    let pins: Vec<String> = model.pins.keys().cloned().collect();
    match rng.below(16) {
        0 => Op::Stage,
        1..7 => Op::Refresh,
        7 | 8 => Op::Compact,
        9 => Op::Tiered,
        10 | 11 => Op::Expire(rng.below(model.current + 2), rng.below(3) == 0),
        12 => Op::Pin(format!("p{step}"), pick(rng, &versions)),
        13 if !pins.is_empty() => Op::Unpin(pick(rng, &pins)),
        14 => Op::Restore(pick(rng, &versions)),
        _ => Op::Collect,
    }
}

async fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let base = FaultBase::new(Arc::new(InMemory::new()));
    let source = Source::new(&[("k1", "one"), ("k2", "two"), ("k3", "three")]);
    let mut catalog = process(base.store(), 1);
    generate(&catalog, &source).await.1.unwrap();
    let mut model = Model::of(base.store(), 2).await.unwrap();
    for step in 0..STEPS {
        let what = format!("seed {seed}, step {step}");
        edit(&mut rng, &source);
        let op = choose(&mut rng, &model, step);
        let mut after = model.after(&op, &source);
        let crash = rng.below(4) == 0;
        let outcome = if crash {
            let handle = FaultStore::on(&base);
            handle.plan(rng.below(16), pick(&mut rng, &FAULTS));
            let doomed = process(handle.store(), 1_000 + step);
            let outcome = op.run(&doomed, &source).await;
            base.settle().await;
            outcome
        } else {
            op.run(&catalog, &source).await
        };
        let found = Model::of(base.store(), 5_000 + step).await.unwrap();
        // A tiered compaction may find nothing to win.
        let idle = matches!(op, Op::Tiered) && found == model;
        if idle || crash && outcome.is_err() && found == model {
            after = model.clone();
        }
        assert_eq!(found, after, "{what}: {op:?} gave {outcome:?}");
        if !crash && let Err(error) = outcome {
            panic!("{what}: {op:?}: {error}");
        }
        model = after;
        // After garbage collection by another process, a transaction begun before is fenced: a new
        // process begins anew.
        if crash || rng.below(4) == 0 {
            catalog = process(base.store(), 10_000 + step);
        }
    }
    all_match(base.store()).await;
    audit(base.store(), &Told::default())
        .await
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
}

fn histories(part: u64) {
    let each = if std::env::var_os("SOAK").is_some() {
        2_500
    } else {
        125
    };
    for seed in part * each..(part + 1) * each {
        block_on(history(seed));
    }
}

#[test]
fn first_part() {
    histories(0);
}

#[test]
fn second_part() {
    histories(1);
}

#[test]
fn third_part() {
    histories(2);
}

#[test]
fn fourth_part() {
    histories(3);
}
