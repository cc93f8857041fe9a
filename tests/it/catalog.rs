//! The catalog on an honest store: commits, history, pins, expiry, collection, status.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::resolve;
use stratagraph::catalog::{Catalog, Expire, Status};
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph::limits;
use stratagraph::sim::{FaultStore, Op};

use crate::support::append::append;
use crate::support::audit::{Told, audit, no_orphans, objects, process, process_on_files};

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

async fn versions(catalog: &Catalog, name: &str) -> Vec<u64> {
    let head = catalog.look().await.unwrap();
    let name = Name::parse(name).unwrap();
    let dataset = resolve::dataset(catalog.store(), &head, &name)
        .await
        .unwrap()
        .unwrap();
    let branch = dataset.main().unwrap();
    let manifest = BranchManifest::load(catalog.store(), &branch.manifest)
        .await
        .unwrap();
    let history = manifest
        .history
        .walk(catalog.store(), &mut |_| {})
        .await
        .unwrap();
    history
        .iter()
        .map(|e| e.version)
        .chain([manifest.version])
        .collect()
}

fn expire(name: &str, before: u64, include_base: bool) -> Expire {
    Expire {
        name: Name::parse(name).unwrap(),
        branch: BranchName::main(),
        branch_id: None,
        before,
        include_base,
        dataset: None,
        expired: Vec::new(),
    }
}

#[tokio::test]
async fn an_empty_store_has_an_empty_head() {
    let catalog = process(memory(), 1);
    let head = catalog.look().await.unwrap();
    assert_eq!((head.version, head.body.datasets.len()), (0, 0));
}

#[tokio::test]
async fn history_survives_hundreds_of_versions_and_a_cold_process() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    let mut told = Told::default();
    for i in 0..300 {
        let (txn, outcome) = append(&catalog, "t").await;
        assert_eq!(*outcome.as_ref().unwrap(), i);
        told.tell(txn, &outcome);
    }
    let cold = process(Arc::clone(&base), 2);
    assert_eq!(versions(&cold, "t").await, (0..300).collect::<Vec<_>>());
    let head = audit(base, &told).await.unwrap();
    let store = cold.store();
    let dataset = resolve::datasets(store, &head).await.unwrap()[0].1.clone();
    let manifest = BranchManifest::load(store, &dataset.main().unwrap().manifest)
        .await
        .unwrap();
    for version in [0, 15, 16, 255, 256, 298] {
        let entry = manifest.history.get(store, version).await.unwrap().unwrap();
        assert_eq!(entry.version, version);
    }
    assert!(manifest.history.get(store, 299).await.unwrap().is_none());
    let newest = manifest.history.newest(store, 40).await.unwrap();
    assert_eq!(
        newest.iter().map(|e| e.version).collect::<Vec<_>>(),
        (259..299).rev().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn two_processes_interleave_without_loss() {
    let base = memory();
    let (a, b) = (process(Arc::clone(&base), 1), process(Arc::clone(&base), 2));
    let mut told = Told::default();
    for i in 0..20 {
        let catalog = if i % 2 == 0 { &a } else { &b };
        let (txn, outcome) = append(catalog, "t").await;
        told.tell(txn, &outcome);
        // The other process still has the head of before: its first attempt loses and it looks.
        assert_eq!(outcome.unwrap(), i);
    }
    audit(base, &told).await.unwrap();
}

#[tokio::test]
async fn expiry_keeps_current_pinned_and_base_versions() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    for _ in 0..40 {
        append(&catalog, "t").await.1.unwrap();
        append(&catalog, "other").await.1.unwrap();
    }
    let (expired, swept) = catalog.expire(expire("t", 38, false)).await.unwrap();
    assert_eq!(expired, (1..38).collect::<Vec<_>>());
    assert!(swept.objects >= 37, "{swept:?}");
    assert_eq!(versions(&catalog, "t").await, vec![0, 38, 39]);
    assert_eq!(versions(&catalog, "other").await.len(), 40);
    let (expired, _) = catalog.expire(expire("t", u64::MAX, true)).await.unwrap();
    assert_eq!(expired, vec![0, 38]);
    let (expired, swept) = catalog.expire(expire("t", u64::MAX, true)).await.unwrap();
    assert_eq!((expired.len(), swept.objects), (0, 0));
    audit(Arc::clone(&base), &Told::default()).await.unwrap();
    no_orphans(Arc::clone(&base), 3).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_statement_of_this_process_keeps_what_it_reads() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    for _ in 0..3 {
        append(&catalog, "t").await.1.unwrap();
    }
    let pin = catalog.pin().await.unwrap();
    let old = resolve::datasets(catalog.store(), &pin).await.unwrap()[0]
        .1
        .main()
        .unwrap()
        .clone();
    append(&catalog, "t").await.1.unwrap();
    catalog.expire(expire("t", 3, true)).await.unwrap();
    catalog.collect_garbage(0, false).await.unwrap();
    let reader = process(Arc::clone(&base), 2);
    assert!(
        BranchManifest::load(reader.store(), &old.manifest)
            .await
            .is_ok()
    );
    drop(pin);
    let swept = catalog.collect_garbage(0, false).await.unwrap();
    assert!(swept.objects > 0);
    let reader = process(base, 3);
    assert!(
        BranchManifest::load(reader.store(), &old.manifest)
            .await
            .unwrap_err()
            .is_missing_object()
    );
}

