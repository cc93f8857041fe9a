//! Random histories of a graph and its branches through SQL, against a model in memory: answers,
//! contents, merges and their conflicts, and what is left of the past are equal at every step.

mod checks;
mod draft;
mod graph;
mod state;
mod three_way;
mod verbs;
mod writes;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use object_store::memory::InMemory;
use stratagraph::sim::Rng;

use self::draft::{Dice, Draft, Write};
use self::graph::Graph;
use self::state::State;
use crate::world::{World, table, typed};

const STEPS: usize = 18;
const NAMES: [&str; 4] = ["main", "a", "b/1", "b/2"];

type Answer = Vec<Vec<String>>;

/// Outcomes, and kinds of conflicts, that the histories had.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn seen(what: &str) {
    SEEN.lock().unwrap().insert(what.to_owned());
}

struct History {
    seed: u64,
    dice: Dice,
    store: Arc<InMemory>,
    /// Two processes over one store, of which each statement takes one.
    worlds: Vec<World>,
    processes: u64,
    graph: Graph,
    pins: usize,
    directory: tempfile::TempDir,
    /// What was done, for a failure.
    log: Vec<String>,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.log.join("\n"));
        }
    }
}

impl History {
    async fn new(seed: u64) -> Self {
        let mut history = Self {
            seed,
            dice: Dice(Rng::new(seed)),
            store: Arc::new(InMemory::new()),
            worlds: Vec::new(),
            processes: 0,
            graph: Graph::default(),
            pins: 0,
            directory: tempfile::tempdir().unwrap(),
            log: Vec::new(),
        };
        for _ in 0..2 {
            let world = history.process().await;
            history.worlds.push(world);
        }
        let sql = format!(
            "SELECT commit_id FROM graph_create('g', '{}')",
            state::SCHEMA
        );
        let id = history.rows(&sql).await.concat().concat();
        history.made("main", id, Vec::new(), State::default()).await;
        let draft = Draft::of(&State::default());
        let write = writes::first(&mut history.dice, draft);
        history.written("main", write, vec![0]).await;
        let head = history.graph.branches["main"].head();
        history.forked("a", "'main'", Ok(head)).await;
        history.forked("b/1", "'main'", Ok(head)).await;
        history
    }

    async fn process(&mut self) -> World {
        self.processes += 1;
        let world = World::over(Arc::clone(&self.store), self.processes).await;
        let path = self.dice.of(&["auto", "index", "adjacency"]);
        world
            .sql(&format!("SET stratagraph.traversal = '{path}'"))
            .await;
        world
    }

