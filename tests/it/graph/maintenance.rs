//! Tail merge and optimisation: rows move, nothing else does.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::At;
use stratagraph::catalog::slot::CommitKind;
use stratagraph::publish::Requester;
use stratagraph::publish::graph::{GraphCommit, GraphWrite, Removed, TableWrite, write_graph};
use stratagraph::sim::Rng;
use stratagraph::store::layout;
use stratagraph::table::schema::arrow_schema;

use super::branches::expire_request;
use super::branches::model::some_change;
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, KNOWS, PERSON, change, content, create, fork, fragments, merge, merge_of,
    optimize, prepare, read, row_ids, state,
};
use crate::sweep::crash::block_on;

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// Ids keep their row ids as long as they live.
fn check_row_ids(before: &BTreeMap<(u64, String), u64>, after: &BTreeMap<(u64, String), u64>) {
    for (key, rid) in after {
        assert_eq!(
            before.get(key).unwrap_or(rid),
            rid,
            "{key:?} has another row id"
        );
    }
}

/// Random changes, each a commit: contents, row ids, and every older state stay what they were.
async fn moves(seed: u64) {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    create(&catalog).await.unwrap();
    let (mut rng, mut model, mut states) = (Rng::new(seed), Content::default(), Vec::new());
    let mut rids = BTreeMap::new();
    for step in 0..40 {
        let of = some_change(&mut rng);
        let commit = change(&catalog, "main", &of).await.unwrap();
        model = of.on(&model);
        states.push((commit.commit_id, model.clone()));
        if rng.below(9) == 0 {
            let done = optimize(&catalog, "main").await.unwrap();
            states.extend(done.commit.map(|c| (c.commit_id, model.clone())));
            for (count, dead) in fragments(&catalog, "main").await {
                assert!(count <= 1 && dead == 0, "seed {seed}, step {step}");
            }
            let again = optimize(&catalog, "main").await.unwrap();
            assert_eq!((again.commit, again.head), (None, done.head));
        }
        let found = read(&catalog, "main").await.unwrap();
        assert_eq!(found, model, "seed {seed}, step {step}");
        let now = row_ids(&catalog, "main").await;
        check_row_ids(&rids, &now);
        rids = now;
    }
    for (id, expected) in &states {
        let old = state(&catalog, "main", &At::Commit(id.clone()))
            .await
            .unwrap();
        assert_eq!(
            content(&catalog, &old).await.unwrap(),
            *expected,
            "seed {seed}, {id}"
        );
    }
    audit(Arc::clone(&base), &Told::default()).await.unwrap();
    no_orphans(base, 9).await.unwrap();
}

#[test]
fn moved_rows_keep_content_row_ids_and_history() {
    for seed in 0..if soak() { 2_000 } else { 40 } {
        block_on(moves(seed));
    }
}

/// Commits one new person without reading anything but the head.
async fn insert(catalog: &Arc<Catalog>, key: &str) -> GraphCommit {
    let stage = catalog.begin().await.unwrap();
    let base = state(catalog, "main", &At::Head).await.unwrap();
    let table = base.table(catalog.store(), PERSON).await.unwrap().table;
    let rid = base.dataset.next_rids.get(&PERSON).copied().unwrap_or(0);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![rid])),
        Arc::new(StringArray::from(vec![key])),
        Arc::new(StringArray::from(vec![key])),
        Arc::new(Int64Array::from(vec![1])),
        Arc::new(StringArray::from(vec![None::<&str>])),
    ];
    let schema = arrow_schema(table.current_schema().unwrap()).unwrap();
    let write = TableWrite {
        type_id: PERSON,
        removed: Removed::Positions(BTreeMap::new()),
        fragments: Vec::new(),
        rows: vec![RecordBatch::try_new(schema, columns).unwrap()],
        new_rids: 1,
        insert_only: true,
    };
    let write = GraphWrite {
        base,
        fork: None,
        kind: CommitKind::Mutate,
        tables: vec![write],
        counts: BTreeMap::new(),
        requester: Requester::default(),
    };
    write_graph(catalog, stage, write).await.unwrap()
}

