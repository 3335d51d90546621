//! Trees and archives: into a store ([`import()`], [`import_tar`]) and out of it ([`export()`]).
//!
//! | module | subject |
//! | --- | --- |
//! | [`posix`] | one file of the operating system: attributes, holes, descriptors, relative to an open directory |
//! | `walk`, `selection` | a source tree in key order, and what of it is wanted |
//! | `beside` | the listings of the store beside that walk, and what only the store has |
//! | [`mod@import`] | what is stored, several threads |
//! | `unchanged` | whether the store has it already |
//! | `task` | what to do with each file, options and results |
//! | `put` | storing one file in a batch |
//! | `names` | files with several names, in both directions |
//! | `turns` | batches of several threads, committed in order |
//! | `archive`, `header`, `pax` | the members of a tar archive |
//! | `tar` | importing an archive |
//! | `archive_write` | objects as an archive |
//! | `target` | options and results of an export, and the state that its threads share |
//! | [`mod@export`], `restore` | exporting a tree: order and directories, then one object |
//!
//! Common invariants: names come from the store or from the source byte for byte; every name is looked up as one
//! component below an open directory, and no symlink is followed; memory does not grow with the tree, except for the
//! names of the directories on the current path, and for files with several names while some of them were not seen.
//!
//! Survives: what cannot be read or created is counted and reported, and the work continues; a request to stop (see
//! [`Progress`]) leaves the store consistent, and the same call does the rest. Of a progress, objects (names of any
//! kind, including unchanged ones) and bytes (of content read or written) advance; those of holes and of unchanged
//! objects count as skipped.

pub(super) mod archive;
mod archive_write;
mod beside;
pub mod export;
mod header;
pub mod import;
mod names;
mod pax;
pub mod posix;
mod put;
mod restore;
mod selection;
mod tar;
mod target;
mod task;
mod turns;
mod unchanged;
mod walk;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;

use crate::error::{Error, ErrorKind, Result, os_message};
use crate::locks::lock;
use crate::progress::Progress;

pub use archive_write::{ArchiveSummary, write_tar};
pub use export::export;
pub use import::{Measure, import, import_into, measure};
pub use selection::Selection;
pub use tar::{import_tar, import_tar_into};
pub use target::{ExportOptions, ExportSummary};
pub use task::{ImportOptions, ImportSummary};

/// Reports that are kept in full; the rest is only counted.
const REPORTS_KEPT: usize = 20;

/// Failures that did not end the whole.
#[derive(Debug, Default)]
pub struct Reports {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Error>,
}

impl Reports {
    fn add(&mut self, error: Error) {
        self.count += 1;
        if self.first.len() < REPORTS_KEPT {
            self.first.push(error);
        }
    }
}

/// Progress of the threads of one import or export, and whether they should continue.
struct Ledger<'p> {
    progress: &'p Progress,
    interrupted: AtomicBool,
    failed: Mutex<Option<Error>>,
    failing: AtomicBool,
    reports: Mutex<Reports>,
}

