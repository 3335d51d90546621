//! The catalog on its devices: a manifest and the journal that continues it, the same on each (docs/FORMAT.md, section
//! 10).
//!
//! **Loading** uses the newest valid copy: the one with the highest version. **A reader** checks the heads of the
//! manifests when it refreshes; if it knows them already, it reads only new frames. **A writer** appends a frame to
//! every copy; a copy that fails is dropped, and a new manifest on the others records that, so that no reader stays
//! with the dropped copy. A transaction fails only if no copy remains.
//!
//! A catalog that is **not published** is in memory only: that of a reader which found none, and that of a writer which
//! rebuilds the index from the log, until [`Catalog::publish`] replaces the previous one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::manifest::{self, Document, ManifestHead, ReadError};
use super::{Change, State, encoding, journal};
use crate::devices::device::{DeviceFile, Mode, Unanswered};
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::random_identity;
use crate::format::ids::{Epoch, SegmentNumber};
use crate::index::copies::{Copies, IndexDevice};
use crate::index::table::INDEX_DIRECTORY;
use crate::locks::lock;

/// How often to retry reading a copy that a writer keeps replacing.
const LOAD_ATTEMPTS: u32 = 8;
/// A journal longer than this and than twice the manifest is replaced together with the manifest, and so is one with
/// too many frames.
const JOURNAL_BYTES: u64 = 4 << 20;
const JOURNAL_FRAMES: u64 = 4096;
/// A journal longer than this is replaced when the recent changes become a table.
const SPENT_JOURNAL_BYTES: u64 = 64 << 10;

const WRITE: &str = "write the journal of the index";

/// The catalog of an open store.
#[derive(Debug)]
pub(crate) struct Catalog {
    store: [u8; 16],
    is_doubtful: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// As on the devices.
    state: State,
    /// Where a reader looks for it.
    places: Vec<IndexDevice>,
    /// Its copies, to which a writer writes.
    copies: Copies,
    is_writer: bool,
    is_published: bool,
    /// What is on the devices; `None`: nothing that can be continued, so the next transaction writes a manifest.
    current: Option<Current>,
    /// Number of the next journal.
    next_journal: u64,
    /// Epoch in which manifests are written.
    epoch: Epoch,
}

/// A manifest and its journal.
#[derive(Debug)]
struct Current {
    head: ManifestHead,
    /// Files of the journal: the reader's copy, or all copies of the writer.
    files: Vec<(IndexDevice, Arc<dyn DeviceFile>)>,
    /// Offset of the next frame.
    end: u64,
    frames: u64,
    /// The heads found on the devices with copies.
    heads: Vec<(IndexDevice, Option<ManifestHead>)>,
    /// Whether a power failure can no longer restore the state before it was taken over from another process.
    is_settled: bool,
}

impl Current {
    /// What a writer appends to, if it is byte-identical on all these devices: a crash may have torn one copy and not
    /// another.
    fn opened_on(self, places: &[IndexDevice]) -> Option<Current> {
        let (source, _) = self.files.first()?;
        let whole = |place: &IndexDevice| {
            let file = place.device.open(&journal::path(self.head.journal), Mode::Write).ok()?;
            let frames = journal::read(&*file, 0).ok()?;
            Some((file, frames, manifest::read_bytes(&*place.device).ok()?))
        };
        let (_, frames, document) = whole(source)?;
        let mut files = Vec::new();
        for place in places {
            let (file, own_frames, own_document) = whole(place)?;
            if own_frames != frames || own_document != document {
                return None;
            }
            files.push((place.clone(), file));
        }
        (frames.len() as u64 == self.end).then_some(Current { files, ..self })
    }

    /// Makes durable what another process left unsynced; returns whether it is durable.
    fn settle(&mut self) -> bool {
        self.is_settled = self.is_settled || self.files.iter().all(|(place, file)| sync(place, &**file, true).is_ok());
        self.is_settled
    }
}

