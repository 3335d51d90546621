//! The mounted store: what all operations share. Looking at an object, changing its times, committing.
//!
//! What programs change is committed to the store in the order in which it happens, without waiting for devices: an
//! operation is one batch. What a file's handle has pending, and times, are committed later: see `settle`.
//! [`FileSystem::sync`] makes all of it durable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::attention::Attention;
use super::errno::{Log, Outcome};
use super::live::{Directories, Info, Live, LiveState};
use super::nodes::Nodes;
use super::open_directories::OpenDirectories;
use super::waiting::Waiting;
use super::wire::LONGEST_NAME_BYTES;
use super::wire::reply::Shown;
use crate::error::Error;
use crate::store::ids::ObjectNumber;
use crate::store::{Buffer, Durability, Entry, Key, Kind, Store, Time};
use crate::units::escape;

/// Number of the root directory, in the store and in the protocol.
pub(super) const ROOT: ObjectNumber = ObjectNumber(super::wire::ROOT_NODE);

/// Entries of a directory that are read to count the directories among them.
const MOST_COUNTED: u64 = 1000;

/// How objects are shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Appearance {
    pub(super) is_read_only: bool,
    /// What changes names (`dirsync`), and attributes, too (`sync`), is durable before its answer.
    pub(super) is_dirsync: bool,
    pub(super) is_sync: bool,
    /// The owner shown for everything.
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// How long the kernel may keep names and attributes.
    pub(super) valid: Duration,
}

/// A mounted store.
#[derive(Debug)]
pub(super) struct FileSystem {
    pub(super) store: Store,
    pub(super) appearance: Appearance,
    pub(super) nodes: Nodes,
    pub(super) directories: Mutex<OpenDirectories>,
    pub(super) log: Log,
    /// The threads that serve it.
    pub(super) attention: Attention,
    /// Something was committed since the last sync.
    pub(super) has_changed: AtomicBool,
    pub(super) waiting: Waiting,
    /// It is no longer mounted.
    pub(super) has_ended: Arc<AtomicBool>,
    /// Held by who frees space.
    pub(super) freeing: Mutex<()>,
    /// Held by who commits what waits. Taken before the state of an object.
    pub(super) settling: Mutex<()>,
    /// Number of changes of the store: what was read before another is out of date.
    changes: AtomicU64,
}

impl FileSystem {
    pub(super) fn new(store: Store, appearance: Appearance, log: Log) -> FileSystem {
        FileSystem {
            store,
            appearance,
            nodes: Nodes::default(),
            directories: Mutex::default(),
            log,
            attention: Attention::default(),
            has_changed: AtomicBool::new(false),
            waiting: Waiting::default(),
            has_ended: Arc::default(),
            freeing: Mutex::default(),
            settling: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    /// What a program is told of a failure of the store.
    pub(super) fn fail(&self, error: Error) -> Errno {
        self.log.errno(&error, || None)
    }

    /// The same of an object that the kernel knows.
    pub(super) fn fail_of(&self, number: ObjectNumber, error: Error) -> Errno {
        self.log.errno(&error, || self.nodes.path(number).map(|path| escape(&path)))
    }

    /// The key of an entry of a directory.
    pub(super) fn entry_key(&self, directory: ObjectNumber, name: &[u8]) -> Outcome<Key> {
        if name.len() > LONGEST_NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        Key::within(directory, name).map_err(|_| Errno::INVAL)
    }

    /// A key of an object that the kernel knows. It stays right as long as the state of the object is locked.
    pub(super) fn key_of(&self, number: ObjectNumber) -> Outcome<Key> {
        if number == ROOT {
            return Ok(Key::root());
        }
        let place = self.nodes.place(number).ok_or(Errno::STALE)?;
        let (directory, name) = place.parts();
        self.entry_key(directory, name)
    }

    /// What is known of an object; read from the store if it was not asked for yet.
    pub(super) fn info<'s>(&self, live: &Live, state: &'s mut LiveState) -> Outcome<&'s mut Info> {
        if state.info.is_none() {
            let mut info = match &state.handle {
                Some(handle) => Info::new(handle.attributes().map_err(|error| self.fail_of(live.number, error))?),
                None => self.read_info(live.number)?,
            };
            info.attributes.ctime = state.lost_name.take().or(info.attributes.ctime);
            state.info = Some(info);
        }
        state.info.as_mut().ok_or(Errno::IO)
    }

