//! Superblocks: who the store and a device are, the geometry, the epochs, the last mark; on every device and in the home (docs/FORMAT.md, section 4).
//!
//! Two slots are written in turn, each time the one that is not the newest sound one: a crash leaves one of them. A damaged slot, or a file that is no
//! superblock, is told by its checksum; both damaged is an error that says what to do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::decode::Decoder;
use super::geometry::{Alignment, Class, Compression, DeviceEntry, DeviceState, Geometry, Node};
use super::history::History;
use super::record::checksum;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind, Result};

/// Name of the file.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Version of the whole format.
pub(crate) const VERSION: u16 = 2;
/// Number of a home that is no device.
pub(crate) const NO_DEVICE: u16 = u16::MAX;
const MAGIC: &[u8; 8] = b"granulo\0";
const SLOTS: u64 = 2;
const SLOT_BYTES: u64 = 64 << 10;

// Where the fields that a reader needs before all others are, each behind the one before.
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = MAGIC_AT + 8;
const ZERO_AT: usize = VERSION_AT + 2;
const LENGTH_AT: usize = ZERO_AT + 2;
const WRITES_AT: usize = LENGTH_AT + 4;
/// What there is at least, and what the checksum does not cover.
const PAGE_BYTES: usize = 4096;
const CHECKSUM_BYTES: usize = MAGIC_AT;
const RESERVED_BYTES: usize = 6;

const MARK_BYTES: usize = 1 + 6 * 8;
const MARK_CLOSED: u8 = 1;
const MARK_THERE: u8 = 2;

/// How far the log was acknowledged when a superblock was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogMark {
    /// The store was closed here.
    pub(crate) is_closed: bool,
    /// The segment, and the place in it behind the last batch that was durable.
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// That batch.
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
    /// Segments that were begun: the highest number given.
    pub(crate) segments_begun: u64,
    /// Numbers of objects up to here may have been given.
    pub(crate) objects_reserved: u64,
}

/// What a device says of itself and of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// How often it was written on this device.
    pub(crate) writes: u64,
    /// Number of the device that this is on, or [`NO_DEVICE`].
    pub(crate) number: u16,
    /// Its identity; zero for [`NO_DEVICE`].
    pub(crate) identity: [u8; 16],
    pub(crate) geometry: Geometry,
    pub(crate) history: History,
    pub(crate) mark: Option<LogMark>,
}

/// The superblock of a device, and where its next one goes.
#[derive(Debug, Clone)]
pub(crate) struct OnDevice {
    pub(crate) superblock: Superblock,
    slot: u64,
}

