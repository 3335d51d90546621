//! An image as a directory beside the one that it is going to be (`devices::aside`): its files are made here, then the
//! index and the superblocks, then it is verified, and then it takes its place.
//!
//! - A file gets its name when all its bytes are durable; until then it has the suffix of incomplete files. So a copy
//!   that was interrupted, or whose machine died, goes on where it was. A file that grows loses its name meanwhile. One
//!   that only grows gets its name also if the source ends, or a stop is asked for, with the bytes that have arrived.
//! - What the copy has already is the same file with a second name. Nothing is written through that: a file that grows
//!   is another one.
//! - The file `incoming` says which state the directory is going to be. It is there as long as the directory may go on;
//!   without it, the directory is the former copy, or about to be exchanged for it, and can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::{FileKind, Image, ImageFile};
use super::source::{COPY, Source, has_bytes};
use crate::devices::aside;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::devices::host::LOCK;
use crate::devices::platform::Platform;
use crate::devices::survey::bind;
use crate::engine::pace::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode::Decoder;
use crate::format::geometry::{DeviceState, Geometry, random_identity};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::names::{EXTENTS, SEGMENTS, TEMPORARY};
use crate::format::superblock::{SUPERBLOCK, Superblock};
use crate::index::catalog::{Position, State, manifest};
use crate::index::table::INDEX_DIRECTORY;

/// Says what a directory is going to be.
pub(crate) const INCOMING: &str = "incoming";
/// Directory of readers' pins.
pub(super) const PINS: &str = "index/pins";
/// Bytes of a sorted table that tell it from any other: its footer.
const FOOTER_BYTES: u64 = 4096;
/// Bytes that are read at once.
pub(super) const PIECE_BYTES: u64 = 4 << 20;

/// What was done, in all attempts of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transferred {
    /// Files with bytes from the source.
    pub(crate) files: u64,
    /// Bytes from the source.
    pub(crate) bytes: u64,
    /// Files that were there: of the copy, or from an interrupted command.
    pub(crate) kept_files: u64,
    /// Their bytes, and those that others begin with.
    pub(crate) kept_bytes: u64,
    /// How many bytes of each file are from the source: what the next attempt finds of them was not there before.
    came: BTreeMap<(DeviceNumber, String), u64>,
}

impl Transferred {
    /// Begins another attempt: what was there is looked for again, what was transferred stays.
    pub(super) fn attempt(&mut self) {
        (self.kept_files, self.kept_bytes) = (0, 0);
    }

    /// Counts bytes of a file from the source.
    pub(super) fn came(&mut self, file: &ImageFile, bytes: u64) {
        self.bytes += bytes;
        match self.came.get_mut(&(file.device, file.path.clone())) {
            Some(came) => *came += bytes,
            None => {
                self.files += 1;
                self.came.insert((file.device, file.path.clone()), bytes);
            }
        }
    }

    /// Counts the first bytes of a file, which are there.
    pub(super) fn had(&mut self, file: &ImageFile, bytes: u64) {
        let came = self.came.get(&(file.device, file.path.clone())).map_or(0, |&came| came.min(bytes));
        self.kept_bytes += bytes - came;
        self.kept_files += u64::from(came == 0 && bytes == file.size_bytes);
    }

    /// Nothing is left of what came of a file.
    pub(super) fn removed(&mut self, file: &ImageFile) {
        if let Some(came) = self.came.get_mut(&(file.device, file.path.clone())) {
            *came = 0;
        }
    }
}

/// What the copy has already.
pub(crate) struct Before<'b> {
    pub(crate) image: &'b Image,
    pub(crate) source: &'b mut dyn Source,
}

/// A directory that is made.
pub(crate) struct Staging<'s> {
    platform: &'s dyn Platform,
    /// Where it is made.
    pub(crate) place: PathBuf,
    /// Where it goes.
    home: PathBuf,
    /// The directory of each device, relative to the home; none of those that left.
    directories: Vec<Option<PathBuf>>,
    file_mode: u16,
}

