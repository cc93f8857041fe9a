//! Readers, lookup and compaction against a model in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, UInt64Type};
use futures::TryStreamExt;
use proptest::prelude::*;
use proptest::test_runner::Config;
use stratagraph::table::compact::compact;
use stratagraph::table::manifest::Layout;
use stratagraph::table::read::{KeyBounds, ReadOptions};
use stratagraph::table::schema::id;

use crate::support::tables::{
    EDGE_TYPE, NODE_TYPE, Placed, Row, TableBuilder, block_on, rows_of, scan, scan_placed,
};

/// (wide schema, rows as (key, seed), share of dead rows in percent, shift).
type Part = (bool, Vec<(String, u64)>, u8, Option<(u64, u64)>);

/// What a random table is made of.
#[derive(Debug, Clone)]
struct Plan {
    layout: Layout,
    fragments: Vec<Part>,
    batch_rows: usize,
}

fn key() -> impl Strategy<Value = String> {
    let short = "[a-c]{0,3}";
    let wide = prop::sample::select(vec!["ä", "é", "日本", "\u{10ffff}", "z\0", "a\u{ff}"]);
    // Long common prefixes make page bounds that are cut.
    let long = (0usize..4, "[a-b]{1,2}").prop_map(|(n, s)| "p".repeat(60 + n) + &s);
    let long_wide = (0usize..4, "[a-b]{0,2}").prop_map(|(n, s)| "q".repeat(61 + n) + "é日" + &s);
    prop_oneof![
        4 => short.prop_map(String::from),
        1 => wide.prop_map(String::from),
        2 => long,
        1 => long_wide,
        4 => (0u32..500).prop_map(|n| format!("k{n:04}")),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let layout = prop::sample::select(vec![Layout::Embedding, Layout::Node, Layout::Edge]);
    let rows = prop::collection::vec((key(), 0u64..1_000), 0..60);
    let shift = prop::option::of((0u64..1_000, 1u64..100));
    let fragment = (any::<bool>(), rows, 0u8..=100, shift);
    let fragments = prop::collection::vec(fragment, 0..6);
    (layout, fragments, 1usize..40).prop_map(|(layout, fragments, batch_rows)| Plan {
        layout,
        fragments,
        batch_rows,
    })
}

/// Builds the plan: keys are unique among live rows of graphs; embedding tables may repeat keys.
async fn build(plan: &Plan) -> TableBuilder {
    let mut builder = TableBuilder::new(plan.layout);
    let mut taken = BTreeSet::new();
    for (n, (wide, rows, dead, shift)) in plan.fragments.iter().enumerate() {
        let mut own = BTreeSet::new();
        let mut kept = Vec::new();
        for (key, seed) in rows {
            let unique = own.insert(key.clone()) || plan.layout == Layout::Embedding;
            if unique {
                kept.push(Row::new(key, *seed));
            }
        }
        let entry = builder.add(n as u64 * 2, *wide, &kept).await;
        if kept.is_empty() {
            continue;
        }
        if let (Some((base, by)), false) = (shift, plan.layout == Layout::Embedding) {
            builder.shift(entry, NODE_TYPE, *base, *by);
            if plan.layout == Layout::Edge {
                builder.shift(entry, EDGE_TYPE, base / 2, by * 2);
            }
        }
        let mine: Vec<Placed> = builder
            .model
            .iter()
            .filter(|p| p.entry == entry)
            .cloned()
            .collect();
        let repeats =
            |p: &Placed| plan.layout != Layout::Embedding && !taken.insert(p.row.key.clone());
        let mut repeats = repeats;
        let chosen = mine.iter().filter(|p| {
            let random = (u64::from(p.position) * 37 + n as u64 * 11) % 100 < u64::from(*dead);
            random || repeats(p)
        });
        let dead = chosen.map(|p| p.position).collect();
        builder.kill(entry, &dead);
    }
    builder
}

async fn check_scan(plan: &Plan, builder: &mut TableBuilder) {
    let table = builder.finish().await;
    let reader = builder.reader(&table);
    let live = builder.live();
    let expected: Vec<_> = live
        .iter()
        .map(|p| (p.entry, p.position, p.row.clone()))
        .collect();
    assert_eq!(scan_placed(&reader, plan.batch_rows).await, expected);

    // A projection of one column, in bounds.
    let keys = KeyBounds {
        from: Some("b".to_owned()),
        before: Some("k02".to_owned()),
    };
    let columns = Some(vec![id::FIRST_USER]);
    let options = ReadOptions {
        columns,
        keys,
        ..ReadOptions::default()
    };
    let inside = |p: &&Placed| ("b".."k02").contains(&p.row.key.as_str());
    let expected: Vec<_> = live
        .iter()
        .filter(inside)
        .map(|p| p.row.text.clone())
        .collect();
    let mut found = Vec::new();
    for batch in scan(&reader, &options).await {
        assert_eq!(batch.num_columns(), 1);
        let texts = arrow::array::AsArray::as_string::<i32>(batch.column(0));
        found.extend(texts.iter().map(|t| t.map(str::to_owned)));
    }
    assert_eq!(found, expected);
}

async fn check_lookup(
    builder: &TableBuilder,
    table: &Arc<stratagraph::table::manifest::TableManifest>,
) {
    let reader = builder.reader(table);
    let mut wanted: BTreeSet<String> = builder.model.iter().map(|p| p.row.key.clone()).collect();
    wanted.extend(["", "absent", "k0001x", "ä", "\u{10ffff}\u{10ffff}"].map(String::from));
    let keys: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let found = reader.lookup(&keys).await.unwrap();
    let mut expected = Vec::new();
    for placed in builder.model.iter().filter(|p| !p.dead) {
        let rid = (builder.layout != Layout::Embedding).then_some(placed.row.rid);
        let key = placed.row.key.as_str();
        expected.push((key, placed.entry, placed.position, rid, placed.row.hash));
    }
    expected.sort();
    let found: Vec<_> = found
        .iter()
        .map(|f| (keys[f.key], f.entry, f.position, f.rid, f.hash))
        .collect();
    assert_eq!(found, expected);
    for key in keys.iter().step_by(5) {
        let one = reader.lookup(&[key]).await.unwrap();
        assert_eq!(
            one.len(),
            expected.iter().filter(|e| e.0 == *key).count(),
            "{key:?}"
        );
    }
}

/// Rows by row id, of each third one and of some that are not there.
async fn check_rows_of(
    builder: &TableBuilder,
    table: &Arc<stratagraph::table::manifest::TableManifest>,
) {
    if builder.layout == Layout::Embedding {
        return;
    }
    let reader = builder.reader(table);
    let live = || builder.model.iter().filter(|p| !p.dead);
    let mut wanted: BTreeSet<u64> = live().map(|p| p.row.rid).filter(|r| r % 3 == 0).collect();
    wanted.extend([1, 1 << 40, u64::MAX]);
    let rids: Vec<u64> = wanted.iter().copied().collect();
    let columns = [id::FIRST_USER + 1, id::ID];
    let mut found = Vec::new();
    for batch in reader.rows_of(&rids, &columns).await.unwrap() {
        let rids = batch.column(0).as_primitive::<UInt64Type>();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        let keys = batch.column(2).as_string::<i32>();
        for (row, number) in numbers.iter().enumerate() {
            found.push((rids.value(row), number, keys.value(row).to_owned()));
        }
    }
    found.sort();
    let rows = live().map(|p| &p.row).filter(|r| wanted.contains(&r.rid));
    let mut expected: Vec<_> = rows.map(|r| (r.rid, r.number, r.key.clone())).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert!(reader.rows_of(&[], &columns).await.unwrap().is_empty());
    let unknown = reader.rows_of(&rids, &[id::LAST]).await.unwrap_err();
    assert_eq!(unknown.code(), "InvalidArgument");
}

async fn check_compaction(plan: &Plan, builder: &mut TableBuilder) {
    let table = builder.finish().await;
    let reader = builder.reader(&table);
    let entries = reader.entries().await.unwrap();
    let before: Vec<Row> = scan_placed(&reader, 100)
        .await
        .into_iter()
        .map(|r| r.2)
        .collect();
    // All entries, and every second one.
    for step in [1, 2] {
        let some: Vec<_> = entries.iter().step_by(step).cloned().collect();
        let done = compact(&reader, &builder.env, &some, &mut builder.stage)
            .await
            .unwrap();
        assert_eq!(done.full, some.len() == entries.len());
        let (changes, replaced) = done.changes(table.next_entry, 99);
        assert_eq!(replaced.old, some.iter().map(|e| e.id).collect::<Vec<_>>());
        let mut compacted = table.as_ref().clone();
        compacted.entries = table
            .entries
            .apply(&builder.store, &mut builder.stage, changes)
            .await
            .unwrap();
        compacted.next_entry += 1;
        builder.stage.flush(&builder.store).await.unwrap();
        let reader = builder.reader(&Arc::new(compacted));
        let mut after: Vec<Row> = scan_placed(&reader, 7)
            .await
            .into_iter()
            .map(|r| r.2)
            .collect();
        let mut expected = before.clone();
        if plan.layout == Layout::Embedding {
            // Rows with one key stand in the order of their entries, which a compaction may change.
            after.sort_by(|a, b| a.partial_cmp(b).unwrap());
            expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        }
        assert_eq!(after, expected);
        for entry in reader
            .entries()
            .await
            .unwrap()
            .iter()
            .filter(|e| e.id == table.next_entry)
        {
            let fragment = entry.fragment.as_ref().unwrap();
            assert!(fragment.shift.is_empty() && fragment.dead.rows == 0);
            assert_eq!(entry.stamp, 99);
        }
    }
}

fn config(cases: u32) -> Config {
    let failure_persistence = None;
    Config {
        cases,
        failure_persistence,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn scans_lookups_and_compactions_agree_with_the_model(plan in plan()) {
        block_on(async {
            let mut builder = build(&plan).await;
            check_scan(&plan, &mut builder).await;
            let table = builder.finish().await;
            check_lookup(&builder, &table).await;
            check_rows_of(&builder, &table).await;
            check_compaction(&plan, &mut builder).await;
        });
    }
}

/// More than one row group, and more than one page in each: bounds, bloom filters and windows.
#[test]
fn tables_of_many_row_groups_agree_with_the_model() {
    block_on(async {
        for layout in [Layout::Embedding, Layout::Node, Layout::Edge] {
            let mut builder = TableBuilder::new(layout);
            let rows: Vec<Row> = (0..70_000)
                .map(|n| Row::new(&format!("k{:06}", n * 2), n))
                .collect();
            let entry = builder.add(0, true, &rows).await;
            let dead: BTreeSet<u32> = (0..70_000)
                .filter(|p| p % 3 == 0 || (4_000..9_000).contains(p))
                .collect();
            builder.kill(entry, &dead);
            let few: Vec<Row> = (0..50)
                .map(|n| Row::new(&format!("k{:06}", n * 2_801 + 1), n))
                .collect();
            builder.add(1, true, &few).await;
            let table = builder.finish().await;
            let reader = builder.reader(&table);
            let live = builder.live();
            let found = scan_placed(&reader, 8_192).await;
            assert_eq!(found.len(), live.len());
            assert!(
                found
                    .iter()
                    .zip(&live)
                    .all(|(f, p)| (f.0, f.1, &f.2) == (p.entry, p.position, &p.row))
            );

            let wanted: Vec<String> = (0..140_000)
                .step_by(997)
                .map(|n| format!("k{n:06}"))
                .collect();
            let keys: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let found: BTreeMap<&str, (u64, u32)> = reader
                .lookup(&keys)
                .await
                .unwrap()
                .iter()
                .map(|f| (keys[f.key], (f.entry, f.position)))
                .collect();
            let expected: BTreeMap<&str, (u64, u32)> = live
                .iter()
                .filter(|p| wanted.binary_search(&p.row.key).is_ok())
                .map(|p| (p.row.key.as_str(), (p.entry, p.position)))
                .collect();
            assert_eq!(found, expected);
            assert!(!expected.is_empty());

            check_rows_of(&builder, &table).await;
            let fresh = builder.reader(&table);
            assert!(fresh.lookup(&["k000001x"]).await.unwrap().is_empty());
            let entries = fresh.entries().await.unwrap();
            let file = &entries[0].fragment.as_ref().unwrap().file;
            assert!(
                fresh.count().bytes() < file.object.size / 4,
                "an absent key reads little"
            );
        }
    });
}

/// Keys that differ only behind the bytes that page bounds and key ranges keep.
#[test]
fn keys_with_long_common_prefixes_are_found() {
    block_on(async {
        for layout in [Layout::Embedding, Layout::Node, Layout::Edge] {
            let mut builder = TableBuilder::new(layout);
            let key = |n: u64| format!("{}{n:05}{}", "ü".repeat(31), "日".repeat((n % 3) as usize));
            let rows: Vec<Row> = (0..9_000).map(|n| Row::new(&key(n * 2), n)).collect();
            let entry = builder.add(0, true, &rows).await;
            let killed = (0..9_000).filter(|p| p % 2 == 1);
            builder.kill(entry, &killed.collect());
            let table = builder.finish().await;
            let mut wanted: Vec<String> = (0..18_000).step_by(7).map(key).collect();
            wanted.push("ü".repeat(31));
            wanted.push("ü".repeat(32));
            wanted.sort();
            let keys: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let found = builder.reader(&table).lookup(&keys).await.unwrap();
            let found: Vec<(&str, u32)> = found.iter().map(|f| (keys[f.key], f.position)).collect();
            let live = builder.live();
            let expected = live
                .iter()
                .filter(|p| wanted.binary_search(&p.row.key).is_ok());
            let mut expected: Vec<(&str, u32)> =
                expected.map(|p| (p.row.key.as_str(), p.position)).collect();
            expected.sort();
            assert_eq!(found, expected, "{layout:?}");
            assert!(found.len() > 600);
        }
    });
}

/// A fragment without a wide column is read in batches that its NULLs do not blow up.
#[test]
fn missing_wide_columns_keep_batches_small() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Node);
        let rows: Vec<Row> = (0..3_000)
            .map(|n| Row::new(&format!("k{n:05}"), n))
            .collect();
        builder.add(0, true, &rows).await;
        let mut table = builder.finish().await.as_ref().clone();
        let mut schema = table.schemas[1].clone();
        schema.id = 2;
        schema.columns.push(stratagraph::table::manifest::Column {
            id: 40,
            name: "wide".to_owned(),
            data_type: "fixed_size_list<float32,65536>".to_owned(),
            nullable: true,
        });
        table.schemas.push(schema);
        let reader = builder.reader(&Arc::new(table));
        let mut rows = 0;
        let mut stream = reader.scan(&ReadOptions::columns(&[40])).await.unwrap();
        while let Some(batch) = stream.try_next().await.unwrap() {
            assert!(batch.num_rows() <= 128);
            rows += batch.num_rows();
        }
        assert_eq!(rows, 3_000);
    });
}

#[test]
fn a_lookup_wants_sorted_keys() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Node);
        builder.add(0, true, &[Row::new("a", 1)]).await;
        let table = builder.finish().await;
        let reader = builder.reader(&table);
        for keys in [["b", "a"], ["a", "a"]] {
            assert_eq!(
                reader.lookup(&keys).await.unwrap_err().code(),
                "InvalidArgument"
            );
        }
        assert!(reader.lookup(&[]).await.unwrap().is_empty());
        assert_eq!(
            rows_of(
                Layout::Node,
                &scan(&reader, &ReadOptions::default()).await[0]
            )
            .len(),
            1
        );
    });
}
