//! Stores that format 1 wrote, committed: every later build reads them, and this one writes the newest.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::catalog::Catalog;
use stratagraph::publish::Deletes;

use crate::support::audit::{Told, audit, objects, process};
use crate::support::embedding::{Source, all_match, compact, content, expected, generate, refresh};

fn directory(name: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/golden")
        .join(name)
}

/// What the committed store holds: changes of every kind, a partial compaction, a pin, an expiry.
async fn write(catalog: &Arc<Catalog>) -> Source {
    let source = Source::new(&[
        ("a", "red apple"),
        ("b", "blue sky"),
        ("c", ""),
        ("d", "green"),
    ]);
    generate(catalog, &source).await.1.unwrap();
    source.set("b", "blue sea");
    source.set("e", "über Größe 日本");
    source.remove("d");
    refresh(catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    source.set("a", " ");
    source.set("c", "a text");
    refresh(catalog, &source, Deletes::Tombstone)
        .await
        .1
        .unwrap();
    compact(catalog, Some(vec![0, 1])).await.1.unwrap();
    source.set("f", "after");
    refresh(catalog, &source, Deletes::Retain).await.1.unwrap();
    source
}

fn committed(directory: &FilePath, prefix: &str, into: &mut Vec<(String, bytes::Bytes)>) {
    for entry in std::fs::read_dir(directory).unwrap().map(|e| e.unwrap()) {
        let key = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => committed(&entry.path(), &format!("{key}/"), into),
            false => into.push((key, std::fs::read(entry.path()).unwrap().into())),
        }
    }
    into.sort();
}

type Objects = Vec<(String, bytes::Bytes)>;

/// Reads a committed store and compares its rows; its objects.
async fn read(name: &str, source: &Source) -> Objects {
    let mut golden = Vec::new();
    committed(&directory(name), "", &mut golden);
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for (key, bytes) in &golden {
        let path = Path::from(key.as_str());
        let put = store.put_opts(&path, bytes.clone().into(), Default::default());
        put.await.unwrap();
    }
    let catalog = process(Arc::clone(&store), 7);
    assert_eq!(
        content(&catalog, None).await.unwrap(),
        expected(&source.rows())
    );
    assert_eq!(content(&catalog, Some(0)).await.unwrap().len(), 3);
    audit(Arc::clone(&store), &Told::default()).await.unwrap();
    all_match(Arc::clone(&store)).await;
    source.set("g", "later");
    refresh(&catalog, source, Deletes::Retain).await.1.unwrap();
    source.remove("g");
    audit(store, &Told::default()).await.unwrap();
    golden
}

#[tokio::test]
async fn format_1_is_read_and_written_as_committed() {
    let fresh: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let source = write(&process(Arc::clone(&fresh), 42)).await;
    let written = objects(&fresh).await;
    let written: Objects = written
        .into_iter()
        .map(|(key, bytes)| (key.to_string(), bytes))
        .collect();
    if std::env::var_os("UPDATE").is_some() {
        let directory = directory("store-1");
        let _ = std::fs::remove_dir_all(&directory);
        for (key, bytes) in &written {
            let path = directory.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    // Whose manifests and pages are objects of their own.
    read("store-1-apart", &source).await;
    let golden = read("store-1", &source).await;
    let names =
        |objects: &Objects| -> Vec<String> { objects.iter().map(|(key, _)| key.clone()).collect() };
    assert_eq!(
        names(&written),
        names(&golden),
        "this build stages other objects"
    );
    for ((key, new), (_, old)) in written.iter().zip(&golden) {
        assert!(
            new == old,
            "{key}: this build writes other bytes; a new format needs a new number"
        );
    }
}
