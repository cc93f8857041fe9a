//! The k nearest rows so far.

use std::collections::BinaryHeap;

/// A distance and a row in one integer: the order of keys is that of (distance, position).
pub(super) type Key = u64;

/// Packs a distance that is not NaN nor -0.
#[inline(always)]
pub(super) fn key(distance: f32, position: u32) -> Key {
    let bits = distance.to_bits();
    let ordered = if bits >> 31 == 0 {
        bits | 1 << 31
    } else {
        !bits
    };
    u64::from(ordered) << 32 | u64::from(position)
}

#[inline(always)]
pub(super) fn position(key: Key) -> u32 {
    key as u32
}

#[inline(always)]
pub(super) fn distance(key: Key) -> f32 {
    let ordered = (key >> 32) as u32;
    let positive = ordered >> 31 == 1;
    f32::from_bits(if positive {
        ordered & !(1 << 31)
    } else {
        !ordered
    })
}

/// Collects the `k` nearest of the rows that it is offered, ties by position, in any order of arrival.
#[derive(Debug, Clone)]
pub struct TopK {
    k: usize,
    /// No key above it is taken.
    limit: Key,
    /// The worst on top.
    heap: BinaryHeap<Key>,
}

impl TopK {
    /// A collector of `k` rows.
    pub fn new(k: usize) -> Self {
        Self {
            k,
            limit: if k == 0 { 0 } else { Key::MAX },
            heap: BinaryHeap::new(),
        }
    }

    /// Leaves out rows that are strictly farther than `bound`.
    pub fn within(mut self, bound: Option<f32>) -> Self {
        if let Some(bound) = bound.filter(|bound| !bound.is_nan()) {
            self.limit = self.limit.min(key(bound + 0.0, u32::MAX));
        }
        self
    }

    /// Takes a row if it is among the nearest. `distance` is one that [`super::Query`] measured.
    #[inline(always)]
    pub fn offer(&mut self, distance: f32, position: u32) {
        self.offer_key(key(distance, position));
    }

    #[inline(always)]
    pub(super) fn offer_key(&mut self, key: Key) {
        if key <= self.limit && self.k > 0 {
            self.insert(key);
        }
    }

    fn insert(&mut self, key: Key) {
        if self.heap.len() == self.k {
            self.heap.pop();
        }
        self.heap.push(key);
        if self.heap.len() == self.k
            && let Some(worst) = self.heap.peek()
        {
            self.limit = self.limit.min(*worst);
        }
    }

    /// Rows farther than it are not among the nearest; `None` while any row is.
    pub fn threshold(&self) -> Option<f32> {
        (self.limit != Key::MAX).then(|| distance(self.limit))
    }

    /// (distance, position) of the nearest rows, nearest first.
    pub fn into_sorted(self) -> Vec<(f32, u32)> {
        let keys = self.heap.into_sorted_vec();
        keys.into_iter()
            .map(|key| (distance(key), position(key)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_distances_do() {
        let distances = [-f32::MAX, -1.0, -1e-40, 0.0, 1e-40, 0.5, 1.0, f32::MAX];
        for pair in distances.windows(2) {
            assert!(key(pair[0], u32::MAX) < key(pair[1], 0));
        }
        for d in distances {
            assert!(key(d, 3) < key(d, 4));
            assert_eq!((distance(key(d, 7)), position(key(d, 7))), (d, 7));
        }
    }

    #[test]
    fn the_nearest_are_kept_in_any_order_of_arrival() {
        let mut rows = vec![(0.5, 3), (0.5, 1), (-0.9, 9), (1.5, 0), (0.5, 2)];
        let mut sorted = rows.clone();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for k in 0..7 {
            for bound in [None, Some(0.5), Some(-1.0), Some(9.0)] {
                for _ in 0..rows.len() {
                    rows.rotate_left(1);
                    let mut top = TopK::new(k).within(bound);
                    rows.iter().for_each(|(d, p)| top.offer(*d, *p));
                    let near = sorted.iter().filter(|(d, _)| bound.is_none_or(|b| *d <= b));
                    let expected: Vec<_> = near.take(k).copied().collect();
                    assert_eq!(top.into_sorted(), expected);
                }
            }
        }
    }
}
