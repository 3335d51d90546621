//! Names of a given length that are unique in one directory.
//!
//! A name is digits and small letters, so it is printable, and different names stay different where case is ignored.
//! The k-th name of a length in its directory is spelt from a permutation of all names of that length (of the first
//! [`CODE`] characters; the rest is filler): they look random and cannot collide. When all names of a length are used
//! up, the next one is longer.

use super::permutation::Permutation;
use super::streams::{Stream, draw, start};
use crate::random::below;

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Characters that make names distinct: 36^12 is 4.7 · 10^18.
const CODE: usize = 12;
/// The longest that Linux allows.
pub(super) const LONGEST: usize = 255;

/// Names spelt by a seed.
#[derive(Debug)]
pub(super) struct SeededNames {
    /// For each length up to [`CODE`], the order of its names.
    orders: Vec<Permutation>,
    filling: u64,
    longest: usize,
}

/// How many names of each length a directory has.
#[derive(Debug, Clone)]
pub(super) struct Used(Box<[u64; LONGEST + 1]>);

impl Default for Used {
    fn default() -> Used {
        Used(Box::new([0; LONGEST + 1]))
    }
}

impl SeededNames {
    /// Names of up to `longest` characters, which is always at least [`CODE`].
    pub(super) fn new(seed: u64, longest: usize) -> SeededNames {
        let start = start(seed, Stream::Spelling);
        let order = |length: u32| Permutation::new(36u64.pow(length), draw(start, length.into()));
        let filling = draw(start, 0);
        SeededNames { orders: (1..=CODE as u32).map(order).collect(), filling, longest: longest.clamp(CODE, LONGEST) }
    }

    /// Length of the longest name.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The actual length of the next name for a `wanted` length, and its number among the names of that length.
    fn next(&self, wanted: u64, used: &mut Used) -> (usize, u64) {
        let mut length = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, self.longest);
        while length < CODE && used.0[length] >= 36u64.pow(length as u32) {
            length += 1;
        }
        let number = used.0[length];
        used.0[length] += 1;
        (length, number)
    }

    /// Appends the next name of a directory for a `wanted` length.
    pub(super) fn spell(&self, wanted: u64, used: &mut Used, out: &mut Vec<u8>) {
        let (length, number) = self.next(wanted, used);
        let code = length.min(CODE);
        let mut value = self.orders[code - 1].at(number);
        let filling = draw(self.filling, value);
        for _ in 0..code {
            out.push(LETTERS[(value % 36) as usize]);
            value /= 36;
        }
        for at in code..length {
            out.push(LETTERS[below(draw(filling, at as u64), 36) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn names_are_printable_unique_and_as_long_as_asked_for(lengths in proptest::collection::vec(0u64..400, 1..500), seed in any::<u64>()) {
            let names = SeededNames::new(seed, 200);
            let (mut used, mut seen) = (Used::default(), HashSet::new());
            for wanted in lengths {
                let mut name = Vec::new();
                names.spell(wanted, &mut used, &mut name);
                prop_assert!(name.iter().all(u8::is_ascii_alphanumeric) && name.len() <= 200);
                prop_assert!(name.len() as u64 == wanted.clamp(1, 200) || wanted <= 1);
                prop_assert!(seen.insert(name));
            }
        }
    }

    #[test]
    fn names_that_are_used_up_become_longer() {
        let names = SeededNames::new(1, LONGEST);
        let (mut used, mut seen) = (Used::default(), HashSet::new());
        for _ in 0..3000 {
            let mut name = Vec::new();
            names.spell(1, &mut used, &mut name);
            assert!(seen.insert(name));
        }
        let of = |length: usize| seen.iter().filter(|name| name.len() == length).count();
        assert_eq!((of(1), of(2), of(3)), (36, 36 * 36, 3000 - 36 - 36 * 36));
    }
}