/// Bytes of the slot and of the objects of a commit that are not rows.
async fn beside_rows(catalog: &Catalog, commit: &GraphCommit) -> u64 {
    let prefix = format!("{}/{}", layout::DATA, commit.txn);
    let written = catalog.store().list(&prefix).await.unwrap();
    let other = written.iter().filter(|(key, _)| !key.ends_with(".parquet"));
    let head = catalog.look().await.unwrap().version;
    let slot = catalog.store().read_slot(head).await.unwrap().unwrap();
    other.map(|(_, size)| size).sum::<u64>() + slot.bytes.len() as u64
}

#[test]
fn one_row_commits_stay_small_at_every_depth() {
    block_on(async {
        let catalog = process(memory(), 1);
        create(&catalog).await.unwrap();
        let depth = if soak() { 10_000 } else { 700 };
        let (mut sum, mut most, mut widest) = (0, 0, 0);
        for n in 0..depth {
            // In no order, as names of people are.
            let key = format!("p{:08}", n * 7_919 % 100_003);
            let commit = insert(&catalog, &key).await;
            let bytes = beside_rows(&catalog, &commit).await;
            (sum, most) = (sum + bytes, most.max(bytes));
            let now = state(&catalog, "main", &At::Head).await.unwrap();
            let table = now.table(catalog.store(), PERSON).await.unwrap().table;
            assert_eq!(table.live_rows, n + 1);
            widest = widest.max(table.fragments);
        }
        println!(
            "{depth} commits: at most {widest} fragments, {} bytes each, at most {most}",
            sum / depth
        );
        assert!(widest <= 32, "{widest} fragments");
        assert!(sum / depth <= 32 * 1024, "{} bytes each", sum / depth);
        assert!(most <= 96 * 1024, "{most} bytes");
        let found = read(&catalog, "main").await.unwrap();
        assert_eq!(found.people.len() as u64, depth);
    });
}

#[test]
fn updates_of_one_row_leave_few_fragments() {
    block_on(async {
        let catalog = process(memory(), 1);
        create(&catalog).await.unwrap();
        let people = (0..40).fold(Change::default(), |c, n| c.person(&format!("p{n}"), n));
        change(&catalog, "main", &people).await.unwrap();
        for n in 0..60 {
            let one = Change::default().person(&format!("p{}", n % 40), 100 + n);
            let commit = change(&catalog, "main", &one).await.unwrap();
            assert!(beside_rows(&catalog, &commit).await <= 32 * 1024);
            let [(people, dead), _] = fragments(&catalog, "main").await;
            assert!(
                people <= 8 && dead <= 80,
                "{people} fragments, {dead} dead rows"
            );
        }
    });
}

/// Three branches of one history whose rows have moved: a merge takes the changes alone.
#[test]
fn a_merge_takes_no_moved_row_for_a_change() {
    block_on(async {
        let catalog = process(memory(), 1);
        create(&catalog).await.unwrap();
        for n in 0..9 {
            let name = format!("p{n}");
            change(&catalog, "main", &Change::default().person(&name, n))
                .await
                .unwrap();
        }
        let edges = (0..8).fold(Change::default(), |c, n| {
            c.knows(
                &format!("k{n}"),
                &format!("p{n}"),
                &format!("p{}", n + 1),
                n,
            )
        });
        change(&catalog, "main", &edges).await.unwrap();
        fork(&catalog, "b", "main").await.unwrap();
        // Rows of all fragments move on both sides, by tail merges and by an optimisation.
        change(&catalog, "b", &Change::default().person("on b", 1))
            .await
            .unwrap();
        optimize(&catalog, "b").await.unwrap();
        let of_main = Change::default().person("p3", 33).person("on main", 2);
        change(&catalog, "main", &of_main).await.unwrap();
        let mut preview = merge_of("b", "main");
        preview.dry_run = true;
        let told = merge(&catalog, preview).await.unwrap();
        assert_eq!((told.total, told.kind.as_str()), (0, "merged"));
        let rids = row_ids(&catalog, "main").await;
        merge(&catalog, merge_of("b", "main")).await.unwrap();
        let found = read(&catalog, "main").await.unwrap();
        assert_eq!(found.people["p3"].0, Some(33));
        assert_eq!((found.people.len(), found.knows.len()), (11, 8));
        check_row_ids(&rids, &row_ids(&catalog, "main").await);
        // Nothing was taken but the one row: the target's other rows lie where they lay.
        let manifest = state(&catalog, "main", &At::Head).await.unwrap().manifest;
        let killed = manifest.delta.iter().flat_map(|d| &d.killed);
        assert_eq!(killed.map(|k| k.positions.rows).sum::<u64>(), 0);
    });
}

