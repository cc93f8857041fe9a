//! Adjacency lists in compressed sparse rows.

use std::ops::Range;

use arrow::buffer::ScalarBuffer;

use super::pace::Pace;
use crate::table::reservation::Reservation;
use crate::{Error, Result};

/// Slots of a dense array for each key that has edges; more of them and the keys are listed.
pub(super) const DENSE_SLOTS: usize = 4;
/// Edges that are moved between two pauses.
const STEP: usize = 64 * 1024;

/// A row id of the engine's own arrays.
///
/// # Errors
/// `ResourceLimitExceeded` from 2^32 - 1: topologies hold ids in 32 bits.
pub(super) fn narrow(rid: u64) -> Result<u32> {
    let small = u32::try_from(rid).ok().filter(|r| *r < u32::MAX);
    small.ok_or(Error::ResourceLimitExceeded {
        what: "row id of a node in a traversal",
        value: rid,
        limit: u64::from(u32::MAX) - 1,
    })
}

#[derive(Debug)]
pub(super) enum Keys {
    /// All ids from this one on.
    Dense(u32),
    /// These ids, ascending.
    Listed(ScalarBuffer<u32>),
}

/// For each key the far ends of its edges. Keys and the ends of one key ascend.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) keys: Keys,
    /// Where the ends of each key begin, and the number of all.
    pub(super) offsets: ScalarBuffer<u32>,
    pub(super) ends: ScalarBuffer<u32>,
    max_key: u32,
    max_end: u32,
    /// Keys whose list names an end twice, ascending.
    parallel: Vec<u32>,
    /// Held for as long as no cache holds the lists.
    _memory: Option<Reservation>,
}

impl Lists {
    /// Lists of parts that are in order.
    pub(super) fn of_parts(
        keys: Keys,
        offsets: ScalarBuffer<u32>,
        ends: ScalarBuffer<u32>,
        (max_key, max_end): (u32, u32),
        parallel: Vec<u32>,
    ) -> Self {
        Self {
            keys,
            offsets,
            ends,
            max_key,
            max_end,
            parallel,
            _memory: None,
        }
    }

    /// Where the ends of a key lie; the positions of its edges in lists that a fragment's order makes.
    #[inline]
    pub(super) fn range(&self, key: u32) -> Range<usize> {
        let slot = match &self.keys {
            Keys::Dense(first) => key.checked_sub(*first).map(|slot| slot as usize),
            Keys::Listed(keys) => keys.binary_search(&key).ok(),
        };
        let bounds = slot.and_then(|s| self.offsets.get(s..s.checked_add(2)?));
        match bounds {
            Some([start, end]) => *start as usize..*end as usize,
            _ => 0..0,
        }
    }

    /// Far ends at some places.
    #[inline]
    pub(super) fn ends(&self, range: Range<usize>) -> &[u32] {
        &self.ends[range]
    }

    /// Number of edges.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The largest key and the largest end; 0 without edges.
    pub(super) fn largest(&self) -> (u32, u32) {
        (self.max_key, self.max_end)
    }

    /// Whether two edges join the same nodes.
    #[inline]
    pub(super) fn parallel(&self) -> bool {
        !self.parallel.is_empty()
    }

    /// Whether two edges of a key have the same end.
    #[inline]
    pub(super) fn parallel_at(&self, key: u32) -> bool {
        self.parallel() && self.parallel.binary_search(&key).is_ok()
    }

