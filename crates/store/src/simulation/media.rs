//! What is written, separate from what is durable: the content of one file, and the names of one device.
//!
//! Both keep a **base**, which survives a crash, and a log of later changes. An entry of the log is *pending* until a
//! sync. If that succeeds it becomes *sure*; if it fails the entry is *doubtful* for ever: it may be durable or not,
//! and a later sync says nothing about it, as Linux considers such pages clean. A crash keeps what is sure, and any
//! part of the rest:
//!
//! - pending writes are applied in any order, each whole, in part (a prefix, a suffix, any sectors, any bytes), only as
//!   a longer file, or not at all;
//! - the range between the old end of a file and a durable write after it contains zeroes or any bytes;
//! - names are created, replaced and removed independently, a rename as a whole.
//!
//! A doubtful write does not reappear over a later one that is sure: its page was written again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::random::Random;

/// The allocation unit of files, in bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// The unit that a device mostly writes without tearing, in bytes.
const SECTOR_BYTES: usize = 512;

/// Largest file, in bytes, as files are held in memory.
pub(crate) const LONGEST_FILE_BYTES: u64 = 256 << 20;

/// The state of an entry of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Pending,
    Doubtful,
    Sure,
}

/// How much of what is not sure survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luck {
    /// Nothing.
    Nothing,
    /// All.
    Everything,
    /// Something of `0`/8 of the changes.
    Some(u64),
}

impl Luck {
    /// Draws the luck of a crash: the extremes are frequent, as they find most faults.
    pub(crate) fn draw(random: &mut Random) -> Luck {
        match random.below(8) {
            0 => Luck::Nothing,
            1 => Luck::Everything,
            _ => Luck::Some(1 + random.below(7)),
        }
    }

    fn keeps(self, random: &mut Random) -> bool {
        match self {
            Luck::Nothing => false,
            Luck::Everything => true,
            Luck::Some(share) => random.happens(share, 8),
        }
    }
}

/// A change of a file.
#[derive(Debug, Clone)]
pub(crate) enum FileChange {
    /// Bytes written at an offset.
    Write(u64, Arc<[u8]>),
    /// A new size.
    Size(u64),
}

/// Bytes of a file, and which of its blocks are allocated.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileContent {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    allocated: Vec<bool>,
    /// Numbers of sectors that cannot be read until they are written again.
    unreadable: BTreeSet<u64>,
}

impl FileContent {
    /// These bytes, all of them allocated.
    pub(crate) fn new(bytes: Vec<u8>) -> FileContent {
        let allocated = vec![true; bytes.len().div_ceil(BLOCK_BYTES)];
        FileContent { bytes, allocated, unreadable: BTreeSet::new() }
    }

    /// Makes the sectors of a range unreadable.
    pub(crate) fn make_unreadable(&mut self, offset: u64, length: u64) {
        self.unreadable.extend(sectors(offset, length));
    }

    /// Makes all of it readable again.
    pub(crate) fn make_readable(&mut self) {
        self.unreadable.clear();
    }

    /// Whether a range can be read.
    pub(crate) fn is_readable(&self, offset: u64, length: u64) -> bool {
        self.unreadable.range(sectors(offset, length)).next().is_none()
    }

