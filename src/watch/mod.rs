//! Watching: a survey that is kept true while the tree changes, without another walk.
//!
//! # How it stays true
//!
//! The file system is marked first ([`events`]), then the whole tree is listed ([`scan`]) into a state of every inode
//! and name ([`tree`]). An event only says where to look: after a short time, in which many events on the same place
//! become one, the watcher asks the file system what is there now ([`look`]) and replaces its state, unless a single
//! event leaves no question ([`follow`]); for what was written it waits until the file system has written it back
//! ([`later`]). So it does not matter that events arrive late, merged or in a strange order: whatever changes after a
//! look is followed by another event, and another look. A directory is known by its handle, not by its path; one that
//! appears at a name, or moved there, is listed, unless it is known by this handle. Where names are found however they
//! are written, events do not tell them, and the directory is listed ([`folding`]).
//!
//! A document is composed from the state by the collector of a walk ([`compose`]): it is the same document.
//!
//! # What it survives
//!
//! Lost events, because the kernel had no memory or more places are marked than [`Request::most_pending`]: the tables
//! of inodes say what changed since ([`resync`]), or the tree is listed afresh, and the observer is told. File systems
//! mounted and unmounted below the root ([`mount_points`]). Allocation after the last event ([`later`]). A document
//! that cannot be written is the observer's concern; the next one follows after the interval.
//!
//! # What it cannot see
//!
//! Reads, unless access times are asked for; what other machines do on a network or cluster file system, which is
//! refused; changes without an event, such as those of an online defragmenter, until the file changes again.

mod compose;
mod events;
mod folding;
mod follow;
mod inodes;
mod later;
mod look;
mod mount_points;
pub(crate) mod prometheus;
mod resync;
mod scan;
mod tree;

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashSet;
use rustix::fs::{Mode, OFlags, openat};

use self::compose::{Moment, compose};
use self::events::{Group, HandleBytes, Marked, MarkedName, probable_number};
use self::folding::Folding;
use self::follow::{Followed, forget_changes};
use self::later::Later;
use self::look::{Seen, Truth};
use self::mount_points::MountPoints;
use self::scan::{Unlisted, list, to_list};
use self::tree::{Entry, InodeSlot, Tree};
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::{is_shared, mount_of};
use crate::progress::Progress;
use crate::scan::Kind;
use crate::scan::exclude::Exclude;
use crate::scan::walk::stat_open;
use crate::survey::{self, Survey};
use crate::sys::{handle_of, open_handle};
use crate::units::{escape_path, format_count};

pub(crate) use self::compose::DirectorySums;
#[cfg(feature = "testing")]
pub(crate) use self::events::fuzz as fuzz_events;

const OPERATION: &str = "watch";

/// How often the queue of events is emptied.
const TICK: Duration = Duration::from_millis(250);
/// How long events on one place are collected before it is looked at.
const SETTLE: Duration = Duration::from_secs(60);
/// Places are looked at earlier once one in so many of those that may be marked is.
const CROWDED_SHARE: usize = 4;
/// The time by which written data is on the device: the kernel begins after 30 s, and looks every 5 s
/// (`dirty_expire_centisecs`, `dirty_writeback_centisecs`).
const WRITTEN_BACK: Duration = Duration::from_secs(45);
/// The time by which XFS trims what it allocated ahead (`speculative_prealloc_lifetime`, 300 s).
const TRIMMED: Duration = Duration::from_secs(330);
/// Composing a document takes at most one part in this many of the time.
const COMPOSE_SHARE: u32 = 400;
/// Directories that are listed without the help of other threads.
const FEW_DIRECTORIES: usize = 64;
/// Places that are looked at between two looks at the queue.
const LOOKS_A_BREATH: usize = 4096;
/// How often nothing new may be found until what was not reached is given up.
const QUIET_ROUNDS: u32 = 2;

/// Longest path that a system call accepts, without its end (`PATH_MAX`).
const LONGEST_PATH_BYTES: usize = 4095;

/// What to watch, and how.
#[derive(Debug)]
pub(crate) struct Request {
    /// The survey to keep; its one root is the mount point.
    pub(crate) survey: survey::run::Request,
    /// Whether reading a file is a change.
    pub(crate) access_times: bool,
    /// Time between documents.
    pub(crate) interval: Duration,
    /// The largest number of places that are marked before the tree is listed afresh.
    pub(crate) most_pending: usize,
    /// Depth down to which the sums of directories are wanted.
    pub(crate) depth: Option<u32>,
}

