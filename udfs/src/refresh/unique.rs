//! Whether keys are unique, found out without comparing them.
//!
//! Keys whose hashes all differ are different; only where two hashes are equal, or where there is no
//! room for the hashes, the keys themselves have to be grouped.

use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use stratagraph::{Error, Result};
use twox_hash::XxHash3_128;

use crate::host::Host;

/// Bytes of hashes that are held, and the part of a bounded pool.
const HELD_BYTES: usize = 512 << 20;
const HELD_PART: usize = 16;
/// Hashes that memory is asked for at once.
const STEP: usize = 64 << 10;

/// XXH3 hashes of the keys of a scan, as long as there is memory for them.
#[derive(Debug)]
pub(crate) struct KeyHashes {
    /// `None` once there was no room.
    hashes: Option<Vec<u64>>,
    memory: MemoryReservation,
    most: usize,
}

impl KeyHashes {
    pub(crate) fn new(host: &Host) -> Self {
        Self {
            hashes: Some(Vec::new()),
            memory: host.memory("hashes of keys"),
            most: match host.memory_limit() {
                Some(bytes) => HELD_BYTES.min(bytes / HELD_PART),
                None => HELD_BYTES,
            },
        }
    }

    pub(crate) fn add(&mut self, key: &str) {
        let Some(hashes) = &self.hashes else {
            return;
        };
        if hashes.len() == hashes.capacity() {
            self.reserve(hashes.len().max(STEP));
        }
        if let Some(hashes) = &mut self.hashes {
            hashes.push(XxHash3_128::oneshot(key.as_bytes()) as u64);
        }
    }

    /// Adds the keys of another partition.
    pub(crate) fn merge(&mut self, other: Self) {
        let theirs = other.hashes.unwrap_or_else(|| {
            self.give_up();
            Vec::new()
        });
        self.reserve(theirs.len());
        if let Some(hashes) = &mut self.hashes {
            hashes.extend_from_slice(&theirs);
        }
    }

    fn reserve(&mut self, more: usize) {
        let bytes = more.saturating_mul(size_of::<u64>());
        let fits = self.memory.size().saturating_add(bytes) <= self.most;
        if !fits || self.memory.try_grow(bytes).is_err() {
            self.give_up();
        } else if let Some(hashes) = &mut self.hashes {
            hashes.reserve_exact(more);
        }
    }

    /// Whether the keys are certainly unique; `false` says nothing.
    pub(crate) async fn are_unique(self) -> Result<bool> {
        // Sorting many takes seconds, which the runtime's threads have other uses for.
        let task = SpawnedTask::spawn_blocking(move || {
            let Some(mut hashes) = self.hashes else {
                return false;
            };
            hashes.sort_unstable();
            hashes.windows(2).all(|pair| pair[0] != pair[1])
        });
        task.join().await.map_err(|e| Error::TaskFailed {
            operation: "comparison of keys",
            source: Box::new(e),
        })
    }

    fn give_up(&mut self) {
        self.hashes = None;
        self.memory.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    fn host(bytes: usize) -> Host {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes)))
            .build_arc()
            .unwrap();
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        Host::new(context.state())
    }

    #[tokio::test]
    async fn only_certainty_counts() {
        let host = host(1 << 30);
        let keys = |range: std::ops::Range<u32>| {
            let mut hashes = KeyHashes::new(&host);
            range.for_each(|i| hashes.add(&format!("key {i}")));
            hashes
        };
        let mut apart = keys(0..300);
        apart.merge(keys(300..900));
        assert!(apart.are_unique().await.unwrap());
        let mut again = keys(0..900);
        again.merge(keys(899..900));
        assert!(!again.are_unique().await.unwrap());
        assert!(keys(0..0).are_unique().await.unwrap());
    }

    #[tokio::test]
    async fn without_room_nothing_is_certain() {
        let host = host(16 << 20);
        let mut hashes = KeyHashes::new(&host);
        (0..100_000).for_each(|i| hashes.add(&format!("key {i}")));
        assert_eq!(hashes.memory.size(), 1 << 20);
        (100_000..200_000).for_each(|i| hashes.add(&format!("key {i}")));
        assert_eq!(hashes.memory.size(), 0);
        assert!(!hashes.are_unique().await.unwrap());
    }
}