    /// Keys that have edges, ascending.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        let some = self.by_key().filter(|(_, range)| !range.is_empty());
        some.map(|(key, _)| key)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let keys = match &self.keys {
            Keys::Dense(_) => 0,
            Keys::Listed(keys) => keys.len(),
        };
        let numbers = keys + self.offsets.len() + self.ends.len() + self.parallel.len();
        numbers * size_of::<u32>() + size_of::<Self>()
    }

    /// Lets the lists keep the memory that they were built in.
    pub(super) fn holding(mut self, memory: Reservation) -> Self {
        self._memory = Some(memory);
        self
    }

    /// The same edges from their far ends, without the `dead` positions.
    pub(super) async fn reversed(
        &self,
        dead: Option<&Bits>,
        memory: &mut Reservation,
        pace: &mut Pace,
    ) -> Result<Self> {
        let live = |position: usize| dead.is_none_or(|dead| !dead.get(position));
        let (mut least, mut most, mut count) = (u32::MAX, 0, 0);
        for (position, end) in self.ends.iter().enumerate() {
            if live(position) {
                (least, most, count) = (least.min(*end), most.max(*end), count + 1);
            }
        }
        let span = (most as usize + 1).saturating_sub(least as usize);
        if count == 0 || span > DENSE_SLOTS * count + STEP {
            memory.grow(count * 3 * size_of::<u64>())?;
            let mut pairs = Vec::with_capacity(count);
            self.each(&mut |position, key, end| {
                if live(position) {
                    pairs.push(pack(end, key));
                }
            });
            return Ok(from_pairs(pairs, false));
        }
        memory.grow((count + span + 1) * size_of::<u32>())?;
        let mut offsets = vec![0u32; span + 1];
        for (position, end) in self.ends.iter().enumerate() {
            if live(position) {
                offsets[(end - least) as usize + 1] += 1;
            }
            if position % STEP == 0 && pace.due(STEP) {
                Pace::rest().await;
            }
        }
        // Each slot holds where its next end goes; it arrives where the slot after it began.
        let mut sum = 0;
        for slot in &mut offsets {
            sum += *slot;
            *slot = sum;
        }
        let mut ends = vec![0u32; count];
        for (key, range) in self.by_key() {
            if pace.due(range.len()) {
                Pace::rest().await;
            }
            for position in range {
                if live(position) {
                    let slot = &mut offsets[(self.ends[position] - least) as usize];
                    ends[*slot as usize] = key;
                    *slot += 1;
                }
            }
        }
        // Every slot now holds the end of its list.
        offsets.rotate_right(1);
        if let Some(first) = offsets.first_mut() {
            *first = 0;
        }
        let mut reversed = Self {
            keys: Keys::Dense(least),
            offsets: offsets.into(),
            max_key: most,
            max_end: ends.iter().copied().max().unwrap_or(0),
            ends: ends.into(),
            parallel: Vec::new(),
            _memory: None,
        };
        if self.parallel() {
            let twice = |list: &[u32]| list.windows(2).any(|pair| pair[0] == pair[1]);
            let lists = reversed.by_key();
            let lists = lists.filter(|(_, range)| twice(&reversed.ends[range.clone()]));
            let parallel: Vec<u32> = lists.map(|(key, _)| key).collect();
            memory.grow(parallel.len() * size_of::<u32>())?;
            reversed.parallel = parallel;
        }
        Ok(reversed)
    }

    fn by_key(&self) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
        let bounds = self.offsets.windows(2);
        bounds.enumerate().map(|(slot, bounds)| {
            let key = match &self.keys {
                Keys::Dense(first) => first + slot as u32,
                Keys::Listed(keys) => keys[slot],
            };
            (key, bounds[0] as usize..bounds[1] as usize)
        })
    }

    /// Calls `visit` with place, key and end of each edge.
    pub(super) fn each(&self, visit: &mut dyn FnMut(usize, u32, u32)) {
        for (key, range) in self.by_key() {
            for position in range {
                visit(position, key, self.ends[position]);
            }
        }
    }
}

fn pack(key: u32, end: u32) -> u64 {
    u64::from(key) << 32 | u64::from(end)
}

/// Lists of pairs in any order, each pair once if they are to be `distinct`.
pub(super) fn from_pairs(mut pairs: Vec<u64>, distinct: bool) -> Lists {
    pairs.sort_unstable();
    if distinct {
        pairs.dedup();
    }
    let mut builder = ListsBuilder::default();
    builder.ends.reserve_exact(pairs.len());
    for pair in pairs {
        builder.push((pair >> 32) as u32, pair as u32);
    }
    builder.finish()
}

/// The key and the end of a pair.
pub(super) fn pair(key: u32, end: u32) -> u64 {
    pack(key, end)
}

