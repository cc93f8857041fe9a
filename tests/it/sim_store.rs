//! The simulation itself, and the local store on its disk and on a real one.
#![allow(clippy::unwrap_used)]

mod fault;
mod local;
mod power;
mod sched;

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, Result};

async fn put(store: &dyn ObjectStore, key: &str, data: &str, mode: PutMode) -> Result<()> {
    let (key, data) = (Path::from(key), Bytes::from(data.to_owned()));
    let done = store.put_opts(&key, data.into(), mode.into());
    done.await.map(drop)
}

async fn create(store: &dyn ObjectStore, key: &str, data: &str) -> Result<()> {
    put(store, key, data, PutMode::Create).await
}

async fn read(store: &dyn ObjectStore, key: &str) -> Result<Bytes> {
    store.get(&key.into()).await?.bytes().await
}

/// What is stored at `key`, or `None`.
async fn find(store: &dyn ObjectStore, key: &str) -> Option<Bytes> {
    match read(store, key).await {
        Err(Error::NotFound { .. }) => None,
        read => Some(read.unwrap()),
    }
}

async fn keys(store: &dyn ObjectStore, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let metas: Vec<_> = store.list(prefix.as_ref()).try_collect().await.unwrap();
    metas.iter().map(|m| m.location.to_string()).collect()
}

async fn keys_past(store: &dyn ObjectStore, prefix: &str, offset: &str) -> Vec<String> {
    let listed = store.list_with_offset(Some(&prefix.into()), &offset.into());
    let metas: Vec<_> = listed.try_collect().await.unwrap();
    metas.iter().map(|m| m.location.to_string()).collect()
}

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(object_store::memory::InMemory::new())
}
