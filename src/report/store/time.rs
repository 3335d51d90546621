//! Times of objects in words, for every second that an attribute can hold: before 1970 and after the year 9999.

use crate::store::Time;
use crate::units::civil;

/// To the minute, as in a listing: `2026-01-31 12:00`.
pub(crate) fn format_minute(time: Time) -> String {
    let (year, month, day, hour, minute, _) = civil(time.seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// With all digits, as in RFC 3339: `2026-01-31T12:00:00.000000001Z`.
pub(crate) fn format_nanosecond(time: Time) -> String {
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
