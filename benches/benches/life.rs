//! The life of one table, step by step, beside a peer that does the same: milliseconds, not ratios.
//! `bench/b_jammi.py`'s steps; the peer's own figures are in README.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use stratagraph_udfs::{
    BuildIndex, CompactOptions, GenerateEmbeddings, Options, RefreshReport, Stratagraph, install,
};

use crate::timing::{AsyncRun, Sql, least, once};

const WORDS: [&str; 22] = [
    "apple", "river", "engine", "violet", "quartz", "harbor", "meadow", "copper", "signal",
    "falcon", "marble", "thunder", "lantern", "orchid", "granite", "saddle", "compass", "walnut",
    "beacon", "cinder", "ember", "glacier",
];

fn text(i: usize) -> String {
    let mut state = i as u64;
    let mut words = String::new();
    for _ in 0..3 + i % 9 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        words += WORDS[(state >> 33) as usize % WORDS.len()];
        words.push(' ');
    }
    words + &format!("number {i}")
}

pub fn save(path: &Path, rows: &[String]) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows.len() as i64));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub async fn session(dir: &Path, source: &Path) -> (SessionContext, Stratagraph) {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    ctx.register_parquet(
        "docs",
        source.to_str().unwrap(),
        ParquetReadOptions::default(),
    )
    .await
    .unwrap();
    let options = Options::new(dir.join("store").to_str().unwrap());
    let sg = install(&ctx, options).await.unwrap();
    (ctx, sg)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

struct Life {
    ctx: SessionContext,
    sg: Stratagraph,
    rows: Vec<String>,
    source: PathBuf,
}

impl Life {
    async fn refresh(&self, what: &str) -> RefreshReport {
        let (time, report) = once(self.sg.refresh_embeddings("t", Default::default())).await;
        let report = report.unwrap();
        println!("| {what} ({}) | {:.1} |", report.outcome, ms(time));
        report
    }

    async fn reads(&self, tag: &str) {
        let key = self.rows.len() / 2;
        let t = "sg.embeddings.t";
        let statements = [
            ("count(*)", format!("SELECT count(*) FROM {t}")),
            (
                "point read",
                format!("SELECT _row_id FROM {t} WHERE _row_id = '{key}'"),
            ),
            ("scan of vectors", format!("SELECT vector FROM {t}")),
            (
                "search, k = 10",
                "SELECT * FROM search('t', 'copper signal', 10)".to_owned(),
            ),
            (
                "search by id, k = 10",
                format!("SELECT * FROM search_by_id('t', '{key}', 10)"),
            ),
        ];
        for (what, sql) in statements {
            let mut run: [Box<dyn AsyncRun>; 1] = [Box::new(Sql(&self.ctx, sql))];
            let time = least(5, &mut run).await[0];
            println!("| {tag}: {what} | {:.1} |", ms(time));
        }
    }

    /// An index, searches through it, and a compaction that builds it anew.
    async fn indexed(&mut self) {
        let (time, built) = once(self.sg.build_index(BuildIndex::new("t", "vector"))).await;
        println!("| build_index, {} | {:.1} |", built.unwrap().kind, ms(time));
        self.reads("indexed").await;
        self.rows[3] += " w";
        save(&self.source, &self.rows);
        self.refresh("refresh, 1 row, indexed").await;
        self.reads("indexed, 1 row refreshed").await;
        let options = CompactOptions::default();
        let (time, done) = once(self.sg.compact_embeddings("t", options)).await;
        done.unwrap();
        println!("| compact, index built | {:.1} |", ms(time));
    }

    async fn of(n: usize) {
        println!("\n| {n} rows, hash:32 | ms |\n|---|---|");
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src.parquet");
        let rows: Vec<String> = (0..n).map(text).collect();
        save(&source, &rows);
        let (ctx, sg) = session(dir.path(), &source).await;
        let mut life = Self {
            ctx,
            sg,
            rows,
            source: source.clone(),
        };
        let table = GenerateEmbeddings::new("docs", ["text"], "id")
            .model("hash:32")
            .name("t");
        let (time, made) = once(life.sg.generate_embeddings(table)).await;
        made.unwrap();
        println!("| generate | {:.1} |", ms(time));
        life.reads("base").await;
        life.refresh("refresh, no change").await;
        life.refresh("refresh, no change").await;
        life.rows[n / 2] = "entirely new words here".to_owned();
        save(&source, &life.rows);
        life.refresh("refresh, 1 row").await;
        for step in [100, 10] {
            (0..n).step_by(step).for_each(|i| life.rows[i] += " zephyr");
            save(&source, &life.rows);
            life.refresh(&format!("refresh, 1/{step} of the rows"))
                .await;
        }
        for j in 0..8 {
            life.rows[j * 7 + 1] += " w";
            save(&source, &life.rows);
            let what = format!("refresh, 1 row, version {}", j + 4);
            life.refresh(&what).await;
        }
        life.reads("version 11").await;
        let (time, done) = once(life.sg.compact_embeddings("t", CompactOptions::default())).await;
        println!(
            "| compact, {} rows | {:.1} |",
            done.unwrap().live_rows,
            ms(time)
        );
        life.reads("compacted").await;
        life.indexed().await;
        let (time, checks) = once(life.sg.verify_materialization("t")).await;
        println!(
            "| verify, {} artifacts | {:.1} |",
            checks.unwrap().len(),
            ms(time)
        );
        let (time, gone) = once(life.sg.expire_versions("t", 12, false)).await;
        println!(
            "| expire, {} objects | {:.1} |",
            gone.unwrap().objects_deleted,
            ms(time)
        );
    }
}

pub async fn run() {
    for n in [20_000, 200_000] {
        Life::of(n).await;
    }
}
