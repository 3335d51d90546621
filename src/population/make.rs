//! Making a tree: directories and files of a [`Design`] below an empty directory, with several threads.
//!
//! A worker takes a directory, makes its entries (up to `PART`; the next worker makes the rest), and pushes its child
//! directories onto a common stack. Everything is made relative to the descriptor of its directory, never by a path, so
//! no path is ever too long. A descriptor is kept while its directory has children to come, within a budget; beyond it
//! a directory is opened again from its nearest open ancestor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, futimens, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::content::{Buffer, Content};
use super::design::{Design, FileTimes};
use super::names::Used;
use super::room::Room;
use crate::error::{Error, ErrorKind, Result};
use crate::locks::{lock, unpoisoned};
use crate::progress::Progress;
use crate::units::format_size;

/// Entries that one worker makes per task.
const PART: u64 = 4096;
/// How often free space and a request to stop are looked at.
const TICK: Duration = Duration::from_millis(100);
/// Descriptors reserved outside the budget.
const SPARE_DESCRIPTORS: u64 = 64;

/// How to make a design.
#[derive(Debug, Clone, Copy)]
pub struct MakeOptions {
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Contents of the files.
    pub content: Content,
    /// What ages are relative to where the design does not specify it.
    pub now: i64,
    /// Block size for holes.
    pub block_bytes: u64,
    /// Bytes that must stay available on the file system.
    pub kept_bytes: u64,
    /// Whether to wait until everything is on the device.
    pub sync: bool,
}

/// What was made in the end.
#[derive(Debug)]
pub struct Made {
    /// Files.
    pub files: u64,
    /// Directories, with the root.
    pub directories: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Time after that until everything was on the device.
    pub sync: Duration,
    /// The error that ended it early; `None` as well if it was interrupted.
    pub failed: Option<Error>,
    /// Whether everything was made.
    pub complete: bool,
}

/// An open directory, while something in it must still be opened.
struct OpenDirectory<'m> {
    /// `None` where the budget was spent: opened again on demand.
    descriptor: Option<OwnedFd>,
    parent: Option<Arc<OpenDirectory<'m>>>,
    name: Box<[u8]>,
    kept: &'m AtomicUsize,
}

impl Drop for OpenDirectory<'_> {
    fn drop(&mut self) {
        if self.descriptor.is_some() {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        // Drops the ancestors that are released with it in a loop: recursion could be as deep as the tree.
        let mut next = self.parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.parent.take();
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

impl OpenDirectory<'_> {
    /// Opens a separate descriptor of a directory that has none.
    fn reopen(&self) -> std::result::Result<OwnedFd, Errno> {
        let mut way = vec![&*self.name];
        let mut place = self.parent.as_deref();
        while let Some(above) = place {
            if let Some(descriptor) = &above.descriptor {
                let mut at = open_directory(descriptor.as_fd(), way.pop().unwrap_or_default())?;
                while let Some(name) = way.pop() {
                    at = open_directory(at.as_fd(), name)?;
                }
                return Ok(at);
            }
            way.push(&above.name);
            place = above.parent.as_deref();
        }
        Err(Errno::BADF)
    }
}

/// The state in which a worker finds a directory.
enum At<'m> {
    /// Made, but not opened yet.
    Child { parent: Arc<OpenDirectory<'m>>, name: Box<[u8]> },
    /// Begun.
    Begun(Arc<OpenDirectory<'m>>),
}

/// A part of a directory that is to be made.
struct Task<'m> {
    directory: u64,
    /// Entries already made.
    from: u64,
    /// Names already used; `None` for none.
    used: Option<Used>,
    at: At<'m>,
}

/// Waiting parts, and how many are in progress.
#[derive(Default)]
struct Waiting<'m> {
    tasks: Vec<Task<'m>>,
    working: usize,
}

struct Maker<'m> {
    design: &'m Design,
    settings: MakeOptions,
    progress: &'m Progress,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    waiting: Mutex<Waiting<'m>>,
    changed: Condvar,
    kept: &'m AtomicUsize,
    most_kept: usize,
    path: &'m Path,
}

