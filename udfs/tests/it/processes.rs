//! Two processes with four tasks each refresh one table over one file that changes meanwhile. The
//! processes are this very binary.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::{CsvReadOptions, SessionContext};
use stratagraph::embed::testing::CountingEmbedder;
use stratagraph::embed::{Embedder, HashEmbedder, ModelRegistry};
use stratagraph_udfs::{CommitFilter, GenerateEmbeddings, Options, Stratagraph, install};

const DIR: &str = "STRATAGRAPH_PROCESS_DIR";
const EXPIRES: &str = "STRATAGRAPH_PROCESS_EXPIRES";
const TASKS: usize = 4;
const CHANGES: u64 = 25;
const ROWS: u64 = 60;

async fn open(dir: &Path) -> (Stratagraph, Arc<CountingEmbedder>) {
    let ctx = SessionContext::new();
    let csv = dir.join("docs.csv");
    let options = CsvReadOptions::new().has_header(true);
    ctx.register_csv("docs", csv.to_str().unwrap(), options)
        .await
        .unwrap();
    let model = Arc::new(CountingEmbedder::new(
        "counted",
        Arc::new(HashEmbedder::new(16).unwrap()) as _,
    ));
    let models = ModelRegistry::default();
    models
        .register("counted", Arc::clone(&model) as Arc<dyn Embedder>)
        .unwrap();
    let root = dir.join("store").to_str().unwrap().to_owned();
    let sg = install(&ctx, Options::new(root).with_models(models))
        .await
        .unwrap();
    (sg, model)
}

/// Rows of the file after so many changes: edits, additions and deletions.
fn rows(change: u64) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for i in 0..ROWS + change {
        let edited = (i..=change)
            .rev()
            .find(|c| (c * 7 + 3) % ROWS == i % ROWS)
            .unwrap_or(0);
        if !(i * 11 + change).is_multiple_of(13) {
            rows.insert(format!("k{i:03}"), format!("text of {i} edited {edited}"));
        }
    }
    rows
}

/// Replaces the file at once, as an editor or an export does.
fn write(dir: &Path, change: u64) {
    let mut text = "id,title\n".to_owned();
    rows(change)
        .iter()
        .for_each(|(k, v)| text += &format!("{k},{v}\n"));
    std::fs::write(dir.join("next"), text).unwrap();
    std::fs::rename(dir.join("next"), dir.join("docs.csv")).unwrap();
}

