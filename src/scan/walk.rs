//! The walk: enumerate files through their directories, with several threads.
//!
//! For each entry one `statx` relative to the descriptor of its directory (one component, so the kernel looks up no
//! path), for each directory one `openat` relative to its parent's descriptor, `getdents64` until it is empty (two
//! calls up to 64 KiB of entries) and one `close`; for each symlink one `readlinkat` for its first byte. A thread owns
//! the directory that it lists; `frontier` has the remaining work. `statx` requests only the fields that are used,
//! without synchronising with a server (`AT_STATX_DONT_SYNC`).
//!
//! Survives: entries and directories that vanish or change kind between listing and opening (`O_NOFOLLOW`, counted),
//! unreadable ones (reported; the walk continues), symlink loops (never followed below a root), paths longer than
//! `PATH_MAX`, directories of millions of entries, file systems that are mounted twice, roots inside other roots (each
//! is walked once, on its own), and fewer descriptors than unfinished directories. Not detected: a plain directory that
//! a bind mount shows at a second place.

use crate::locks::lock;
use crate::mounts::mounts;
use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxAttributes, StatxFlags, openat, readlinkat_raw, statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::division::Division;
use super::frontier::{Descriptor, Divided, Frontier, Held, NameList, Node, Work, finish_upwards, join};
use super::mounted_again::{MountedAgain, comes_to};
use super::mounts::is_pseudo_file_system;
use super::place::{Parent, Place, Waiting};
use super::{
    Batch, Directory, DirectoryLocation, Kind, Skipped, Snapshot, Stat, Tally, Timestamp, Visitor, WalkOptions,
};

/// Bytes of directory entries that one `getdents64` may return.
pub(crate) const LISTING_BYTES: usize = 64 << 10;
/// Entries per batch.
const BATCH_ENTRIES: usize = 256;
/// Descriptors left to the rest of the process.
const SPARE_DESCRIPTORS: u64 = 64;

const WANTED: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::UID)
    .union(StatxFlags::GID)
    .union(StatxFlags::ATIME)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::INO)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::BLOCKS);
const LAZILY: AtFlags = AtFlags::STATX_DONT_SYNC.union(AtFlags::NO_AUTOMOUNT);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory's identity: device and inode.
type Identity = (u64, u64);

/// A walk over some roots that reports to a visitor.
pub(crate) struct Walk<'v, V: Visitor> {
    frontier: Frontier<V::Tally>,
    visitor: &'v V,
    settings: WalkOptions,
    roots: HashSet<Identity>,
    mounted_again: MountedAgain,
    mounts: Mutex<HashSet<Identity>>,
}

/// The unfinished part of a walk as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State<T> {
    frontier: Snapshot<T>,
    /// Mount points seen, as device and inode.
    mounts: Vec<Identity>,
}

impl<T: Tally> State<T> {
    /// Replaces each device number with the current one, as returned by `now`.
    pub(crate) fn renumber_devices(&mut self, now: &impl Fn(u64) -> u64) {
        self.frontier.renumber_devices(now);
        self.mounts.iter_mut().for_each(|(device, _)| *device = now(*device));
    }

    /// The sums of all unfinished directories: of their entries, and of finished directories below them.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &T> {
        self.frontier.sums()
    }

    /// Reports to `visitor` that the unfinished directories are finished, as if there were nothing more below them.
    pub(crate) fn finish_early<V: Visitor<Tally = T>>(self, visitor: &V) {
        self.frontier.fold(|node, own, below| visitor.finished(0, Directory { place: node }, own, below));
    }
}

fn places<T: Tally>(held: Held<T>) -> Vec<Place<T>> {
    held.into_iter().map(|node| node.map_or(Place::Root, |node| Place::Walked(Waiting::on(node)))).collect()
}

/// What walks that divided their trees leave together: the places that wait for names, and the divided directories.
pub(crate) struct Remainder<T> {
    divided: Divided<T>,
}

