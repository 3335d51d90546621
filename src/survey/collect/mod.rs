//! From a scan to a survey: counts each entry in every distribution and place.
//!
//! Threads share a few shards, each with all distributions. The lock of a shard is held for one batch of one directory.
//! Shards add up to the survey exactly, in any order. With few shards, memory does not depend on the number of threads.

mod link_names;
#[cfg(test)]
mod stream_tests;

use std::sync::{Mutex, MutexGuard};

use hashbrown::HashMap;

use crate::locks::{lock, unpoisoned};
use crate::plan::Padding;
use crate::progress::Progress;
use crate::scan::inodes::{InodeVisitor, Named};
use crate::scan::links::{Link, LinkSet, SeenLink};
use crate::scan::place::Parent;
use crate::scan::{self, Batch, Directory, Skipped, Stat, Timestamp, Visitor};
use crate::survey::ages::AgeCounts;
use crate::survey::errors::ErrorLog;
use crate::survey::file_table::FileTable;
use crate::survey::largest::{LargeFile, Unlocated};
use crate::survey::measure::{Distributions, Measure};
use crate::survey::ncdu_export::NcduExport;
use crate::survey::owner_ages::OwnerAges;
use crate::survey::places::{Extension, Places, Tally};
use crate::survey::recent::Recent;
use crate::survey::tree::{DirectoryTree, PackedSums, Sums, Traits, TreeRow};
use crate::survey::{Counts, HardLinks, Options, OtherAllocated, OverheadBySize, Survey};
use crate::units::{SECONDS_A_DAY, escape};
pub(super) use link_names::LinkNameData;
use link_names::{FollowUp, LinkName, LinkedFile, MetName, last_component};

/// Largest number of rows of files that are counted together.
const MOST_ROWS: usize = 4096;

/// Largest number of shards: enough for the rate at which 32 threads list warm directories, few enough for 16 MiB.
const SHARDS: usize = 4;

/// Builds a survey from what a scan finds.
pub struct Collector {
    shards: Vec<Mutex<Shard>>,
    links: LinkSet<LinkName>,
    /// Sums of directories of an inode scan that were decided after the directory was read.
    late: Mutex<HashMap<u32, PackedSums>>,
    /// Large files of an inode scan.
    unlocated: Unlocated,
    errors: Mutex<ErrorLog>,
    hard_links: HardLinks,
    small_file_bytes: u64,
    reference_time: i64,
    pub(super) file_table: Option<FileTable>,
    ncdu_export: Option<NcduExport>,
    /// Whether other processes may meet names of the same files. The first name of a file is then counted only once
    /// it is decided which one counts.
    is_divided: bool,
    progress: Progress,
}

/// A part of the survey.
#[derive(Clone)]
pub(super) struct Shard {
    pub(super) counts: Counts,
    pub(super) other_allocated: OtherAllocated,
    pub(super) distributions: Distributions,
    pub(super) overhead_by_size: OverheadBySize,
    pub(super) padding: Padding,
    pub(super) places: Places,
    pub(super) tree: DirectoryTree,
    /// Owners that are not in the tables of `places` yet.
    pub(super) owners: Recent<u32>,
    pub(super) extensions: Recent<Extension>,
    /// Ages that are not in the distributions yet.
    pub(super) ages: AgeCounts,
}

impl Shard {
    pub(super) fn new(limit: usize) -> Shard {
        Shard {
            counts: Counts::default(),
            other_allocated: OtherAllocated::default(),
            distributions: Distributions::default(),
            overhead_by_size: OverheadBySize::default(),
            padding: Padding::default(),
            places: Places::new(limit),
            tree: DirectoryTree::default(),
            owners: Recent::default(),
            extensions: Recent::default(),
            ages: AgeCounts::default(),
        }
    }

    /// The shard after everything has been moved into its distributions and tables.
    fn settled(mut self) -> Shard {
        self.ages.settle(&mut self.distributions);
        self.owners.settle(&mut self.places.owners);
        self.extensions.settle(&mut self.places.extensions);
        self.tree.settle();
        self
    }

