//! What goes wrong in the peer's refresh (eight reproduced defects) and must not go wrong here.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::sim::{FaultBase, FaultStore, Gate, Op};
use stratagraph_udfs::{RefreshOptions, Search, Stratagraph, Wanted};

use crate::sweep::{Rows, block_on, generate, process};

const FIRST: Rows = &[("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")];
const SECOND: Rows = &[("a", "one"), ("b", "two 2"), ("c", "three"), ("d", "four")];
const THIRD: Rows = &[
    ("a", "one"),
    ("b", "two 2"),
    ("c", "three 3"),
    ("d", "four"),
];
const FOURTH: Rows = &[
    ("a", "one 4"),
    ("b", "two 2"),
    ("c", "three 3"),
    ("d", "four"),
];

/// The definition hash of `hash:8` over column `title` by key `id`, on every machine and build.
const HASH_8_TITLE_ID: &str = "f2f704c28066d5baf5b0722c883a66af382c9fff76f1adc97dd54dad9e80546b";

/// Lets other tasks run for a while that only the seed decides, before every store call.
#[derive(Debug)]
struct Jitter(std::sync::Mutex<u64>);

impl Gate for Jitter {
    fn pass(&self, _op: Op, _key: &str) -> BoxFuture<'static, ()> {
        let mut state = self.0.lock().unwrap();
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let yields = (*state >> 33) % 7;
        async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
        }
        .boxed()
    }
}

fn jittered(base: &Arc<FaultBase>, seed: u64) -> Arc<dyn ObjectStore> {
    let gate = Jitter(std::sync::Mutex::new(
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    ));
    FaultStore::on(base).with_gate(Arc::new(gate)).store()
}

async fn refreshed(store: &Arc<InMemory>, states: &[Rows]) {
    for (seed, rows) in (1..).zip(states) {
        let sg = process(Arc::clone(store) as _, seed, rows).await.unwrap();
        if seed == 1 {
            generate(&sg).await.unwrap();
        } else {
            let report = sg
                .refresh_embeddings("t", Default::default())
                .await
                .unwrap();
            assert_eq!(report.outcome, "published");
        }
    }
}

fn count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Every retained version can be read to its last row, and every artifact is whole.
async fn assert_whole(sg: &Stratagraph) {
    for version in sg.versions("t").await.unwrap() {
        let name = format!("t@{}", version.version);
        let rows = sg.read_vectors(&name).await.unwrap();
        assert_eq!(count(&rows) as u64, version.live_rows, "{name}");
    }
    let checks = sg.verify_materialization("t").await.unwrap();
    assert!(checks.iter().all(|c| c.verdict == "match"), "{checks:?}");
}

/// B1: an expiry that races a publish took the published version, and the table with it.
#[test]
fn an_expiry_that_races_a_publish_takes_no_version_that_is_current() {
    let mut overlapped = 0;
    for seed in 0..200 {
        overlapped += u64::from(block_on(async {
            let store = Arc::new(InMemory::new());
            refreshed(&store, &[FIRST, SECOND]).await;
            let base = FaultBase::new(Arc::clone(&store) as _);
            let writer = process(jittered(&base, seed * 2), 11, THIRD).await.unwrap();
            let expirer = process(jittered(&base, seed * 2 + 1), 12, FIRST)
                .await
                .unwrap();
            let (published, expired) = futures::join!(
                writer.refresh_embeddings("t", Default::default()),
                expirer.expire_versions("t", 1_000_000, seed % 2 == 0),
            );
            let (published, expired) = (published.unwrap(), expired.unwrap());
            assert_eq!(
                (published.version, published.changed),
                (2, 1),
                "seed {seed}"
            );
            let sg = process(store, 13, THIRD).await.unwrap();
            assert_whole(&sg).await;
            assert!(sg.versions("t").await.unwrap()[0].current);
            let again = sg
                .refresh_embeddings("t", Default::default())
                .await
                .unwrap();
            assert_eq!(again.outcome, "no_change", "seed {seed}");
            // Version 1 was current before the publish and is not after it.
            published.attempts > 1 || expired.expired_versions.contains('1')
        }));
    }
    println!("{overlapped} of 200 orders let one commit meet the other");
    assert!(overlapped > 20);
}

/// B2: files that a kept version lists went with an older version.
#[tokio::test]
async fn a_kept_version_keeps_what_it_lists() {
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[FIRST, SECOND, THIRD]).await;
    let sg = process(Arc::clone(&store) as _, 9, THIRD).await.unwrap();
    sg.compact_embeddings("t", Default::default())
        .await
        .unwrap();
    let expired = sg.expire_versions("t", 2, false).await.unwrap();
    assert_eq!(expired.expired_versions, "1");
    let cold = process(store, 10, THIRD).await.unwrap();
    let versions: Vec<u64> = cold
        .versions("t")
        .await
        .unwrap()
        .iter()
        .map(|v| v.version)
        .collect();
    assert_eq!(versions, [3, 2, 0]);
    assert_whole(&cold).await;
}

