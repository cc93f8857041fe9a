//! `kill -9` at random moments of every verb on local files. The child is this very binary.

use std::io::{BufRead, BufReader, Write};
use std::path::Path as FilePath;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use stratagraph::catalog::{Catalog, Expire, resolve};
use stratagraph::env::Env;
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph::publish::Deletes;
use stratagraph::sim::Rng;
use stratagraph::store::{LocalStore, Store};

use crate::support::audit::{Told, audit, no_orphans};
use crate::support::embedding::{
    Source, all_match, compact, content, generate, refresh, table_name,
};

const ROOT: &str = "STRATAGRAPH_KILL_ROOT";
const SEED: &str = "STRATAGRAPH_KILL_SEED";

fn local(root: &FilePath) -> Arc<dyn ObjectStore> {
    Arc::new(LocalStore::new(root).unwrap())
}

fn open(root: &FilePath) -> Arc<Catalog> {
    let store = Store::on_files(LocalStore::new(root).unwrap(), "file:///");
    Catalog::new(Arc::new(store), Env::system())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// What the child does for ever: every verb, in an order of its own, each acknowledgement a line.
async fn work(catalog: &Arc<Catalog>, seed: u64) {
    let (mut rng, source) = (
        Rng::new(seed),
        Source::new(&[("a", "one"), ("b", "two"), ("c", "three")]),
    );
    if let (Some(txn), Ok(_)) = generate(catalog, &source).await {
        say(&format!("acked {txn}"));
    }
    loop {
        let key = ["a", "b", "c", "d", "e"][rng.below(5) as usize];
        match rng.below(3) {
            0 => source.remove(key),
            _ => source.set(key, &format!("text {}", rng.below(1_000))),
        }
        match rng.below(8) {
            0 => {
                if let (Some(txn), Ok(_)) = compact(catalog, None).await {
                    say(&format!("acked {txn}"));
                }
            }
            1 => {
                let (name, branch, expired) = (table_name(), BranchName::main(), Vec::new());
                let before = rng.below(1_000);
                let expire = Expire {
                    name,
                    branch,
                    branch_id: None,
                    before,
                    include_base: true,
                    dataset: None,
                    expired,
                };
                catalog.expire(expire).await.unwrap();
            }
            2 => _ = catalog.collect_garbage(0, false).await.unwrap(),
            3 => {
                let name = Name::parse(&format!("p{}", rng.below(3))).unwrap();
                let head = catalog.look().await.unwrap();
                let table = resolve::table(catalog.store(), &head, &table_name(), None)
                    .await
                    .unwrap();
                if catalog
                    .create_pin(name.clone(), &table, None)
                    .await
                    .is_err()
                {
                    catalog.drop_pin(name).await.unwrap();
                }
            }
            _ => {
                let (txn, outcome) = refresh(catalog, &source, Deletes::Tombstone).await;
                if let (Some(txn), Some(_)) = (txn, outcome.unwrap().published) {
                    say(&format!("acked {txn}"));
                }
            }
        }
    }
}

/// Not a test of its own: the parent runs this binary with this name.
#[test]
fn child() {
    let (Some(root), Some(seed)) = (std::env::var_os(ROOT), std::env::var(SEED).ok()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime
        .unwrap()
        .block_on(work(&open(FilePath::new(&root)), seed.parse().unwrap()));
}

/// Runs the child, kills it, and gives what it had acknowledged by then.
fn killed(root: &FilePath, seed: u64, after: Duration) -> Vec<TxnId> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(ROOT, root)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let lines = std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines
            .filter_map(|l| l.split("acked ").nth(1).and_then(|t| TxnId::parse(t).ok()))
            .collect()
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.join().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let rounds = if std::env::var_os("SOAK").is_some() {
        5_000
    } else {
        100
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut acked) = (Rng::new(11), 0);
    for round in 0..rounds {
        let told = killed(
            dir.path(),
            round,
            Duration::from_millis(20 + rng.below(180)),
        );
        acked += told.len();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let catalog = open(dir.path());
            for txn in &told {
                let status = catalog.commit_status(txn, None).await.unwrap();
                assert_eq!(status.as_str(), "committed", "round {round}: {txn}");
            }
            let told = Told {
                acked: told,
                ..Told::default()
            };
            audit(local(dir.path()), &told)
                .await
                .unwrap_or_else(|e| panic!("round {round}: {e}"));
            if round % 10 == 9 {
                all_match(local(dir.path())).await;
                content(&catalog, None).await.unwrap();
            }
        });
    }
    println!("{rounds} kills, {acked} acknowledged commits, none lost");
    assert!(acked > 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(no_orphans(local(dir.path()), 5)).unwrap();
}