/// Refreshes until the parent says stop; a line for each answer.
async fn work(dir: &Path) {
    let (sg, model) = open(dir).await;
    let tasks = (0..TASKS).map(|_| {
        let (sg, dir) = (sg.clone(), dir.to_owned());
        tokio::spawn(async move {
            while !dir.join("stop").exists() {
                match sg.refresh_embeddings("docs", Default::default()).await {
                    Ok(r) => say(&format!(
                        "ran {} {} {} {}",
                        r.outcome, r.version, r.attempts, r.inferred_rows
                    )),
                    Err(e) => say(&format!("failed {e}")),
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    say(&format!("model {}", model.rows()));
}

/// Expires everything that may go until the parent says stop.
async fn expire(dir: &Path) {
    let (sg, _) = open(dir).await;
    while !dir.join("stop").exists() {
        match sg.expire_versions("docs", 1_000_000, true).await {
            Ok(r) => say(&format!("expired {}", r.expired_versions)),
            Err(e) => say(&format!("failed {e}")),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// Not a test of its own: the parent runs this binary with this name.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let (runtime, dir) = (runtime.unwrap(), Path::new(&dir));
    match std::env::var_os(EXPIRES) {
        Some(_) => runtime.block_on(expire(dir)),
        None => runtime.block_on(work(dir)),
    }
}

fn spawn(dir: &Path) -> Child {
    command(dir).spawn().unwrap()
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "processes::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped());
    command
}

#[derive(Debug, Default)]
struct Answers {
    published: Vec<u64>,
    no_change: u64,
    rebased: u64,
    reported: u64,
    inferred: u64,
    failed: Vec<String>,
    expired: Vec<u64>,
}

fn answers(child: Child) -> Answers {
    let mut answers = Answers::default();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    for line in BufReader::new(out.stdout.as_slice())
        .lines()
        .map_while(Result::ok)
    {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["ran", outcome, version, attempts, inferred] => {
                match *outcome {
                    "published" => answers.published.push(version.parse().unwrap()),
                    _ => answers.no_change += 1,
                }
                answers.rebased += u64::from(*attempts != "1");
                answers.reported += inferred.parse::<u64>().unwrap();
            }
            ["model", rows] => answers.inferred = rows.parse().unwrap(),
            ["expired", versions] => {
                let versions = versions.split(',').filter_map(|v| v.parse::<u64>().ok());
                answers.expired.extend(versions);
            }
            ["failed", ..] => answers.failed.push(line),
            _ => {}
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_of_four_tasks_refresh_one_table() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 0);
    let (sg, _) = open(dir.path()).await;
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("counted")
        .name("docs");
    sg.generate_embeddings(table).await.unwrap();
    let children = [spawn(dir.path()), spawn(dir.path())];
    for change in 1..=CHANGES {
        tokio::time::sleep(Duration::from_millis(120)).await;
        write(dir.path(), change);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    std::fs::write(dir.path().join("stop"), "").unwrap();
    let answers = children.map(answers);
    println!("{answers:#?}");
    let mut published = Vec::new();
    for answer in &answers {
        assert!(answer.failed.is_empty(), "{:?}", answer.failed);
        // What the reports say was given to the model was given to it once: no attempt repeats.
        assert_eq!(answer.reported, answer.inferred);
        assert!(answer.no_change > 0);
        published.extend(&answer.published);
    }
    assert!(
        answers.iter().any(|a| a.rebased > 0),
        "no refresh lost a race"
    );
    let unique: BTreeSet<u64> = published.iter().copied().collect();
    assert_eq!(
        unique.len(),
        published.len(),
        "a version was acknowledged twice"
    );
    let commits = sg.commits(CommitFilter::default()).await.unwrap();
    let mut versions: Vec<u64> = sg
        .versions("docs")
        .await
        .unwrap()
        .iter()
        .map(|v| v.version)
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (0..=published.len() as u64).collect::<Vec<_>>());
    assert_eq!(commits.len(), versions.len());
    assert_follows(&sg, CHANGES).await;
}

/// After one more refresh the table holds the file as it was left, and every artifact is whole.
async fn assert_follows(sg: &Stratagraph, change: u64) {
    sg.refresh_embeddings("docs", Default::default())
        .await
        .unwrap();
    let expected: Vec<String> = rows(change).into_keys().collect();
    assert_eq!(live(sg).await, expected);
    let checks = sg.verify_materialization("docs").await.unwrap();
    assert!(checks.iter().all(|c| c.verdict == "match"), "{checks:?}");
}

/// One process of four tasks refreshes while two others expire whatever may go: no version that is
/// current is ever taken, and none is expired twice.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_expire_take_no_version_that_is_current() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 0);
    let (sg, _) = open(dir.path()).await;
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("counted")
        .name("docs");
    sg.generate_embeddings(table).await.unwrap();
    let expirers = [(); 2].map(|()| command(dir.path()).env(EXPIRES, "1").spawn().unwrap());
    let refresher = spawn(dir.path());
    let changes = 10;
    for change in 1..=changes {
        tokio::time::sleep(Duration::from_millis(200)).await;
        write(dir.path(), change);
        assert!(!live(&sg).await.is_empty());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    std::fs::write(dir.path().join("stop"), "").unwrap();
    let refreshed = answers(refresher);
    let expired = expirers.map(answers);
    assert!(refreshed.failed.is_empty(), "{:?}", refreshed.failed);
    let mut gone: Vec<u64> = Vec::new();
    for answer in &expired {
        assert!(answer.failed.is_empty(), "{:?}", answer.failed);
        gone.extend(&answer.expired);
    }
    gone.sort_unstable();
    println!("{} published, {gone:?} expired", refreshed.published.len());
    assert!(
        gone.len() > 1 && gone.windows(2).all(|pair| pair[0] < pair[1]),
        "{gone:?}"
    );
    assert_follows(&sg, changes).await;
}

/// All live keys, in key order.
async fn live(sg: &Stratagraph) -> Vec<String> {
    let mut keys = Vec::new();
    for batch in sg.read_vectors("docs").await.unwrap() {
        let column = datafusion::arrow::compute::cast(
            batch.column(0),
            &datafusion::arrow::datatypes::DataType::Utf8,
        );
        let column = column.unwrap();
        let text = datafusion::arrow::array::AsArray::as_string::<i32>(&column);
        keys.extend(text.iter().flatten().map(str::to_owned));
    }
    keys
}
