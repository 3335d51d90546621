//! Paths in the index: from the root down, one look-up per name, and from a directory up.
//!
//! A path is the stored form of a key: names separated by zero bytes. Upwards, only an entry says where a directory is:
//! a caller that needs many paths collects all directories once ([`Ways`]), at 26 bytes and a name for each, and 6 more
//! for each that has entries: a million of them in 40 MB.

use std::cmp::Reverse;
use std::ops::Bound;

use super::{Scan, Snapshot};
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{
    ROOT, ROOT_KEY, entries_of, entry_key, entry_of_key, first_object, object_of, object_of_attributes,
};
use crate::format::key::{Key, shared_number, split};
use crate::units::escape;

impl Snapshot {
    /// The number of the directory with a path; `None` if there is no such directory. A key that begins at a directory
    /// with a number says so itself.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn directory(&self, path: &[u8]) -> Result<Option<ObjectNumber>> {
        self.directory_with(path, &mut |_, _, _| {})
    }

    /// As [`directory`](Self::directory); `met` is called for each directory below the root on the path, as far as it
    /// exists, with its number, that of its parent, and its name there.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn directory_with(
        &self,
        path: &[u8],
        met: &mut dyn FnMut(ObjectNumber, ObjectNumber, &[u8]),
    ) -> Result<Option<ObjectNumber>> {
        if let Some(number) = shared_number(path) {
            return Ok(Some(number));
        }
        let mut number = ROOT;
        // The root's path is empty.
        for name in path.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match self.look_up(&entry_key(number, name))? {
                Some(entry) if entry.kind == Kind::Directory => {
                    met(entry.number, number, name);
                    number = entry.number;
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(number))
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub(crate) fn entries_of(&self, directory: ObjectNumber) -> Result<Scan> {
        let (from, to) = entries_of(directory);
        self.scan(Bound::Included(&from), Bound::Excluded(&to))
    }

    /// The entry for a path.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub(crate) fn look_up_path(&self, path: &[u8]) -> Result<Option<Entry>> {
        let Some((above, name)) = split(path) else { return self.look_up(ROOT_KEY) };
        match self.directory(above)? {
            Some(directory) => self.look_up(&entry_key(directory, name)),
            None => Ok(None),
        }
    }
}

/// A number of 48 bits, to save memory; big-endian, so that the byte order is the numeric order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packed([u8; 6]);

impl Packed {
    /// `None` if the number is too large, as in a damaged index.
    fn of(number: u64) -> Option<Packed> {
        match number.to_be_bytes() {
            [0, 0, number @ ..] => Some(Packed(number)),
            _ => None,
        }
    }

    fn of_object(number: ObjectNumber) -> Option<Packed> {
        Packed::of(number.0)
    }

    fn object(self) -> ObjectNumber {
        ObjectNumber(self.get())
    }

    fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

/// A directory, by its number.
#[derive(Debug)]
struct Way {
    number: Packed,
    above: Packed,
    /// Id of the record that places it there.
    id: Packed,
    name_at: Packed,
    name_bytes: [u8; 2],
}

/// The directory that contains an entry, and its name there.
pub(crate) type EntryPlace = (ObjectNumber, Vec<u8>);

/// The places of all directories of a state.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// By number, newest first; sorted by [`settle`](Self::settle).
    directories: Vec<Way>,
    names: Vec<u8>,
    /// Directories with entries.
    filled: Vec<Packed>,
}

impl Ways {
    /// The directories of a state.
    ///
    /// # Errors
    /// As [`Snapshot::scan_from`].
    pub(crate) fn of(snapshot: &Snapshot) -> Result<Ways> {
        let mut ways = Ways::default();
        let mut scan = snapshot.scan_from(&entry_key(ROOT, &[]))?;
        while let Some((key, entry)) = scan.next_entry()? {
            if key >= &first_object()[..] {
                break;
            }
            ways.add(key, entry);
        }
        ways.settle();
        Ok(ways)
    }

    /// Adds an entry of the index, in key order; entries that are not directories are skipped.
    pub(crate) fn add(&mut self, key: &[u8], entry: &Entry) {
        let Some((above, name)) = entry_of_key(key).filter(|&(above, _)| above >= ROOT) else { return };
        let Some(above) = Packed::of_object(above) else { return };
        if self.filled.last() != Some(&above) {
            self.filled.push(above);
        }
        if entry.kind == Kind::Directory {
            let way = self.way_of(above, name, entry);
            self.directories.extend(way);
        }
    }