/// A worker with a task. The others wait for what it may leave, so it must announce its end, even when it panics.
struct Working<'w, 'm>(&'w Maker<'m>);

impl Drop for Working<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(None);
        }
        let mut waiting = lock(&self.0.waiting);
        waiting.working -= 1;
        if waiting.working == 0 && waiting.tasks.is_empty() {
            self.0.changed.notify_all();
        }
    }
}

/// Makes the tree of `design` in the empty directory `root`, located at `path`. Counts files, directories
/// without the root, and the sizes of the files in `progress`, from 0. Ends early if `progress` is asked to stop or too
/// little space is left, and what was made so far remains. Raises the limit on open files of the process.
pub fn make(root: OwnedFd, path: &Path, design: &Design, settings: MakeOptions, progress: &Progress) -> Made {
    progress.restart();
    let started = Instant::now();
    let kept = AtomicUsize::new(1);
    let threads = settings.threads.max(1);
    let root_again = root.try_clone();
    let place = Arc::new(OpenDirectory { descriptor: Some(root), parent: None, name: Box::default(), kept: &kept });
    let maker = Maker {
        design,
        settings,
        progress,
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
        waiting: Mutex::new(Waiting {
            tasks: vec![Task { directory: 0, from: 0, used: None, at: At::Begun(place) }],
            working: 0,
        }),
        changed: Condvar::new(),
        kept: &kept,
        most_kept: descriptor_budget(threads),
        path,
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| maker.work())).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            // Polled more often at first, so that a short run need not wait for a tick.
            std::thread::park_timeout(TICK.min(started.elapsed() / 4 + Duration::from_millis(1)));
            if progress.should_stop() {
                maker.end(None);
            }
            if let Ok(directory) = &root_again {
                maker.end_if_space_is_low(directory.as_fd());
            }
        }
    });
    let elapsed = started.elapsed();
    let mut failed = lock(&maker.failed).take();
    // Errors of the device show here at the latest.
    if settings.sync
        && let Err(error) = root_again.and_then(|directory| Ok(rustix::fs::syncfs(directory)?))
    {
        failed.get_or_insert_with(|| Error::io("write back", path, error));
    }
    let done = progress.snapshot();
    let (files, directories) = (done.objects, done.directories + 1);
    let complete = failed.is_none() && (files, directories) == (design.files(), design.tree.directories());
    Made {
        files,
        directories,
        size_bytes: done.bytes as u64,
        elapsed,
        sync: started.elapsed() - elapsed,
        failed,
        complete,
    }
}

/// How many directories may be kept open. First raises the soft limit of the process to the hard limit.
pub(super) fn descriptor_budget(threads: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current }.unwrap_or(1 << 20).min(1 << 20);
    limit.saturating_sub(SPARE_DESCRIPTORS + 4 * threads as u64) as usize
}

