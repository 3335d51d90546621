//! Ages of files for the page of a survey: shares between the breaks of the survey, and quantiles. What packaging reset
//! to 1970 or 1980 is apart: it says nothing of an age, and would be every high quantile.

use serde::Serialize;

use super::ages::first_reset_days;
use crate::distribution::{Distribution, Weight};
use crate::survey::Survey;
use crate::survey::measure::{ByteMeasure, Measure};
use crate::units::fraction;

/// Ages by each of the three times of a file.
#[derive(Debug, Serialize)]
pub(super) struct Ages {
    /// Ages between which the shares are.
    breaks_days: Vec<u64>,
    /// From this age on, a time is taken for one that packaging has reset.
    first_reset_days: u64,
    times: Vec<Time>,
}

#[derive(Debug, Serialize)]
struct Time {
    name: &'static str,
    files: Option<Side>,
    bytes: Option<Side>,
}

/// Ages by files, or by their bytes.
#[derive(Debug, PartialEq, Serialize)]
struct Side {
    /// Younger than the first break, from each break to the next, and older.
    fractions: Vec<f64>,
    /// Reset: in none of these, and in no quantile.
    reset_fraction: f64,
    half_days: Option<u64>,
    nine_tenths_days: Option<u64>,
    oldest_days: Option<u64>,
}

impl Ages {
    /// `None` where a survey knows no ages.
    pub(super) fn of(survey: &Survey) -> Option<Ages> {
        let breaks = &survey.origin.options.age_breaks_days;
        let first_reset = first_reset_days(survey);
        let time = |(name, by_files, by_bytes)| Time {
            name,
            files: side(survey.distributions.of(by_files), breaks, first_reset),
            bytes: side(survey.distributions.by_bytes(by_bytes), breaks, first_reset),
        };
        let all = [
            ("mtime", Measure::MtimeAge, ByteMeasure::MtimeAge),
            ("ctime", Measure::CtimeAge, ByteMeasure::CtimeAge),
            ("atime", Measure::AtimeAge, ByteMeasure::AtimeAge),
        ];
        let times: Vec<Time> = all.map(time).into_iter().filter(|time| time.files.is_some()).collect();
        (!times.is_empty()).then(|| Ages { breaks_days: breaks.clone(), first_reset_days: first_reset, times })
    }
}

fn side<W: Weight>(ages: &Distribution<W>, breaks: &[u64], first_reset: u64) -> Option<Side> {
    let count = ages.count();
    if count == 0 {
        return None;
    }
    let younger = |days: u64| days.checked_sub(1).map_or(0, |last| ages.up_to(last).count);
    let kept = younger(first_reset);
    let edges = breaks.iter().map(|&days| younger(days.min(first_reset))).chain([kept]);
    let mut before = 0;
    let fractions = edges.map(|upto| fraction(upto - std::mem::replace(&mut before, upto), count)).collect();
    // As a rank among all: a product with the count of both shares could exceed 128 bits.
    let quantile = |part: u128, of: u128| (kept > 0).then(|| ages.quantile((part * kept).div_ceil(of), count));
    Some(Side {
        fractions,
        reset_fraction: fraction(count - kept, count),
        half_days: quantile(1, 2),
        nine_tenths_days: quantile(9, 10),
        oldest_days: quantile(1, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reset_is_in_no_quantile() {
        let mut ages = Distribution::default();
        for (days, files) in [(0, 5u64), (40, 4), (400, 1), (17_134, 10)] {
            ages.add(days, files);
        }
        let found = side(&ages, &[30, 365], 16_000).unwrap();
        assert_eq!(found.fractions, [0.25, 0.2, 0.05]);
        assert_eq!(found.reset_fraction, 0.5);
        assert_eq!((found.half_days, found.nine_tenths_days, found.oldest_days), (Some(0), Some(40), Some(400)));
        assert_eq!(side(&ages, &[30], 0).unwrap().oldest_days, None);
        assert_eq!(side(&Distribution::<u64>::default(), &[30], 16_000), None);
    }

    #[test]
    fn exbibytes_have_quantiles() {
        let mut ages = Distribution::<u128>::default();
        ages.add(3, 1 << 63);
        let found = side(&ages, &[30], 16_000).unwrap();
        assert_eq!((found.half_days, found.nine_tenths_days, found.oldest_days), (Some(3), Some(3), Some(3)));
        ages.add(50, 1 << 66);
        let found = side(&ages, &[30], 16_000).unwrap();
        assert_eq!((found.half_days, found.nine_tenths_days), (Some(50), Some(50)));
    }
}