impl<T: Tally> Remainder<T> {
    /// What finished walks leave, and the places that they held, as each passed them to [`Walk::paused`], in the order
    /// of the walks.
    ///
    /// # Errors
    /// A description of the contradiction in the states.
    pub(crate) fn of<'s>(
        states: impl IntoIterator<Item = &'s State<T>>,
    ) -> Result<(Remainder<T>, Vec<Place<T>>), &'static str>
    where
        T: 's,
    {
        let frontiers = states.into_iter().map(|state| &state.frontier);
        let (held, divided) = Snapshot::join(frontiers)?.waiting()?;
        Ok((Remainder { divided }, places(held)))
    }

    /// Reports to `visitor` that the divided directories are finished, once no name waits any more.
    pub(crate) fn finish<V: Visitor<Tally = T>>(self, visitor: &V) {
        for node in self.divided {
            if node.settle(&T::default(), None) {
                finish_upwards(node, |node, own, below| visitor.finished(0, Directory { place: node }, own, below));
            }
        }
    }
}

/// A root that could not be examined.
#[derive(Debug)]
pub(crate) struct UnusableRoot {
    /// The root, as specified.
    pub path: std::path::PathBuf,
    /// Why.
    pub error: io::Error,
}

/// A walk that goes on, and the places that were held.
pub(crate) type Resumed<'v, V> = (Walk<'v, V>, Vec<Place<<V as Visitor>::Tally>>);

impl<'v, V: Visitor> Walk<'v, V> {
    /// Examines the roots and reports them to the visitor; [`run`](Self::run) does the rest. Roots that are the same
    /// directory are walked once; a symlink that is a root is followed.
    pub(crate) fn start(mut settings: WalkOptions, visitor: &'v V) -> (Walk<'v, V>, Vec<UnusableRoot>) {
        trim(&mut settings.roots);
        let (mut unusable, mut directories, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let (mut roots, mut canonical) = (HashSet::new(), HashSet::new());
        for path in &settings.roots {
            match stat_at(CWD, path.as_path(), AtFlags::empty()) {
                Ok((stat, _)) if stat.kind == Kind::Directory => {
                    if roots.insert((stat.device, stat.inode)) {
                        canonical.extend(path.canonicalize());
                        directories.push((path, stat));
                    }
                }
                Ok((stat, _)) => others.push((path, stat)),
                Err(errno) => unusable.push(UnusableRoot { path: path.clone(), error: errno.into() }),
            }
        }
        // A root that is not a directory counts once: not again where a walk comes to it, nor if it is named twice.
        let mounts = if others.is_empty() { Vec::new() } else { mounts().unwrap_or_default() };
        others.retain(|(path, _)| {
            let Ok(real) = path.canonicalize() else { return true };
            let root = real.ancestors().skip(1).find(|above| canonical.contains(*above));
            let is_walked = root.is_some_and(|root| comes_to(&settings, &mounts, root, &real));
            !is_walked && canonical.insert(real)
        });
        let mut pending = NameList::default();
        // The stack is last in, first out: the last root pushed is walked first.
        for (path, _) in directories.iter().rev() {
            let path = path.as_os_str().as_bytes();
            if is_opened(settings.division, 0, || path.to_vec()) {
                pending.push(path);
            }
        }
        for (path, stat) in directories.iter().chain(&others) {
            let path = path.as_os_str().as_bytes();
            if settings.division.is_none_or(|division| division.has(path)) {
                visitor.root(path, stat);
            }
        }
        let frontier = Frontier::new(pending, descriptor_budget(settings.threads));
        let mounted_again = MountedAgain::below(&settings);
        (Walk { frontier, visitor, settings, roots, mounted_again, mounts: Mutex::default() }, unusable)
    }

    /// Continues from `state`. The visitor already has everything found until then. Also returns the places that were
    /// held, as they were passed to [`paused`](Self::paused).
    ///
    /// # Errors
    /// A description of the contradiction in `state`.
    pub(crate) fn resume(
        mut settings: WalkOptions,
        visitor: &'v V,
        state: &State<V::Tally>,
    ) -> Result<Resumed<'v, V>, &'static str> {
        trim(&mut settings.roots);
        let identity = |path: &std::path::PathBuf| stat_at(CWD, path.as_path(), AtFlags::empty()).ok();
        let stats = settings.roots.iter().filter_map(identity);
        let roots = stats.map(|(stat, _)| (stat.device, stat.inode)).collect();
        let (frontier, held) = state.frontier.restore(descriptor_budget(settings.threads))?;
        let mounts = Mutex::new(state.mounts.iter().copied().collect());
        let mounted_again = MountedAgain::below(&settings);
        Ok((Walk { frontier, visitor, settings, roots, mounted_again, mounts }, places(held)))
    }

    /// Walks to the end (or until [`stop`](Self::stop), or until the visitor wants no more), calling `on_tick` on this
    /// thread about every `tick`.
    pub(crate) fn run(&self, tick: Duration, mut on_tick: impl FnMut()) {
        std::thread::scope(|scope| {
            for worker in 0..self.settings.threads.max(1) {
                scope.spawn(move || self.work(worker));
            }
            while !self.frontier.wait(tick) {
                on_tick();
            }
        });
    }

    /// Ends the walk soon: every thread finishes its current directory.
    pub(crate) fn stop(&self) {
        self.frontier.stop();
    }

    /// Whether everything was walked.
    pub(crate) fn is_finished(&self) -> bool {
        self.frontier.is_exhausted()
    }

    /// Waits until every thread has finished its current directory, and calls `observe` while all are paused. What the
    /// visitor received until then, together with the state, is the whole walk. `held` returns the places that the
    /// visitor holds.
    pub(crate) fn paused<R>(
        &self,
        held: impl FnOnce() -> Vec<Place<V::Tally>>,
        observe: impl FnOnce(State<V::Tally>) -> R,
    ) -> R {
        let node = |place: Place<V::Tally>| match place {
            Place::Walked(waiting) => Some(waiting.node().clone()),
            Place::Root | Place::Position(_) => None,
        };
        self.frontier.paused(
            || held().into_iter().map(node),
            |frontier| {
                let mut mounts: Vec<Identity> = self.seen_mounts().iter().copied().collect();
                mounts.sort_unstable();
                observe(State { frontier, mounts })
            },
        )
    }

    fn seen_mounts(&self) -> std::sync::MutexGuard<'_, HashSet<Identity>> {
        lock(&self.mounts)
    }

