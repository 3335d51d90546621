//! Progress: one line on standard error that is redrawn, on a terminal only.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::survey::collect::Progress;
use crate::units::{format_count, format_size};

/// A line of any text.
#[derive(Debug)]
pub(super) struct Line {
    bar: ProgressBar,
}

/// The progress line of a survey.
pub(super) struct ProgressLine {
    line: Line,
    files_before: u64,
    elapsed_before: Duration,
    rate: f64,
}

impl Line {
    /// A line on standard error, or none where that is not a terminal or `quiet` is set.
    pub(super) fn new(quiet: bool) -> Line {
        let visible = std::io::stderr().is_terminal() && !quiet;
        let target = if visible { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style =
            ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        Line { bar }
    }

    /// Whether nobody would see the line.
    pub(super) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Shows `text`.
    pub(super) fn show(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl ProgressLine {
    /// A line on standard error, or none where that is not a terminal or `quiet` is set.
    pub(super) fn new(quiet: bool) -> ProgressLine {
        ProgressLine { line: Line::new(quiet), files_before: 0, elapsed_before: Duration::ZERO, rate: 0.0 }
    }

    /// Shows the state of the survey.
    pub(super) fn show(&mut self, progress: &Progress, elapsed: Duration) {
        let files = progress.files.load(Ordering::Relaxed);
        let seconds = elapsed.saturating_sub(self.elapsed_before).as_secs_f64();
        if seconds >= 1.0 || self.rate == 0.0 {
            self.rate = files.saturating_sub(self.files_before) as f64 / seconds.max(0.05);
            (self.files_before, self.elapsed_before) = (files, elapsed);
        }
        let size_bytes = u128::from(progress.size_kib.load(Ordering::Relaxed)) << 10;
        let errors = progress.errors.load(Ordering::Relaxed);
        let mut text = format!(
            "{} files · {} directories · {} · {} files/s",
            format_count(files.into()),
            format_count(progress.directories.load(Ordering::Relaxed).into()),
            format_size(size_bytes),
            format_count(self.rate.round() as u128),
        );
        if errors > 0 {
            text.push_str(&format!(" · {} errors", format_count(errors.into())));
        }
        self.line.show(text);
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.line.clear();
    }
}
