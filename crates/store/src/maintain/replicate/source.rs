//! Where an image comes from, and its bytes.
//!
//! A store on this machine is read as any reader reads it, beside a writer or without one: the state is pinned, and the
//! superblocks are read after it, until they say nothing that happened later. What a writer frees all the same, which
//! was waiting for readers before, is not found: then a newer image has it no more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::{FileKind, Image, ImageFile, LastBatch};
use crate::Store;
use crate::devices::device::{DeviceFile, Mode};
use crate::devices::names;
use crate::devices::slot::{Slot, Trouble};
use crate::devices::survey::{OpenOptions, Survey, survey};
use crate::engine::View;
use crate::engine::pins::{Pin, is_of_place};
use crate::engine::recovered::RELEASED;
use crate::error::{Error, ErrorKind, Result};
use crate::format::geometry::DeviceState;
use crate::format::ids::{DeviceNumber, LogOffset, SegmentId};
use crate::format::names::segment_path;
use crate::format::record::Record;
use crate::format::release::Released;
use crate::format::rows::Superseded;
use crate::format::segment::Commit;
use crate::format::superblock::last_marked;
use crate::index::Snapshot;
use crate::index::catalog::{Position, SegmentRow, State};

/// How often a state is taken again because a writer goes on meanwhile.
const ATTEMPTS: usize = 8;
/// What is done, in messages.
pub(crate) const COPY: &str = "copy the store";