/// What the watcher did until now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Events read.
    pub(crate) events: u64,
    /// Names and inodes looked at.
    pub(crate) looks: u64,
    /// Scans of the whole tree, with the first.
    pub(crate) scans: u64,
    /// Incremental scans after events were lost.
    pub(crate) incremental_scans: u64,
    /// Inodes and names that it knows.
    pub(crate) known: (usize, usize),
    /// Inodes that it will look at again.
    pub(crate) pending: usize,
    /// Seconds that the last document took to compose.
    pub(crate) compose_seconds: f64,
}

/// One state of the tree.
pub(crate) struct Document<'d> {
    /// As a survey.
    pub(crate) survey: &'d Survey,
    /// Sums of the directories asked for, by path.
    pub(crate) directories: &'d [DirectorySums],
    /// What the watcher did.
    pub(crate) figures: Figures,
}

/// Receives documents and notices.
pub(crate) trait Observer {
    /// The tree is in this state.
    fn document(&mut self, document: &Document<'_>);

    /// Something that people should know.
    fn notice(&mut self, text: &str);
}

/// Watches, and blocks, until `progress` is asked to stop. Returns whether the last document was reported: not if the
/// stop came during a scan, or if the root can no longer be read. Setting `write_now` asks for a document of everything
/// that changed before, whatever the interval; it is cleared when that is reported.
///
/// # Errors
/// If watching is not possible there; nothing was reported then.
pub(crate) fn watch(
    request: &Request,
    progress: &Progress,
    write_now: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<bool> {
    let mut watch = Watch::start(request, progress)?;
    Ok(watch.scan(progress) && watch.watch(write_now, observer))
}

/// A known directory that is open.
type OpenDirectory = (OwnedFd, InodeSlot);

struct Watch<'r> {
    request: &'r Request,
    progress: &'r Progress,
    exclude: Exclude,
    truth: Truth,
    group: Group,
    mount_points: MountPoints,
    folding: Folding,
    tree: Tree,
    marked: Marked,
    /// Files to look at once they are written back, and later once more if they are allocated ahead.
    written_back: Later,
    trimmed: Option<Later>,
    /// Inodes that changed while events were lost, and have not been found since.
    unreached: HashSet<u64>,
    figures: Figures,
    began: Instant,
    /// What changed before this time, seconds since 1970, is known.
    true_until: i64,
    /// A path.
    path: Vec<u8>,
}

/// Seconds since 1970.
fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64)
}

fn refuse(kind: ErrorKind, cause: impl Into<String>, path: &Path) -> Error {
    Error::new(kind, OPERATION, cause).at(path)
}