/// B3: garbage collection after an expiry deleted live data.
#[tokio::test]
async fn garbage_collection_after_an_expiry_takes_nothing_live() {
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[FIRST, SECOND, THIRD]).await;
    let sg = process(Arc::clone(&store) as _, 9, THIRD).await.unwrap();
    sg.expire_versions("t", 2, true).await.unwrap();
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0);
    let cold = process(store, 10, THIRD).await.unwrap();
    assert_whole(&cold).await;
    assert_eq!(count(&cold.read_vectors("t").await.unwrap()), 4);
}

/// B4: a fragment that was gone before planning was a silent short answer.
#[tokio::test]
async fn a_missing_fragment_is_an_error_and_never_a_short_answer() {
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[FIRST, SECOND]).await;
    let objects: Vec<_> = store
        .list(Some(&Path::from("data")))
        .try_collect()
        .await
        .unwrap();
    let mut fragments: Vec<_> = objects.iter().map(|o| o.location.clone()).collect();
    fragments.retain(|path| path.as_ref().ends_with(".parquet"));
    for fragment in fragments {
        let broken = Arc::new(store.fork());
        broken.delete(&fragment).await.unwrap();
        let sg = process(broken, 9, SECOND).await.unwrap();
        let listed = sg.verify_materialization("t").await.unwrap();
        assert!(listed.iter().any(|c| c.verdict == "missing"), "{fragment}");
        match sg.read_vectors("t").await {
            Err(error) => assert_eq!(error.code(), "Storage", "{fragment}"),
            // A mask object: rows are read by their bitmaps.
            Ok(rows) => assert_eq!(count(&rows), 4, "{fragment}"),
        }
    }
}

/// B5: one row that no model can embed made every refresh publish.
#[tokio::test]
async fn one_row_that_cannot_be_embedded_leaves_no_change_reachable() {
    const WITH_EMPTY: Rows = &[("a", "one"), ("b", ""), ("c", "three")];
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[WITH_EMPTY]).await;
    let sg = process(store, 9, WITH_EMPTY).await.unwrap();
    for _ in 0..3 {
        let report = sg
            .refresh_embeddings("t", Default::default())
            .await
            .unwrap();
        let counts = (report.version, report.unchanged, report.rejected_rows);
        assert_eq!((report.outcome.as_str(), counts), ("no_change", (0, 3, 1)));
    }
}

/// B6: an upgrade of the engine was drift. What decides is what changes vectors, and nothing else.
#[tokio::test]
async fn the_version_of_the_engine_is_no_part_of_a_definition() {
    let store = Arc::new(InMemory::new());
    let sg = process(Arc::clone(&store) as _, 1, FIRST).await.unwrap();
    generate(&sg).await.unwrap();
    let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut definitions = 0;
    for object in objects {
        let bytes = store
            .get(&object.location)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\"key_column\"") {
            definitions += 1;
            assert!(!text.contains(env!("CARGO_PKG_VERSION")), "{text}");
            assert!(!text.contains("engine"), "{text}");
        }
    }
    assert_eq!(definitions, 1);
    // A hash that another build, machine or path would give too.
    let again = sg.generate_embeddings(
        stratagraph_udfs::GenerateEmbeddings::new("docs", ["title"], "id")
            .model("hash:8")
            .name("again"),
    );
    let hash = again.await.unwrap().definition_hash;
    assert_eq!(hash, HASH_8_TITLE_ID);
}

/// B7: rows that `retain` keeps were not found by a search, because hits were joined to the source.
#[tokio::test]
async fn retained_rows_are_searchable() {
    const LESS: Rows = &[("a", "one")];
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[FIRST]).await;
    let sg = process(store, 9, LESS).await.unwrap();
    let report = sg
        .refresh_embeddings("t", RefreshOptions::retain())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome.as_str(), report.live_rows),
        ("no_change", 4)
    );
    let hits = sg
        .search("t", Search::new(Wanted::Text("four".to_owned()), 4))
        .await
        .unwrap();
    assert_eq!(hits.len(), 4);
    assert_eq!(hits[0]._row_id, "d");
    let report = sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    assert_eq!((report.deleted, report.live_rows), (3, 1));
}

/// Waits before the first read of a fragment until it is let on.
#[derive(Debug)]
struct Park {
    reached: tokio::sync::Semaphore,
    open: Arc<tokio::sync::Semaphore>,
}

