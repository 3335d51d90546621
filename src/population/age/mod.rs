//! Aging: files are created and deleted at a fill level until the file system looks as it does after years of use.
//!
//! After Geriatrix (Kadekodi, Nagarajan and Ganger, USENIX ATC 2018): first files are created up to the fill level,
//! then every operation creates a file if the next one fits below the level, and otherwise deletes one. A profile of
//! relative ages selects the victim: any file of the interval with the largest surplus. The clock ticks once per
//! creation; an age is a fraction of the time since the beginning. After as many creations as the design has files, the
//! sizes are used again in another order.
//!
//! One thread does everything, in one order: the sequence is a function of design, level and number of operations. A
//! file that is deleted before it is written back would leave no trace on the device, so everything is written back at
//! intervals.

mod ages;
mod living;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, mkdirat, openat, syncfs, unlinkat};
use rustix::io::Errno;

use super::content::{Buffer, Content};
use super::design::{Design, FileTimes};
use super::extents::{Counted, Fragmentation, SAMPLE, free_space};
use super::make::{FileToWrite, MakeOptions, descriptor_budget, open_directory, write_file};
use super::names::Used;
use super::room::{Room, Tariff};
use super::streams::{Stream, draw, sequence, start};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::random::{Random, below};
use crate::units::format_count;
pub use ages::Ages;
use living::Living;

/// Operations, and bytes, after which everything is written back.
const SYNC_OPERATIONS: u64 = 1000;
const SYNC_BYTES: u64 = 128 << 20;
/// Operations after which progress is reported, and free space and a request to stop are looked at.
const LOOK_OPERATIONS: u64 = 64;

/// How a tree is to age.
#[derive(Debug, Clone, PartialEq)]
pub struct Aging {
    /// Creations and deletions after the level was reached.
    pub operations: u64,
    /// Largest space for all files together.
    pub level_bytes: u64,
    /// Relative ages; without any, all files are equally likely to be deleted.
    pub ages: Ages,
}

/// Result of aging.
#[derive(Debug)]
pub struct Aged {
    /// Operations since the level was reached.
    pub operations: u64,
    /// Files created, in all.
    pub created: u64,
    /// Their bytes.
    pub created_bytes: u64,
    /// Files deleted.
    pub deleted: u64,
    /// Files that would not fit below the level even alone, and were skipped.
    pub left_out: u64,
    /// Files that exist.
    pub files: u64,
    /// Directories, with the root.
    pub directories: u64,
    /// Their sizes.
    pub size_bytes: u64,
    /// Time until the level was reached.
    pub filled: Duration,
    /// Time of the operations after that, writing back included.
    pub elapsed: Duration,
    /// Distance of their relative ages from the profile; `None` where there is none.
    pub age_distance: Option<f64>,
    /// Fragmentation when the level was reached, and at the end.
    pub first: Option<Fragmentation>,
    /// At the end.
    pub last: Option<Fragmentation>,
    /// What could not be determined.
    pub notes: Vec<String>,
    /// What ended it early.
    pub failed: Option<Error>,
    /// Whether all operations were done.
    pub complete: bool,
}

/// Result of creating a file.
enum Created {
    Done,
    /// No space: in the file system, or below the level.
    Full,
    Interrupted,
}

/// The state of a file system that ages.
struct Life<'a> {
    design: &'a Design,
    aging: &'a Aging,
    settings: MakeOptions,
    tariff: Tariff,
    path: &'a Path,
    progress: &'a Progress,
    directories: Vec<OwnedFd>,
    living: Living,
    created: u64,
    deleted: u64,
    left_out: u64,
    size_bytes: u64,
    created_bytes: u64,
    allocated_bytes: u64,
    places_start: u64,
    names_start: u64,
    random: Random,
    buffer: Buffer,
    unsynced_operations: u64,
    unsynced_bytes: u64,
    notes: Vec<String>,
}

