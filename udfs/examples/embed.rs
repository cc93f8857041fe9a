//! Stratagraph in a host: install it on the session you have, then use SQL or the typed verbs.
//!
//! `cargo run --package stratagraph-udfs --example embed`

use std::error::Error;

use datafusion::prelude::SessionContext;
use stratagraph_udfs::{Options, RefreshOptions, install};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ctx = SessionContext::new();
    let sg = install(&ctx, Options::new("memory:///example")).await?;

    // Any table of the session is a source.
    ctx.sql("CREATE TABLE docs AS SELECT * FROM (VALUES (1, 'red apple'), (2, 'blue sky')) v(id, title)")
        .await?;
    ctx.sql("SELECT \"table\", version, rows FROM generate_embeddings(docs, NULL, 'title', 'id', name => 'docs')")
        .await?
        .show()
        .await?;

    // The source changes; only what changed is embedded.
    ctx.sql("CREATE OR REPLACE TABLE docs AS SELECT * FROM (VALUES (1, 'red apple'), (2, 'blue sea'), (3, 'green tea')) v(id, title)")
        .await?;
    let report = sg.refresh_embeddings("docs", RefreshOptions::default()).await?;
    println!("version {}: {} added, {} changed", report.version, report.added, report.changed);

    ctx.sql("SELECT * FROM search('docs', 'a cup of tea', 2)").await?.show().await?;
    ctx.sql("SELECT count(*) FROM sg.embeddings.\"docs@0\"").await?.show().await?;
    Ok(())
}
