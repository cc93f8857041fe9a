//! A bounded cache of immutable objects. Objects never change under a key, so an entry is never stale.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

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

struct Entry {
    value: Arc<dyn Any + Send + Sync>,
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
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_BYTES,
            state: Mutex::default(),
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
        if bytes > self.capacity / 8 {
            return;
        }
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
}