impl Superblock {
    /// The bytes of a slot.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if devices and their paths do not fit a slot.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let geometry = &self.geometry;
        let mut slot = vec![0; CHECKSUM_BYTES];
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&VERSION.to_le_bytes());
        slot.extend_from_slice(&[0; WRITES_AT - ZERO_AT]);
        slot.extend_from_slice(&self.writes.to_le_bytes());
        slot.extend_from_slice(&geometry.store);
        slot.extend_from_slice(&self.identity);
        slot.extend_from_slice(&self.number.to_le_bytes());
        slot.extend_from_slice(&geometry.created_nanoseconds.to_le_bytes());
        slot.extend_from_slice(&geometry.cutoff_bytes.to_le_bytes());
        slot.extend_from_slice(&geometry.stripe_unit_bytes.to_le_bytes());
        let (compression, level) = match geometry.compression {
            Compression::None => (0, 0),
            Compression::Zstd(level) => (1, level.to_le_bytes()[0]),
        };
        slot.extend_from_slice(&[geometry.copies, geometry.parity, geometry.data, compression, level]);
        let watermarks = [geometry.high_watermark_percent, geometry.low_watermark_percent];
        slot.extend_from_slice(&[watermarks[0], watermarks[1], geometry.alignment.shift()]);
        slot.extend_from_slice(&geometry.segment_bytes.to_le_bytes());
        slot.extend_from_slice(&geometry.file_mode.to_le_bytes());
        slot.extend_from_slice(&[0; RESERVED_BYTES]);
        slot.extend_from_slice(&(geometry.devices.len() as u16).to_le_bytes());
        for device in &geometry.devices {
            slot.extend_from_slice(&device.number.to_le_bytes());
            slot.extend_from_slice(&device.identity);
            slot.extend_from_slice(&[device.class as u8, device.state as u8]);
            encode_place(device.node, &device.path, &mut slot);
        }
        encode_place(geometry.home_node, home_path(geometry), &mut slot);
        let room = (SLOT_BYTES as usize).saturating_sub(slot.len() + MARK_BYTES);
        if !self.history.encode(room, &mut slot) {
            return Err(Error::new(
                ErrorKind::Usage,
                "write the superblock",
                "there are too many devices, or their paths are too long",
            ));
        }
        encode_mark(self.mark, &mut slot);
        let length = (slot.len() - CHECKSUM_BYTES) as u32;
        slot[LENGTH_AT..WRITES_AT].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&slot[CHECKSUM_BYTES..]);
        slot[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        Ok(slot)
    }

    /// The superblock in a slot; `None` if there is no sound one.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] for a sound one of another version.
    pub(crate) fn decode(slot: &[u8]) -> Result<Option<Superblock>> {
        let Some((stored, body)) = slot.split_first_chunk::<CHECKSUM_BYTES>() else { return Ok(None) };
        let mut at = Decoder::new(slot.get(LENGTH_AT..).unwrap_or_default());
        let Some(body) = at.u32().and_then(|length| body.get(..length as usize)) else { return Ok(None) };
        if !body.starts_with(MAGIC) || checksum(body) != u64::from_le_bytes(*stored) {
            return Ok(None);
        }
        let mut at = Decoder::new(&body[VERSION_AT - CHECKSUM_BYTES..]);
        match at.u16() {
            Some(VERSION) => Ok(decode_fields(&mut at)),
            Some(version) if version > VERSION => {
                let cause = format!("it is of format version {version}; this granulo reads version {VERSION}");
                Err(Error::new(ErrorKind::NewerVersion, "open the store", cause).advise("use a newer granulo"))
            }
            // Nothing that was ever released.
            _ => Ok(None),
        }
    }

    /// The superblock of a device; `None` if it has no such file.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file is there and no slot is sound; what reading fails with.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<OnDevice>> {
        let Some(slots) = read_slots(device)? else { return Ok(None) };
        let newest = (0..SLOTS).zip(slots).filter_map(|(slot, found)| Some((slot, found?)));
        match newest.max_by_key(|(_, superblock)| superblock.writes) {
            Some((slot, superblock)) => Ok(Some(OnDevice { superblock, slot })),
            None => Err(Error::new(ErrorKind::Corrupt, "read the superblock", "neither of its slots is sound")
                .at(&device.place().join(SUPERBLOCK))
                .advise("name another device of the store, and run granulo store repair")),
        }
    }

    /// How many of the two slots are sound, 0 to 2.
    pub(crate) fn sound_slots(device: &dyn Device) -> Result<usize> {
        Ok(read_slots(device)?.map_or(0, |slots| slots.iter().flatten().count()))
    }

    /// Whether a slot is not sound that a writer which was killed may have left so: of several pages, with the first one of before the other slot.
    /// A slot of one page is written whole or not at all, and what does not hold there is damage.
    ///
    /// # Errors
    /// What reading fails with.
    pub(crate) fn has_unfinished_slot(device: &dyn Device) -> Result<bool> {
        let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
        let Some(OnDevice { superblock, slot }) = Superblock::read(device)? else { return Ok(false) };
        let file = device.open(SUPERBLOCK, Mode::Read).map_err(fail)?;
        // What cannot be read is damage.
        let Ok(bytes) = read_slot(&*file, (slot + 1) % SLOTS * SLOT_BYTES) else { return Ok(false) };
        let first_page = bytes.get(CHECKSUM_BYTES..).filter(|body| body.starts_with(MAGIC) && bytes.len() > PAGE_BYTES);
        let writes = first_page.and_then(|body| Decoder::new(body.get(WRITES_AT - CHECKSUM_BYTES..)?).u64());
        Ok(Superblock::decode(&bytes)?.is_none() && writes.is_some_and(|writes| writes + 1 == superblock.writes))
    }

    /// Writes the first superblock of a device, or a new one where none was sound: to both slots.
    ///
    /// # Errors
    /// What writing or syncing fails with.
    pub(crate) fn write_first(mut self, device: &dyn Device) -> Result<OnDevice> {
        self.writes = 1;
        let there = device.open(SUPERBLOCK, Mode::Read);
        let is_new = there.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        self.write_to(device, 0, if is_new { Mode::Create } else { Mode::Write })?;
        if is_new {
            let fail = |error| Error::io("write the superblock", &device.place().join(SUPERBLOCK), error);
            device.sync_directory("").map_err(fail)?;
        }
        OnDevice { superblock: self.clone(), slot: 0 }.replace(device, self)
    }

    fn write_to(&self, device: &dyn Device, slot: u64, mode: Mode) -> Result<()> {
        let fail = |error| Error::io("write the superblock", &device.place().join(SUPERBLOCK), error);
        let mut bytes = self.encode()?;
        // Whole pages, which a bad sector under one needs to be written over.
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let file = device.open(SUPERBLOCK, mode).map_err(fail)?;
        // A process can be killed between two pages. The first is written last: until then the slot says that it is the older one.
        let (first, others) = bytes.split_at(PAGE_BYTES);
        if !others.is_empty() {
            file.write_at(others, slot * SLOT_BYTES + PAGE_BYTES as u64).map_err(fail)?;
        }
        file.write_at(first, slot * SLOT_BYTES).map_err(fail)?;
        file.sync().map_err(fail)
    }
}