    #[inline]
    fn add_owner(&mut self, uid: u32, tally: &Tally) {
        self.owners.add(&mut self.places.owners, uid, tally);
    }

    #[inline]
    fn add_extension(&mut self, extension: Extension, tally: &Tally) {
        self.extensions.add(&mut self.places.extensions, extension, tally);
    }

    fn merge(&mut self, other: &Shard) {
        self.counts.merge(&other.counts);
        self.other_allocated.merge(&other.other_allocated);
        self.distributions.merge(&other.distributions);
        self.overhead_by_size.merge(&other.overhead_by_size);
        self.padding.merge(&other.padding);
        self.places.merge(&other.places);
        self.tree.merge(&other.tree);
    }

    /// Considers a file for the largest ones.
    #[inline]
    fn offer_file(&mut self, size_bytes: u64, allocated_bytes: u64, path: impl FnOnce() -> Vec<u8>) {
        if let Some(files) = self.places.files.as_mut().filter(|files| files.may_enter(size_bytes)) {
            files.offer(LargeFile { path: Some(path()), size_bytes, allocated_bytes });
        }
    }

    fn overhead(&mut self, size_bytes: u64, allocated_bytes: u64, names: u32) {
        let positive = allocated_bytes >= size_bytes;
        let overhead = allocated_bytes.abs_diff(size_bytes);
        let measure = if positive { Measure::PositiveOverhead } else { Measure::NegativeOverhead };
        self.distributions.of_mut(measure).add(overhead, names.into());
        let overhead_bytes = u128::from(overhead) * u128::from(names);
        self.overhead_by_size.record(size_bytes, positive, names.into(), overhead_bytes);
    }

    /// Counts regular files, one distribution after the other, so that the data each one touches stays in cache.
    /// Returns their sums.
    fn files(&mut self, rows: &[FileRow], collector: &Collector) -> Tally {
        self.counts.files += rows.len() as u64;
        for row in rows {
            self.counts.empty_files += u64::from(row.size_bytes == 0);
            self.counts.sparse_files += u64::from(row.is_sparse);
            self.padding.record(row.size_bytes);
            self.distributions.of_mut(Measure::FileSize).record(row.size_bytes);
        }
        for row in rows {
            self.distributions.of_mut(Measure::Allocated).record(row.allocated_bytes);
            self.distributions.of_mut(Measure::LinkCount).record(row.link_count.into());
        }
        for row in rows {
            self.overhead(row.size_bytes, row.allocated_bytes, 1);
        }
        for time in 0..3 {
            for row in rows {
                let (days, future) = row.ages[time];
                self.counts.future_times += u64::from(future);
                self.ages.add(&mut self.distributions, time, days, row.size_bytes);
            }
        }
        if let Some(owner_ages) = &mut self.places.owner_ages {
            for row in rows {
                let [(written, _), _, (read, _)] = row.ages;
                owner_ages.add(row.uid, written, read, row.size_bytes);
            }
        }
        let mut sums = Tally::default();
        for row in rows {
            let tally = collector.tally(row.size_bytes, row.allocated_bytes);
            self.add_owner(row.uid, &tally);
            scan::Tally::add(&mut sums, &tally);
        }
        sums
    }

