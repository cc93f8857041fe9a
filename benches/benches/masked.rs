//! Masked scans against a plain Parquet scan of the same live rows.

use std::path::Path;
use std::sync::Arc;

use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionConfig, SessionContext};
use stratagraph::embed::{ModelPolicy, ModelRegistry};
use stratagraph_udfs::{GenerateEmbeddings, Options, Stratagraph, install};

use crate::dense::Dense;
use crate::timing::{AsyncRun, Sql, least, ratio};

/// Enough that reading them takes many times what planning does.
const ROWS: usize = 400_000;

/// A source of numbered texts without the rows for which `gone` holds.
pub fn write_source(
    path: &Path,
    rows: usize,
    gone: impl Fn(usize) -> bool,
    edited: impl Fn(usize) -> bool,
) {
    let mut text = "id,title\n".to_owned();
    for i in (0..rows).filter(|i| !gone(*i)) {
        let edit = if edited(i) { " edited" } else { "" };
        text += &format!(
            "{i:07},package number {i} does thing {} for group {}{edit}\n",
            i % 977,
            i % 31
        );
    }
    std::fs::write(path, text).unwrap();
}

pub async fn session(dir: &Path) -> (SessionContext, Stratagraph) {
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config(config);
    let csv = dir.join("docs.csv");
    ctx.register_csv("docs", csv.to_str().unwrap(), CsvReadOptions::new())
        .await
        .unwrap();
    let models = ModelRegistry::default();
    models.register("dense", Arc::new(Dense::new())).unwrap();
    let options = Options::new(dir.join("store").to_str().unwrap()).with_models(models);
    let options = options.with_model_policy(ModelPolicy {
        allow_paths_and_urls: true,
        ..ModelPolicy::default()
    });
    let sg = install(&ctx, options).await.unwrap();
    (ctx, sg)
}

fn scattered(i: usize, per_mille: usize) -> bool {
    // A multiplicative hash spreads the dead rows evenly and repeatably.
    (i.wrapping_mul(2_654_435_761) >> 7) % 1_000 < per_mille
}

pub async fn run() {
    println!("\n| dead rows | shape | query | masked / plain |\n|---|---|---|---|");
    for (per_mille, shape) in [
        (0, "none"),
        (1, "random"),
        (10, "random"),
        (50, "random"),
        (200, "random"),
        (500, "random"),
        (1, "clustered"),
        (10, "clustered"),
        (50, "clustered"),
        (200, "clustered"),
        (500, "clustered"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("docs.csv");
        write_source(&csv, ROWS, |_| false, |_| false);
        let (ctx, sg) = session(dir.path()).await;
        let table = GenerateEmbeddings::new("docs", ["title"], "id")
            .model("dense")
            .name("t");
        sg.generate_embeddings(table).await.unwrap();
        if per_mille > 0 {
            let cut = ROWS * per_mille / 1_000;
            write_source(
                &csv,
                ROWS,
                |i| {
                    if shape == "random" {
                        scattered(i, per_mille)
                    } else {
                        (40_000..40_000 + cut).contains(&i)
                    }
                },
                |_| false,
            );
            sg.refresh_embeddings("t", Default::default())
                .await
                .unwrap();
        }
        plain_copy(&ctx, dir.path()).await;
        for (name, select) in [
            ("vectors", "SELECT _row_id, vector FROM"),
            ("hashes", "SELECT _row_id, _content_hash FROM"),
        ] {
            let mut alternatives: [Box<dyn AsyncRun>; 2] = [
                Box::new(Sql(&ctx, format!("{select} sg.embeddings.t"))),
                Box::new(Sql(&ctx, format!("{select} plain"))),
            ];
            let times = least(9, &mut alternatives).await;
            println!(
                "| {} % | {shape} | {name} | {:.3} |",
                per_mille as f64 / 10.0,
                ratio(times[0], times[1])
            );
        }
    }
}

/// The live rows as DataFusion itself would keep them, in the writer settings of a fragment.
async fn plain_copy(ctx: &SessionContext, dir: &Path) {
    let path = dir.join("plain.parquet");
    let copy = format!(
        "COPY (SELECT * FROM sg.embeddings.t ORDER BY _row_id) TO '{}' STORED AS PARQUET OPTIONS (\
         'format.compression' 'zstd(1)', 'format.max_row_group_size' '65536', 'format.data_page_row_count_limit' '2048')",
        path.display()
    );
    ctx.sql("SET datafusion.execution.target_partitions = 1")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    ctx.sql(&copy).await.unwrap().collect().await.unwrap();
    ctx.sql("SET datafusion.execution.target_partitions = 2")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    ctx.register_parquet(
        "plain",
        path.to_str().unwrap(),
        ParquetReadOptions::default(),
    )
    .await
    .unwrap();
}