impl<'m> Maker<'m> {
    /// Makes every worker end at its next file.
    fn end(&self, error: Option<Error>) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(error) = error {
            lock(&self.failed).get_or_insert(error);
        }
        self.changed.notify_all();
    }

    fn end_if_space_is_low(&self, directory: BorrowedFd<'_>) {
        let kept = self.settings.kept_bytes;
        let Ok(room) = Room::of(directory) else { return };
        if kept > 0 && room.available_bytes < kept {
            let left = format_size(room.available_bytes.into());
            let cause = format!("only {left} are still available, but {} must stay free", format_size(kept.into()));
            let error = Error::new(ErrorKind::NoSpace, "continue in", cause).at(self.path);
            self.end(Some(error.advise("free some space, or lower --keep-free")));
        }
    }

    fn work(&self) {
        let mut worker = Worker::default();
        loop {
            let task = {
                let mut waiting = lock(&self.waiting);
                loop {
                    if self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Some(task) = waiting.tasks.pop() {
                        waiting.working += 1;
                        break task;
                    }
                    if waiting.working == 0 {
                        return;
                    }
                    waiting = unpoisoned(self.changed.wait_timeout(waiting, TICK)).0;
                }
            };
            let _working = Working(self);
            let made = self.make_part(task, &mut worker);
            if let Err(error) = made {
                self.end(Some(error));
            }
        }
    }

    fn leave(&self, tasks: Vec<Task<'m>>) {
        let many = tasks.len() > 1;
        lock(&self.waiting).tasks.extend(tasks);
        if many {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    /// Opens the directory of a task. Its remaining children need its place; the descriptor is stored there if the
    /// budget allows, otherwise returned beside it.
    fn open(&self, at: At<'m>, keep: bool) -> std::result::Result<(Arc<OpenDirectory<'m>>, Option<OwnedFd>), Errno> {
        match at {
            At::Begun(place) => {
                let beside = if place.descriptor.is_some() { None } else { Some(place.reopen()?) };
                Ok((place, beside))
            }
            At::Child { parent, name } => {
                let opened = match &parent.descriptor {
                    Some(descriptor) => open_directory(descriptor.as_fd(), &name)?,
                    None => open_directory(parent.reopen()?.as_fd(), &name)?,
                };
                let has_room = keep && self.kept.fetch_add(1, Ordering::Relaxed) < self.most_kept;
                if keep && !has_room {
                    self.kept.fetch_sub(1, Ordering::Relaxed);
                }
                let (descriptor, beside) = if has_room { (Some(opened), None) } else { (None, Some(opened)) };
                Ok((Arc::new(OpenDirectory { descriptor, parent: Some(parent), name, kept: self.kept }), beside))
            }
        }
    }

    /// Makes the next entries of a directory, and leaves the rest and the child directories to free workers.
    fn make_part(&self, task: Task<'m>, worker: &mut Worker) -> Result<()> {
        let Task { directory, from, used, at } = task;
        let tree = &self.design.tree;
        let (files, children) = (tree.files_of(directory), tree.children_of(directory));
        let child_count = children.end - children.start;
        let entries = child_count + files.end - files.start;
        let until = entries.min(from + PART);
        let mut used = used.unwrap_or_default();
        worker.spell(self.design, tree.entries_before(directory), from..until, &mut used);
        let (place, beside) = self
            .open(at, child_count > 0 || until < entries)
            .map_err(|errno| self.failure("open a directory in", errno))?;
        if until < entries {
            self.leave(vec![Task { directory, from: until, used: Some(used), at: At::Begun(place.clone()) }]);
        }
        let Some(descriptor) = beside.as_ref().or(place.descriptor.as_ref()).map(AsFd::as_fd) else {
            return Err(self.failure("open a directory in", Errno::BADF));
        };
        let mut below = Vec::new();
        for entry in from..until {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let at = (entry - from) as usize;
            if entry < child_count {
                let (child, name) = (children.start + entry, worker.name(at));
                mkdirat(descriptor, name, Mode::from_raw_mode(0o777))
                    .map_err(|errno| self.failure("create a directory in", errno))?;
                self.progress.add(0, 1, 0);
                if !tree.files_of(child).is_empty() || !tree.children_of(child).is_empty() {
                    let at = At::Child { parent: place.clone(), name: name.into() };
                    below.push(Task { directory: child, from: 0, used: None, at });
                }
            } else {
                let file = files.start + entry - child_count;
                self.make_file(file, descriptor, at, worker)
                    .map_err(|errno| self.failure("create a file in", errno))?;
            }
        }
        // The first child is pushed last, so that it is taken first.
        below.reverse();
        if !below.is_empty() {
            self.leave(below);
        }
        Ok(())
    }

    fn make_file(
        &self,
        file: u64,
        directory: BorrowedFd<'_>,
        at: usize,
        worker: &mut Worker,
    ) -> std::result::Result<(), Errno> {
        let size = self.design.size(file);
        let contents = FileToWrite {
            size,
            seed: self.design.content_seed(file),
            times: self.design.times(file, self.settings.now),
        };
        let Worker { names, ends, buffer } = worker;
        let name = &names[begin(ends, at)..ends[at]];
        match write_file(directory, name, &contents, &self.settings, &self.stop, buffer) {
            // Stopped: it was not made, and is not counted.
            Err(Errno::CANCELED) if self.stop.load(Ordering::Relaxed) => return Ok(()),
            made => made?,
        }
        self.progress.add(1, 0, size.into());
        Ok(())
    }

    fn failure(&self, operation: &'static str, errno: Errno) -> Error {
        Error::io(operation, self.path, io::Error::from(errno))
    }
}

/// A file to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileToWrite {
    pub(super) size: u64,
    pub(super) seed: u64,
    pub(super) times: FileTimes,
}