    /// Counts an entry other than a regular file, at `names` names.
    fn other(&mut self, stat: &Stat, names: u32) {
        let (size, allocated) = (stat.size_bytes, stat.allocated_bytes);
        let (count, allocated_bytes) = (u64::from(names), u128::from(allocated) * u128::from(names));
        match stat.kind {
            _ if names == 0 => {}
            scan::Kind::Directory => {
                self.counts.directories += count;
                self.other_allocated.directories_bytes += allocated_bytes;
                self.distributions.of_mut(Measure::DirectorySize).add(size, count);
                self.overhead(size, allocated, names);
            }
            scan::Kind::Symlink { absolute } => {
                self.counts.symlinks += count;
                self.counts.symlinks_absolute += u64::from(absolute) * count;
                self.counts.symlinks_relative += u64::from(!absolute) * count;
                self.other_allocated.symlinks_bytes += allocated_bytes;
                self.distributions.of_mut(Measure::SymlinkTargetLength).add(size, count);
                self.overhead(size, allocated, names);
            }
            scan::Kind::Fifo => self.counts.fifos += count,
            scan::Kind::Socket => self.counts.sockets += count,
            scan::Kind::BlockDevice => self.counts.block_devices += count,
            scan::Kind::CharacterDevice => self.counts.character_devices += count,
            scan::Kind::File => {}
        }
        let counts = &mut self.counts;
        counts.special = counts.fifos + counts.sockets + counts.block_devices + counts.character_devices;
    }
}

/// A regular file as it counts at one of its names.
struct FileRow {
    size_bytes: u64,
    allocated_bytes: u64,
    /// Whether fewer bytes are allocated than its size, both counted in full.
    is_sparse: bool,
    link_count: u32,
    uid: u32,
    /// Days since the content changed, since the inode changed and since it was read, each with whether that time is in
    /// the future.
    ages: [(u64, bool); 3],
}

/// Ages from here on, 45,964 years, count as this: bytes times days stay within what a survey file may hold.
const OLDEST_DAYS: i64 = 1 << 24;

/// Whole days from `time` to `reference`; 0 and true if `time` is later.
#[inline]
fn age_days(time: Timestamp, reference: i64) -> (u64, bool) {
    let seconds = reference.saturating_sub(time.seconds);
    ((seconds / SECONDS_A_DAY).clamp(0, OLDEST_DAYS) as u64, seconds < 0)
}

impl Collector {
    /// A collector for a scan with `threads`; ages will be relative to `reference_time` (seconds since 1970), lists of
    /// directories will have `limit` rows.
    pub fn new(options: &Options, threads: usize, reference_time: i64, limit: usize) -> Collector {
        let shard = || {
            let mut shard = Shard::new(limit);
            shard.places.owner_ages = Some(OwnerAges::new(&options.age_breaks_days));
            Mutex::new(shard)
        };
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shards = threads.min(cores).clamp(1, SHARDS);
        Collector {
            shards: (0..shards).map(|_| shard()).collect(),
            links: LinkSet::default(),
            late: Mutex::default(),
            unlocated: Unlocated::new(limit),
            errors: Mutex::default(),
            hard_links: options.hard_links,
            small_file_bytes: options.small_file_bytes,
            reference_time,
            file_table: None,
            ncdu_export: None,
            is_divided: false,
            progress: Progress::default(),
        }
    }

    /// The same, for a part of a divided walk, or for its parts together.
    #[must_use]
    pub(super) fn divided(mut self) -> Collector {
        self.is_divided = true;
        self
    }

    /// The same, and counts in `progress`, from 0: regular files, directories, bytes and errors, exact at the end.
    #[must_use]
    pub fn with_progress(mut self, progress: &Progress) -> Collector {
        progress.restart();
        self.progress = progress.clone();
        self
    }

    /// The same, and also writes a row for each file.
    #[must_use]
    pub fn with_file_table(mut self, table: FileTable) -> Collector {
        self.file_table = Some(table);
        self
    }

    /// The table of files, if there is one.
    pub fn file_table(&self) -> Option<&FileTable> {
        self.file_table.as_ref()
    }

    /// Takes the table of files out, to be completed.
    pub fn take_file_table(&mut self) -> Option<FileTable> {
        self.file_table.take()
    }

    /// The same, and also exports every entry.
    #[must_use]
    pub(super) fn with_ncdu_export(mut self, export: NcduExport) -> Collector {
        self.ncdu_export = Some(export);
        self
    }

    /// Takes the export out, to be completed.
    pub(super) fn take_ncdu_export(&mut self) -> Option<NcduExport> {
        self.ncdu_export.take()
    }