    /// Runs a statement in one of the processes: its rows, or the code of its error.
    async fn run(&mut self, sql: &str) -> Result<Answer, &'static str> {
        let at = self.dice.below(self.worlds.len());
        self.log.push(format!("{at}: {sql};"));
        match self.worlds[at].try_sql(sql).await {
            Ok(batches) => Ok(table(&batches)),
            Err(error) => {
                let (code, text) = typed(&error, sql);
                self.log.push(format!("-- {text}"));
                Err(code)
            }
        }
    }

    async fn rows(&mut self, sql: &str) -> Answer {
        self.run(sql)
            .await
            .unwrap_or_else(|code| panic!("{sql}: {code}"))
    }

    /// A branch that is there.
    fn known(&mut self) -> String {
        let names: Vec<String> = self.graph.branches.keys().cloned().collect();
        self.dice.of(&names)
    }

    /// Mostly a branch that is there.
    fn some(&mut self) -> String {
        match self.dice.below(8) {
            0 => self.dice.of(&NAMES).to_owned(),
            _ => self.known(),
        }
    }

    async fn step(&mut self) {
        let branch = match self.dice.below(30) {
            0..12 => self.write().await,
            12 | 13 => self.fork().await,
            14 => self.load_into_new().await,
            15..21 => self.merge().await,
            21 | 22 => self.delete().await,
            23 | 24 => self.expire().await,
            25 => self.optimize().await,
            26 | 27 => self.pin().await,
            28 => self.unpin().await,
            _ => {
                let world = self.process().await;
                let at = self.dice.below(2);
                self.worlds[at] = world;
                self.rows("SELECT * FROM collect_garbage()").await;
                None
            }
        };
        let heads = self
            .rows("SELECT branch, head FROM graph_branches('g')")
            .await;
        let expected = self.graph.branches.iter();
        let expected =
            expected.map(|(name, b)| vec![name.clone(), self.graph.commits[b.head()].id.clone()]);
        assert_eq!(heads, expected.collect::<Vec<_>>());
        let branch = match branch {
            Some(branch) if self.graph.branches.contains_key(&branch) => branch,
            _ => self.known(),
        };
        self.check(&branch).await;
    }

    /// Files a commit that the product has made: its place among the others, its parents and its rows.
    async fn made(&mut self, branch: &str, id: String, parents: Vec<usize>, mut state: State) {
        let newest = self.graph.commits.last().map_or(0, |commit| commit.version);
        let sql = format!("SELECT version, commit_id, parent_ids FROM commits('g', '{branch}')");
        let listed = self.rows(&sql).await;
        let version = listed.iter().find(|row| row[1] == id).unwrap()[0]
            .parse()
            .unwrap();
        assert!(version > newest, "{version} after {newest}");
        let found = State::of_rows(self.rows(&State::select(branch, "")).await);
        state.name(&found);
        assert_eq!(found, state, "{branch}");
        self.graph.commit(branch, id, version, parents, state);
        self.check_commits(branch, listed);
    }

    /// A write is refused with one of the codes, or it answers what it should, and its rows are there.
    async fn written(&mut self, branch: &str, write: Write, parents: Vec<usize>) {
        let path = self.directory.path().join("load.jsonl");
        std::fs::write(&path, &write.file).unwrap();
        if !write.file.is_empty() {
            self.log.push(write.file.clone());
        }
        let sql = write.sql.replace("{file}", path.to_str().unwrap());
        let done = match (self.run(&sql).await, write.outcome) {
            (Err(code), Err(codes)) if codes.contains(&code) => return seen(code),
            (Ok(rows), Ok(done)) => {
                let answer = rows.concat();
                let count: Vec<String> = done.answer.iter().map(u64::to_string).collect();
                assert_eq!(answer[..count.len()], count, "{sql}");
                if answer.len() > count.len() {
                    let is_none = answer[count.len()] == state::NULL;
                    assert_eq!(is_none, !done.makes_commit, "{sql}");
                }
                done
            }
            (found, expected) => panic!("{sql}\n{found:?}, not {expected:?}"),
        };
        if done.makes_commit {
            let heads = format!("SELECT head FROM graph_branches('g') WHERE branch = '{branch}'");
            let id = self.rows(&heads).await.concat().concat();
            self.made(branch, id, parents, done.state).await;
        }
    }

    async fn write(&mut self) -> Option<String> {
        let branch = self.known();
        self.write_by(&branch, writes::write).await;
        Some(branch)
    }

    async fn write_by(&mut self, branch: &str, by: fn(&mut Dice, &str, Draft) -> Write) {
        if let Ok(known) = self.graph.branch(branch) {
            let head = known.head();
            let draft = Draft::of(&self.graph.commits[head].state);
            let write = by(&mut self.dice, branch, draft);
            self.written(branch, write, vec![head]).await;
        }
    }

    /// A load that makes its branch, if it is not there.
    async fn load_into_new(&mut self) -> Option<String> {
        let (branch, base) = (self.dice.of(&NAMES).to_owned(), self.known());
        let onto = match self.graph.branches.contains_key(&branch) {
            true => &branch,
            false => &base,
        };
        let head = self.graph.branches[onto].head();
        let draft = Draft::of(&self.graph.commits[head].state);
        let arguments = format!("branch => '{branch}', base => '{base}'");
        let write = writes::load(&mut self.dice, &arguments, draft);
        self.written(&branch, write, vec![head]).await;
        Some(branch)
    }
}

/// Ten histories a thread; a hundred under `SOAK=1`.
async fn part(n: u64) {
    let soak = std::env::var_os("SOAK").is_some();
    let each = if soak { 100 } else { 10 };
    for seed in n * each..(n + 1) * each {
        let mut history = History::new(seed).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.finish().await;
    }
}

/// Planning on a current-thread runtime would know only what the process has seen.
fn block_on(part: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(part);
}

#[test]
fn histories_of_a_graph_equal_the_model() {
    let threads = (0..4).map(|n| std::thread::spawn(move || block_on(part(n))));
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    let seen = SEEN.lock().unwrap();
    let all = [
        ["already_up_to_date", "fast_forward", "merged"].as_slice(),
        &["divergent_insert", "divergent_update", "delete_vs_update"],
        &["orphan_edge", "unique_violation", "cardinality_violation"],
        &[
            "KeyConflict",
            "RecordsInvalid",
            "MergeConflicts",
            "BranchProtected",
            "Pinned",
        ],
        &["expired", "forgotten", "optimised", "paths"],
    ];
    for what in all.concat() {
        assert!(seen.contains(what), "no history has {what}");
    }
}
