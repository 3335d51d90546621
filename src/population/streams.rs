//! Sequences of random numbers as functions of a seed and a purpose: the same with any number of threads, since any
//! number can be computed without its predecessors.

use crate::random::{Random, STEP, mix};

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
pub(crate) fn scramble(number: u64) -> u64 {
    draw(number, 0)
}

/// The sequence of a seed and a purpose.
pub(super) fn sequence(seed: u64, stream: Stream) -> Random {
    Random::new(start(seed, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_can_be_drawn_in_any_order() {
        let mut sequence = sequence(1, Stream::Names);
        let drawn: Vec<u64> = (0..3).rev().map(|index| draw(start(1, Stream::Names), index)).collect();
        assert_eq!([(); 3].map(|()| sequence.any()).to_vec(), drawn.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(start(1, Stream::Sizes), start(1, Stream::Sizes));
        assert_ne!(start(1, Stream::Sizes), start(1, Stream::Names));
        assert_ne!(start(1, Stream::Sizes), start(2, Stream::Sizes));
    }
}