    /// A shard to count into: any that is free, because a thread may be suspended while it holds one.
    fn shard(&self, worker: usize) -> MutexGuard<'_, Shard> {
        let first = worker % self.shards.len();
        let others = self.shards[first..].iter().chain(&self.shards[..first]);
        others.filter_map(|shard| shard.try_lock().ok()).next().unwrap_or_else(|| lock(&self.shards[first]))
    }

    /// All shards added up.
    pub(super) fn whole(&self) -> Shard {
        let mut whole = lock(&self.shards[0]).clone().settled();
        for shard in &self.shards[1..] {
            whole.merge(&lock(shard).clone().settled());
        }
        whole
    }

    /// Everything except the shards, for a checkpoint.
    pub(super) fn errors_and_links(&self) -> (ErrorLog, Vec<(SeenLink, LinkNameData)>) {
        (lock(&self.errors).clone(), self.links.snapshot(|name| name.data.clone()))
    }

    /// Adds what another collector has, without its links.
    pub(super) fn join(&self, shard: &Shard, errors: &ErrorLog) {
        lock(&self.shards[0]).merge(shard);
        lock(&self.errors).merge(errors);
    }

    /// Continues from the contents of a checkpoint.
    pub(super) fn restore(&mut self, shard: Shard, errors: ErrorLog) {
        let counts = &shard.counts;
        self.progress.restart();
        self.progress.add(counts.files, counts.directories, shard.distributions.of(Measure::FileSize).total());
        self.progress.add_errors(counts.errors);
        self.shards[0] = Mutex::new(shard);
        self.errors = Mutex::new(errors);
    }

    /// The survey of what was collected, without its origin.
    pub fn survey(self) -> Survey {
        let mut shards = self.shards.into_iter().map(|shard| unpoisoned(shard.into_inner()));
        let mut whole = shards.next().unwrap_or_else(|| Shard::new(0)).settled();
        shards.for_each(|shard| whole.merge(&shard.settled()));
        Survey {
            counts: whole.counts,
            other_allocated: whole.other_allocated,
            distributions: whole.distributions,
            overhead_by_size: whole.overhead_by_size,
            padding: Some(whole.padding),
            places: Some(whole.places),
            tree: Some(whole.tree).filter(|tree| !tree.is_empty()),
            errors: unpoisoned(self.errors.into_inner()),
            ..Survey::default()
        }
    }

    /// The share of `bytes` that counts at one of the names of a file: where all names share them, what cannot be
    /// divided counts at the name with number 0, so that only one name has to be known.
    #[inline]
    fn share(&self, bytes: u64, link_count: u32, ordinal: u32) -> u64 {
        if self.hard_links != HardLinks::Shared {
            return bytes;
        }
        let names = u64::from(link_count.max(1));
        bytes / names + if ordinal == 0 { bytes % names } else { 0 }
    }

    /// The sums of one file.
    #[inline]
    fn tally(&self, size_bytes: u64, allocated_bytes: u64) -> Tally {
        Tally::of_file(size_bytes, allocated_bytes, size_bytes <= self.small_file_bytes)
    }

    /// The row of a file at the name with index `ordinal`.
    #[inline]
    fn row(&self, stat: &Stat, ordinal: u32) -> FileRow {
        let age = |time| age_days(time, self.reference_time);
        FileRow {
            size_bytes: self.share(stat.size_bytes, stat.link_count, ordinal),
            allocated_bytes: self.share(stat.allocated_bytes, stat.link_count, ordinal),
            is_sparse: stat.allocated_bytes < stat.size_bytes,
            link_count: stat.link_count,
            uid: stat.uid,
            ages: [age(stat.mtime), age(stat.ctime), age(stat.atime)],
        }
    }

    /// The row of a file at a name that alone decides what the file counts for here, which is added to `own`.
    #[inline]
    fn decided_row(&self, shard: &mut Shard, name: &[u8], stat: &Stat, own: &mut Sums) -> FileRow {
        // Number 1: undivided, or divisible by the number of names.
        let row = self.row(stat, 1);
        let (extension, traits) = (Extension::of(name), Traits::of(stat));
        shard.add_extension(extension, &self.tally(row.size_bytes, row.allocated_bytes));
        own.hues.add_file(row.size_bytes, traits, extension);
        row
    }

    /// Considers a file in a directory without a path for the largest ones.
    #[inline]
    fn offer_unlocated(&self, position: u32, tally: &Tally, name: &[u8]) {
        let [size_bytes, allocated_bytes] = [tally.size_bytes, tally.allocated_bytes].map(|sum| sum as u64);
        let file = || LargeFile { path: Some(name.to_vec()), size_bytes, allocated_bytes };
        self.unlocated.offer(position, size_bytes, file);
    }

    fn advance(&self, directories: u64, of_batch: &Tally) {
        self.progress.add(of_batch.files, directories, of_batch.size_bytes);
    }
}

