use std::io::ErrorKind;
use std::sync::Arc;

use futures::executor::block_on;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, Result};
use stratagraph::sim::{PowerCut, SimDisk};
use stratagraph::store::local::{Blocking, LocalStore};

use super::{create, find, keys, put, read};

const ROOT: &str = "/data/store";
const OLD: &str = "catalog/00/1.json";
const NEW: &str = "catalog/01/2.json";

fn open(disk: &SimDisk) -> LocalStore {
    LocalStore::on(Arc::new(disk.clone()), ROOT, Blocking::Inline).unwrap()
}

/// Every way of losing what is not synced.
fn cuts() -> Vec<PowerCut> {
    let fixed = [
        PowerCut::Keep,
        PowerCut::Drop,
        PowerCut::Zero,
        PowerCut::Empty,
        PowerCut::DropNames,
    ];
    let seeded = (0..40).map(PowerCut::Seeded);
    fixed.into_iter().chain(seeded).collect()
}

/// Runs `write` with the power cut before each of its disk operations, and hands the surviving store
/// with the answer to `check`.
fn at_every_operation(
    setup: impl AsyncFn(&LocalStore),
    write: impl AsyncFn(&LocalStore) -> Result<()>,
    check: impl AsyncFn(&LocalStore, bool, &str),
) {
    for cut in cuts() {
        for after in 0.. {
            let disk = SimDisk::new();
            block_on(setup(&open(&disk)));
            let begin = disk.ops();
            disk.cut_at(begin + after);
            let store = open(&disk);
            let answer = block_on(write(&store));
            let finished = disk.ops() < begin + after;
            let left = open(&disk.power_cut(cut));
            let context = format!("cut before operation {after}, {cut:?}");
            block_on(check(&left, answer.is_ok(), &context));
            if finished {
                answer.unwrap();
                assert!(after > 8, "{after} operations");
                break;
            }
        }
    }
}

#[test]
fn a_create_is_complete_or_absent_and_stays_once_answered() {
    at_every_operation(
        async |store| create(store, OLD, "old").await.unwrap(),
        async |store| create(store, NEW, "new").await,
        async |left, answered, context| {
            assert_eq!(find(left, OLD).await.unwrap(), "old", "{context}");
            let found = find(left, NEW).await;
            assert!(found.is_some() || !answered, "{context}");
            assert!(found.is_none_or(|data| data == "new"), "{context}");
            // What is left takes writes as before.
            let again = create(left, NEW, "new").await;
            assert!(
                matches!(again, Ok(()) | Err(Error::AlreadyExists { .. })),
                "{context}"
            );
        },
    );
}

#[test]
fn an_overwrite_is_old_or_new_and_stays_once_answered() {
    at_every_operation(
        async |store| create(store, OLD, "old").await.unwrap(),
        async |store| put(store, OLD, "new", PutMode::Overwrite).await,
        async |left, answered, context| {
            let found = find(left, OLD).await.unwrap();
            assert!(
                found == "new" || (found == "old" && !answered),
                "{context}: {found:?}"
            );
        },
    );
}

#[test]
fn an_upload_is_complete_or_absent_and_stays_once_answered() {
    at_every_operation(
        async |store| create(store, OLD, "old").await.unwrap(),
        async |store| {
            let mut upload = store.put_multipart(&NEW.into()).await?;
            upload.put_part("one-".into()).await?;
            upload.put_part("two".into()).await?;
            upload.complete().await.map(drop)
        },
        async |left, answered, context| {
            let found = find(left, NEW).await;
            assert!(found.is_some() || !answered, "{context}");
            assert!(found.is_none_or(|data| data == "one-two"), "{context}");
        },
    );
}

#[test]
fn a_copy_is_complete_or_absent_and_stays_once_answered() {
    for create_only in [false, true] {
        at_every_operation(
            async |store| create(store, OLD, "old").await.unwrap(),
            async |store| match create_only {
                true => store.copy_if_not_exists(&OLD.into(), &NEW.into()).await,
                false => store.copy(&OLD.into(), &NEW.into()).await,
            },
            async |left, answered, context| {
                let found = find(left, NEW).await;
                assert!(found.is_some() || !answered, "{context}");
                assert!(found.is_none_or(|data| data == "old"), "{context}");
            },
        );
    }
}

