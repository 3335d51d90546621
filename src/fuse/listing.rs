//! Listing directories.
//!
//! With attributes, the kernel keeps what a listing returns, so it must be what there is now: after a change of the
//! store the walk begins again at the same name, and an entry that may have changed since is looked up. An object that
//! is in use at the moment is listed without: whoever uses it may wait for space to be freed, and no listing does.
//!
//! The kernel asks for every listing with attributes. Left to choose, it guesses from what a program has looked at so
//! far, and programs list much before they look: then each entry is a request of its own. But the kernel and `nodes`
//! remember what they got, so only the first entries of a large directory come with attributes.

use rustix::io::Errno;

use super::errno::Outcome;
use super::file_system::{FileSystem, ROOT};
use super::live::DIRECTORY;
use super::open_directories::{Listing, Names};
use super::wire::LONGEST_NAME_BYTES;
use super::wire::reply::{Entries, Reply, Shown};
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Entry, Key, Kind, Listed};
use crate::units::escape;

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

    /// Entries from a position on, as many as the answer has room for. With attributes, each that has them counts as a
    /// look-up by the kernel, so the answer must be sent.
    ///
    /// # Errors
    /// If none could be read; those that were read are returned, and the next request finds out about the rest.
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
        // The root is above itself. Nothing is above a directory without a name; the number is only shown.
        let above = self.nodes.place(number).map_or(ROOT, |place| place.parts().0);
        for (at, (name, node)) in (0..).zip([(&b"."[..], number), (&b".."[..], above)]) {
            if position <= at && entries.has_room(name.len(), with_attributes) {
                match with_attributes {
                    true => entries.push_with(name, (node.0, DIRECTORY.into()), at + 1, None),
                    false => entries.push(name, node.0, DIRECTORY.into(), at + 1),
                }
            }
        }
        if let Err(errno) = self.list(&mut listing, position, &mut entries, with_attributes) {
            // The walk may have left out what it could not read.
            listing.walk = None;
            if entries.is_empty() {
                return Err(errno);
            }
        }
        Ok(entries.finish())
    }

    /// Adds the entries behind `.` and `..`, from a position on.
    fn list(&self, listing: &mut Listing, position: u64, entries: &mut Entries, with_attributes: bool) -> Outcome<()> {
        self.go_to(listing, position)?;
        while let Some(listed) = self.next_entry(listing)? {
            let name = listed.key.name().unwrap_or_default();
            if !listing.reach(name) {
                continue;
            }
            if name.len() > LONGEST_NAME_BYTES {
                // The kernel would take no entry behind it.
                let name = escape(name);
                self.log.say(&format!("not shown, as its name has more than {LONGEST_NAME_BYTES} bytes: {name}"));
                listing.leave(listed.key.name().unwrap_or_default());
                continue;
            }
            if !entries.has_room(name.len(), with_attributes) {
                listing.next = Some(listed);
                break;
            }
            let (at, entry) = (listing.at, &listed.entry);
            let next = at + 1 + BEFORE_ENTRIES;
            match with_attributes {
                true if at < MOST_WITH_ATTRIBUTES => self.push_with(entries, listing, name, entry, next),
                true => entries.push_with(name, (entry.number.0, entry.mode.into()), next, None),
                false => entries.push(name, entry.number.0, entry.mode.into(), next),
            }
            listing.leave(name);
        }
        Ok(())
    }

    fn push_with(&self, entries: &mut Entries, listing: &Listing, name: &[u8], entry: &Entry, next: u64) {
        let number = entry.number;
        // Counted before its attributes are read, so that nobody drops it in between.
        self.nodes.met(number, listing.directory, name);
        let shown = match (self.nodes.held(number), entry.kind) {
            (Some(live), _) => self.shown_if_free(&live),
            (None, Kind::File | Kind::Symlink) if self.changes() == listing.changes => self.shown_in_index(entry).ok(),
            (None, Kind::File | Kind::Symlink) => self.shown_now(listing.directory, name, number).ok(),
            // What is not in the index is read when somebody asks for it: the numbers of devices, the directories in a
            // directory, the holes of a large file.
            (None, _) => None,
        };
        if shown.is_none() {
            self.nodes.forget(number, 1);
        }
        let shown = shown.as_ref().map(|shown| (shown, self.appearance.valid));
        entries.push_with(name, (number.0, entry.mode.into()), next, shown);
    }

    fn shown_now(&self, directory: ObjectNumber, name: &[u8], number: ObjectNumber) -> Outcome<Shown> {
        let key = self.entry_key(directory, name)?;
        let now = self.store.entry(&key).map_err(|error| self.fail(error))?;
        let now = now.filter(|now| now.entry.number == number).ok_or(Errno::STALE)?;
        self.shown_in_index(&now.entry)
    }

    /// Places the walk at a position, in the current state of the store.
    fn go_to(&self, listing: &mut Listing, position: u64) -> Outcome<()> {
        let changes = self.changes();
        if position == 0 {
            // From the beginning, with what was created since.
            listing.names = Names::default();
        }
        let wanted = position.saturating_sub(BEFORE_ENTRIES);
        if listing.walk.is_some() && listing.at == wanted && listing.changes == changes && wanted > 0 {
            return Ok(());
        }
        // Behind the last name before it that is known.
        let at = wanted.min(listing.names.count());
        let behind = at.checked_sub(1).and_then(|last| listing.names.at(last));
        let directory = Key::of_directory(listing.directory);
        let walk = self.store.list_from(&directory, behind.as_deref().unwrap_or_default());
        let walk = walk.map_err(|error| self.fail(error))?;
        (listing.walk, listing.changes, listing.at, listing.next) = (Some(walk), changes, at, None);
        if behind.is_some() {
            // It may be there still.
            let next = self.next_entry(listing)?;
            listing.next = next.filter(|next| next.key.name() != behind.as_deref());
        }
        // A position that another open directory had: entries are counted.
        while listing.at < wanted {
            let Some(passed) = self.next_entry(listing)? else { break };
            listing.leave(passed.key.name().unwrap_or_default());
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
