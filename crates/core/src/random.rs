//! Pseudorandom numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014).
//!
//! The n-th number of a sequence is `mix(seed + n · STEP)`, so any of them can be computed without its predecessors.
//! The numbers are the same on every machine and in every version: generated populations, and the seeds in reports of
//! failed tests, depend on that.

use std::ops::Range;

/// The step of the sequence: 2^64 over the golden ratio, odd.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64, a bijection.
#[inline]
pub fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Maps a random number to one below `end`, evenly distributed; 0 if `end` is 0. (Even to `end` in 2^64.)
#[inline]
pub fn below(number: u64, end: u64) -> u64 {
    ((u128::from(number) * u128::from(end)) >> 64) as u64
}

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    #[inline]
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `end`; 0 if `end` is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        below(self.any(), end)
    }

    /// An index below `end`; 0 if `end` is 0.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// A number from 0 up to but not including 1.
    pub fn fraction(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with a probability of `share` in `of`.
    pub fn happens(&mut self, share: u64, of: u64) -> bool {
        self.below(of) < share
    }

    /// A range within `0..length`, not empty unless `length` is 0.
    pub fn range(&mut self, length: usize) -> Range<usize> {
        let (one, other) = (self.index(length), self.index(length));
        one.min(other)..(one.max(other) + 1).min(length)
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.index(at + 1));
        }
    }

    /// `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.any().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix_for_ever() {
        // The first three of seed 0, as its authors' C program prints them.
        let mut random = Random::new(0);
        let expected = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F];
        assert_eq!(expected.map(|_| random.any()), expected);
        assert_eq!(Random::new(0).bytes(9), [0xAF, 0xCD, 0x1D, 0x7B, 0x39, 0xA8, 0x20, 0xE2, 0xF4]);
    }

    #[test]
    fn numbers_below_a_limit_are_even_and_below_it() {
        let mut random = Random::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.index(10)] += 1;
            assert!((0.0..1.0).contains(&random.fraction()));
            let range = random.range(5);
            assert!(!range.is_empty() && range.end <= 5);
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!((random.below(0), random.range(0)), (0, 0..0));
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        let mut random = Random::new(1);
        random.shuffle(&mut items);
        assert!(items.windows(2).any(|two| two[0] > two[1]));
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
