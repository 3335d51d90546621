//! Random operations on a store, as plain data determined by a seed.
//!
//! There are few keys, so that they recur: overwritten, removed, linked, restored. Sizes are near the limits of the
//! format. A store must accept every operation: nothing is stored below a file or over a directory, only empty
//! directories are removed, links refer to shared files. (Other tests cover what a store must refuse.)

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::state::State;
use crate::random::Random;
use crate::{Attributes, Holes, Key, Time};

/// When a batch becomes durable: as `store::Durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Each change, when its call returns.
    Each,
    /// The batch, when it is committed.
    Batch,
    /// With the next sync.
    None,
}

/// Bytes, as a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// Their seed.
    pub(crate) seed: u64,
    /// Their number.
    pub(crate) length: usize,
}

impl Recipe {
    /// The bytes: random, or compressible for every other seed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        if self.seed.is_multiple_of(2) {
            return random.bytes(self.length);
        }
        let phrase = random.bytes(61);
        phrase.iter().cycle().take(self.length).copied().collect()
    }
}

/// A change that a batch makes.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A file. With holes in the attributes, the recipe describes the data between.
    Put(Key, Attributes, Recipe),
    /// A file with chosen content.
    Planted(Key, Attributes, Arc<[u8]>),
    /// A file that may get other names, with its first.
    Shared(Key, Attributes, Recipe),
    /// The second name for the shared file that has the first.
    Link(Key, Key),
    /// A directory, or other attributes for one.
    Directory(Key, Attributes),
    /// A symlink with this target.
    Symlink(Key, Attributes, Vec<u8>),
    /// A fifo or device with these numbers.
    Special(Key, Attributes, u32, u32),
    /// Renames the first to the second, replacing that.
    Rename(Key, Key),
    /// Exchanges the names of two objects.
    Exchange(Key, Key),
    /// A second name for a file that may have only one.
    HardLink(Key, Key),
    /// Other attributes for an existing object.
    Attributes(Key, Attributes),
    /// Bytes written at an offset of an open file.
    Write(Key, u64, Recipe),
    /// Another length for an open file.
    Resize(Key, u64),
    /// Removes anything but a directory.
    Remove(Key),
    /// Removes an empty directory.
    RemoveDirectory(Key),
    /// Removes an object and everything below it.
    RemoveTree(Key),
    /// Takes a snapshot with a name.
    Snapshot(Key),
    /// Removes the snapshot with a name.
    RemoveSnapshot(Key),
}

impl Change {
    /// The key that it changes.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Change::Put(key, ..)
            | Change::Planted(key, ..)
            | Change::Shared(key, ..)
            | Change::Link(_, key)
            | Change::Rename(_, key)
            | Change::Exchange(_, key)
            | Change::HardLink(_, key)
            | Change::Directory(key, _)
            | Change::Symlink(key, ..)
            | Change::Special(key, ..)
            | Change::Attributes(key, _)
            | Change::Write(key, ..)
            | Change::Resize(key, _)
            | Change::Remove(key)
            | Change::RemoveDirectory(key)
            | Change::RemoveTree(key)
            | Change::Snapshot(key)
            | Change::RemoveSnapshot(key) => key,
        }
    }
}

/// An operation on a store.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// A batch.
    Batch(Durability, Vec<Change>),
    /// Makes everything durable.
    Sync,
    /// Frees space.
    Compact,
    /// Closes and opens again.
    Reopen,
}

/// The pieces of a batch, each of which a store commits atomically: it ends one before it examines a directory to be
/// removed, and before it removes what is still pending. A change that refers to existing objects is a piece by itself.
pub(crate) fn pieces(durability: Durability, changes: &[Change]) -> Vec<&[Change]> {
    let (mut pieces, mut start, mut waiting) = (Vec::new(), 0, BTreeSet::new());
    for (at, change) in changes.iter().enumerate() {
        let names = |change: &Change| {
            use Change::{Attributes, Exchange, HardLink, RemoveSnapshot, Rename, Snapshot};
            let is_of_names = matches!(change, Rename(..) | Exchange(..) | HardLink(..) | Attributes(..));
            let is_by_itself =
                matches!(change, Snapshot(_) | RemoveSnapshot(_) | Change::Write(..) | Change::Resize(..));
            is_of_names || is_by_itself
        };
        let ends = match change {
            _ if durability == Durability::Each || names(change) => true,
            _ if at > 0 && names(&changes[at - 1]) => true,
            Change::RemoveTree(_) | Change::RemoveDirectory(_) => true,
            Change::Remove(key) => waiting.contains(key),
            _ => false,
        };
        if ends && at > start {
            pieces.push(&changes[start..at]);
            start = at;
            waiting.clear();
        }
        waiting.insert(change.key());
    }
    if start < changes.len() {
        pieces.push(&changes[start..]);
    }
    pieces
}

