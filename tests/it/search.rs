//! Searches of a table through its whole life: the same rows and values with indexes and without.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::ann::{Metric, Query};
use stratagraph::catalog::{Catalog, resolve};
use stratagraph::embed::{HashEmbedder, Role, embed_checked};
use stratagraph::publish::Deletes;
use stratagraph::search::build::Index;
use stratagraph::search::{Allowed, Nearest, Positions, RowAt, TableSearch, take};
use stratagraph::table::read::TableReader;
use stratagraph::table::schema::id;
use stratagraph::text::{Mode, TextQuery};

use crate::support::audit::{Told, audit, no_orphans, objects, process};
use crate::support::embedding::{
    DIMENSIONS, Source, all_match, compact, expected, generate, index, indexes, refresh, restore,
    table_name,
};

/// Deterministic noise.
struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

const WORDS: [&str; 12] = [
    "red", "apple", "blue", "sky", "green", "grass", "key", "value", "store", "graph", "fast",
    "slow",
];

fn text(noise: &mut Noise) -> String {
    let words = (0..noise.below(5) + 1).map(|_| WORDS[noise.below(12) as usize]);
    words.collect::<Vec<_>>().join(" ")
}

async fn search_of(catalog: &Arc<Catalog>, version: Option<u64>) -> TableSearch {
    let head = catalog.look().await.unwrap();
    let table = resolve::table(catalog.store(), &head, &table_name(), version)
        .await
        .unwrap();
    let store = Arc::clone(catalog.store());
    TableSearch::new(TableReader::new(store, catalog.env(), table.table))
}

async fn vector_of(text: &str) -> Vec<f32> {
    let model = HashEmbedder::new(DIMENSIONS).unwrap();
    let embedded = embed_checked(&model, Role::Query, &[Some(text)])
        .await
        .unwrap();
    let vector = embedded.vectors.value(0);
    arrow::array::AsArray::as_primitive::<arrow::datatypes::Float32Type>(&vector)
        .values()
        .to_vec()
}

