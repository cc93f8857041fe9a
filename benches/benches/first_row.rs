//! Sequential store calls of a cold process before its first row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::{CsvReadOptions, SessionContext};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use stratagraph::sim::FaultStore;
use stratagraph_udfs::{GenerateEmbeddings, Options, install};

use crate::masked::write_source;

/// What every call takes, so that time counts the calls that wait for each other; much more than all
/// work between them.
const CALL: Duration = Duration::from_millis(400);

pub async fn run() {
    println!(
        "\n| fragment | sequential calls of a cold process to its first row | all calls |\n|---|---|---|"
    );
    for (rows, name) in [(1_000, "under 1 MiB"), (50_000, "over 1 MiB")] {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("docs.csv");
        write_source(&csv, rows, |_| false, |_| false);
        let store = Arc::new(InMemory::new());
        let ctx = SessionContext::new();
        ctx.register_csv("docs", csv.to_str().unwrap(), CsvReadOptions::new())
            .await
            .unwrap();
        let options = Options::new("memory:///bench").with_object_store(
            Arc::clone(&store) as _,
            Path::default(),
            true,
        );
        let sg = install(&ctx, options).await.unwrap();
        let table = GenerateEmbeddings::new("docs", ["title"], "id")
            .model("hash:64")
            .name("t");
        sg.generate_embeddings(table).await.unwrap();
        let counted = FaultStore::new(store);
        let slow = ThrottleConfig {
            wait_get_per_call: CALL,
            wait_list_per_call: CALL,
            wait_list_with_delimiter_per_call: CALL,
            ..ThrottleConfig::default()
        };
        let slow = Arc::new(ThrottledStore::new(counted.store(), slow));
        let ctx = SessionContext::new();
        let options =
            Options::new("memory:///bench").with_object_store(slow, Path::default(), true);
        #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
        let start = Instant::now();
        install(&ctx, options).await.unwrap();
        let mut rows = ctx
            .sql("SELECT * FROM sg.embeddings.t LIMIT 1")
            .await
            .unwrap()
            .execute_stream()
            .await
            .unwrap();
        let first = futures_next(&mut rows).await;
        assert!(first);
        let steps = start.elapsed().as_secs_f64() / CALL.as_secs_f64();
        println!(
            "| {name} | {} | {} |\n```\n{}```",
            steps.floor(),
            counted.calls(),
            counted.canonical_trace()
        );
    }
}

async fn futures_next(rows: &mut datafusion::execution::SendableRecordBatchStream) -> bool {
    std::future::poll_fn(|cx| rows.as_mut().poll_next(cx))
        .await
        .is_some_and(|b| b.is_ok())
}
