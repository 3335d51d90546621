//! What a program is told when the store fails, and what the log says about it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::locks::lock;

/// The same line is not repeated within this time.
const QUIET: Duration = Duration::from_secs(10);
/// Most lines in that time.
const MOST_LINES: u32 = 20;

/// The result of an operation that a program asked for.
pub(super) type Outcome<T> = Result<T, Errno>;

/// Where reasons go.
pub(super) struct Log {
    say: Box<dyn Fn(&str) + Send + Sync>,
    recent: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    since: Instant,
    last: String,
    lines: u32,
    left_out: u64,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    pub(super) fn new(say: Box<dyn Fn(&str) + Send + Sync>) -> Log {
        let recent = Recent { since: Instant::now(), last: String::new(), lines: 0, left_out: 0 };
        Log { say, recent: Mutex::new(recent) }
    }

    /// Writes a line, unless there were many or the same a moment ago.
    pub(super) fn say(&self, line: &str) {
        let mut recent = lock(&self.recent);
        if recent.since.elapsed() >= QUIET {
            if recent.left_out > 0 {
                (self.say)(&format!("{} more such lines were left out", recent.left_out));
            }
            *recent = Recent { since: Instant::now(), last: String::new(), lines: 0, left_out: 0 };
        }
        if recent.lines >= MOST_LINES || recent.last == line {
            recent.left_out += 1;
            return;
        }
        recent.lines += 1;
        line.clone_into(&mut recent.last);
        (self.say)(line);
    }

    /// What a program is told of a failure of the store. The reason is logged, unless the program could know it, with
    /// the path of the object if there is one.
    pub(super) fn errno(&self, error: &Error, path: impl FnOnce() -> Option<String>) -> Errno {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Usage) {
            let of = path().map_or_else(String::new, |path| format!("{path}: "));
            self.say(&format!("{of}{error}"));
        }
        errno_of(error)
    }
}

fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::Usage => Errno::INVAL,
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::PermissionDenied => Errno::ACCESS,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Busy => Errno::STALE,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::Interrupted => Errno::INTR,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_reason_goes_to_the_log_once_and_the_number_to_the_program() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let log = Log::new(Box::new(move |line| lock(&kept).push(line.to_owned())));
        let full = Error::new(ErrorKind::NoSpace, "write", "the device is full");
        let path = || Some("a/b".to_owned());
        assert_eq!((log.errno(&full, path), log.errno(&full, path)), (Errno::NOSPC, Errno::NOSPC));
        assert_eq!(log.errno(&Error::new(ErrorKind::NotFound, "read", "no such object"), path), Errno::NOENT);
        assert_eq!(*lock(&lines), ["a/b: cannot write: the device is full"]);
        log.errno(&full, || None);
        assert_eq!(lock(&lines)[1], "cannot write: the device is full");
        (0..100).for_each(|number| log.say(&format!("line {number}")));
        assert_eq!(lock(&lines).len(), MOST_LINES as usize);
    }
}
