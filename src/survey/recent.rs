//! A small cache before a table of owners or extensions, with the latest additions. Most files have the owner and the
//! extension of a file shortly before, and adding to a short array takes a fraction of the time of a table look-up.

use std::hash::Hash;

use super::places::{Extension, Kind, KindTable, Tally};
use crate::scan;

/// Places, a power of two.
const PLACES: usize = 128;

/// A key that has a place.
pub(super) trait Placed: Copy + Eq + Hash + Ord {
    /// Any number that is spread well over the keys.
    fn number(self) -> u64;
}

impl Placed for u32 {
    #[inline]
    fn number(self) -> u64 {
        self.into()
    }
}

impl Placed for Extension {
    #[inline]
    fn number(self) -> u64 {
        let both = self.bits();
        both as u64 ^ (both >> 64) as u64
    }
}

/// Sums that are not in their table yet.
#[derive(Clone)]
pub(super) struct Recent<K> {
    places: Box<[Option<(K, Tally)>; PLACES]>,
}

impl<K: Placed> Default for Recent<K> {
    fn default() -> Recent<K> {
        Recent { places: Box::new([None; PLACES]) }
    }
}

impl<K: Placed> Recent<K> {
    /// Adds files of a kind, which are in `table` after [`settle`](Self::settle).
    #[inline]
    pub(super) fn add(&mut self, table: &mut KindTable<Kind<K>>, key: K, tally: &Tally) {
        let spread = key.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.places[(spread >> (u64::BITS - PLACES.ilog2())) as usize];
        match place {
            Some((known, sums)) if *known == key => scan::Tally::add(sums, tally),
            _ => {
                if let Some((known, sums)) = place.replace((key, *tally)) {
                    table.add(Kind::Named(known), &sums);
                }
            }
        }
    }

    /// Moves everything that was added into the table.
    pub(super) fn settle(&mut self, table: &mut KindTable<Kind<K>>) {
        for (known, sums) in self.places.iter_mut().filter_map(Option::take) {
            table.add(Kind::Named(known), &sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_table_alone() {
        let (mut recent, mut before, mut alone) = (Recent::default(), KindTable::default(), KindTable::default());
        for number in 0..5000u32 {
            let key = number.wrapping_mul(number) % 700;
            let tally = Tally::of_file(number.into(), 4096, number < 100);
            recent.add(&mut before, key, &tally);
            alone.add(Kind::Named(key), &tally);
        }
        assert_ne!(before, alone);
        recent.settle(&mut before);
        assert_eq!(before, alone);
        recent.settle(&mut before);
        assert_eq!(before, alone);
    }
}