impl<'r> Watch<'r> {
    fn start(request: &'r Request, progress: &'r Progress) -> Result<Watch<'r>> {
        let began = Instant::now();
        let path = request.survey.roots.first().map_or(Path::new("."), PathBuf::as_path);
        let fail = |error| Error::io(OPERATION, path, error);
        let real = std::fs::canonicalize(path).map_err(fail)?;
        let mounted = mount_of(path)?;
        if mounted.point != real {
            let cause = "it is not a mount point, and only whole file systems can be watched";
            let advice = format!("watch {}", escape_path(&mounted.point));
            return Err(refuse(ErrorKind::Usage, cause, path).advise(advice));
        }
        if is_shared(&mounted.kind) {
            let cause = format!("its file system is {}, and changes by other machines are not reported", mounted.kind);
            return Err(refuse(ErrorKind::Usage, cause, path).advise("take surveys at intervals instead"));
        }
        let exclude = Exclude::new(&request.survey.options.excluded)?;
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mount = rustix::fs::open(&real, directory, Mode::empty()).map_err(|errno| fail(errno.into()))?;
        let stat = stat_open(mount.as_fd()).map_err(|errno| fail(errno.into()))?;
        let group = Group::start(mount.as_fd(), path, request.access_times)?;
        let opened =
            handle_of(mount.as_fd(), c"").and_then(|root| open_handle(mount.as_fd(), root.as_bytes(), OFlags::PATH));
        opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                refuse(ErrorKind::PermissionDenied, "opening file handles needs CAP_DAC_READ_SEARCH", path)
                    .advise("run as root")
            }
            _ => fail(error).advise("its file system cannot open file handles; take surveys at intervals instead"),
        })?;
        Ok(Watch {
            request,
            progress,
            exclude,
            folding: Folding::of(&mounted.kind, &real),
            mount_points: MountPoints::below(real, mounted.id)?,
            tree: Tree::new(&stat),
            truth: Truth::of(mount, stat.device),
            group,
            marked: Marked::default(),
            written_back: Later::after(WRITTEN_BACK),
            trimmed: (mounted.kind == "xfs").then(|| Later::after(TRIMMED - WRITTEN_BACK)),
            unreached: HashSet::new(),
            figures: Figures::default(),
            began,
            true_until: now_seconds(),
            path: Vec::new(),
        })
    }

    /// Lists the whole tree. Returns whether it came to the end.
    fn scan(&mut self, progress: &Progress) -> bool {
        progress.restart();
        self.figures.scans += 1;
        let Ok(root) = stat_open(self.truth.mount()) else { return false };
        self.tree = Tree::new(&root);
        progress.add(0, 1, 0);
        let handle = handle_of(self.truth.mount(), c"").ok();
        let unlisted = to_list(&mut self.tree, root.inode, handle).into_iter().collect();
        let is_complete = self.list_with(unlisted, self.request.survey.threads, progress);
        if is_complete {
            self.expect_write_back();
        }
        is_complete
    }

    /// Has files looked at again that were written before their writes were events, or while events were lost: their
    /// allocation changes when the data are written back, and without an event.
    fn expect_write_back(&mut self) {
        let settled_after = if self.trimmed.is_some() { TRIMMED } else { WRITTEN_BACK };
        let now = Instant::now();
        for file in self.tree.files_changed_since(now_seconds() - settled_after.as_secs() as i64) {
            let Some((directory, name)) = self.tree.place(file) else { continue };
            let path = self.tree.write_path(directory, name, LONGEST_PATH_BYTES, &mut self.path);
            if let Some(handle) = path.and_then(|path| self.truth.handle(path)) {
                self.written_back.add(handle.as_bytes(), now);
            }
        }
    }

    /// Lists directories to the end, also when the watcher was asked to stop: the last document needs them.
    fn list(&mut self, unlisted: Vec<Unlisted>) {
        let threads = if unlisted.len() > FEW_DIRECTORIES { self.request.survey.threads } else { 1 };
        self.list_with(unlisted, threads, &Progress::default());
    }

    /// Lists directories while events are collected.
    fn list_with(&mut self, unlisted: Vec<Unlisted>, threads: usize, progress: &Progress) -> bool {
        let (group, marked) = (&mut self.group, &mut self.marked);
        let is_complete = list(&self.truth, &mut self.tree, unlisted, threads, progress, TICK, || group.drain(marked));
        self.tree.settle();
        is_complete
    }

    fn watch(&mut self, write_now: &AtomicBool, observer: &mut dyn Observer) -> bool {
        let mut document_due = Instant::now();
        let mut look_due = Instant::now();
        let mut is_changed = true;
        self.progress.begin("watching", 0);
        loop {
            let is_last = self.progress.should_stop();
            let is_wanted = write_now.swap(false, Ordering::Relaxed) || is_last;
            let drained_at = now_seconds();
            self.group.drain(&mut self.marked);
            if self.marked.lost || self.marked.len() > self.request.most_pending {
                // Without a complete scan there is no true state to write.
                if !self.rescan(is_last, observer) {
                    return false;
                }
                (is_changed, document_due) = (true, Instant::now());
            }
            let now = Instant::now();
            let is_crowded = self.marked.len() > self.request.most_pending / CROWDED_SHARE;
            if now >= look_due || is_wanted || now >= document_due || is_crowded {
                let is_marked = self.look();
                is_changed |= self.look_at_written(now) || is_marked || !self.unreached.is_empty();
                if !self.unreached.is_empty() && !self.reach_all(is_marked, is_wanted, observer) {
                    return false;
                }
                look_due = now + SETTLE;
                self.true_until = drained_at;
            }
            self.progress.set_operations(self.marked.events);
            if self.marked.lost {
                // Read meanwhile: there is no true state to write before the next scan.
                write_now.fetch_or(is_wanted, Ordering::Relaxed);
                continue;
            }
            if is_wanted {
                self.look_at_all_written();
            }
            if is_wanted || (now >= document_due && is_changed) {
                let took = self.compose(observer);
                document_due = now + self.request.interval.max(took * COMPOSE_SHARE);
                is_changed = false;
            } else if now >= document_due {
                document_due = now + self.request.interval;
            }
            if is_last {
                return true;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Looks for what changed while events were lost, with the events since then: all of them if `is_wanted`. What no
    /// event moved is where nothing can be seen, below a file system that was mounted there. Returns whether the state
    /// is true.
    fn reach_all(&mut self, is_marked: bool, is_wanted: bool, observer: &mut dyn Observer) -> bool {
        let mut quiet = 0;
        loop {
            if let Err(reason) = self.reach() {
                return self.scan_again("what changed is not reached", &reason, is_wanted, observer);
            }
            if self.unreached.is_empty() || is_marked && !is_wanted {
                return true;
            }
            self.group.drain(&mut self.marked);
            quiet = if self.look() { 0 } else { quiet + 1 };
            if quiet == QUIET_ROUNDS {
                self.unreached.clear();
                return true;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Finds what changed since events were lost: by an incremental scan, or else by listing the tree afresh. For the
    /// last document, this does not stop early.
    fn rescan(&mut self, is_last: bool, observer: &mut dyn Observer) -> bool {
        let cause = if self.marked.lost { "events were lost" } else { "too many changes are pending" };
        self.marked.clear();
        self.written_back.clear();
        self.trimmed.iter_mut().for_each(Later::clear);
        self.progress.begin("scanning", 0);
        let is_true = match self.resync() {
            Ok(changes) => {
                self.figures.incremental_scans += 1;
                self.expect_write_back();
                let changes = format_count(changes as u128);
                observer.notice(&format!("{cause}: an incremental scan found {changes} changed files and directories"));
                true
            }
            Err(reason) => self.scan_again(cause, &reason, is_last, observer),
        };
        self.progress.begin("watching", 0);
        is_true
    }

    /// Lists the tree afresh. Returns whether it came to the end, which the last document must.
    fn scan_again(&mut self, cause: &str, reason: &str, is_last: bool, observer: &mut dyn Observer) -> bool {
        observer.notice(&format!("{cause}: the tree is scanned again ({reason})"));
        self.unreached.clear();
        let unstoppable = Progress::default();
        let is_complete = self.scan(if is_last { &unstoppable } else { self.progress });
        if is_complete {
            observer.notice("the tree was scanned again: the survey is true");
        }
        is_complete
    }

    /// Looks at every marked place. Returns whether there was one.
    fn look(&mut self) -> bool {
        let names = self.marked.take_names();
        let mut inodes = std::mem::take(&mut self.marked.inodes);
        let now = Instant::now();
        let mut looks = 0;
        let mut unlisted = Vec::new();
        let mut open: Option<(&[u8], Option<OpenDirectory>)> = None;
        let mut asked: Option<(&[u8], bool)> = None;
        let mut text = Vec::new();
        for at in names.iter() {
            let MarkedName { directory, name, child, .. } = at;
            looks += 1;
            if looks % LOOKS_A_BREATH == 0 {
                self.group.drain(&mut self.marked);
            }
            let is_folded = match asked.filter(|(handle, _)| *handle == directory) {
                Some((_, is_folded)) => is_folded,
                None => asked.insert((directory, self.is_folded(directory, now, &mut unlisted))).1,
            };
            if is_folded {
                continue;
            }
            match self.follow(&at, now, &mut unlisted) {
                Followed::Not => {}
                Followed::Here => {
                    self.looked_at_child(child, &mut inodes, now);
                    continue;
                }
                Followed::Gone { is_nameless } => {
                    if let Some(child) = child.filter(|_| is_nameless) {
                        forget_changes(child, &mut inodes);
                    }
                    continue;
                }
            }
            if open.as_ref().is_none_or(|(handle, _)| *handle != directory) {
                // A directory that is not known will be listed when its own name is looked at.
                open = Some((directory, self.open_known(directory)));
            }
            let Some((_, Some((fd, slot)))) = &open else { continue };
            text.clear();
            text.extend_from_slice(name);
            text.push(0);
            let Ok(name_with_end) = CStr::from_bytes_with_nul(&text) else { continue };
            match self.truth.name(fd.as_fd(), name_with_end) {
                Seen::Gone => {
                    if let Some(known) = self.tree.child(*slot, name) {
                        self.tree.detach(known);
                    }
                }
                Seen::There(entry, handle) => {
                    self.tree.put(*slot, name, &entry);
                    if let Entry::Inode(stat) = &entry
                        && stat.kind == Kind::Directory
                    {
                        unlisted.extend(to_list(&mut self.tree, stat.inode, handle));
                    }
                    // Another inode may be at the name by now, or have been in the last event about it.
                    let is_child = match &entry {
                        Entry::Inode(stat) => child.and_then(probable_number) == Some(stat.inode),
                        _ => false,
                    };
                    if is_child {
                        self.looked_at_child(child, &mut inodes, now);
                    }
                }
            }
        }
        drop(open);
        if !unlisted.is_empty() {
            self.list(unlisted);
        }
        let mut changed = Vec::new();
        for (handle, happened) in inodes {
            if happened.is_written {
                self.written_back.add(&handle, now);
            }
            if happened.is_changed {
                changed.push(handle);
            }
        }
        looks += changed.len();
        self.look_at_inodes(changed, |_, _, _| {});
        looks += self.look_at_mount_points(now);
        self.tree.settle();
        self.figures.looks += looks as u64;
        looks > 0
    }

    /// Opens a directory that is known, and updates it.
    fn open_known(&mut self, handle: &[u8]) -> Option<OpenDirectory> {
        let fd = self.truth.open(handle)?;
        let stat = self.truth.stat(fd.as_fd()).filter(|stat| stat.kind == Kind::Directory)?;
        let slot = self.tree.update(&stat)?;
        Some((fd, slot))
    }

    /// Looks at files that were written some time ago. Returns whether there was one.
    fn look_at_written(&mut self, now: Instant) -> bool {
        let due: Vec<_> = std::iter::from_fn(|| self.written_back.next(now)).collect();
        let looks = due.len();
        self.look_at_inodes(due, |watch, handle, is_ahead| {
            if let (Some(trimmed), true) = (&mut watch.trimmed, is_ahead) {
                trimmed.add(handle, now);
            }
        });
        let due: Vec<_> = std::iter::from_fn(|| self.trimmed.as_mut()?.next(now)).collect();
        let looks = looks + due.len();
        self.look_at_inodes(due, |_, _, _| {});
        self.figures.looks += looks as u64;
        looks > 0
    }

    /// Looks at all files that were written, for a document of this moment. They stay, because they may change yet.
    fn look_at_all_written(&mut self) {
        let trimmed = self.trimmed.iter().flat_map(Later::all);
        let all: Vec<HandleBytes> = self.written_back.all().into_iter().chain(trimmed).collect();
        self.figures.looks += all.len() as u64;
        self.look_at_inodes(all, |_, _, _| {});
    }

    /// Looks at names where something was mounted or unmounted. Returns how many there were.
    fn look_at_mount_points(&mut self, now: Instant) -> usize {
        let points = self.mount_points.take_changes();
        for point in &points {
            let (Some(parent), Some(name)) = (point.parent(), point.file_name()) else { continue };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fd) = openat(self.truth.mount(), parent, flags, Mode::empty()) else { continue };
            let Some(slot) = self.truth.stat(fd.as_fd()).and_then(|stat| self.tree.inode(stat.inode)) else { continue };
            let mut unlisted = Vec::new();
            if let Ok(handle) = handle_of(fd.as_fd(), c"")
                && self.is_folded(handle.as_bytes(), now, &mut unlisted)
            {
                self.list(unlisted);
                continue;
            }
            let with_end = [name.as_bytes(), &[0]].concat();
            let Ok(with_end) = CStr::from_bytes_with_nul(&with_end) else { continue };
            match self.truth.name(fd.as_fd(), with_end) {
                Seen::Gone => {}
                Seen::There(entry, handle) => {
                    let is_new = self.tree.put(slot, name.as_bytes(), &entry);
                    if let (true, Entry::Inode(stat)) = (is_new, &entry) {
                        let unlisted = to_list(&mut self.tree, stat.inode, handle);
                        self.list(unlisted.into_iter().collect());
                    }
                }
            }
        }
        points.len()
    }

    /// Passes the current state to the observer. Returns how long it took to compose.
    fn compose(&mut self, observer: &mut dyn Observer) -> Duration {
        let started = Instant::now();
        let moment = Moment { taken_at: now_seconds(), elapsed_seconds: self.began.elapsed().as_secs_f64() };
        let (group, marked) = (&mut self.group, &mut self.marked);
        let (request, depth) = (&self.request.survey, self.request.depth);
        let (survey, directories) = compose(&self.tree, request, &self.exclude, moment, depth, || group.drain(marked));
        let took = started.elapsed();
        let bytes = survey.size_bytes().min(u64::MAX.into()) as u64;
        self.progress.set(survey.counts.files, bytes);
        self.figures.events = self.marked.events;
        self.figures.known = self.tree.counts();
        self.figures.pending = self.written_back.len() + self.trimmed.as_ref().map_or(0, Later::len);
        self.figures.compose_seconds = took.as_secs_f64();
        observer.document(&Document { survey: &survey, directories: &directories, figures: self.figures });
        took
    }
}
