//! Models: texts per CPU-second, beside sentence-transformers where it is installed, and the share of
//! a refresh with a transformer. What the environment does not name is left out:
//!
//! - `STRATAGRAPH_TEXTS`: a file of one text a line.
//! - `STRATAGRAPH_MINILM_DIR`: a directory of all-MiniLM-L6-v2.
//! - `STRATAGRAPH_PYTHON`: a Python that has sentence-transformers.
//! - `STRATAGRAPH_SERVER`: the spec of a model behind a server; `STRATAGRAPH_SERVER_PID`: its process, and
//!   `STRATAGRAPH_SERVER_ROWS`: rows of the table, [`ROWS`] without.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stratagraph::embed::{Embedder, ModelPolicy, ModelRegistry, Role, embed_checked_sync};
use stratagraph_udfs::GenerateEmbeddings;

use crate::masked::session;
use crate::timing::once;

/// Rounds of each side.
const ROUNDS: usize = 5;
/// Texts of a round with a transformer.
const TEXTS: usize = 1_000;
/// Rows of the table that is refreshed.
const ROWS: usize = 14_731;

fn from_environment(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(name).map(PathBuf::from);
    if path.is_none() {
        println!("\n{name} is not set: what needs it is left out");
    }
    path
}

pub async fn run() {
    let Some(texts) = from_environment("STRATAGRAPH_TEXTS") else {
        return;
    };
    let text = std::fs::read_to_string(texts).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    println!("\n| model | texts | texts per CPU-second |\n|---|---|---|");
    for spec in ["hash:384", "static:minilm-l6-128"] {
        let model = open(spec);
        let best = (0..ROUNDS).map(|_| rate(model.as_ref(), &lines));
        let best = best.fold(0.0, f64::max);
        println!("| `{spec}` | {} | {best:.0} |", lines.len());
    }
    served(&lines).await;
    let Some(directory) = from_environment("STRATAGRAPH_MINILM_DIR") else {
        return;
    };
    let spec = format!("candle:{}", directory.display());
    beside_python(&spec, &directory, &lines);
    refresh(&spec, &lines).await;
}

fn open(spec: &str) -> std::sync::Arc<dyn Embedder> {
    let policy = ModelPolicy {
        allow_paths_and_urls: true,
        ..ModelPolicy::default()
    };
    let model = ModelRegistry::default().resolve_now(spec, &policy);
    model.unwrap().unwrap()
}

/// Texts per second of this process's CPU time.
fn rate(model: &dyn Embedder, lines: &[&str]) -> f64 {
    let texts: Vec<Option<&str>> = lines.iter().map(|line| Some(*line)).collect();
    let start = cpu_seconds();
    embed_checked_sync(model, Role::Document, &texts)
        .unwrap()
        .unwrap();
    lines.len() as f64 / (cpu_seconds() - start)
}

/// User and system time of this process. Linux counts them in hundredths.
fn cpu_seconds() -> f64 {
    cpu_seconds_of("self")
}

