//! Superblocks: identity of the store and of a device, the geometry, the epochs, the last mark; on every device and in
//! the home (docs/FORMAT.md, section 4).
//!
//! This module handles the bytes of one slot; a checksum detects damage. `devices::superblocks` reads and writes the
//! two slots.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::VERSION;
use super::decode::Decoder;
use super::geometry::{Alignment, Class, Compression, DeviceEntry, DeviceState, Geometry, Node};
use super::history::History;
use super::ids::{DeviceNumber, LogOffset, SegmentNumber};
use super::record::{checksum, put_checksum};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::granulo::SECTOR_BYTES;

/// Name of the file.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Number of a home that is not a device.
pub(crate) const HOME_APART: DeviceNumber = DeviceNumber(u16::MAX);
pub(crate) const MAGIC: &[u8; 8] = b"granulo\0";
/// Space of one of the two slots in the file.
pub(crate) const SLOT_BYTES: u64 = 64 << 10;

// Offsets of the fields that a reader needs first, each after the one before.
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = MAGIC_AT + 8;
const ZERO_AT: usize = VERSION_AT + 2;
pub(crate) const LENGTH_AT: usize = ZERO_AT + 2;
pub(crate) const WRITES_AT: usize = LENGTH_AT + 4;
/// The checksum covers everything but itself.
pub(crate) const CHECKSUM_BYTES: usize = MAGIC_AT;
const RESERVED_BYTES: usize = 5;

const MARK_BYTES: usize = 1 + 6 * 8;
const MARK_CLOSED: u8 = 1;
const MARK_PRESENT: u8 = 2;

/// How far the log was acknowledged when a superblock was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogMark {
    /// The store was closed here.
    pub(crate) is_closed: bool,
    /// The segment, and the offset in it after the last durable batch.
    pub(crate) segment: SegmentNumber,
    pub(crate) offset: LogOffset,
    /// That batch.
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
    /// Number of segments begun: the highest number assigned.
    pub(crate) segments_begun: u64,
    /// Ids up to this one may have been assigned.
    pub(crate) ids_reserved: u64,
}

/// The last batch that is durable according to marks; 0 without one.
pub(crate) fn last_marked<'m>(marks: impl IntoIterator<Item = &'m LogMark>) -> u64 {
    marks.into_iter().map(|mark| mark.sequence).max().unwrap_or(0)
}

/// What a superblock says about its device and the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Write count on this device.
    pub(crate) writes: u64,
    /// Number of its device, or [`HOME_APART`].
    pub(crate) number: DeviceNumber,
    /// Its identity; zero for [`HOME_APART`].
    pub(crate) identity: [u8; 16],
    pub(crate) geometry: Geometry,
    pub(crate) history: History,
    pub(crate) mark: Option<LogMark>,
}

impl Superblock {
    /// The part common to all superblocks of a store: that of its home until a device is set.
    pub(crate) fn of_store(geometry: Geometry, history: History, mark: Option<LogMark>) -> Superblock {
        Superblock { writes: 0, number: HOME_APART, identity: [0; 16], geometry, history, mark }
    }

