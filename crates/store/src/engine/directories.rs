//! Directories that are known to be there: objects of a batch lie in few, and each would be looked up in tables for every batch.
//!
//! What is here is in the state that the writer's next batch is built on. A change that says anything else about a key takes it out,
//! and it may be forgotten at any time.

use hashbrown::HashSet;

use crate::format::entry::Kind;
use crate::index::catalog::Change;

/// Keys of so many bytes are kept at most.
const MOST_BYTES: usize = 1 << 20;
/// What a key takes besides its bytes, about.
const KEY_BYTES: usize = 32;

/// Keys of directories.
#[derive(Debug, Default)]
pub(crate) struct KnownDirectories {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
}

impl KnownDirectories {
    /// Whether it is known that this is a directory.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// This is a directory.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.bytes + key.len() + KEY_BYTES > MOST_BYTES {
            self.clear();
        }
        if self.keys.insert(key.into()) {
            self.bytes += key.len() + KEY_BYTES;
        }
    }

    /// Forgets all that a change makes something else of, or may.
    pub(crate) fn take_in(&mut self, change: &Change) {
        if self.keys.is_empty() {
            return;
        }
        if change.ranges.is_some() {
            self.clear();
        }
        let others = change.recent.iter().filter(|(_, entry)| entry.kind != Kind::Directory).map(|(key, _)| key);
        for key in others.chain(&change.forget) {
            if self.keys.remove(&**key) {
                self.bytes -= key.len() + KEY_BYTES;
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = KnownDirectories::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::{Entry, Location};
    use crate::index::catalog::RangeRow;

    #[test]
    fn what_changes_is_forgotten_and_the_rest_stays() {
        let mut known = KnownDirectories::default();
        for key in [&b"a"[..], b"b", b"c", b"d"] {
            known.add(key);
        }
        let place = Location { segment: 1, offset: 80, record_bytes: 80 };
        let removal = Entry::removal(9, place);
        let directory = Entry { kind: Kind::Directory, ..removal };
        let recent = vec![(b"a"[..].into(), removal), (b"b"[..].into(), directory)];
        known.take_in(&Change { recent, forget: vec![b"c"[..].into()], ..Change::default() });
        let has = |known: &KnownDirectories| [&b"a"[..], b"b", b"c", b"d"].map(|key| known.has(key));
        assert_eq!(has(&known), [false, true, false, true]);
        let ranges = Some(vec![RangeRow { key: b"x".to_vec(), id: 9 }]);
        known.take_in(&Change { ranges, ..Change::default() });
        assert_eq!(has(&known), [false; 4], "what lies below a removed tree is not looked for");
    }

    #[test]
    fn it_does_not_grow() {
        let mut known = KnownDirectories::default();
        for number in 0..100_000u32 {
            known.add(&number.to_be_bytes());
            assert!(known.has(&number.to_be_bytes()));
        }
        assert!(known.bytes <= MOST_BYTES && known.keys.len() <= MOST_BYTES / KEY_BYTES);
    }
}