    /// Allocated bytes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        (self.allocated.iter().filter(|&&is| is).count() * BLOCK_BYTES) as u64
    }

    /// How many of `length` bytes at `offset` can be written if at most `room_bytes` may be allocated.
    pub(crate) fn fitting(&self, offset: u64, length: usize, room_bytes: u64) -> usize {
        let (start, mut room_blocks) = (offset as usize, room_bytes / BLOCK_BYTES as u64);
        for block in start / BLOCK_BYTES..(start + length).div_ceil(BLOCK_BYTES) {
            if !self.allocated.get(block).is_some_and(|&is| is) {
                if room_blocks == 0 {
                    return (block * BLOCK_BYTES).saturating_sub(start).min(length);
                }
                room_blocks -= 1;
            }
        }
        length
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (start, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.set_size(end as u64);
        }
        self.bytes[start..end].copy_from_slice(data);
        self.allocated[start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)].fill(true);
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|sector| !sectors(offset, data.len() as u64).contains(sector));
        }
    }

    fn set_size(&mut self, size_bytes: u64) {
        self.bytes.resize(size_bytes as usize, 0);
        self.allocated.resize(self.bytes.len().div_ceil(BLOCK_BYTES), false);
    }

    fn apply(&mut self, change: &FileChange) {
        match change {
            FileChange::Write(offset, data) => self.write(*offset, data),
            FileChange::Size(size_bytes) => self.set_size(*size_bytes),
        }
    }

    /// Applies what a crash may leave of a change.
    fn apply_remains(&mut self, change: &FileChange, luck: Luck, random: &mut Random) {
        if !luck.keeps(random) {
            return;
        }
        let whole = luck == Luck::Everything || random.happens(1, 3);
        match change {
            _ if whole => self.apply(change),
            FileChange::Size(_) => self.apply(change),
            FileChange::Write(offset, data) => self.write_remains(*offset, data, random),
        }
    }

    fn write_remains(&mut self, offset: u64, data: &[u8], random: &mut Random) {
        let (old_end, start) = (self.bytes.len(), offset as usize);
        let mut written = Vec::new();
        match random.below(5) {
            0 => written.push(0..random.index(data.len() + 1)),
            1 => written.push(random.index(data.len() + 1)..data.len()),
            2 => written.push(random.range(data.len())),
            // Sectors of the device, not of the write.
            3 => {
                let mut from = 0;
                while from < data.len() {
                    let to = data.len().min(from + SECTOR_BYTES - (start + from) % SECTOR_BYTES);
                    if random.happens(1, 2) {
                        written.push(from..to);
                    }
                    from = to;
                }
            }
            _ => self.set_size(old_end.max(start + random.index(data.len() + 1)) as u64),
        }
        for range in &written {
            self.write(offset + range.start as u64, &data[range.clone()]);
        }
        // Single bytes with another fate than their neighbours.
        if random.happens(1, 8) && !data.is_empty() {
            let at = random.index(data.len());
            self.write(offset + at as u64, &data[at..=at]);
        }
        if self.bytes.len() > old_end && random.happens(1, 4) {
            let mut holds = vec![false; self.bytes.len() - old_end];
            for range in written {
                for at in (start + range.start).max(old_end)..(start + range.end).max(old_end) {
                    holds[at - old_end] = true;
                }
            }
            let garbage = random.bytes(holds.len());
            for (at, _) in holds.iter().enumerate().filter(|(_, holds)| !**holds) {
                self.bytes[old_end + at] = garbage[at];
            }
        }
    }
}

/// A file: its current content, and what is durable of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    /// The content for readers.
    pub(crate) current: Arc<FileContent>,
    base: Arc<FileContent>,
    log: Vec<(FileChange, Certainty)>,
}

impl File {
    /// A file with this content, all of it durable.
    pub(crate) fn settled(content: Arc<FileContent>) -> File {
        File { current: Arc::clone(&content), base: content, log: Vec::new() }
    }

    /// Changes the file, without making it durable.
    pub(crate) fn change(&mut self, change: FileChange) {
        Arc::make_mut(&mut self.current).apply(&change);
        self.log.push((change, Certainty::Pending));
    }

    /// Whether a sync has anything to do.
    pub(crate) fn is_dirty(&self) -> bool {
        self.log.iter().any(|(_, certainty)| *certainty == Certainty::Pending)
    }

    /// A sync that succeeded.
    pub(crate) fn sync(&mut self) {
        turn(&mut self.log, Certainty::Sure, |_| true);
        if !self.log.is_empty() {
            let base = Arc::make_mut(&mut self.base);
            fold(&mut self.log, |change| base.apply(change));
        }
    }

    /// A sync that failed.
    pub(crate) fn fail_sync(&mut self) {
        turn(&mut self.log, Certainty::Doubtful, |_| true);
    }

    /// Drops what a failed sync left only in memory: from now on the file reads as it is on the device, and that is
    /// durable.
    pub(crate) fn drop_doubtful(&mut self, luck: Luck, random: &mut Random) {
        if !self.log.iter().any(|(_, certainty)| *certainty == Certainty::Doubtful) {
            return;
        }
        let waiting: Vec<_> =
            self.log.iter().filter(|(_, certainty)| *certainty == Certainty::Pending).cloned().collect();
        let settled = File {
            log: self.log.iter().filter(|(_, certainty)| *certainty != Certainty::Pending).cloned().collect(),
            ..self.clone()
        };
        *self = settled.remains(luck, random);
        waiting.into_iter().for_each(|(change, _)| self.change(change));
    }

    /// As [`drop_doubtful`](Self::drop_doubtful), unless that would change the size, which is not in pages.
    pub(crate) fn drop_doubtful_content(&mut self, random: &mut Random) {
        let end = self.base.bytes.len() as u64;
        let is_of_content = |change: &FileChange| match change {
            FileChange::Write(offset, data) => offset + data.len() as u64 <= end,
            FileChange::Size(_) => false,
        };
        if self.log.iter().all(|(change, _)| is_of_content(change)) {
            let luck = Luck::draw(random);
            self.drop_doubtful(luck, random);
        }
    }

