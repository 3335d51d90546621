//! Runs a command with a memory limit and measures it: elapsed time, page cache, bytes read.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::confine::{Charged, Confined};
use crate::bench::host::line;
use crate::bench::programs;
use crate::bench::result::{CellFailure, FailureKind};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::units::format_duration;

/// Precision with which the end of a command is detected.
const TICK: Duration = Duration::from_millis(2);
/// Ticks between two samples of memory use.
const TICKS_BETWEEN_SAMPLES: u32 = 10;
/// Bytes of standard error that are kept.
const KEPT_BYTES: usize = 4096;

/// Measurements of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    pub seconds: f64,
    pub failure: Option<CellFailure>,
    /// Largest value of each that was sampled.
    pub charged: Charged,
    /// Peak of both together, where the kernel reports it.
    pub peak_bytes: Option<u64>,
    /// Bytes that its processes read from devices of any file system, where the kernel counts them.
    pub process_read_bytes: Option<u64>,
    pub device: Reads,
}

/// Reads from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reads {
    pub reads: u64,
    pub bytes: u64,
}

/// Runs `command` in `directory` and in the group; `None` if it was asked to stop.
///
/// # Errors
/// Errors from starting the command.
pub(super) fn run(
    command: &[OsString],
    directory: &Path,
    group: &Confined,
    device: Option<(u32, u32)>,
    longest: Option<Duration>,
    progress: &Progress,
) -> Result<Option<Ran>> {
    let (device_before, own_before) = (device_reads(device), own_read_bytes());
    let started = Instant::now();
    let mut child = start(command, directory, group)?;
    let said = child.stderr.take();
    let (status, charged, stopped, words) = std::thread::scope(|scope| {
        let words = scope.spawn(|| said.map(last_bytes).unwrap_or_default());
        let (status, charged, stopped) = wait(&mut child, group, started, longest, progress);
        // Processes that it left behind still have its standard error open.
        let seconds = started.elapsed().as_secs_f64();
        group.end();
        (status.map(|status| (status, seconds)), charged, stopped, words.join().unwrap_or_default())
    });
    let (status, seconds) = status.map_err(|error| Error::io("wait for", command_path(command), error))?;
    if stopped == Some(Stopped::Asked) {
        return Ok(None);
    }
    let failure = match stopped {
        Some(_) => Some((FailureKind::TooLong, format!("it did not finish within {}", format_duration(seconds)))),
        None if status.success() => None,
        None if group.ran_out() => Some((FailureKind::OutOfMemory, "it ran out of memory".to_owned())),
        None => Some((FailureKind::Failed, format!("it failed: {}", programs::last_words(&words, status)))),
    };
    let failure = failure.map(|(kind, cause)| CellFailure { kind, cause });
    let device_after = device_reads(device);
    Ok(Some(Ran {
        seconds,
        failure,
        charged,
        peak_bytes: group.peak_bytes(),
        process_read_bytes: own_read_bytes().zip(own_before).map(|(after, before)| after.saturating_sub(before)),
        device: Reads {
            reads: device_after.reads.saturating_sub(device_before.reads),
            bytes: device_after.bytes.saturating_sub(device_before.bytes),
        },
    }))
}

/// Why a command was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Asked,
    TooLong,
}

/// Starts the command: a shell enters the group, then executes it, so that the group counts all memory from the first
/// page on.
fn start(command: &[OsString], directory: &Path, group: &Confined) -> Result<Child> {
    let mut shell = Command::new(programs::find("sh")?);
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.entrance()).args(command);
    // It does not inherit the lock of the scratch directory: the next run kills what a killed run left in the group.
    shell.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C reaches granulo alone.
    shell.process_group(0);
    shell.spawn().map_err(|error| Error::io("run", command_path(command), error))
}

fn command_path(command: &[OsString]) -> &Path {
    command.first().map_or(Path::new("the command"), Path::new)
}

/// Waits for the command to end and samples its memory meanwhile. Kills it when asked to stop, and after `longest`; the
/// result says which.
fn wait(
    child: &mut Child,
    group: &Confined,
    started: Instant,
    longest: Option<Duration>,
    progress: &Progress,
) -> (std::io::Result<ExitStatus>, Charged, Option<Stopped>) {
    let mut charged = Charged::default();
    let mut ticks = (0..TICKS_BETWEEN_SAMPLES).cycle();
    loop {
        let (tick, ended) = (ticks.next(), child.try_wait());
        // Also at the end: its page cache stays with the group, and a short run would end before the second sample.
        if tick == Some(0) || matches!(ended, Ok(Some(_))) {
            let now = group.charged();
            charged.page_cache_bytes = charged.page_cache_bytes.max(now.page_cache_bytes);
            charged.anonymous_bytes = charged.anonymous_bytes.max(now.anonymous_bytes);
        }
        match ended {
            Ok(Some(status)) => return (Ok(status), charged, None),
            Ok(None) => {}
            Err(error) => return (Err(error), charged, None),
        }
        let stopped = if progress.should_stop() {
            Some(Stopped::Asked)
        } else {
            longest.filter(|&longest| started.elapsed() > longest).map(|_| Stopped::TooLong)
        };
        if stopped.is_some() {
            group.end();
            // Until the shell has entered the group, killing the group does not reach it.
            let _ = child.kill();
            return (child.wait(), charged, stopped);
        }
        sleep(TICK);
    }
}

/// Reads until all writers have closed a stream, or an error; returns at most the last [`KEPT_BYTES`].
fn last_bytes(mut from: impl Read) -> Vec<u8> {
    let mut kept = VecDeque::new();
    let mut piece = [0; 1024];
    loop {
        match from.read(&mut piece) {
            Ok(read @ 1..) => {
                kept.extend(&piece[..read]);
                kept.drain(..kept.len().saturating_sub(KEPT_BYTES));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    kept.into()
}

/// Reads from a block device so far.
fn device_reads(device: Option<(u32, u32)>) -> Reads {
    let Some((major, minor)) = device else { return Reads::default() };
    let text = line(&format!("/sys/dev/block/{major}:{minor}/stat"));
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
    let (reads, sectors) = (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0));
    Reads { reads, bytes: sectors.saturating_mul(512) }
}

/// Bytes that this process and its reaped children read from devices.
fn own_read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|row| row.strip_prefix("read_bytes: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_kept() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|number| format!("{number}\n").into_bytes()).collect();
        let kept = last_bytes(&text[..]);
        assert_eq!(kept, text[text.len() - KEPT_BYTES..]);
        assert_eq!(last_bytes(&b"short"[..]), b"short");
    }

    #[test]
    fn a_device_that_is_none_has_read_nothing() {
        assert_eq!(device_reads(None), Reads::default());
        assert_eq!(device_reads(Some((4095, 1_048_575))), Reads::default());
    }
}