fn cpu_seconds_of(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Rounds of ours and of sentence-transformers in turn; each on one thread.
fn beside_python(spec: &str, directory: &Path, lines: &[&str]) {
    let model = open(spec);
    // Every so many, so that the lengths are those of the whole.
    let step = (lines.len() / TEXTS).max(1);
    let texts: Vec<&str> = lines.iter().step_by(step).take(TEXTS).copied().collect();
    let mut python = Python::start(directory, &texts);
    let (mut ours, mut theirs) = (0f64, 0f64);
    for _ in 0..ROUNDS {
        ours = ours.max(rate(model.as_ref(), &texts));
        if let Some(python) = &mut python {
            theirs = theirs.max(python.round());
        }
    }
    println!("| candle, all-MiniLM-L6-v2 | {} | {ours:.0} |", texts.len());
    if python.is_some() {
        println!(
            "| sentence-transformers, the same | {} | {theirs:.0} |",
            texts.len()
        );
        println!("\nours / sentence-transformers: {:.2}", ours / theirs);
    }
}

struct Python {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    _texts: tempfile::NamedTempFile,
}

impl Python {
    fn start(directory: &Path, texts: &[&str]) -> Option<Self> {
        let python = from_environment("STRATAGRAPH_PYTHON")?;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(texts.join("\n").as_bytes()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("encode.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(directory)
            .arg(file.path())
            .arg(ROUNDS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut python = Self {
            child,
            answers,
            _texts: file,
        };
        assert_eq!(python.line(), "ready");
        Some(python)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn round(&mut self) -> f64 {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line().parse().unwrap()
    }
}

/// Generate and refreshes with a model behind a server, with and without the server's own time.
async fn served(lines: &[&str]) {
    let (Some(spec), Some(process)) = (
        from_environment("STRATAGRAPH_SERVER"),
        from_environment("STRATAGRAPH_SERVER_PID"),
    ) else {
        return;
    };
    let (spec, process) = (spec.display().to_string(), process.display().to_string());
    let rows = std::env::var("STRATAGRAPH_SERVER_ROWS").ok();
    let rows = rows.and_then(|rows| rows.parse().ok()).unwrap_or(ROWS);
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("docs.csv");
    write_rows(&csv, lines, rows, &|_| false, "");
    let (_ctx, sg) = session(dir.path()).await;
    let show = |what: &str, wall: Duration, before: f64| {
        let server = cpu_seconds_of(&process) - before;
        let wall = wall.as_secs_f64();
        println!(
            "| {what} | {wall:.3} | {server:.2} | {:.3} |",
            wall - server
        );
    };
    println!("\n| {rows} rows behind a server | wall s | server s | net s |\n|---|---|---|---|");
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model(spec)
        .name("s");
    let before = cpu_seconds_of(&process);
    let (time, report) = once(sg.generate_embeddings(table)).await;
    report.unwrap();
    show("generate", time, before);
    for (share, mark) in [(100, " zephyr"), (10, " yarrow")] {
        for round in 0..3 {
            write_rows(&csv, lines, rows, &|row| row % share == round, mark);
            let before = cpu_seconds_of(&process);
            let (time, report) = once(sg.refresh_embeddings("s", Default::default())).await;
            let what = format!("refresh, {} of them", report.unwrap().inferred_rows);
            show(&what, time, before);
        }
    }
}

fn write_rows(csv: &Path, lines: &[&str], rows: usize, edited: &dyn Fn(usize) -> bool, mark: &str) {
    let mut text = "id,title\n".to_owned();
    for (row, line) in lines.iter().cycle().take(rows).enumerate() {
        let more = if edited(row) { mark } else { "" };
        text.push_str(&format!("{row},\"{}{more}\"\n", line.replace('"', "'")));
    }
    std::fs::write(csv, text).unwrap();
}

/// Generate and a refresh of every hundredth row, with the model open.
async fn refresh(spec: &str, lines: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("docs.csv");
    let write = |edited: &dyn Fn(usize) -> bool| write_rows(&csv, lines, ROWS, edited, " edited");
    write(&|_| false);
    let (_ctx, sg) = session(dir.path()).await;
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model(spec)
        .name("t");
    let (generate, _) = once(sg.generate_embeddings(table)).await;
    let mut least = Duration::MAX;
    for round in 0..ROUNDS {
        write(&|row| row % 100 <= round);
        let (time, report) = once(sg.refresh_embeddings("t", Default::default())).await;
        assert_eq!(report.unwrap().inferred_rows as usize, ROWS.div_ceil(100));
        least = least.min(time);
    }
    println!(
        "\nrefresh of 1 % of {ROWS} rows with candle / generate ({:.1} s): {:.4}",
        generate.as_secs_f64(),
        least.as_secs_f64() / generate.as_secs_f64()
    );
}