#[tokio::test]
async fn a_writer_from_before_a_collection_is_fenced() {
    let base = memory();
    let (slow, other) = (process(Arc::clone(&base), 1), process(Arc::clone(&base), 2));
    append(&slow, "t").await.1.unwrap();
    let stage = slow.begin().await.unwrap();
    append(&other, "t").await.1.unwrap();
    other.collect_garbage(0, false).await.unwrap();
    slow.look().await.unwrap();
    let fenced = slow.commit(stage, NoOp).await.unwrap_err();
    assert_eq!(fenced.code(), "WriterFenced");
}

#[derive(Debug)]
struct NoOp;

#[async_trait::async_trait]
impl stratagraph::catalog::commit::Operation for NoOp {
    async fn prepare(
        &mut self,
        _: &mut stratagraph::catalog::commit::Attempt<'_>,
    ) -> stratagraph::Result<Option<stratagraph::catalog::commit::Edit>> {
        Ok(None)
    }
}

#[tokio::test]
async fn status_of_old_and_unknown_transactions() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    let (txn, outcome) = append(&catalog, "t").await;
    outcome.unwrap();
    let (txn, never) = (txn.unwrap(), TxnId::new(0, "never").unwrap());
    assert_eq!(
        catalog.commit_status(&txn, None).await.unwrap(),
        Status::Committed(1)
    );
    assert_eq!(
        catalog.commit_status(&never, None).await.unwrap(),
        Status::Unknown
    );
    assert_eq!(
        catalog.commit_status(&never, Some(1)).await.unwrap(),
        Status::NotCommitted
    );
    catalog.collect_garbage(0, false).await.unwrap();
    assert_eq!(
        catalog.commit_status(&never, None).await.unwrap(),
        Status::NotCommitted
    );
    for _ in 0..limits::FLOOR_SPAN + 2 {
        append(&catalog, "u").await.1.unwrap();
    }
    assert_eq!(
        catalog.commit_status(&txn, None).await.unwrap(),
        Status::Committed(1)
    );
    assert_eq!(
        catalog.commit_status(&never, None).await.unwrap(),
        Status::Unknown
    );
    // Where looks go by names, those of old slots go in order.
    let handle = FaultStore::new(Arc::clone(&base));
    let local = process_on_files(handle.store(), 3);
    let swept = local.collect_garbage(0, false).await.unwrap();
    assert_eq!(swept.objects, 0);
    let trace = handle.trace();
    let deleted = trace.iter().filter(|call| call.op == Op::Delete);
    let deleted: Vec<&str> = deleted
        .map(|call| call.key.as_str())
        .filter(|key| key.starts_with("catalog/"))
        .collect();
    assert!(deleted.len() > 2 && deleted.is_sorted(), "{deleted:?}");
    let cold = process(Arc::clone(&base), 2);
    assert_eq!(
        cold.look().await.unwrap().version,
        catalog.look().await.unwrap().version
    );
    assert!(
        cold.store().read_slot(1).await.unwrap().is_none(),
        "slots below the floor are trimmed"
    );
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn pins_forbid_dropping_and_expiring() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    let name = Name::parse("t").unwrap();
    for _ in 0..3 {
        append(&catalog, "t").await.1.unwrap();
    }
    let error = catalog
        .drop_pin(Name::parse("p").unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "NotFound");
    catalog.drop_dataset(&name).await.unwrap();
    assert_eq!(
        catalog.drop_dataset(&name).await.unwrap_err().code(),
        "NotFound"
    );
    no_orphans(base, 5).await.unwrap();
}

