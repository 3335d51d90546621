//! Exporting a tree from a store: directories in key order, their content in disk order.
//!
//! One thread walks the index and creates directories; objects gather in a window of `WINDOW_OBJECTS`, are sorted by
//! place, and are passed in runs to threads that read and write them (`restore`). Each is created relative to its open
//! directory. A directory gets its attributes when the last user drops it.
//!
//! Confined: below the target, only entries of directories that this export has opened itself, without following
//! symlinks, are created; content goes only to files that it has created. Descriptors: at most `MOST_OPEN` directories;
//! those above the deepest `OPEN_LEVELS` are reopened through `..` and checked to be the same.
//!
//! Survives: objects that cannot be created (reported; the content of such a directory is omitted), entries without a
//! parent directory, objects that are removed or replaced meanwhile. The target is not synced: callers that need that
//! call `sync` once.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use rustix::fs::{Dir, Mode, OFlags, fchmod, mkdirat, open};
use rustix::io::Errno;

use super::names::{Handover, SharedNames};
use super::posix::{Identity, open_directory, open_parent, status};
use super::restore::{LinkTo, RestoreTask, Restorer, TargetDirectory, c_name};
use super::target::{Export, ExportOptions, ExportSummary};
use super::{Ledger, begin_threads, default_threads};
use crate::devices::host::Host;
use crate::devices::platform::{LOST_AND_FOUND, Platform};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::key::Key;
use crate::locks::lock;
use crate::progress::Progress;
use crate::units::MIB;
use crate::{Listed, Store};

/// Objects that are sorted by place together.
const WINDOW_OBJECTS: usize = 4096;
/// A run for one thread ends after this many objects,
const RUN_OBJECTS: usize = 64;
/// or this many bytes.
const RUN_BYTES: u64 = 4 * MIB;
/// Most directories that are open at a time.
const MOST_OPEN: usize = 384;
/// Directories on the current path that are kept open.
const OPEN_LEVELS: usize = 64;

/// Creates the tree below `options.prefix` in `directory`.
///
/// # Errors
/// If the store has no such directory, if the target cannot be created or is not empty; errors of the store's index.
/// Objects that cannot be created or read are not an error: see [`ExportSummary::reports`].
pub fn export(store: &Store, directory: &Path, options: &ExportOptions, progress: &Progress) -> Result<ExportSummary> {
    let prefix = store.entry(&options.prefix)?;
    match &prefix {
        Some(listed) if listed.entry.kind != Kind::Directory => {
            return Err(Error::new(ErrorKind::Usage, "export", "it is not a directory of the store")
                .at(&options.prefix.to_path())
                .advise("read a single object with get"));
        }
        None if !options.prefix.is_root() => {
            return Err(Error::new(ErrorKind::NotFound, "export", "the store has no such directory")
                .at(&options.prefix.to_path()));
        }
        _ => {}
    }
    let root = open_target(directory, options.resume)?;
    let ledger = Ledger::new(progress);
    let threads = options.threads.unwrap_or_else(default_threads).max(1);
    let export = Export::new(store, options, directory, root, &ledger);
    let (sender, receiver) = sync_channel::<Vec<RestoreTask<'_>>>(threads);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        let begun = begin_threads(scope, threads, || work(&export, &receiver));
        // Dropping it ends the threads.
        let mut walker = Walker::new(&export, sender);
        begun.and_then(|()| walker.run(prefix.is_some())).unwrap_or_else(|error| ledger.fail(error));
    });
    finish_late(&export);
    let done = std::mem::take(&mut *lock(&export.done));
    let interrupted = ledger.is_interrupted();
    match ledger.end() {
        (Some(error), _) => Err(error),
        (None, reports) => Ok(ExportSummary { interrupted, reports, ..done }),
    }
}

/// Opens the target, which is created if it is missing, and must be empty unless `resume`.
fn open_target(directory: &Path, resume: bool) -> Result<OwnedFd> {
    std::fs::create_dir_all(directory).map_err(|error| Error::io("create the directory", directory, error))?;
    let fail = |errno: Errno| Error::io("export to", directory, errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(directory, flags, Mode::empty()).map_err(fail)?;
    if !resume {
        for entry in Dir::read_from(&opened).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            // That of a new file system is empty, and stays.
            let is_of_system = || {
                entry.file_name().to_bytes() == LOST_AND_FOUND.as_bytes()
                    && Host.is_lost_and_found(&directory.join(LOST_AND_FOUND))
            };
            if ![c".", c".."].contains(&entry.file_name()) && !is_of_system() {
                return Err(Error::new(ErrorKind::Exists, "export to", "it is not empty")
                    .at(directory)
                    .advise("name an empty directory, or continue an interrupted export"));
            }
        }
    }
    Ok(opened)
}