    fn work(&self, worker: usize) {
        let mut buffers = Buffers::new(worker);
        while let Some(work) = self.frontier.next() {
            let busy = Busy(&self.frontier);
            self.list(work, &mut buffers);
            if self.visitor.should_stop() {
                self.stop();
            }
            drop(busy);
        }
    }

    fn list(&self, work: Work<V::Tally>, buffers: &mut Buffers) {
        let opened = self.open(&work);
        let root_device = opened.as_ref().map_or(work.parent.root_device(), |(_, device)| *device);
        let node = Arc::new(Node::child(&work.parent, work.name, root_device));
        // The last child was opened: this closes its parent.
        drop(work.descriptor);
        let division = self.settings.division.filter(|division| division.is_above(node.depth()));
        if division.is_some() {
            self.frontier.divide(&node);
        }
        let is_counted = division.is_none_or(|division| division.has(&node.path()));
        let (mut own, mut pending) = (V::Tally::default(), NameList::default());
        let finished = match opened {
            Ok((fd, _)) => {
                if is_counted {
                    self.list_open(&node, fd.as_fd(), buffers, &mut own, &mut pending);
                } else {
                    self.list_directories(&node, fd.as_fd(), buffers, &mut pending);
                }
                self.frontier.listed(&node, Descriptor::new(fd), pending, &own)
            }
            Err(errno) => {
                if is_counted || is_own(errno) {
                    self.report("open the directory", errno, buffers.worker, || node.path());
                    self.visitor.unreadable(Directory { place: &*node }, None);
                }
                node.settle(&own, None)
            }
        };
        if finished {
            let finish = |node: &Node<V::Tally>, own: &V::Tally, below: &V::Tally| {
                self.visitor.finished(buffers.worker, Directory { place: node }, own, below)
            };
            finish_upwards(node, finish);
        }
    }

