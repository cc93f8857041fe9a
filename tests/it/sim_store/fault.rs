use std::time::Duration;

use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode};
use stratagraph::sim::{Fault, FaultBase, FaultStore, Op};
use tokio::time::timeout;

use super::{create, find, keys, memory, put, read};

/// A handle whose first call meets `fault`.
fn faulty(fault: Fault) -> FaultStore {
    let store = FaultStore::new(memory());
    store.plan(0, fault);
    store
}

/// What is really stored.
async fn stored(store: &FaultStore, key: &str) -> Option<bytes::Bytes> {
    find(&*store.base().store(), key).await
}

fn is_injected(error: &Error) -> bool {
    matches!(
        error,
        Error::Generic {
            store: "FaultStore",
            ..
        }
    )
}

#[tokio::test]
async fn failing_before_leaves_nothing_and_stops_nothing() {
    let store = faulty(Fault::FailBefore);
    assert!(is_injected(&create(&store, "a", "x").await.unwrap_err()));
    assert_eq!(stored(&store, "a").await, None);
    create(&store, "a", "x").await.unwrap();
    assert!(!store.stopped());
}

#[tokio::test]
async fn a_lost_answer_leaves_the_effect() {
    let store = faulty(Fault::EffectThenFail);
    assert!(is_injected(&create(&store, "a", "x").await.unwrap_err()));
    assert_eq!(stored(&store, "a").await.unwrap(), "x");
    let again = create(&store, "a", "y").await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
}

#[tokio::test]
async fn a_stopped_handle_stays_stopped_and_others_go_on() {
    for (fault, left) in [
        (Fault::StopBefore, None),
        (Fault::EffectThenStop, Some("x")),
    ] {
        let base = FaultBase::new(memory());
        let (store, other) = (FaultStore::on(&base), FaultStore::on(&base));
        store.plan(0, fault);
        create(&store, "a", "x").await.unwrap_err();
        assert!(store.stopped());
        read(&store, "a").await.unwrap_err();
        assert_eq!(store.calls(), 1, "a process that ended makes no calls");
        assert_eq!(find(&other, "a").await.as_deref(), left.map(str::as_bytes));
        store.reset();
        create(&store, "b", "x").await.unwrap();
    }
}

#[tokio::test]
async fn a_conflict_says_taken_for_creates_only() {
    let store = faulty(Fault::Conflict409);
    let created = create(&store, "a", "x").await;
    assert!(
        matches!(created, Err(Error::AlreadyExists { .. })),
        "{created:?}"
    );
    assert_eq!(stored(&store, "a").await, None);
    store.plan(1, Fault::Conflict409);
    let written = put(&store, "a", "x", PutMode::Overwrite).await;
    assert!(is_injected(&written.unwrap_err()));
    assert_eq!(stored(&store, "a").await, None);
}

#[tokio::test]
async fn a_delayed_create_lands_after_calls_of_any_handle() {
    let base = FaultBase::new(memory());
    let (slow, other) = (FaultStore::on(&base), FaultStore::on(&base));
    slow.plan(0, Fault::Delayed(2));
    create(&slow, "a", "late").await.unwrap_err();
    assert_eq!(find(&other, "a").await, None);
    assert_eq!(find(&slow, "a").await, None);
    assert_eq!(base.pending(), 1);
    assert_eq!(find(&other, "a").await.unwrap(), "late");
    assert_eq!(base.pending(), 0);
}

#[tokio::test]
async fn a_delayed_create_loses_against_what_came_first_and_outlives_its_process() {
    let store = faulty(Fault::Delayed(100));
    store.plan(1, Fault::Delayed(100));
    create(&store, "a", "late").await.unwrap_err();
    create(&store, "b", "late").await.unwrap_err();
    create(&store, "a", "first").await.unwrap();
    store.stop();
    store.base().settle().await;
    assert_eq!(stored(&store, "a").await.unwrap(), "first");
    assert_eq!(stored(&store, "b").await.unwrap(), "late");
}

#[tokio::test]
async fn a_duplicated_create_makes_a_deleted_object_again() {
    let store = faulty(Fault::Duplicated(1));
    create(&store, "a", "x").await.unwrap();
    store.delete(&"a".into()).await.unwrap();
    assert_eq!(stored(&store, "a").await, None);
    assert_eq!(read(&store, "a").await.unwrap(), "x");
}