/// Sets the attributes of the directories that were left to the end.
fn finish_late(export: &Export<'_>) {
    if export.ledger.is_over() {
        return;
    }
    let mut restorer = Restorer::new(export);
    for key in export.take_late() {
        match restorer.open_below_root(&key) {
            Ok(directory) => restorer.finish_directory(&directory, &key, true),
            Err(errno) => export.ledger.report_io("set the attributes of", &export.path_of(&key), errno),
        }
    }
}

fn work<'e>(export: &'e Export<'e>, receiver: &Mutex<Receiver<Vec<RestoreTask<'e>>>>) {
    let mut restorer = Restorer::new(export);
    // All runs are taken, so that nobody waits for a run without a thread.
    loop {
        let run = lock(receiver).recv();
        let Ok(run) = run else { break };
        for job in run {
            restorer.take(job);
        }
    }
}

struct Level<'e> {
    key: Key,
    /// `None` while the level is far above the deepest one.
    directory: Option<Arc<TargetDirectory<'e>>>,
    identity: Identity,
    /// Whether the store has its attributes.
    is_stored: bool,
    /// Could not be created: its content is omitted.
    is_lost: bool,
}

struct Walker<'e> {
    export: &'e Export<'e>,
    sender: SyncSender<Vec<RestoreTask<'e>>>,
    levels: Vec<Level<'e>>,
    window: Vec<RestoreTask<'e>>,
    /// Later names: after everything else in the window.
    links: Vec<RestoreTask<'e>>,
    names: SharedNames<ObjectNumber, Arc<LinkTo>>,
}