    /// Opens a child, relative to its parent; also returns the device of its root.
    fn open(&self, work: &Work<V::Tally>) -> Result<(OwnedFd, u64), Errno> {
        let Work { parent, descriptor, name } = work;
        if parent.is_top() {
            let fd = open_root(name)?;
            let (stat, _) = stat_at(fd.as_fd(), c"", AtFlags::EMPTY_PATH)?;
            return Ok((fd, stat.device));
        }
        let fd = match descriptor {
            Some(descriptor) => open_below(descriptor.fd.as_fd(), name)?,
            None => open_below(reopen(parent)?.as_fd(), name)?,
        };
        Ok((fd, parent.root_device()))
    }

    fn list_open(
        &self,
        node: &Arc<Node<V::Tally>>,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        own: &mut V::Tally,
        pending: &mut NameList,
    ) {
        let Buffers { listing, batch, worker } = buffers;
        let directory = Directory { place: &**node };
        let below_root = if self.settings.exclude.needs_path() { node.path_below_root() } else { Vec::new() };
        let mut parent = Parent { place: Place::Walked(Waiting::on(node.clone())), inode: 0 };
        let mut entries = 0;
        let mut listing = RawDir::new(fd, listing.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.report("list the directory", errno, *worker, || node.path());
                    self.visitor.unreadable(directory, None);
                    break;
                }
            };
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            if self.settings.exclude.matches(&below_root, bytes) {
                self.visitor.left_out(*worker, directory, bytes, Skipped::Excluded);
                continue;
            }
            entries += 1;
            match self.examine(node, fd, name) {
                Ok(Examined::Counted(stat)) => {
                    if stat.kind == Kind::Directory && self.is_opened(node, bytes) {
                        pending.push(bytes);
                    }
                    if stat.kind == Kind::File && stat.link_count > 1 && parent.inode == 0 {
                        // Its own number is needed only where names have to be compared.
                        parent.inode = stat_at(fd, c"", AtFlags::EMPTY_PATH).map_or(0, |(stat, _)| stat.inode);
                    }
                    batch.push(bytes, stat);
                    if batch.len() >= BATCH_ENTRIES {
                        self.visitor.entries(*worker, directory, &parent, batch, own);
                        batch.clear();
                    }
                }
                Ok(Examined::Skipped(what)) => {
                    // The name exists, whatever it leads to; an excluded name counts as absent.
                    if matches!(what, Skipped::MountPoint | Skipped::Root) {
                        self.visitor.name_alone(*worker, bytes);
                    } else {
                        entries -= 1;
                    }
                    self.visitor.left_out(*worker, directory, bytes, what);
                }
                Err(errno) => {
                    if is_gone(errno) {
                        entries -= 1;
                    } else {
                        self.visitor.name_alone(*worker, bytes);
                        self.visitor.unreadable(directory, Some(bytes));
                    }
                    self.report("read the inode of", errno, *worker, || directory.path_of(bytes));
                }
            }
        }
        if !batch.is_empty() {
            self.visitor.entries(*worker, directory, &parent, batch, own);
            batch.clear();
        }
        self.visitor.listed(*worker, directory, entries);
    }

    /// Whether this walk opens a child directory: in the divided part of a tree, another process may.
    fn is_opened(&self, node: &Node<V::Tally>, name: &[u8]) -> bool {
        is_opened(self.settings.division, node.depth() + 1, || join(node.path(), name))
    }

    /// Lists a directory whose entries another process counts, for the directories in it.
    fn list_directories(
        &self,
        node: &Arc<Node<V::Tally>>,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        pending: &mut NameList,
    ) {
        let below_root = if self.settings.exclude.needs_path() { node.path_below_root() } else { Vec::new() };
        let Buffers { listing, worker, .. } = buffers;
        let mut listing = RawDir::new(fd, listing.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.report_own("list the directory", errno, *worker, || node.path());
                    break;
                }
            };
            let (name, bytes) = (entry.file_name(), entry.file_name().to_bytes());
            if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
                || matches!(bytes, b"." | b"..")
                || self.settings.exclude.matches(&below_root, bytes)
                || !self.is_opened(node, bytes)
            {
                continue;
            }
            match self.examine(node, fd, name) {
                Ok(Examined::Counted(stat)) if stat.kind == Kind::Directory => pending.push(bytes),
                Ok(_) => {}
                Err(errno) => self.report_own("read the inode of", errno, *worker, || join(node.path(), bytes)),
            }
        }
    }

    /// Reports a failure in a directory whose entries another process counts, unless that one will report it.
    fn report_own(&self, operation: &'static str, errno: Errno, worker: usize, path: impl Fn() -> Vec<u8>) {
        if is_own(errno) {
            self.report(operation, errno, worker, path);
        }
    }

    fn examine(&self, node: &Node<V::Tally>, directory: BorrowedFd<'_>, name: &CStr) -> Result<Examined, Errno> {
        let (stat, is_mount) = look_at(directory, name)?;
        if stat.kind == Kind::Directory
            && let Some(what) = self.leave_out(node, directory, name, &stat, is_mount)?
        {
            return Ok(Examined::Skipped(what));
        }
        Ok(Examined::Counted(stat))
    }

    /// Why a directory is not walked, if it is not.
    fn leave_out(
        &self,
        node: &Node<V::Tally>,
        parent: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        is_mount: Option<bool>,
    ) -> Result<Option<Skipped>, Errno> {
        if self.settings.skips_as_snapshot(name.to_bytes()) {
            return Ok(Some(Skipped::SnapshotDirectory));
        }
        let identity = (stat.device, stat.inode);
        if self.roots.contains(&identity) {
            return Ok(Some(Skipped::Root));
        }
        let other_device = stat.device != node.root_device();
        if self.settings.one_file_system && other_device {
            return Ok(Some(Skipped::MountPoint));
        }
        if is_mount.unwrap_or(other_device) {
            let is_again = self.mounted_again.has(|| join(node.path(), name.to_bytes()));
            // Another process may come to another place first, and leave this one out.
            let is_seen = || self.settings.division.is_none() && !self.seen_mounts().insert(identity);
            if is_again || is_seen() || is_pseudo_file_system(parent, name)? {
                return Ok(Some(Skipped::MountPoint));
            }
        }
        Ok(None)
    }

    fn report(&self, operation: &'static str, errno: Errno, worker: usize, path: impl Fn() -> Vec<u8>) {
        if is_gone(errno) {
            self.visitor.skipped(worker, Skipped::Vanished, 1);
        } else {
            self.visitor.failed(operation, errno.into(), &path);
        }
    }
}

