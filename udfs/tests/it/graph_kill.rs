//! Four processes change one graph on local files and die by `kill -9`, round after round: nothing that
//! was acknowledged is lost, nothing is half there, and the next writer needs no repair. The processes
//! are this very binary.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use datafusion::prelude::SessionContext;
use stratagraph::sim::Rng;
use stratagraph_udfs::{CommitFilter, GraphMutate, Options, Stratagraph, install};

use crate::graph_load::support::assert_whole;
use crate::world::table;

const DIR: &str = "STRATAGRAPH_GRAPH_KILL_DIR";
const ROUND: &str = "STRATAGRAPH_GRAPH_KILL_ROUND";
const PROCESS: &str = "STRATAGRAPH_GRAPH_KILL_PROCESS";
const PROCESSES: u64 = 4;

const SCHEMA: &str = "
node Person { name: String @key  n: I64? }
edge Knows: Person -> Person { n: I64? }
";

async fn open(dir: &Path) -> (Stratagraph, SessionContext) {
    let ctx = SessionContext::new();
    let root = dir.join("store").to_str().unwrap().to_owned();
    let sg = install(&ctx, Options::new(root)).await.unwrap();
    (sg, ctx)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}")
        .and_then(|()| out.flush())
        .unwrap();
}

fn call(body: &str) -> GraphMutate {
    GraphMutate::new("g", format!("query m() {{ {body} }}"))
}

/// A pair of people and the edge between them, in one commit.
fn pair(name: &str) -> GraphMutate {
    call(&format!(
        "insert Person {{ name: \"{name}\" }} insert Person {{ name: \"{name}-twin\" }} \
         insert Knows {{ from: \"{name}\", to: \"{name}-twin\" }}"
    ))
}

/// Inserts, deletes and updates for ever; a line before each delete, and for each acknowledgement.
async fn work(dir: &Path, process: u64, round: u64) {
    let (sg, _) = open(dir).await;
    let (mut rng, mut own) = (Rng::new(round * PROCESSES + process), Vec::new());
    for n in 0.. {
        let outcome = match rng.below(4) {
            0 if !own.is_empty() => {
                let at = usize::try_from(rng.below(own.len() as u64)).unwrap();
                let name: String = own.swap_remove(at);
                say(&format!("deletes {name}"));
                let body =
                    format!("delete Person where name = \"{name}\" or name = \"{name}-twin\"");
                let done = sg.graph_mutate(call(&body)).await;
                done.map(|_| say(&format!("deleted {name}")))
            }
            // All processes write this row.
            1 => {
                let body = format!("update Person set {{ n: {n} }} where name = \"shared\"");
                sg.graph_mutate(call(&body)).await.map(|_| say("updated"))
            }
            _ => {
                let name = format!("p{round}-{process}-{n}");
                sg.graph_mutate(pair(&name)).await.map(|_| {
                    say(&format!("inserted {name}"));
                    own.push(name);
                })
            }
        };
        match outcome {
            Ok(()) => {}
            // Another process was first; the caller of an update or a delete decides.
            Err(error) if error.code() == "ReadSetChanged" => say("lost"),
            Err(error) => say(&format!("failed {error}")),
        }
    }
}

/// Not a test of its own: the parent runs this binary with this name.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work(Path::new(&dir), number(PROCESS), number(ROUND)));
}