/// Keys with their distances, by comparing everything.
async fn oracle(rows: &BTreeMap<String, String>, query: &Query) -> Vec<(f32, String)> {
    let mut all = Vec::new();
    for (key, text) in rows.iter().filter(|(_, text)| !text.trim().is_empty()) {
        if let Some(distance) = query.distance(&vector_of(text).await) {
            all.push((distance, key.clone()));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    all
}

async fn keys(search: &TableSearch, rows: &[RowAt]) -> Vec<String> {
    let batch = take(search.reader(), rows, &[id::ROW_ID]).await.unwrap();
    let column = batch.column(0);
    let keys = arrow::array::AsArray::as_string::<i32>(column);
    keys.iter().map(|key| key.unwrap().to_owned()).collect()
}

/// The nearest rows are those of the oracle, for any k and any rows that may answer.
async fn agrees(search: &TableSearch, rows: &BTreeMap<String, String>, noise: &mut Noise) {
    let [Index::Vector { column, .. }, Index::Text(texts)] = indexes() else {
        panic!("two indexes");
    };
    let query = Query::new(Metric::Cosine, vector_of(&text(noise)).await).unwrap();
    let all = oracle(rows, &query).await;
    for k in [1, 2, 5, rows.len() + 3] {
        for exact in [true, false] {
            let wanted = Nearest {
                query: &query,
                k,
                exact,
            };
            let (found, _) = search
                .nearest(&column, wanted, &Allowed::All)
                .await
                .unwrap();
            let places: Vec<RowAt> = found.iter().map(|f| f.row).collect();
            let found = found
                .iter()
                .map(|f| f.value)
                .zip(keys(search, &places).await);
            let found: Vec<(f32, String)> = found.collect();
            assert_eq!(found, all[..k.min(all.len())], "k {k}, exact {exact}");
        }
    }
    let mut allowed = Positions::new();
    let mut permitted = Vec::new();
    for entry in search.reader().entries().await.unwrap().iter() {
        let live = search.live_rows(entry).await.unwrap();
        let some: roaring::RoaringBitmap = live.iter().filter(|_| noise.below(3) == 0).collect();
        let rows: Vec<RowAt> = some
            .iter()
            .map(|position| RowAt {
                entry: entry.id,
                position,
            })
            .collect();
        permitted.extend(keys(search, &rows).await);
        allowed.insert(entry.id, some);
    }
    let few: Vec<(f32, String)> = all
        .iter()
        .filter(|(_, k)| permitted.contains(k))
        .cloned()
        .collect();
    let allowed = Allowed::Rows(allowed);
    let wanted = Nearest {
        query: &query,
        k: 3,
        exact: false,
    };
    let (found, _) = search.nearest(&column, wanted, &allowed).await.unwrap();
    let places: Vec<RowAt> = found.iter().map(|f| f.row).collect();
    let wanted: Vec<String> = few.iter().take(3).map(|(_, key)| key.clone()).collect();
    assert_eq!(keys(search, &places).await, wanted);
    // Keys are texts here: a word of them finds exactly its row.
    let word = TextQuery::new(&texts.analyser, "k3", Mode::Bm25).unwrap();
    let found = search
        .matching(&texts, &word, 10, &Allowed::All)
        .await
        .unwrap();
    let live = rows.get("k3").is_some_and(|text| !text.trim().is_empty());
    assert_eq!(found.len(), usize::from(live));
}

#[tokio::test]
async fn a_table_is_searched_alike_with_indexes_and_without_at_every_version() {
    for seed in 0..6 {
        let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let catalog = process(Arc::clone(&base), 1);
        let mut noise = Noise(seed);
        let source = Source::default();
        for key in 0..30 {
            source.set(&format!("k{key}"), &text(&mut noise));
        }
        generate(&catalog, &source).await.1.unwrap();
        let mut past = vec![source.rows()];
        for step in 0..5 {
            if noise.below(2) == 0 {
                let attached = index(&catalog).await.1.unwrap();
                assert!(attached > 0);
            }
            for _ in 0..noise.below(6) + 1 {
                let key = format!("k{}", noise.below(35));
                match noise.below(4) {
                    0 => source.remove(&key),
                    1 => source.set(&key, ""),
                    _ => source.set(&key, &text(&mut noise)),
                }
            }
            let ran = refresh(&catalog, &source, Deletes::Tombstone)
                .await
                .1
                .unwrap();
            if ran.published.is_some() {
                past.push(source.rows());
            }
            if step == 3 {
                compact(&catalog, None).await.1.unwrap();
                past.push(source.rows());
            }
            agrees(&search_of(&catalog, None).await, &source.rows(), &mut noise).await;
        }
        for (version, rows) in past.iter().enumerate() {
            let search = search_of(&catalog, Some(version as u64)).await;
            agrees(&search, rows, &mut noise).await;
        }
        all_match(Arc::clone(&base)).await;
        audit(Arc::clone(&base), &Told::default()).await.unwrap();
        no_orphans(base, 8).await.unwrap();
    }
}

/// Fragments that are large enough to be searched by several tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_fragments_are_searched_alike_by_several_tasks() {
    const ROWS: usize = 9_000;
    let catalog = process(Arc::new(InMemory::new()), 1);
    let (mut noise, source) = (Noise(9), Source::default());
    for part in ["a", "b", "c"] {
        for key in 0..ROWS {
            source.set(&format!("{part}{key}"), &text(&mut noise));
        }
        match part {
            "a" => drop(generate(&catalog, &source).await.1.unwrap()),
            _ => drop(
                refresh(&catalog, &source, Deletes::Tombstone)
                    .await
                    .1
                    .unwrap(),
            ),
        }
    }
    let search = search_of(&catalog, None).await;
    let [Index::Vector { column, .. }, _] = indexes() else {
        panic!("two indexes");
    };
    for _ in 0..3 {
        let query = Query::new(Metric::Cosine, vector_of(&text(&mut noise)).await).unwrap();
        let all = oracle(&source.rows(), &query).await;
        for k in [1, 10, 700] {
            let wanted = Nearest {
                query: &query,
                k,
                exact: false,
            };
            let (found, searched) = search
                .nearest(&column, wanted, &Allowed::All)
                .await
                .unwrap();
            assert_eq!(searched.len(), 3);
            let places: Vec<RowAt> = found.iter().map(|f| f.row).collect();
            let values = found.iter().map(|f| f.value);
            let found: Vec<(f32, String)> = values.zip(keys(&search, &places).await).collect();
            assert!(found == all[..k], "k {k}: {found:?}");
        }
    }
}

#[tokio::test]
async fn an_index_changes_neither_version_nor_identity_nor_commit() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let catalog = process(Arc::clone(&base), 1);
    let source = Source::new(&[("a", "red apple"), ("b", "blue sky")]);
    generate(&catalog, &source).await.1.unwrap();
    let of = async || {
        let head = catalog.look().await.unwrap();
        let table = resolve::table(catalog.store(), &head, &table_name(), None)
            .await
            .unwrap();
        let commit = table.manifest.commit.id.clone();
        (table.version(), table.manifest.identity, commit)
    };
    let before = of().await;
    assert_eq!(index(&catalog).await.1.unwrap(), 2);
    assert_eq!(of().await, before);
    // What is there already is no change.
    let head = catalog.look().await.unwrap().version;
    source.set("c", "green grass");
    refresh(&catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    restore(&catalog, 0).await.1.unwrap();
    let restored = search_of(&catalog, None).await;
    let entries = restored.reader().entries().await.unwrap();
    let segments = entries.iter().filter_map(|e| e.fragment.as_ref());
    assert_eq!(segments.map(|f| f.segments.len()).sum::<usize>(), 2);
    assert!(catalog.look().await.unwrap().version > head);
    assert_eq!(
        crate::support::embedding::content(&catalog, None)
            .await
            .unwrap(),
        expected(&Source::new(&[("a", "red apple"), ("b", "blue sky")]).rows())
    );
}

#[tokio::test]
async fn a_damaged_index_is_left_aside() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let catalog = process(Arc::clone(&base), 1);
    let mut noise = Noise(9);
    let source = Source::default();
    for key in 0..20 {
        source.set(&format!("k{key}"), &text(&mut noise));
    }
    generate(&catalog, &source).await.1.unwrap();
    index(&catalog).await.1.unwrap();
    let segments: Vec<_> = objects(&base)
        .await
        .into_iter()
        .filter(|(key, _)| key.as_ref().ends_with(".idx"))
        .collect();
    assert_eq!(segments.len(), 2);
    for (key, bytes) in segments {
        for damage in 0..4 {
            let mut bad = bytes.to_vec();
            match damage {
                0 => bad[bytes.len() / 2] ^= 1,
                1 => bad.truncate(bytes.len() - 1),
                2 => bad.clear(),
                _ => {}
            }
            match damage {
                3 => base.delete(&key).await.unwrap(),
                _ => drop(
                    base.put_opts(&key, bad.into(), Default::default())
                        .await
                        .unwrap(),
                ),
            }
            let fresh = process(Arc::clone(&base), 2);
            agrees(&search_of(&fresh, None).await, &source.rows(), &mut noise).await;
            base.put_opts(&key, bytes.clone().into(), Default::default())
                .await
                .unwrap();
        }
    }
}