/// Generates operations. It follows their effect on the state, so that a store must accept each of them.
#[derive(Debug)]
pub(crate) struct Generator {
    random: Random,
    state: State,
    next_shared: u64,
    lengths: Vec<usize>,
}

impl Generator {
    /// Operations from `seed`, on an empty store, with objects up to `cutoff_bytes` as records and a few larger ones,
    /// up to `largest_bytes`.
    pub(crate) fn new(seed: u64, cutoff_bytes: usize, largest_bytes: usize) -> Generator {
        Generator::of(seed, cutoff_bytes, largest_bytes, State::default())
    }

    /// As [`new`](Self::new), on a store with this state.
    pub(crate) fn of(seed: u64, cutoff_bytes: usize, largest_bytes: usize, state: State) -> Generator {
        let around = |at: usize| [at.saturating_sub(1), at, at + 1];
        let bounds = [1, 4096, 8192, cutoff_bytes, cutoff_bytes + 4096, largest_bytes - 1];
        let lengths = bounds.into_iter().flat_map(around).filter(|&length| length <= largest_bytes).collect();
        let next_shared = state.next_shared();
        Generator { random: Random::new(seed), state, next_shared, lengths }
    }

    /// The next operation.
    pub(crate) fn operation(&mut self) -> Operation {
        match self.random.below(20) {
            0..2 => return Operation::Sync,
            2 => return Operation::Compact,
            3 => return Operation::Reopen,
            _ => {}
        }
        let durability = *self.random.pick(&[Durability::Each, Durability::Batch, Durability::Batch, Durability::None]);
        Operation::Batch(durability, self.changes())
    }

