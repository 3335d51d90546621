//! Which snapshots to keep: the newest of each of the last hours, days, weeks, months and years that have any, as
//! `restic forget` has it. Calendar and days are those of UTC; a week begins on Monday.

use std::collections::BTreeSet;

use clap::Args;

use crate::units::{SECONDS_A_DAY, civil};

const SECONDS_AN_HOUR: i64 = 3600;
/// 1970-01-01 was a Thursday: so many days after a Monday.
const DAYS_AFTER_MONDAY: i64 = 3;

/// How many to keep of each kind.
#[derive(Debug, Default, Clone, PartialEq, Eq, Args)]
#[group(id = "keep", multiple = true)]
pub(super) struct Expiry {
    /// Keep the N newest
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_last: Option<usize>,
    /// Keep the newest of each of the last N hours that have any
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_hourly: Option<usize>,
    /// Keep the newest of each of the last N days that have any
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_daily: Option<usize>,
    /// Keep the newest of each of the last N weeks that have any
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_weekly: Option<usize>,
    /// Keep the newest of each of the last N months that have any
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_monthly: Option<usize>,
    /// Keep the newest of each of the last N years that have any
    #[arg(long, value_name = "N", help_heading = "Which to keep")]
    keep_yearly: Option<usize>,
}

impl Expiry {
    /// Whether it keeps none: that is nobody's wish, rather a script with an empty policy.
    pub(super) fn is_empty(&self) -> bool {
        let Expiry { keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly } = self;
        let all = [keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly];
        all.into_iter().all(|most| most.unwrap_or(0) == 0)
    }

    /// Whether each of some snapshots is kept, by the times at which they were taken (seconds since 1970), in the same
    /// order.
    pub(super) fn keeps(&self, taken: &[i64]) -> Vec<bool> {
        let mut newest_first: Vec<usize> = (0..taken.len()).collect();
        newest_first.sort_by_key(|&at| std::cmp::Reverse((taken[at], at)));
        let mut keeps = vec![false; taken.len()];
        newest_first.iter().take(self.keep_last.unwrap_or(0)).for_each(|&at| keeps[at] = true);
        let hour: fn(i64) -> i64 = |seconds| seconds.div_euclid(SECONDS_AN_HOUR);
        let day: fn(i64) -> i64 = |seconds| seconds.div_euclid(SECONDS_A_DAY);
        let week: fn(i64) -> i64 = |seconds| (seconds.div_euclid(SECONDS_A_DAY) + DAYS_AFTER_MONDAY).div_euclid(7);
        let month: fn(i64) -> i64 = |seconds| civil(seconds).0 * 12 + civil(seconds).1;
        let year: fn(i64) -> i64 = |seconds| civil(seconds).0;
        for (most, period) in [
            (self.keep_hourly, hour),
            (self.keep_daily, day),
            (self.keep_weekly, week),
            (self.keep_monthly, month),
            (self.keep_yearly, year),
        ] {
            let (most, mut periods) = (most.unwrap_or(0), BTreeSet::new());
            for &at in &newest_first {
                if periods.len() < most && periods.insert(period(taken[at])) {
                    keeps[at] = true;
                }
            }
        }
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01 00:00, a Thursday.
    const NEW_YEAR: i64 = 1_767_225_600;

    /// Positions of what is kept.
    fn kept(expiry: Expiry, taken: &[i64]) -> Vec<usize> {
        let keeps = expiry.keeps(taken);
        (0..taken.len()).filter(|&at| keeps[at]).collect()
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        // Every six hours over 40 days.
        let taken: Vec<i64> = (0..160).map(|number| NEW_YEAR + number * 6 * SECONDS_AN_HOUR).collect();
        assert_eq!(kept(Expiry { keep_last: Some(2), ..Expiry::default() }, &taken), [158, 159]);
        assert_eq!(kept(Expiry { keep_hourly: Some(3), ..Expiry::default() }, &taken), [157, 158, 159]);
        assert_eq!(kept(Expiry { keep_daily: Some(3), ..Expiry::default() }, &taken), [151, 155, 159]);
        // 9 February 2026, the last day, is a Monday; Sundays end the weeks before.
        assert_eq!(kept(Expiry { keep_weekly: Some(3), ..Expiry::default() }, &taken), [127, 155, 159]);
        assert_eq!(kept(Expiry { keep_monthly: Some(5), ..Expiry::default() }, &taken), [123, 159]);
        assert_eq!(kept(Expiry { keep_yearly: Some(5), ..Expiry::default() }, &taken), [159]);
        let some = Expiry { keep_last: Some(1), keep_monthly: Some(2), ..Expiry::default() };
        assert_eq!(kept(some, &taken), [123, 159]);
        assert!(kept(Expiry { keep_daily: Some(0), ..Expiry::default() }, &taken).is_empty());
    }

    #[test]
    fn the_clock_may_have_gone_back_and_two_may_be_of_one_second() {
        let taken = [NEW_YEAR + 100, NEW_YEAR - 100, NEW_YEAR + 100];
        assert_eq!(kept(Expiry { keep_last: Some(1), ..Expiry::default() }, &taken), [2]);
        assert_eq!(kept(Expiry { keep_yearly: Some(9), ..Expiry::default() }, &taken), [1, 2]);
        assert!(Expiry { keep_last: Some(5), ..Expiry::default() }.keeps(&[]).is_empty());
    }
}