impl<'p> Ledger<'p> {
    fn new(progress: &'p Progress) -> Ledger<'p> {
        Ledger {
            progress,
            interrupted: AtomicBool::new(false),
            failed: Mutex::new(None),
            failing: AtomicBool::new(false),
            reports: Mutex::default(),
        }
    }

    /// Counts finished work. Returns whether to continue.
    fn advance(&self, objects: u64, content_bytes: u64) -> bool {
        self.progress.add(objects, 0, content_bytes.into());
        if self.progress.should_stop() {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        !self.is_over()
    }

    /// Counts bytes that need no work.
    fn skip(&self, bytes: u64) {
        if bytes > 0 {
            self.progress.skip_bytes(bytes);
        }
    }

    /// Whether all threads should end: interrupted or failed.
    fn is_over(&self) -> bool {
        self.is_interrupted() || self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn report(&self, error: Error) {
        lock(&self.reports).add(error);
    }

    fn report_io(&self, operation: &'static str, path: &Path, error: impl Into<io::Error>) {
        self.report(Error::io(operation, path, error.into()));
    }

    /// Ends everything: the caller gets the first failure.
    fn fail(&self, error: Error) {
        lock(&self.failed).get_or_insert(error);
        self.failing.store(true, Ordering::Relaxed);
    }

    /// The failure that ended everything, or the reports.
    fn end(&self) -> (Option<Error>, Reports) {
        (lock(&self.failed).take(), std::mem::take(&mut *lock(&self.reports)))
    }
}

/// A stream that fails once the work is over.
struct Stoppable<'l, 'p, R> {
    ledger: &'l Ledger<'p>,
    inner: R,
}

impl<R: Read> Read for Stoppable<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.ledger.advance(0, 0) {
            return Err(io::Error::other("it was interrupted"));
        }
        let read = self.inner.read(buffer);
        if read.is_err() {
            // A stream that waits for data may itself end because of the stop.
            self.ledger.advance(0, 0);
        }
        read
    }
}

/// A stream whose bytes count as done, and which fails once the work is over.
struct Watched<'l, 'p, R> {
    ledger: &'l Ledger<'p>,
    inner: R,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        if self.ledger.advance(0, got as u64) { Ok(got) } else { Err(io::Error::other("it was interrupted")) }
    }
}

/// Starts up to `threads` threads of a scope with the same work: fewer if the system has no more.
///
/// # Errors
/// If not even one could be started.
fn begin_threads<'scope, W>(scope: &'scope Scope<'scope, '_>, threads: usize, work: W) -> Result<()>
where
    W: Fn() + Clone + Send + 'scope,
{
    for begun in 0..threads {
        match std::thread::Builder::new().spawn_scoped(scope, work.clone()) {
            Ok(_) => {}
            Err(_) if begun > 0 => break,
            Err(error) => {
                return Err(Error::new(ErrorKind::of(&error), "start a thread", os_message(&error))
                    .advise("raise the limits on processes and memory (ulimit -u, cgroup), or end other programs"));
            }
        }
    }
    Ok(())
}

/// Default number of threads: reading ahead pays even on one processor.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |count| count.get()).clamp(2, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_counted_beyond_those_that_are_kept() {
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        (0..100).for_each(|number| ledger.report(Error::new(ErrorKind::Io, "read", number.to_string())));
        let (failed, reports) = ledger.end();
        assert!(failed.is_none());
        assert_eq!((reports.count, reports.first.len()), (100, REPORTS_KEPT));
        assert_eq!(reports.first[0].to_string(), "cannot read: 0");
    }

    #[test]
    fn the_first_failure_is_the_one_and_ends_everything() {
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        assert!(ledger.advance(1, 10));
        ledger.fail(Error::new(ErrorKind::NoSpace, "write", "first"));
        ledger.fail(Error::new(ErrorKind::Io, "write", "second"));
        assert!(!ledger.advance(1, 10));
        assert!(!ledger.is_interrupted());
        assert_eq!(ledger.end().0.unwrap().kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn a_stream_that_ends_its_own_wait_when_asked_to_stop_is_interrupted_work() {
        struct Waiting<'p>(&'p Progress);
        impl Read for Waiting<'_> {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                self.0.stop();
                Err(io::Error::other("it was interrupted"))
            }
        }
        let progress = Progress::default();
        let ledger = Ledger::new(&progress);
        let mut stream = Stoppable { ledger: &ledger, inner: Waiting(&progress) };
        assert!(stream.read(&mut [0; 10]).is_err());
        assert!(ledger.is_interrupted());
    }

    #[test]
    fn a_stream_fails_once_it_was_asked_to_stop() {
        let progress = Progress::observed(|progress| {
            if progress.snapshot().bytes >= 300 {
                progress.stop();
            }
        });
        let ledger = Ledger::new(&progress);
        let mut stream = Watched { ledger: &ledger, inner: &[7u8; 1000][..] };
        let mut buffer = [0; 200];
        assert_eq!(stream.read(&mut buffer).unwrap(), 200);
        assert!(stream.read(&mut buffer).is_err());
        assert!(ledger.is_interrupted());
    }
}