    /// The changes of a batch.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let count = *self.random.pick(&[1, 1, 2, 3, 5, 9]);
        (0..count).map(|_| self.any_that_is_taken()).collect()
    }

    /// A few files with lengths in a range.
    pub(crate) fn puts(&mut self, lengths: Range<usize>) -> Vec<Change> {
        let count = 1 + self.random.index(4);
        let mut changes = Vec::new();
        for _ in 0..count {
            let length = lengths.start + self.random.index(lengths.len());
            let recipe = Recipe { seed: self.random.any(), length };
            let attributes = self.attributes(0o100_000);
            changes.extend(self.put(attributes, recipe));
        }
        changes
    }

    /// The removal of an existing object, or else a file.
    pub(crate) fn removal(&mut self, of_tree: bool) -> Vec<Change> {
        for _ in 0..50 {
            let key = self.there();
            let change = if of_tree { Change::RemoveTree(key) } else { Change::Remove(key) };
            if self.state.takes(&change) {
                return vec![change];
            }
        }
        self.puts(1..100)
    }

    /// Another name for an existing object, or else a file.
    pub(crate) fn rename(&mut self) -> Vec<Change> {
        for _ in 0..50 {
            let change = self.any_name();
            if self.state.takes(&change) {
                return vec![change];
            }
        }
        self.puts(1..100)
    }

    /// Two directories, one in the other; or, if they exist, the inner one is moved out of the outer one, and that into
    /// it.
    pub(crate) fn crossing(&mut self) -> Vec<Change> {
        let key = |path: &str| Key::parse(path).expect("a path");
        for (one, other) in [("one", "other"), ("other", "one")] {
            let inner = format!("{one}/{other}");
            let renames = [Change::Rename(key(&inner), key(other)), Change::Rename(key(other), key(&inner))];
            if let Some(change) = renames.into_iter().find(|change| self.state.takes(change)) {
                return vec![change];
            }
        }
        let files = ["one/1", "one/other/2"].map(key);
        files.map(|key| Change::Put(key, self.attributes(0o100_000), self.recipe())).to_vec()
    }

    /// A snapshot, or the removal of an existing one.
    pub(crate) fn snapshot(&mut self) -> Vec<Change> {
        let key = Key::parse(self.random.pick(&["monday", "tuesday", "wednesday"])).expect("a name");
        let is_there = self.state.snapshots().any(|(name, _)| *name == key);
        vec![if is_there { Change::RemoveSnapshot(key) } else { Change::Snapshot(key) }]
    }

    /// An existing file is written to or gets another length, or else a file.
    pub(crate) fn write(&mut self) -> Vec<Change> {
        for _ in 0..50 {
            let change = self.any_write();
            if self.state.takes(&change) {
                return vec![change];
            }
        }
        self.puts(1..100)
    }

    fn any_write(&mut self) -> Change {
        let key = self.there();
        let lengths = [self.state.length(&key), *self.random.pick(&self.lengths) as u64];
        let around = *self.random.pick(&lengths);
        let at = if self.random.happens(1, 3) { around } else { self.random.below(around + 1) };
        if self.random.happens(1, 4) {
            return Change::Resize(key, at);
        }
        let length = 1 + self.random.index(6000);
        Change::Write(key, at, Recipe { seed: self.random.any(), length })
    }

    /// A file with this content.
    pub(crate) fn planted(&mut self, content: Arc<[u8]>) -> Vec<Change> {
        let attributes = self.attributes(0o100_000);
        let recipe = Recipe { seed: 0, length: 0 };
        let put = self.put(attributes, recipe);
        let planted = |change| match change {
            Change::Put(key, attributes, _) => Change::Planted(key, attributes, Arc::clone(&content)),
            other => other,
        };
        put.map(planted).into_iter().collect()
    }

    fn put(&mut self, attributes: Attributes, recipe: Recipe) -> Option<Change> {
        let keys = (0..50).map(|_| self.key()).collect::<Vec<_>>();
        let mut changes = keys.into_iter().map(|key| Change::Put(key, attributes.clone(), recipe));
        let change = changes.find(|change| self.state.takes(change))?;
        self.state.apply(&change, 0);
        Some(change)
    }

    fn any_that_is_taken(&mut self) -> Change {
        let change = self.change();
        self.state.apply(&change, self.next_shared);
        self.next_shared += 1;
        change
    }

    fn change(&mut self) -> Change {
        for _ in 0..50 {
            let change = self.any_change();
            if self.state.takes(&change) {
                return change;
            }
        }
        let key = Key::parse("always").expect("a key");
        Change::Put(key, self.attributes(0o100_000), self.recipe())
    }

    fn any_change(&mut self) -> Change {
        match self.random.below(45) {
            32..40 => self.any_name(),
            40..42 => self.snapshot().remove(0),
            42.. => self.any_write(),
            0..14 => {
                let mut attributes = self.attributes(0o100_000);
                let mut recipe = self.recipe();
                if self.random.happens(1, 8) {
                    let holes = self.holes();
                    recipe.length = holes.data.iter().map(|(_, length)| *length as usize).sum();
                    attributes.holes = Some(holes);
                }
                Change::Put(self.key(), attributes, recipe)
            }
            14..16 => Change::Shared(self.key(), self.attributes(0o100_000), self.recipe()),
            16..19 => {
                let shared: Vec<Key> = self.state.shared_names().cloned().collect();
                if shared.is_empty() {
                    return Change::Shared(self.key(), self.attributes(0o100_000), self.recipe());
                }
                Change::Link(self.random.pick(&shared).clone(), self.key())
            }
            19..22 => Change::Directory(self.key(), self.attributes(0o040_000)),
            22 => {
                let length = 1 + self.random.index(200);
                Change::Symlink(self.key(), self.attributes(0o120_000), vec![b't'; length])
            }
            23 => Change::Special(self.key(), self.attributes(0o020_000), self.random.below(9) as u32, 7),
            24..28 => Change::Remove(self.there()),
            28..30 => Change::RemoveDirectory(self.there()),
            _ => Change::RemoveTree(self.there()),
        }
    }

    fn any_name(&mut self) -> Change {
        match self.random.below(8) {
            6..8 => Change::Attributes(self.there(), self.attributes(0)),
            0..3 => Change::Rename(self.there(), self.key()),
            3 => Change::Rename(self.there(), self.there()),
            4 => Change::Exchange(self.there(), self.there()),
            _ => Change::HardLink(self.there(), self.key()),
        }
    }

    /// One of 84 keys up to three deep; siblings differ in a byte that sorts before the separator of paths.
    fn key(&mut self) -> Key {
        const NAMES: [&[u8]; 4] = [b"a", b"a-b", b"\xff\x01", b"long name with spaces"];
        let mut path = Vec::new();
        for _ in 0..=self.random.below(3) {
            path.push(b'/');
            path.extend_from_slice(NAMES[self.random.index(NAMES.len())]);
        }
        Key::parse(path).expect("names without NUL")
    }

    /// An existing key, or any if there is none.
    fn there(&mut self) -> Key {
        let keys: Vec<Key> = self.state.objects().map(|(key, _)| key.clone()).collect();
        if keys.is_empty() { self.key() } else { self.random.pick(&keys).clone() }
    }

    fn recipe(&mut self) -> Recipe {
        let length = match self.random.below(8) {
            0 => 0,
            1..6 => self.random.index(3000),
            _ => *self.random.pick(&self.lengths),
        };
        Recipe { seed: self.random.any(), length }
    }

    fn time(&mut self) -> Time {
        let seconds = *self.random.pick(&[0, 1, -1, 1_700_000_000, (1 << 39) - 1, -(1 << 39)]);
        Time { seconds, nanoseconds: self.random.below(1_000_000_000) as u32 }
    }

    fn attributes(&mut self, kind: u16) -> Attributes {
        let mode = kind | self.random.below(0o10000) as u16;
        let (uid, gid) = (*self.random.pick(&[0, 1000, u32::MAX]), self.random.below(3) as u32);
        let mtime = self.time();
        let atime = self.random.happens(1, 3).then(|| self.time());
        let mut xattrs = Vec::new();
        for name in ["user.a", "user.b"] {
            if self.random.happens(1, 8) {
                let length = self.random.index(100);
                xattrs.push((name.as_bytes().to_vec(), self.random.bytes(length)));
            }
        }
        // Some objects have given change and birth times.
        let given = |one_in: u32| {
            let (seconds, nanoseconds) = (mtime.seconds / i64::from(one_in), mtime.nanoseconds / one_in);
            mtime.nanoseconds.is_multiple_of(one_in).then_some(Time { seconds, nanoseconds })
        };
        Attributes { mode, uid, gid, mtime, ctime: given(2), btime: given(3), atime, xattrs, holes: None }
    }

    /// Up to three runs of data, with holes between and perhaps at both ends.
    fn holes(&mut self) -> Holes {
        let (mut at, mut data) = (0, Vec::new());
        for _ in 0..self.random.below(4) {
            let offset = at + 1 + self.random.below(9000);
            let length = 1 + self.random.below(5000);
            data.push((offset, length));
            at = offset + length;
        }
        Holes { size_bytes: at + self.random.below(9000), data }
    }
}