/// Makes a journal durable and, on request, its name and that of its manifest.
fn sync(place: &IndexDevice, file: &dyn DeviceFile, with_names: bool) -> io::Result<()> {
    file.sync()?;
    if with_names { place.device.sync_directory(INDEX_DIRECTORY) } else { Ok(()) }
}

/// A copy as read.
struct LoadedCopy {
    place: IndexDevice,
    head: ManifestHead,
    state: State,
    file: Option<Arc<dyn DeviceFile>>,
    end: u64,
    frames: u64,
    /// Whether invalid bytes follow.
    has_rest: bool,
}

impl LoadedCopy {
    /// Reads a copy.
    fn read(place: &IndexDevice, store: &[u8; 16]) -> std::result::Result<LoadedCopy, ReadError> {
        let device = &*place.device;
        for _ in 0..LOAD_ATTEMPTS {
            let Document { head, mut state } = manifest::read(device, store)?;
            let file = match device.open(&journal::path(head.journal), Mode::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => Some(opened?),
            };
            // If the manifest has been replaced meanwhile, the journal was removed.
            if file.is_none() && manifest::read_head(device)? != head {
                continue;
            }
            let bytes = file.as_deref().map_or(Ok(Vec::new()), |file| journal::read(file, 0))?;
            let read = journal::frames(head.seed, 0, state.version, &bytes)?;
            let frames = read.changes.len() as u64;
            read.changes.iter().for_each(|change| state.apply(change));
            return Ok(LoadedCopy {
                place: place.clone(),
                head,
                state,
                file,
                end: read.end,
                frames,
                has_rest: read.has_rest,
            });
        }
        Err(ReadError::Unreadable(io::Error::other("it keeps being replaced")))
    }
}

/// What was found on the devices.
struct LoadedCopies {
    newest: Option<LoadedCopy>,
    heads: Vec<(IndexDevice, Option<ManifestHead>)>,
    /// Why there is none, from the first device that reports more than absence.
    cause: Option<Error>,
}

impl LoadedCopies {
    /// Reads as many copies as needed to know the newest.
    fn look(places: &[IndexDevice], store: &[u8; 16]) -> LoadedCopies {
        let mut found = LoadedCopies { newest: None, heads: Vec::new(), cause: None };
        for place in places {
            let head = manifest::read_head(&*place.device);
            found.heads.push((place.clone(), head.as_ref().ok().copied()));
            if let (Ok(head), Some(newest)) = (&head, &found.newest)
                && newest.head == *head
                && journal_size(place, head.journal).unwrap_or(0) <= newest.end
            {
                continue;
            }
            match head.and_then(|_| LoadedCopy::read(place, store)) {
                Ok(loaded) if found.newest.as_ref().is_none_or(|one| one.state.version < loaded.state.version) => {
                    found.newest = Some(loaded);
                }
                Ok(_) | Err(ReadError::Missing) => {}
                Err(cause) => {
                    let error = cause.into_error(&*place.device);
                    // A later version is not overwritten.
                    if found.cause.is_none() || error.kind() == ErrorKind::NewerVersion {
                        found.cause = Some(error);
                    }
                }
            }
        }
        found
    }
}

fn journal_size(place: &IndexDevice, number: u64) -> io::Result<u64> {
    place.device.open(&journal::path(number), Mode::Read)?.size()
}

impl Catalog {
    /// Opens the newest valid copy on these devices; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`]; [`ErrorKind::PermissionDenied`] if no copy may be read; that of a bucket that does
    /// not answer.
    pub(crate) fn open(places: Vec<IndexDevice>, store: [u8; 16], epoch: Epoch) -> Result<Option<Catalog>> {
        let found = LoadedCopies::look(&places, &store);
        match (found.newest, found.cause) {
            (_, Some(error)) if error.kind() == ErrorKind::NewerVersion => Err(error),
            (None, Some(error)) if error.kind() == ErrorKind::PermissionDenied => Err(error),
            // Another attempt may find it.
            (None, Some(error)) if error.os_error().is_some_and(Unanswered::is) => Err(error),
            (None, _) => Ok(None),
            (Some(newest), cause) => {
                let mut inner = Inner {
                    state: State::default(),
                    places,
                    copies: Copies::default(),
                    is_writer: false,
                    is_published: true,
                    current: None,
                    next_journal: newest.head.journal + 1,
                    epoch,
                };
                inner.take(newest, found.heads);
                Ok(Some(Catalog { store, is_doubtful: cause.is_some(), inner: Mutex::new(inner) }))
            }
        }
    }

