//! Running a command with a limit of memory, and what it did: how long it took, what it cached, what was read for it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::confine::{Confined, Taken};
use crate::bench::host::line;
use crate::bench::programs;
use crate::bench::result::{CellFailure, FailureKind};
use crate::bench::run::Watch;
use crate::error::{Error, Result};
use crate::units::format_duration;

/// How exactly the end of a command is seen.
const TICK: Duration = Duration::from_millis(2);
/// Ticks between looks at what it takes.
const TICKS_BETWEEN_LOOKS: u32 = 10;
/// Bytes of its complaints that are kept.
const KEPT_BYTES: usize = 4096;

/// What a command did.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    pub seconds: f64,
    pub failure: Option<CellFailure>,
    /// The most of each that was seen.
    pub taken: Taken,
    /// The most of both together, where the kernel knows it.
    pub peak_bytes: Option<u64>,
    /// What its processes had read from devices, of whatever file system, where the kernel counts that.
    pub process_read_bytes: Option<u64>,
    pub device: Reads,
}

/// What was read from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reads {
    pub reads: u64,
    pub bytes: u64,
}

/// Runs `command` in `directory` and in the group; `None` if it was to stop meanwhile.
///
/// # Errors
/// If it cannot be started.
pub(super) fn run(
    command: &[OsString],
    directory: &Path,
    group: &Confined,
    device: Option<(u32, u32)>,
    longest: Option<Duration>,
    watch: Watch<'_>,
) -> Result<Option<Ran>> {
    let (device_before, own_before) = (device_reads(device), own_read_bytes());
    let started = Instant::now();
    let mut child = start(command, directory, group)?;
    let said = child.stderr.take();
    let (status, taken, stopped, words) = std::thread::scope(|scope| {
        let words = scope.spawn(|| said.map(last_bytes).unwrap_or_default());
        let (status, taken, stopped) = wait(&mut child, group, started, longest, watch);
        // What it left behind has its standard error still.
        let seconds = started.elapsed().as_secs_f64();
        group.end();
        (status.map(|status| (status, seconds)), taken, stopped, words.join().unwrap_or_default())
    });
    let (status, seconds) = status.map_err(|error| Error::io("wait for", command_path(command), error))?;
    if stopped == Some(Stopped::Asked) {
        return Ok(None);
    }
    let failure = match stopped {
        Some(_) => Some((FailureKind::TooLong, format!("it was not done in {}", format_duration(seconds)))),
        None if status.success() => None,
        None if group.ran_out() => Some((FailureKind::OutOfMemory, "it ran out of memory".to_owned())),
        None => Some((FailureKind::Failed, format!("it failed: {}", programs::last_words(&words, status)))),
    };
    let failure = failure.map(|(kind, cause)| CellFailure { kind, cause });
    let device_after = device_reads(device);
    Ok(Some(Ran {
        seconds,
        failure,
        taken,
        peak_bytes: group.peak_bytes(),
        process_read_bytes: own_read_bytes().zip(own_before).map(|(after, before)| after.saturating_sub(before)),
        device: Reads {
            reads: device_after.reads.saturating_sub(device_before.reads),
            bytes: device_after.bytes.saturating_sub(device_before.bytes),
        },
    }))
}

/// Why a command was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Asked,
    TooLong,
}

/// Starts it: a shell enters the group and becomes the command, so that all that the command takes counts from its first page on.
fn start(command: &[OsString], directory: &Path, group: &Confined) -> Result<Child> {
    let mut shell = Command::new(programs::find("sh")?);
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.entrance()).args(command);
    // Without the lock of the scratch directory: the next start ends what a killed run left in the group.
    shell.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C reaches granulo alone.
    shell.process_group(0);
    shell.spawn().map_err(|error| Error::io("run", command_path(command), error))
}

fn command_path(command: &[OsString]) -> &Path {
    command.first().map_or(Path::new("the command"), Path::new)
}

/// Waits for its end, looks at what it takes meanwhile, and ends it if it is to.
fn wait(
    child: &mut Child,
    group: &Confined,
    started: Instant,
    longest: Option<Duration>,
    watch: Watch<'_>,
) -> (std::io::Result<ExitStatus>, Taken, Option<Stopped>) {
    let mut taken = Taken::default();
    for tick in 0u32.. {
        let ended = child.try_wait();
        // At its end too: what it cached stays with the group, and a short run would be over before the second look.
        if tick.is_multiple_of(TICKS_BETWEEN_LOOKS) || matches!(ended, Ok(Some(_))) {
            let now = group.taken();
            taken.page_cache_bytes = taken.page_cache_bytes.max(now.page_cache_bytes);
            taken.anonymous_bytes = taken.anonymous_bytes.max(now.anonymous_bytes);
        }
        match ended {
            Ok(Some(status)) => return (Ok(status), taken, None),
            Ok(None) => {}
            Err(error) => return (Err(error), taken, None),
        }
        let stopped = match longest {
            _ if watch.is_stopped() => Some(Stopped::Asked),
            Some(longest) if started.elapsed() > longest => Some(Stopped::TooLong),
            _ => None,
        };
        if stopped.is_some() {
            group.end();
            // Before it entered the group, it is not in it.
            let _ = child.kill();
            return (child.wait(), taken, stopped);
        }
        sleep(TICK);
    }
    (child.wait(), taken, None)
}

/// The last bytes of what is said until its end.
fn last_bytes(mut from: impl Read) -> Vec<u8> {
    let mut kept = VecDeque::new();
    let mut piece = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        kept.extend(&piece[..read]);
        kept.drain(..kept.len().saturating_sub(KEPT_BYTES));
    }
    kept.into()
}

/// What was read from a block device until now.
fn device_reads(device: Option<(u32, u32)>) -> Reads {
    let Some((major, minor)) = device else { return Reads::default() };
    let text = line(&format!("/sys/dev/block/{major}:{minor}/stat"));
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
    let (reads, sectors) = (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0));
    Reads { reads, bytes: sectors.saturating_mul(512) }
}

/// What this process and those that it waited for had read from devices.
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
