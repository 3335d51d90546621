//! Listing directories.
//!
//! With attributes, the kernel keeps what a listing returns, so it must be what there is now: after a change of the
//! store the walk begins again at the same name, and an entry that may have changed since is looked up.
//!
//! The kernel asks for every listing with attributes. Left to choose, it guesses from what a program has looked at so
//! far, and programs list much before they look: then each entry is a request of its own. But the kernel and `nodes`
//! remember what they got, so only the first entries of a large directory come with attributes.

use std::sync::MutexGuard;

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::{FileSystem, ROOT};
use super::live::DIRECTORY;
use super::open_directories::Listing;
use super::wire::reply::{Entries, Reply};
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Entry, Key, Kind, Listed};

/// `.` and `..` come before the entries.
const BEFORE_ENTRIES: u64 = 2;
/// Entries of a directory that are listed with attributes.
const MOST_WITH_ATTRIBUTES: u64 = 10_000;

impl FileSystem {
    pub(super) fn open_directory(&self, number: ObjectNumber) -> Outcome<Reply> {
        Ok(Reply::opened(lock(&self.directories).open(number), 0))
    }

    pub(super) fn release_directory(&self, handle: u64) -> Outcome<Reply> {
        lock(&self.directories).close(handle);
        Ok(Reply::empty())
    }

    /// Entries from a position on, as many as the answer has room for.
    pub(super) fn read_directory(
        &self,
        number: ObjectNumber,
        handle: u64,
        position: u64,
        most_bytes: u32,
        with_attributes: bool,
    ) -> Outcome<Reply> {
        let listing = lock(&self.directories).get(handle).ok_or(Errno::BADF)?;
        let mut listing = lock(&listing);
        let mut entries = Entries::new(most_bytes as usize);
        let above = self.nodes.place(number).map_or(ROOT, |place| place.parts().0);
        for (at, (name, node)) in (0..).zip([(&b"."[..], number), (&b".."[..], above)]) {
            if position <= at && entries.has_room(name.len(), with_attributes) {
                match with_attributes {
                    true => entries.push_with(name, (node.0, DIRECTORY.into()), at + 1, None),
                    false => entries.push(name, node.0, DIRECTORY.into(), at + 1),
                }
            }
        }
        self.go_to(&mut listing, position.saturating_sub(BEFORE_ENTRIES))?;
        while let Some(listed) = self.next_entry(&mut listing)? {
            let name = listed.key.name().unwrap_or_default();
            if !entries.has_room(name.len(), with_attributes) {
                listing.next = Some(listed);
                break;
            }
            let (at, entry) = (listing.at, &listed.entry);
            listing.note(at, name);
            let next = at + 1 + BEFORE_ENTRIES;
            match with_attributes {
                true if at < MOST_WITH_ATTRIBUTES => self.push_with(&mut entries, &listing, name, entry, next)?,
                true => entries.push_with(name, (entry.number.0, entry.mode.into()), next, None),
                false => entries.push(name, entry.number.0, entry.mode.into(), next),
            }
            (listing.at, listing.last) = (at + 1, name.into());
        }
        Ok(entries.finish())
    }

    fn push_with(
        &self,
        entries: &mut Entries,
        listing: &MutexGuard<'_, Listing>,
        name: &[u8],
        entry: &Entry,
        next: u64,
    ) -> Outcome<()> {
        let number = entry.number;
        // The kernel has met it before anybody can change it.
        self.nodes.met(number, listing.directory, name);
        let shown = match (self.nodes.held(number), entry.kind) {
            (Some(live), _) => self.shown(&live, &mut lock(&live.state)).ok(),
            (None, Kind::File | Kind::Symlink) if self.changes() == listing.changes => self.shown_in_index(entry).ok(),
            (None, Kind::File | Kind::Symlink) => {
                let key = self.entry_key(listing.directory, name)?;
                let now = self.store.entry(&key).map_err(|error| self.fail(error))?;
                now.filter(|now| now.entry.number == number).and_then(|now| self.shown_in_index(&now.entry).ok())
            }
            // What is not in the index is read when somebody asks for it: the numbers of devices, the directories in a
            // directory, the holes of a large file.
            (None, _) => None,
        };
        if shown.is_none() {
            self.nodes.forget(number, 1);
        }
        let shown = shown.as_ref().map(|shown| (shown, self.appearance.valid));
        entries.push_with(name, (number.0, entry.mode.into()), next, shown);
        Ok(())
    }

    /// Places the walk at an entry, in the current state of the store.
    fn go_to(&self, listing: &mut Listing, position: u64) -> Outcome<()> {
        let changes = self.changes();
        let is_behind = listing.walk.is_some() && listing.at == position;
        if is_behind && listing.changes == changes && position > 0 {
            return Ok(());
        }
        let (at, from) = match is_behind && position > 0 {
            true => (position, listing.last.clone()),
            false => {
                let (at, name) = listing.note_before(position);
                (at, name.into())
            }
        };
        let is_continued = is_behind && position > 0;
        let directory = Key::of_directory(listing.directory);
        let walk = self.store.list_from(&directory, &from).map_err(|error| self.fail(error))?;
        (listing.walk, listing.changes, listing.at, listing.next) = (Some(walk), changes, at, None);
        if is_continued {
            // The last one that was returned may be there again.
            let next = self.next_entry(listing)?;
            listing.next = next.filter(|next| next.key.name() != Some(&from));
            return Ok(());
        }
        while listing.at < position {
            let Some(passed) = self.next_entry(listing)? else { break };
            let name = passed.key.name().unwrap_or_default();
            listing.note(listing.at, name);
            (listing.at, listing.last) = (listing.at + 1, name.into());
        }
        Ok(())
    }

    fn next_entry(&self, listing: &mut Listing) -> Outcome<Option<Listed>> {
        if let Some(next) = listing.next.take() {
            return Ok(Some(next));
        }
        let Some(walk) = &mut listing.walk else { return Ok(None) };
        walk.next().transpose().map_err(|error| self.fail(error))
    }
}