#[tokio::test]
async fn many_datasets_live_in_pages() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    for i in 0..200 {
        append(&catalog, &format!("d{:03}", (i * 37) % 200))
            .await
            .1
            .unwrap();
    }
    for i in (0..200).step_by(3) {
        catalog
            .drop_dataset(&Name::parse(&format!("d{i:03}")).unwrap())
            .await
            .unwrap();
    }
    let cold = process(Arc::clone(&base), 2);
    let head = cold.look().await.unwrap();
    let names: Vec<String> = resolve::datasets(cold.store(), &head)
        .await
        .unwrap()
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    let expected: Vec<String> = (0..200)
        .filter(|i| i % 3 != 0)
        .map(|i| format!("d{i:03}"))
        .collect();
    assert_eq!(names, expected);
    audit(Arc::clone(&base), &Told::default()).await.unwrap();
    no_orphans(base, 6).await.unwrap();
}

/// Slots of a store, by number.
async fn slots(base: &Arc<dyn ObjectStore>) -> Vec<object_store::path::Path> {
    let all = objects(base).await.into_iter().map(|(key, _)| key);
    let mut all: Vec<_> = all
        .filter(|key| key.as_ref().contains("catalog/"))
        .collect();
    all.sort_by_key(ToString::to_string);
    all
}

fn lists(handle: &FaultStore) -> usize {
    let trace = handle.trace();
    let lists = trace
        .iter()
        .filter(|call| matches!(call.op, Op::List | Op::ListOffset | Op::ListLevel));
    lists.count()
}

/// On files, where a list reads a directory of a thousand names.
#[tokio::test]
async fn looks_and_commits_on_files_ask_for_two_names() {
    let base = memory();
    let other = process(Arc::clone(&base), 1);
    append(&other, "t").await.1.unwrap();
    let handle = FaultStore::new(Arc::clone(&base));
    let here = process_on_files(handle.store(), 2);
    append(&here, "t").await.1.unwrap();
    handle.reset();
    for version in 3..6 {
        append(&here, "t").await.1.unwrap();
        assert_eq!(here.look().await.unwrap().version, version);
    }
    assert_eq!(lists(&handle), 0, "{:?}", handle.trace());
    append(&other, "t").await.1.unwrap();
    assert_eq!(here.look().await.unwrap().version, 6);
    assert!(lists(&handle) > 0);
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn looks_by_names_never_stick() {
    // What a collection has deleted of the twelve slots, and whether the cached one was made again since.
    for (deleted, remade) in [4, 5, 6, 9, 11]
        .into_iter()
        .flat_map(|d| [(d, false), (d, true)])
    {
        let base = memory();
        let other = process(Arc::clone(&base), 1);
        let here = process_on_files(Arc::clone(&base), 2);
        for _ in 0..5 {
            append(&other, "t").await.1.unwrap();
        }
        assert_eq!(here.look().await.unwrap().version, 5);
        for _ in 0..7 {
            append(&other, "t").await.1.unwrap();
        }
        let slots = slots(&base).await;
        for slot in &slots[..deleted] {
            base.delete(slot).await.unwrap();
        }
        if remade && deleted >= 5 {
            let delayed = base.put_opts(&slots[4], "delayed".into(), Default::default());
            delayed.await.unwrap();
        }
        let what = format!("{deleted} deleted, made again: {remade}");
        assert_eq!(here.look().await.unwrap().version, 12, "{what}");
    }
}

/// A store that an operator put back to an older copy, under a process that has seen more of it.
#[tokio::test]
async fn a_log_that_went_back_is_noticed() {
    for (lost, added) in [(1, 0), (2, 0), (5, 0), (1, 1), (2, 2), (2, 3)] {
        let base = memory();
        let old = process(Arc::clone(&base), 1);
        for _ in 0..5 {
            append(&old, "t").await.1.unwrap();
        }
        let seen = old.look().await.unwrap();
        assert_eq!(seen.version, 5);
        for slot in slots(&base).await.into_iter().rev().take(lost) {
            base.delete(&slot).await.unwrap();
        }
        let other = process(Arc::clone(&base), 2);
        for _ in 0..added {
            append(&other, "t").await.1.unwrap();
        }
        let what = format!("{lost} lost, {added} added");
        assert_eq!(old.look().await.unwrap_err().code(), "Corrupt", "{what}");
        // It is a state of its own for whoever opens it now.
        let fresh = process(Arc::clone(&base), 3);
        assert_eq!(
            fresh.look().await.unwrap().version,
            (5 - lost + added) as u64,
            "{what}"
        );
    }
}
