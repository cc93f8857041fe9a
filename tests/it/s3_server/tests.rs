//! The server against `object_store`'s client.

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStoreExt, PutMode, PutPayload};

use super::*;

async fn create(store: &dyn ObjectStore, key: &str, data: &'static str) -> Result<(), Error> {
    let payload = PutPayload::from_static(data.as_bytes());
    let key = Path::from(key);
    let created = store.put_opts(&key, payload, PutMode::Create.into());
    created.await.map(drop)
}

async fn read(store: &dyn ObjectStore, key: &str) -> Bytes {
    let got = store.get(&key.into()).await.unwrap();
    got.bytes().await.unwrap()
}

async fn keys(store: &dyn ObjectStore, prefix: &str, offset: Option<&str>) -> Vec<String> {
    let prefix = Path::from(prefix);
    let listed = match offset {
        Some(offset) => store.list_with_offset(Some(&prefix), &offset.into()),
        None => store.list(Some(&prefix)),
    };
    let metas: Vec<_> = listed.try_collect().await.unwrap();
    metas.iter().map(|m| m.location.to_string()).collect()
}

fn fault(method: &'static str, target: &'static str, nth: usize, answer: Answer) -> Vec<Fault> {
    vec![Fault {
        method,
        target,
        nth,
        answer,
    }]
}

#[tokio::test]
async fn a_second_create_finds_the_name_taken() {
    let server = S3Server::start().await;
    let store = server.store();
    create(&*store, "a/1", "one").await.unwrap();
    let again = create(&*store, "a/1", "two").await;
    assert!(
        matches!(again, Err(Error::AlreadyExists { .. })),
        "{again:?}"
    );
    assert_eq!(read(&*store, "a/1").await, "one");
    assert_eq!(server.requests(), ["PUT a/1", "PUT a/1", "GET a/1"]);
}

#[tokio::test]
async fn a_lost_answer_reports_our_own_bytes_as_taken() {
    for answer in [Answer::ResetAfter, Answer::UnavailableAfter] {
        let server = S3Server::start().await;
        let store = server.store();
        server.script(fault("PUT", "slot", 0, answer));
        let created = create(&*store, "slot", "ours").await;
        assert!(
            matches!(created, Err(Error::AlreadyExists { .. })),
            "{answer:?}: {created:?}"
        );
        assert_eq!(read(&*store, "slot").await, "ours");
        assert_eq!(server.requests(), ["PUT slot", "PUT slot", "GET slot"]);
    }
}

#[tokio::test]
async fn a_conflict_reports_a_name_as_taken_that_is_free() {
    for answer in [Answer::Conflict, Answer::PreconditionFailed] {
        let server = S3Server::start().await;
        let store = server.store();
        server.script(fault("PUT", "slot", 0, answer));
        let created = create(&*store, "slot", "ours").await;
        assert!(
            matches!(created, Err(Error::AlreadyExists { .. })),
            "{created:?}"
        );
        let found = store.head(&"slot".into()).await;
        assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
        create(&*store, "slot", "ours").await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_or_slow_call_is_made_again_or_waited_for() {
    let server = S3Server::start().await;
    let store = server.store();
    server.script(fault("PUT", "slot", 0, Answer::UnavailableBefore));
    create(&*store, "slot", "ours").await.unwrap();
    server.script(fault(
        "GET",
        "slot",
        0,
        Answer::Slow(Duration::from_millis(30)),
    ));
    assert_eq!(read(&*store, "slot").await, "ours");
}

#[tokio::test]
async fn lists_come_in_pages_from_an_offset() {
    let server = S3Server::start().await;
    let store = server.store();
    let names: Vec<String> = (0..8).map(|n| format!("log/{n:03}")).collect();
    for name in &names {
        create(&*store, name, "x").await.unwrap();
    }
    create(&*store, "log/sub/deep & <odd>", "x").await.unwrap();
    create(&*store, "other/1", "x").await.unwrap();
    assert_eq!(keys(&*store, "log", Some("log/004")).await.len(), 4);
    assert_eq!(keys(&*store, "log", None).await.len(), 9);
    let before = server.requests().len();
    assert_eq!(keys(&*store, "log", Some("log/001")).await[..6], names[2..]);
    assert_eq!(server.requests().len() - before, 3, "three pages");
    let level = store
        .list_with_delimiter(Some(&"log".into()))
        .await
        .unwrap();
    assert_eq!(level.objects.len(), 8);
    assert_eq!(level.common_prefixes, [Path::from("log/sub")]);
    let top = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(
        top.common_prefixes,
        [Path::from("log"), Path::from("other")]
    );
}

#[tokio::test]
async fn reads_take_ranges_and_conditions() {
    let server = S3Server::start().await;
    let store = server.store();
    create(&*store, "a", "0123456789").await.unwrap();
    let key = Path::from("a");
    assert_eq!(store.get_range(&key, 2..5).await.unwrap(), "234");
    let last = GetOptions::new().with_range(Some(GetRange::Suffix(3)));
    let got = store.get_opts(&key, last).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "789");
    let meta = store.head(&key).await.unwrap();
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!((meta.size, &meta.e_tag), (10, &listed[0].e_tag));
    let matching = GetOptions::new().with_if_match(meta.e_tag);
    store.get_opts(&key, matching).await.unwrap();
    let other = GetOptions::new().with_if_match(Some("\"other\""));
    let refused = store.get_opts(&key, other).await;
    assert!(
        matches!(refused, Err(Error::Precondition { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn uploads_in_parts_and_bulk_deletes_work() {
    let server = S3Server::start().await;
    let store = server.store();
    let key = Path::from("big");
    let mut upload = store.put_multipart(&key).await.unwrap();
    let first = upload.put_part("first-".into());
    let second = upload.put_part("second".into());
    second.await.unwrap();
    first.await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(read(&*store, "big").await, "first-second");
    let mut upload = store.put_multipart(&"none".into()).await.unwrap();
    upload.put_part("x".into()).await.unwrap();
    upload.abort().await.unwrap();
    create(&*store, "small & <odd>", "x").await.unwrap();
    let all = keys(&*store, "", None).await;
    assert_eq!(
        all,
        ["big", "small & <odd>"].map(|k| Path::from(k).to_string())
    );
    let doomed = stream::iter(all.into_iter().map(|k| Ok(Path::parse(k).unwrap())));
    let gone: Vec<_> = store
        .delete_stream(doomed.boxed())
        .try_collect()
        .await
        .unwrap();
    assert_eq!(gone.len(), 2);
    assert!(keys(&*store, "", None).await.is_empty());
    assert!(server.requests().contains(&"POST ?delete".to_owned()));
}
