//! A full check: the store checks itself, the program of a file system checks that, unmounted and with cold caches.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::file_systems::FileSystemKind;
use crate::bench::images::Image;
use crate::bench::programs;
use crate::bench::scratch::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::store::{CheckOptions, CheckReport, Store};

/// Precision with which the end of a program is detected.
const TICK: Duration = Duration::from_millis(2);
/// Bytes of a program's output that are kept.
const KEPT_BYTES: u64 = 64 << 10;

/// The program that checks a file system of a kind without changing it, and its arguments; `None` if there is none.
pub(super) fn program(kind: FileSystemKind) -> Option<(&'static str, &'static [&'static str])> {
    match kind {
        FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => Some(("e2fsck", &["-f", "-n"])),
        FileSystemKind::Xfs => Some(("xfs_repair", &["-n"])),
        FileSystemKind::Btrfs => Some(("btrfs", &["check", "--readonly"])),
        FileSystemKind::Fat => Some(("fsck.fat", &["-n"])),
        FileSystemKind::Exfat => Some(("fsck.exfat", &["-n"])),
        // ntfsfix examines only the boot sector and the journal.
        FileSystemKind::Ntfs => None,
    }
}

/// Checks an image that is not mounted; returns the seconds, `None` if it was asked to stop.
///
/// # Errors
/// [`ErrorKind::Corrupt`] with the output of the program if it finds a fault; if it cannot be run.
pub(super) fn file_system(image: &Image, scratch: &Scratch, progress: &Progress) -> Result<Option<f64>> {
    const OPERATION: &str = "check the file system";
    let kind = image.spec().kind;
    let (Some((program, arguments)), Some(device)) = (program(kind), image.device()) else {
        return Err(Error::new(ErrorKind::NotFound, OPERATION, format!("no program checks {kind}")));
    };
    let mut command = programs::command(program, scratch.lock())?;
    command.args(arguments).arg(device.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| Error::io("run", Path::new(program), error))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (status, words, stopped) = std::thread::scope(|scope| {
        let out = scope.spawn(|| out.map(first_bytes).unwrap_or_default());
        let err = scope.spawn(|| err.map(first_bytes).unwrap_or_default());
        let mut stopped = false;
        let status = loop {
            match child.try_wait() {
                Ok(None) if progress.should_stop() => {
                    stopped = true;
                    let _ = child.kill();
                    break child.wait();
                }
                Ok(None) => sleep(TICK),
                Ok(Some(status)) => break Ok(status),
                Err(error) => break Err(error),
            }
        };
        let mut words = out.join().unwrap_or_default();
        words.extend(err.join().unwrap_or_default());
        (status, words, stopped)
    });
    let seconds = started.elapsed().as_secs_f64();
    let status = status.map_err(|error| Error::io("wait for", Path::new(program), error))?;
    match (stopped, status.success()) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(seconds)),
        (false, false) => {
            let cause = format!("{program}: {}", programs::last_words(&words, status));
            Err(Error::new(ErrorKind::Corrupt, OPERATION, cause))
        }
    }
}

/// Returns the first bytes of a stream; reads and drops the rest.
fn first_bytes(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = from.by_ref().take(KEPT_BYTES).read_to_end(&mut kept);
    let _ = std::io::copy(&mut from, &mut std::io::sink());
    kept
}

/// Checks the store at `home`, including the time to open it; returns the seconds, `None` if it was asked to stop.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it finds a fault; errors from opening and reading.
pub(super) fn store(home: &Path, is_deep: bool, progress: &Progress) -> Result<Option<f64>> {
    let started = Instant::now();
    let store = Store::open_read_only(home)?;
    let mut first = None;
    let options = CheckOptions { is_deep, bytes_per_second: None };
    let report: CheckReport = store.check(
        options,
        &mut |problem| {
            first.get_or_insert_with(|| problem.to_string());
        },
        &progress.part(),
    )?;
    let seconds = started.elapsed().as_secs_f64();
    match first {
        Some(problem) => Err(Error::new(ErrorKind::Corrupt, "check the store", problem).at(home)),
        None => Ok(report.is_complete.then_some(seconds)),
    }
}