#[tokio::test]
async fn short_reads_deliver_a_part() {
    let store = FaultStore::new(memory());
    create(&store, "a/1", "0123456789").await.unwrap();
    create(&store, "a/2", "x").await.unwrap();
    store.plan(2, Fault::ShortRead);
    let got = store.get(&"a/1".into()).await.unwrap();
    let parts: Vec<_> = got.into_stream().collect().await;
    assert_eq!(parts[0].as_ref().unwrap(), "01234");
    assert!(is_injected(parts[1].as_ref().unwrap_err()));
    store.plan(3, Fault::Truncated);
    assert_eq!(read(&store, "a/1").await.unwrap(), "01234");
    store.plan(4, Fault::ShortRead);
    let listed: Vec<_> = store.list(None).collect().await;
    assert!(listed[0].is_ok() && listed[1].is_err() && listed.len() == 2);
    store.plan(5, Fault::Truncated);
    assert_eq!(keys(&store, None).await, ["a/1"]);
    store.plan(6, Fault::Truncated);
    let ranges = store
        .get_ranges(&"a/1".into(), &[0..4, 4..6])
        .await
        .unwrap();
    assert_eq!(ranges, ["01", "4"]);
}

#[tokio::test]
async fn a_hanging_call_never_answers() {
    let wait = Duration::from_millis(20);
    for (fault, left) in [(Fault::Hang, None), (Fault::EffectThenHang, Some("x"))] {
        let store = faulty(fault);
        timeout(wait, create(&store, "a", "x")).await.unwrap_err();
        assert_eq!(
            stored(&store, "a").await.as_deref(),
            left.map(str::as_bytes)
        );
        create(&store, "b", "x").await.unwrap();
    }
}

#[tokio::test]
async fn random_faults_follow_the_seed() {
    let kinds = [Fault::FailBefore, Fault::EffectThenFail];
    let mut seen = Vec::new();
    for seed in [7, 7, 8] {
        let store = FaultStore::new(memory());
        store.plan_random(seed, 0.3, &kinds);
        for n in 0..100 {
            let _ = create(&store, &format!("a/{n}"), "x").await;
        }
        seen.push(store.trace());
    }
    let faults = |n: usize| seen[n].iter().filter(|c| c.fault.is_some()).count();
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
    assert!((15..50).contains(&faults(0)), "{}", faults(0));
}

#[tokio::test]
async fn every_call_is_counted_and_named() {
    let store = FaultStore::new(memory());
    let key = Path::from("t/9/0001-X-1.parquet");
    create(&store, "catalog/00/0001.json", "{}").await.unwrap();
    create(&store, key.as_ref(), "0123456789").await.unwrap();
    create(&store, "t/9/0001-X-2.parquet", "0123456789")
        .await
        .unwrap();
    put(&store, "probe", "x", PutMode::Overwrite).await.unwrap();
    read(&store, key.as_ref()).await.unwrap();
    store.get_range(&key, 2..5).await.unwrap();
    store.get_ranges(&key, &[0..1, 3..4]).await.unwrap();
    store.head(&key).await.unwrap();
    let suffix = GetOptions::new().with_range(Some(GetRange::Suffix(4)));
    store.get_opts(&key, suffix).await.unwrap();
    keys(&store, Some("catalog")).await;
    let offset = Path::from("catalog/00");
    let listed = store.list_with_offset(Some(&"catalog".into()), &offset);
    assert_eq!(listed.collect::<Vec<_>>().await.len(), 1);
    store.list_with_delimiter(None).await.unwrap();
    store.copy(&key, &"copy.parquet".into()).await.unwrap();
    store
        .copy_if_not_exists(&key, &"copy.parquet".into())
        .await
        .unwrap_err();
    store.rename(&key, &"moved.parquet".into()).await.unwrap();
    let mut upload = store.put_multipart(&"big.arrow".into()).await.unwrap();
    upload.put_part("12345".into()).await.unwrap();
    upload.complete().await.unwrap();
    let mut upload = store.put_multipart(&"big.arrow".into()).await.unwrap();
    upload.abort().await.unwrap();
    let doomed = ["copy.parquet", "moved.parquet"].map(|k| Ok(k.into()));
    let gone = store.delete_stream(stream::iter(doomed).boxed());
    assert_eq!(gone.collect::<Vec<_>>().await.len(), 2);

    let expected = "\
PUT create catalog
PUT create .parquet x2
PUT overwrite probe
GET .parquet
GET range .parquet
GET ranges .parquet
HEAD .parquet
GET range .parquet
LIST catalog
LIST offset catalog
LIST level
COPY .parquet
COPY create .parquet
RENAME .parquet
UPLOAD begin .arrow
UPLOAD part .arrow
UPLOAD complete .arrow
UPLOAD begin .arrow
UPLOAD abort .arrow
DELETE .parquet x2
";
    assert_eq!(store.canonical_trace(), expected);
    let trace = store.trace();
    assert_eq!(store.calls(), trace.len() as u64);
    let bytes = |op| trace.iter().find(|c| c.op == op).unwrap().bytes;
    assert_eq!(bytes(Op::PutCreate), 2);
    assert_eq!(bytes(Op::Get), 10);
    assert_eq!(bytes(Op::GetRange), 3);
    assert_eq!(bytes(Op::GetRanges), 2);
    assert_eq!(bytes(Op::Head), 0);
    assert_eq!(bytes(Op::UploadPart), 5);
    assert_eq!(trace[1].to_string(), "1 PUT create t/9/0001-X-1.parquet 10");
}
