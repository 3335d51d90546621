//! The targets: the same files below a directory or in a store, and the same operations on them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::{FileSet, SPARE_FILES};
use super::mix::Operation;
use crate::error::Result;
use crate::locks::lock;
use crate::store::Buffer;

/// Entries that one READDIR or READDIRPLUS returns.
pub(super) const MOST_LISTED: usize = 100;

/// What an operation applies to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    /// The file, or one in the intended directory.
    pub file: u64,
    /// Determines the offset in the file: any number.
    pub place: u64,
    /// Number of a file to create or remove.
    pub fresh: u64,
}

/// Buffers of one thread.
#[derive(Debug)]
pub(super) struct Memory {
    pub name: String,
    pub bytes: Vec<u8>,
    pub object: Buffer,
}

impl Memory {
    /// Buffers for reads and writes of up to `bytes`.
    pub(super) fn new(bytes: usize) -> Memory {
        Memory { name: String::with_capacity(64), bytes: Vec::with_capacity(bytes), object: Buffer::default() }
    }
}

/// Files that are measured.
pub(super) trait Target: Sync {
    /// Performs an operation.
    fn perform(&self, operation: Operation, aim: Aim, memory: &mut Memory) -> Result<()>;

    /// Reads a whole file, and verifies it.
    fn read_whole(&self, number: u64, memory: &mut Memory) -> Result<()>;

    /// Reads files as a batch, in whatever order is best; `None` if that is no different from one after another.
    fn read_together(&self, numbers: &[u64], depth: usize) -> Option<Result<()>>;

    /// Lists names and attributes of the directory with many entries; returns their number.
    fn list(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<u64>;

    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}

/// The files that are created and removed during the measurement. Numbers of created files increase; of those that
/// exist, the one that was finished first is removed.
#[derive(Debug)]
pub(super) struct Fresh {
    next: AtomicU64,
    existing: Mutex<VecDeque<u64>>,
}

impl Fresh {
    pub(super) fn new() -> Fresh {
        Fresh { next: AtomicU64::new(SPARE_FILES), existing: Mutex::new((0..SPARE_FILES).collect()) }
    }

    /// The operation to perform where `operation` was drawn, with the number of its file. A file that does not exist
    /// yet, however long its creation takes, is never removed; where none exists, one is created instead.
    pub(super) fn choose(&self, operation: Operation) -> (Operation, u64) {
        let create = || (Operation::Create, self.next.fetch_add(1, Ordering::Relaxed));
        match operation {
            Operation::Create => create(),
            Operation::Remove => match lock(&self.existing).pop_front() {
                Some(number) => (Operation::Remove, number),
                None => create(),
            },
            _ => (operation, 0),
        }
    }

    /// A file that was to be created exists.
    pub(super) fn created(&self, number: u64) {
        lock(&self.existing).push_back(number);
    }
}

/// Offset range of a READ or WRITE of at most `most_bytes` in a file, at a multiple of that.
pub(super) fn range(set: &FileSet, aim: Aim, most_bytes: u64) -> std::ops::Range<u64> {
    let size = set.size(aim.file);
    let pieces = size.div_ceil(most_bytes).max(1);
    let start = aim.place % pieces * most_bytes;
    start..size.min(start + most_bytes)
}

/// Whether the bytes of a whole file are right; compares both ends, which costs next to nothing.
pub(super) fn is_right(expected: &[u8], found: &[u8]) -> bool {
    const EDGE: usize = 8;
    let edge = expected.len().min(EDGE);
    expected.len() == found.len()
        && expected[..edge] == found[..edge]
        && expected[expected.len() - edge..] == found[found.len() - edge..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;

    #[test]
    fn what_is_removed_exists_however_many_are_being_made() {
        let fresh = Fresh::new();
        assert_eq!(fresh.choose(Operation::Read), (Operation::Read, 0));
        for number in 0..5000 {
            assert_eq!(fresh.choose(Operation::Create), (Operation::Create, SPARE_FILES + number));
        }
        for number in 0..SPARE_FILES {
            assert_eq!(fresh.choose(Operation::Remove), (Operation::Remove, number));
        }
        // When none is left, files are created instead of removed.
        assert_eq!(fresh.choose(Operation::Remove), (Operation::Create, SPARE_FILES + 5000));
        fresh.created(SPARE_FILES + 7);
        assert_eq!(fresh.choose(Operation::Remove), (Operation::Remove, SPARE_FILES + 7));
        assert_eq!(fresh.choose(Operation::Remove), (Operation::Create, SPARE_FILES + 5001));
    }

    #[test]
    fn ranges_lie_in_their_files() {
        let mut source = Distribution::default();
        source.record(100_000);
        let set = FileSet::new(&source, 10, 1 << 20, 10, 1).unwrap();
        let aim = |place| Aim { file: 3, place, fresh: 0 };
        let starts: Vec<_> = (0..4).map(|place| range(&set, aim(place), 1 << 15)).collect();
        assert_eq!(starts, [0..32_768, 32_768..65_536, 65_536..98_304, 98_304..100_000]);
        assert_eq!(range(&set, aim(5), 1 << 20), 0..100_000);
    }

    #[test]
    fn wrong_content_is_seen() {
        assert!(is_right(b"", b"") && is_right(b"abc", b"abc"));
        assert!(!is_right(b"abc", b"abd") && !is_right(b"abc", b"ab") && !is_right(b"", b"a"));
        assert!(!is_right(b"0123456789abcdef", b"x123456789abcdef"));
    }
}
