//! Times of objects in words, for every second that an attribute can hold: before 1970 and after the year 9999.
//!
//! The calendar is the proleptic Gregorian one; days are converted to dates by `civil_from_days` of Howard Hinnant
//! ("chrono-Compatible Low-Level Date Algorithms", 2013), which counts years from March so that the leap day is the
//! last.

use crate::store::Time;

const SECONDS_A_DAY: i64 = 86_400;
const DAYS_IN_400_YEARS: i64 = 146_097;
/// Days from 1 March of the year 0 to 1 January 1970.
const DAYS_BEFORE_1970: i64 = 719_468;

/// Year, month, day, hour, minute and second in UTC.
fn civil(seconds: i64) -> (i64, i64, i64, i64, i64, i64) {
    let days = seconds.div_euclid(SECONDS_A_DAY) + DAYS_BEFORE_1970;
    let of_day = seconds.rem_euclid(SECONDS_A_DAY);
    let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + days.div_euclid(DAYS_IN_400_YEARS) * 400 + i64::from(month <= 2);
    (year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// To the minute, as in a listing: `2026-01-31 12:00`.
pub fn format_minute(time: Time) -> String {
    let (year, month, day, hour, minute, _) = civil(time.seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// With all digits, as in RFC 3339: `2026-01-31T12:00:00.000000001Z`.
pub fn format_nanosecond(time: Time) -> String {
    let (year, month, day, hour, minute, second) = civil(time.seconds);
    let nanoseconds = time.nanoseconds;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Time {
        Time { seconds, nanoseconds: 5 }
    }

    #[test]
    fn dates_are_right_at_the_edges() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (4_107_542_400, "2100-03-01 00:00"),
            (253_402_300_800, "10000-01-01 00:00"),
            (-62_167_219_200, "0000-01-01 00:00"),
        ] {
            assert_eq!(format_minute(at(seconds)), text);
        }
        assert_eq!(format_nanosecond(at(1)), "1970-01-01T00:00:01.000000005Z");
        let _ = (format_minute(at(i64::MIN)), format_minute(at(i64::MAX)));
    }

    proptest! {
        #[test]
        fn dates_are_those_of_another_library(seconds in 0i64..253_402_300_800) {
            let theirs = humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::new(seconds as u64, 5)).to_string();
            prop_assert_eq!(format_nanosecond(at(seconds)), theirs);
        }
    }
}
