//! One flipped bit in every byte of every artifact of a small store; truncation, deletion, exchange.
//! A read gives a typed error or the right rows, and verification names what is damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::catalog::resolve;
use stratagraph::publish::Deletes;
use stratagraph::table::verify::{Verdict, verify};

use crate::support::audit::{objects, process};
use crate::support::embedding::{Source, content, expected, generate, refresh, table_name};

type Objects = Vec<(Path, bytes::Bytes)>;

struct Fixture {
    base: InMemory,
    objects: Objects,
    rows: BTreeMap<String, [u8; 32]>,
}

/// A table with a fragment, a masked fragment, a mask delta, ledger deltas and a definition.
async fn fixture() -> Fixture {
    let base: Arc<InMemory> = Arc::new(InMemory::new());
    let source = Source::new(&[("a", "one"), ("b", "two"), ("c", "")]);
    let catalog = process(Arc::clone(&base) as _, 1);
    generate(&catalog, &source).await.1.unwrap();
    source.set("b", "three");
    refresh(&catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    let shared: Arc<dyn ObjectStore> = Arc::clone(&base) as _;
    let objects = objects(&shared).await;
    Fixture {
        base: base.fork(),
        objects,
        rows: expected(&source.rows()),
    }
}

/// What a user sees of a damaged store: whether a read was right, and whether it was named.
async fn examine(store: Arc<dyn ObjectStore>, fixture: &Fixture, what: &str, read: bool) -> bool {
    let catalog = process(Arc::clone(&store), 5);
    if read {
        match content(&catalog, None).await {
            Ok(rows) => assert_eq!(rows, fixture.rows, "{what}: wrong rows"),
            Err(e) => assert!(!e.code().is_empty(), "{what}"),
        }
    }
    let Ok(head) = catalog.look().await else {
        return true;
    };
    match resolve::table(catalog.store(), &head, &table_name(), None).await {
        Err(_) => true,
        Ok(table) => {
            let checks = verify(
                catalog.store(),
                catalog.env(),
                &table.manifest,
                &table.manifest_ref,
            )
            .await;
            checks.iter().any(|c| c.verdict != Verdict::Match)
        }
    }
}

/// Objects that the current version consists of: damage of others is not seen and not wrong.
async fn current(fixture: &Fixture) -> Vec<String> {
    let catalog = process(Arc::new(fixture.base.fork()), 6);
    let head = catalog.look().await.unwrap();
    let table = resolve::table(catalog.store(), &head, &table_name(), None)
        .await
        .unwrap();
    let reached = table
        .manifest
        .reach(catalog.store(), &table.manifest_ref)
        .await
        .unwrap();
    let mut keys: Vec<String> = reached.into_iter().map(|o| o.key).collect();
    keys.push(stratagraph::store::layout::slot_key(head.version));
    keys
}

async fn with(fixture: &Fixture, key: &Path, bytes: Option<Vec<u8>>) -> Arc<dyn ObjectStore> {
    let store = fixture.base.fork();
    match bytes {
        Some(bytes) => {
            _ = store
                .put_opts(key, bytes.into(), Default::default())
                .await
                .unwrap()
        }
        None => store.delete(key).await.unwrap(),
    }
    Arc::new(store)
}

#[tokio::test]
async fn every_changed_byte_is_named_and_never_read_as_truth() {
    let fixture = fixture().await;
    let current = current(&fixture).await;
    let bits: &[u8] = if std::env::var_os("SOAK").is_some() {
        &[0, 1, 2, 3, 4, 5, 6, 7]
    } else {
        &[0]
    };
    let (mut runs, mut reads) = (0u32, 0u32);
    for (key, bytes) in &fixture.objects {
        for at in 0..bytes.len() {
            for bit in bits {
                let mut changed = bytes.to_vec();
                changed[at] ^= 1 << ((at as u8).wrapping_add(*bit) % 8);
                let store = with(&fixture, key, Some(changed)).await;
                let what = format!("byte {at} of {key}");
                let read = at % 8 == 0 || bits.len() > 1;
                let named = examine(store, &fixture, &what, read).await;
                assert!(
                    named || !current.contains(&key.to_string()),
                    "{what} is not named"
                );
                runs += 1;
                reads += u32::from(read);
            }
        }
    }
    println!(
        "{runs} flipped bits in {} objects, {reads} read",
        fixture.objects.len()
    );
}

#[tokio::test]
async fn truncation_deletion_and_exchange_are_named() {
    let fixture = fixture().await;
    let current = current(&fixture).await;
    let mut runs = 0;
    for (key, bytes) in &fixture.objects {
        let mut cases: Vec<Option<Vec<u8>>> = (0..bytes.len())
            .step_by(64)
            .map(|at| Some(bytes[..at].to_vec()))
            .collect();
        cases.push(None);
        for (other, theirs) in &fixture.objects {
            if other != key && theirs != bytes {
                cases.push(Some(theirs.to_vec()));
            }
        }
        for case in cases {
            let what = format!("{:?} bytes of {key}", case.as_ref().map(Vec::len));
            // A deleted newest slot is a rollback that the store alone cannot reveal.
            let rollback = case.is_none() && key.as_ref().starts_with("catalog");
            let store = with(&fixture, key, case).await;
            let named = examine(store, &fixture, &what, !rollback).await;
            assert!(
                named || rollback || !current.contains(&key.to_string()),
                "{what} is not named"
            );
            runs += 1;
        }
    }
    println!("{runs} truncated, deleted or exchanged objects");
}
