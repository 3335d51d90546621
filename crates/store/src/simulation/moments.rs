//! Change times and birth times of objects: the given time, or that of a change. A store chooses the latter once, and
//! only another change may alter it.

use std::collections::BTreeMap;

use crate::{Attributes, Time};

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// As it was given, or as the store has it.
    At(Time),
    /// The time of this change.
    Of(u64),
}

/// When an object was changed, and when it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moments {
    pub(crate) changed: Moment,
    pub(crate) born: Moment,
}

impl Moments {
    /// For an object that a change creates.
    pub(crate) fn of(change: u64) -> Moments {
        Moments { changed: Moment::Of(change), born: Moment::Of(change) }
    }

    /// For one that is written with these attributes.
    pub(crate) fn put(attributes: &Attributes, change: u64) -> Moments {
        let changed = attributes.ctime.map_or(Moment::Of(change), Moment::At);
        Moments { changed, born: attributes.btime.map_or(changed, Moment::At) }
    }

    /// For one that is written again.
    pub(crate) fn again(self, change: u64) -> Moments {
        Moments { changed: Moment::Of(change), ..self }
    }

    /// For one that gets these attributes.
    pub(crate) fn with(self, attributes: &Attributes, change: u64) -> Moments {
        Moments {
            changed: attributes.ctime.map_or(Moment::Of(change), Moment::At),
            born: attributes.btime.map_or(self.born, Moment::At),
        }
    }
}

/// The observed times of changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(BTreeMap<u64, Time>);

impl Times {
    /// Takes in the times that a store has for an object with these expected moments. Returns what contradicts them, or
    /// earlier observations.
    pub(crate) fn see(&mut self, expected: Moments, found: Moments) -> Option<String> {
        let changed = self.contradiction(expected.changed, found.changed).map(|cause| format!("was changed {cause}"));
        let born = self.contradiction(expected.born, found.born).map(|cause| format!("was born {cause}"));
        changed.or(born)
    }

    fn contradiction(&mut self, expected: Moment, found: Moment) -> Option<String> {
        let Moment::At(found) = found else { return None };
        let known = match expected {
            Moment::At(given) => given,
            Moment::Of(change) => *self.0.entry(change).or_insert(found),
        };
        (known != found).then(|| format!("at {found:?}, not at {known:?} ({expected:?})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_learnt_once_and_what_differs_later_is_seen() {
        let at = |seconds| Moment::At(Time { seconds, nanoseconds: 0 });
        let found = |changed, born| Moments { changed: at(changed), born: at(born) };
        let mut times = Times::default();
        let made = Moments::of(1);
        assert_eq!(times.see(made, found(5, 5)), None);
        assert!(times.see(made, found(5, 6)).is_some_and(|cause| cause.starts_with("was born")));
        let again = made.again(2);
        assert!(times.see(again, found(7, 7)).is_some(), "it was made at 5");
        assert_eq!(times.see(again, found(7, 5)), None);
        assert!(times.see(again, found(8, 5)).is_some_and(|cause| cause.starts_with("was changed")));
        let given = Attributes { ctime: Some(Time { seconds: 3, nanoseconds: 0 }), ..Attributes::default() };
        assert_eq!(times.see(again.with(&given, 3), found(3, 5)), None);
        assert!(times.see(again.with(&given, 3), found(4, 5)).is_some());
        assert_eq!(times.see(Moments::put(&given, 3), found(3, 3)), None);
        assert!(times.see(Moments::put(&given, 3), found(3, 5)).is_some(), "what is put again is born then");
    }
}