impl OnDevice {
    /// Writes another in the place of the older one of the two, and syncs.
    ///
    /// # Errors
    /// What writing or syncing fails with; the slot that counted is what it was.
    pub(crate) fn replace(&self, device: &dyn Device, mut superblock: Superblock) -> Result<OnDevice> {
        superblock.writes = self.superblock.writes + 1;
        let slot = (self.slot + 1) % SLOTS;
        // Where it is gone, so is the device: a mount point without its file system must not look like one.
        superblock.write_to(device, slot, Mode::Write)?;
        Ok(OnDevice { superblock, slot })
    }
}

fn read_slots(device: &dyn Device) -> Result<Option<Vec<Option<Superblock>>>> {
    let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
    let file = match device.open(SUPERBLOCK, Mode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut refused = None;
    let mut slots = Vec::new();
    for slot in 0..SLOTS {
        match read_slot(&*file, slot * SLOT_BYTES) {
            Ok(bytes) => slots.push(Superblock::decode(&bytes)?),
            Err(error) => {
                refused = Some(fail(error));
                slots.push(None);
            }
        }
    }
    // A slot on a bad sector is a damaged one as long as the other tells who the device is.
    match refused {
        Some(error) if slots.iter().all(Option::is_none) => Err(error),
        _ => Ok(Some(slots)),
    }
}

/// As much of a slot as it says it has.
fn read_slot(file: &dyn DeviceFile, at: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, PAGE_BYTES, at)?;
    let length = bytes.get(LENGTH_AT..).and_then(|rest| Decoder::new(rest).u32()).unwrap_or(0);
    let whole = (CHECKSUM_BYTES + length as usize).min(SLOT_BYTES as usize);
    if bytes.len() == PAGE_BYTES && whole > PAGE_BYTES {
        file.read_onto(&mut bytes, whole - PAGE_BYTES, at + PAGE_BYTES as u64)?;
    }
    Ok(bytes)
}

fn decode_fields(at: &mut Decoder<'_>) -> Option<Superblock> {
    at.u16().filter(|&zero| zero == 0)?;
    at.u32()?;
    let writes = at.u64()?;
    let store = at.identity()?;
    let identity = at.identity()?;
    let number = at.u16()?;
    let created_nanoseconds = at.u64()? as i64;
    let cutoff_bytes = at.u64()?;
    let stripe_unit_bytes = at.u32()?;
    let (copies, parity, data) = (at.u8()?, at.u8()?, at.u8()?);
    let compression = match (at.u8()?, at.u8()? as i8) {
        (0, _) => Compression::None,
        (1, level) => Compression::Zstd(level),
        _ => return None,
    };
    let (high_watermark_percent, low_watermark_percent) = (at.u8()?, at.u8()?);
    let alignment = Alignment::of_shift(at.u8()?)?;
    let segment_bytes = at.u64()?;
    let file_mode = at.u16()?;
    at.take(RESERVED_BYTES).filter(|bytes| bytes.iter().all(|&byte| byte == 0))?;
    let mut devices = Vec::new();
    for _ in 0..at.u16()? {
        let (number, identity) = (at.u16()?, at.identity()?);
        let class = match at.u8()? {
            1 => Class::Fast,
            2 => Class::Slow,
            _ => return None,
        };
        let state = match at.u8()? {
            1 => DeviceState::InUse,
            2 => DeviceState::Rebuilding,
            3 => DeviceState::Gone,
            _ => return None,
        };
        let (node, path) = decode_place(at)?;
        devices.push(DeviceEntry { number, identity, class, state, path, node });
    }
    let (home_node, home) = decode_place(at)?;
    let history = History::decode(at)?;
    let mark = decode_mark(at)?;
    let is_whole =
        at.rest().is_empty() && devices.iter().enumerate().all(|(at, device)| usize::from(device.number) == at);
    let geometry = Geometry {
        store,
        created_nanoseconds,
        cutoff_bytes,
        stripe_unit_bytes,
        copies,
        data,
        parity,
        compression,
        high_watermark_percent,
        low_watermark_percent,
        segment_bytes,
        alignment,
        file_mode,
        devices,
        home: if home == Path::new(ON_DEVICE) { PathBuf::new() } else { home },
        home_node,
    };
    let is_listed = usize::from(number) < geometry.devices.len();
    let is_sound = is_whole && geometry.out_of_bounds().is_none() && (number == NO_DEVICE || is_listed);
    is_sound.then_some(Superblock { writes, number, identity, geometry, history, mark })
}