    /// An empty catalog that is in memory only until it is published on these devices. Then its version and its epoch
    /// are above `version`: every earlier epoch came with a version of its own, and readers may have pinned one.
    pub(crate) fn unpublished(places: Vec<IndexDevice>, store: [u8; 16], epoch: Epoch, version: u64) -> Catalog {
        let inner = Inner {
            state: State { version, epoch: version, ..State::default() },
            places: places.clone(),
            copies: Copies::new(places),
            is_writer: true,
            is_published: false,
            current: None,
            next_journal: 1,
            epoch,
        };
        Catalog { store, is_doubtful: false, inner: Mutex::new(inner) }
    }

    /// Whether a copy could not be read when this was opened: what was read may be one that a failed write left behind.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A change is applied completely before anything can panic.
        lock(&self.inner)
    }

    /// Makes this a writer's catalog, with copies on these devices. If they are missing or differ, the next transaction
    /// writes them.
    pub(crate) fn write_to(&self, places: Vec<IndexDevice>) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.current = inner.current.take().and_then(|current| current.opened_on(&places));
        inner.copies.set(places);
        inner.is_writer = true;
    }

    /// Sets the epoch in which manifests are written from now on.
    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        self.inner().epoch = epoch;
    }

    /// The epoch in which it was written when found; `None` if it was not found.
    pub(crate) fn found_epoch(&self) -> Option<Epoch> {
        self.inner().current.as_ref().map(|current| current.head.epoch)
    }

    /// The devices with copies of it and of its tables.
    pub(crate) fn copies(&self) -> Copies {
        self.inner().copies.clone()
    }

    /// The state on the devices.
    pub(crate) fn state(&self) -> State {
        self.inner().state.clone()
    }

    /// Size of a segment according to the devices, 0 if they do not know it.
    pub(crate) fn segment_bytes(&self, number: SegmentNumber) -> u64 {
        self.inner().state.segments.get(&number).map_or(0, |row| row.size_bytes)
    }

    /// The state, if another process has changed it.
    ///
    /// # Errors
    /// No copy is valid any more.
    pub(crate) fn renewed(&self) -> Result<Option<State>> {
        let mut inner = self.inner();
        if !inner.is_published || inner.is_writer {
            return Ok(None);
        }
        let changed = match inner.is_replaced() {
            true => inner.load(&self.store)?,
            false => inner.read_on()?,
        };
        Ok(changed.then(|| inner.state.clone()))
    }

    /// Makes the next [`renewed`](Self::renewed) return the state even if it has not changed.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner();
        if inner.is_published && !inner.is_writer {
            inner.current = None;
            inner.state = State::default();
        }
    }

    /// Makes the next [`renewed`](Self::renewed) load the state, which was refused.
    pub(crate) fn load_again(&self) {
        let mut inner = self.inner();
        if inner.is_published && !inner.is_writer {
            inner.current = None;
        }
    }

    /// Commits one transaction.
    ///
    /// # Errors
    /// Any error of writing; nothing was changed.
    pub(crate) fn commit(&self, change: &Change) -> Result<()> {
        let mut inner = self.inner();
        if !inner.is_published {
            inner.state.apply(change);
            return Ok(());
        }
        if !inner.is_writer {
            return Err(Error::new(ErrorKind::ReadOnly, WRITE, "it was opened for reading"));
        }
        inner.commit(&self.store, change)
    }

    /// Replaces the catalog on the devices with this one. Does nothing if it was already published.
    ///
    /// # Errors
    /// Any error of writing on all devices.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut inner = self.inner();
        if inner.is_published {
            return Ok(());
        }
        let mut failures = Vec::new();
        let places = inner.copies.places();
        for place in places.iter() {
            let made = place.device.create_directory(INDEX_DIRECTORY);
            match made.and_then(|()| place.device.list(INDEX_DIRECTORY)) {
                Ok(files) => {
                    let highest = files.iter().filter_map(|(name, _)| journal::number(name)).max().unwrap_or(0);
                    inner.next_journal = inner.next_journal.max(highest + 1);
                }
                Err(error) => failures.push((place.clone(), error)),
            }
        }
        if failures.len() == places.len() {
            if failures.is_empty() {
                return Err(Error::new(ErrorKind::Lost, "create the index", "no device is in service"));
            }
            let (place, error) = failures.swap_remove(0);
            return Err(Error::io("create the index", &manifest::place(&*place.device), error));
        }
        inner.copies.drop_failed(&failures);
        let state = inner.state.clone();
        inner.replace(&self.store, state)?;
        inner.is_published = true;
        Ok(())
    }

    /// Verifies the copy on a device. Unless the store was closed, its journal may end in part of a frame: a crash
    /// leaves that, and the log has what was in it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn verify(place: &IndexDevice, store: &[u8; 16], is_closed: bool) -> std::result::Result<(), String> {
        let failed = |cause: ReadError| cause.into_error(&*place.device).to_string();
        // A writer may be about to complete the invalid frame.
        let mut has_rest = false;
        for _ in 0..LOAD_ATTEMPTS {
            has_rest = LoadedCopy::read(place, store).map_err(failed)?.has_rest;
            if !has_rest {
                break;
            }
        }
        if has_rest && is_closed { Err("its journal is damaged".to_owned()) } else { Ok(()) }
    }

    /// Compares each copy of a writer's catalog with what was written to it; returns what is wrong, and how many bytes
    /// were read.
    pub(crate) fn flaws_of_writer(&self) -> (Vec<(IndexDevice, String)>, u64) {
        // Nothing is written meanwhile.
        let inner = self.inner();
        let (mut flaws, mut read_bytes) = (Vec::new(), 0);
        let Some(current) = &inner.current else { return (flaws, read_bytes) };
        for place in inner.copies.places().iter() {
            read_bytes += current.head.length + current.end;
            let cause = match LoadedCopy::read(place, &self.store) {
                Err(cause) => cause.into_error(&*place.device).to_string(),
                Ok(loaded) if loaded.has_rest || loaded.head == current.head && loaded.end < current.end => {
                    "its journal is damaged".to_owned()
                }
                Ok(loaded) if loaded.head != current.head || loaded.end != current.end => {
                    "it is not the one that was written".to_owned()
                }
                Ok(_) => continue,
            };
            flaws.push((place.clone(), cause));
        }
        (flaws, read_bytes)
    }

    /// Whether this process writes it to devices.
    pub(crate) fn is_written(&self) -> bool {
        let inner = self.inner();
        inner.is_writer && inner.is_published
    }

    /// Rewrites the manifest on all devices.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn write_again(&self) -> Result<()> {
        let mut inner = self.inner();
        if inner.is_writer && inner.is_published {
            return inner.replace_with(&self.store, &Change::default(), 0);
        }
        drop(inner);
        self.commit(&Change { durable: true, ..Change::default() })
    }

    /// Makes the state durable as it is read. This is required before anything it no longer references is removed: no
    /// power failure may restore a state that references it. A durable transaction does the same. Returns whether the
    /// state is durable; if not, the next transaction writes a manifest.
    pub(crate) fn settle(&self) -> bool {
        let mut inner = self.inner();
        let is_settled = inner.current.as_mut().is_some_and(Current::settle);
        if !is_settled {
            inner.current = None;
        }
        is_settled
    }

    /// What tells the manifest that was read last from others; `None` if it is to be read again.
    pub(crate) fn manifest(&self) -> Option<ManifestHead> {
        self.inner().current.as_ref().map(|current| current.head)
    }

    /// The journal being continued, if any: other journals belong to nothing.
    pub(crate) fn journal(&self) -> Option<u64> {
        self.inner().current.as_ref().map(|current| current.head.journal)
    }
}