/// A write that was prepared before an optimisation commits after it.
#[test]
fn a_prepared_write_finds_its_rows_again() {
    block_on(async {
        let catalog = process(memory(), 1);
        create(&catalog).await.unwrap();
        let people = (0..30).fold(Change::default(), |c, n| c.person(&format!("p{n:02}"), n));
        let all = people
            .knows("k1", "p01", "p02", 1)
            .knows("k2", "p03", "p04", 2);
        change(&catalog, "main", &all).await.unwrap();
        change(&catalog, "main", &Change::default().person("p05", 55))
            .await
            .unwrap();
        let mut stage = catalog.begin().await.unwrap();
        let seen = state(&catalog, "main", &At::Head).await.unwrap();
        let of = Change::default()
            .person("p05", 6)
            .without("p01")
            .person("new", 1);
        let write = prepare(&catalog, &mut stage, &seen, &of).await.unwrap();
        let before = read(&catalog, "main").await.unwrap();
        let done = optimize(&catalog, "main").await.unwrap();
        assert!(done.commit.is_some());
        write_graph(&catalog, stage, write).await.unwrap();
        assert_eq!(read(&catalog, "main").await.unwrap(), of.on(&before));
        // Rows changed meanwhile: the second write is told so.
        let mut stage = catalog.begin().await.unwrap();
        let seen = state(&catalog, "main", &At::Head).await.unwrap();
        let write = prepare(&catalog, &mut stage, &seen, &of).await.unwrap();
        change(&catalog, "main", &Change::default().person("p05", 1))
            .await
            .unwrap();
        optimize(&catalog, "main").await.unwrap();
        let lost = write_graph(&catalog, stage, write).await.unwrap_err();
        assert_eq!(lost.code(), "ReadSetChanged");
    });
}

#[test]
fn an_optimisation_says_what_it_did() {
    block_on(async {
        let catalog = process(memory(), 1);
        create(&catalog).await.unwrap();
        let nothing = optimize(&catalog, "main").await.unwrap();
        assert_eq!(nothing.commit, None);
        let all = Change::default()
            .person("a", 1)
            .person("b", 2)
            .knows("k", "a", "b", 1);
        change(&catalog, "main", &all).await.unwrap();
        let more = (0..9).fold(Change::default(), |c, n| c.person(&format!("p{n}"), n));
        change(&catalog, "main", &more.without("b")).await.unwrap();
        change(&catalog, "main", &Change::default().person("c", 3))
            .await
            .unwrap();
        let [(people, _), (edges, dead)] = fragments(&catalog, "main").await;
        assert_eq!((people, edges, dead), (2, 0, 0));
        let done = optimize(&catalog, "main").await.unwrap();
        let shown: Vec<(&str, u64, u64)> = done
            .types
            .iter()
            .map(|t| (t.name.as_str(), t.before, t.after))
            .collect();
        assert_eq!(shown, [("Person", 2, 1), ("Knows", 0, 0)]);
        let now = state(&catalog, "main", &At::Head).await.unwrap();
        assert_eq!(
            (now.manifest.commit.kind, now.commit_id()),
            (CommitKind::Optimize, &*done.head)
        );
        // What is expired afterwards takes the old fragments with it.
        let (expired, swept) = catalog
            .expire(expire_request("main", u64::MAX))
            .await
            .unwrap();
        assert_eq!(expired.len(), 4);
        assert!(swept.objects > 4);
        assert_eq!(read(&catalog, "main").await.unwrap().people.len(), 11);
        assert_eq!(KNOWS, 2);
    });
}