impl<'e> Walker<'e> {
    fn new(export: &'e Export<'e>, sender: SyncSender<Vec<RestoreTask<'e>>>) -> Walker<'e> {
        let (levels, window, links) = (Vec::new(), Vec::new(), Vec::new());
        Walker { export, sender, levels, window, links, names: SharedNames::default() }
    }

    fn run(&mut self, is_stored: bool) -> Result<()> {
        let export = self.export;
        let prefix = &export.options.prefix;
        let fail = |error| Error::io("export to", export.target, error);
        let root = export.root.try_clone().map_err(fail)?;
        self.push(prefix.clone(), root, is_stored).map_err(|errno| fail(errno.into()))?;
        for listed in export.store.walk(prefix)? {
            let listed = listed?;
            if listed.key == *prefix {
                continue;
            }
            if export.ledger.is_over() {
                break;
            }
            self.come_to(listed)?;
        }
        self.flush();
        while self.levels.pop().is_some() {}
        Ok(())
    }

    fn come_to(&mut self, listed: Listed) -> Result<()> {
        while self.levels.len() > 1 && self.levels.last().is_some_and(|level| listed.key.below(&level.key).is_none()) {
            self.leave();
        }
        let Some(level) = self.levels.last() else { return Ok(()) };
        if level.is_lost {
            return Ok(());
        }
        if listed.key.parent().as_ref() != Some(&level.key) {
            let error = Error::new(ErrorKind::Corrupt, "export", "its parent is not a directory");
            self.export.ledger.report(error.at(&self.export.path_of(&listed.key)));
            return Ok(());
        }
        let Some(directory) = level.directory.clone() else { return Ok(()) };
        if listed.entry.kind == Kind::Directory {
            self.enter(&directory, listed.key);
            return Ok(());
        }
        let (shared, is_link) = self.link(&listed)?;
        let job = RestoreTask { directory, listed, shared, is_link };
        if is_link {
            self.links.push(job)
        } else {
            self.window.push(job)
        }
        if self.window.len() + self.links.len() >= WINDOW_OBJECTS {
            self.flush();
        }
        Ok(())
    }

    /// The slot that the names of an object share; and whether this is a later name.
    fn link(&mut self, listed: &Listed) -> Result<(Option<Arc<LinkTo>>, bool)> {
        let Some(number) = listed.shared else { return Ok((None, false)) };
        if let Some(first) = self.names.later(number) {
            return Ok((Some(first), true));
        }
        // Of the index alone: a damaged record must not end the export of the others.
        let count = self.export.store.engine().names_of(number).max(1);
        let first = Arc::new(LinkTo { key: listed.key.clone(), made: Handover::default() });
        self.names.first(number, count, first.clone());
        Ok((Some(first), false))
    }

    fn enter(&mut self, parent: &Arc<TargetDirectory<'e>>, key: Key) {
        self.wait_for_descriptors();
        match self.make(parent, &key).and_then(|made| self.push(key.clone(), made, true)) {
            Ok(()) => {
                lock(&self.export.done).directories += 1;
                self.export.ledger.advance(1, 0);
            }
            Err(errno) => {
                self.export.ledger.report_io("create the directory", &self.export.path_of(&key), errno);
                self.levels.push(Level { key, directory: None, identity: (0, 0), is_stored: true, is_lost: true });
            }
        }
    }

    fn make(&self, parent: &TargetDirectory<'e>, key: &Key) -> std::result::Result<OwnedFd, Errno> {
        let name = c_name(key);
        // That of a new file system, which is empty.
        let is_of_system = self.levels.len() == 1 && name.to_bytes() == LOST_AND_FOUND.as_bytes();
        match mkdirat(&parent.handle, &name, Mode::RWXU) {
            Err(Errno::EXIST) if self.export.options.resume || is_of_system => {
                let opened = open_directory(&parent.handle, &name)?;
                let mode = status(&opened)?.mode;
                if mode & 0o700 != 0o700 {
                    fchmod(&opened, Mode::from_raw_mode(u32::from(mode & 0o7777 | 0o700)))?;
                }
                Ok(opened)
            }
            made => made.and_then(|()| open_directory(&parent.handle, &name)),
        }
    }

    /// Makes an open directory the deepest level.
    fn push(&mut self, key: Key, handle: OwnedFd, is_stored: bool) -> std::result::Result<(), Errno> {
        let identity = status(&handle)?.identity;
        if let Some(above) = self.levels.len().checked_sub(OPEN_LEVELS) {
            self.levels[above].directory = None;
        }
        let directory = TargetDirectory::new(self.export, key.clone(), handle, is_stored, false);
        self.levels.push(Level { key, directory: Some(directory), identity, is_stored, is_lost: false });
        Ok(())
    }

    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Some(above) = self.levels.last() else { return };
        if above.directory.is_some() || above.is_lost {
            return;
        }
        let (key, identity, is_stored) = (above.key.clone(), above.identity, above.is_stored);
        let opened = match &left.directory {
            Some(directory) => open_parent(&directory.handle, identity),
            None => Restorer::new(self.export).open_below_root(&key),
        };
        let at = self.levels.len() - 1;
        match opened {
            Ok(handle) => {
                self.levels[at].directory = Some(TargetDirectory::new(self.export, key, handle, is_stored, true));
            }
            Err(errno) => {
                self.levels[at].is_lost = true;
                self.export.ledger.report_io("return to the directory", &self.export.path_of(&key), errno);
            }
        }
    }

    /// Waits until another directory may be opened.
    fn wait_for_descriptors(&mut self) {
        if self.export.open_directories() < MOST_OPEN {
            return;
        }
        self.flush();
        // The current path keeps `OPEN_LEVELS` open; all others are dropped when the work in them is done.
        self.export.await_fewer_directories(MOST_OPEN);
    }

    /// Sends the window to the threads: by place, then later names.
    fn flush(&mut self) {
        let mut window = std::mem::take(&mut self.window);
        window.sort_by_key(|job| (job.listed.entry.location.segment, job.listed.entry.location.offset));
        window.append(&mut self.links);
        let (mut run, mut bytes) = (Vec::new(), 0u64);
        for job in window {
            bytes = bytes.saturating_add(job.listed.entry.size_bytes);
            run.push(job);
            if run.len() >= RUN_OBJECTS || bytes >= RUN_BYTES {
                // The threads take runs until this end of the channel is dropped.
                let _ = self.sender.send(std::mem::take(&mut run));
                bytes = 0;
            }
        }
        if !run.is_empty() {
            let _ = self.sender.send(run);
        }
    }
}
