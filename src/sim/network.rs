//! The store behind several handles, and calls that are still on their way to it.

use std::sync::{Arc, Mutex};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::lock;

#[derive(Debug)]
pub(super) enum Late {
    Put(Path, PutPayload, PutMode),
    Delete(Path),
}

#[derive(Debug, Default)]
struct Network {
    /// Calls of all handles.
    clock: u64,
    late: Vec<(u64, Late)>,
}

/// What several handles share: the store itself and the calls that are still under way.
#[derive(Debug)]
pub struct FaultBase {
    pub(super) store: Arc<dyn ObjectStore>,
    network: Mutex<Network>,
}

impl FaultBase {
    /// A base on `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            network: Mutex::default(),
        })
    }

    /// The store itself, without faults, counting or waiting.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    /// Delayed and duplicated calls that have not landed yet.
    pub fn pending(&self) -> usize {
        lock(&self.network).late.len()
    }

    /// Lets every call that is under way land.
    pub async fn settle(&self) {
        let late = std::mem::take(&mut lock(&self.network).late);
        self.land(late).await;
    }

    /// Counts a call, and lets those land whose time has come.
    pub(super) async fn tick(&self) {
        let due = {
            let mut network = lock(&self.network);
            network.clock += 1;
            let now = network.clock;
            let all = std::mem::take(&mut network.late);
            let (due, later) = all.into_iter().partition(|(at, _)| *at <= now);
            network.late = later;
            due
        };
        self.land(due).await;
    }

    async fn land(&self, mut late: Vec<(u64, Late)>) {
        late.sort_by_key(|(at, _)| *at);
        for (_, call) in late {
            // Nobody hears the answer.
            let _ = match call {
                Late::Put(key, data, mode) => {
                    (self.store.put_opts(&key, data, mode.into()).await).map(drop)
                }
                Late::Delete(key) => self.store.delete(&key).await,
            };
        }
    }

    /// Lets a call land after `calls` further ones.
    pub(super) fn send_late(&self, calls: u64, late: Late) {
        let mut network = lock(&self.network);
        let due = network.clock.saturating_add(calls).saturating_add(1);
        network.late.push((due, late));
    }
}