impl Park {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reached: tokio::sync::Semaphore::new(0),
            open: Arc::new(tokio::sync::Semaphore::new(0)),
        })
    }

    async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    fn open(&self) {
        self.open.add_permits(10_000);
    }
}

impl Gate for Park {
    fn pass(&self, op: Op, key: &str) -> BoxFuture<'static, ()> {
        if op != Op::GetRanges || !key.ends_with(".parquet") {
            return futures::future::ready(()).boxed();
        }
        self.reached.add_permits(1);
        let open = Arc::clone(&self.open);
        async move { open.acquire().await.unwrap().forget() }.boxed()
    }
}

async fn parked(store: &Arc<InMemory>, rows: Rows) -> (Stratagraph, Arc<Park>) {
    let base = FaultBase::new(Arc::clone(store) as _);
    let park = Park::new();
    let gated = FaultStore::on(&base).with_gate(Arc::clone(&park) as _);
    (process(gated.store(), 21, rows).await.unwrap(), park)
}

/// A publish between candidates and rows mixes no versions: everything comes from one pin. The
/// control does in two calls what a pin does in one, and straddles the publish.
#[tokio::test]
async fn a_publish_between_candidates_and_rows_mixes_no_versions() {
    let store = Arc::new(InMemory::new());
    refreshed(&store, &[FIRST]).await;
    let expected = {
        let sg = process(Arc::new(store.fork()) as _, 5, FIRST)
            .await
            .unwrap();
        let graph = neighbors("expected");
        sg.neighbor_graph(graph).await.unwrap().identity
    };
    let (slow, park) = parked(&store, FIRST).await;
    let running = {
        let slow = slow.clone();
        tokio::spawn(async move { slow.neighbor_graph(neighbors("n")).await })
    };
    park.reached().await;
    let fast = process(Arc::clone(&store) as _, 22, FOURTH).await.unwrap();
    let published = fast
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    assert_eq!((published.version, published.changed), (1, 3));
    park.open();
    let made = running.await.unwrap().unwrap();
    assert_eq!(made.identity, expected);
    let stale = fast.staleness("n").await.unwrap();
    assert_eq!(
        (stale.state.as_str(), stale.reason.as_deref()),
        ("stale", Some("input_advanced"))
    );

    let pinned = fast.pin_current_version("t").await.unwrap();
    let anchor = pinned.input_anchor().clone();
    let query = || Search::new(Wanted::Row("b".to_owned()), 2);
    let (pinned_before, loose_before) = (
        pinned.search(query()).await.unwrap(),
        fast.search("t", query()).await.unwrap(),
    );
    let back = process(Arc::clone(&store) as _, 23, FIRST).await.unwrap();
    back.refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    assert_eq!(pinned.search(query()).await.unwrap(), pinned_before);
    assert_ne!(
        fast.search("t", query()).await.unwrap(),
        loose_before,
        "the control"
    );
    assert_eq!((pinned.input_anchor(), anchor.version), (&anchor, 1));
    let rows = datafusion::prelude::SessionContext::new()
        .read_table(pinned.pinned_provider().unwrap())
        .unwrap();
    assert_eq!(rows.count().await.unwrap(), 4);
}

fn neighbors(name: &str) -> stratagraph_udfs::NeighborGraph {
    stratagraph_udfs::NeighborGraph {
        table: "t".to_owned(),
        k: 2,
        min_similarity: None,
        name: Some(name.to_owned()),
    }
}

/// A statement whose version expires while it runs completes in this process; in another one it
/// completes or fails typed, never short.
#[tokio::test]
async fn a_version_that_expires_under_a_statement_is_never_short() {
    for same_process in [true, false] {
        let store = Arc::new(InMemory::new());
        refreshed(&store, &[FIRST, SECOND]).await;
        let (reader, park) = parked(&store, SECOND).await;
        let running = {
            let reader = reader.clone();
            tokio::spawn(async move { reader.read_vectors("t@0").await })
        };
        park.reached().await;
        let expirer = match same_process {
            true => reader,
            false => process(Arc::clone(&store) as _, 22, SECOND).await.unwrap(),
        };
        // An expiry reads no fragment, so it does not wait for the gate.
        let expired = expirer.expire_versions("t", 1, true).await.unwrap();
        assert_eq!(expired.expired_versions, "0");
        park.open();
        match running.await.unwrap() {
            Ok(rows) => assert_eq!(count(&rows), 4),
            Err(error) => {
                assert!(!same_process, "{error}");
                assert_eq!(error.code(), "Storage");
            }
        }
    }
}
