//! Waiting until another process has changed a directory: by inotify, or by polling where that is unavailable (a
//! network file system, too many watches).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Polling interval without inotify.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of events read per call; their content does not matter.
const EVENTS_BYTES: usize = 4096;

/// A directory that is watched.
#[derive(Debug)]
pub(crate) struct DirectoryWatch {
    events: Option<File>,
}

impl DirectoryWatch {
    /// Watches `directory` for changes of its files from here on.
    pub(crate) fn new(directory: &Path) -> DirectoryWatch {
        let watched = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|events| inotify::add_watch(&events, directory, watched).map(|_| events));
        DirectoryWatch { events: events.ok().map(File::from) }
    }

    /// Waits until something has changed since the last call, for `timeout`, or for the polling interval without
    /// inotify.
    ///
    /// # Errors
    /// Any error of waiting.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let Some(events) = &mut self.events else {
            std::thread::sleep(timeout.min(PAUSE));
            return Ok(());
        };
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut [PollFd::new(&*events, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut seen = [0; EVENTS_BYTES];
        while matches!(events.read(&mut seen), Ok(read) if read > 0) {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_the_wait_and_so_does_the_time() {
        let place = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::new(place.path());
        std::fs::write(place.path().join("file"), b"bytes").unwrap();
        // Changes before the call count too, so this returns soon.
        watch.wait(Duration::from_secs(3600)).unwrap();
        watch.wait(Duration::ZERO).unwrap();
        let mut untold = DirectoryWatch { events: None };
        untold.wait(Duration::from_secs(3600)).unwrap();
    }
}
