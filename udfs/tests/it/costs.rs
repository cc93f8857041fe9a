//! What verbs cost, printed. Only in an optimised build do the numbers mean anything:
//! `cargo test --release -p stratagraph-udfs -- --ignored --nocapture costs`.

use std::time::Duration;

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use stratagraph_udfs::{GenerateEmbeddings, Options, Search, Wanted, install};

#[allow(clippy::disallowed_methods, reason = "a measurement")]
async fn best<F: AsyncFnMut()>(mut work: F) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..7 {
        let start = std::time::Instant::now();
        work().await;
        best = best.min(start.elapsed());
    }
    best
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn costs_of_a_refresh_without_changes() {
    const ROWS: usize = 200_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("docs.parquet").display().to_string();
    let ctx = SessionContext::new();
    let make = format!(
        "COPY (SELECT 'key ' || lpad(cast((value * 7919) % {ROWS} AS varchar), 7, '0') AS id, \
         'title of row ' || value AS title, repeat('words of body ' || (value % 1000) || ' ', 8) AS body \
         FROM range({ROWS})) TO '{path}' STORED AS PARQUET"
    );
    ctx.sql(&make).await.unwrap().collect().await.unwrap();
    ctx.register_parquet("docs", &path, ParquetReadOptions::default())
        .await
        .unwrap();
    let store = dir.path().join("store").display().to_string();
    let sg = install(&ctx, Options::new(store)).await.unwrap();
    let table = GenerateEmbeddings::new("docs", ["title", "body"], "id")
        .model("hash:64")
        .name("t");
    let report = sg.generate_embeddings(table).await.unwrap();
    assert_eq!(report.rows, ROWS as u64);

    let bare = best(async || {
        let sql = "SELECT id, content_hash(title, body) AS h FROM docs";
        let frame = ctx.sql(sql).await.unwrap();
        let streams = frame.execute_stream_partitioned().await.unwrap();
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|s| tokio::spawn(futures::StreamExt::collect::<Vec<_>>(s)))
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().iter().all(Result::is_ok));
        }
    })
    .await;
    let nothing = best(async || {
        let report = sg
            .refresh_embeddings("t", Default::default())
            .await
            .unwrap();
        assert_eq!(report.outcome, "no_change");
    })
    .await;
    println!(
        "scan and hash {bare:?}, no_change {nothing:?}: {:.2}x",
        nothing.as_secs_f64() / bare.as_secs_f64()
    );

    ctx.deregister_table("docs").unwrap();
    ctx.register_parquet("plain", &path, ParquetReadOptions::default())
        .await
        .unwrap();
    let edit = "CREATE VIEW docs AS SELECT id, CASE WHEN id = 'key 0000100' THEN 'x' || random() ELSE title END AS title, body FROM plain";
    ctx.sql(edit).await.unwrap().collect().await.unwrap();
    let one = best(async || {
        let report = sg
            .refresh_embeddings("t", Default::default())
            .await
            .unwrap();
        assert_eq!(report.changed, 1);
    })
    .await;
    let found = best(async || {
        let search = Search::new(Wanted::Text("words of body 7".to_owned()), 10);
        assert_eq!(sg.search("t", search).await.unwrap().len(), 10);
    })
    .await;
    println!("refresh of one row {one:?}, exact search {found:?}");
}
