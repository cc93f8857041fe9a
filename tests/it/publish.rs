//! Transactions on embedding tables over an honest store.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::resolve;
use stratagraph::publish::Deletes;

use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::embedding::{
    Source, all_match, compact, content, expected, generate, refresh, table_name,
};

fn source() -> Source {
    Source::new(&[
        ("a", "red apple"),
        ("b", "blue sky"),
        ("c", ""),
        ("d", "green grass"),
    ])
}

#[tokio::test]
async fn a_table_follows_its_source() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let (catalog, source) = (process(Arc::clone(&base), 1), source());
    let first = generate(&catalog, &source).await.1.unwrap();
    assert_eq!((first.version, first.live_rows, first.rejects), (0, 3, 1));
    let ran = refresh(&catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    assert!(ran.published.is_none() && ran.inferred.is_empty());
    source.set("b", "blue sea");
    source.set("c", "now a text");
    source.set("e", " ");
    source.remove("d");
    let ran = refresh(&catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    let second = ran.published.unwrap();
    assert_eq!((second.version, second.parent_version), (1, Some(0)));
    assert_eq!(
        (second.live_rows, second.dead_rows, second.rejects),
        (3, 2, 1)
    );
    assert_eq!(ran.inferred.len(), 2);
    assert_eq!(
        content(&catalog, None).await.unwrap(),
        expected(&source.rows())
    );
    all_match(Arc::clone(&base)).await;
    source.set("a", "");
    refresh(&catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    assert_eq!(
        content(&catalog, None).await.unwrap(),
        expected(&source.rows())
    );
    let compacted = compact(&catalog, None).await.1.unwrap();
    assert_eq!(
        (compacted.version, compacted.live_rows, compacted.dead_rows),
        (3, 2, 0)
    );
    assert_eq!(
        content(&catalog, None).await.unwrap(),
        expected(&source.rows())
    );
    all_match(Arc::clone(&base)).await;
    assert_eq!(content(&catalog, Some(0)).await.unwrap().len(), 3);
    audit(Arc::clone(&base), &Told::default()).await.unwrap();
    no_orphans(base, 8).await.unwrap();
}

#[tokio::test]
async fn retain_keeps_rows_that_the_source_lost() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let (catalog, source) = (process(Arc::clone(&base), 1), source());
    generate(&catalog, &source).await.1.unwrap();
    source.remove("a");
    let ran = refresh(&catalog, &source, Deletes::Retain).await.1.unwrap();
    assert!(ran.published.is_none());
    source.set("z", "last");
    refresh(&catalog, &source, Deletes::Retain).await.1.unwrap();
    assert_eq!(content(&catalog, None).await.unwrap().len(), 4);
    all_match(base).await;
}

#[tokio::test]
async fn a_rebased_compaction_keeps_what_winners_did() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let (slow, fast, source) = (
        process(Arc::clone(&base), 1),
        process(Arc::clone(&base), 2),
        source(),
    );
    generate(&slow, &source).await.1.unwrap();
    for i in 0..3 {
        source.set("b", &format!("blue {i}"));
        refresh(&slow, &source, Deletes::Tombstone).await.1.unwrap();
    }
    // The slow process still believes in the head that it saw last: its first attempt loses.
    source.set("a", "other");
    source.remove("d");
    source.set("n", "new");
    refresh(&fast, &source, Deletes::Tombstone).await.1.unwrap();
    let compacted = stale_compact(&slow).await;
    assert_eq!(compacted, 5);
    assert_eq!(
        content(&fast, None).await.unwrap(),
        expected(&source.rows())
    );
    all_match(Arc::clone(&base)).await;
    source.set("a", "third");
    refresh(&slow, &source, Deletes::Tombstone).await.1.unwrap();
    assert_eq!(
        content(&fast, None).await.unwrap(),
        expected(&source.rows())
    );
    all_match(base).await;
}

/// Compacts on the cached head, without looking first.
async fn stale_compact(catalog: &Arc<stratagraph::catalog::Catalog>) -> u64 {
    use stratagraph::publish::{CompactRequest, Merge, Requester};
    let head = catalog.cached().unwrap();
    let dataset = resolve::embedding_dataset(catalog.store(), &head, &table_name())
        .await
        .unwrap()
        .id;
    let stage = catalog.begin().await.unwrap();
    let (name, requester) = (table_name(), Requester::default());
    let request = CompactRequest {
        name,
        dataset,
        merge: Merge::All,
        requester,
    };
    let done = stratagraph::publish::compact(catalog, stage, request)
        .await
        .unwrap();
    assert_eq!(done.attempts, 2);
    done.published.unwrap().version
}

#[tokio::test]
async fn partial_compactions_and_many_refreshes_agree_with_the_source() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let (catalog, source) = (process(Arc::clone(&base), 1), source());
    generate(&catalog, &source).await.1.unwrap();
    for i in 0..40u64 {
        source.set(&format!("k{}", i % 7), &format!("text {i}"));
        source.remove(&format!("k{}", (i * 3) % 7));
        refresh(&catalog, &source, Deletes::Tombstone)
            .await
            .1
            .unwrap();
        if i % 9 == 4 {
            compact(&catalog, Some(vec![i / 2, i / 2 + 1, i / 2 + 2]))
                .await
                .1
                .unwrap();
        }
        assert_eq!(
            content(&catalog, None).await.unwrap(),
            expected(&source.rows()),
            "{i}"
        );
    }
    all_match(Arc::clone(&base)).await;
    compact(&catalog, None).await.1.unwrap();
    assert_eq!(
        content(&catalog, None).await.unwrap(),
        expected(&source.rows())
    );
    all_match(base).await;
}

#[tokio::test]
async fn losers_rebase_and_never_infer_twice() {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let source = source();
    generate(&process(Arc::clone(&base), 1), &source)
        .await
        .1
        .unwrap();
    source.set("a", "changed by both");
    source.set("q", "added by both");
    let (one, two) = (process(Arc::clone(&base), 2), process(Arc::clone(&base), 3));
    let (first, second) = tokio::join!(
        refresh(&one, &source, Deletes::Tombstone),
        refresh(&two, &source, Deletes::Tombstone),
    );
    let (first, second) = (first.1.unwrap(), second.1.unwrap());
    let published = [&first, &second]
        .iter()
        .filter(|r| r.published.is_some())
        .count();
    assert_eq!(
        published, 1,
        "the loser finds its delta published: no_change"
    );
    assert_eq!(first.attempts + second.attempts, 3);
    assert!(first.inferred.len() == 2 && second.inferred.len() == 2);
    assert_eq!(content(&one, None).await.unwrap(), expected(&source.rows()));
    audit(base, &Told::default()).await.unwrap();
}