/// The path of a home that is a device.
const ON_DEVICE: &str = ".";

fn home_path(geometry: &Geometry) -> &Path {
    if geometry.has_home_apart() { &geometry.home } else { Path::new(ON_DEVICE) }
}

fn encode_place(node: Node, path: &Path, onto: &mut Vec<u8>) {
    let bytes = path.as_os_str().as_bytes();
    onto.extend_from_slice(&node.file_system.to_le_bytes());
    onto.extend_from_slice(&node.inode.to_le_bytes());
    onto.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    onto.extend_from_slice(bytes);
}

fn decode_place(at: &mut Decoder<'_>) -> Option<(Node, PathBuf)> {
    let node = Node { file_system: at.u64()?, inode: at.u64()? };
    let length = at.u16()?.into();
    Some((node, PathBuf::from(OsStr::from_bytes(at.take(length)?))))
}

fn encode_mark(mark: Option<LogMark>, onto: &mut Vec<u8>) {
    let flags = mark.map_or(0, |mark| MARK_THERE | if mark.is_closed { MARK_CLOSED } else { 0 });
    let LogMark { is_closed: _, segment, offset, sequence, chain, segments_begun, objects_reserved } =
        mark.unwrap_or_default();
    onto.push(flags);
    for field in [segment, offset, sequence, chain, segments_begun, objects_reserved] {
        onto.extend_from_slice(&field.to_le_bytes());
    }
}

