//! The progress line: one line on standard error that is redrawn from the progress of the work, at most ten times a
//! second, on a terminal only.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Thread};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unicode_width::UnicodeWidthStr;

use super::output;
use crate::progress::{Progress, Snapshot};
use crate::units::{format_count, format_size, fraction};

/// Shorter work shows no line.
const BEFORE: Duration = Duration::from_millis(300);
const BETWEEN: Duration = Duration::from_millis(100);
/// Columns of a terminal that does not say how many it has.
const DEFAULT_COLUMNS: usize = 80;
/// Columns of the spinner, and the last one, in which some terminals break the line.
const SPINNER_COLUMNS: usize = 3;

/// Tells the drawing thread that the work ended, even when it panics.
struct Ended<'e> {
    is_over: &'e AtomicBool,
    drawing: Option<Thread>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.drawing.iter().for_each(Thread::unpark);
    }
}

/// Does `work` and meanwhile shows the `words` for its `progress`, unless standard error is no terminal or `quiet` is
/// set. Afterwards the line is gone.
pub(super) fn during<T>(
    quiet: bool,
    progress: &Progress,
    words: impl FnMut(&Snapshot) -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    if quiet || !std::io::stderr().is_terminal() {
        return work();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Without a thread there is no line.
        let drawing = Builder::new().spawn_scoped(scope, || draw(progress, words, &is_over)).ok();
        let _ended = Ended { is_over: &is_over, drawing: drawing.map(|drawing| drawing.thread().clone()) };
        work()
    })
}

fn draw(progress: &Progress, mut words: impl FnMut(&Snapshot) -> String, is_over: &AtomicBool) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.set_style(style);
    let mut pause = BEFORE;
    loop {
        std::thread::park_timeout(pause);
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let columns = output::terminal_columns(std::io::stderr()).unwrap_or(DEFAULT_COLUMNS);
        bar.set_message(fitted(&words(&progress.snapshot()), columns.saturating_sub(SPINNER_COLUMNS)));
        bar.tick();
        pause = BETWEEN;
    }
    bar.finish_and_clear();
}

/// The first parts of a line, as many as fit into `columns`: a longer one would not be redrawn in its place.
fn fitted(text: &str, columns: usize) -> String {
    const BETWEEN_PARTS: &str = " · ";
    let mut line = String::new();
    for part in text.split(BETWEEN_PARTS) {
        let between = if line.is_empty() { "" } else { BETWEEN_PARTS };
        if !line.is_empty() && line.width() + between.width() + part.width() > columns {
            break;
        }
        line.push_str(between);
        line.push_str(part);
    }
    line
}

/// The same words, after the share of so many inodes that was seen and the time that the rest will take. What is
/// neither a file nor a directory is not seen here, so the last per cent may be missing.
pub(super) fn survey_words_of(inodes: Option<u64>) -> impl FnMut(&Snapshot) -> String + Send {
    let mut words = survey_words();
    move |now| {
        let text = words(now);
        let share = inodes.map(|all| fraction((now.objects + now.directories).into(), all.into()));
        // Sooner, the time left would be guessed.
        match share.filter(|share| *share >= 0.01) {
            None => text,
            Some(share) => {
                let share = share.min(0.99);
                let left = now.elapsed.as_secs_f64() * (1.0 - share) / share;
                format!("{:.0} % · {} left · {text}", 100.0 * share, time_left(left))
            }
        }
    }
}

/// A time in one unit: a guess needs no more.
fn time_left(seconds: f64) -> String {
    match seconds {
        _ if seconds < 100.0 => format!("{seconds:.0} s"),
        _ if seconds < 6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Words for the progress of a survey: counts, and the files of the last second.
pub(super) fn survey_words() -> impl FnMut(&Snapshot) -> String + Send {
    let (mut files_before, mut elapsed_before, mut rate) = (0, Duration::ZERO, 0.0);
    move |now| {
        // A second attempt begins at 0 again.
        let seconds = now.elapsed.saturating_sub(elapsed_before).as_secs_f64();
        if seconds >= 1.0 || rate == 0.0 || now.elapsed < elapsed_before {
            rate = now.objects.saturating_sub(files_before) as f64 / seconds.max(0.05);
            (files_before, elapsed_before) = (now.objects, now.elapsed);
        }
        let mut text = format!(
            "{} files · {} directories · {} · {} files/s",
            format_count(now.objects.into()),
            format_count(now.directories.into()),
            format_size(now.bytes),
            format_count(f64::round(rate) as u128),
        );
        if now.errors > 0 {
            text.push_str(&format!(" · {} errors", format_count(now.errors.into())));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_the_terminal_does() {
        let text = "99 % · 40 s left · 12,345,678 files · 1,234,567 directories · 1,023 GiB · 100,000 files/s";
        assert_eq!(fitted(text, 77), "99 % · 40 s left · 12,345,678 files · 1,234,567 directories · 1,023 GiB");
        assert_eq!((fitted(text, 200).as_str(), fitted(text, 2)), (text, "99 %".to_owned()));
    }

    #[test]
    fn a_share_of_the_inodes_says_what_is_left() {
        let now =
            |objects| Snapshot { objects, directories: 10, elapsed: Duration::from_secs(10), ..Snapshot::default() };
        assert!(survey_words_of(Some(1000))(&now(190)).starts_with("20 % · 40 s left · 190 files"));
        assert!(survey_words_of(Some(1000))(&now(5000)).starts_with("99 % · "));
        for (inodes, objects) in [(None, 190), (Some(1 << 30), 190), (Some(0), 190)] {
            assert!(survey_words_of(inodes)(&now(objects)).starts_with("190 files"), "{inodes:?}");
        }
    }
}
