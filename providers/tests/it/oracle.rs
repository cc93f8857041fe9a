//! Masked scans against the same rows in memory, under generated queries and configurations.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use roaring::RoaringBitmap;
use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph::table::read::{ReadOptions, TableReader};

use super::world::{Change, Row, World, batch, lines, plan_schema, query, rows};

/// A small generator; the sequence is the same everywhere.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// Dead positions: a share of `rows`, scattered or in runs.
fn mask(random: &mut Random, rows: usize, share: f64, clustered: bool) -> RoaringBitmap {
    let wanted = (rows as f64 * share).ceil() as u64;
    let mut dead = RoaringBitmap::new();
    while dead.len() < wanted {
        let at = random.below(rows as u64) as u32;
        let run = if clustered {
            1 + random.below(wanted.max(2)) as u32
        } else {
            1
        };
        dead.insert_range(at..(at + run).min(rows as u32));
    }
    dead
}

pub struct Case {
    pub world: World,
    pub live: Vec<Row>,
}

/// Fragments of `sizes` rows with interleaved keys, masked.
pub async fn case(random: &mut Random, sizes: &[usize], share: f64, clustered: bool) -> Case {
    let world = World::new();
    let mut change = Change::default();
    let mut live = Vec::new();
    let mut next = 0;
    for (i, size) in sizes.iter().enumerate() {
        // Two fragments cover the same keys, others their own.
        let start = if i == 1 { next / 2 } else { next };
        let rows = rows(start..start + size, i as u64);
        next = next.max(start + size);
        let dead = mask(random, *size, share, clustered);
        let alive = rows
            .iter()
            .enumerate()
            .filter(|(p, _)| !dead.contains(*p as u32));
        live.extend(alive.map(|(_, row)| row.clone()));
        change = change.and(rows, dead);
    }
    world.publish("t", change).await;
    Case { world, live }
}

/// The live rows as a table in memory, typed as plans see them.
fn oracle(ctx: &SessionContext, live: &[Row], schema: Arc<Schema>) {
    let mut sorted = live.to_vec();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let stored = batch(&sorted, &plan_schema());
    let typed = stored
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()).unwrap());
    let typed = RecordBatch::try_new(Arc::clone(&schema), typed.collect()).unwrap();
    let table = MemTable::try_new(schema, vec![vec![typed]]).unwrap();
    ctx.register_table("oracle", Arc::new(table)).unwrap();
}

fn predicate(random: &mut Random, keys: u64) -> String {
    let key = |random: &mut Random| format!("'k{:06}'", random.below(keys + keys / 8 + 1));
    match random.below(12) {
        0 => format!("_row_id = {}", key(random)),
        1 => format!("_row_id > {}", key(random)),
        2 => format!("_row_id between {} and {}", key(random), key(random)),
        3 => format!(
            "_row_id in ({}, {}, {})",
            key(random),
            key(random),
            key(random)
        ),
        4 => format!("n < {}", random.below(100)),
        5 => format!("city = 'c{}'", random.below(6)),
        6 => "n is null".to_owned(),
        7 => "city is not null and n % 2 = 0".to_owned(),
        8 => format!("n = {} or _row_id <= {}", random.below(100), key(random)),
        9 => format!("city like 'c%' and _row_id >= {} and n > 40", key(random)),
        10 => format!(
            "not (n between 10 and {}) and city <> 'c1'",
            10 + random.below(80)
        ),
        _ => format!(
            "vector[1] < {} and _row_id < {}",
            random.below(100),
            key(random)
        ),
    }
}

/// A query with `{t}` for the table, and whether its rows are determined.
fn generate(random: &mut Random, keys: u64) -> (String, bool) {
    let filter = match random.below(4) {
        0 => String::new(),
        _ => format!(" where {}", predicate(random, keys)),
    };
    let limit = random.below(300);
    match random.below(14) {
        0 => (format!("select * from {{t}}{filter}"), true),
        1 => (format!("select city, _row_id from {{t}}{filter}"), true),
        2 => (format!("select count(*) from {{t}}{filter}"), true),
        3 => (
            format!("select count(n), count(city), count(_row_id) from {{t}}{filter}"),
            true,
        ),
        4 => (
            format!("select min(_row_id), max(_row_id), min(n), max(n) from {{t}}{filter}"),
            true,
        ),
        5 => (format!("select 1 from {{t}}{filter}"), true),
        6 => (
            format!("select _row_id from {{t}}{filter} limit {limit}"),
            false,
        ),
        7 => (
            format!(
                "select n, _row_id from {{t}}{filter} order by _row_id, n limit {limit} offset 3"
            ),
            true,
        ),
        8 => (
            format!("select city, count(*), sum(n) from {{t}}{filter} group by city"),
            true,
        ),
        9 => (format!("select distinct n from {{t}}{filter}"), true),
        10 => (
            format!(
                "select _row_id, n, city from {{t}}{filter} order by n desc nulls last, _row_id, city limit {limit}"
            ),
            true,
        ),
        11 => (
            format!(
                "select a.city, count(*) from {{t}} a join {{t}} b on a._row_id = b._row_id{} group by 1",
                filter
                    .replace("_row_id", "a._row_id")
                    .replace("city", "a.city")
                    .replace(" n ", " a.n ")
                    .replace("(n ", "(a.n ")
                    .replace("vector", "a.vector")
            ),
            true,
        ),
        12 => (
            format!("select max(_row_id) from {{t}}{filter} limit 1"),
            true,
        ),
        _ => (
            format!("select _content_hash, vector from {{t}}{filter}"),
            true,
        ),
    }
}