impl Inner {
    /// Adopts a copy that was read.
    fn take(&mut self, loaded: LoadedCopy, heads: Vec<(IndexDevice, Option<ManifestHead>)>) {
        let LoadedCopy { place, head, state, file, end, frames, has_rest: _ } = loaded;
        self.state = state;
        // What other devices have is not part of the catalog.
        let devices = Arc::clone(&self.state.devices);
        let from = place.number;
        let heads = heads.into_iter().filter(|(of, _)| of.number == from || devices.contains(&of.number));
        let others = self.places.iter().filter(|of| of.number != from && devices.contains(&of.number));
        self.copies.set([place.clone()].into_iter().chain(others.cloned()).collect());
        let files = file.map(|file| (place, file)).into_iter().collect();
        self.current = Some(Current { head, files, end, frames, heads: heads.collect(), is_settled: false });
    }

    /// Whether the manifest has been replaced since it was read.
    fn is_replaced(&self) -> bool {
        let Some(current) = &self.current else { return true };
        // A missing journal: the manifest is about to be replaced, or a crash lost it.
        current.files.is_empty()
            || current.heads.iter().any(|(place, head)| manifest::read_head(&*place.device).ok() != *head)
    }

    fn load(&mut self, store: &[u8; 16]) -> Result<bool> {
        let found = LoadedCopies::look(&self.places, store);
        let Some(newest) = found.newest else {
            let lost = || Error::new(ErrorKind::NotFound, "read the index", "it is gone");
            return Err(found.cause.unwrap_or_else(lost));
        };
        if newest.state.version < self.state.version {
            // A copy that was left behind.
            let old = || Error::new(ErrorKind::Corrupt, "read the index", "its newest copy is gone");
            return Err(found.cause.unwrap_or_else(old));
        }
        let is_new = self.current.is_none() || newest.state.version != self.state.version;
        self.take(newest, found.heads);
        Ok(is_new)
    }

