//! A permutation of `0..n` in constant memory: which file has which size, for ten million files or for ten.
//!
//! A Feistel network over the smallest power of two that holds `n`, applied repeatedly until the result is below `n`
//! (cycle walking) (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): fewer than two
//! applications on average, from n = 3 on.

use crate::random::{STEP, mix};

const ROUNDS: usize = 6;

/// A permutation of `0..length`.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    length: u64,
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..length` that belongs to `seed`.
    pub(crate) fn new(length: u64, seed: u64) -> Permutation {
        // Each half needs a bit.
        let bits = (u64::BITS - length.saturating_sub(1).leading_zeros()).max(2);
        let low_bits = bits / 2;
        let mut key = seed;
        let keys = [(); ROUNDS].map(|()| {
            key = key.wrapping_add(STEP);
            mix(key)
        });
        Permutation {
            length,
            low_bits,
            low_mask: (1 << low_bits) - 1,
            high_mask: u64::MAX >> (u64::BITS - (bits - low_bits)),
            keys,
        }
    }

    /// The image of `index`.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        // From outside the range, the walk may never return.
        assert!(index < self.length, "{index} is not below {}", self.length);
        let mut value = index;
        loop {
            let (mut low, mut high) = (value & self.low_mask, value >> self.low_bits);
            // Each half is modified by the other in turn, so every round is invertible, whatever the widths.
            for pair in self.keys.chunks_exact(2) {
                low ^= mix(high ^ pair[0]) & self.low_mask;
                high ^= mix(low ^ pair[1]) & self.high_mask;
            }
            value = (high << self.low_bits) | low;
            if value < self.length {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_is_met_once(length in prop_oneof![1u64..70, 1u64..5000], start in any::<u64>()) {
            let permutation = Permutation::new(length, start);
            let mut seen = vec![false; length as usize];
            for index in 0..length {
                let at = permutation.at(index) as usize;
                prop_assert!(!std::mem::replace(&mut seen[at], true));
            }
        }

        #[test]
        fn large_domains_stay_in_their_bounds(length in 1u64.., start in any::<u64>(), index in any::<u64>()) {
            let permutation = Permutation::new(length, start);
            prop_assert!(permutation.at(index % length) < length);
        }
    }

    #[test]
    fn neighbours_do_not_stay_together() {
        let permutation = Permutation::new(100_000, 1);
        let near = (1..100_000).filter(|&i| permutation.at(i).abs_diff(permutation.at(i - 1)) < 100).count();
        // For a random order, 0.2 % of all pairs.
        assert!((100..320).contains(&near), "{near}");
    }
}
