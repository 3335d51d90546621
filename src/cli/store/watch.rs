//! The progress line of store maintenance, and its interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cli::progress::Line;
use crate::cli::signals;
use crate::error::Result;
use crate::store::Progress;
use crate::units::{format_count, format_size};

const BETWEEN: Duration = Duration::from_millis(100);

/// Observes progress; Ctrl-C requests a stop.
#[derive(Debug)]
pub(super) struct MaintenanceProgress {
    line: Line,
    interrupted: Arc<AtomicBool>,
    stage: &'static str,
    /// When the stage began, and how much was done before.
    began: (Instant, u64),
    shown: Option<Instant>,
}

impl MaintenanceProgress {
    /// From here on Ctrl-C requests a stop.
    pub(super) fn begin() -> Result<MaintenanceProgress> {
        let began = (Instant::now(), 0);
        Ok(MaintenanceProgress {
            line: Line::new(false),
            interrupted: signals::watch()?,
            stage: "",
            began,
            shown: None,
        })
    }

    /// Shows progress; returns whether to continue.
    pub(super) fn see(&mut self, progress: Progress) -> bool {
        if progress.stage != self.stage {
            (self.stage, self.began) = (progress.stage, (Instant::now(), progress.done_bytes));
        }
        if !self.line.is_hidden() && self.shown.is_none_or(|shown| shown.elapsed() >= BETWEEN) {
            self.shown = Some(Instant::now());
            self.line.show(words(progress, self.began.1, self.began.0.elapsed().as_secs_f64()));
        }
        !self.interrupted.load(Ordering::Relaxed)
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }
}

fn words(progress: Progress, before_bytes: u64, seconds: f64) -> String {
    let Progress { stage, done_bytes, total_bytes } = progress;
    let rate = done_bytes.saturating_sub(before_bytes) as f64 / seconds.max(0.05);
    let mut text = format!(
        "{stage} · {} of {} · {}/s",
        format_size(done_bytes.into()),
        format_size(total_bytes.max(done_bytes).into()),
        format_size(rate as u128)
    );
    if let Some(left) = total_bytes.checked_sub(done_bytes).filter(|_| rate >= 1.0 && seconds >= 1.0) {
        text.push_str(&format!(" · {} s left", format_count((left as f64 / rate).ceil() as u128)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_how_far_how_fast_and_how_long() {
        let progress = Progress { stage: "scrubbing", done_bytes: 30 << 20, total_bytes: 40 << 20 };
        assert_eq!(words(progress, 10 << 20, 2.0), "scrubbing · 30 MiB of 40 MiB · 10 MiB/s · 1 s left");
        let over = Progress { stage: "checking", done_bytes: 5, total_bytes: 0 };
        assert_eq!(words(over, 0, 0.0), "checking · 5 B of 5 B · 100 B/s");
    }
}
