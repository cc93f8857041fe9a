//! The vectors of the newest searches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::limits;

/// Texts of searches with their vectors, the least recently used ones forgotten first. A query plan
/// asks for the same text once per batch, and users page through the same search.
pub(super) struct QueryCache(Mutex<Entries>);

struct Entries {
    vectors: LruCache<String, Vec<f32>>,
    bytes: usize,
}

impl std::fmt::Debug for QueryCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.lock();
        f.debug_struct("QueryCache")
            .field("texts", &entries.vectors.len())
            .field("bytes", &entries.bytes)
            .finish()
    }
}

impl QueryCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Entries {
            vectors: LruCache::unbounded(),
            bytes: 0,
        }))
    }

    pub(super) fn get(&self, text: &str) -> Option<Vec<f32>> {
        self.lock().vectors.get(text).cloned()
    }

    /// Remembers a vector, unless it alone is more than all may be.
    pub(super) fn put(&self, text: &str, vector: &[f32]) {
        let bytes = size(text, vector);
        if bytes > limits::QUERY_CACHE_BYTES {
            return;
        }
        let mut entries = self.lock();
        entries.bytes += bytes;
        if let Some(old) = entries.vectors.put(text.to_owned(), vector.to_vec()) {
            entries.bytes -= size(text, &old);
        }
        while entries.vectors.len() > limits::QUERY_CACHE_ENTRIES
            || entries.bytes > limits::QUERY_CACHE_BYTES
        {
            let Some((text, vector)) = entries.vectors.pop_lru() else {
                break;
            };
            entries.bytes -= size(&text, &vector);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(text: &str, vector: &[f32]) -> usize {
    text.len() + size_of_val(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cache: &QueryCache) -> (usize, usize) {
        let entries = cache.lock();
        (entries.vectors.len(), entries.bytes)
    }

    #[test]
    fn the_least_recently_used_text_goes_first() {
        let cache = QueryCache::new();
        let name = |i: usize| format!("{i:04}");
        for i in 0..limits::QUERY_CACHE_ENTRIES {
            cache.put(&name(i), &[i as f32]);
        }
        assert_eq!(cache.get("0000"), Some(vec![0.0]));
        cache.put("more", &[1.0]);
        assert_eq!(held(&cache).0, limits::QUERY_CACHE_ENTRIES);
        assert_eq!(cache.get("0001"), None);
        assert_eq!(cache.get("0000"), Some(vec![0.0]));
        assert_eq!(cache.get("more"), Some(vec![1.0]));
    }

    #[test]
    fn bytes_are_bounded_and_counted_once() {
        let cache = QueryCache::new();
        let quarter = limits::QUERY_CACHE_BYTES / 4;
        let vector = vec![1.0; quarter / 4 - 1];
        for text in ["aaaa", "bbbb", "cccc", "dddd", "dddd"] {
            cache.put(text, &vector);
        }
        assert_eq!(held(&cache), (4, limits::QUERY_CACHE_BYTES));
        cache.put("e", &[]);
        assert_eq!(held(&cache), (4, 3 * quarter + 1));
        assert!(cache.get("aaaa").is_none() && cache.get("bbbb").is_some());

        cache.put("large", &vec![1.0; quarter]);
        assert!(cache.get("large").is_none());
        assert_eq!(held(&cache), (4, 3 * quarter + 1));
    }
}