fn config(random: &mut Random) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(*random.pick(&[1, 2, 7]))
        .with_batch_size(*random.pick(&[100, 1024, 8192]));
    let options = config.options_mut();
    // One byte: every file is split by ranges.
    options.optimizer.repartition_file_min_size = *random.pick(&[1, 10 * 1024 * 1024]);
    options.execution.parquet.pushdown_filters = random.below(2) == 0;
    options.execution.parquet.reorder_filters = random.below(2) == 0;
    options.optimizer.prefer_hash_join = random.below(2) == 0;
    config
}

async fn check(ctx: &SessionContext, random: &mut Random, keys: u64) {
    let (text, determined) = generate(random, keys);
    let ours = text.replace("{t}", "sg.embeddings.t");
    let theirs = text.replace("{t}", "oracle");
    let statistics = random.below(2) == 0;
    query(ctx, &format!("set stratagraph.statistics = {statistics}"))
        .await
        .unwrap();
    let expected = query(ctx, &theirs)
        .await
        .unwrap_or_else(|e| panic!("{theirs}: {e}"));
    let plan = ctx
        .sql(&ours)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    let shown = || {
        datafusion::physical_plan::displayable(plan.as_ref())
            .indent(true)
            .to_string()
    };
    // Two plans at once, and one of them again. DataFusion keeps what a run learned (dynamic
    // filters) in a plan, also after a reset, so a plan with one cannot run twice.
    let twin = ctx.sql(&ours).await.unwrap();
    let twin = twin.create_physical_plan().await.unwrap();
    let (first, second) = futures::join!(
        collect(Arc::clone(&plan), ctx.task_ctx()),
        collect(twin, ctx.task_ctx())
    );
    let mut answers = vec![first, second];
    if !shown().contains("DynamicFilter") {
        let again = reset_plan_states(Arc::clone(&plan)).unwrap();
        answers.push(collect(again, ctx.task_ctx()).await);
    }
    for answer in answers
        .into_iter()
        .map(|rows| rows.unwrap_or_else(|e| panic!("{ours}: {e}")))
    {
        let (mut found, mut expected) = (lines(&answer), expected.clone());
        if determined {
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{ours}\n{}", shown());
        } else {
            assert_eq!(found.len(), expected.len(), "{ours}\n{}", shown());
        }
    }
}

async fn sweep(seed: u64, sizes: &[usize], shares: &[f64], queries: usize) {
    let mut random = Random(seed);
    for share in shares {
        for clustered in [false, true] {
            let case = case(&mut random, sizes, *share, clustered).await;
            let keys = sizes.iter().sum::<usize>() as u64;
            for _ in 0..3 {
                let ctx = case.world.session(config(&mut random)).await;
                let table = ctx.table("sg.embeddings.t").await.unwrap();
                let schema = table.schema().as_arrow().clone();
                oracle(&ctx, &case.live, Arc::new(schema));
                for _ in 0..queries.div_ceil(3) {
                    check(&ctx, &mut random, keys).await;
                }
            }
        }
    }
}

const SHARES: [f64; 6] = [0.0, 0.001, 0.01, 0.05, 0.2, 0.5];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_scans_equal_the_rows_that_are_left() {
    sweep(11, &[5_000, 3_000, 700, 1], &SHARES, 36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_scans_of_many_row_groups_equal_the_rows_that_are_left() {
    sweep(12, &[70_000, 900], &[0.01, 0.5], 18).await;
}

#[tokio::test]
async fn both_readers_show_the_same_rows() {
    let mut random = Random(13);
    for share in SHARES {
        let clustered = random.below(2) == 0;
        let case = case(&mut random, &[4_500, 2_000, 10], share, clustered).await;
        let ctx = case.world.session(SessionConfig::new()).await;
        let sql = "select * from sg.embeddings.t order by _row_id, n, city";
        let mut by_sql = query(&ctx, sql).await.unwrap();
        let head = case.world.catalog.look().await.unwrap();
        let name = Name::parse("t").unwrap();
        let snapshot = resolve::table(&case.world.store, &head, &name, None)
            .await
            .unwrap();
        let store = Arc::clone(&case.world.store);
        let reader = TableReader::new(store, case.world.catalog.env(), Arc::clone(&snapshot.table));
        let stream = reader.scan(&ReadOptions::default()).await.unwrap();
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        let mut by_engine = lines(&batches);
        assert_eq!(
            by_sql.len() as u64,
            snapshot.table.live_rows.max(case.live.len() as u64)
        );
        by_sql.sort();
        by_engine.sort();
        assert_eq!(by_sql, by_engine, "{share}");
    }
}
