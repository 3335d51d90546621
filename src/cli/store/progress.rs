//! Words for the progress line of a store: transfers into or out of it, and its maintenance.

use std::time::Duration;

use crate::progress::Snapshot;
use crate::report::store::count_words;
use crate::units::{format_count, format_size};

/// Words for a transfer: of all its bytes, if their number is known, or of some of its objects.
pub(super) fn transfer_words(now: &Snapshot) -> String {
    let mut parts = Vec::new();
    if now.objects > 0 {
        parts.push(count_words(&[(now.objects, "object", "objects")]));
    }
    let done = format_size(now.bytes);
    let total_bytes = Some(u128::from(now.total)).filter(|&total| total > 0);
    parts.push(match total_bytes {
        Some(total) => format!("{done} of {}", format_size(total)),
        None => done,
    });
    let rate = rate(now.bytes, now.elapsed);
    parts.push(format!("{}/s", format_size(rate as u128)));
    parts.extend(total_bytes.and_then(|total| time_left(total, now.bytes, rate, now.elapsed)));
    parts.join(" · ")
}

/// Words for a stage of maintenance.
pub(super) fn maintenance_words(now: &Snapshot) -> String {
    let total_bytes = u128::from(now.total);
    let rate = rate(now.bytes.saturating_sub(now.skipped_bytes.into()), now.stage_elapsed);
    let (done, total) = (format_size(now.bytes), format_size(total_bytes.max(now.bytes)));
    let mut parts = vec![now.stage.name.clone(), format!("{done} of {total}")];
    parts.push(format!("{}/s", format_size(rate as u128)));
    parts.extend(time_left(total_bytes, now.bytes, rate, now.stage_elapsed));
    parts.join(" · ")
}

fn rate(bytes: u128, elapsed: Duration) -> f64 {
    bytes as f64 / elapsed.as_secs_f64().max(0.05)
}

/// When the rest will be done; not in the first second, when the rate is uncertain.
fn time_left(total_bytes: u128, done_bytes: u128, rate: f64, elapsed: Duration) -> Option<String> {
    let left = total_bytes.checked_sub(done_bytes).filter(|_| rate >= 1.0 && elapsed.as_secs_f64() >= 1.0)?;
    Some(format!("{} s left", format_count((left as f64 / rate).ceil() as u128)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_says_how_far_how_fast_and_how_long() {
        let words = |objects, bytes, total, seconds| {
            let elapsed = Duration::from_secs_f64(seconds);
            transfer_words(&Snapshot { objects, bytes, total, elapsed, ..Snapshot::default() })
        };
        assert_eq!(words(0, 10 << 20, 30 << 20, 2.0), "10 MiB of 30 MiB · 5 MiB/s · 4 s left");
        assert_eq!(words(1234, 2048, 0, 2.0), "1,234 objects · 2 KiB · 1 KiB/s");
        assert_eq!(words(1, 0, 0, 2.0), "1 object · 0 B · 0 B/s");
        assert_eq!(words(0, 5, 3, 0.0), "5 B of 3 B · 100 B/s");
    }

    #[test]
    fn maintenance_says_what_how_far_how_fast_and_how_long() {
        let words = |stage: &str, bytes, skipped_bytes, total, seconds| {
            let stage_elapsed = Duration::from_secs_f64(seconds);
            let stage = stage.into();
            maintenance_words(&Snapshot { stage, bytes, skipped_bytes, total, stage_elapsed, ..Snapshot::default() })
        };
        assert_eq!(
            words("scrubbing", 30 << 20, 10 << 20, 40 << 20, 2.0),
            "scrubbing · 30 MiB of 40 MiB · 10 MiB/s · 1 s left"
        );
        assert_eq!(words("checking", 5, 0, 0, 0.0), "checking · 5 B of 5 B · 100 B/s");
    }
}
