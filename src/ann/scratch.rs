//! Memory that searches use again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use roaring::RoaringBitmap;

use super::top::{Key, distance, position};

/// Working memory of a search, to be passed to the next one: it allocates only until it is large enough.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) visited: Visited,
    /// Nodes whose neighbours are still to be looked at, the nearest on top.
    pub(super) frontier: BinaryHeap<Reverse<Key>>,
    /// The nearest so far, the farthest on top.
    pub(super) found: BinaryHeap<Key>,
    /// Nodes to be measured.
    pub(super) batch: Vec<u32>,
    pub(super) keys: Vec<Key>,
    pub(super) live: Live,
}

impl Scratch {
    pub(super) fn begin(&mut self, rows: u32) {
        self.visited.begin(rows);
        self.frontier.clear();
        self.found.clear();
        self.batch.clear();
    }

    /// Distances of the nearest `k` that were found, nearest first.
    pub(super) fn nearest(&mut self, k: usize) -> Vec<f32> {
        self.keys.clear();
        self.keys.extend(self.found.drain());
        self.keys.sort_unstable();
        self.keys.iter().take(k).map(|key| distance(*key)).collect()
    }

    /// Rows that were found, nearest first.
    pub(super) fn nearest_rows(&mut self) -> Vec<u32> {
        self.keys.clear();
        self.keys.extend(self.found.drain());
        self.keys.sort_unstable();
        self.keys.iter().map(|key| position(*key)).collect()
    }
}

/// Live rows, one bit a row: where many rows are looked up, this pays for the copy.
#[derive(Debug, Default)]
pub(super) struct Live {
    words: Vec<u64>,
}

impl Live {
    /// Holds what `live` holds below `rows`.
    pub(super) fn fill(&mut self, live: &RoaringBitmap, rows: u32) {
        self.words.clear();
        self.words.resize((rows as usize).div_ceil(64), 0);
        for position in live.range(0..rows) {
            self.words[(position >> 6) as usize] |= 1 << (position & 63);
        }
    }

    #[inline(always)]
    pub(super) fn contains(&self, row: u32) -> bool {
        self.words[(row >> 6) as usize] >> (row & 63) & 1 == 1
    }
}

/// A set of nodes that is emptied by taking back what was put into it.
#[derive(Debug, Default)]
pub(super) struct Visited {
    words: Vec<u64>,
    touched: Vec<u32>,
}

impl Visited {
    fn begin(&mut self, rows: u32) {
        for word in self.touched.drain(..) {
            self.words[word as usize] = 0;
        }
        let words = (rows as usize).div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
    }

    /// Whether `node` was not in the set.
    #[inline(always)]
    pub(super) fn insert(&mut self, node: u32) -> bool {
        let word = &mut self.words[(node >> 6) as usize];
        let bit = 1u64 << (node & 63);
        if *word == 0 {
            self.touched.push(node >> 6);
        }
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}
