//! Creating, removing, renaming, linking. Each is one batch, or none if it fails.
//!
//! The kernel has looked the names up before, holds their directories, and has checked permissions and kinds: whether a
//! directory replaces a file, or comes below itself.

use rustix::io::Errno;

use super::acl::{ACCESS, Acl, DEFAULT};
use super::errno::Outcome;
use super::file_system::{FileSystem, now};
use super::live::{DIRECTORY, Directories, Info, LiveState, REGULAR, SET_GID, TYPE};
use super::wire::opened;
use super::wire::reply::{Reply, device_numbers};
use super::wire::request::{Creation, Header};
use crate::locks::lock;
use crate::store::ids::ObjectNumber;
use crate::store::{Attributes, Batch, Durability, Entry, Existing, HandleOptions, Key, Kind, Time, Xattrs};

/// Longest target of a symbolic link.
const LONGEST_TARGET_BYTES: usize = 4095;
/// Flags of rename(2).
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// A file type in a mode.
const SYMLINK: u32 = 0o120_000;

impl FileSystem {
    /// The attributes of a new object in a directory: owner, group, permissions and lists follow the directory and the
    /// creator. `mode` has its type.
    fn new_attributes(
        &self,
        directory: ObjectNumber,
        header: &Header,
        creation: Creation,
        now: Time,
    ) -> Outcome<Attributes> {
        let live = self.nodes.hold(directory);
        let mut state = lock(&live.state);
        let above = &self.info(&live, &mut state)?.attributes;
        let mut mode = creation.mode as u16;
        let (is_directory, is_link) = (mode & TYPE == DIRECTORY, u32::from(mode & TYPE) == SYMLINK);
        let is_group_inherited = above.mode & SET_GID > 0;
        let default = above.xattrs.iter().find(|(name, _)| name == DEFAULT).map(|(_, value)| value);
        let mut xattrs = Xattrs::new();
        match default.filter(|_| !is_link).and_then(|value| Some((value, Acl::decode(value)?))) {
            Some((value, acl)) => {
                let (inherited, left) = acl.inherited(mode);
                mode = left;
                if !inherited.is_mode() {
                    xattrs.push((ACCESS.to_vec(), inherited.encode()));
                }
                if is_directory {
                    xattrs.push((DEFAULT.to_vec(), value.clone()));
                }
            }
            None if !is_link => mode &= !(creation.umask as u16 & 0o777),
            None => {}
        }
        if is_group_inherited && is_directory {
            mode |= SET_GID;
        }
        let gid = if is_group_inherited { above.gid } else { header.gid };
        let (ctime, btime) = (Some(now), Some(now));
        Ok(Attributes { mode, uid: header.uid, gid, mtime: now, ctime, btime, xattrs, ..Attributes::default() })
    }

