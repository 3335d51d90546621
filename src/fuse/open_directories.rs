//! Open directories: listings that stream, and continue where they were.
//!
//! A listing is a walk through the index in the order of names, so it returns each entry once, whatever is created and
//! removed meanwhile. A position is the number of names that it has come across before. It stays that of the same name
//! as long as the listing is not begun again: the names are kept, each as what differs from the one before, which takes
//! some ten bytes. So a listing that goes back, because a program does or because the kernel had no room for all it
//! got, continues behind the entry that it had then, whatever was removed or created before it since.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::store::ids::ObjectNumber;
use crate::store::{Listed, Walk};

/// Names from one that is kept whole to the next.
const BLOCK: u64 = 64;
/// Bytes of a length.
const LENGTH_BYTES: usize = size_of::<u16>();

/// The open directories, by the number that the kernel has.
#[derive(Debug, Default)]
pub(super) struct OpenDirectories {
    last: u64,
    open: HashMap<u64, Arc<Mutex<Listing>>>,
}

/// A listing in progress.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) directory: ObjectNumber,
    /// `None` if it must begin anew at its position.
    pub(super) walk: Option<Walk>,
    /// Number of changes of the store before the walk began.
    pub(super) changes: u64,
    /// Position of the walk.
    pub(super) at: u64,
    /// The entry at that position, if it was read and not returned.
    pub(super) next: Option<Listed>,
    /// Every name that it has come across, by position.
    pub(super) names: Names,
}

/// Names in ascending order.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of each name: the length of what it has in common with the one before, the length of the rest, and the rest.
    bytes: Vec<u8>,
    /// Where each first name of a block begins. It is whole.
    blocks: Vec<usize>,
    count: u64,
    last: Vec<u8>,
}

impl OpenDirectories {
    pub(super) fn open(&mut self, directory: ObjectNumber) -> u64 {
        self.last += 1;
        let (walk, next, names) = (None, None, Names::default());
        let listing = Listing { directory, walk, changes: 0, at: 0, next, names };
        self.open.insert(self.last, Arc::new(Mutex::new(listing)));
        self.last
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<Mutex<Listing>>> {
        self.open.get(&handle).cloned()
    }

    pub(super) fn close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }
}

impl Listing {
    /// Goes to the position of a name that the walk has met; false if it has none: it was created where the listing had
    /// been before.
    pub(super) fn reach(&mut self, name: &[u8]) -> bool {
        while let Some(known) = self.names.at(self.at) {
            match known[..].cmp(name) {
                // That one is gone.
                Ordering::Less => self.at += 1,
                Ordering::Equal => return true,
                Ordering::Greater => return false,
            }
        }
        true
    }

    /// Goes behind the name that was [reached](Self::reach).
    pub(super) fn leave(&mut self, name: &[u8]) {
        if self.at == self.names.count {
            self.names.push(name);
        }
        self.at += 1;
    }
}

impl Names {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a name, higher than all others.
    pub(super) fn push(&mut self, name: &[u8]) {
        let is_whole = self.count.is_multiple_of(BLOCK);
        let like =
            if is_whole { 0 } else { self.last.iter().zip(name).take_while(|(one, other)| one == other).count() };
        if is_whole {
            self.blocks.push(self.bytes.len());
        }
        let rest = &name[like..];
        for length in [like, rest.len()] {
            let length = u16::try_from(length).expect("a key has no more than 65,535 bytes");
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(rest);
        self.last.truncate(like);
        self.last.extend_from_slice(rest);
        self.count += 1;
    }

    /// The name at a position.
    pub(super) fn at(&self, position: u64) -> Option<Vec<u8>> {
        if position >= self.count {
            return None;
        }
        let mut bytes = self.bytes.get(*self.blocks.get((position / BLOCK) as usize)?..)?;
        let mut name = Vec::new();
        for _ in 0..=position % BLOCK {
            let (like, rest) = (take_length(&mut bytes)?, take_length(&mut bytes)?);
            name.truncate(like);
            name.extend_from_slice(bytes.split_off(..rest)?);
        }
        Some(name)
    }
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let length = bytes.split_off(..LENGTH_BYTES)?;
    Some(u16::from_le_bytes(*length.first_chunk()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_position_and_take_little() {
        let mut names = Names::default();
        let long = [b'n'; 255];
        let name = |at: u64| match at {
            0 => b"".to_vec(),
            1 => long.to_vec(),
            2 => [&long[..], b"n"].concat(),
            _ => format!("picture {at:06}.jpg").into_bytes(),
        };
        (0..1000).for_each(|at| names.push(&name(at)));
        assert_eq!(names.count(), 1000);
        (0..1000).for_each(|at| assert_eq!(names.at(at), Some(name(at)), "{at}"));
        assert_eq!((names.at(1000), Names::default().at(0)), (None, None));
        assert!(names.bytes.len() < 12_000, "{} bytes", names.bytes.len());
    }

    #[test]
    fn a_name_keeps_its_position_when_others_come_and_go() {
        let mut open = OpenDirectories::default();
        let handle = open.open(ObjectNumber(7));
        let listing = open.get(handle).unwrap();
        let mut listing = listing.lock().unwrap();
        for name in [b"b", b"d", b"f"] {
            assert!(listing.reach(name));
            listing.leave(name);
        }
        listing.at = 0;
        assert!(!listing.reach(b"a") && listing.at == 0, "it was created since");
        assert!(listing.reach(b"d") && listing.at == 1, "the one before is gone");
        listing.leave(b"d");
        assert!(!listing.reach(b"e") && listing.reach(b"g") && listing.at == 3);
        listing.leave(b"g");
        assert_eq!((listing.names.count(), listing.names.at(3)), (4, Some(b"g".to_vec())));
        open.close(handle);
        assert!(open.get(handle).is_none());
    }
}
