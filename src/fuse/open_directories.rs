//! Open directories: listings that stream, and continue where they were.
//!
//! A listing is a walk through the index in the order of names, so it returns each entry once, whatever is created and
//! removed meanwhile. A position is the number of entries before it. Every so many entries the name there is noted: a
//! listing that goes back continues from the last note before its position.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::store::ids::ObjectNumber;
use crate::store::{Listed, Walk};

/// Entries from one note to the next.
pub(super) const NOTED: u64 = 512;

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
    pub(super) walk: Option<Walk>,
    /// Number of changes of the store before the walk began.
    pub(super) changes: u64,
    /// Position of the walk, in entries.
    pub(super) at: u64,
    /// The entry before that position.
    pub(super) last: Box<[u8]>,
    /// The entry at that position, if it was read and not returned.
    pub(super) next: Option<Listed>,
    /// Names at multiples of [`NOTED`], from the first one after the beginning on.
    pub(super) notes: Vec<Box<[u8]>>,
}

impl OpenDirectories {
    pub(super) fn open(&mut self, directory: ObjectNumber) -> u64 {
        self.last += 1;
        let (walk, last, next, notes) = (None, Box::default(), None, Vec::new());
        let listing = Listing { directory, walk, changes: 0, at: 0, last, next, notes };
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
    /// The note to begin at for a position: the position of the note, and its name.
    pub(super) fn note_before(&self, position: u64) -> (u64, &[u8]) {
        let notes = self.notes.len() as u64;
        match (position / NOTED).min(notes) {
            0 => (0, &[]),
            note => (note * NOTED, self.notes.get(note as usize - 1).map_or(&[], |name| name)),
        }
    }

    /// Notes the name of the entry at a position, if one is due there.
    pub(super) fn note(&mut self, position: u64, name: &[u8]) {
        if position > 0 && position.is_multiple_of(NOTED) && position / NOTED == self.notes.len() as u64 + 1 {
            self.notes.push(name.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_back_to_the_note_before() {
        let mut open = OpenDirectories::default();
        let handle = open.open(ObjectNumber(7));
        let listing = open.get(handle).unwrap();
        let mut listing = listing.lock().unwrap();
        for position in 0..2 * NOTED + 5 {
            listing.note(position, position.to_string().as_bytes());
        }
        assert_eq!(listing.note_before(NOTED - 1), (0, &b""[..]));
        assert_eq!(listing.note_before(NOTED), (NOTED, NOTED.to_string().as_bytes()));
        assert_eq!(listing.note_before(u64::MAX), (2 * NOTED, (2 * NOTED).to_string().as_bytes()));
        open.close(handle);
        assert!(open.get(handle).is_none());
    }
}
