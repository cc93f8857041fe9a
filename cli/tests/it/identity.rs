//! The same generate and refresh through Rust, through SQL and through the program, on roots of their
//! own: equal identity, equal digests of fragments, equal counts.

use std::path::Path;
use std::process::Command;

use datafusion::arrow::util::display::array_value_to_string;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use stratagraph_udfs::{GenerateEmbeddings, Options, Stratagraph, install};

const GENERATE: &str = "SELECT rows, dropped_rows, identity FROM generate_embeddings(docs, 'hash:32', 'title', 'id', name => 't')";
const REFRESH: &str = "SELECT version, inferred_rows, added, changed, deleted, unchanged, dropped_rows, live_rows, masked_rows, outcome, rejected_rows FROM refresh_embeddings('t')";
const VERSIONS: &str = "SELECT version, identity FROM versions('t') ORDER BY version";
const FRAGMENTS: &str = "SELECT kind, expected, verdict FROM verify_materialization('t') WHERE kind IN ('fragment', 'mask', 'identity') ORDER BY kind, expected";

const BEFORE: &str = "id,title\n1,one\n2,two\n3,\n4,four\n";
const AFTER: &str = "id,title\n1,one\n2,changed\n3,\n5,five\n";

async fn session(dir: &Path, root: &str) -> (SessionContext, Stratagraph) {
    let ctx = SessionContext::new();
    let csv = dir.join("docs.csv");
    ctx.register_csv("docs", csv.to_str().unwrap(), CsvReadOptions::new())
        .await
        .unwrap();
    let sg = install(&ctx, Options::new(dir.join(root).to_str().unwrap()))
        .await
        .unwrap();
    (ctx, sg)
}

async fn sql(ctx: &SessionContext, sql: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in ctx.sql(sql).await.unwrap().collect().await.unwrap() {
        for row in 0..batch.num_rows() {
            let cells = batch
                .columns()
                .iter()
                .map(|c| array_value_to_string(c, row).unwrap());
            rows.push(cells.collect::<Vec<_>>().join(","));
        }
    }
    rows
}

fn program(dir: &Path, root: &str, sql: &str) -> Vec<String> {
    let create = format!(
        "CREATE EXTERNAL TABLE docs STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')",
        dir.join("docs.csv").display()
    );
    let out = Command::new(env!("CARGO_BIN_EXE_stratagraph"))
        .args([
            "--store",
            dir.join(root).to_str().unwrap(),
            "--format",
            "csv",
            "-q",
        ])
        .args(["-c", &create, "-c", sql])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_sql_and_the_program_agree() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("docs.csv"), text).unwrap();
    write(BEFORE);
    let (by_rust, sg) = session(dir.path(), "rust").await;
    let (by_sql, _) = session(dir.path(), "sql").await;
    let table = GenerateEmbeddings::new("docs", ["title"], "id")
        .model("hash:32")
        .name("t");
    let report = sg.generate_embeddings(table).await.unwrap();
    let rust = vec![format!(
        "{},{},{}",
        report.rows, report.dropped_rows, report.identity
    )];
    assert_eq!(rust, sql(&by_sql, GENERATE).await);
    assert_eq!(rust, program(dir.path(), "program", GENERATE));
    write(AFTER);
    let r = sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    let rust = vec![format!(
        "{},{},{},{},{},{},{},{},{},{},{}",
        r.version,
        r.inferred_rows,
        r.added,
        r.changed,
        r.deleted,
        r.unchanged,
        r.dropped_rows,
        r.live_rows,
        r.masked_rows,
        r.outcome,
        r.rejected_rows
    )];
    assert_eq!(rust, ["1,2,1,1,1,2,0,3,2,published,1"]);
    assert_eq!(rust, sql(&by_sql, REFRESH).await);
    assert_eq!(rust, program(dir.path(), "program", REFRESH));
    for query in [VERSIONS, FRAGMENTS] {
        let rust = sql(&by_rust, query).await;
        assert!(rust.len() >= 2);
        assert_eq!(rust, sql(&by_sql, query).await, "{query}");
        assert_eq!(rust, program(dir.path(), "program", query), "{query}");
    }
}
