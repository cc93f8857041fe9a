//! Re-hashes objects.

use futures::TryStreamExt;

use super::Checks;
use crate::digest::Digest;
use crate::ident::TxnId;
use crate::store::{BlockSums, DataFile, FileSums, ObjRef, Stager, Store};
use crate::table::manifest::{DeltaObject, Entry, Fragment};
use crate::{Error, Result};

/// Digests of the objects of an entry as they were found.
#[derive(Default)]
pub(super) struct Rehashed {
    pub(super) fragment: Option<Digest>,
    pub(super) mask: Option<Digest>,
}

/// Reads an object to its end without holding it.
async fn sums(store: &Store, object: &ObjRef) -> Result<FileSums> {
    let failed = |e| Error::storage("get", &object.key, e);
    let mut bytes = store.open_object(object).await?.into_stream();
    let mut sums = FileSums::default();
    while let Some(part) = bytes.try_next().await.map_err(failed)? {
        sums.update(&part);
    }
    Ok(sums)
}

/// The reference that the object would get now.
async fn rehash(store: &Store, object: &ObjRef, footer: u64) -> Result<DataFile> {
    let sums = sums(store, object).await?;
    // Checksums of many blocks become an object of a stage that is never put.
    let mut scratch = Stager::new(TxnId::new(0, "verify")?);
    sums.finish(object.key.clone(), footer, &mut scratch)
}

fn described(object: &ObjRef) -> String {
    format!("{} ({} bytes)", object.sha256, object.size)
}

/// Compares an object with its reference; its digest, if it could be read.
pub(super) async fn check(
    store: &Store,
    checks: &mut Checks,
    kind: &'static str,
    object: &ObjRef,
) -> Option<Digest> {
    let found = rehash(store, object, 0).await;
    let digest = found.as_ref().ok().map(|f| f.object.sha256);
    let found = found.map(|f| described(&f.object));
    checks.push(&object.key, kind, described(object), found);
    digest
}

/// Checks all objects of an entry.
pub(super) async fn check_entry(store: &Store, checks: &mut Checks, entry: &Entry) -> Rehashed {
    let mut rehashed = Rehashed::default();
    if let Some(fragment) = &entry.fragment {
        rehashed.fragment = check_fragment(store, checks, fragment).await;
    }
    let delta = |delta: &Option<DeltaObject>| delta.as_ref().map(|d| d.object.clone());
    if let Some(mask) = delta(&entry.mask) {
        rehashed.mask = check(store, checks, "mask", &mask).await;
    }
    if let Some(rejects) = delta(&entry.rejects) {
        check(store, checks, "ledger", &rejects).await;
    }
    rehashed
}

async fn check_fragment(store: &Store, checks: &mut Checks, fragment: &Fragment) -> Option<Digest> {
    let file = &fragment.file;
    let key = &file.object.key;
    let found = rehash(store, &file.object, file.footer).await;
    let digest = found.as_ref().ok().map(|f| f.object.sha256);
    let sums = found.as_ref().ok().map(|f| sums_text(&f.blocks));
    checks.push(
        key,
        "fragment",
        described(&file.object),
        found.map(|f| described(&f.object)),
    );
    if let BlockSums::Object(object) = &file.blocks {
        check(store, checks, "checksums", object).await;
    }
    if let Some(sums) = sums {
        // The checksums that the manifest holds must be those of the object, wherever they stand.
        checks.push(key, "checksums", sums_text(&file.blocks), Ok(sums));
    }
    for (_, object) in &fragment.dead.chunks {
        check(store, checks, "bitmap", object).await;
    }
    for object in fragment.segments.iter().flat_map(|s| s.file.objects()) {
        check(store, checks, "segment", object).await;
    }
    digest
}

/// Block checksums by content: the digest of an object of them, or themselves.
fn sums_text(blocks: &BlockSums) -> String {
    match blocks {
        BlockSums::Inline(text) => Digest::of(text.as_bytes()).to_string(),
        BlockSums::Object(object) => described(object),
    }
}
