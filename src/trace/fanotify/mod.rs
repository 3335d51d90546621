//! Live recording: whole-file opens, reads and writes on a mount, by any process, from the kernel's fanotify. Needs
//! root.

pub(crate) mod openings;

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

use self::openings::{Event, Happened, Openings};
use super::{Detail, Findings, Operation, Origin, Source, Trouble};
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "record on";

/// Time without events after which the flag is checked, in milliseconds.
const WAIT_MS: u8 = 50;

/// Events per read on a busy mount: about as many as fit into nix's buffer of 4 KiB.
const FULL_EVENTS: usize = 150;

/// Bytes of an event in the kernel's queue: `FAN_EVENT_METADATA_LEN`.
const EVENT_BYTES: u64 = 24;

/// A recording that continues until its flag is set. [`Source::next`] waits for events.
#[derive(Debug)]
pub(crate) struct Recording {
    fanotify: Fanotify,
    /// Only files below this are recorded.
    below: PathBuf,
    stop: Arc<AtomicBool>,
    /// Once the set flag was noticed, how many of the events that were in the queue then are still there.
    left: Option<u64>,
    ended: bool,
    openings: Openings,
    origin: Origin,
    given: u64,
}

impl Recording {
    /// Starts recording on the mount of `path`, below `path`, until `stop` is set.
    ///
    /// # Errors
    /// If that is not permitted or the kernel does not support it.
    pub(crate) fn start(path: &Path, stop: Arc<AtomicBool>) -> Result<Recording> {
        let below = std::fs::canonicalize(path).map_err(|error| Error::io(OPERATION, path, error))?;
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE
            | InitFlags::FAN_UNLIMITED_MARKS;
        let reading =
            EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC | EventFFlags::O_NOATIME;
        let fanotify = Fanotify::init(flags, reading).map_err(|error| match error {
            Errno::EPERM => Error::new(ErrorKind::PermissionDenied, OPERATION, "fanotify needs root")
                .at(path)
                .advise("run as root, or trace one command with 'granulo trace record -- COMMAND'"),
            Errno::ENOSYS => Error::new(ErrorKind::Io, OPERATION, "the kernel has no fanotify").at(path),
            error => Error::io(OPERATION, path, error.into()),
        })?;
        let mask = MaskFlags::FAN_OPEN
            | MaskFlags::FAN_OPEN_EXEC
            | MaskFlags::FAN_ACCESS
            | MaskFlags::FAN_MODIFY
            | MaskFlags::FAN_CLOSE_WRITE
            | MaskFlags::FAN_CLOSE_NOWRITE;
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        fanotify
            .mark(mark, mask, rustix::fs::CWD, Some(&below))
            .map_err(|error| Error::io(OPERATION, path, error.into()))?;
        let mut origin = Origin::new("fanotify");
        origin.detail = Detail::WholeFiles;
        origin.notes = [
            "fanotify reports that a file was read or written, but not the offset and length: an open with reads \
                counts as one read of the whole file, an open with writes as a write of the bytes by which the file \
                grew, or of the whole file if it did not grow or was truncated.",
            "Not recorded: reads and writes through memory maps, through other mounts of the same file system, and \
                from other clients of a network file system; the creation, removal and renaming of files; failed \
                operations.",
            "Several opens of a file by one process in quick succession may count as one; times are those of the \
                report, not of the event.",
        ]
        .map(str::to_owned)
        .to_vec();
        Ok(Recording {
            fanotify,
            below,
            stop,
            left: None,
            ended: false,
            openings: Openings::default(),
            origin,
            given: 0,
        })
    }

    /// Same, while a command runs.
    #[must_use]
    pub(crate) fn with_command(mut self, command: String) -> Recording {
        self.origin.command = Some(command);
        self
    }

    /// The same with the name of the machine, escaped.
    pub(crate) fn on_host(mut self, host: String) -> Recording {
        self.origin.host = Some(host);
        self
    }