    /// Reads new frames.
    fn read_on(&mut self) -> Result<bool> {
        let Some(current) = &mut self.current else { return Ok(false) };
        let Some((place, file)) = current.files.first() else { return Ok(false) };
        let fail = |cause: ReadError| cause.into_error(&*place.device);
        let bytes = journal::read(&**file, current.end).map_err(|error| fail(error.into()))?;
        let read = journal::frames(current.head.seed, current.end, self.state.version, &bytes)
            .map_err(|refusal| fail(refusal.into()))?;
        current.end = read.end;
        current.frames += read.changes.len() as u64;
        let is_new = !read.changes.is_empty();
        read.changes.iter().for_each(|change| self.state.apply(change));
        Ok(is_new)
    }

    fn commit(&mut self, store: &[u8; 16], change: &Change) -> Result<()> {
        let numbers = self.copies.numbers();
        // A frame does not say which devices have copies: the manifest does.
        let is_on = |current: &Current| {
            let files = current.files.iter().map(|(place, _)| place.number);
            files.eq(numbers.iter().copied()) && *self.state.devices == numbers
        };
        let Some(current) = self.current.as_mut().filter(|current| is_on(current)) else {
            // Above the version of former copies.
            return self.replace_with(store, change, 1);
        };
        let content = encoding::encode_change(self.state.version + 1, change);
        let frame = journal::frame(current.head.seed, current.end, &content);
        let end = current.end + frame.len() as u64;
        let is_full = end > JOURNAL_BYTES.max(2 * current.head.length) || current.frames >= JOURNAL_FRAMES;
        let is_spent = change.clear_recent && end > SPENT_JOURNAL_BYTES;
        if is_full || is_spent || content.len() > journal::LONGEST_CONTENT_BYTES {
            return self.replace_with(store, change, 0);
        }
        let (is_settled, mut failures) = (current.is_settled, Vec::new());
        current.files.retain(|(place, file)| {
            let written = file.write_at(&frame, current.end);
            let synced = written.and_then(|()| match change.durable {
                true => sync(place, &**file, !is_settled),
                false => Ok(()),
            });
            synced.map_err(|error| failures.push((place.clone(), error))).is_ok()
        });
        let is_left = !current.files.is_empty();
        (current.end, current.frames) = (end, current.frames + 1);
        current.is_settled |= change.durable;
        if failures.is_empty() {
            self.state.apply(change);
            return Ok(());
        }
        // What is now on the devices is unknown, or differs.
        self.current = None;
        if !is_left {
            let (place, error) = failures.swap_remove(0);
            return Err(Error::io(WRITE, &manifest::place(&*place.device), error));
        }
        self.copies.drop_failed(&failures);
        // Above the version of the copies that failed.
        self.replace_with(store, change, 1)
    }

