use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use stratagraph::sim::SimDisk;
use stratagraph::store::disk::{Disk, StdDisk};
use stratagraph::store::local::{Blocking, LocalStore};
use tempfile::TempDir;

use super::{create, find, keys, keys_past, put, read};

/// The same store on real files, in both ways of running, and on the simulated disk.
fn stores() -> (TempDir, Vec<LocalStore>) {
    let dir = TempDir::new().unwrap();
    let std: Arc<dyn Disk> = Arc::new(StdDisk);
    let stores = [
        LocalStore::new(dir.path().join("pool/store")),
        LocalStore::on(std, dir.path().join("inline"), Blocking::Inline),
        LocalStore::on(Arc::new(SimDisk::new()), "/data/store", Blocking::Inline),
    ];
    (dir, stores.map(Result::unwrap).into())
}

fn temp_files(store: &LocalStore) -> usize {
    std::fs::read_dir(store.root().join(".tmp")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn of_many_creates_of_one_name_one_succeeds() {
    let dir = TempDir::new().unwrap();
    for round in 0..20 {
        let key = format!("catalog/{round:03}/1.json");
        let creates = (0..8).map(|n| {
            // A store each, as in as many processes.
            let store = LocalStore::new(dir.path()).unwrap();
            let key = key.clone();
            tokio::spawn(async move { create(&store, &key, &n.to_string()).await.map(|()| n) })
        });
        let answers = futures::future::join_all(creates).await;
        let mut winners = Vec::new();
        for answer in answers {
            match answer.unwrap() {
                Ok(n) => winners.push(n),
                Err(Error::AlreadyExists { path, .. }) => assert_eq!(path, key),
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let store = LocalStore::new(dir.path()).unwrap();
        assert_eq!(read(&store, &key).await.unwrap(), winners[0].to_string());
        assert_eq!(temp_files(&store), 0);
    }
}

#[tokio::test]
async fn overwrites_replace_and_other_modes_are_refused() {
    let (_dir, stores) = stores();
    for store in stores {
        put(&store, "a/b", "old", PutMode::Overwrite).await.unwrap();
        let before = store.head(&"a/b".into()).await.unwrap();
        put(&store, "a/b", "new!", PutMode::Overwrite)
            .await
            .unwrap();
        assert_eq!(read(&store, "a/b").await.unwrap(), "new!");
        let after = store.head(&"a/b".into()).await.unwrap();
        assert_ne!(before.e_tag, after.e_tag);
        let version = UpdateVersion {
            e_tag: after.e_tag,
            version: None,
        };
        let updated = put(&store, "a/b", "x", PutMode::Update(version)).await;
        assert!(matches!(updated, Err(Error::NotImplemented { .. })));
        let mut attributes = Attributes::new();
        attributes.insert(object_store::Attribute::ContentType, "x".into());
        let opts = PutOptions::from(attributes);
        let written = store.put_opts(&"a/b".into(), "x".into(), opts).await;
        assert!(matches!(written, Err(Error::NotImplemented { .. })));
        assert_eq!(read(&store, "a/b").await.unwrap(), "new!");
    }
}

#[tokio::test]
async fn reads_take_ranges_and_conditions() {
    let (_dir, stores) = stores();
    for store in stores {
        let key = Path::from("a/b");
        create(&store, "a/b", "0123456789").await.unwrap();
        assert_eq!(store.get_range(&key, 2..5).await.unwrap(), "234");
        let parts = store.get_ranges(&key, &[7..20, 0..1]).await.unwrap();
        assert_eq!(parts, ["789", "0"]);
        for (range, expected) in [
            (GetRange::Suffix(3), "789"),
            (GetRange::Offset(8), "89"),
            (GetRange::Bounded(5..100), "56789"),
        ] {
            let got = store.get_opts(&key, GetOptions::new().with_range(Some(range)));
            assert_eq!(got.await.unwrap().bytes().await.unwrap(), expected);
        }
        store.get_range(&key, 10..12).await.unwrap_err();
        store.get_ranges(&key, &[0..1, 12..13]).await.unwrap_err();
        let meta = store.head(&key).await.unwrap();
        assert_eq!(meta.size, 10);
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed.first(), Some(&meta));
        let matching = GetOptions::new().with_if_match(meta.e_tag.clone());
        store.get_opts(&key, matching).await.unwrap();
        let stale = GetOptions::new().with_if_match(Some("other"));
        let stale = store.get_opts(&key, stale).await;
        assert!(matches!(stale, Err(Error::Precondition { .. })));
        let known = GetOptions::new().with_if_none_match(meta.e_tag);
        let known = store.get_opts(&key, known).await;
        assert!(matches!(known, Err(Error::NotModified { .. })));
        for missing in ["a", "a/c", "a/b/c", "x/y"] {
            let found = read(&store, missing).await;
            assert!(
                matches!(found, Err(Error::NotFound { .. })),
                "{missing}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn large_objects_are_read_in_pieces() {
    let (_dir, stores) = stores();
    let data: Vec<u8> = (0..9_000_000u32).map(|n| (n % 251) as u8).collect();
    for store in stores {
        let key = Path::from("large");
        let put = store.put_opts(&key, data.clone().into(), PutMode::Create.into());
        put.await.unwrap();
        let got = store.get(&key).await.unwrap();
        let pieces: Vec<Bytes> = got.into_stream().try_collect().await.unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.concat(), data);
        let part = store.get_range(&key, 10..8_999_990).await.unwrap();
        assert_eq!(part, &data[10..8_999_990]);
    }
}

#[tokio::test]
async fn lists_are_in_key_order_and_start_past_the_offset() {
    let (_dir, stores) = stores();
    let names = [
        "a-b", "a.b", "a/1", "a/10", "a/2/x", "a/2/y", "a/2-", "a0", "b/c/d/e", "b/c/d-e", "c",
    ];
    let mut sorted = names.map(Path::from);
    sorted.sort();
    let sorted: Vec<String> = sorted.iter().map(ToString::to_string).collect();
    for store in stores {
        assert!(keys(&store, None).await.is_empty());
        for name in names {
            create(&store, name, "x").await.unwrap();
        }
        assert_eq!(keys(&store, None).await, sorted);
        assert_eq!(keys(&store, Some("a")).await.len(), 5);
        assert_eq!(keys(&store, Some("a/2")).await, ["a/2/x", "a/2/y"]);
        assert!(keys(&store, Some("c")).await.is_empty());
        assert!(keys(&store, Some("none")).await.is_empty());
        let offsets = ["", "a", "a/2", "a/2/x", "a/3", "a0", "b/c", "b/c/d/zz", "d"];
        for offset in sorted.iter().map(String::as_str).chain(offsets) {
            for prefix in ["", "a", "a/2", "b"] {
                let inside = |k: &&String| {
                    (prefix.is_empty() || k.starts_with(&format!("{prefix}/")))
                        && k.as_str() > offset
                };
                let expected: Vec<_> = sorted.iter().filter(inside).cloned().collect();
                let listed = keys_past(&store, prefix, offset).await;
                assert_eq!(listed, expected, "{prefix:?} past {offset:?}");
            }
        }
        let level = store.list_with_delimiter(Some(&"a".into())).await.unwrap();
        assert_eq!(level.common_prefixes, [Path::from("a/2")]);
        let objects: Vec<_> = level.objects.iter().map(|o| o.location.as_ref()).collect();
        assert_eq!(objects, ["a/1", "a/10", "a/2-"]);
        let top = store.list_with_delimiter(None).await.unwrap();
        assert_eq!(top.common_prefixes, ["a", "b"].map(Path::from));
    }
}

#[tokio::test]
async fn long_lists_come_in_several_steps() {
    let store = LocalStore::on(Arc::new(SimDisk::new()), "/s", Blocking::Inline).unwrap();
    for n in 0..2_500 {
        create(&store, &format!("d{}/{n:04}", n / 700), "")
            .await
            .unwrap();
    }
    let listed = keys(&store, None).await;
    assert_eq!(listed.len(), 2_500);
    assert!(listed.is_sorted());
    assert_eq!(keys_past(&store, "", "d1/1300").await.len(), 1_199);
}

#[tokio::test]
async fn whole_directories_below_the_offset_are_not_read() {
    let disk = SimDisk::new();
    let store = LocalStore::on(Arc::new(disk.clone()), "/s", Blocking::Inline).unwrap();
    for n in 0..20 {
        create(&store, &format!("catalog/{:02}/{n:04}.json", n / 4), "x")
            .await
            .unwrap();
    }
    let before = disk.trace().len();
    let listed = keys_past(&store, "catalog", "catalog/04/0017.json").await;
    assert_eq!(listed, ["catalog/04/0018.json", "catalog/04/0019.json"]);
    let expected = [
        "readdir /s/catalog",
        "readdir /s/catalog/04",
        "stat /s/catalog/04/0018.json",
        "stat /s/catalog/04/0019.json",
    ];
    assert_eq!(disk.trace()[before..], expected);
}

#[tokio::test]
async fn uploads_appear_when_complete_and_may_arrive_out_of_order() {
    let (_dir, stores) = stores();
    for store in stores {
        let key = Path::from("up/load");
        let mut upload = store.put_multipart(&key).await.unwrap();
        let parts: Vec<_> = ["one-", "two-", "three"]
            .map(|part| upload.put_part(part.into()))
            .into();
        for part in parts.into_iter().rev() {
            part.await.unwrap();
        }
        assert_eq!(find(&store, "up/load").await, None);
        assert!(keys(&store, None).await.is_empty());
        let result = upload.complete().await.unwrap();
        assert_eq!(read(&store, "up/load").await.unwrap(), "one-two-three");
        assert_eq!(result.e_tag, store.head(&key).await.unwrap().e_tag);
        upload.complete().await.unwrap_err();

        let mut missing = store.put_multipart(&key).await.unwrap();
        drop(missing.put_part("never polled".into()));
        missing.complete().await.unwrap_err();
        let mut aborted = store.put_multipart(&key).await.unwrap();
        aborted.put_part("x".into()).await.unwrap();
        aborted.abort().await.unwrap();
        drop(store.put_multipart(&key).await.unwrap());
        assert_eq!(read(&store, "up/load").await.unwrap(), "one-two-three");
        assert_eq!(temp_files(&store), 0);
    }
}

#[tokio::test]
async fn copies_renames_and_deletes_work() {
    let (_dir, stores) = stores();
    for store in stores {
        create(&store, "a", "x").await.unwrap();
        let (a, b, c) = ("a".into(), Path::from("d/b"), "c".into());
        store.copy(&a, &b).await.unwrap();
        // The second time both are names of one file, which a rename leaves alone.
        store.copy(&a, &b).await.unwrap();
        let taken = store.copy_if_not_exists(&a, &b).await;
        assert!(matches!(taken, Err(Error::AlreadyExists { .. })));
        store.copy_if_not_exists(&a, &c).await.unwrap();
        put(&store, "a", "changed", PutMode::Overwrite)
            .await
            .unwrap();
        assert_eq!(read(&store, "d/b").await.unwrap(), "x");
        store.rename(&c, &"e".into()).await.unwrap();
        assert_eq!(keys(&store, None).await, ["a", "d/b", "e"]);
        store.delete(&a).await.unwrap();
        for gone in [store.delete(&a).await, store.copy(&a, &b).await] {
            assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
        }
        let doomed = ["d/b", "e"].map(|k| Ok(Path::from(k)));
        let doomed = futures::stream::iter(doomed).boxed();
        let deleted: Vec<_> = store.delete_stream(doomed).try_collect().await.unwrap();
        assert_eq!(deleted.len(), 2);
        assert!(keys(&store, None).await.is_empty());
        assert_eq!(temp_files(&store), 0);
    }
}

#[tokio::test]
async fn leftovers_are_hidden_and_swept_by_age() {
    let dir = TempDir::new().unwrap();
    let store = LocalStore::new(dir.path()).unwrap();
    create(&store, "a", "x").await.unwrap();
    let left = dir.path().join(".tmp/killed");
    std::fs::write(&left, "half").unwrap();
    let modified = std::fs::metadata(&left).unwrap().modified().unwrap();
    assert_eq!(keys(&store, None).await, ["a"]);
    let top = store.list_with_delimiter(None).await.unwrap();
    assert!(top.common_prefixes.is_empty());
    read(&store, ".tmp/killed").await.unwrap_err();
    put(&store, ".tmp/mine", "x", PutMode::Overwrite)
        .await
        .unwrap_err();
    assert_eq!(store.sweep_temp(modified).await.unwrap(), 0);
    let later = modified + Duration::from_secs(1);
    assert_eq!(store.sweep_temp(later).await.unwrap(), 1);
    assert!(!left.exists());
    let nothing = LocalStore::new(dir.path().join("none")).unwrap();
    assert_eq!(nothing.sweep_temp(SystemTime::UNIX_EPOCH).await.unwrap(), 0);
}

#[tokio::test]
async fn an_open_object_outlives_its_name() {
    let (_dir, stores) = stores();
    for store in stores {
        let data = vec![7; 5 * 1024 * 1024];
        let key = Path::from("a");
        let write = store.put_opts(&key, data.clone().into(), PutMode::Create.into());
        write.await.unwrap();
        let got = store.get(&key).await.unwrap();
        put(&store, "a", "other", PutMode::Overwrite).await.unwrap();
        store.delete(&key).await.unwrap();
        assert_eq!(got.bytes().await.unwrap(), data);
    }
}

#[tokio::test]
async fn unusual_names_stay_inside_the_root() {
    let (dir, stores) = stores();
    for store in stores {
        let names = ["..", "a/../../b", "a b/ü", "tab\there", "x#1"];
        let names = names.map(|n| Path::from(n).to_string());
        for name in &names {
            let key = Path::parse(name).unwrap();
            let created = store.put_opts(&key, "x".into(), PutMode::Create.into());
            created.await.unwrap();
            assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "x");
        }
        let listed: BTreeSet<_> = keys(&store, None).await.into_iter().collect();
        assert_eq!(listed, names.into_iter().collect());
    }
    let top: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(top.len(), 2);
}