impl Visitor for Collector {
    type Tally = Sums;

    fn entries(&self, worker: usize, directory: Directory<'_>, parent: &Parent<Sums>, batch: &Batch, own: &mut Sums) {
        let mut files = Vec::with_capacity(batch.len());
        let (mut linked, mut after) = (Vec::new(), FollowUp::default());
        let mut directories = 0;
        let mut rows = self.file_table.as_ref().map(|_| (directory.path(), Batch::default()));
        let mut shard = self.shard(worker);
        for (name, stat) in batch.iter() {
            shard.distributions.of_mut(Measure::NameLength).record(name.len() as u64);
            if stat.kind == scan::Kind::File {
                let undecided = self.is_undecided(&LinkedFile::of(stat));
                if undecided {
                    linked.extend(self.undecided_row(&mut shard, name, stat, parent, &mut after));
                } else {
                    let row = self.decided_row(&mut shard, name, stat, own);
                    shard.offer_file(row.size_bytes, row.allocated_bytes, || directory.path_of(name));
                    files.push(row);
                }
                if let Some((path, rows)) = &mut rows
                    && !(undecided && self.hard_links == HardLinks::Once)
                {
                    rows.push(&scan::join(path.clone(), name), *stat);
                }
            } else {
                directories += u64::from(stat.kind == scan::Kind::Directory);
                shard.other(stat, 1);
            }
        }
        let mut of_batch = shard.files(&files, self);
        scan::Tally::add(&mut own.tally, &of_batch);
        if !linked.is_empty() {
            scan::Tally::add(&mut of_batch, &shard.files(&linked, self));
        }
        drop(shard);
        self.follow_up(worker, after, own);
        self.advance(directories, &of_batch);
        if let (Some(table), Some((_, rows))) = (&self.file_table, rows) {
            table.add(rows);
        }
        if let Some(export) = &self.ncdu_export {
            export.entries(directory, batch);
        }
    }

    fn name_alone(&self, worker: usize, name: &[u8]) {
        self.shard(worker).distributions.of_mut(Measure::NameLength).record(name.len() as u64);
    }

    fn root(&self, path: &[u8], stat: &Stat) {
        if let Some(export) = &self.ncdu_export {
            export.root(path, stat);
        }
        let mut shard = self.shard(0);
        if stat.kind != scan::Kind::File {
            shard.other(stat, 1);
            self.advance(u64::from(stat.kind == scan::Kind::Directory), &Tally::default());
            return;
        }
        let (undecided, mut after) = (self.is_undecided(&LinkedFile::of(stat)), FollowUp::default());
        let file = if undecided {
            self.undecided_row(&mut shard, path, stat, &Parent::of_root(), &mut after)
        } else {
            let row = self.decided_row(&mut shard, last_component(path), stat, &mut Sums::default());
            shard.offer_file(row.size_bytes, row.allocated_bytes, || path.to_vec());
            Some(row)
        };
        let tally = file.map_or_else(Tally::default, |file| shard.files(&[file], self));
        drop(shard);
        self.follow_up(0, after, &mut Sums::default());
        self.advance(0, &tally);
        if let Some(table) = &self.file_table
            && !(undecided && self.hard_links == HardLinks::Once)
        {
            let mut row = Batch::default();
            row.push(path, *stat);
            table.add(row);
        }
    }