    /// The bytes of a slot.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if devices and their paths do not fit a slot.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let geometry = &self.geometry;
        let mut fields = Vec::new();
        fields.extend_from_slice(&self.writes.to_le_bytes());
        fields.extend_from_slice(&geometry.store);
        fields.extend_from_slice(&self.identity);
        fields.extend_from_slice(&self.number.0.to_le_bytes());
        fields.extend_from_slice(&geometry.created_nanoseconds.to_le_bytes());
        fields.extend_from_slice(&geometry.cutoff_bytes.to_le_bytes());
        fields.extend_from_slice(&geometry.stripe_unit_bytes.to_le_bytes());
        let (compression, level) = match geometry.compression {
            Compression::None => (0, 0),
            Compression::Zstd(level) => (1, level.to_le_bytes()[0]),
        };
        fields.extend_from_slice(&[geometry.copies, geometry.parity, geometry.data, compression, level]);
        let watermarks = [geometry.high_watermark_percent, geometry.low_watermark_percent];
        fields.extend_from_slice(&[watermarks[0], watermarks[1], geometry.alignment.shift()]);
        fields.extend_from_slice(&geometry.segment_bytes.to_le_bytes());
        fields.extend_from_slice(&geometry.file_mode.to_le_bytes());
        fields.push((geometry.packed_bytes / SECTOR_BYTES - 1) as u8);
        fields.extend_from_slice(&[0; RESERVED_BYTES]);
        fields.extend_from_slice(&(geometry.devices.len() as u16).to_le_bytes());
        for device in &geometry.devices {
            fields.extend_from_slice(&device.number.0.to_le_bytes());
            fields.extend_from_slice(&device.identity);
            fields.extend_from_slice(&[device.class as u8, device.state as u8]);
            encode_place(device.node, &device.path, &mut fields);
        }
        encode_place(geometry.home_node, home_path(geometry), &mut fields);
        let room = (SLOT_BYTES as usize).saturating_sub(WRITES_AT + fields.len() + MARK_BYTES);
        if !self.history.encode(room, &mut fields) {
            return Err(Error::new(
                ErrorKind::Usage,
                "write the superblock",
                "there are too many devices, or their paths are too long",
            ));
        }
        encode_mark(self.mark, &mut fields);
        let length = (WRITES_AT - CHECKSUM_BYTES + fields.len()) as u32;
        let mut slot = vec![0; CHECKSUM_BYTES];
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&VERSION.to_le_bytes());
        slot.extend_from_slice(&[0; LENGTH_AT - ZERO_AT]);
        slot.extend_from_slice(&length.to_le_bytes());
        slot.extend_from_slice(&fields);
        put_checksum(&mut slot);
        Ok(slot)
    }

    /// Decodes the superblock in a slot; `None` if there is no valid one.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] for a valid one of another version.
    pub(crate) fn decode(slot: &[u8]) -> Result<Option<Superblock>> {
        let Some((stored, body)) = slot.split_first_chunk::<CHECKSUM_BYTES>() else { return Ok(None) };
        let mut at = Decoder::new(slot.get(LENGTH_AT..).unwrap_or_default());
        let Some(body) = at.u32().and_then(|length| body.get(..length as usize)) else { return Ok(None) };
        let Some(fields) = body.strip_prefix(MAGIC) else { return Ok(None) };
        if checksum(body) != u64::from_le_bytes(*stored) {
            return Ok(None);
        }
        let mut at = Decoder::new(fields);
        match at.u16() {
            Some(VERSION) => Ok(decode_fields(&mut at)),
            Some(version) if version > VERSION => Err(Error::newer_version("open the store", version, VERSION)),
            // No version that was ever released.
            _ => Ok(None),
        }
    }
}

fn decode_fields(fields: &mut Decoder<'_>) -> Option<Superblock> {
    // Zeroes, and the length, which was used to find the fields.
    fields.u16().filter(|&zero| zero == 0)?;
    fields.u32()?;
    let writes = fields.u64()?;
    let store = fields.identity()?;
    let identity = fields.identity()?;
    let number = DeviceNumber(fields.u16()?);
    let created_nanoseconds = fields.u64()? as i64;
    let cutoff_bytes = fields.u64()?;
    let stripe_unit_bytes = fields.u32()?;
    let (copies, parity, data) = (fields.u8()?, fields.u8()?, fields.u8()?);
    let compression = match (fields.u8()?, fields.u8()? as i8) {
        (0, _) => Compression::None,
        (1, level) => Compression::Zstd(level),
        _ => return None,
    };
    let (high_watermark_percent, low_watermark_percent) = (fields.u8()?, fields.u8()?);
    let alignment = Alignment::of_shift(fields.u8()?)?;
    let segment_bytes = fields.u64()?;
    let file_mode = fields.u16()?;
    let packed_bytes = (u64::from(fields.u8()?) + 1) * SECTOR_BYTES;
    fields.take(RESERVED_BYTES).filter(|bytes| bytes.iter().all(|&byte| byte == 0))?;
    let mut devices = Vec::new();
    for _ in 0..fields.u16()? {
        let (number, identity) = (fields.u16()?, fields.identity()?);
        let class = match fields.u8()? {
            1 => Class::Fast,
            2 => Class::Slow,
            _ => return None,
        };
        let state = match fields.u8()? {
            1 => DeviceState::InUse,
            2 => DeviceState::Rebuilding,
            3 => DeviceState::Gone,
            _ => return None,
        };
        let (node, path) = decode_place(fields)?;
        devices.push(DeviceEntry { number: DeviceNumber(number), identity, class, state, path, node });
    }
    let (home_node, home) = decode_place(fields)?;
    let history = History::decode(fields)?;
    let mark = decode_mark(fields)?;
    let is_in_order =
        fields.rest().is_empty() && devices.iter().enumerate().all(|(index, device)| device.number.index() == index);
    let geometry = Geometry {
        store,
        created_nanoseconds,
        cutoff_bytes,
        stripe_unit_bytes,
        packed_bytes,
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
        home: if home == Path::new(HOME_IS_DEVICE) { PathBuf::new() } else { home },
        home_node,
    };
    let is_listed = number.index() < geometry.devices.len();
    let is_sound = is_in_order && geometry.out_of_bounds().is_none() && (number == HOME_APART || is_listed);
    is_sound.then_some(Superblock { writes, number, identity, geometry, history, mark })
}