fn spawn(dir: &Path, process: u64, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "graph_kill::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .env(PROCESS, process.to_string())
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What all processes of all rounds said.
#[derive(Debug, Default)]
struct Told {
    inserted: BTreeSet<String>,
    deleting: BTreeSet<String>,
    deleted: BTreeSet<String>,
    updated: u64,
    lost: u64,
}

impl Told {
    fn hear(&mut self, mut child: Child) {
        let out = BufReader::new(child.stdout.take().unwrap());
        for line in out.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["inserted", name] => _ = self.inserted.insert((*name).to_owned()),
                ["deletes", name] => _ = self.deleting.insert((*name).to_owned()),
                ["deleted", name] => _ = self.deleted.insert((*name).to_owned()),
                ["updated"] => self.updated += 1,
                ["lost"] => self.lost += 1,
                ["failed", ..] => panic!("{line}"),
                _ => {}
            }
        }
        child.wait().unwrap();
    }

    /// The graph has everything that was acknowledged, and each pair whole or not at all.
    async fn check(&self, ctx: &SessionContext, round: u64) {
        let rows = async |sql: &str| {
            let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
            table(&batches)
        };
        let people = rows("SELECT id FROM sg.g.\"Person\" WHERE id <> 'shared'").await;
        let people: BTreeSet<String> = people.into_iter().flatten().collect();
        let twins = people.iter().filter_map(|id| id.strip_suffix("-twin"));
        let twins: BTreeSet<String> = twins.map(str::to_owned).collect();
        let firsts: BTreeSet<String> = people
            .iter()
            .filter(|id| !id.ends_with("-twin"))
            .cloned()
            .collect();
        assert_eq!(firsts, twins, "round {round}: half a pair");
        let edges = rows("SELECT src, dst FROM sg.g.\"Knows\"").await;
        let ends = edges.iter().map(|row| {
            assert_eq!(format!("{}-twin", row[0]), row[1]);
            row[0].clone()
        });
        let ends: BTreeSet<String> = ends.collect();
        assert_eq!(
            (ends.len(), &ends),
            (edges.len(), &firsts),
            "round {round}: edges"
        );
        let lost: Vec<&String> = self
            .inserted
            .difference(&self.deleting)
            .filter(|n| !firsts.contains(*n))
            .collect();
        assert!(lost.is_empty(), "round {round}: lost {lost:?}");
        let back: Vec<&String> = self.deleted.intersection(&firsts).collect();
        assert!(back.is_empty(), "round {round}: came back {back:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_are_killed_and_nothing_is_lost() {
    let rounds = if std::env::var_os("SOAK").is_some() {
        100
    } else {
        4
    };
    let dir = tempfile::tempdir().unwrap();
    let (sg, ctx) = open(dir.path()).await;
    sg.graph_create("g", SCHEMA).await.unwrap();
    sg.graph_mutate(call("insert Person { name: \"shared\" }"))
        .await
        .unwrap();
    let (mut told, mut rng) = (Told::default(), Rng::new(11));
    for round in 0..rounds {
        let mut children: Vec<Child> = (0..PROCESSES)
            .map(|p| spawn(dir.path(), p, round))
            .collect();
        tokio::time::sleep(Duration::from_millis(700 + rng.below(400))).await;
        for child in &mut children {
            child.kill().unwrap();
            // Not all at once: the others go on without the dead.
            tokio::time::sleep(Duration::from_millis(rng.below(40))).await;
        }
        children.into_iter().for_each(|child| told.hear(child));
        // The next writer needs no repair.
        let name = format!("parent-{round}");
        sg.graph_mutate(pair(&name)).await.unwrap();
        told.inserted.insert(name);
        told.check(&ctx, round).await;
    }
    assert_whole(&sg).await;
    // One line of versions: each has the one before as its parent.
    let filter = CommitFilter {
        dataset: Some("g".to_owned()),
        branch: None,
    };
    let commits = sg.commits(filter).await.unwrap();
    for pair in commits.windows(2) {
        assert_eq!(pair[0].parent_ids, pair[1].commit_id);
    }
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0);
    told.check(&ctx, rounds).await;
    println!(
        "{rounds} rounds, {} commits: {} inserted, {} deleted, {} updated, {} lost",
        commits.len(),
        told.inserted.len(),
        told.deleted.len(),
        told.updated,
        told.lost
    );
    assert!(told.inserted.len() as u64 > rounds && told.updated > 0);
}
