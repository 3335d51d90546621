//! Relative ages: which files are deleted while a tree ages.

use crate::distribution::Distribution;

/// Intervals into which the ages of a survey are divided.
const AGE_INTERVALS: u128 = 32;

/// A profile of relative ages: intervals that end at a fraction of the time since the beginning, each with its share of
/// the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ages(Vec<(f64, f64)>);

impl Ages {
    /// Profile of ages with their weights, youngest first, in any unit.
    pub fn of(ages: &[(f64, u64)]) -> Ages {
        let oldest = ages.last().map_or(1.0, |&(age, _)| age).max(f64::MIN_POSITIVE);
        let whole: u64 = ages.iter().map(|&(_, weight)| weight).sum();
        Ages(ages.iter().map(|&(age, weight)| (age / oldest, weight as f64 / whole.max(1) as f64)).collect())
    }

    /// Profile of the ages of files in days.
    pub fn of_days(days: &Distribution) -> Ages {
        let mut ages: Vec<(f64, u64)> = Vec::new();
        for part in 1..=AGE_INTERVALS {
            let age = days.quantile(part, AGE_INTERVALS) as f64 + 1.0;
            match ages.last_mut() {
                Some((last, weight)) if *last == age => *weight += 1,
                _ => ages.push((age, 1)),
            }
        }
        Ages::of(if days.is_empty() { &[] } else { &ages })
    }

    /// Where each interval ends, as a fraction of the time, and its share of the files.
    pub(super) fn intervals(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// Whether the profile is empty: every file is equally likely to be deleted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_days_are_parts_of_the_oldest() {
        let mut days = Distribution::default();
        days.add(9, 50);
        days.add(99, 50);
        let ages = Ages::of_days(&days);
        assert_eq!(ages, Ages(vec![(0.1, 0.5), (1.0, 0.5)]));
        assert!(Ages::of_days(&Distribution::default()).is_empty());
    }
}