    /// A directory's place; stores its name.
    fn way_of(&mut self, above: Packed, name: &[u8], entry: &Entry) -> Option<Way> {
        let (number, id) = (Packed::of_object(entry.number)?, Packed::of(entry.id)?);
        let name_at = Packed::of(self.names.len() as u64)?;
        let name_bytes = u16::try_from(name.len()).ok()?.to_be_bytes();
        self.names.extend_from_slice(name);
        Some(Way { number, above, id, name_at, name_bytes })
    }

    /// Called once all entries are added.
    pub(crate) fn settle(&mut self) {
        self.directories.sort_unstable_by_key(|way| (way.number, Reverse(way.id)));
    }

    /// The newest entry of a directory.
    fn way(&self, number: Packed) -> Option<&Way> {
        self.directories.get(self.place(number)?)
    }

    /// Its position among the entries.
    fn place(&self, number: Packed) -> Option<usize> {
        let at = self.directories.partition_point(|way| way.number < number);
        self.directories.get(at).filter(|way| way.number == number).map(|_| at)
    }

    fn name(&self, way: &Way) -> &[u8] {
        let names = self.names.get(way.name_at.get() as usize..);
        names.and_then(|names| names.get(..u16::from_be_bytes(way.name_bytes).into())).unwrap_or_default()
    }

    /// The path of an entry; `None` if its directory cannot be reached from the root.
    pub(crate) fn path(&self, directory: ObjectNumber, name: &[u8]) -> Option<Key> {
        let mut names = vec![name];
        let mut above = Packed::of_object(directory)?;
        while above.object() != ROOT {
            let way = self.way(above).filter(|_| names.len() <= self.directories.len())?;
            names.push(self.name(way));
            above = way.above;
        }
        let mut key = Key::root();
        names.iter().rev().filter(|name| !name.is_empty()).for_each(|name| key.push(name));
        Some(key)
    }