    /// What a crash leaves.
    pub(crate) fn remains(&self, luck: Luck, random: &mut Random) -> File {
        if self.log.is_empty() {
            return File::settled(Arc::clone(&self.base));
        }
        let mut content = FileContent::clone(&self.base);
        for (change, certainty) in &self.log {
            match certainty {
                Certainty::Sure => content.apply(change),
                Certainty::Doubtful => content.apply_remains(change, luck, random),
                Certainty::Pending => {}
            }
        }
        let mut pending: Vec<&FileChange> = self
            .log
            .iter()
            .filter(|(_, certainty)| *certainty == Certainty::Pending)
            .map(|(change, _)| change)
            .collect();
        if luck != Luck::Everything {
            random.shuffle(&mut pending);
        }
        for change in pending {
            content.apply_remains(change, luck, random);
        }
        File::settled(Arc::new(content))
    }
}

/// A change of the names of a device.
#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    /// A name for a new file.
    Create(String, u64),
    /// Removal of a name.
    Remove(String),
    /// From, to, and the file.
    Rename(String, String, u64),
}

impl NameChange {
    /// The directory whose sync makes it durable.
    fn directory(&self) -> &str {
        match self {
            NameChange::Create(path, _) | NameChange::Remove(path) | NameChange::Rename(_, path, _) => {
                directory_of(path)
            }
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Create(path, file) => {
                names.insert(path.clone(), *file);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to, file) => {
                names.insert(to.clone(), *file);
                // The old name may belong to another file now, or may never have become durable.
                if names.get(from) == Some(file) && from != to {
                    names.remove(from);
                }
            }
        }
    }
}

/// The names on a device: path and number of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// The current names.
    pub(crate) current: BTreeMap<String, u64>,
    base: BTreeMap<String, u64>,
    log: Vec<(NameChange, Certainty)>,
}

impl Names {
    /// These names, all of them durable.
    pub(crate) fn settled(names: BTreeMap<String, u64>) -> Names {
        Names { current: names.clone(), base: names, log: Vec::new() }
    }

    /// The files of a directory are removed permanently.
    pub(crate) fn forget(&mut self, directory: &str) {
        *self = Names::settled(self.current.clone());
        let is_elsewhere = |path: &String, _: &mut u64| directory_of(path) != directory;
        self.current.retain(is_elsewhere);
        self.base.retain(is_elsewhere);
    }

    /// Changes the names, without making that durable.
    pub(crate) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.log.push((change, Certainty::Pending));
    }

    /// Adds a name that is durable.
    pub(crate) fn settle(&mut self, path: String, file: u64) {
        self.current.insert(path.clone(), file);
        self.base.insert(path, file);
    }

    /// A sync of a directory that succeeded.
    pub(crate) fn sync(&mut self, directory: &str) {
        turn(&mut self.log, Certainty::Sure, |change| change.directory() == directory);
        let base = &mut self.base;
        fold(&mut self.log, |change| change.apply(base));
    }

    /// A sync of a directory that failed.
    pub(crate) fn fail_sync(&mut self, directory: &str) {
        turn(&mut self.log, Certainty::Doubtful, |change| change.directory() == directory);
    }

    /// What a crash leaves.
    pub(crate) fn remains(&self, luck: Luck, random: &mut Random) -> Names {
        let mut names = self.base.clone();
        for (change, certainty) in &self.log {
            if *certainty == Certainty::Sure || luck.keeps(random) {
                change.apply(&mut names);
            }
        }
        Names::settled(names)
    }
}

/// Numbers of the sectors that a range touches.
fn sectors(offset: u64, length: u64) -> Range<u64> {
    offset / SECTOR_BYTES as u64..offset.saturating_add(length).div_ceil(SECTOR_BYTES as u64)
}

/// The directory that a file is in.
pub(crate) fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Changes the certainty of selected pending entries.
fn turn<T>(log: &mut [(T, Certainty)], into: Certainty, is_meant: impl Fn(&T) -> bool) {
    for (change, certainty) in log {
        if *certainty == Certainty::Pending && is_meant(change) {
            *certainty = into;
        }
    }
}

/// Applies and removes the leading entries that are sure.
fn fold<T>(log: &mut Vec<(T, Certainty)>, mut apply: impl FnMut(&T)) {
    let sure = log.iter().take_while(|(_, certainty)| *certainty == Certainty::Sure).count();
    for (change, _) in log.drain(..sure) {
        apply(&change);
    }
}
