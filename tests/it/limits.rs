//! Metadata at its limits, and bombs: typed errors, bounded memory.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::commit::{Attempt, Edit, Operation};
use stratagraph::catalog::slot::SlotBody;
use stratagraph::digest::{Digest, parse_canonical};
use stratagraph::ident::TxnId;
use stratagraph::store::{FileSums, ObjRef, Stager, Store, layout};
use stratagraph::{Result, limits};

use crate::support::append::{Append, append};
use crate::support::audit::{process, reopen};

fn put_now(base: &InMemory, key: &str, bytes: Vec<u8>) {
    let path = Path::from(key);
    let put = base.put_opts(&path, bytes.into(), Default::default());
    futures::executor::block_on(put).unwrap();
}

#[test]
fn metadata_objects_end_at_sixteen_mebibytes() {
    let limit = limits::METADATA_BYTES as usize;
    for (size, code) in [
        (limit - 1, None),
        (limit, None),
        (limit + 1, Some("ResourceLimitExceeded")),
    ] {
        // A string of that many bytes is canonical JSON of itself.
        let text = format!("\"{}\"", "x".repeat(size - 2));
        let parsed = parse_canonical::<String>("page", "key", text.as_bytes());
        assert_eq!(parsed.err().map(|e| e.code()), code, "{size}");
    }
}

#[tokio::test]
async fn a_slot_that_is_too_large_is_not_read() {
    let base = Arc::new(InMemory::new());
    put_now(
        &base,
        &layout::slot_key(1),
        vec![b' '; limits::METADATA_BYTES as usize + 1],
    );
    let error = process(Arc::clone(&base) as _, 1).look().await.unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
    let key = "data/00000000000000000001-A/000000.json".to_owned();
    let object = ObjRef {
        key,
        size: u64::MAX,
        sha256: Digest::of(b""),
    };
    let error = reopen(base).get("page", &object).await.unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
}

#[test]
fn json_bombs_are_corrupt_slots() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let bombs = [
        nested(100),
        nested(1_000_000),
        format!("{{\"body\":{}}}", nested(1_000_000)),
        "{\"body\":{\"version\":1e309}}".to_owned(),
        "{\"body\":{},\"body\":{},\"sha256\":\"\"}".to_owned(),
        "\u{0}".to_owned(),
        String::new(),
    ];
    for bomb in &bombs {
        let error = SlotBody::decode(1, bomb.as_bytes()).unwrap_err();
        assert_eq!(error.code(), "Corrupt", "{}", &bomb[..bomb.len().min(40)]);
    }
    let newer = br#"{"body":{"format":2,"new":true},"sha256":"x"}"#;
    assert_eq!(
        SlotBody::decode(1, newer).unwrap_err().code(),
        "IncompatibleFormat"
    );
}

#[tokio::test]
async fn checksums_leave_the_entry_beyond_sixty_four_blocks() {
    let block = limits::BLOCK_BYTES as usize;
    let store = Store::memory();
    for (blocks, inline) in [(63, true), (64, true), (65, false)] {
        let mut stage = Stager::new(TxnId::new(1, "A").unwrap());
        let key = stage.reserve("parquet").unwrap();
        let mut sums = FileSums::default();
        let bytes = vec![7u8; blocks * block];
        bytes.chunks(1_000).for_each(|piece| sums.update(piece));
        let file = sums.finish(key.clone(), 0, &mut stage).unwrap();
        stage.flush(&store).await.unwrap();
        store.put_object(&key, bytes.into()).await.unwrap();
        assert_eq!(file.objects().count() == 1, inline, "{blocks}");
    }
    // The keys of the three files are one: a transaction of its own each time, the same name.
    assert_eq!(store.list("data").await.unwrap().len(), 2);
}

/// Appends, after a rival has appended in its place so many times.
struct Raced {
    own: Append,
    rival: Arc<Catalog>,
    losses: u32,
}

#[async_trait::async_trait]
impl Operation for Raced {
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>> {
        if self.losses > 0 {
            self.losses -= 1;
            append(&self.rival, "rival").await.1?;
        }
        self.own.prepare(attempt).await
    }
}

#[tokio::test]
async fn a_commit_gives_up_after_sixty_four_lost_attempts() {
    let most = limits::COMMIT_ATTEMPTS;
    for (losses, fits) in [(most - 2, true), (most - 1, true), (most, false)] {
        let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let (catalog, rival) = (process(Arc::clone(&base), 1), process(Arc::clone(&base), 2));
        let mut stage = catalog.begin().await.unwrap();
        let own = Append::new(&mut stage, "own").unwrap();
        let raced = Raced { own, rival, losses };
        match catalog.commit(stage, raced).await {
            Ok(done) => assert_eq!((done.attempts, fits), (losses + 1, true)),
            Err(error) => assert_eq!((error.code(), fits), ("CommitConflict", false)),
        }
        let head = process(base, 3).look().await.unwrap();
        assert_eq!(head.version, u64::from(losses) + u64::from(fits));
    }
}