/// Fills the empty directory `root`, located at `path`, up to the level, and then performs the operations. In
/// `progress` are the files that exist, their bytes, and the operations since the level was reached; ends early if that
/// is asked to stop, and the files created so far remain.
pub fn age(
    root: OwnedFd,
    path: &Path,
    design: &Design,
    aging: &Aging,
    settings: MakeOptions,
    progress: &Progress,
) -> Aged {
    progress.restart();
    let started = Instant::now();
    let seed = |stream| start(design.seed, stream);
    let tariff = Room::of(&root).map(|room| room.tariff(written_fraction(settings.content)));
    let mut aged = Aged {
        operations: 0,
        created: 0,
        created_bytes: 0,
        deleted: 0,
        left_out: 0,
        files: 0,
        directories: 1,
        size_bytes: 0,
        filled: Duration::ZERO,
        elapsed: Duration::ZERO,
        age_distance: None,
        first: None,
        last: None,
        notes: Vec::new(),
        failed: None,
        complete: false,
    };
    let tariff = match tariff {
        Ok(tariff) => tariff,
        Err(errno) => return Aged { failed: Some(Error::io("age", path, errno.into())), ..aged },
    };
    let mut life = Life {
        design,
        aging,
        settings,
        tariff,
        path,
        progress,
        directories: vec![root],
        living: Living::default(),
        created: 0,
        created_bytes: 0,
        deleted: 0,
        left_out: 0,
        size_bytes: 0,
        allocated_bytes: 0,
        places_start: seed(Stream::AgingPlaces),
        names_start: seed(Stream::AgingNames),
        random: sequence(design.seed, Stream::Aging),
        buffer: Buffer::default(),
        unsynced_operations: 0,
        unsynced_bytes: 0,
        notes: Vec::new(),
    };
    let mut tick = |life: &Life<'_>, operations: u64| {
        progress.set(life.living.count(), life.allocated_bytes);
        progress.set_operations(operations);
        !progress.should_stop()
    };
    let lived = life.live(&mut aged, &mut tick, started);
    // What ended early has not noted its time.
    if aged.filled.is_zero() {
        aged.filled = started.elapsed();
    } else if aged.elapsed.is_zero() {
        aged.elapsed = started.elapsed() - aged.filled;
    }
    aged.created = life.created;
    aged.created_bytes = life.created_bytes;
    aged.deleted = life.deleted;
    aged.left_out = life.left_out;
    aged.files = life.living.count();
    aged.directories = life.directories.len() as u64;
    aged.size_bytes = life.size_bytes;
    aged.age_distance = (!aging.ages.is_empty()).then(|| life.age_distance());
    aged.notes = life.notes;
    match lived {
        Ok(complete) => aged.complete = complete,
        Err(error) => aged.failed = Some(error),
    }
    aged
}

/// Reports progress; returns false to end early.
type Tick<'t> = dyn FnMut(&Life<'_>, u64) -> bool + 't;

