//! Directories known to exist, by the number of the parent and their name: this avoids a look-up in tables for every
//! object in them.
//!
//! Everything here is in the view. A change with another entry for the name evicts it, and it may be forgotten at any
//! time.

use hashbrown::{Equivalent, HashMap};

use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT, entry_of_key};
use crate::index::catalog::Change;

/// Maximum memory in bytes.
const MOST_BYTES: usize = 4 << 20;
/// Approximate memory of a directory besides its name.
const DIRECTORY_BYTES: usize = 48;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    above: ObjectNumber,
    name: Box<[u8]>,
}

#[derive(Debug, Hash)]
struct NameRef<'n> {
    above: ObjectNumber,
    name: &'n [u8],
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.above == name.above && self.name == &*name.name
    }
}

/// Numbers of directories.
#[derive(Debug, Default)]
pub(crate) struct KnownDirectories {
    numbers: HashMap<Name, ObjectNumber>,
    bytes: usize,
}

impl KnownDirectories {
    /// The number of the directory `name` in `above`, if known.
    pub(crate) fn get(&self, above: ObjectNumber, name: &[u8]) -> Option<ObjectNumber> {
        self.numbers.get(&NameRef { above, name }).copied()
    }

    /// The number of the directory with a path, if all of the path is known.
    pub(crate) fn directory(&self, path: &[u8]) -> Option<ObjectNumber> {
        let mut names = path.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        names.try_fold(ROOT, |above, name| self.get(above, name))
    }

    /// Records the number of a directory in another.
    pub(crate) fn add(&mut self, above: ObjectNumber, name: &[u8], number: ObjectNumber) {
        if self.bytes + name.len() + DIRECTORY_BYTES > MOST_BYTES {
            self.clear();
        }
        if self.numbers.insert(Name { above, name: name.into() }, number).is_none() {
            self.bytes += name.len() + DIRECTORY_BYTES;
        }
    }

    /// Applies a change of entries. What was in a removed tree is not requested again, because numbers are not reused;
    /// but what was in the root may be.
    pub(crate) fn take_in(&mut self, change: &Change) {
        if self.numbers.is_empty() {
            return;
        }
        if change.ranges.iter().flatten().any(|row| row.directory == ROOT) {
            return self.clear();
        }
        for (key, entry) in &change.recent {
            let Some((above, name)) = entry_of_key(key) else { continue };
            match entry.kind {
                Kind::Directory => {
                    if let Some(number) = self.numbers.get_mut(&NameRef { above, name }) {
                        *number = entry.number;
                    }
                }
                _ => self.forget(above, name),
            }
        }
        change.forget.iter().filter_map(|key| entry_of_key(key)).for_each(|(above, name)| self.forget(above, name));
    }

    fn forget(&mut self, above: ObjectNumber, name: &[u8]) {
        if self.numbers.remove(&NameRef { above, name }).is_some() {
            self.bytes -= name.len() + DIRECTORY_BYTES;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = KnownDirectories::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::{Entry, Location};
    use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
    use crate::format::index_key::{entry_key, object_key};
    use crate::index::catalog::RangeRow;

    #[test]
    fn what_changes_is_forgotten_and_the_rest_stays() {
        let mut known = KnownDirectories::default();
        for (number, name) in (10..).map(ObjectNumber).zip([&b"a"[..], b"b", b"c", b"d"]) {
            known.add(ROOT, name, number);
        }
        known.add(ObjectNumber(10), b"e", ObjectNumber(20));
        assert_eq!(
            (known.directory(b""), known.directory(b"a\0e"), known.directory(b"a\0x")),
            (Some(ROOT), Some(ObjectNumber(20)), None)
        );
        let place = Location { segment: SegmentNumber(1), offset: LogOffset(80), record_bytes: 80 };
        let removal = Entry::removal(9, place);
        let directory = Entry { kind: Kind::Directory, number: ObjectNumber(30), ..removal };
        let key = |name| entry_key(ROOT, name);
        let recent = vec![
            (key(b"a").into(), removal),
            (key(b"b").into(), directory),
            (object_key(ObjectNumber(10))[..].into(), directory),
            (key(b"new").into(), directory),
        ];
        known.take_in(&Change { recent, forget: vec![key(b"c").into()], ..Change::default() });
        let numbers = [&b"a"[..], b"b", b"c", b"d", b"new"].map(|name| known.get(ROOT, name));
        assert_eq!(numbers, [None, Some(ObjectNumber(30)), None, Some(ObjectNumber(13)), None]);
        assert_eq!((known.get(ObjectNumber(10), b"e"), known.directory(b"a\0e")), (Some(ObjectNumber(20)), None));
        assert_eq!(known.bytes, known.numbers.keys().map(|name| name.name.len() + DIRECTORY_BYTES).sum::<usize>());
    }

    #[test]
    fn nothing_is_known_of_a_root_that_was_emptied() {
        let mut known = KnownDirectories::default();
        known.add(ROOT, b"a", ObjectNumber(10));
        known.take_in(&Change {
            ranges: Some(vec![RangeRow { directory: ObjectNumber(5), id: 9 }]),
            ..Change::default()
        });
        assert_eq!(known.get(ROOT, b"a"), Some(ObjectNumber(10)));
        known.take_in(&Change { ranges: Some(vec![RangeRow { directory: ROOT, id: 9 }]), ..Change::default() });
        assert_eq!((known.get(ROOT, b"a"), known.bytes), (None, 0));
    }

    #[test]
    fn it_does_not_grow() {
        let mut known = KnownDirectories::default();
        for number in (0..200_000).map(ObjectNumber) {
            known.add(ROOT, &number.0.to_be_bytes(), number);
            assert_eq!(known.get(ROOT, &number.0.to_be_bytes()), Some(number));
        }
        assert!(known.bytes <= MOST_BYTES && known.numbers.len() <= MOST_BYTES / DIRECTORY_BYTES);
    }
}