/// Builds lists of edges that come in order.
#[derive(Debug, Default)]
pub(super) struct ListsBuilder {
    keys: Vec<u32>,
    starts: Vec<u32>,
    ends: Vec<u32>,
    max_end: u32,
    parallel: Vec<u32>,
}

impl ListsBuilder {
    /// For `edges` edges.
    pub(super) fn with_capacity(edges: usize) -> Self {
        Self {
            ends: Vec::with_capacity(edges),
            ..Self::default()
        }
    }

    /// Adds the next edge; `false` if it comes before the last one.
    pub(super) fn push(&mut self, key: u32, end: u32) -> bool {
        match (self.keys.last(), self.ends.last()) {
            (Some(last), Some(before)) if *last == key => {
                if *before > end {
                    return false;
                }
                if *before == end && self.parallel.last() != Some(&key) {
                    self.parallel.push(key);
                }
            }
            (last, _) => {
                if last.is_some_and(|last| *last > key) {
                    return false;
                }
                self.keys.push(key);
                self.starts.push(self.ends.len() as u32);
            }
        }
        self.max_end = self.max_end.max(end);
        self.ends.push(end);
        true
    }

    /// Makes room for the edges of another key.
    pub(super) fn reserve(&mut self, more: usize, memory: &mut Reservation) -> Result<()> {
        let (len, held) = (self.ends.len() + more, self.ends.capacity());
        if len > held {
            let grown = len.max(held * 2);
            memory.grow((grown - held) * size_of::<u32>())?;
            self.ends.reserve_exact(grown - self.ends.len());
        }
        Ok(())
    }

    /// Bytes held, and what finishing takes.
    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.capacity() + self.starts.capacity();
        let others = self.ends.capacity() + self.parallel.capacity();
        let slots = if self.is_dense() {
            self.span().1 + 1
        } else {
            keys
        };
        (keys + slots + others) * size_of::<u32>()
    }

    /// The first key, and how many there are up to the last one.
    fn span(&self) -> (u32, usize) {
        let (first, last) = (self.keys.first(), self.keys.last());
        let (first, last) = first.zip(last).unwrap_or((&0, &0));
        (*first, (last - first) as usize + 1)
    }

    /// Whether all keys have a slot: where those without edges take less than the others.
    fn is_dense(&self) -> bool {
        self.span().1 <= (DENSE_SLOTS * self.keys.len()).max(self.ends.len())
    }

    pub(super) fn finish(mut self) -> Lists {
        self.starts.push(self.ends.len() as u32);
        let (first, span) = self.span();
        let last = self.keys.last().copied().unwrap_or(0);
        let (keys, offsets) = if self.is_dense() {
            let mut offsets = Vec::with_capacity(span + 1);
            for (key, start) in self.keys.iter().zip(&self.starts) {
                offsets.resize((key - first) as usize + 1, *start);
            }
            offsets.push(self.ends.len() as u32);
            (Keys::Dense(first), offsets)
        } else {
            self.keys.shrink_to_fit();
            self.starts.shrink_to_fit();
            (Keys::Listed(self.keys.into()), self.starts)
        };
        Lists {
            keys,
            offsets: offsets.into(),
            ends: self.ends.into(),
            max_key: last,
            max_end: self.max_end,
            parallel: self.parallel,
            _memory: None,
        }
    }
}