    fn listed(&self, worker: usize, directory: Directory<'_>, entries: u64) {
        let mut shard = self.shard(worker);
        shard.distributions.of_mut(Measure::DirectoryEntries).record(entries);
        shard.distributions.of_mut(Measure::DirectoryDepth).record(directory.depth().into());
    }

    fn finished(&self, worker: usize, directory: Directory<'_>, own: &Sums, below: &Sums) -> Sums {
        let own = Sums { tally: Tally { directories: 1, ..own.tally }, ..*own };
        let mut subtree = own;
        scan::Tally::add(&mut subtree, below);
        let depth = directory.depth();
        let mut shard = self.shard(worker);
        shard.places.own.offer(depth, &own.tally, || directory.path());
        shard.places.subtree.offer(depth, &subtree.tally, || directory.path());
        shard.tree.offer(TreeRow { depth, own, subtree }, || directory.path());
        subtree
    }

    fn skipped(&self, worker: usize, what: Skipped, count: u64) {
        let counts = &mut self.shard(worker).counts;
        match what {
            Skipped::Vanished => counts.vanished += count,
            Skipped::Excluded => counts.excluded += count,
            Skipped::SnapshotDirectory => counts.snapshot_directories_skipped += count,
            Skipped::MountPoint => counts.mount_points_skipped += count,
            Skipped::Root => {}
        }
    }

    fn left_out(&self, worker: usize, directory: Directory<'_>, name: &[u8], what: Skipped) {
        self.skipped(worker, what, 1);
        if let Some(export) = &self.ncdu_export {
            export.left_out(directory, name, what);
        }
    }

    fn unreadable(&self, directory: Directory<'_>, name: Option<&[u8]>) {
        if let Some(export) = &self.ncdu_export {
            export.unreadable(directory, name);
        }
    }

    fn failed(&self, operation: &'static str, error: std::io::Error, path: &dyn Fn() -> Vec<u8>) {
        let path = escape(&path());
        lock(&self.errors).record(operation, &crate::error::os_message(&error), path);
        self.shard(0).counts.errors += 1;
        self.progress.add_errors(1);
    }

    fn should_stop(&self) -> bool {
        self.progress.should_stop()
    }
}

impl InodeVisitor for Collector {
    type Kept = PackedSums;

    fn inodes(&self, worker: usize, batch: &[(Stat, u32)]) {
        let mut rows = Vec::with_capacity(batch.len());
        let (mut directories, mut of_batch) = (0, Tally::default());
        let mut shard = self.shard(worker);
        for (stat, names) in batch {
            if stat.kind != scan::Kind::File {
                directories += u64::from(stat.kind == scan::Kind::Directory);
                shard.other(stat, *names);
                continue;
            }
            let counted = if self.hard_links == HardLinks::Once { (*names).min(1) } else { *names };
            shard.counts.hard_links_skipped += u64::from(names - counted);
            // A damaged inode may claim billions of names: in pieces, so that memory stays bounded and a stop ends it.
            for ordinal in 0..counted {
                rows.push(self.row(stat, ordinal));
                if rows.len() >= MOST_ROWS {
                    scan::Tally::add(&mut of_batch, &shard.files(&rows, self));
                    rows.clear();
                    if self.progress.should_stop() {
                        break;
                    }
                }
            }
        }
        scan::Tally::add(&mut of_batch, &shard.files(&rows, self));
        drop(shard);
        self.advance(directories, &of_batch);
    }

    fn kept(own: Sums) -> PackedSums {
        own.into()
    }

    fn restored(kept: &PackedSums) -> Sums {
        kept.into()
    }