impl Life<'_> {
    /// Runs everything; returns false if it was interrupted.
    fn live(&mut self, aged: &mut Aged, tick: &mut Tick<'_>, started: Instant) -> Result<bool> {
        let smallest = self.tariff.bytes(self.design.sizes.value(0));
        if smallest > self.aging.level_bytes {
            let cause = "the smallest file does not fit below the fill level";
            return Err(Error::new(ErrorKind::Usage, "age", cause).at(self.path).advise("raise --fill or --limit"));
        }
        self.make_directories()?;
        let mut tried = 0u64;
        while self.next_fits() {
            if tried.is_multiple_of(LOOK_OPERATIONS) {
                if !tick(self, 0) {
                    return Ok(false);
                }
                if self.is_tight() {
                    self.notes
                        .push("The level was not reached: the rest of the file system must stay free.".to_owned());
                    break;
                }
            }
            tried += 1;
            match self.create()? {
                Created::Done => {}
                Created::Interrupted => return Ok(false),
                Created::Full => {
                    self.notes.push("The level was not reached: the file system became full first.".to_owned());
                    break;
                }
            }
        }
        self.sync()?;
        aged.filled = started.elapsed();
        aged.first = self.fragmentation();
        let begun = Instant::now();
        while aged.operations < self.aging.operations {
            let looks = aged.operations.is_multiple_of(LOOK_OPERATIONS);
            if self.progress.should_stop() || (looks && !tick(self, aged.operations)) {
                aged.elapsed = begun.elapsed();
                return Ok(false);
            }
            let tight = looks && self.is_tight();
            let created = if tight || !self.next_fits() { Created::Full } else { self.create()? };
            match created {
                Created::Done => {}
                Created::Interrupted => continue,
                Created::Full if self.living.count() == 0 => {
                    let cause = "there is not enough space for a single file";
                    return Err(Error::new(ErrorKind::NoSpace, "age", cause).at(self.path));
                }
                Created::Full => self.delete()?,
            }
            aged.operations += 1;
        }
        self.sync()?;
        aged.elapsed = begun.elapsed();
        aged.last = self.fragmentation();
        tick(self, aged.operations);
        Ok(true)
    }

    fn failure(&self, operation: &'static str, errno: Errno) -> Error {
        Error::io(operation, self.path, io::Error::from(errno))
    }

    /// All directories, each kept open.
    fn make_directories(&mut self) -> Result<()> {
        let tree = &self.design.tree;
        let most = descriptor_budget(1);
        if tree.directories() > most as u64 {
            let (directories, most) = (format_count(tree.directories().into()), format_count(most as u128));
            let cause = format!("it keeps {directories} directories open, but at most {most} are allowed");
            return Err(Error::new(ErrorKind::Usage, "age", cause).at(self.path).advise(
                "raise the limit on open files (ulimit -n), or put more files in each with --directory-files",
            ));
        }
        let mut name = Vec::new();
        for directory in 0..tree.directories() {
            let mut used = Used::default();
            let first = tree.entries_before(directory);
            for (child, entry) in tree.children_of(directory).zip(first..) {
                debug_assert_eq!(child, self.directories.len() as u64);
                name.clear();
                self.design.names.spell(self.design.name_length(entry), &mut used, &mut name);
                let parent = self.directories[directory as usize].as_fd();
                let made = mkdirat(parent, name.as_slice(), Mode::from_raw_mode(0o777))
                    .and_then(|()| open_directory(parent, &name));
                let made = made.map_err(|errno| self.failure("create a directory in", errno))?;
                self.directories.push(made);
            }
        }
        Ok(())
    }

    /// The number of the next creation.
    fn next_creation(&self) -> u64 {
        self.living.creations()
    }

    fn size_of(&self, creation: u64) -> u64 {
        let files = self.design.files();
        self.design.size_in_round(creation / files, creation % files)
    }

    fn directory_of(&self, creation: u64) -> BorrowedFd<'_> {
        let file = below(draw(self.places_start, creation), self.design.files());
        self.directories[self.design.tree.directory_of(file) as usize].as_fd()
    }

    /// Letters, an underscore, the number of the creation: unique, and never the name of a directory.
    fn name_of(&self, creation: u64) -> Vec<u8> {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let mut number = Vec::with_capacity(16);
        let mut left = creation;
        while left > 0 || number.is_empty() {
            number.push(DIGITS[(left % 36) as usize]);
            left /= 36;
        }
        number.push(b'_');
        let entries = self.design.files() + self.design.tree.directories() - 1;
        let wanted = self.design.name_length(creation % entries).min(self.design.names.longest() as u64) as usize;
        let filling = draw(self.names_start, creation);
        let letters = (number.len()..wanted).map(|at| DIGITS[below(draw(filling, at as u64), 36) as usize]);
        let mut name: Vec<u8> = letters.collect();
        name.extend(number.iter().rev());
        name
    }

    /// Whether the next file fits below the level; files that would not fit even alone are skipped first.
    fn next_fits(&mut self) -> bool {
        loop {
            let taken = self.tariff.bytes(self.size_of(self.next_creation()));
            if taken <= self.aging.level_bytes {
                return self.allocated_bytes + taken <= self.aging.level_bytes;
            }
            self.living.push(false);
            self.left_out += 1;
        }
    }

    /// Whether less space is available than must stay free.
    fn is_tight(&self) -> bool {
        let room = Room::of(&self.directories[0]);
        self.settings.kept_bytes > 0 && room.is_ok_and(|room| room.available_bytes < self.settings.kept_bytes)
    }

    /// Creates the next file, of which [`next_fits`](Self::next_fits) said that it fits. A file that cannot be
    /// completed is not counted.
    fn create(&mut self) -> Result<Created> {
        let creation = self.next_creation();
        let size = self.size_of(creation);
        let name = self.name_of(creation);
        let contents = FileToWrite { size, seed: self.design.content_seed(creation), times: FileTimes::default() };
        let mut buffer = std::mem::take(&mut self.buffer);
        let directory = self.directory_of(creation);
        let made = match self.settings.content {
            Content::None => reserve(directory, &name, size, self.progress.stop_flag()),
            _ => write_file(directory, &name, &contents, &self.settings, self.progress.stop_flag(), &mut buffer),
        };
        self.buffer = buffer;
        match made {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(Created::Full),
            Err(Errno::CANCELED) => return Ok(Created::Interrupted),
            Err(errno) => return Err(self.failure("create a file in", errno)),
        }
        self.living.push(true);
        self.created += 1;
        self.size_bytes += size;
        self.created_bytes += size;
        self.allocated_bytes += self.tariff.bytes(size);
        self.sync_if_due(size)?;
        Ok(Created::Done)
    }

    /// Deletes a file; at least one must exist.
    fn delete(&mut self) -> Result<()> {
        let creation = self.victim();
        let name = self.name_of(creation);
        unlinkat(self.directory_of(creation), name.as_slice(), AtFlags::empty())
            .map_err(|errno| self.failure("delete a file in", errno))?;
        let size = self.size_of(creation);
        self.living.remove(creation);
        self.deleted += 1;
        self.size_bytes -= size;
        self.allocated_bytes -= self.tariff.bytes(size);
        self.sync_if_due(0)
    }

    /// Counts an operation, and writes back at intervals.
    fn sync_if_due(&mut self, bytes: u64) -> Result<()> {
        self.unsynced_operations += 1;
        self.unsynced_bytes += bytes;
        let is_due = self.unsynced_operations >= SYNC_OPERATIONS || self.unsynced_bytes >= SYNC_BYTES;
        if is_due { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<()> {
        (self.unsynced_operations, self.unsynced_bytes) = (0, 0);
        syncfs(&self.directories[0]).map_err(|errno| self.failure("write back", errno))
    }

    /// The first creation in an interval that ends at this fraction of the time.
    fn since(&self, part: f64) -> u64 {
        let now = self.next_creation();
        now - ((now as f64 * part) as u64).min(now)
    }

    /// The creation to delete: from the interval of ages with the largest surplus.
    fn victim(&mut self) -> u64 {
        let count = self.living.count();
        let (mut most, mut rank, mut among) = (f64::NEG_INFINITY, 0, count);
        let mut behind = count;
        for &(part, share) in self.aging.ages.intervals() {
            let before = self.living.before(self.since(part));
            let here = behind - before;
            let over = here as f64 - share * count as f64;
            if here > 0 && over > most {
                (most, rank, among) = (over, before, here);
            }
            behind = before;
        }
        let rank = rank + self.random.below(among);
        self.living.at(rank)
    }

    /// Largest difference between the shares of files up to an age.
    fn age_distance(&self) -> f64 {
        let count = self.living.count().max(1) as f64;
        let (mut wanted, mut largest) = (0.0, 0.0f64);
        for &(part, share) in self.aging.ages.intervals() {
            wanted += share;
            let younger = self.living.count() - self.living.before(self.since(part));
            largest = largest.max((younger as f64 / count - wanted).abs());
        }
        largest
    }

    /// The current fragmentation; what cannot be determined is noted.
    fn fragmentation(&mut self) -> Option<Fragmentation> {
        let mut counted = Counted::default();
        let step = self.living.count().div_ceil(SAMPLE).max(1);
        for rank in (0..self.living.count()).step_by(step as usize) {
            let creation = self.living.at(rank);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = openat(self.directory_of(creation), self.name_of(creation), flags, Mode::empty());
            let looked = opened.map_err(io::Error::from).and_then(|file| counted.look_at(File::from(file)));
            if let Err(error) = looked {
                let is_unsupported = matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NOTTY));
                let place = if is_unsupported { " on this file system" } else { "" };
                let cause = crate::error::os_message(&error);
                self.note(format!("The extents of files cannot be determined{place} ({cause})."));
                return None;
            }
        }
        let free = free_space(self.path);
        if let Err(cause) = &free {
            self.note(format!("The fragmentation of free space cannot be determined: {cause}."));
        }
        Some(counted.fragmentation(free.ok()))
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// Share of the blocks that are allocated: without data they are reserved.
pub fn written_fraction(content: Content) -> f64 {
    if content == Content::None { 1.0 } else { content.written_fraction() }
}

/// Creates a file whose space is reserved but not written. Ends with `ECANCELED` if that is interrupted once `stop` is
/// set.
fn reserve(directory: BorrowedFd<'_>, name: &[u8], size: u64, stop: &AtomicBool) -> std::result::Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_raw_mode(0o666))?;
    let reserved = loop {
        let reserved = if size > 0 { fallocate(&file, FallocateFlags::empty(), 0, size) } else { Ok(()) };
        match reserved {
            // On tmpfs a signal interrupts it, whatever its handler asks for.
            Err(Errno::INTR) if stop.load(Ordering::Relaxed) => break Err(Errno::CANCELED),
            Err(Errno::INTR) => {}
            reserved => break reserved,
        }
    };
    if reserved.is_err() {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
    reserved
}

#[cfg(test)]
mod tests {
    use super::super::{Recipe, profiles};
    use super::*;

    fn aged(root: &Path, seed: u64, content: Content, operations: u64, level_bytes: u64) -> Aged {
        aged_until(root, seed, content, operations, level_bytes, &Progress::default())
    }

    fn aged_until(
        root: &Path,
        seed: u64,
        content: Content,
        operations: u64,
        level_bytes: u64,
        progress: &Progress,
    ) -> Aged {
        let profile = profiles::find("geriatrix-agrawal").unwrap();
        let recipe = Recipe::of_sizes(crate::population::stratify::scaled(&profile.sizes, 0.05));
        let design = Design::new(&recipe, 500, 1.0, seed, None, 255);
        let directory = OwnedFd::from(File::open(root).unwrap());
        let settings = MakeOptions { threads: 1, content, now: 0, block_bytes: 4096, kept_bytes: 0, sync: true };
        let aging = Aging { operations, level_bytes, ages: Ages::of(&profile.ages) };
        age(directory, root, &design, &aging, settings, progress)
    }

    /// Every file with its size.
    fn files(root: &Path) -> Vec<(std::path::PathBuf, u64)> {
        let (mut files, mut left) = (Vec::new(), vec![root.to_owned()]);
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                match entry.metadata().unwrap() {
                    found if found.is_dir() => left.push(entry.path()),
                    found => files.push((entry.path().strip_prefix(root).unwrap().to_owned(), found.len())),
                }
            }
        }
        files.sort();
        files
    }

    #[test]
    fn aging_stays_at_its_level_and_is_the_same_for_a_seed() {
        let trees: Vec<_> = [1, 1, 2]
            .into_iter()
            .map(|seed| {
                let root = tempfile::tempdir().unwrap();
                let aged = aged(root.path(), seed, Content::Zero, 3000, 8 << 20);
                assert!(aged.complete && aged.failed.is_none() && aged.operations == 3000);
                assert_eq!(aged.created - aged.deleted, aged.files);
                assert!(aged.deleted > 1000, "{aged:?}");
                let files = files(root.path());
                assert_eq!(files.len() as u64, aged.files);
                assert_eq!(files.iter().map(|file| file.1).sum::<u64>(), aged.size_bytes);
                assert!(aged.size_bytes <= 8 << 20 && aged.size_bytes > 3 << 20, "{aged:?}");
                // The profile has more young files than this few creations can leave.
                let (mut share, mut least) = (0.0, 0.0f64);
                for &(part, files) in Ages::of(&profiles::find("geriatrix-agrawal").unwrap().ages).intervals() {
                    share += files;
                    least = least.max(share - part * aged.created as f64 / aged.files as f64);
                }
                assert!(aged.age_distance.unwrap() < least + 0.02, "{least}: {aged:?}");
                files
            })
            .collect();
        assert!(trees[0] == trees[1] && trees[0] != trees[2]);
    }

    #[test]
    fn enough_operations_bring_the_ages_of_the_profile() {
        let root = tempfile::tempdir().unwrap();
        let aged = aged(root.path(), 1, Content::Zero, 12_000, 1 << 20);
        assert!(aged.complete && aged.age_distance.unwrap() < 0.1, "{aged:?}");
    }

    #[test]
    fn space_can_be_reserved_instead_of_written() {
        let root = tempfile::tempdir().unwrap();
        let aged = aged(root.path(), 1, Content::None, 500, 4 << 20);
        match &aged.failed {
            None => assert!(aged.complete && aged.files > 0),
            Some(error) => assert!(error.to_string().contains("not supported"), "{error}"),
        }
    }

    #[test]
    fn an_interruption_ends_the_time_of_its_phase() {
        let root = tempfile::tempdir().unwrap();
        let progress = Progress::observed(|progress| {
            if progress.snapshot().objects >= 64 {
                progress.stop();
            }
        });
        let aged = aged_until(root.path(), 1, Content::Zero, 10, 64 << 20, &progress);
        assert!(!aged.complete && aged.failed.is_none() && aged.created >= 64, "{aged:?}");
        assert!(!aged.filled.is_zero() && aged.elapsed.is_zero(), "{aged:?}");
    }

    #[test]
    fn a_level_below_every_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let aged = aged(root.path(), 1, Content::Zero, 10, 5);
        assert!(aged.failed.unwrap().to_string().contains("smallest file"));
    }
}
