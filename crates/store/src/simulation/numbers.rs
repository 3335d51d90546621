//! Numbers of objects: a store assigns each object a number for life, and never assigns it to another object, whatever
//! crashes and returns.

use std::collections::BTreeMap;

use crate::format::ids::ObjectNumber;

/// The identity of an object: the change that created it, and how many directories it is above the change's key.
pub(crate) type Incarnation = (u64, usize);

/// Observed numbers, and their objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    of: BTreeMap<Incarnation, ObjectNumber>,
    taken: BTreeMap<ObjectNumber, Incarnation>,
}

impl Numbers {
    /// Takes in an observation: the identity of an object, and the number that the store has for it. Returns what
    /// contradicts earlier observations.
    pub(crate) fn see(&mut self, incarnation: Incarnation, number: ObjectNumber) -> Option<String> {
        let known = *self.of.entry(incarnation).or_insert(number);
        let owner = *self.taken.entry(number).or_insert(incarnation);
        match (known == number, owner == incarnation) {
            (true, true) => None,
            (false, _) => Some(format!("has the number {number}, and had {known}")),
            (_, false) => Some(format!("has the number {number} of an object that was made by change {owner:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_changes_or_is_given_twice_is_seen() {
        let mut numbers = Numbers::default();
        for _ in 0..2 {
            assert_eq!(numbers.see((1, 0), ObjectNumber(7)), None);
            assert_eq!(numbers.see((1, 1), ObjectNumber(8)), None);
        }
        assert!(numbers.see((1, 0), ObjectNumber(9)).is_some_and(|cause| cause.contains("had 7")));
        assert!(numbers.see((2, 0), ObjectNumber(8)).is_some_and(|cause| cause.contains("(1, 1)")));
    }
}