    fn read_info(&self, number: ObjectNumber) -> Outcome<Info> {
        let key = self.key_of(number)?;
        let status = self.store.stat(&key).map_err(|error| self.fail_of(number, error))?;
        if status.is_none() && number == ROOT {
            return Ok(Info::new(super::new_root()));
        }
        let status = status.filter(|status| status.entry.number == number).ok_or(Errno::STALE)?;
        let device = self.device_of(&key, &status.entry)?;
        Ok(Info::of(status, device))
    }

    /// Major and minor number of a device; 0 for everything else.
    pub(super) fn device_of(&self, key: &Key, entry: &Entry) -> Outcome<(u32, u32)> {
        if entry.kind != Kind::Special {
            return Ok((0, 0));
        }
        let mut buffer = Buffer::default();
        let object = self.store.read(key, &mut buffer).map_err(|error| self.fail_of(entry.number, error))?;
        let object = object.ok_or(Errno::STALE)?;
        let numbers = object.content.as_chunks::<4>().0;
        match *numbers {
            [major, minor] => Ok((u32::from_le_bytes(major), u32::from_le_bytes(minor))),
            _ => Err(Errno::IO),
        }
    }

    /// What a program sees of an object.
    pub(super) fn shown(&self, live: &Live, state: &mut LiveState) -> Outcome<Shown> {
        let (is_nameless, handle) = (state.is_nameless, state.handle.clone());
        let info = self.info(live, state)?;
        let names = match (is_nameless, info.is_directory()) {
            (true, _) => 0,
            (false, true) => self.names_of_directory(live.number, info)?,
            (false, false) => self.names_of(live.number),
        };
        let mut shown = self.shown_as(live.number, info, names);
        if let Some(handle) = handle {
            shown.size_bytes = handle.size_bytes().map_err(|error| self.fail_of(live.number, error))?;
            let holes = handle.attributes().map_err(|error| self.fail_of(live.number, error))?.holes;
            shown.allocated_bytes = holes.map_or(shown.size_bytes, |holes| holes.data_bytes());
        }
        Ok(shown)
    }

    /// As [`shown`](Self::shown), of an object that is not open.
    pub(super) fn shown_as(&self, number: ObjectNumber, info: &Info, link_count: u32) -> Shown {
        let attributes = &info.attributes;
        Shown {
            node: number.0,
            size_bytes: info.size_bytes,
            allocated_bytes: info.allocated_bytes,
            atime: info.atime,
            mtime: attributes.mtime,
            ctime: attributes.ctime.unwrap_or(attributes.mtime),
            btime: attributes.btime,
            mode: attributes.mode.into(),
            link_count,
            uid: self.appearance.uid.unwrap_or(attributes.uid),
            gid: self.appearance.gid.unwrap_or(attributes.gid),
            device: info.device,
        }
    }

    /// Number of names of a file that has one.
    pub(super) fn names_of(&self, number: ObjectNumber) -> u32 {
        u32::try_from(self.store.names_of(number)).unwrap_or(u32::MAX).max(1)
    }

    /// Number of names of a directory. Directories are looked for once among its first entries.
    pub(super) fn names_of_directory(&self, number: ObjectNumber, info: &mut Info) -> Outcome<u32> {
        if let Some(directories) = info.directories {
            return Ok(directories.names());
        }
        let mut walk = self.store.list(&Key::of_directory(number)).map_err(|error| self.fail(error))?;
        let (mut entries, mut counted) = (0, 0);
        while let Some(listed) = walk.lend().map_err(|error| self.fail(error))?
            && entries <= MOST_COUNTED
        {
            entries += 1;
            counted += u64::from(listed.entry.kind == Kind::Directory);
        }
        let directories = match entries {
            0..=MOST_COUNTED => Directories::Counted(counted),
            _ => Directories::Uncounted,
        };
        Ok(info.directories.insert(directories).names())
    }

    /// The entries of a directory have changed now; and so many directories came or went. The change is committed: if
    /// the directory cannot be read, the log says so, and its times stay.
    pub(super) fn touch_directory(&self, directory: ObjectNumber, now: Time, directories: i64) {
        let live = self.nodes.hold(directory);
        let mut state = self.attention.lock(&live.state);
        let Ok(info) = self.info(&live, &mut state) else { return };
        info.touch(now);
        info.directories = info.directories.and_then(|known| known.changed_by(directories));
        self.mark_dirty(&mut state);
    }