    /// Commits one change of a name, after what was written before it.
    fn change(&self, add: impl Fn(&mut Batch<'_>) -> crate::error::Result<()>) -> Outcome<()> {
        self.settle(None);
        let committed = self.retry_after_freeing(|| {
            let mut batch = self.store.batch(Durability::None);
            add(&mut batch).and_then(|()| batch.commit())
        });
        self.mark_changed();
        committed
    }

    /// The entry of a name in the store.
    fn entry(&self, key: &Key) -> Outcome<Option<Entry>> {
        let listed = self.store.entry(key).map_err(|error| self.fail(error))?;
        Ok(listed.map(|listed| listed.entry))
    }

    /// Commits a new object, whose name must be free; the kernel meets it.
    fn make(
        &self,
        (directory, name): (ObjectNumber, &[u8]),
        now: Time,
        info: Info,
        add: impl Fn(&mut Batch<'_>, &Key, &Attributes) -> crate::error::Result<()>,
    ) -> Outcome<Reply> {
        let key = self.entry_key(directory, name)?;
        if self.entry(&key)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.change(|batch| add(batch, &key, &info.attributes))?;
        let number = self.entry(&key)?.ok_or(Errno::IO)?.number;
        self.nodes.met(number, directory, name);
        let names = if info.is_directory() { 2 } else { 1 };
        self.touch_directory(directory, now, i64::from(info.is_directory()))?;
        Ok(Reply::entry(&self.shown_as(number, &info, names), self.appearance.valid))
    }

    pub(super) fn make_directory(
        &self,
        directory: ObjectNumber,
        name: &[u8],
        header: &Header,
        creation: Creation,
    ) -> Outcome<Reply> {
        let now = now();
        let mode = creation.mode & 0o7777 | u32::from(DIRECTORY);
        let attributes = self.new_attributes(directory, header, Creation { mode, ..creation }, now)?;
        let info = Info { directories: Some(Directories::Counted(0)), ..Info::new(attributes) };
        self.make((directory, name), now, info, |batch, key, attributes| batch.directory(key, attributes))
    }

    pub(super) fn make_symlink(
        &self,
        directory: ObjectNumber,
        name: &[u8],
        target: &[u8],
        header: &Header,
    ) -> Outcome<Reply> {
        if target.len() > LONGEST_TARGET_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let now = now();
        let creation = Creation { mode: SYMLINK | 0o777, umask: 0 };
        let attributes = self.new_attributes(directory, header, creation, now)?;
        let info = Info { size_bytes: target.len() as u64, ..Info::new(attributes) };
        self.make((directory, name), now, info, |batch, key, attributes| batch.symlink(key, attributes, target))
    }

    /// A fifo, a socket, a device, or an empty file.
    pub(super) fn make_node(
        &self,
        directory: ObjectNumber,
        name: &[u8],
        header: &Header,
        creation: Creation,
        device: u32,
    ) -> Outcome<Reply> {
        let now = now();
        let attributes = self.new_attributes(directory, header, creation, now)?;
        let (major, minor) = match attributes.mode & TYPE {
            0o020_000 | 0o060_000 => device_numbers(device),
            _ => (0, 0),
        };
        let info = Info { device: (major, minor), ..Info::new(attributes) };
        self.make((directory, name), now, info, |batch, key, attributes| match attributes.mode & TYPE {
            0 | REGULAR => batch.put(key, attributes, b""),
            _ => batch.special(key, attributes, major, minor),
        })
    }

    /// A new file, open.
    pub(super) fn create(
        &self,
        directory: ObjectNumber,
        name: &[u8],
        header: &Header,
        creation: Creation,
    ) -> Outcome<Reply> {
        let (key, now) = (self.entry_key(directory, name)?, now());
        let mode = creation.mode & 0o7777 | u32::from(REGULAR);
        let attributes = self.new_attributes(directory, header, Creation { mode, ..creation }, now)?;
        let options = HandleOptions::write().create_new(attributes.clone());
        self.settle(None);
        let opened = self.retry_after_freeing(|| self.store.open_object(&key, &options));
        self.mark_changed();
        let handle = opened?;
        let number = handle.number();
        self.nodes.met(number, directory, name);
        let live = self.nodes.hold(number);
        let shown = {
            let mut state = lock(&live.state);
            let info = Info::new(attributes);
            let shown = self.shown_as(number, &info, 1);
            (state.handle, state.info) = (Some(handle.into()), Some(info));
            shown
        };
        self.opened_handle(number);
        self.touch_directory(directory, now, 0)?;
        Ok(Reply::created(&shown, self.appearance.valid, opened::KEEP_CACHE | opened::NO_FLUSH))
    }

    /// A new file without a name, open.
    pub(super) fn create_nameless(
        &self,
        directory: ObjectNumber,
        header: &Header,
        creation: Creation,
    ) -> Outcome<Reply> {
        let now = now();
        let mode = creation.mode & 0o7777 | u32::from(REGULAR);
        let attributes = self.new_attributes(directory, header, Creation { mode, ..creation }, now)?;
        let handle = self.store.create_nameless(&attributes).map_err(|error| self.fail(error))?;
        let number = handle.number();
        self.nodes.met_nameless(number);
        let live = self.nodes.hold(number);
        let mut state = lock(&live.state);
        let info = Info::new(attributes);
        let shown = self.shown_as(number, &info, 0);
        *state = LiveState { info: Some(info), handle: Some(handle.into()), is_nameless: true, ..LiveState::default() };
        Ok(Reply::created(&shown, self.appearance.valid, opened::KEEP_CACHE | opened::NO_FLUSH))
    }

    /// Removes a name of anything but a directory.
    pub(super) fn unlink(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let key = self.entry_key(directory, name)?;
        let entry = self.entry(&key)?.ok_or(Errno::NOENT)?;
        if entry.kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        self.remove(directory, name, &key, &entry)
    }

    pub(super) fn remove_directory(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let key = self.entry_key(directory, name)?;
        let entry = self.entry(&key)?.ok_or(Errno::NOENT)?;
        if entry.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if self.has_entries(entry.number)? {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(directory, name, &key, &entry)
    }

    fn has_entries(&self, directory: ObjectNumber) -> Outcome<bool> {
        let mut walk = self.store.list(&Key::of_directory(directory)).map_err(|error| self.fail(error))?;
        walk.lend().map(|lent| lent.is_some()).map_err(|error| self.fail(error))
    }

    fn remove(&self, directory: ObjectNumber, name: &[u8], key: &Key, entry: &Entry) -> Outcome<Reply> {
        let now = now();
        self.before_removal(directory, name, entry)?;
        self.change(|batch| batch.remove(key).map(drop)).inspect_err(|_| self.after_failure(entry))?;
        self.lost_name(directory, name, entry, now)?;
        self.touch_directory(directory, now, -i64::from(entry.kind == Kind::Directory))?;
        Ok(Reply::empty())
    }

    /// What the kernel knows may still be used when its last name is gone, or the last one that is known here. So a
    /// file is opened, and everything else is read before; it stays until the kernel forgets it.
    fn before_removal(&self, directory: ObjectNumber, name: &[u8], entry: &Entry) -> Outcome<()> {
        let number = entry.number;
        let is_last = self.store.names_of(number) <= 1;
        if !self.nodes.is_known(number) || (!is_last && self.nodes.has_other_name(number, directory, name)) {
            return Ok(());
        }
        let live = self.nodes.hold(number);
        let mut state = lock(&live.state);
        match entry.kind {
            // Nothing of it is read yet: most files that are removed are not in use.
            Kind::File | Kind::Large => _ = self.open_handle(number, &mut state)?,
            _ => {
                self.info(&live, &mut state)?;
                if !is_last {
                    self.commit(&live, &mut state)?;
                }
            }
        }
        (state.is_nameless, state.is_unplaced) = (is_last, !is_last);
        Ok(())
    }

    /// It was not removed after all.
    fn after_failure(&self, entry: &Entry) {
        if let Some(live) = self.nodes.held(entry.number) {
            let mut state = lock(&live.state);
            (state.is_nameless, state.is_unplaced) = (false, false);
        }
    }

    /// An object has lost a name: it lives on under others, or only as long as it is open.
    fn lost_name(&self, directory: ObjectNumber, name: &[u8], entry: &Entry, now: Time) -> Outcome<()> {
        let number = entry.number;
        self.nodes.unnamed(number, directory, name);
        if self.store.names_of(number) > 0 {
            // Its change time changes with the number of its names; the store has it if something finds it there.
            let live = self.nodes.hold(number);
            let mut state = lock(&live.state);
            if let Ok(info) = self.info(&live, &mut state) {
                info.attributes.ctime = Some(now);
                if state.handle.is_some() || self.nodes.place(number).is_some() {
                    self.mark_written(&live, &mut state, 0);
                }
            }
            return Ok(());
        }
        let Some(live) = self.nodes.held(number) else { return Ok(()) };
        let mut state = lock(&live.state);
        match &mut state.info {
            Some(info) => info.attributes.ctime = Some(now),
            None => state.lost_name = Some(now),
        }
        state.is_nameless = true;
        Ok(())
    }

    /// Gives an object another name.
    pub(super) fn link(&self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let (key, now) = (self.entry_key(directory, name)?, now());
        let live = self.nodes.hold(number);
        let mut is_named = false;
        {
            let mut state = lock(&live.state);
            self.info(&live, &mut state)?;
            match state.handle.clone().filter(|_| state.is_nameless) {
                Some(handle) => {
                    let info = self.info(&live, &mut state)?;
                    info.attributes.ctime = Some(now);
                    let set = handle.set_attributes(&info.attributes);
                    set.and_then(|()| handle.link(&key)).map_err(|error| self.fail(error))?;
                    (state.is_nameless, state.is_dirty) = (false, false);
                    self.mark_changed();
                }
                None if state.is_nameless => return Err(Errno::NOENT),
                None => is_named = true,
            }
        }
        if is_named {
            // What is newer here goes to the store with it.
            self.settle_one(number)?;
            let existing = self.key_of(number)?;
            self.change(|batch| batch.hard_link(&existing, &key))?;
            let mut state = lock(&live.state);
            self.info(&live, &mut state)?.attributes.ctime = Some(now);
            self.mark_written(&live, &mut state, 0);
        }
        self.nodes.met(number, directory, name);
        self.touch_directory(directory, now, 0)?;
        Ok(Reply::entry(&self.shown_of(number)?, self.appearance.valid))
    }

    pub(super) fn rename(
        &self,
        (directory, name): (ObjectNumber, &[u8]),
        (new_directory, new_name): (ObjectNumber, &[u8]),
        flags: u32,
    ) -> Outcome<Reply> {
        if flags & !(NO_REPLACE | EXCHANGE) > 0 || flags == NO_REPLACE | EXCHANGE {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.entry_key(directory, name)?, self.entry_key(new_directory, new_name)?);
        let now = now();
        let moved = self.entry(&from)?.ok_or(Errno::NOENT)?;
        let there = self.entry(&to)?;
        match there {
            Some(there) if there.number == moved.number => return Ok(Reply::empty()),
            Some(_) if flags == NO_REPLACE => return Err(Errno::EXIST),
            None if flags == EXCHANGE => return Err(Errno::NOENT),
            Some(there) if flags == 0 && there.kind == Kind::Directory && self.has_entries(there.number)? => {
                return Err(Errno::NOTEMPTY);
            }
            _ => {}
        }
        self.settle_one(moved.number)?;
        let is_directory = |entry: &Entry| i64::from(entry.kind == Kind::Directory);
        let gone = there.filter(|_| flags != EXCHANGE);
        if let Some(gone) = &gone {
            self.before_removal(new_directory, new_name, gone)?;
        }
        let renamed = self.change(|batch| match flags {
            EXCHANGE => batch.exchange(&from, &to),
            _ => batch.rename(&from, &to, Existing::Replace),
        });
        renamed.inspect_err(|_| gone.iter().for_each(|gone| self.after_failure(gone)))?;
        if let Some(gone) = &gone {
            self.lost_name(new_directory, new_name, gone, now)?;
        }
        self.has_moved(&moved, (directory, name), (new_directory, new_name), now)?;
        let mut came = is_directory(&moved);
        if let Some(other) = there.filter(|_| flags == EXCHANGE) {
            self.has_moved(&other, (new_directory, new_name), (directory, name), now)?;
            came -= is_directory(&other);
        }
        let replaced = gone.as_ref().map_or(0, is_directory);
        if directory == new_directory {
            self.touch_directory(directory, now, -replaced)?;
        } else {
            self.touch_directory(directory, now, -came)?;
            self.touch_directory(new_directory, now, came - replaced)?;
        }
        Ok(Reply::empty())
    }

    /// An object has another name in place of one; its change time changes.
    fn has_moved(
        &self,
        entry: &Entry,
        (directory, name): (ObjectNumber, &[u8]),
        (new_directory, new_name): (ObjectNumber, &[u8]),
        now: Time,
    ) -> Outcome<()> {
        self.nodes.unnamed(entry.number, directory, name);
        self.nodes.named(entry.number, new_directory, new_name);
        // The store has dated the record of an object with one name; what is known here of it must follow.
        let live = match self.store.names_of(entry.number) {
            0 => self.nodes.held(entry.number),
            _ => Some(self.nodes.hold(entry.number)),
        };
        let Some(live) = live else { return Ok(()) };
        let mut state = lock(&live.state);
        self.info(&live, &mut state)?.attributes.ctime = Some(now);
        self.mark_written(&live, &mut state, 0);
        Ok(())
    }
}