/// Makes a file in a directory, complete or not at all. Ends with `ECANCELED` once `stop` is set.
pub(super) fn write_file(
    directory: BorrowedFd<'_>,
    name: &[u8],
    contents: &FileToWrite,
    settings: &MakeOptions,
    stop: &AtomicBool,
    buffer: &mut Buffer,
) -> std::result::Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let descriptor = openat(directory, name, flags, Mode::from_raw_mode(0o666))?;
    let FileToWrite { size, seed, .. } = *contents;
    let filled = settings.content.write_to(descriptor.as_fd(), size, seed, settings.block_bytes, stop, buffer);
    if filled.is_err() {
        // A partial file is removed.
        let _ = unlinkat(directory, name, AtFlags::empty());
        return filled;
    }
    let FileTimes { mtime, atime } = contents.times;
    if mtime.is_some() || atime.is_some() {
        let time = |seconds: Option<i64>| match seconds {
            Some(seconds) => Timespec { tv_sec: seconds, tv_nsec: 0 },
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        futimens(&descriptor, &Timestamps { last_access: time(atime), last_modification: time(mtime) })?;
    }
    Ok(())
}

/// What a worker keeps between directories.
#[derive(Default)]
struct Worker {
    names: Vec<u8>,
    ends: Vec<usize>,
    buffer: Buffer,
}

fn begin(ends: &[usize], at: usize) -> usize {
    if at == 0 { 0 } else { ends[at - 1] }
}

impl Worker {
    /// Spells the names of entries of a directory whose first entry has number `before` in the tree.
    fn spell(&mut self, design: &Design, before: u64, entries: std::ops::Range<u64>, used: &mut Used) {
        self.names.clear();
        self.ends.clear();
        for entry in entries {
            design.names.spell(design.name_length(before + entry), used, &mut self.names);
            self.ends.push(self.names.len());
        }
    }

    fn name(&self, at: usize) -> &[u8] {
        &self.names[begin(&self.ends, at)..self.ends[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Recipe, Shape};
    use super::*;
    use crate::distribution::Distribution;
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    fn recipe() -> Recipe {
        let of = |values: &[(u64, u64)]| {
            let mut distribution = Distribution::default();
            values.iter().for_each(|&(value, count)| distribution.add(value, count));
            distribution
        };
        Recipe {
            files: 992,
            sizes: of(&[(0, 50), (100, 400), (3000, 300), (5000, 200), (70_000, 40), (2_000_000, 2)]),
            names: Some(of(&[(1, 100), (5, 300), (12, 500), (40, 92), (200, 5)])),
            shape: Shape::Measured {
                entries: of(&[(0, 10), (1, 20), (5, 50), (40, 20), (90, 1)]),
                depths: Some(of(&[(0, 1), (1, 10), (2, 40), (3, 50)])),
            },
            mtime_ages: Some(of(&[(0, 10), (100, 500), (3000, 50)])),
            atime_ages: Some(of(&[(0, 100), (1, 300)])),
        }
    }

    fn made(design: &Design, threads: usize, content: Content, root: &Path) -> Made {
        let settings = MakeOptions { threads, content, now: 0, block_bytes: 4096, kept_bytes: 0, sync: false };
        let directory = OwnedFd::from(File::open(root).unwrap());
        make(directory, root, design, settings, &Progress::default())
    }

    /// Every path with its observable properties.
    fn seen(root: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
        let mut seen = BTreeMap::new();
        let mut left = vec![root.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let (path, found) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
                let below = path.strip_prefix(root).unwrap().to_owned();
                if found.is_dir() {
                    seen.insert(below, (0, 0, 0, Vec::new()));
                    left.push(path);
                } else {
                    let (mtime, atime) = (found.mtime(), found.atime());
                    seen.insert(below, (found.len(), mtime, atime, fs::read(path).unwrap()));
                }
            }
        }
        seen
    }

    #[test]
    fn threads_do_not_change_the_tree() {
        let design = Design::new(&recipe(), 2000, 1.0, 5, Some(1_700_000_000), 255);
        for content in [Content::Random, Content::Compressible(3.0), Content::Sparse(0.5)] {
            let trees: Vec<_> = [1, 4]
                .into_iter()
                .map(|threads| {
                    let root = tempfile::tempdir().unwrap();
                    let made = made(&design, threads, content, root.path());
                    assert!(made.complete && made.failed.is_none());
                    assert_eq!((made.files, made.directories), (2000, design.tree.directories()));
                    assert_eq!(u128::from(made.size_bytes), design.sizes.total());
                    seen(root.path())
                })
                .collect();
            assert_eq!(trees[0].len() as u64, 2000 + design.tree.directories() - 1);
            assert!(trees[0] == trees[1]);
            let sizes: u64 = trees[0].values().map(|file| file.0).sum();
            assert_eq!(u128::from(sizes), design.sizes.total());
        }
    }

    #[test]
    fn a_directory_of_many_parts_is_made_whole() {
        let recipe =
            Recipe { shape: Shape::Even { directory_files: 50_000, depths: None }, ..Recipe::of_sizes(recipe().sizes) };
        let design = Design::new(&recipe, 15_000, 1.0, 5, None, 255);
        assert_eq!(design.tree.directories(), 1);
        let root = tempfile::tempdir().unwrap();
        assert!(made(&design, 4, Content::None, root.path()).complete);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 15_000);
    }

