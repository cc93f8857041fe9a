//! A bounded cache of immutable objects. Objects never change under a key, so an entry is never stale.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use crate::Result;

/// Default bytes of a cache.
const DEFAULT_BYTES: usize = 128 * 1024 * 1024;

/// Use of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Entries held.
    pub entries: usize,
    /// Bytes held.
    pub bytes: usize,
}

/// Gates beyond which the unused ones are dropped.
const GATES: usize = 64;

type Value = dyn Any + Send + Sync;
/// Holds what the last one through it made.
type Gate = tokio::sync::Mutex<Weak<Value>>;

/// A value, and whether it was there before the call.
pub type Made<T> = (Arc<T>, bool);

struct Entry {
    value: Arc<Value>,
    bytes: usize,
    used: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<String, Entry>,
    by_use: BTreeMap<u64, String>,
    bytes: usize,
    clock: u64,
}

/// Least-recently-used values by key, within a byte budget.
pub struct ObjectCache {
    capacity: usize,
    state: Mutex<State>,
    gates: Mutex<HashMap<String, Weak<Gate>>>,
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_BYTES,
            state: Mutex::default(),
            gates: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for ObjectCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ObjectCache({:?} of {} bytes)",
            self.stats(),
            self.capacity
        )
    }
}

impl ObjectCache {
    /// A cache of at most `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
            gates: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries and bytes held.
    pub fn stats(&self) -> CacheStats {
        let state = self.lock();
        CacheStats {
            entries: state.entries.len(),
            bytes: state.bytes,
        }
    }

    /// The value of a key, if it is held with this type.
    pub fn get<T: Any + Send + Sync>(&self, key: &str) -> Option<Arc<T>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = state.entries.get_mut(key)?;
        let value = Arc::clone(&entry.value).downcast::<T>().ok()?;
        state.clock += 1;
        if let Some(name) = state.by_use.remove(&entry.used) {
            state.by_use.insert(state.clock, name);
        }
        entry.used = state.clock;
        Some(value)
    }

    /// Holds a value of about `bytes` bytes; larger than an eighth of the budget is not kept.
    pub fn put<T: Any + Send + Sync>(&self, key: &str, value: Arc<T>, bytes: usize) {
        if bytes <= self.capacity / 8 {
            self.hold(key, value, bytes);
        }
    }

    /// Bytes of the largest value that [`ObjectCache::get_or_make`] keeps: half of the budget, because
    /// what takes long to make may push out more of what is only read again.
    pub fn most_made(&self) -> usize {
        self.capacity / 2
    }

    /// The value of a key, made by `make` unless it is held. Of several callers that miss, one makes it
    /// and the others wait. `make` says how many bytes it has; one that is too large lives as long as
    /// those who asked for it together.
    ///
    /// # Errors
    /// Those of `make`; the next caller tries again.
    pub async fn get_or_make<T, F>(&self, key: &str, make: F) -> Result<Made<T>>
    where
        T: Any + Send + Sync,
        F: Future<Output = Result<(Arc<T>, usize)>>,
    {
        if let Some(held) = self.get(key) {
            return Ok((held, true));
        }
        let gate = self.gate(key);
        let mut last = gate.lock().await;
        let shared = last.upgrade().and_then(|value| value.downcast::<T>().ok());
        if let Some(held) = self.get(key).or(shared) {
            return Ok((held, true));
        }
        let (value, bytes) = make.await?;
        let any: Arc<Value> = Arc::<T>::clone(&value);
        *last = Arc::downgrade(&any);
        if bytes <= self.most_made() {
            self.hold(key, Arc::clone(&value), bytes);
        }
        Ok((value, false))
    }

    fn gate(&self, key: &str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(key).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= GATES {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let none: Weak<Value> = Weak::<()>::new();
        let gate = Arc::new(Gate::new(none));
        gates.insert(key.to_owned(), Arc::downgrade(&gate));
        gate
    }

    fn hold<T: Any + Send + Sync>(&self, key: &str, value: Arc<T>, bytes: usize) {
        self.forget(key);
        let mut guard = self.lock();
        let state = &mut *guard;
        state.clock += 1;
        let entry = Entry {
            value,
            bytes,
            used: state.clock,
        };
        state.entries.insert(key.to_owned(), entry);
        state.by_use.insert(state.clock, key.to_owned());
        state.bytes += bytes;
        while state.bytes > self.capacity {
            let Some((_, oldest)) = state.by_use.pop_first() else {
                break;
            };
            if let Some(gone) = state.entries.remove(&oldest) {
                state.bytes -= gone.bytes;
            }
        }
    }

    /// Whole bytes of an object.
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.get::<Bytes>(key).map(|b| b.as_ref().clone())
    }

    /// Holds whole bytes.
    pub fn put_bytes(&self, key: &str, bytes: Bytes) {
        let size = bytes.len() + key.len() * 2 + 64;
        self.put(key, Arc::new(bytes), size);
    }

    /// Drops a key (its object was deleted).
    pub fn forget(&self, key: &str) {
        let mut guard = self.lock();
        if let Some(gone) = guard.entries.remove(key) {
            guard.bytes -= gone.bytes;
            guard.by_use.remove(&gone.used);
        }
    }

    /// Drops everything.
    pub fn clear(&self) {
        *self.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_use_goes_first() {
        let cache = ObjectCache::with_capacity(10_000);
        for key in ["a", "b", "c"] {
            cache.put(key, Arc::new(key.to_owned()), 1_200);
        }
        assert!(cache.get::<String>("a").is_some());
        for i in 0..6 {
            cache.put(&format!("x{i}"), Arc::new(String::new()), 1_200);
        }
        assert!(cache.get::<String>("a").is_some() && cache.get::<String>("b").is_none());
        assert!(cache.stats().bytes <= 10_000);
        cache.put("big", Arc::new(0u8), 5_000);
        assert!(cache.get::<u8>("big").is_none());
    }

    #[tokio::test]
    async fn what_is_missed_together_is_made_once() {
        let cache = ObjectCache::with_capacity(10_000);
        for bytes in [5_000, 5_001] {
            let made = std::sync::atomic::AtomicUsize::new(0);
            let key = format!("k{bytes}");
            let call = || {
                cache.get_or_make(&key, async {
                    tokio::task::yield_now().await;
                    let n = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Ok((Arc::new(n), bytes))
                })
            };
            let all = futures::future::try_join_all([call(), call(), call()]).await;
            let all = all.unwrap();
            let values: Vec<(usize, bool)> = all.iter().map(|(v, held)| (**v, *held)).collect();
            assert_eq!(values, [(0, false), (0, true), (0, true)]);
            drop(all);
            // Half of the budget is kept, more is not.
            let (value, held) = call().await.unwrap();
            assert_eq!(
                (*value, held),
                if bytes == 5_000 {
                    (0, true)
                } else {
                    (1, false)
                }
            );
        }
    }

    #[tokio::test]
    async fn after_a_failure_the_next_caller_tries() {
        let cache = ObjectCache::default();
        let fail = async { Err(crate::Error::corrupt("topology", "k", "1", "2")) };
        let wait = async { Ok((Arc::new(7u8), 1)) };
        let (first, second) = futures::join!(
            cache.get_or_make::<u8, _>("k", fail),
            cache.get_or_make::<u8, _>("k", wait)
        );
        assert!(first.is_err());
        assert_eq!(*second.unwrap().0, 7);
    }
}
