//! Progress and interruption of a transfer into or out of a store.
//!
//! Several threads may report progress; the line is drawn at most ten times a second, and on a terminal only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::cli::progress::Line;
use crate::cli::signals;
use crate::error::Result;
use crate::report::store::count_words;
use crate::store::tree::{Progress, Watch};
use crate::units::{format_count, format_size};

/// Shorter transfers show no line.
const MILLISECONDS_BEFORE: u64 = 300;
const MILLISECONDS_BETWEEN: u64 = 100;

/// The progress line of a transfer, and the flag that Ctrl-C sets.
#[derive(Debug)]
pub(super) struct TransferProgress {
    line: Line,
    started: Instant,
    /// When the next line is due, in milliseconds after the start.
    due: AtomicU64,
    interrupted: Arc<AtomicBool>,
    total_bytes: Option<u64>,
}

impl TransferProgress {
    /// Begins a transfer of `total_bytes`, if that is known; from here on Ctrl-C requests a stop.
    pub(super) fn begin(quiet: bool, total_bytes: Option<u64>) -> Result<TransferProgress> {
        Ok(TransferProgress {
            line: Line::new(quiet),
            started: Instant::now(),
            due: AtomicU64::new(MILLISECONDS_BEFORE),
            interrupted: signals::watch()?,
            total_bytes,
        })
    }

    /// Whether a stop was requested.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Shows progress; `objects` where there are several.
    pub(super) fn show(&self, objects: Option<u64>, bytes: u64) {
        if self.line.is_hidden() {
            return;
        }
        let elapsed = self.started.elapsed();
        let milliseconds = elapsed.as_millis() as u64;
        let due = self.due.load(Ordering::Relaxed);
        let next = milliseconds + MILLISECONDS_BETWEEN;
        if milliseconds < due || self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.line.show(words(objects, bytes, self.total_bytes, elapsed.as_secs_f64()));
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.line.clear();
    }
}

impl Watch for TransferProgress {
    fn go_on(&self, progress: Progress) -> bool {
        self.show(Some(progress.objects), progress.content_bytes);
        !self.is_interrupted()
    }
}

fn words(objects: Option<u64>, bytes: u64, total_bytes: Option<u64>, seconds: f64) -> String {
    let mut parts = Vec::new();
    parts.extend(objects.filter(|&objects| objects > 0).map(|objects| count_words(&[(objects, "object", "objects")])));
    let done = format_size(bytes.into());
    parts.push(match total_bytes {
        Some(total) => format!("{done} of {}", format_size(total.into())),
        None => done,
    });
    let rate = bytes as f64 / seconds.max(0.05);
    parts.push(format!("{}/s", format_size(rate as u128)));
    if let Some(left) = total_bytes.and_then(|total| total.checked_sub(bytes)).filter(|_| rate >= 1.0 && seconds >= 1.0)
    {
        parts.push(format!("{} s left", format_count((left as f64 / rate).ceil() as u128)));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn the_line_says_how_far_how_fast_and_how_long() {
        assert_eq!(words(None, 10 << 20, Some(30 << 20), 2.0), "10 MiB of 30 MiB · 5 MiB/s · 4 s left");
        assert_eq!(words(Some(1234), 2048, None, 2.0), "1,234 objects · 2 KiB · 1 KiB/s");
        assert_eq!(words(Some(1), 0, None, 2.0), "1 object · 0 B · 0 B/s");
        assert_eq!(words(None, 5, Some(0), 0.0), "5 B of 0 B · 100 B/s");
    }
}