#[test]
fn a_create_writes_syncs_links_and_syncs_the_directory() {
    let disk = SimDisk::new();
    let store = open(&disk);
    block_on(create(&store, OLD, "old")).unwrap();
    let begin = disk.trace().len();
    block_on(create(&store, "catalog/00/2.json", "new")).unwrap();
    let trace = disk.trace();
    let verbs = trace[begin..]
        .iter()
        .map(|op| op.split(' ').next().unwrap());
    let expected = [
        "create", "append", "sync", "fstat", "link", "syncdir", "remove",
    ];
    assert_eq!(verbs.collect::<Vec<_>>(), expected);
    assert_eq!(trace[begin + 5], "syncdir /data/store/catalog/00");
}

/// A process that is killed between making a directory and syncing it must not cost another one its
/// acknowledged object.
#[test]
fn directories_of_a_killed_process_are_synced_by_the_next() {
    for after in 0..40 {
        let disk = SimDisk::new();
        disk.cut_at(after);
        let _ = block_on(create(&open(&disk), NEW, "killed"));
        disk.revive();
        let created = block_on(create(&open(&disk), "catalog/01/3.json", "next"));
        created.unwrap();
        let left = open(&disk.power_cut(PowerCut::Drop));
        assert_eq!(block_on(read(&left, "catalog/01/3.json")).unwrap(), "next");
    }
}

/// A log that goes on in a new directory must not outlive its last entry in the old one.
#[test]
fn a_new_directory_makes_the_one_before_it_durable() {
    let mut unsynced = 0;
    for after in 0..40 {
        let disk = SimDisk::new();
        block_on(create(&open(&disk), "catalog/00/1.json", "1")).unwrap();
        disk.cut_at(disk.ops() + after);
        let _ = block_on(create(&open(&disk), "catalog/00/2.json", "2"));
        disk.revive();
        let next = open(&disk);
        if block_on(find(&next, "catalog/00/2.json")).is_some() {
            block_on(create(&next, "catalog/01/3.json", "3")).unwrap();
            let left = open(&disk.power_cut(PowerCut::Drop));
            assert_eq!(block_on(keys(&left, None)).len(), 3, "{after}");
            unsynced += 1;
        }
    }
    assert!(unsynced > 1);
}

/// Without room, and with a disk that fails in any one operation: an error, nothing half done, and no
/// read of an object whose name may not be on the medium.
#[test]
fn a_failed_operation_is_an_error_and_what_is_read_back_stays() {
    let kinds = [ErrorKind::StorageFull, ErrorKind::PermissionDenied];
    for (kind, old) in kinds.into_iter().flat_map(|k| [(k, true), (k, false)]) {
        for after in 0.. {
            let disk = SimDisk::new();
            let store = open(&disk);
            if old {
                block_on(create(&store, OLD, "old")).unwrap();
            }
            let end = disk.ops() + after;
            disk.fail_once(end, kind);
            let answer = block_on(create(&store, NEW, "new"));
            if disk.ops() <= end {
                answer.unwrap();
                break;
            }
            let found = block_on(find(&store, NEW));
            let left = open(&disk.power_cut(PowerCut::Drop));
            let context = format!("{kind} at {after}");
            assert_eq!(block_on(find(&left, NEW)), found, "{context}");
            assert!(answer.is_err() || found.is_some(), "{context}");
            assert_eq!(block_on(find(&left, OLD)).is_some(), old, "{context}");
        }
    }
}

/// A directory whose sync failed is synced again before anything in it is read.
#[test]
fn a_failed_directory_sync_is_made_good_before_reading() {
    let disk = SimDisk::new();
    let store = open(&disk);
    block_on(create(&store, OLD, "old")).unwrap();
    let sync = disk.ops() + 5;
    disk.fail_once(sync, ErrorKind::Other);
    block_on(create(&store, "catalog/00/2.json", "new")).unwrap_err();
    assert_eq!(
        disk.trace()[sync as usize],
        "syncdir /data/store/catalog/00"
    );
    // It keeps failing: no read.
    disk.fail_once(disk.ops(), ErrorKind::Other);
    let key = Path::from("catalog/00/2.json");
    let refused = block_on(store.get(&key));
    assert!(matches!(refused, Err(Error::Generic { .. })), "{refused:?}");
    assert_eq!(block_on(read(&store, "catalog/00/2.json")).unwrap(), "new");
    let left = open(&disk.power_cut(PowerCut::Drop));
    assert_eq!(block_on(read(&left, "catalog/00/2.json")).unwrap(), "new");
}
