//! Numbers of objects: what a store gives an object is its own for life, and no other object ever has it, whatever crashes and comes back.

use std::collections::BTreeMap;

/// Which object it is: the change that made it, and how many directories above what that change is about.
pub(crate) type Incarnation = (u64, usize);

/// Numbers that were seen, and of which objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    of: BTreeMap<Incarnation, u64>,
    taken: BTreeMap<u64, Incarnation>,
}

impl Numbers {
    /// Takes in what was seen: which object it is, and the number that the store gives it. Gives what contradicts what was seen before.
    pub(crate) fn see(&mut self, incarnation: Incarnation, number: u64) -> Option<String> {
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
            assert_eq!(numbers.see((1, 0), 7), None);
            assert_eq!(numbers.see((1, 1), 8), None);
        }
        assert!(numbers.see((1, 0), 9).is_some_and(|cause| cause.contains("had 7")));
        assert!(numbers.see((2, 0), 8).is_some_and(|cause| cause.contains("(1, 1)")));
    }
}