    #[test]
    fn an_interruption_leaves_what_was_made() {
        let design = Design::new(&recipe(), 2000, 1.0, 5, None, 255);
        let root = tempfile::tempdir().unwrap();
        let settings =
            MakeOptions { threads: 2, content: Content::None, now: 0, block_bytes: 4096, kept_bytes: 0, sync: false };
        let directory = OwnedFd::from(File::open(root.path()).unwrap());
        let progress = Progress::default();
        progress.stop();
        let made = make(directory, root.path(), &design, settings, &progress);
        assert!(made.failed.is_none());
        let found = seen(root.path()).values().filter(|file| !file.3.is_empty() || file.1 != 0).count() as u64;
        assert!(made.complete == (made.files == 2000) && found <= 2000);
    }

    #[test]
    fn a_worker_that_panics_does_not_leave_the_others_waiting() {
        let mut design = Design::new(&Recipe::of_sizes(recipe().sizes), 2000, 1.0, 5, None, 255);
        // More files than there are sizes.
        design.tree = Design::new(&recipe(), 4000, 1.0, 5, None, 255).tree;
        let root = tempfile::tempdir().unwrap();
        let design = std::panic::AssertUnwindSafe(&design);
        assert!(std::panic::catch_unwind(|| made(&design, 4, Content::None, root.path())).is_err());
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let design = Design::new(&recipe(), 2000, 1.0, 5, None, 255);
        let root = tempfile::tempdir().unwrap();
        assert!(made(&design, 1, Content::None, root.path()).complete);
        let again = made(&design, 1, Content::None, root.path());
        let error = again.failed.unwrap();
        assert!(!again.complete && error.to_string().contains("File exists"), "{error}");
    }

    #[test]
    fn directories_beyond_the_budget_are_opened_again() {
        let root = tempfile::tempdir().unwrap();
        let kept = AtomicUsize::new(1);
        let place = |descriptor, parent, name: &[u8]| {
            Arc::new(OpenDirectory { descriptor, parent, name: name.into(), kept: &kept })
        };
        let mut top = place(Some(OwnedFd::from(File::open(root.path()).unwrap())), None, b"");
        let mut path = root.path().to_owned();
        for level in 0..2000 {
            let name = format!("d{level}");
            if level < 100 {
                path.push(&name);
                fs::create_dir(&path).unwrap();
            }
            top = place(None, Some(top), name.as_bytes());
            if level == 99 {
                assert!(top.reopen().is_ok());
            }
        }
        assert_eq!(top.reopen().unwrap_err(), Errno::NOENT);
        // Two thousand ancestors are dropped together.
        drop(top);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
    }
}