    /// The directory whose files are recorded.
    pub(crate) fn below(&self) -> &Path {
        &self.below
    }

    /// Number of events in the kernel's queue.
    fn queued(&self) -> Result<u64> {
        let bytes = rustix::io::ioctl_fionread(&self.fanotify);
        bytes.map(|bytes| bytes.div_ceil(EVENT_BYTES)).map_err(|error| Error::io(OPERATION, &self.below, error.into()))
    }

    /// Waits for events and processes them; returns how many there were, `None` if a signal came first.
    fn take(&mut self) -> Result<Option<u64>> {
        let fail = |error: Errno| Error::io(OPERATION, &self.below, error.into());
        let mut watched = [PollFd::new(self.fanotify.as_fd(), PollFlags::POLLIN)];
        match poll(&mut watched, PollTimeout::from(WAIT_MS)) {
            Ok(0) => {
                self.openings.settle();
                return Ok(Some(0));
            }
            Err(Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(fail(error)),
        }
        let events = match self.fanotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let time_ns = now_ns();
        for event in &events {
            if event.mask().contains(MaskFlags::FAN_Q_OVERFLOW) {
                self.openings.problems.count(Trouble::Lost, || "the kernel's queue was full".to_owned());
            } else if event.pid() != std::process::id() as i32 {
                self.event(event, time_ns);
            }
        }
        // With this few, the queue was empty.
        if events.len() < FULL_EVENTS {
            self.openings.settle();
        }
        Ok(Some(events.len() as u64))
    }

    fn event(&mut self, event: &FanotifyEvent, time_ns: u64) {
        let Some(descriptor) = event.fd() else { return };
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let Ok(found) = statx(descriptor, c"", AtFlags::EMPTY_PATH, wanted) else { return };
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
            return;
        }
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let Ok(path) = std::fs::read_link(link) else { return };
        if !path.starts_with(&self.below) {
            return;
        }
        let mut path = path.as_os_str().as_bytes();
        if found.stx_nlink == 0 {
            path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        }
        let mask = event.mask();
        let any = |flags| mask.intersects(flags);
        let happened = Happened {
            opened: any(MaskFlags::FAN_OPEN),
            executed: any(MaskFlags::FAN_OPEN_EXEC),
            read: any(MaskFlags::FAN_ACCESS),
            modified: any(MaskFlags::FAN_MODIFY),
            closed: any(MaskFlags::FAN_CLOSE_WRITE | MaskFlags::FAN_CLOSE_NOWRITE),
        };
        let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
        let made = i128::from(found.stx_btime.tv_sec) * 1_000_000_000 + i128::from(found.stx_btime.tv_nsec);
        let identity = (device, found.stx_ino, made);
        let event = Event { time_ns, happened, pid: event.pid(), identity, size_bytes: found.stx_size, path };
        self.openings.take(&event, command);
    }
}

impl Source for Recording {
    fn next(&mut self) -> Result<Option<Operation>> {
        loop {
            if let Some(operation) = self.openings.ready.pop_front() {
                self.given += 1;
                return Ok(Some(operation));
            }
            if self.ended {
                return Ok(None);
            }
            // Events from before the flag was set are in the queue; on a busy mount, others always follow.
            if self.left.is_none() && self.stop.load(Ordering::Relaxed) {
                self.left = Some(self.queued()?);
            }
            let (taken, left) = (self.take()?, self.left);
            if let (Some(taken), Some(left)) = (taken, left) {
                self.left = Some(left.saturating_sub(taken));
                if taken == 0 || left <= taken {
                    self.openings.finish(now_ns());
                    self.ended = true;
                }
            }
        }
    }

    fn findings(&self) -> Findings<'_> {
        Findings {
            files: &self.openings.names,
            processes: &self.openings.processes,
            origin: &self.origin,
            problems: &self.openings.problems,
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.given, None)
    }
}

/// The command of a process.
fn command(pid: i32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    name.truncate(name.trim_ascii_end().len());
    Some(name)
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