/// Whether a walk with this division opens a directory at a depth.
fn is_opened(division: Option<Division>, depth: u32, path: impl Fn() -> Vec<u8>) -> bool {
    division.is_none_or(|division| !division.is_divided_at(depth) || division.has(&path()))
}

enum Examined {
    Counted(Stat),
    Skipped(Skipped),
}

/// Whether a listed entry is gone, or is something else by now.
pub(crate) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Whether this process or its machine failed, not the file system: another process will hardly meet the same.
fn is_own(errno: Errno) -> bool {
    const LOCAL: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::STALE];
    const OF_NETWORK: [Errno; 5] =
        [Errno::TIMEDOUT, Errno::NOTCONN, Errno::HOSTDOWN, Errno::HOSTUNREACH, Errno::SHUTDOWN];
    LOCAL.contains(&errno) || OF_NETWORK.contains(&errno)
}

/// Buffers that a thread reuses for every directory.
struct Buffers {
    listing: Vec<u8>,
    batch: Batch,
    worker: usize,
}

impl Buffers {
    fn new(worker: usize) -> Buffers {
        Buffers { listing: Vec::with_capacity(LISTING_BYTES), batch: Batch::default(), worker }
    }
}

/// Signals the frontier that a worker is done, also when it panics; then all workers stop.
struct Busy<'a, T: Tally>(&'a Frontier<T>);

