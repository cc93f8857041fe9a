//! Fifty small refreshes, then a tiered compaction: cost before and after, and bytes written.

use std::path::Path;

use stratagraph_udfs::{CompactOptions, GenerateEmbeddings};

use crate::life::{save, session};
use crate::timing::{AsyncRun, Sql, least, once, ratio};

const ROWS: usize = 100_000;
const REFRESHES: usize = 50;

fn bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|e| match e.metadata().unwrap() {
            m if m.is_dir() => bytes(&e.path()),
            m => m.len(),
        })
        .sum()
}

pub async fn run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src.parquet");
    let mut rows: Vec<String> = (0..ROWS)
        .map(|i| format!("text number {i} of group {}", i % 31))
        .collect();
    save(&source, &rows);
    let (ctx, sg) = session(dir.path(), &source).await;
    let table = GenerateEmbeddings::new("docs", ["text"], "id")
        .model("hash:32")
        .name("t");
    sg.generate_embeddings(table).await.unwrap();
    let store = dir.path().join("store");
    let base = bytes(&store);
    let scan = "SELECT _row_id, vector FROM sg.embeddings.t";
    let read = async || {
        let mut run: [Box<dyn AsyncRun>; 1] = [Box::new(Sql(&ctx, scan.to_owned()))];
        least(7, &mut run).await[0]
    };
    let read_first = read().await;
    let (mut first, mut last, mut written) = (None, None, Vec::new());
    for round in 0..REFRESHES {
        (0..ROWS / 1_000).for_each(|i| rows[(i * 1_000 + round * 17) % ROWS] += " edited");
        save(&source, &rows);
        let before = bytes(&store);
        let (time, report) = once(sg.refresh_embeddings("t", Default::default())).await;
        assert_eq!(report.unwrap().changed, 100);
        written.push(bytes(&store) - before);
        first = first.or(Some(time));
        last = Some(time);
    }
    let read_many = read().await;
    let (_, done) = once(sg.compact_embeddings("t", CompactOptions::tiered(4 << 20, 0.2))).await;
    let done = done.unwrap();
    let read_after = read().await;
    (0..ROWS / 1_000).for_each(|i| rows[i * 1_000 + 500] += " last");
    save(&source, &rows);
    let (after, report) = once(sg.refresh_embeddings("t", Default::default())).await;
    assert_eq!(report.unwrap().changed, 100);
    println!("\n| {REFRESHES} refreshes of 0.1 % of {ROWS} rows | |\n|---|---|");
    println!(
        "| read after {REFRESHES} / before | {:.2} |",
        ratio(read_many, read_first)
    );
    println!(
        "| read after tiered compaction ({}) / before | {:.2} |",
        done.outcome,
        ratio(read_after, read_first)
    );
    println!(
        "| last refresh / first | {:.2} |",
        ratio(last.unwrap(), first.unwrap())
    );
    println!(
        "| refresh after tiered compaction / first | {:.2} |",
        ratio(after, first.unwrap())
    );
    let (low, high) = (written.iter().min().unwrap(), written.iter().max().unwrap());
    println!("| bytes written by a refresh, of {base} in the store | {low} to {high} |");
}