/// A set of small numbers.
#[derive(Debug, Default, Clone)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Bytes for numbers below `len`.
    pub(super) fn bytes_for(len: usize) -> usize {
        len.div_ceil(64) * size_of::<u64>()
    }

    /// No number below `len`.
    pub(super) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }

    /// Whether a number is there.
    #[inline]
    pub(super) fn get(&self, number: usize) -> bool {
        self.0
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// The numbers that are there, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let rest = std::iter::successors(Some(*word), |rest| Some(rest & rest.wrapping_sub(1)));
            let rest = rest.take_while(|rest| *rest != 0);
            rest.map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// Whether any number of a range is there.
    #[inline]
    pub(super) fn any(&self, range: &Range<usize>) -> bool {
        if range.is_empty() {
            return false;
        }
        let (first, last) = (range.start / 64, (range.end - 1) / 64);
        let after = u64::MAX << (range.start % 64);
        let until = u64::MAX >> (63 - (range.end - 1) % 64);
        let words = self.0.get(first..=last.min(self.0.len().saturating_sub(1)));
        words
            .unwrap_or_default()
            .iter()
            .enumerate()
            .any(|(at, word)| {
                let at = first + at;
                let low = if at == first { after } else { u64::MAX };
                let high = if at == last { until } else { u64::MAX };
                word & low & high != 0
            })
    }

    /// Adds a number; whether it was not there.
    #[inline]
    pub(super) fn insert(&mut self, number: usize) -> bool {
        let Some(word) = self.0.get_mut(number / 64) else {
            return false;
        };
        let fresh = *word >> (number % 64) & 1 == 0;
        *word |= 1 << (number % 64);
        fresh
    }

    /// Removes a number.
    #[inline]
    pub(super) fn remove(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::env::Env;

    fn lists(pairs: &[(u32, u32)]) -> Lists {
        from_pairs(pairs.iter().map(|(k, e)| pack(*k, *e)).collect(), false)
    }

    fn pairs(lists: &Lists) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        lists.each(&mut |_, key, end| out.push((key, end)));
        out
    }

    #[test]
    fn lists_keep_every_edge_dense_or_listed() {
        for scale in [1, 3, 1_000_000] {
            let edges = [(5, 1), (5, 1), (5, 9), (6, 0), (9, 9)];
            let edges: Vec<(u32, u32)> =
                edges.iter().map(|(k, e)| (k * scale, e * scale)).collect();
            let lists = lists(&edges);
            assert_eq!(pairs(&lists), edges);
            assert_eq!(
                lists.ends(lists.range(5 * scale)),
                [scale, scale, 9 * scale]
            );
            for absent in [0, 4 * scale, 7 * scale, 10 * scale, u32::MAX] {
                assert!(lists.range(absent).is_empty(), "{scale} {absent}");
            }
            assert!(lists.parallel() && lists.largest() == (9 * scale, 9 * scale));
        }
    }

    #[test]
    fn a_range_of_bits_has_what_its_numbers_have() {
        let mut bits = Bits::new(300);
        for number in [0, 63, 64, 200, 299] {
            bits.insert(number);
        }
        for start in 0..=300 {
            for end in start..=300 {
                let expected = (start..end).any(|number| bits.get(number));
                assert_eq!(bits.any(&(start..end)), expected, "{start}..{end}");
            }
        }
        assert!(!bits.any(&(400..500)) && !Bits::default().any(&(0..9)));
    }

    #[test]
    fn edges_out_of_order_are_noticed() {
        let mut builder = ListsBuilder::with_capacity(4);
        assert!(builder.push(3, 7) && builder.push(3, 7) && builder.push(4, 1));
        assert!(!builder.push(4, 0) && !builder.push(3, 9));
    }

    #[tokio::test]
    async fn reversed_lists_leave_the_dead_out() {
        let budget = Env::fixed(0).budget;
        for scale in [1, 10_000_000] {
            let edges = [(1, 2), (1, 3), (2, 2), (7, 2), (7, 3), (7, 3)];
            let edges: Vec<(u32, u32)> =
                edges.iter().map(|(k, e)| (k * scale, e * scale)).collect();
            let lists = lists(&edges);
            let mut dead = Bits::new(6);
            assert!(dead.insert(2) && dead.insert(4) && !dead.insert(4));
            for dead in [None, Some(&dead)] {
                let mut memory = Reservation::new(&Arc::clone(&budget));
                let reversed = lists
                    .reversed(dead, &mut memory, &mut Pace::default())
                    .await;
                let live = |i: &usize| dead.is_none_or(|d| !d.get(*i));
                let mut expected: Vec<(u32, u32)> = (0..6)
                    .filter(live)
                    .map(|i| (edges[i].1, edges[i].0))
                    .collect();
                expected.sort_unstable();
                assert_eq!(pairs(&reversed.unwrap()), expected);
            }
        }
    }
}
