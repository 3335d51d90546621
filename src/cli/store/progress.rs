//! Words for the progress line of a store: transfers into or out of it, and its maintenance.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::thread::Builder;
use std::time::Duration;

use crate::error::Result;
use crate::progress::{Progress, Snapshot};
use crate::report::store::{ObjectType, count_words};
use crate::store::{Key, Store};
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
        Some(total) => of_total(&done, now.bytes, total),
        None => done,
    });
    let rate = rate(now.bytes.saturating_sub(now.skipped_bytes.into()), now.elapsed);
    parts.push(format!("{}/s", format_size(rate as u128)));
    parts.extend(total_bytes.and_then(|total| time_left(total, now.bytes, rate, now.elapsed)));
    parts.join(" · ")
}

/// Words for a stage of maintenance.
pub(super) fn maintenance_words(now: &Snapshot) -> String {
    let total_bytes = u128::from(now.total);
    let rate = rate(now.bytes.saturating_sub(now.skipped_bytes.into()), now.stage_elapsed);
    let done = of_total(&format_size(now.bytes), now.bytes, total_bytes.max(now.bytes));
    let mut parts = vec![now.stage.name.clone(), done];
    parts.push(format!("{}/s", format_size(rate as u128)));
    parts.extend(time_left(total_bytes, now.bytes, rate, now.stage_elapsed));
    parts.join(" · ")
}

fn of_total(done: &str, done_bytes: u128, total_bytes: u128) -> String {
    let total = format_size(total_bytes);
    match (done_bytes * 100).checked_div(total_bytes) {
        Some(percent) => format!("{done} of {total} ({} %)", percent.min(100)),
        None => format!("{done} of {total}"),
    }
}

/// Does `work` while another thread sums the sizes of the objects at and below `tops`, from the index, for percent and
/// time left; not if nobody sees them.
pub(super) fn with_total<T>(
    quiet: bool,
    store: &Store,
    tops: &[Key],
    progress: &Progress,
    work: impl FnOnce() -> T,
) -> T {
    let sum = |counting: &Progress| -> Result<u64> {
        let (mut total_bytes, mut shared) = (0u64, HashSet::new());
        for top in tops {
            let mut walk = store.walk(top)?;
            while let Some(lent) = walk.lend()? {
                let is_counted = lent.shared.is_none_or(|number| shared.insert(number));
                let is_file = ObjectType::of(&lent.entry) == ObjectType::File;
                total_bytes += if is_counted && is_file { lent.entry.size_bytes } else { 0 };
                if counting.should_stop() {
                    return Ok(0);
                }
            }
        }
        Ok(total_bytes)
    };
    with_total_from(quiet, progress, sum, work)
}

/// Does `work` while another thread finds its total, which may use the progress that it is given, and stops with it.
pub(super) fn with_total_from<T>(
    quiet: bool,
    progress: &Progress,
    total: impl FnOnce(&Progress) -> Result<u64> + Send,
    work: impl FnOnce() -> T,
) -> T {
    if quiet || !std::io::stderr().is_terminal() {
        return work();
    }
    while_counting(|counting| total(counting).map(|bytes| progress.set_total(bytes)), work)
}

/// Does `work` while another thread counts, which is told to stop when the work is done: nobody waits for a total that
/// is no longer needed.
fn while_counting<T, C: Send>(count: impl FnOnce(&Progress) -> C + Send, work: impl FnOnce() -> T) -> T {
    let counting = Progress::default();
    std::thread::scope(|scope| {
        // Without a thread, or a total, the line has only counts.
        let _ = Builder::new().spawn_scoped(scope, || count(&counting));
        let done = work();
        counting.stop();
        done
    })
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
    fn who_is_done_waits_for_no_total() {
        let count = |counting: &Progress| {
            while !counting.should_stop() {
                std::thread::yield_now();
            }
        };
        assert_eq!(while_counting(count, || 7), 7);
    }

    #[test]
    fn a_transfer_says_how_far_how_fast_and_how_long() {
        let words = |objects, bytes, total, seconds| {
            let elapsed = Duration::from_secs_f64(seconds);
            transfer_words(&Snapshot { objects, bytes, total, elapsed, ..Snapshot::default() })
        };
        assert_eq!(words(0, 10 << 20, 30 << 20, 2.0), "10 MiB of 30 MiB (33 %) · 5 MiB/s · 4 s left");
        assert_eq!(words(1234, 2048, 0, 2.0), "1,234 objects · 2 KiB · 1 KiB/s");
        assert_eq!(words(1, 0, 0, 2.0), "1 object · 0 B · 0 B/s");
        assert_eq!(words(0, 5, 3, 0.0), "5 B of 3 B (100 %) · 100 B/s");
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
            "scrubbing · 30 MiB of 40 MiB (75 %) · 10 MiB/s · 1 s left"
        );
        assert_eq!(words("checking", 5, 0, 0, 0.0), "checking · 5 B of 5 B (100 %) · 100 B/s");
    }
}