    /// What the entry of an index key is, in words: its path, escaped; "shared file N" for a file with several names;
    /// "NAME in directory N" if the directory has no path in the index; and what has the attributes of one of these.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<String> {
        match (object_of(key), entry_of_key(key)) {
            (Some(number), _) => Some(format!("shared file {number}")),
            (None, Some((directory, name))) => Some(match self.path(directory, name) {
                Some(path) => path.to_string(),
                None => format!("{} in directory {directory}", escape(name)),
            }),
            (None, None) => {
                self.name_of(&object_of_attributes(key)?).map(|object| format!("the attributes of {object}"))
            }
        }
    }

    /// Directories that have entries but are no entry themselves. Directories below them are not included.
    pub(crate) fn detached(&self) -> Vec<ObjectNumber> {
        let is_detached = |directory: &&Packed| directory.object() != ROOT && self.way(**directory).is_none();
        self.filled.iter().filter(is_detached).map(|directory| directory.object()).collect()
    }

    /// Directories that contain each other and are not reachable otherwise: of each cycle the one with the oldest
    /// entry.
    pub(crate) fn circles(&self) -> Vec<ObjectNumber> {
        // For each entry, the path to the root on which it was visited, by the entry where that began; 0: not visited
        // yet.
        let mut passed = vec![0_u32; self.directories.len()];
        let mut oldest = Vec::new();
        for (start, way) in (1..).zip(&self.directories) {
            let mut at = self.place(way.number);
            while let Some((place, way)) = at.and_then(|at| Some((at, self.directories.get(at)?))) {
                match std::mem::replace(&mut passed[place], start) {
                    0 => at = self.place(way.above),
                    other => {
                        if other == start {
                            oldest.push(self.oldest_around(way).number.object());
                        }
                        break;
                    }
                }
            }
        }
        oldest
    }

    fn oldest_around<'w>(&'w self, start: &'w Way) -> &'w Way {
        let (mut oldest, mut way) = (start, start);
        while let Some(above) = self.way(way.above).filter(|above| above.number != start.number) {
            way = above;
            if way.id < oldest.id {
                oldest = way;
            }
        }
        oldest
    }

    /// Whether a directory is the same as another, or below it.
    pub(crate) fn is_within(&self, directory: ObjectNumber, other: ObjectNumber) -> bool {
        let (Some(mut at), Some(other)) = (Packed::of_object(directory), Packed::of_object(other)) else {
            return false;
        };
        for _ in 0..=self.directories.len() {
            match self.way(at).filter(|_| at != other) {
                Some(way) => at = way.above,
                None => return at == other,
            }
        }
        false
    }

    /// Directories with several entries: the number, and the places of the entries, newest first.
    pub(crate) fn doubled(&self) -> Vec<(ObjectNumber, Vec<EntryPlace>)> {
        let place = |way: &Way| (way.above.object(), self.name(way).to_vec());
        let groups = self.directories.chunk_by(|one, other| one.number == other.number).filter(|group| group.len() > 1);
        groups.map(|group| (group[0].number.object(), group.iter().map(place).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::Location;
    use crate::format::ids::{LogOffset, SegmentNumber};

    fn ways(directories: &[(u64, &str, u64, u64)], files: &[(u64, &str)]) -> Ways {
        let mut entries: Vec<(Vec<u8>, Entry)> = Vec::new();
        let place = Location { segment: SegmentNumber(1), offset: LogOffset(80), record_bytes: 80 };
        for &(above, name, number, id) in directories {
            let entry = Entry { kind: Kind::Directory, number: ObjectNumber(number), ..Entry::removal(id, place) };
            entries.push((entry_key(ObjectNumber(above), name.as_bytes()), entry));
        }
        for &(above, name) in files {
            let entry = Entry { kind: Kind::File, number: ObjectNumber(99), ..Entry::removal(99, place) };
            entries.push((entry_key(ObjectNumber(above), name.as_bytes()), entry));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut ways = Ways::default();
        entries.iter().for_each(|(key, entry)| ways.add(key, entry));
        ways.settle();
        ways
    }

    #[test]
    fn the_way_up_is_found_and_what_has_none_is_told() {
        let ways =
            ways(&[(ROOT.0, "a", 10, 10), (10, "b", 5, 11), (30, "c", 40, 12)], &[(5, "x"), (40, "y"), (30, "z")]);
        assert_eq!(ways.path(ObjectNumber(5), b"x").unwrap().to_string(), "a/b/x");
        assert_eq!(ways.path(ROOT, b"a").unwrap().to_string(), "a");
        assert_eq!(
            (ways.path(ObjectNumber(40), b"y"), ways.path(ObjectNumber(30), b"c"), ways.path(ObjectNumber(7), b"w")),
            (None, None, None)
        );
        assert_eq!((ways.detached(), ways.doubled()), (vec![ObjectNumber(30)], vec![]));
    }

    #[test]
    fn of_two_entries_of_a_directory_the_newer_counts() {
        let ways = ways(&[(ROOT.0, "new", 10, 21), (ROOT.0, "old", 10, 20)], &[(10, "x")]);
        assert_eq!(ways.path(ObjectNumber(10), b"x").unwrap().to_string(), "new/x");
        assert_eq!(
            (ways.detached(), ways.doubled()),
            (vec![], vec![(ObjectNumber(10), vec![(ROOT, b"new".to_vec()), (ROOT, b"old".to_vec())])])
        );
    }

    #[test]
    fn a_circle_of_directories_has_no_path() {
        let ways = ways(&[(11, "a", 10, 20), (10, "b", 11, 21)], &[(10, "x")]);
        assert_eq!((ways.path(ObjectNumber(10), b"x"), ways.circles()), (None, vec![ObjectNumber(10)]));
    }

    #[test]
    fn of_each_circle_the_oldest_entry_is_told_once() {
        // A cycle of three with two directories below it; a cycle of one; reachable directories, and one inside a lost
        // directory.
        let circle = [(12, "a", 10, 23), (10, "b", 11, 21), (11, "c", 12, 22), (12, "d", 13, 30), (13, "e", 14, 31)];
        let others = [(20, "self", 20, 40), (ROOT.0, "f", 30, 50), (30, "g", 31, 51), (99, "h", 40, 52)];
        let ways = ways(&[&circle[..], &others[..]].concat(), &[(14, "x")]);
        let mut circles = ways.circles();
        circles.sort_unstable();
        assert_eq!((circles, ways.detached()), (vec![ObjectNumber(11), ObjectNumber(20)], vec![ObjectNumber(99)]));
        let is_within = |directory, other| ways.is_within(ObjectNumber(directory), ObjectNumber(other));
        assert!(is_within(14, 11) && is_within(10, 12) && is_within(31, 30) && is_within(7, 7));
        assert!(!is_within(10, 13) && !is_within(30, 31) && !is_within(31, 20));
    }
}
