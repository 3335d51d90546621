//! Creating, removing, renaming, linking. Each is one batch, or none if it fails.
//!
//! The kernel has looked the names up before, holds their directories, and has checked permissions and kinds: whether a
//! directory replaces a file, or comes below itself.
//!
//! The state of an object is locked from before the batch that changes its names until `nodes` has them: whoever has it
//! locked finds the object in the store by the name that `nodes` has. Everything that may fail comes before the batch.

use std::sync::MutexGuard;

use rustix::io::Errno;

use super::acl::{ACCESS, Acl, DEFAULT};
use super::errno::Outcome;
use super::file_system::{FileSystem, ROOT, now};
use super::live::{DIRECTORY, Directories, Info, Live, LiveState, REGULAR, SET_GID, TYPE};
use super::wire::opened;
use super::wire::reply::{Reply, device_numbers};
use super::wire::request::{Creation, Header};
use crate::store::ids::ObjectNumber;
use crate::store::{Attributes, Batch, Durability, Entry, Existing, HandleOptions, Key, Kind, Time, Xattrs};

/// Longest target of a symbolic link.
const LONGEST_TARGET_BYTES: usize = 4095;
/// Flags of rename(2).
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// A file type in a mode.
const SYMLINK: u32 = 0o120_000;

/// A name in a directory.
#[derive(Debug)]
struct Name<'n> {
    directory: ObjectNumber,
    name: &'n [u8],
    key: Key,
}

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
        let mut state = self.attention.lock(&live.state);
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

    /// Commits one change of names. What was written before it is [settled](Self::settle).
    fn change(&self, add: impl Fn(&mut Batch<'_>) -> crate::error::Result<()>) -> Outcome<()> {
        let committed = self.retry_after_freeing(ROOT, || {
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
        self.settle(None);
        self.change(|batch| add(batch, &key, &info.attributes))?;
        let number = self.entry(&key)?.ok_or(Errno::IO)?.number;
        self.nodes.met(number, directory, name);
        let names = if info.is_directory() { 2 } else { 1 };
        self.touch_directory(directory, now, i64::from(info.is_directory()));
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
        let opened = self.retry_after_freeing(directory, || self.store.open_object(&key, &options));
        self.mark_changed();
        let handle = opened?;
        let number = handle.number();
        self.nodes.met(number, directory, name);
        let live = self.nodes.hold(number);
        let shown = {
            let mut state = self.attention.lock(&live.state);
            let info = Info::new(attributes);
            let shown = self.shown_as(number, &info, 1);
            (state.handle, state.info) = (Some(handle.into()), Some(info));
            shown
        };
        self.opened_handle(number);
        self.touch_directory(directory, now, 0);
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
        let mut state = self.attention.lock(&live.state);
        let info = Info::new(attributes);
        let shown = self.shown_as(number, &info, 0);
        *state = LiveState { info: Some(info), handle: Some(handle.into()), is_nameless: true, ..LiveState::default() };
        Ok(Reply::created(&shown, self.appearance.valid, opened::KEEP_CACHE | opened::NO_FLUSH))
    }

    fn name<'n>(&self, directory: ObjectNumber, name: &'n [u8]) -> Outcome<Name<'n>> {
        Ok(Name { directory, name, key: self.entry_key(directory, name)? })
    }

    /// Removes a name of anything but a directory.
    pub(super) fn unlink(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let name = self.name(directory, name)?;
        let entry = self.entry(&name.key)?.ok_or(Errno::NOENT)?;
        if entry.kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        self.remove(&name, &entry)
    }

    pub(super) fn remove_directory(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let name = self.name(directory, name)?;
        let entry = self.entry(&name.key)?.ok_or(Errno::NOENT)?;
        if entry.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if self.has_entries(entry.number)? {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(&name, &entry)
    }

    fn has_entries(&self, directory: ObjectNumber) -> Outcome<bool> {
        let mut walk = self.store.list(&Key::of_directory(directory)).map_err(|error| self.fail(error))?;
        walk.lend().map(|lent| lent.is_some()).map_err(|error| self.fail(error))
    }

    fn remove(&self, name: &Name<'_>, entry: &Entry) -> Outcome<Reply> {
        let now = now();
        self.settle(Some(entry.number).filter(|number| self.is_last_name(*number)));
        {
            let live = self.nodes.hold(entry.number);
            let mut state = self.attention.lock(&live.state);
            self.before_removal(name, entry, &live, &mut state)?;
            self.change(|batch| batch.remove(&name.key).map(drop))?;
            self.lost_name(name, &live, &mut state, now);
        }
        self.touch_directory(name.directory, now, -i64::from(entry.kind == Kind::Directory));
        Ok(Reply::empty())
    }

    /// Whether an object is gone without the name that it has. What was written to it need not be committed then.
    fn is_last_name(&self, number: ObjectNumber) -> bool {
        self.store.names_of(number) <= 1
    }

    /// What the kernel knows may still be used when its last name is gone, or the last one that is known here. So a
    /// file is opened, and everything else is read before; it stays until the kernel forgets it. Called with its state
    /// locked.
    fn before_removal(&self, name: &Name<'_>, entry: &Entry, live: &Live, state: &mut LiveState) -> Outcome<()> {
        let number = entry.number;
        let is_last = self.is_last_name(number);
        let has_other_name = || self.nodes.has_other_name(number, name.directory, name.name);
        if !self.nodes.is_known(number) || (!is_last && has_other_name()) {
            return Ok(());
        }
        if entry.kind == Kind::Symlink && is_last {
            state.target = self.target(number).ok();
        }
        match entry.kind {
            // Nothing of it is read yet: most files that are removed are not in use.
            Kind::File | Kind::Large => _ = self.open_handle(number, state)?,
            _ => match self.info(live, state).map(drop) {
                // What is damaged can be removed, and is until then what the index says.
                Err(_) if is_last => {
                    let Entry { mode, uid, gid, mtime, ctime, .. } = *entry;
                    let ctime = Some(ctime);
                    let attributes = Attributes { mode, uid, gid, mtime, ctime, ..Attributes::default() };
                    state.info = Some(Info::new(attributes));
                }
                known => {
                    known?;
                    if !is_last {
                        self.commit(live, state)?;
                    }
                }
            },
        }
        Ok(())
    }

    /// An object has lost a name: it lives on under others, or only as long as it is open. Called with its state
    /// locked.
    fn lost_name(&self, name: &Name<'_>, live: &Live, state: &mut MutexGuard<'_, LiveState>, now: Time) {
        let number = live.number;
        self.nodes.unnamed(number, name.directory, name.name);
        if self.store.names_of(number) > 0 {
            let is_placed = self.nodes.place(number).is_some();
            state.is_unplaced = !is_placed && self.nodes.is_known(number);
            // Its change time changes with the number of its names; the store has it if something finds it there.
            if let Ok(info) = self.info(live, state) {
                info.attributes.ctime = Some(now);
                if state.handle.is_some() || is_placed {
                    self.mark_written(live, state, 0);
                }
            }
            return;
        }
        match &mut state.info {
            Some(info) => info.attributes.ctime = Some(now),
            None => state.lost_name = Some(now),
        }
        state.is_nameless = true;
    }

    /// Gives an object another name.
    pub(super) fn link(&self, number: ObjectNumber, directory: ObjectNumber, name: &[u8]) -> Outcome<Reply> {
        let (key, now) = (self.entry_key(directory, name)?, now());
        // What is newer of it here goes to the store with the name.
        self.settle(Some(number));
        let live = self.nodes.hold(number);
        {
            let mut state = self.attention.lock(&live.state);
            let attributes = self.info(&live, &mut state)?.attributes.clone();
            match state.handle.clone().filter(|_| state.is_nameless) {
                Some(handle) => {
                    let attributes = Attributes { ctime: Some(now), ..attributes };
                    self.retry_after_freeing(number, || {
                        handle.set_attributes(&attributes).and_then(|()| handle.link(&key))
                    })?;
                    state.is_nameless = false;
                    // The store has given it a change time of its own.
                    self.mark_written(&live, &mut state, 0);
                }
                None if state.is_nameless => return Err(Errno::NOENT),
                None => {
                    self.commit(&live, &mut state)?;
                    let existing = self.key_of(number)?;
                    self.change(|batch| batch.hard_link(&existing, &key))?;
                    self.mark_written(&live, &mut state, 0);
                }
            }
            self.info(&live, &mut state)?.attributes.ctime = Some(now);
            self.nodes.met(number, directory, name);
        }
        self.touch_directory(directory, now, 0);
        let shown = self.shown_of(number).inspect_err(|_| self.nodes.forget(number, 1))?;
        Ok(Reply::entry(&shown, self.appearance.valid))
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
        let (from, to) = (self.name(directory, name)?, self.name(new_directory, new_name)?);
        let now = now();
        let (moved, there) = (self.entry(&from.key)?.ok_or(Errno::NOENT)?, self.entry(&to.key)?);
        match there {
            Some(there) if there.number == moved.number => return Ok(Reply::empty()),
            Some(_) if flags == NO_REPLACE => return Err(Errno::EXIST),
            None if flags == EXCHANGE => return Err(Errno::NOENT),
            Some(there) if flags == 0 && there.kind == Kind::Directory && self.has_entries(there.number)? => {
                return Err(Errno::NOTEMPTY);
            }
            _ => {}
        }
        match &there {
            Some(other) if flags == EXCHANGE => self.exchange(&moved, &from, other, &to, now)?,
            gone => self.move_name(&moved, &from, gone.as_ref(), &to, now)?,
        }
        let is_directory = |entry: &Entry| i64::from(entry.kind == Kind::Directory);
        let (came, went) = (is_directory(&moved), there.as_ref().map_or(0, is_directory));
        let came_back = if flags == EXCHANGE { went } else { 0 };
        if directory == new_directory {
            self.touch_directory(directory, now, came_back - went);
        } else {
            self.touch_directory(directory, now, came_back - came);
            self.touch_directory(new_directory, now, came - went);
        }
        Ok(Reply::empty())
    }

    /// Gives an object another name in place of one; what has that name is replaced.
    fn move_name(&self, moved: &Entry, from: &Name<'_>, gone: Option<&Entry>, to: &Name<'_>, now: Time) -> Outcome<()> {
        self.settle(gone.map(|gone| gone.number).filter(|number| self.is_last_name(*number)));
        let (live, gone_live) = (self.nodes.hold(moved.number), gone.map(|gone| self.nodes.hold(gone.number)));
        let (mut state, mut gone_state) = match &gone_live {
            Some(gone) => {
                let (state, gone) = self.lock_both(&live, gone);
                (state, Some(gone))
            }
            None => (self.attention.lock(&live.state), None),
        };
        self.before_move(&live, &mut state)?;
        if let (Some(entry), Some(live), Some(state)) = (gone, &gone_live, &mut gone_state) {
            self.before_removal(to, entry, live, state)?;
        }
        self.change(|batch| batch.rename(&from.key, &to.key, Existing::Replace))?;
        if let (Some(live), Some(state)) = (&gone_live, &mut gone_state) {
            self.lost_name(to, live, state, now);
        }
        self.has_moved(from, to, &live, &mut state, now);
        Ok(())
    }

    /// Exchanges the names of two objects.
    fn exchange(&self, one: &Entry, from: &Name<'_>, other: &Entry, to: &Name<'_>, now: Time) -> Outcome<()> {
        self.settle(None);
        let (one, other) = (self.nodes.hold(one.number), self.nodes.hold(other.number));
        let (mut state, mut other_state) = self.lock_both(&one, &other);
        self.before_move(&one, &mut state)?;
        self.before_move(&other, &mut other_state)?;
        self.change(|batch| batch.exchange(&from.key, &to.key))?;
        self.has_moved(from, to, &one, &mut state, now);
        self.has_moved(to, from, &other, &mut other_state, now);
        Ok(())
    }

    /// What is newer of an object is committed under its old name. Called with its state locked.
    fn before_move(&self, live: &Live, state: &mut LiveState) -> Outcome<()> {
        self.commit(live, state)?;
        // Only the record of an object with one name gets a new change time with its name.
        if self.store.names_of(live.number) > 0 {
            self.info(live, state)?;
        }
        Ok(())
    }

    /// An object has another name in place of one; its change time changes. Called with its state locked.
    fn has_moved(&self, from: &Name<'_>, to: &Name<'_>, live: &Live, state: &mut MutexGuard<'_, LiveState>, now: Time) {
        self.nodes.moved(live.number, (from.directory, from.name), (to.directory, to.name));
        // What is not known here is read when it is asked for.
        if let Some(info) = &mut state.info {
            info.attributes.ctime = Some(now);
            self.mark_written(live, state, 0);
        }
    }

    /// Locks the states of two objects, in the order of their numbers, as everybody who needs both.
    fn lock_both<'l>(&self, one: &'l Live, other: &'l Live) -> (MutexGuard<'l, LiveState>, MutexGuard<'l, LiveState>) {
        if one.number < other.number {
            let lower = self.attention.lock(&one.state);
            (lower, self.attention.lock(&other.state))
        } else {
            let lower = self.attention.lock(&other.state);
            (self.attention.lock(&one.state), lower)
        }
    }
}