    /// One transaction as a new manifest, with a version `ahead` of the next.
    fn replace_with(&mut self, store: &[u8; 16], change: &Change, ahead: u64) -> Result<()> {
        let mut state = self.state.clone();
        state.apply(change);
        state.version += ahead;
        self.replace(store, state)
    }

    /// Writes a manifest with `state` to the devices of the index, and removes the journal of the old one. Devices that
    /// fail are dropped, and the others get another manifest that does not name them. If a list is too long for the
    /// format, nothing is written: the old one stays.
    fn replace(&mut self, store: &[u8; 16], mut state: State) -> Result<()> {
        let old = self.current.as_ref().map(|current| current.head.journal);
        let seed = u128::from_le_bytes(random_identity()?) as u64;
        let number = self.next_journal;
        self.next_journal += 1;
        loop {
            state.devices = Arc::new(self.copies.numbers());
            let Some((head, document)) = manifest::encode(store, self.epoch, number, seed, &state) else {
                let cause = "a list in it would be longer than 4 GiB";
                let advice = "remove objects, above all files with several names";
                return Err(Error::new(ErrorKind::NoSpace, "write the manifest of the index", cause).advise(advice));
            };
            self.current = None;
            let (mut files, mut failures) = (Vec::new(), Vec::new());
            for (place, replaced) in replace_all(&self.copies.places(), number, &document) {
                match replaced {
                    Ok(file) => files.push((place, file)),
                    Err(error) => failures.push((place, error)),
                }
            }
            if files.is_empty() {
                // A device may have it all the same: its version is used up.
                self.state.version = self.state.version.max(state.version);
                let Some((place, error)) = failures.into_iter().next() else {
                    return Err(Error::new(ErrorKind::Lost, "write the index", "no device is in service"));
                };
                return Err(Error::io("write the manifest of the index", &manifest::place(&*place.device), error));
            }
            if failures.is_empty() {
                for (place, _) in &files {
                    // Readers that have it open keep it; others find the new one.
                    let _ = old.map(|old| place.device.remove(&journal::path(old)));
                }
                self.state = state;
                self.current = Some(Current { head, files, end: 0, frames: 0, heads: Vec::new(), is_settled: true });
                return Ok(());
            }
            // The others must not name them, and must be newer.
            self.copies.drop_failed(&failures);
            state.version += 1;
        }
    }
}

/// A device, and its journal if its manifest was replaced.
type Replaced = (IndexDevice, io::Result<Arc<dyn DeviceFile>>);

/// Replaces the manifest on all devices in parallel.
fn replace_all(places: &[IndexDevice], journal: u64, document: &[u8]) -> Vec<Replaced> {
    let replace = |place: &IndexDevice| (place.clone(), manifest::replace(&*place.device, journal, document));
    match places {
        [] => Vec::new(),
        [one] => vec![replace(one)],
        places => std::thread::scope(|scope| {
            let threads: Vec<_> = places.iter().map(|place| scope.spawn(move || replace(place))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Replaced>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        }),
    }
}
