//! Refreshes against generate and against a bare scan of the source, and counting.

use std::time::Duration;

use stratagraph_udfs::{GenerateEmbeddings, Stratagraph};

use crate::masked::{session, write_source};
use crate::timing::{AsyncRun, Sql, least, ratio};

const ROWS: usize = 100_000;

struct Refresh<'a>(&'a Stratagraph);

#[async_trait::async_trait]
impl AsyncRun for Refresh<'_> {
    async fn run(&mut self) {
        self.0
            .refresh_embeddings("t", Default::default())
            .await
            .unwrap();
    }
}

struct Generate<'a>(&'a Stratagraph, usize);

#[async_trait::async_trait]
impl AsyncRun for Generate<'_> {
    async fn run(&mut self) {
        self.1 += 1;
        let table = GenerateEmbeddings::new("docs", ["title"], "id")
            .model("hash:384")
            .name(format!("g{}", self.1));
        self.0.generate_embeddings(table).await.unwrap();
    }
}

pub async fn run() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("docs.csv");
    write_source(&csv, ROWS, |_| false, |_| false);
    let (ctx, sg) = session(dir.path()).await;
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("hash:384")
        .name("t");
    sg.generate_embeddings(table).await.unwrap();
    let hash = "SELECT max(content_hash(title)), count(id) FROM docs".to_owned();
    let times = least(7, &mut [Box::new(Refresh(&sg)), Box::new(Sql(&ctx, hash))]).await;
    println!("\n| what | ratio |\n|---|---|");
    println!(
        "| no-change refresh / bare scan-and-hash of the source | {:.2} |",
        ratio(times[0], times[1])
    );
    let generate = least(3, &mut [Box::new(Generate(&sg, 0))]).await[0];
    let mut one_percent = Duration::MAX;
    for round in 0..9 {
        // Each round edits another row of every hundred.
        write_source(&csv, ROWS, |_| false, |i| i % 100 <= round);
        let times = least(1, &mut [Box::new(Refresh(&sg))]).await;
        one_percent = one_percent.min(times[0]);
    }
    println!(
        "| refresh of 1 % of {ROWS} rows, hash:384 / generate | {:.3} |",
        ratio(one_percent, generate)
    );
    for extra in 0..6 {
        write_source(&csv, ROWS, |_| false, |i| i % 10_000 == extra);
        sg.refresh_embeddings("t", Default::default())
            .await
            .unwrap();
    }
    let versions = sg.versions("t").await.unwrap().len();
    let mut alternatives: [Box<dyn AsyncRun>; 2] = [
        Box::new(Sql(&ctx, "SELECT count(*) FROM sg.embeddings.t".to_owned())),
        Box::new(Sql(
            &ctx,
            "SELECT count(*) FROM (VALUES (1)) v(a)".to_owned(),
        )),
    ];
    let times = least(50, &mut alternatives).await;
    let above = times[0].as_secs_f64() * 1e3 - times[1].as_secs_f64() * 1e3;
    println!(
        "| count(*) after {versions} versions, milliseconds above the planning floor | {above:.2} |"
    );
}