    fn names(&self, worker: usize, parent: &Parent<Sums>, batch: &Batch<Named>, own: &mut Sums) {
        let mut after = FollowUp::default();
        let mut shard = self.shard(worker);
        for (name, named) in batch.iter() {
            shard.distributions.of_mut(Measure::NameLength).record(name.len() as u64);
            let Named::File { device, inode, size_bytes, allocated_bytes, link_count, uid, day } = *named else {
                continue;
            };
            let file = LinkedFile { size_bytes, allocated_bytes, link_count, traits: Traits { uid, day } };
            if self.is_undecided(&file) {
                let met = MetName { link: Link { device, inode, link_count }, file, name, parent };
                self.meet(&mut shard, &met, None, &mut after);
                continue;
            }
            let extension = Extension::of(name);
            let tally = self.tally_at(&file, 1);
            if let Some(position) = parent.position() {
                self.offer_unlocated(position, &tally, name);
            }
            shard.add_extension(extension, &tally);
            scan::Tally::add(&mut own.tally, &tally);
            own.hues.add_file(tally.size_bytes as u64, file.traits, extension);
        }
        drop(shard);
        self.follow_up(worker, after, own);
    }

    fn named(&self) {
        self.decide_links();
    }

    fn located(&self, position: u32, directory: Directory<'_>) {
        let files = self.unlocated.take(position, &|| directory.path());
        if !files.is_empty() {
            let mut shard = self.shard(0);
            let largest = &mut shard.places.files;
            files.into_iter().for_each(|file| largest.iter_mut().for_each(|largest| largest.offer(file.clone())));
        }
    }

    fn late(&self, position: u32) -> Sums {
        lock(&self.late).get(&position).map_or_else(Sums::default, Sums::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Distribution, Encoded};
    use crate::survey::measure::ByteMeasure;

    fn stat(kind: scan::Kind, link_count: u32, seconds: i64) -> Stat {
        let time = Timestamp { seconds, nanoseconds: 0 };
        Stat {
            kind,
            size_bytes: 7,
            allocated_bytes: 4096,
            link_count,
            uid: 0,
            gid: 0,
            mode: 0,
            device: 1,
            inode: 2,
            mtime: time,
            ctime: time,
            atime: time,
        }
    }

    /// A file system with 64-bit times, and a file as large as there can be: its survey can be read again.
    #[test]
    fn the_oldest_and_largest_file_makes_a_survey_that_can_be_read() {
        let file = Stat { size_bytes: i64::MAX as u64, ..stat(scan::Kind::File, 1, i64::MIN) };
        let collector = Collector::new(&Options::default(), 1, 1_800_000_000, 20);
        collector.inodes(0, &[(file, 1)]);
        let survey = collector.survey();
        for measure in ByteMeasure::ALL {
            let encoded = Encoded::from(survey.distributions.by_bytes(measure));
            assert!(Distribution::<u128>::try_from(&encoded).is_ok(), "{}", measure.name());
        }
    }

    /// A damaged or maliciously made inode may claim the largest link count that the field can hold.
    #[test]
    fn billions_of_names_take_no_longer_than_one() {
        let symlink = scan::Kind::Symlink { absolute: true };
        let options = Options { hard_links: HardLinks::Each, ..Options::default() };
        let collector = Collector::new(&options, 1, 0, 20);
        let names = MOST_ROWS as u32 + 1;
        collector.inodes(
            0,
            &[
                (stat(symlink, u32::MAX, 0), u32::MAX),
                (stat(symlink, 1, 0), 0),
                (stat(scan::Kind::File, names, 0), names),
            ],
        );
        let survey = collector.survey();
        assert_eq!(survey.counts.symlinks, u64::from(u32::MAX));
        assert_eq!(survey.counts.files, u64::from(names));
        assert_eq!(survey.other_allocated.symlinks_bytes, u128::from(u32::MAX) * 4096);
        assert_eq!(
            survey.distributions.of(Measure::PositiveOverhead).count(),
            u128::from(u32::MAX) + u128::from(names)
        );
    }
}