/// Where an image comes from.
pub(crate) trait Source {
    /// Directories of this machine in which it is.
    fn directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// The current state.
    ///
    /// # Errors
    /// The store is not complete, or cannot be read.
    fn image(&mut self) -> Result<Image>;
    /// Appends exactly `length` bytes of a file of the last image to `onto`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the file was freed; the file is shorter, or cannot be read.
    fn read(&mut self, file: &ImageFile, offset: u64, length: usize, onto: &mut Vec<u8>) -> Result<()>;
    /// Whether who asked for the copy still waits for it.
    ///
    /// # Errors
    /// The other side is gone.
    fn is_there(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Whether some copy of a segment has these bytes from an offset on. Damage of another one says nothing.
///
/// # Errors
/// Any error of reading the source.
pub(super) fn has_bytes(source: &mut dyn Source, row: &SegmentRow, from: LogOffset, bytes: &[u8]) -> Result<bool> {
    for &device in &row.devices {
        let path = segment_path(row.id());
        let file = ImageFile { device, path, size_bytes: row.size_bytes, kind: FileKind::Segment };
        let mut found = Vec::new();
        source.read(&file, from.0, bytes.len(), &mut found)?;
        if found == bytes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Drops the rows of files that may be gone: of segments that a crash left before their first batch, and of what the
/// log says is released.
pub(super) fn drop_freed(state: &mut State) {
    let released = state.notes.get(RELEASED).and_then(|note| Released::decode(note)).unwrap_or_default();
    let superseded: BTreeSet<Superseded> = state.superseded.iter().map(|(_, superseded)| superseded.clone()).collect();
    let is_freed =
        |superseded_file: Superseded, is_released: bool| is_released && superseded.contains(&superseded_file);
    let is_kept = |row: &SegmentRow| {
        !row.is_without_batches() && !is_freed(Superseded::Segment(row.number), released.has_segment(row.number))
    };
    let has_extent = |device, file| !is_freed(Superseded::Extent { device, file }, released.has_extent(device, file));
    if !state.segments.values().all(is_kept) {
        Arc::make_mut(&mut state.segments).retain(|_, row| is_kept(row));
    }
    if !state.extents.values().all(|row| has_extent(row.device, row.file)) {
        Arc::make_mut(&mut state.extents).retain(|_, row| has_extent(row.device, row.file));
    }
    let (segments, extents) = (Arc::clone(&state.segments), Arc::clone(&state.extents));
    Arc::make_mut(&mut state.superseded).retain(|(_, superseded)| match *superseded {
        Superseded::Segment(number) => segments.contains_key(&number),
        Superseded::Extent { device, file } => extents.contains_key(&(device, file)),
        Superseded::Table(_) => true,
    });
}

/// An open store as a source.
pub(crate) struct StoreSource {
    store: Store,
    /// Keeps what the image refers to.
    pin: Option<Pin>,
    /// The state of the image.
    view: Option<View>,
    /// The file that was read last.
    open: Option<(DeviceNumber, String, Arc<dyn DeviceFile>)>,
}

impl StoreSource {
    pub(crate) fn new(store: &Store) -> StoreSource {
        StoreSource { store: store.clone(), pin: None, view: None, open: None }
    }

    /// The store, and the state of the last image.
    pub(crate) fn state(&self) -> (&Store, Option<Snapshot>) {
        (&self.store, self.view.as_ref().map(View::snapshot))
    }

    /// Lets go of what the image refers to: nobody else frees it.
    pub(crate) fn let_go(&mut self) {
        self.pin = None;
    }

    /// Superblocks that belong to a state.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if one says that an epoch began behind a later batch, or if the state lacks the batch that
    /// they said was durable before it was taken, which comes to be `durable`; a device is missing, or cannot be read.
    pub(super) fn superblocks_of(&self, state: &State, durable: &mut Option<u64>) -> Result<Survey> {
        let engine = self.store.engine();
        let devices = engine.devices.slots().iter().map(|slot| slot.path.clone()).collect();
        let options = OpenOptions { devices, ..OpenOptions::default() };
        let found = survey(&*engine.platform, &engine.home, &options)?;
        found.slots.iter().try_for_each(|slot| self.refuse_trouble(slot))?;
        let refused = |cause, advice| Err(Error::new(ErrorKind::Busy, COPY, cause).at(&engine.home).advise(advice));
        let sequence = state.position.sequence;
        let durable = *durable.get_or_insert_with(|| last_marked(&found.marks()));
        match () {
            () if found.history.newest().last_batch > sequence => refused("writers open it all the time", "try again"),
            // A writer has acknowledged what the index has no space for, unless that came after the state.
            () if durable > sequence => {
                refused("its index lacks what was written last", "make room on the devices of the index, or try again")
            }
            () => Ok(found),
        }
    }

    /// An error of reading the state of the image: what a writer has freed since is not found, whatever it looks like.
    pub(super) fn or_gone(&self, error: Error) -> Error {
        let engine = self.store.engine();
        let is_freed = |pin: &Pin| is_of_place(&error) && engine.may_have_freed(pin.loose());
        match self.pin.as_ref().is_some_and(is_freed) {
            true => {
                let cause = "a writer has freed a part of it meanwhile";
                Error::new(ErrorKind::NotFound, COPY, cause).at(&engine.home).advise("try again")
            }
            false => error,
        }
    }

    fn refuse_trouble(&self, slot: &Slot) -> Result<()> {
        let is_left = slot.entry.state == DeviceState::Gone && slot.trouble == Some(Trouble::Gone);
        let cause = match &slot.trouble {
            _ if is_left => return Ok(()),
            Some(trouble) => trouble.explain(),
            None if slot.is_late => "lacks the last epoch, which a crash left".to_owned(),
            None if slot.entry.state == DeviceState::Rebuilding => "is not rebuilt yet".to_owned(),
            None => return Ok(()),
        };
        Err(Error::new(ErrorKind::Lost, COPY, format!("device {} {cause}", slot.entry.number))
            .at(&self.store.engine().home)
            .advise("bring it back, or run granulo store repair or rebuild first"))
    }

    /// The store must show everything that it acknowledged, and nothing that no writer has recovered.
    fn refuse_incomplete(&self) -> Result<()> {
        let found = self.store.recovered();
        let is_whole = found.completeness.is_complete() && found.damage.is_empty() && found.lost.is_empty();
        let (kind, cause) = match () {
            () if !is_whole => (ErrorKind::Lost, "it is incomplete or damaged"),
            () if self.store.engine().is_writer() => return Ok(()),
            () if found.completeness.tail.is_some() || found.batches > 0 || self.store.engine().is_index_private => {
                (ErrorKind::Lost, "a crash left the end of its log, or its index, to be recovered")
            }
            () => return Ok(()),
        };
        let error = Error::new(kind, COPY, cause).at(&self.store.engine().home);
        Err(error.advise("run granulo store repair first"))
    }

    fn image_of(&self, view: &View, found: Survey) -> Result<Image> {
        let mut state = view.state.clone();
        // The view of a writer does not hear of devices that get a copy of the index, or fail to.
        state.devices = Arc::new(self.store.engine().index.numbers());
        drop_freed(&mut state);
        let last = self.last_batch(&state)?;
        // Of a long history, only the newest epochs are left: its oldest may have begun behind that batch.
        let is_dropped =
            found.history.entries().next().is_some_and(|oldest| oldest.last_batch >= state.position.sequence);
        if !is_dropped && last.as_ref().is_some_and(|last| !found.history.contains(last.epoch)) {
            let cause = "its superblocks do not know the writer of its last batch";
            let error = Error::new(ErrorKind::Lost, COPY, cause).at(&found.home);
            return Err(error.advise("run granulo store repair first"));
        }
        let ids_reserved = found.marks().iter().map(|mark| mark.ids_reserved).max().unwrap_or(0);
        let extents = self.extents(&state)?;
        Ok(Image { geometry: found.geometry, history: found.history, state, last, ids_reserved, extents })
    }

    fn last_batch(&self, state: &State) -> Result<Option<LastBatch>> {
        let Position { segment, commit, offset, sequence, .. } = state.position;
        if sequence == 0 {
            return Ok(None);
        }
        let engine = self.store.engine();
        let row = state.segments.get(&segment);
        let id = row.map_or(SegmentId::default(), |row| row.id());
        for &device in row.map_or(&[][..], |row| &row.devices) {
            let mut record = Vec::new();
            let read = engine.read_copy(device, id, commit, (offset - commit) as usize, &mut record);
            let found = Record::decode(&record, engine.seed(id).at(commit)).filter(|_| read.is_ok());
            if let Some(found) = found.and_then(|record| Commit::decode(record.content))
                && found.sequence.0 == sequence
            {
                return Ok(Some(LastBatch { epoch: found.epoch, is_close: found.is_close, record }));
            }
        }
        let error = Error::new(ErrorKind::Corrupt, COPY, "its last batch cannot be read").at(&engine.home);
        Err(error.advise("run granulo store repair first"))
    }

    /// Names of the extent files. One without bytes may not exist.
    fn extents(&self, state: &State) -> Result<BTreeMap<(DeviceNumber, u32), String>> {
        let extents = &self.store.engine().extents;
        extents.look_again();
        let mut found = BTreeMap::new();
        for row in state.extents.values() {
            let fail = |error| extents.error("find", row.device, row.file, error);
            let path = extents.path(row.device, row.file).map_err(fail)?;
            let name = path.as_deref().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
            match name {
                Some(name) => _ = found.insert((row.device, row.file), name.to_owned()),
                None if row.end_bytes == 0 => {}
                None => return Err(fail(std::io::ErrorKind::NotFound.into())),
            }
        }
        Ok(found)
    }
}

impl Source for StoreSource {
    fn directories(&self) -> Vec<PathBuf> {
        let engine = self.store.engine();
        let devices = engine.devices.slots();
        let in_store = devices.iter().filter(|slot| slot.entry.state != DeviceState::Gone);
        [engine.home.clone()].into_iter().chain(in_store.map(|slot| slot.path.clone())).collect()
    }

    fn image(&mut self) -> Result<Image> {
        self.refuse_incomplete()?;
        self.open = None;
        let mut durable = None;
        for attempt in 1.. {
            let (pin, view) = self.store.engine().pinned_durable()?;
            self.pin = Some(pin);
            match self.superblocks_of(&view.state, &mut durable).and_then(|found| self.image_of(&view, found)) {
                // A writer has gone on since, or freed a file.
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound) && attempt < ATTEMPTS => {}
                image => {
                    self.view = Some(view);
                    return image;
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    fn read(&mut self, file: &ImageFile, offset: u64, length: usize, onto: &mut Vec<u8>) -> Result<()> {
        let engine = self.store.engine();
        let place = || engine.devices.place(file.device, &file.path);
        let fail = |error| Error::io("read", &place(), error).on_device(file.device.0);
        let is_open = self.open.as_ref().is_some_and(|(device, path, _)| (*device, path) == (file.device, &file.path));
        if !is_open {
            let device =
                engine.devices.readable(file.device).ok_or_else(|| fail(std::io::ErrorKind::NotFound.into()))?;
            let opened = names::open(&*device, &file.path, Mode::Read).map_err(fail)?;
            self.open = Some((file.device, file.path.clone(), opened));
        }
        let Some((.., opened)) = &self.open else { unreachable!("it was just opened") };
        let before = onto.len();
        let mut piece = Vec::new();
        let read = opened.read_onto(&mut piece, length, offset).map_err(|error| self.or_gone(fail(error)))?;
        onto.append(&mut piece);
        if read != length {
            onto.truncate(before);
            let error = Error::new(ErrorKind::Corrupt, "read", "it is shorter than the index says").at(&place());
            return Err(self.or_gone(error.advise("run granulo store repair first")));
        }
        Ok(())
    }
}