fn decode_mark(at: &mut Decoder<'_>) -> Option<Option<LogMark>> {
    let flags = at.u8()?;
    let mark = LogMark {
        is_closed: flags & MARK_CLOSED != 0,
        segment: at.u64()?,
        offset: at.u64()?,
        sequence: at.u64()?,
        chain: at.u64()?,
        segments_begun: at.u64()?,
        objects_reserved: at.u64()?,
    };
    match flags {
        0 => (mark == LogMark::default()).then_some(None),
        _ if flags & MARK_THERE != 0 && flags & !(MARK_THERE | MARK_CLOSED) == 0 => Some(Some(mark)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::directory::Directory;
    use crate::format::history::EpochEntry;
    use crate::format::ids::{DeviceNumber, Epoch};
    use crate::simulation::subject::geometry;

    fn superblock() -> Superblock {
        let in_sync = (0..5).map(DeviceNumber).collect();
        let first = EpochEntry { epoch: Epoch(5), began_nanoseconds: 1, segments_begun: 0, last_batch: 0, in_sync };
        Superblock {
            writes: 2,
            number: 1,
            identity: [2; 16],
            geometry: geometry(2, 3, 2, (2, 1)),
            history: History::new(first),
            mark: None,
        }
    }

    fn slot(change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut superblock = superblock();
        change(&mut superblock);
        superblock.encode().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mark = LogMark {
            is_closed: true,
            segment: 1,
            offset: 2,
            sequence: 3,
            chain: 4,
            segments_begun: 5,
            objects_reserved: 6,
        };
        for change in [
            (|_| {}) as fn(&mut Superblock),
            |superblock| superblock.number = NO_DEVICE,
            |superblock| superblock.geometry.home_node = Node { file_system: 7, inode: 8 },
            |superblock| superblock.geometry.file_mode = 0o640,
            |superblock| superblock.geometry.home.clear(),
        ] {
            for mark in [None, Some(mark), Some(LogMark::default())] {
                let mut expected = superblock();
                change(&mut expected);
                expected.mark = mark;
                assert_eq!(Superblock::decode(&expected.encode().unwrap()).unwrap(), Some(expected));
            }
        }
    }

    #[test]
    fn a_geometry_that_the_program_cannot_keep_is_no_superblock() {
        for change in [
            (|superblock| superblock.geometry.segment_bytes = u64::MAX) as fn(&mut Superblock),
            |superblock| superblock.geometry.segment_bytes = 0,
            |superblock| superblock.geometry.cutoff_bytes = 1 << 50,
            |superblock| superblock.geometry.stripe_unit_bytes = 1 << 31,
            |superblock| superblock.geometry.stripe_unit_bytes = 0,
            |superblock| superblock.geometry.data = 65,
            |superblock| superblock.geometry.data = 0,
            |superblock| superblock.geometry.copies = 0,
            |superblock| superblock.geometry.parity = 3,
            |superblock| superblock.geometry.compression = Compression::Zstd(100),
            |superblock| superblock.geometry.low_watermark_percent = 95,
            |superblock| superblock.geometry.high_watermark_percent = 200,
            |superblock| superblock.geometry.devices[1].number = 7,
            |superblock| superblock.geometry.file_mode = 0o4600,
            |superblock| superblock.geometry.file_mode = 0o200,
            |superblock| superblock.number = 5,
        ] {
            assert_eq!(Superblock::decode(&slot(change)).unwrap(), None);
        }
    }

    #[test]
    fn slots_are_written_in_turn_and_one_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        let device = Directory::new(directory.path());
        let mut known = superblock().write_first(&device).unwrap();
        assert_eq!(Superblock::sound_slots(&device).unwrap(), 2);
        let path = directory.path().join(SUPERBLOCK);
        for sequence in 1..5 {
            let before = known.superblock.clone();
            let mark = Some(LogMark { sequence, ..LogMark::default() });
            known = known.replace(&device, Superblock { mark, ..superblock() }).unwrap();
            assert_eq!(Superblock::read(&device).unwrap().unwrap().superblock, known.superblock);
            // What is written next may be torn: what was there before is still there.
            let bytes = std::fs::read(&path).unwrap();
            let mut torn = bytes.clone();
            torn[(known.slot * SLOT_BYTES) as usize + 100] ^= 1;
            std::fs::write(&path, torn).unwrap();
            assert_eq!(Superblock::read(&device).unwrap().unwrap().superblock, before);
            assert_eq!(Superblock::sound_slots(&device).unwrap(), 1);
            std::fs::write(&path, bytes).unwrap();
        }
    }

    #[test]
    fn a_writer_killed_between_two_pages_has_damaged_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let device = Directory::new(directory.path());
        let path = directory.path().join(SUPERBLOCK);
        let of_epochs = |epochs: u64| {
            let mut of_many = superblock();
            for epoch in 0..epochs {
                let next = EpochEntry { epoch: Epoch(epoch + 100), ..of_many.history.newest().clone() };
                of_many.history = of_many.history.followed_by(next);
            }
            of_many
        };
        let first = of_epochs(150).write_first(&device).unwrap();
        let before = first.replace(&device, of_epochs(151)).unwrap();
        let old = std::fs::read(&path).unwrap();
        before.replace(&device, of_epochs(152)).unwrap();
        let new = std::fs::read(&path).unwrap();
        let begin = ((before.slot + 1) % SLOTS * SLOT_BYTES) as usize;
        let page = begin + PAGE_BYTES;
        let killed = [&new[..begin], &old[begin..page], &new[page..]].concat();
        std::fs::write(&path, &killed).unwrap();
        assert_eq!(Superblock::read(&device).unwrap().unwrap().superblock, before.superblock);
        assert!(Superblock::sound_slots(&device).unwrap() == 1 && Superblock::has_unfinished_slot(&device).unwrap());
        // The other way round it says that it is the newer one, and does not hold: that is damage.
        let rotten = [&new[..page], &old[page..]].concat();
        std::fs::write(&path, &rotten).unwrap();
        assert!(Superblock::sound_slots(&device).unwrap() == 1 && !Superblock::has_unfinished_slot(&device).unwrap());
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut slot = slot(|_| {});
        slot[VERSION_AT] = 3;
        let sum = checksum(&slot[CHECKSUM_BYTES..]);
        slot[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::decode(&slot).unwrap_err().kind(), ErrorKind::NewerVersion);
    }
}
