//! Pseudorandom numbers as functions of a seed: the same on every machine, with any number of threads, in every
//! version.
//!
//! Everything is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): the
//! n-th number of a sequence is `mix(start + n · STEP)`, so any of them can be computed without its predecessors.

/// The step of the sequence: 2^64 over the golden ratio, odd.
pub(super) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64, a bijection.
#[inline]
pub(super) fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The purpose of a number: sequences of one seed that are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Stream {
    /// Which file has which size.
    Sizes = 1,
    /// Which entry has a name of which length.
    Names,
    /// How names are spelt.
    Spelling,
    /// Which file has which age of content.
    MtimeAges,
    /// Which file has which age of reading.
    AtimeAges,
    /// The second of the day.
    MtimeSeconds,
    /// The second of the day.
    AtimeSeconds,
    /// Bytes of files.
    Content,
    /// Which directory has how many entries.
    Directories,
    /// Which files are deleted while a tree ages.
    Aging,
    /// Where files are created during aging.
    AgingPlaces,
    /// Their names.
    AgingNames,
}

/// Where a sequence of `seed` starts.
pub(super) fn start(seed: u64, stream: Stream) -> u64 {
    mix(mix(seed.wrapping_add(STEP)).wrapping_add((stream as u64).wrapping_mul(STEP)))
}

/// The number at `index` of a sequence.
#[inline]
pub(super) fn draw(start: u64, index: u64) -> u64 {
    mix(start.wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
}

/// A number that looks random and belongs to `number` alone.
#[inline]
pub fn scramble(number: u64) -> u64 {
    draw(number, 0)
}

/// Maps `number` to one below `end`, evenly distributed; 0 if `end` is 0. (Even to `end` in 2^64.)
#[inline]
pub(super) fn below(number: u64, end: u64) -> u64 {
    ((u128::from(number) * u128::from(end)) >> 64) as u64
}

/// A sequence to iterate over.
#[derive(Debug, Clone)]
pub struct Chance {
    start: u64,
    drawn: u64,
}

impl Chance {
    /// The sequence of a seed and a purpose.
    pub(super) fn new(seed: u64, stream: Stream) -> Chance {
        Chance { start: start(seed, stream), drawn: 0 }
    }

    /// A separate sequence for code outside this module that generates sizes.
    pub fn of_seed(seed: u64) -> Chance {
        Chance { start: mix(seed), drawn: 0 }
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        let number = draw(self.start, self.drawn);
        self.drawn += 1;
        number
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        below(self.any(), end)
    }

    /// A number from 0 up to but not including 1.
    pub fn fraction(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles `items`.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix_for_ever() {
        // The first three of seed 0, as its authors' C program prints them.
        let first: Vec<u64> = (0..3).map(|index| draw(0, index)).collect();
        assert_eq!(first, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
        assert_eq!(start(1, Stream::Sizes), start(1, Stream::Sizes));
        assert_ne!(start(1, Stream::Sizes), start(1, Stream::Names));
        assert_ne!(start(1, Stream::Sizes), start(2, Stream::Sizes));
    }

    #[test]
    fn numbers_below_a_limit_are_even_and_below_it() {
        let mut chance = Chance::of_seed(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[chance.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&chance.fraction()));
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(chance.below(0), 0);
    }
}