/// The bytes of a file for a reader: data, and zeroes in the holes.
pub(crate) fn spread(holes: Option<&Holes>, data: Vec<u8>) -> Arc<[u8]> {
    let Some(holes) = holes else { return data.into() };
    let mut bytes = vec![0; holes.size_bytes as usize];
    let mut rest = &data[..];
    for &(offset, length) in &holes.data {
        let (run, behind) = rest.split_at(length as usize);
        bytes[offset as usize..(offset + length) as usize].copy_from_slice(run);
        rest = behind;
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_operations_and_all_kinds_of_them() {
        let operations = |seed| {
            let mut generator = Generator::new(seed, 16_384, 100_000);
            (0..300).map(|_| generator.operation()).collect::<Vec<_>>()
        };
        let (one, again) = (operations(1), operations(1));
        assert_eq!(format!("{one:?}"), format!("{again:?}"));
        let mut kinds = BTreeSet::new();
        let (mut largest, mut empty) = (0, false);
        for operation in one {
            match operation {
                Operation::Batch(durability, changes) => {
                    kinds.insert(format!("{durability:?}"));
                    for change in changes {
                        kinds.insert(format!("{change:?}").split('(').next().unwrap().to_owned());
                        if let Change::Put(_, attributes, recipe) = change {
                            kinds.insert(format!("holes {}", attributes.holes.is_some()));
                            largest = largest.max(recipe.length);
                            empty |= recipe.length == 0;
                            assert_eq!(recipe.bytes().len(), recipe.length);
                        }
                    }
                }
                other => _ = kinds.insert(format!("{other:?}")),
            }
        }
        assert_eq!(kinds.len(), 3 + 17 + 2 + 3, "{kinds:?}");
        assert!(largest >= 99_998 && empty, "{largest}");
    }

    #[test]
    fn a_batch_ends_a_piece_where_it_must_look_at_the_store() {
        let key = |path: &str| Key::parse(path).unwrap();
        let put = |path| Change::Put(key(path), Attributes::default(), Recipe { seed: 0, length: 0 });
        let changes =
            [put("a"), put("b"), Change::Remove(key("a")), Change::Remove(key("c")), Change::RemoveTree(key("d"))];
        let lengths = |durability| pieces(durability, &changes).iter().map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(lengths(Durability::Batch), [2, 2, 1]);
        assert_eq!(lengths(Durability::Each), [1; 5]);
        assert!(pieces(Durability::None, &[]).is_empty());
    }

    #[test]
    fn holes_are_zeroes() {
        let holes = Holes { size_bytes: 9, data: vec![(1, 2), (4, 3)] };
        assert_eq!(*spread(Some(&holes), b"abcde".to_vec()), *b"\0ab\0cde\0\0");
        assert_eq!(*spread(None, b"abc".to_vec()), *b"abc");
    }
}