/// The path of a home that is a device.
const HOME_IS_DEVICE: &str = ".";

fn home_path(geometry: &Geometry) -> &Path {
    if geometry.has_home_apart() { &geometry.home } else { Path::new(HOME_IS_DEVICE) }
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
    let flags = mark.map_or(0, |mark| MARK_PRESENT | if mark.is_closed { MARK_CLOSED } else { 0 });
    let LogMark { is_closed: _, segment, offset, sequence, chain, segments_begun, ids_reserved } =
        mark.unwrap_or_default();
    onto.push(flags);
    for field in [segment.0, offset.0, sequence, chain, segments_begun, ids_reserved] {
        onto.extend_from_slice(&field.to_le_bytes());
    }
}

fn decode_mark(at: &mut Decoder<'_>) -> Option<Option<LogMark>> {
    let flags = at.u8()?;
    let mark = LogMark {
        is_closed: flags & MARK_CLOSED != 0,
        segment: SegmentNumber(at.u64()?),
        offset: LogOffset(at.u64()?),
        sequence: at.u64()?,
        chain: at.u64()?,
        segments_begun: at.u64()?,
        ids_reserved: at.u64()?,
    };
    match flags {
        0 => (mark == LogMark::default()).then_some(None),
        _ if flags & MARK_PRESENT != 0 && flags & !(MARK_PRESENT | MARK_CLOSED) == 0 => Some(Some(mark)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format::history::EpochEntry;
    use crate::format::ids::{DeviceNumber, Epoch, LogOffset};
    use crate::simulation::subject::geometry;

    pub(crate) fn superblock() -> Superblock {
        let in_sync = (0..5).map(DeviceNumber).collect();
        let first = EpochEntry { epoch: Epoch(5), began_nanoseconds: 1, segments_begun: 0, last_batch: 0, in_sync };
        Superblock {
            writes: 2,
            number: DeviceNumber(1),
            identity: [2; 16],
            geometry: geometry(2, 3, 2, (2, 1)),
            history: History::new(first),
            mark: None,
        }
    }

    /// The offset of the packed length in a slot.
    const PACKED_AT: usize = 104;

    fn slot(change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut superblock = superblock();
        change(&mut superblock);
        superblock.encode().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mark = LogMark {
            is_closed: true,
            segment: SegmentNumber(1),
            offset: LogOffset(2),
            sequence: 3,
            chain: 4,
            segments_begun: 5,
            ids_reserved: 6,
        };
        for change in [
            (|_| {}) as fn(&mut Superblock),
            |superblock| superblock.number = HOME_APART,
            |superblock| superblock.geometry.home_node = Node { file_system: 7, inode: 8 },
            |superblock| superblock.geometry.file_mode = 0o640,
            |superblock| superblock.geometry.packed_bytes = 12 << 10,
            |superblock| superblock.geometry.packed_bytes = 64 << 10,
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
            |superblock| superblock.geometry.packed_bytes = 68 << 10,
            |superblock| superblock.geometry.data = 65,
            |superblock| superblock.geometry.data = 0,
            |superblock| superblock.geometry.copies = 0,
            |superblock| superblock.geometry.parity = 3,
            |superblock| superblock.geometry.compression = Compression::Zstd(100),
            |superblock| superblock.geometry.low_watermark_percent = 95,
            |superblock| superblock.geometry.high_watermark_percent = 200,
            |superblock| superblock.geometry.devices[1].number = DeviceNumber(7),
            |superblock| superblock.geometry.file_mode = 0o4600,
            |superblock| superblock.geometry.file_mode = 0o200,
            |superblock| superblock.number = DeviceNumber(5),
        ] {
            assert_eq!(Superblock::decode(&slot(change)).unwrap(), None);
        }
    }

    #[test]
    fn four_kibibytes_are_packed_where_a_zero_was() {
        let of = |packed_bytes| slot(|superblock| superblock.geometry.packed_bytes = packed_bytes)[PACKED_AT];
        assert_eq!([4, 8, 12, 64].map(|kibibytes| of(kibibytes << 10)), [0, 1, 2, 15]);
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