impl<T: Tally> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
        self.0.done();
    }
}

fn open_root(path: &[u8]) -> Result<OwnedFd, Errno> {
    openat(CWD, path, DIRECTORY, Mode::empty())
}

fn open_below(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Reopens a directory whose descriptor was not kept: from its nearest open ancestor, one name at a time.
fn reopen<T: Tally>(node: &Arc<Node<T>>) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    let mut at = node;
    let mut fd = loop {
        let Some(parent) = at.parent().filter(|_| !at.is_root()) else { break open_root(at.name())? };
        names.push(at.name());
        if let Some(descriptor) = parent.descriptor() {
            let name = names.pop().unwrap_or_default();
            break open_below(descriptor.fd.as_fd(), name)?;
        }
        at = parent;
    };
    for name in names.into_iter().rev() {
        fd = open_below(fd.as_fd(), name)?;
    }
    Ok(fd)
}

/// An entry as a walk counts it: its attributes, and whether it is a mount point, if the kernel reports that.
pub(crate) fn look_at(directory: BorrowedFd<'_>, name: &CStr) -> Result<(Stat, Option<bool>), Errno> {
    let (mut stat, is_mount) = stat_at(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if let Kind::Symlink { absolute } = &mut stat.kind {
        let mut first = [MaybeUninit::<u8>::uninit(); 1];
        let (target, _) = readlinkat_raw(directory, name, &mut first)?;
        *absolute = target.first() == Some(&b'/');
    }
    Ok((stat, is_mount))
}

/// The attributes of an open inode; of a symbolic link without a look at its target.
pub(crate) fn stat_open(inode: BorrowedFd<'_>) -> Result<Stat, Errno> {
    stat_at(inode, c"", AtFlags::EMPTY_PATH).map(|(stat, _)| stat)
}

/// The attributes of what is at a path; of a symbolic link without a look at its target.
pub(crate) fn stat_path(directory: BorrowedFd<'_>, path: &CStr) -> Result<Stat, Errno> {
    stat_at(directory, path, AtFlags::SYMLINK_NOFOLLOW).map(|(stat, _)| stat)
}

/// Attributes of an entry's inode, and whether it is a mount point, if the kernel reports that (Linux 5.8).
pub(crate) fn stat_at<P: rustix::path::Arg>(
    directory: BorrowedFd<'_>,
    name: P,
    flags: AtFlags,
) -> Result<(Stat, Option<bool>), Errno> {
    let inode = statx(directory, name, LAZILY | flags, WANTED)?;
    let tells = inode.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    let is_mount = tells.then(|| inode.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    Ok((Stat::from(&inode), is_mount))
}

impl From<&Statx> for Stat {
    fn from(statx: &Statx) -> Stat {
        let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanoseconds: t.tv_nsec };
        Stat {
            // An unknown type is counted like a file.
            kind: Kind::of_mode(statx.stx_mode).unwrap_or(Kind::File),
            size_bytes: statx.stx_size,
            allocated_bytes: statx.stx_blocks.saturating_mul(512),
            link_count: statx.stx_nlink,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            mode: statx.stx_mode,
            device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
            mtime: time(statx.stx_mtime),
            ctime: time(statx.stx_ctime),
            atime: time(statx.stx_atime),
        }
    }
}

/// Number of descriptors that may be kept open for remaining children. First raises the soft limit of the process to
/// the hard limit.
fn descriptor_budget(threads: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current }.unwrap_or(1 << 20).min(1 << 20);
    limit.saturating_sub(SPARE_DESCRIPTORS + 2 * threads as u64) as usize
}

/// A slash behind a root is part of no path: surveys with and without one list the same directories.
fn trim(roots: &mut [PathBuf]) {
    roots.iter_mut().for_each(|root| *root = Path::new(OsStr::from_bytes(display_root(root))).to_owned());
}

/// The displayed form of a root: as specified, without trailing slashes.
pub(crate) fn display_root(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
    bytes.get(..end).unwrap_or(bytes)
}