    /// Something of an object is newer than in the store.
    pub(super) fn mark_dirty(&self, state: &mut MutexGuard<'_, LiveState>) {
        state.is_dirty = true;
        self.mark_changed();
    }

    /// Number of changes of the store so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// The store has changed, or something is newer here, and is to be made durable.
    pub(super) fn mark_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Commits what is newer here than in the store.
    pub(super) fn commit(&self, live: &Live, state: &mut LiveState) -> Outcome<()> {
        if !state.is_dirty {
            return Ok(());
        }
        if state.is_nameless {
            // Nobody will find it, unless it gets a name, and that commits it.
            return Ok(());
        }
        match (&state.handle, &state.info) {
            (Some(handle), info) => self.retry_after_freeing(live.number, || {
                let set = info.as_ref().map_or(Ok(()), |info| handle.set_attributes(&info.attributes));
                set.and_then(|()| handle.commit(Durability::None))
            })?,
            (None, Some(info)) => {
                let key = self.key_of(live.number)?;
                self.retry_after_freeing(live.number, || {
                    let mut batch = self.store.batch(Durability::None);
                    batch.set_attributes(&key, &info.attributes).and_then(|()| batch.commit())
                })?;
            }
            (None, None) => {}
        }
        (state.is_dirty, state.waiting_bytes) = (false, 0);
        self.mark_changed();
        Ok(())
    }

    /// Closes the handle of a file that nobody uses, after its commit. What was known of it lacks its size.
    pub(super) fn let_go(&self, live: &Live, state: &mut LiveState) {
        let Some(handle) = state.handle.clone() else { return };
        if state.is_nameless {
            // What the kernel may still ask is kept without the content.
            if let (Ok(info), Ok(size_bytes)) = (self.info(live, state), handle.size_bytes()) {
                (info.size_bytes, info.allocated_bytes) = (size_bytes, size_bytes);
            }
            state.is_dirty = false;
        } else {
            state.info = None;
        }
        state.handle = None;
    }

    /// Commits everything that is newer here than in the store.
    ///
    /// # Errors
    /// The first one; the rest is committed.
    pub(super) fn commit_all(&self) -> Outcome<()> {
        self.commit_each(|live, state| {
            if state.is_idle() {
                self.let_go(live, state);
            }
        })
    }

    /// The same, and calls `then` with each object that was committed; handles that nothing needs stay open.
    ///
    /// # Errors
    /// The first one; the rest is committed.
    pub(super) fn commit_each(&self, then: impl Fn(&Live, &mut MutexGuard<'_, LiveState>)) -> Outcome<()> {
        let failed = self.settle_all(None);
        let mut outcome = failed.values().next().map_or(Ok(()), |errno| Err(*errno));
        for live in self.nodes.all_live() {
            let mut state = self.attention.lock(&live.state);
            // The kernel may have met it under another name since.
            state.is_unplaced &= self.nodes.place(live.number).is_none();
            if failed.contains_key(&live.number) {
                continue;
            }
            let committed = self.commit(&live, &mut state);
            then(&live, &mut state);
            // Nothing is on the list any more of which a thread that committed it has panicked.
            state.is_waiting = false;
            if committed.is_err() {
                self.wait(&live, &mut state);
            }
            outcome = outcome.and(committed);
        }
        outcome
    }

    /// Makes everything durable, if anything has changed.
    pub(super) fn sync(&self) -> Outcome<()> {
        if self.appearance.is_read_only || !self.has_changed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let committed = self.commit_all();
        let synced = self.store.sync().map_err(|error| self.fail(error));
        // What failed is tried again.
        committed.and(synced).inspect_err(|_| self.mark_changed())
    }

    /// It is no longer mounted: everything is committed.
    ///
    /// # Errors
    /// The last changes could not be committed, and are lost.
    pub(super) fn end(&self) -> Outcome<()> {
        self.has_ended.store(true, Ordering::Relaxed);
        self.sync()
    }

    /// Makes durable what was committed. Many at once share the work.
    pub(super) fn make_durable(&self) -> Outcome<()> {
        self.retry_after_freeing(ROOT, || self.store.batch(Durability::Batch).commit())
    }
}

/// The current time.
pub(super) fn now() -> Time {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}
