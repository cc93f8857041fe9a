//! Random histories of two tables through SQL, against a model in memory: rows, versions, reports,
//! changes and searches are equal at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use object_store::memory::InMemory;

use crate::world::{Doc, World};

const STEPS: usize = 24;

/// Content of rows by key: the title.
type Rows = BTreeMap<String, Option<String>>;

/// A version as it must be.
#[derive(Debug, Clone, Default)]
struct Version {
    rows: Rows,
    rejects: Rows,
}

#[derive(Debug, Clone, Default)]
struct Table {
    versions: BTreeMap<u64, Version>,
    current: u64,
    pins: BTreeMap<String, u64>,
}

/// A small generator: histories are numbers, and repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

struct History {
    random: Random,
    store: Arc<InMemory>,
    world: World,
    source: Rows,
    tables: BTreeMap<&'static str, Table>,
    sessions: u64,
    pins: u64,
}

fn is_empty(text: &Option<String>) -> bool {
    text.as_deref().is_none_or(str::is_empty)
}

impl Table {
    fn now(&self) -> &Version {
        &self.versions[&self.current]
    }

    fn publish(&mut self, version: Version) {
        self.current += 1;
        self.versions.insert(self.current, version);
    }
}

impl History {
    async fn new(seed: u64) -> Self {
        let store = Arc::new(InMemory::new());
        let world = World::over(Arc::clone(&store), 1).await;
        let mut history = Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            store,
            world,
            source: Rows::new(),
            tables: BTreeMap::new(),
            sessions: 1,
            pins: 0,
        };
        (0..8).for_each(|_| history.edit());
        history.load();
        for name in ["t", "u"] {
            history
                .world
                .sql(&format!(
                    "SELECT * FROM generate_embeddings('docs', 'counting', 'title', 'id', '{name}')"
                ))
                .await;
            let (rejects, rows) = history
                .source
                .clone()
                .into_iter()
                .partition(|(_, t)| is_empty(t));
            let mut table = Table::default();
            table.versions.insert(0, Version { rows, rejects });
            history.tables.insert(name, table);
        }
        history
    }

    /// One change of the source; every now and then it loses all rows.
    fn edit(&mut self) {
        let key = format!("k{}", self.random.below(14));
        match self.random.below(40) {
            0 => self.source.clear(),
            1..8 => drop(self.source.remove(&key)),
            8..11 => drop(self.source.insert(key, Some(String::new()))),
            11 => drop(self.source.insert(key, None)),
            _ => {
                let word = self.random.of(&["red", "green", "blue", "amber"]);
                let text = format!("{word} {}", self.random.below(9));
                self.source.insert(key, Some(text));
            }
        }
    }

    fn load(&self) {
        let rows: Vec<Doc> = self
            .source
            .iter()
            .map(|(key, title)| (Some(key.clone()), title.clone(), None))
            .collect();
        self.world.docs.set(&rows);
    }

    async fn step(&mut self) {
        let name = self.random.of(&["t", "u"]);
        match self.random.below(20) {
            0..5 => {
                (0..1 + self.random.below(4)).for_each(|_| self.edit());
                self.load();
            }
            5..11 => self.refresh(name).await,
            11..13 => self.compact(name).await,
            13..15 => self.expire(name).await,
            15 => self.pin(name).await,
            16 => self.unpin(name).await,
            17 => self.restore(name).await,
            18 => drop(self.world.sql("SELECT * FROM collect_garbage()").await),
            _ => {
                self.sessions += 1;
                self.world = World::over(Arc::clone(&self.store), self.sessions).await;
                self.load();
            }
        }
        for name in ["t", "u"] {
            self.check(name).await;
        }
    }

    async fn refresh(&mut self, name: &'static str) {
        let retain = self.random.below(4) == 0;
        let source = self.source.clone();
        let table = self.tables.get_mut(name).unwrap();
        let now = table.now().clone();
        let (mut added, mut changed, mut unchanged, mut dropped) = (0u64, 0u64, 0u64, 0u64);
        let mut next = Version::default();
        for (key, text) in &source {
            match (now.rows.get(key), now.rejects.get(key)) {
                (Some(old), _) if old == text => unchanged += 1,
                (Some(_), _) => changed += 1,
                (None, Some(old)) if old == text => {
                    unchanged += 1;
                    next.rejects.insert(key.clone(), text.clone());
                    continue;
                }
                _ => added += 1,
            }
            let side = if is_empty(text) {
                &mut next.rejects
            } else {
                &mut next.rows
            };
            side.insert(key.clone(), text.clone());
            let fresh = now.rows.get(key) != Some(text);
            dropped += u64::from(is_empty(text) && fresh);
        }
        let gone: Rows = now
            .rows
            .clone()
            .into_iter()
            .filter(|(k, _)| !source.contains_key(k))
            .collect();
        let deleted = if retain { 0 } else { gone.len() as u64 };
        if retain {
            next.rows.extend(gone);
        }
        let published = added + changed + deleted > 0;
        if published {
            table.publish(next);
        }
        let (version, live) = (table.current, table.now().rows.len());
        let policy = if retain { "retain" } else { "tombstone" };
        let row = self
            .world
            .row(&format!(
                "SELECT version, added, changed, deleted, unchanged, dropped_rows, live_rows, outcome, \
                 inferred_rows FROM refresh_embeddings('{name}', deletes => '{policy}')"
            ))
            .await;
        let outcome = if published { "published" } else { "no_change" };
        let numbers = [
            version,
            added,
            changed,
            deleted,
            unchanged,
            dropped,
            live as u64,
        ];
        let mut expected: Vec<String> = numbers.iter().map(u64::to_string).collect();
        expected.push(outcome.to_owned());
        expected.push((added + changed).to_string());
        assert_eq!(row, expected, "refresh of {name}");
    }

    async fn compact(&mut self, name: &'static str) {
        let tiered = self.random.below(2) == 0;
        let arguments = if tiered {
            ", mode => 'tiered', max_bytes => 1000000, min_masked => 0.3"
        } else {
            ""
        };
        let call = format!(
            "SELECT outcome, version, inferred_rows FROM compact_embeddings('{name}'{arguments})"
        );
        let row = self.world.row(&call).await;
        let table = self.tables.get_mut(name).unwrap();
        if row[0] == "published" {
            table.publish(table.now().clone());
        }
        assert!(tiered || row[0] == "published");
        assert_eq!(row[1..], [table.current.to_string(), "0".to_owned()]);
    }

    async fn expire(&mut self, name: &'static str) {
        let base = self.random.below(3) == 0;
        let table = self.tables.get_mut(name).unwrap();
        let before = self.random.below(table.current as usize + 2) as u64;
        let pinned: BTreeSet<u64> = table.pins.values().copied().collect();
        let current = table.current;
        let goes = |v: u64| v < before && v != current && (base || v > 0) && !pinned.contains(&v);
        let gone: Vec<String> = table
            .versions
            .keys()
            .filter(|v| goes(**v))
            .map(u64::to_string)
            .collect();
        table.versions.retain(|v, _| !goes(*v));
        let call =
            format!("SELECT expired_versions FROM expire_versions('{name}', {before}, {base})");
        assert_eq!(self.world.row(&call).await, [gone.join(",")]);
    }

    async fn pin(&mut self, name: &'static str) {
        self.pins += 1;
        let pin = format!("pin{}", self.pins);
        let table = self.tables.get_mut(name).unwrap();
        let versions: Vec<u64> = table.versions.keys().copied().collect();
        let version = self.random.of(&versions);
        table.pins.insert(pin.clone(), version);
        self.world
            .row(&format!(
                "SELECT * FROM create_pin('{name}@{version}', '{pin}')"
            ))
            .await;
    }

    async fn unpin(&mut self, name: &'static str) {
        let table = self.tables.get_mut(name).unwrap();
        let pins: Vec<String> = table.pins.keys().cloned().collect();
        if !pins.is_empty() {
            let pin = self.random.of(&pins);
            table.pins.remove(&pin);
            self.world
                .row(&format!("SELECT * FROM drop_pin('{pin}')"))
                .await;
        }
    }

    async fn restore(&mut self, name: &'static str) {
        let table = self.tables.get_mut(name).unwrap();
        let versions: Vec<u64> = table.versions.keys().copied().collect();
        let version = self.random.of(&versions);
        table.publish(table.versions[&version].clone());
        let call = format!("SELECT version FROM restore_version('{name}', {version})");
        assert_eq!(self.world.row(&call).await, [table.current.to_string()]);
    }

    async fn check(&mut self, name: &str) {
        let table = self.tables[name].clone();
        let versions: Vec<u64> = table.versions.keys().copied().collect();
        let listed = self
            .world
            .sql(&format!(
                "SELECT version FROM versions('{name}') ORDER BY version"
            ))
            .await;
        let expected: Vec<String> = versions.iter().map(u64::to_string).collect();
        assert_eq!(listed.concat(), expected, "versions of {name}");
        let some = self.random.of(&versions);
        for version in [table.current, some] {
            let hashes = "SELECT _row_id, encode(_content_hash, 'hex')";
            let read = format!("{hashes} FROM sg.embeddings.\"{name}@{version}\" ORDER BY 1");
            let expected: Vec<Vec<String>> = table.versions[&version]
                .rows
                .iter()
                .map(|(key, text)| vec![key.clone(), hash(text)])
                .collect();
            assert_eq!(self.world.sql(&read).await, expected, "{name}@{version}");
        }
        let rejected = self
            .world
            .sql(&format!(
                "SELECT _row_id FROM rejected_rows('{name}') ORDER BY 1"
            ))
            .await;
        let expected: Vec<String> = table.now().rejects.keys().cloned().collect();
        assert_eq!(rejected.concat(), expected, "rejects of {name}");
        self.check_changes(name, &table, some).await;
        self.check_search(name, table.now()).await;
    }

    async fn check_changes(&self, name: &str, table: &Table, from: u64) {
        let (old, new) = (&table.versions[&from].rows, &table.now().rows);
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let change = |key: &&String| match (old.get(*key), new.get(*key)) {
            (None, _) => Some("added"),
            (_, None) => Some("deleted"),
            (a, b) => (a != b).then_some("changed"),
        };
        let expected: Vec<Vec<String>> = keys
            .into_iter()
            .filter_map(|key| change(&key).map(|c| vec![key.clone(), c.to_owned()]))
            .collect();
        let call = format!("SELECT * FROM changes('{name}', {from}, {})", table.current);
        assert_eq!(self.world.sql(&call).await, expected, "{call}");
    }

    /// The row of a text is among the best hits of that text, and there are `min(k, live)` hits.
    async fn check_search(&mut self, name: &str, now: &Version) {
        let rows: Vec<(String, Option<String>)> = now.rows.clone().into_iter().collect();
        let Some((_, text)) = (!rows.is_empty()).then(|| self.random.of(&rows)) else {
            return;
        };
        let text = text.unwrap_or_default();
        let k = 1 + self.random.below(rows.len() + 2);
        let call = format!(
            "SELECT _row_id, round(similarity, 4) FROM search('{name}', '{text}', {k}) ORDER BY rank"
        );
        let hits = self.world.sql(&call).await;
        assert_eq!(hits.len(), k.min(rows.len()), "{call}");
        let twins = rows
            .iter()
            .filter(|(_, t)| t.as_deref() == Some(&text))
            .count();
        for hit in hits.iter().take(twins) {
            assert_eq!(hit[1], "1.0", "{call}: {hits:?}");
        }
    }
}

fn hash(text: &Option<String>) -> String {
    let column: arrow::array::ArrayRef =
        Arc::new(arrow::array::StringArray::from(vec![text.as_deref()]));
    let hashes = stratagraph::embed::content_hash(&[column]).unwrap();
    hashes.value(0).iter().map(|b| format!("{b:02x}")).collect()
}

async fn histories(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut history = History::new(seed).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        for name in ["t", "u"] {
            let checks = history
                .world
                .sql(&format!(
                    "SELECT DISTINCT verdict FROM verify_materialization('{name}')"
                ))
                .await;
            assert_eq!(checks.concat(), ["match"], "seed {seed}");
        }
    }
}

/// Ten histories a thread; a hundred under `SOAK=1`.
fn part(n: u64) -> std::ops::Range<u64> {
    let each = if std::env::var_os("SOAK").is_some() {
        100
    } else {
        10
    };
    n * each..(n + 1) * each
}

#[tokio::test]
async fn first_part() {
    histories(part(0)).await;
}

#[tokio::test]
async fn second_part() {
    histories(part(1)).await;
}

#[tokio::test]
async fn third_part() {
    histories(part(2)).await;
}

#[tokio::test]
async fn fourth_part() {
    histories(part(3)).await;
}