/// The directories of the devices in a copy.
pub(crate) fn directories_of(geometry: &Geometry) -> Vec<Option<PathBuf>> {
    let directory = |number: DeviceNumber| match geometry.has_home_apart() {
        true => PathBuf::from(format!("device-{number}")),
        false => PathBuf::from("."),
    };
    let entries = geometry.devices.iter();
    entries.map(|entry| (entry.state != DeviceState::Gone).then(|| directory(entry.number))).collect()
}

/// The path of a directory in a home.
pub(crate) fn inside(home: &Path, directory: &Path) -> PathBuf {
    if directory == Path::new(".") { home.to_owned() } else { home.join(directory) }
}

impl<'s> Staging<'s> {
    /// In `place`, for `home`.
    pub(crate) fn new(
        platform: &'s dyn Platform,
        (place, home): (&Path, &Path),
        directories: Vec<Option<PathBuf>>,
        file_mode: u16,
    ) -> Staging<'s> {
        Staging { platform, place: place.to_owned(), home: home.to_owned(), directories, file_mode }
    }

    pub(super) fn device(&self, number: DeviceNumber) -> Arc<dyn Device> {
        self.platform.device_with(&self.directory(&self.place, number), self.file_mode)
    }

    fn directory(&self, home: &Path, number: DeviceNumber) -> PathBuf {
        let directory = self.directories.get(number.index()).and_then(Option::as_deref);
        inside(home, directory.unwrap_or(Path::new(".")))
    }

    fn home_device(&self) -> Arc<dyn Device> {
        self.platform.device_with(&self.place, self.file_mode)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = DeviceNumber> + '_ {
        let numbered = (0..).map(DeviceNumber).zip(&self.directories);
        numbered.filter_map(|(number, directory)| directory.as_ref().map(|_| number))
    }

    /// Begins, or goes on with what was begun for this state or an earlier one: then what is complete stays.
    ///
    /// # Errors
    /// Any error of reading the source and of writing.
    pub(crate) fn begin(&self, image: &Image, source: &mut dyn Source) -> Result<()> {
        let known = self.read_incoming()?.map(|known| is_earlier(&known, image, source));
        if known.transpose()? == Some(false) {
            self.clear()?;
        }
        self.remove(&*self.home_device(), SUPERBLOCK)?;
        self.write_incoming(&incoming_of(image))?;
        for number in self.numbers() {
            let device = self.device(number);
            for directory in [SEGMENTS, EXTENTS] {
                self.create(&*device, directory)?;
            }
            if image.state.devices.contains(&number) {
                self.create(&*device, INDEX_DIRECTORY)?;
            }
        }
        Ok(())
    }

    pub(super) fn create(&self, device: &dyn Device, directory: &str) -> Result<()> {
        device.create_directory(directory).map_err(|error| fail(device, directory, error))
    }

    fn remove(&self, device: &dyn Device, path: &str) -> Result<()> {
        match device.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(device, path, error)),
            _ => Ok(()),
        }
    }

    /// What the directory is said to be going to be.
    ///
    /// # Errors
    /// Any error of reading.
    pub(super) fn read_incoming(&self) -> Result<Option<Vec<u8>>> {
        let device = self.home_device();
        let read = device.open(INCOMING, Mode::Read).and_then(|file| {
            let mut bytes = Vec::new();
            file.read_onto(&mut bytes, PIECE_BYTES as usize, 0).map(|_| bytes)
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| fail(&*device, INCOMING, error)),
        }
    }

    /// Says what the directory is going to be.
    ///
    /// # Errors
    /// Any error of writing.
    pub(super) fn write_incoming(&self, bytes: &[u8]) -> Result<()> {
        let (device, temporary) = (self.home_device(), format!("{INCOMING}{TEMPORARY}"));
        self.remove(&*device, &temporary)?;
        let written = device.open(&temporary, Mode::Create).and_then(|file| {
            file.write_at(bytes, 0)?;
            file.sync()?;
            device.rename(&temporary, INCOMING)?;
            device.sync_directory("")
        });
        written.map_err(|error| fail(&*device, INCOMING, error))
    }

    /// Makes all files of an image, and removes others that were made before.
    ///
    /// # Errors
    /// Errors of reading the source and of writing; the request to stop. What is complete stays.
    pub(crate) fn fill(
        &self,
        image: &Image,
        source: &mut dyn Source,
        mut before: Option<&mut Before<'_>>,
        (transferred, pace): (&mut Transferred, &mut Pace<'_>),
    ) -> Result<()> {
        let files = image.files();
        self.remove_others(&files)?;
        let known = before.as_ref().map(|before| before.image.files()).unwrap_or_default();
        let known: BTreeMap<_, _> = known.iter().map(|file| ((file.device, file.path.as_str()), file)).collect();
        for file in &files {
            let known = known.get(&(file.device, file.path.as_str())).copied();
            let before = before.as_deref_mut().zip(known);
            self.make(image, file, source, before, (transferred, pace))?;
            pace.spend(0)?;
        }
        for number in self.numbers() {
            let device = self.device(number);
            for directory in [SEGMENTS, EXTENTS, INDEX_DIRECTORY] {
                let synced = device.sync_directory(directory);
                let is_none = directory == INDEX_DIRECTORY && !image.state.devices.contains(&number);
                synced.or_else(|error| if is_none { Ok(()) } else { Err(fail(&*device, directory, error)) })?;
            }
        }
        Ok(())
    }

    /// Removes what is no file of the image, also incomplete ones and the index that was made of another image.
    ///
    /// # Errors
    /// Any error of removing.
    pub(super) fn remove_others(&self, files: &[ImageFile]) -> Result<()> {
        let named: BTreeSet<_> = files.iter().map(|file| (file.device, file.path.as_str())).collect();
        for number in self.numbers() {
            let device = self.device(number);
            for directory in [SEGMENTS, EXTENTS, INDEX_DIRECTORY] {
                let listed = device.list_names(directory).map_err(|error| fail(&*device, directory, error))?;
                for name in listed {
                    let path = format!("{directory}/{name}");
                    if !named.contains(&(number, path.as_str())) {
                        self.remove(&*device, &path)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn make(
        &self,
        image: &Image,
        file: &ImageFile,
        source: &mut dyn Source,
        before: Option<(&mut Before<'_>, &ImageFile)>,
        (transferred, pace): (&mut Transferred, &mut Pace<'_>),
    ) -> Result<()> {
        let (device, temporary) = (self.device(file.device), format!("{}{TEMPORARY}", file.path));
        // All copies of a table have the bytes of the first.
        let of = match file.kind {
            FileKind::Table => ImageFile { device: image.state.devices[0], ..file.clone() },
            FileKind::Segment | FileKind::Extents => file.clone(),
        };
        let mut done = match self.staged_bytes(&*device, file, &of, source)? {
            Some(bytes) => {
                transferred.had(file, bytes);
                if bytes == file.size_bytes {
                    pace.skip(bytes);
                    return Ok(());
                }
                device.rename(&file.path, &temporary).map_err(|error| fail(&*device, &file.path, error))?;
                bytes
            }
            None => {
                transferred.removed(file);
                match self.take_over(file, &of, source, before, transferred)? {
                    Taken::Whole => {
                        pace.skip(file.size_bytes);
                        return Ok(());
                    }
                    Taken::Begin(bytes) => bytes,
                }
            }
        };
        pace.skip(done);
        let mode = if done == 0 { Mode::Create } else { Mode::Write };
        let written = device.open(&temporary, mode).map_err(|error| fail(&*device, &temporary, error))?;
        let (mut piece, mut is_written) = (Vec::new(), true);
        let mut write = || -> Result<()> {
            while done < file.size_bytes {
                piece.clear();
                let length = (file.size_bytes - done).min(PIECE_BYTES);
                source.read(&of, done, length as usize, &mut piece)?;
                written.append_at(&piece, done).map_err(|error| {
                    is_written = false;
                    fail(&*device, &temporary, error)
                })?;
                done += length;
                transferred.came(file, length);
                pace.spend(length)?;
            }
            Ok(())
        };
        let ended = write();
        if ended.is_err() && (!is_written || done == 0 || file.kind == FileKind::Table) {
            // The next attempt makes it again, and needs the room.
            let _ = device.remove(&temporary);
            return ended;
        }
        // What has arrived of a file that only grows is not transferred again.
        let named = written.sync().and_then(|()| device.rename(&temporary, &file.path));
        ended.and_then(|()| named.map_err(|error| fail(&*device, &file.path, error)))
    }

    /// How much of a file was made before; `None` if it must be made again.
    fn staged_bytes(
        &self,
        device: &dyn Device,
        file: &ImageFile,
        of: &ImageFile,
        source: &mut dyn Source,
    ) -> Result<Option<u64>> {
        let staged = match device.open(&file.path, Mode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| fail(device, &file.path, error))?,
        };
        let size = staged.size().map_err(|error| fail(device, &file.path, error))?;
        let is_usable = match file.kind {
            FileKind::Table => size == file.size_bytes && has_footer_of(&*staged, of, source)?,
            // One that is also the copy's must not grow.
            FileKind::Segment | FileKind::Extents => {
                size == file.size_bytes || size < file.size_bytes && !is_shared(device, file)?
            }
        };
        if !is_usable {
            self.remove(device, &file.path)?;
        }
        Ok(is_usable.then_some(size))
    }

    /// Takes over what the copy has of a file.
    fn take_over(
        &self,
        file: &ImageFile,
        of: &ImageFile,
        source: &mut dyn Source,
        before: Option<(&mut Before<'_>, &ImageFile)>,
        transferred: &mut Transferred,
    ) -> Result<Taken> {
        let Some((before, known)) = before.filter(|(_, known)| known.size_bytes > 0) else {
            return Ok(Taken::Begin(0));
        };
        if file.kind == FileKind::Table && !is_same_table(known, before.source, of, source)? {
            return Ok(Taken::Begin(0));
        }
        let from = self.directory(&self.home, file.device).join(&file.path);
        let to = self.directory(&self.place, file.device).join(&file.path);
        let fail_to = |error| Error::io(COPY, &to, error);
        let is_whole = known.size_bytes == file.size_bytes;
        let found = std::fs::symlink_metadata(&from).map_err(|error| Error::io(COPY, &from, error))?;
        if is_whole && found.is_file() && found.len() == file.size_bytes && aside::link(&from, &to).map_err(fail_to)? {
            transferred.had(file, file.size_bytes);
            return Ok(Taken::Whole);
        }
        let bytes = known.size_bytes.min(file.size_bytes);
        let (device, temporary) = (self.device(file.device), format!("{}{TEMPORARY}", file.path));
        device.open(&temporary, Mode::Create).map_err(|error| fail(&*device, &temporary, error))?;
        let copied = aside::copy_begin(&from, &device.place().join(&temporary), bytes).map_err(fail_to)?;
        if copied != bytes {
            let error = Error::new(ErrorKind::Corrupt, COPY, "it is shorter than its index says").at(&from);
            return Err(error.advise("check it with granulo store check; clone it again elsewhere"));
        }
        transferred.had(file, copied);
        Ok(Taken::Begin(copied))
    }

    /// Overwrites pieces of a file. It may be one with what the copy was before, so another takes its name.
    ///
    /// # Errors
    /// Any error of reading and writing.
    pub(crate) fn overwrite(&self, file: &ImageFile, pieces: &[(u64, Vec<u8>)]) -> Result<()> {
        let (device, temporary) = (self.device(file.device), format!("{}{TEMPORARY}", file.path));
        self.remove(&*device, &temporary)?;
        let (from, to) = (device.place().join(&file.path), device.place().join(&temporary));
        let overwritten = device.open(&temporary, Mode::Create).and_then(|written| {
            aside::copy_begin(&from, &to, u64::MAX)?;
            pieces.iter().try_for_each(|(offset, bytes)| written.write_at(bytes, *offset))?;
            written.sync()?;
            device.rename(&temporary, &file.path)?;
            device.sync_directory(EXTENTS)
        });
        overwritten.map_err(|error| fail(&*device, &file.path, error))
    }

    /// Writes the index and the superblocks.
    ///
    /// # Errors
    /// Any error of writing.
    pub(crate) fn finish(&self, image: &Image, state: &State) -> Result<()> {
        let geometry = self.geometry(image);
        let seed = u128::from_le_bytes(random_identity()?) as u64;
        let epoch = image.history.newest().epoch;
        let encoded = manifest::encode(&geometry.store, epoch, 1, seed, state);
        let (_, document) = encoded.ok_or_else(|| {
            Error::new(ErrorKind::NoSpace, COPY, "a list in its index would be longer than 4 GiB").at(&self.place)
        })?;
        for &number in state.devices.iter() {
            let device = self.device(number);
            manifest::replace(&*device, 1, &document).map_err(|error| fail(&*device, INDEX_DIRECTORY, error))?;
            self.platform.share_pins(&device.place().join(INDEX_DIRECTORY));
        }
        let superblock = Superblock::of_store(geometry, image.history.clone(), image.mark());
        for number in self.numbers() {
            let Some(entry) = image.geometry.devices.get(number.index()) else { continue };
            let of_device = Superblock { number, identity: entry.identity, ..superblock.clone() };
            of_device.write_first(&*self.device(number))?;
        }
        if superblock.geometry.has_home_apart() {
            superblock.write_first(&*self.home_device())?;
        }
        Ok(())
    }

    /// The geometry of the copy: that of the source, with its own places.
    fn geometry(&self, image: &Image) -> Geometry {
        let mut geometry = image.geometry.clone();
        for (entry, directory) in geometry.devices.iter_mut().zip(&self.directories) {
            if let Some(directory) = directory {
                entry.path.clone_from(directory);
            }
        }
        bind(self.platform, &self.place, &mut geometry);
        if geometry.has_home_apart() {
            geometry.home.clone_from(&self.home);
        }
        geometry
    }

    /// From here on, the directory only waits for its place.
    ///
    /// # Errors
    /// Any error of removing what says something else, and of making that durable.
    pub(crate) fn close(&self) -> Result<()> {
        let device = self.home_device();
        self.remove(&*device, INCOMING)?;
        device.sync_directory("").map_err(|error| fail(&*device, "", error))
    }

    /// Whether the directory was begun and may go on.
    ///
    /// # Errors
    /// Any error of reading.
    pub(crate) fn is_begun(&self) -> Result<bool> {
        self.read_incoming().map(|found| found.is_some())
    }

    /// Removes everything that was made; locks and the directory itself stay.
    ///
    /// # Errors
    /// Any error of removing.
    pub(crate) fn clear(&self) -> Result<()> {
        for number in self.numbers() {
            let device = self.device(number);
            for directory in [PINS, SEGMENTS, EXTENTS, INDEX_DIRECTORY] {
                let listed = device.list_names(directory).map_err(|error| fail(&*device, directory, error))?;
                listed.iter().try_for_each(|name| self.remove(&*device, &format!("{directory}/{name}")))?;
                remove_directory(&device.place().join(directory))?;
            }
            if device.place() != self.place {
                self.remove(&*device, LOCK)?;
                self.remove(&*device, SUPERBLOCK)?;
                remove_directory(&device.place())?;
            }
        }
        // Until here, what is left is known to be a copy of this store.
        let device = self.home_device();
        [SUPERBLOCK, INCOMING].into_iter().try_for_each(|name| self.remove(&*device, name))
    }

    /// Removes the directory with everything that a store has in it.
    ///
    /// # Errors
    /// Something else is in it; any error of removing.
    pub(crate) fn remove_all(&self) -> Result<()> {
        self.clear()?;
        self.remove(&*self.home_device(), LOCK)?;
        remove_directory(&self.place)
    }
}

/// What the copy has of a file.
enum Taken {
    /// All of it: the file is there.
    Whole,
    /// So many bytes, in the incomplete file; if it is none, there is no file.
    Begin(u64),
}

pub(super) fn fail(device: &dyn Device, path: &str, error: io::Error) -> Error {
    Error::io(COPY, &device.place().join(path), error)
}

/// Whether a file that was made has another name.
fn is_shared(device: &dyn Device, file: &ImageFile) -> Result<bool> {
    let found = std::fs::symlink_metadata(device.place().join(&file.path));
    Ok(found.map_err(|error| fail(device, &file.path, error))?.nlink() > 1)
}

fn remove_directory(path: &Path) -> Result<()> {
    aside::remove_directory(path).map_err(|error| Error::io("remove", path, error))
}

/// What `incoming` has in it: the identity of the store, and the last batch of the state, with its place.
pub(super) fn incoming_of(image: &Image) -> Vec<u8> {
    let Position { segment, commit, offset, .. } = image.position();
    let epoch = image.state.segments.get(&segment).map_or(0, |row| row.epoch.0);
    let place = [segment.0, epoch, commit.0, offset.0].into_iter().flat_map(u64::to_le_bytes);
    let record = image.last.iter().flat_map(|last| last.record.iter().copied());
    image.geometry.store.into_iter().chain(place).chain(record).collect()
}

/// Whether `incoming` is of a state whose last batch is in an image, in the same place.
///
/// # Errors
/// Any error of reading the source.
pub(super) fn is_earlier(bytes: &[u8], image: &Image, source: &mut dyn Source) -> Result<bool> {
    let mut at = Decoder::new(bytes);
    let (Some(store), Some(segment), Some(epoch)) = (at.identity(), at.u64(), at.u64()) else { return Ok(false) };
    let (Some(commit), Some(offset)) = (at.u64(), at.u64()) else { return Ok(false) };
    let row = image.state.segments.get(&SegmentNumber(segment));
    let Some(row) = row.filter(|row| row.epoch.0 == epoch && row.size_bytes >= offset && commit <= offset) else {
        // Nothing was written then.
        return Ok(store == image.geometry.store && at.rest().is_empty() && offset == 0);
    };
    let is_of_its_length = at.rest().len() as u64 == offset - commit;
    Ok(store == image.geometry.store && is_of_its_length && has_bytes(source, row, LogOffset(commit), at.rest())?)
}

/// Whether two tables are the same, by what tells one from another.
///
/// # Errors
/// Any error of reading one of them.
pub(super) fn is_same_table(
    one: &ImageFile,
    of_one: &mut dyn Source,
    other: &ImageFile,
    of: &mut dyn Source,
) -> Result<bool> {
    if one.size_bytes != other.size_bytes {
        return Ok(false);
    }
    let footer = |file: &ImageFile, source: &mut dyn Source| {
        let (at, mut bytes) = (file.size_bytes.saturating_sub(FOOTER_BYTES), Vec::new());
        source.read(file, at, (file.size_bytes - at) as usize, &mut bytes).map(|()| bytes)
    };
    Ok(footer(one, of_one)? == footer(other, of)?)
}

/// Whether a file is the same table as that of the source, by what tells one from another.
///
/// # Errors
/// Any error of reading the source.
pub(super) fn has_footer_of(staged: &dyn DeviceFile, of: &ImageFile, source: &mut dyn Source) -> Result<bool> {
    let (at, mut found, mut bytes) = (of.size_bytes.saturating_sub(FOOTER_BYTES), Vec::new(), Vec::new());
    let length = (of.size_bytes - at) as usize;
    source.read(of, at, length, &mut bytes)?;
    Ok(staged.read_onto(&mut found, length, at).is_ok() && found == bytes)
}
