//! Sets of row positions with constant-time look-up.

use roaring::RoaringBitmap;

/// Positions of a fragment.
#[derive(Debug)]
pub(super) enum Bits {
    /// All of them.
    All,
    /// One bit each.
    Some(Vec<u64>),
}

impl Bits {
    /// The positions of a bitmap, all of them below `rows`.
    pub(super) fn new(bitmap: &RoaringBitmap, rows: u32) -> Self {
        if bitmap.len() == u64::from(rows) {
            return Self::All;
        }
        let mut words = vec![0u64; (rows as usize).div_ceil(64)];
        let mut ranges = bitmap.iter();
        while let Some(range) = ranges.next_range() {
            let (first, last) = (*range.start() as usize, *range.end() as usize);
            let touched = &mut words[first / 64..=last / 64];
            for (start, word) in (first / 64 * 64..).step_by(64).zip(touched) {
                let from = first.saturating_sub(start);
                let to = (last - start).min(63);
                *word |= u64::MAX << from & u64::MAX >> (63 - to);
            }
        }
        Self::Some(words)
    }

    /// The sum of a number over the positions that are there, of `total` over all; the number of
    /// positions that no row has must be 0.
    pub(super) fn sum(&self, total: u64, number: impl Fn(u32) -> u32) -> u64 {
        let Self::Some(words) = self else {
            return total;
        };
        let sum = |flip: u64| {
            let mut sum = 0;
            for (i, word) in words.iter().enumerate() {
                let mut word = word ^ flip;
                while word != 0 {
                    sum += u64::from(number(i as u32 * 64 + word.trailing_zeros()));
                    word &= word - 1;
                }
            }
            sum
        };
        let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        if count > words.len() * 32 {
            total.saturating_sub(sum(u64::MAX))
        } else {
            sum(0)
        }
    }

    /// Whether a position is there.
    #[inline]
    pub(super) fn contains(&self, position: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(bits) => bits
                .get(position as usize / 64)
                .is_some_and(|word| word >> (position % 64) & 1 == 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_bitmap() {
        let some = |from: u32, step: usize| (from..200).step_by(step).collect::<RoaringBitmap>();
        let few = RoaringBitmap::from_iter([0, 63, 64, 199]);
        for bitmap in [
            RoaringBitmap::new(),
            few,
            some(0, 1),
            some(1, 1),
            some(0, 3),
            some(1, 2),
        ] {
            let bits = Bits::new(&bitmap, 200);
            for position in 0..200 {
                assert_eq!(bits.contains(position), bitmap.contains(position));
            }
            let number = |position: u32| if position < 200 { position + 1 } else { 0 };
            let sum: u64 = bitmap
                .iter()
                .map(|position| u64::from(number(position)))
                .sum();
            assert_eq!(bits.sum(201 * 100, number), sum);
        }
        assert!(!Bits::new(&some(0, 2), 200).contains(1_000));
    }
}
