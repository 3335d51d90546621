//! Superblocks: who the store and a device are, and the geometry, on every device and in the home (docs/FORMAT.md, section 3).
//!
//! A change is written twice, first everywhere with the next generation, then everywhere with the one after, each to the slot of
//! its parity. A crash leaves one sound slot; and a device that is two generations behind was not there when others were written to.
//! A damaged slot, or a file that is no superblock, is told by its checksum; both damaged is an error that says what to do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::decode::Decoder;
use super::geometry::{Class, Compression, DeviceEntry, DeviceState, Geometry};
use super::record::checksum;
use crate::devices::device::{Device, Mode};
use crate::error::{Error, ErrorKind, Result};

/// Name of the file.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Version of the whole format.
pub(crate) const VERSION: u16 = 1;
/// Number of a home that is no device.
pub(crate) const NO_DEVICE: u16 = u16::MAX;
const MAGIC: &[u8; 8] = b"granulo\0";
const SLOT_BYTES: u64 = 64 << 10;

/// What a device says of itself and of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    /// Number of the device that this is on, or [`NO_DEVICE`].
    pub(crate) number: u16,
    /// Its identity; zero for [`NO_DEVICE`].
    pub(crate) identity: [u8; 16],
    pub(crate) geometry: Geometry,
}

impl Superblock {
    /// The bytes of a slot.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if devices and their paths do not fit a slot.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let geometry = &self.geometry;
        let mut body = Vec::with_capacity(256);
        body.extend_from_slice(MAGIC);
        body.extend_from_slice(&VERSION.to_le_bytes());
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&self.generation.to_le_bytes());
        body.extend_from_slice(&geometry.store);
        body.extend_from_slice(&self.identity);
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&geometry.created_nanoseconds.to_le_bytes());
        body.extend_from_slice(&geometry.cutoff_bytes.to_le_bytes());
        body.extend_from_slice(&geometry.stripe_unit_bytes.to_le_bytes());
        let (compression, level) = match geometry.compression {
            Compression::None => (0, 0),
            Compression::Zstd(level) => (1, level.to_le_bytes()[0]),
        };
        body.extend_from_slice(&[geometry.copies, geometry.parity, geometry.data, compression, level]);
        body.extend_from_slice(&[geometry.high_watermark_percent, geometry.low_watermark_percent, 0]);
        body.extend_from_slice(&geometry.segment_bytes.to_le_bytes());
        body.extend_from_slice(&(geometry.devices.len() as u16).to_le_bytes());
        for device in &geometry.devices {
            body.extend_from_slice(&device.number.to_le_bytes());
            body.extend_from_slice(&device.identity);
            body.extend_from_slice(&[device.class as u8, device.state as u8]);
            encode_path(&device.path, &mut body);
        }
        encode_path(&geometry.home, &mut body);
        let length = body.len();
        if (length + 8) as u64 > SLOT_BYTES {
            return Err(Error::new(
                ErrorKind::Usage,
                "write the superblock",
                "there are too many devices, or their paths are too long",
            ));
        }
        body[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        let mut slot = checksum(&body).to_le_bytes().to_vec();
        slot.extend_from_slice(&body);
        Ok(slot)
    }

    /// The superblock in a slot; `None` if there is no sound one.
    ///
    /// # Errors
    /// [`ErrorKind::NewerVersion`] for a sound one of a later version.
    pub(crate) fn decode(slot: &[u8]) -> Result<Option<Superblock>> {
        let Some((stored, body)) = slot.split_first_chunk::<8>() else { return Ok(None) };
        let length = body
            .get(12..16)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        let Some(body) = body.get(..length) else { return Ok(None) };
        if !body.starts_with(MAGIC) || checksum(body) != u64::from_le_bytes(*stored) {
            return Ok(None);
        }
        let version = u16::from_le_bytes([body[8], body[9]]);
        if version > VERSION {
            let cause = format!("it is of format version {version}; this granulo reads up to {VERSION}");
            return Err(Error::new(ErrorKind::NewerVersion, "open the store", cause).advise("use a newer granulo"));
        }
        Ok(decode_body(&body[16..]))
    }

    /// The superblock of a device; `None` if it has no such file.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file is there and no slot is sound; what reading fails with.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<Superblock>> {
        let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
        let file = match device.open(SUPERBLOCK, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let mut newest: Option<Superblock> = None;
        for slot in [0, SLOT_BYTES] {
            let mut bytes = Vec::new();
            file.read_onto(&mut bytes, SLOT_BYTES as usize, slot).map_err(fail)?;
            if let Some(found) = Superblock::decode(&bytes)? {
                newest = newest.filter(|newest| newest.generation >= found.generation).or(Some(found));
            }
        }
        match newest {
            Some(superblock) => Ok(Some(superblock)),
            None => Err(Error::new(ErrorKind::Corrupt, "read the superblock", "neither of its slots is sound")
                .at(&device.place().join(SUPERBLOCK))
                .advise("name another device of the store, and run granulo store repair")),
        }
    }

    /// How many of the two slots are sound, 0 to 2.
    pub(crate) fn sound_slots(device: &dyn Device) -> Result<usize> {
        let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
        let file = device.open(SUPERBLOCK, Mode::Read).map_err(fail)?;
        let mut sound = 0;
        for slot in [0, SLOT_BYTES] {
            let mut bytes = Vec::new();
            file.read_onto(&mut bytes, SLOT_BYTES as usize, slot).map_err(fail)?;
            sound += usize::from(Superblock::decode(&bytes)?.is_some());
        }
        Ok(sound)
    }

    /// Writes it to the slot of its generation, and syncs.
    ///
    /// # Errors
    /// What writing or syncing fails with; the other slot is what it was.
    pub(crate) fn write(&self, device: &dyn Device) -> Result<()> {
        let fail = |error| Error::io("write the superblock", &device.place().join(SUPERBLOCK), error);
        let bytes = self.encode()?;
        let (file, is_new) = match device.open(SUPERBLOCK, Mode::Write) {
            Ok(file) => (file, false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (device.open(SUPERBLOCK, Mode::Create).map_err(fail)?, true)
            }
            Err(error) => return Err(fail(error)),
        };
        file.write_at(&bytes, self.generation % 2 * SLOT_BYTES).map_err(fail)?;
        file.sync().map_err(fail)?;
        if is_new {
            device.sync_directory("").map_err(fail)?;
        }
        Ok(())
    }
}

fn decode_body(body: &[u8]) -> Option<Superblock> {
    let mut at = Decoder::new(body);
    let generation = at.u64()?;
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
    at.u8().filter(|&zero| zero == 0)?;
    let segment_bytes = at.u64()?;
    let mut devices = Vec::new();
    for _ in 0..at.u16()? {
        devices.push(DeviceEntry {
            number: at.u16()?,
            identity: at.identity()?,
            class: match at.u8()? {
                1 => Class::Fast,
                2 => Class::Slow,
                _ => return None,
            },
            state: match at.u8()? {
                1 => DeviceState::InUse,
                2 => DeviceState::Rebuilding,
                3 => DeviceState::Gone,
                _ => return None,
            },
            path: decode_path(&mut at)?,
        });
    }
    let home = decode_path(&mut at)?;
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
        devices,
        home,
    };
    let is_listed = usize::from(number) < geometry.devices.len();
    let is_sound = is_whole && geometry.out_of_bounds().is_none() && (number == NO_DEVICE || is_listed);
    is_sound.then_some(Superblock { generation, number, identity, geometry })
}

fn encode_path(path: &std::path::Path, onto: &mut Vec<u8>) {
    let bytes = path.as_os_str().as_bytes();
    onto.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    onto.extend_from_slice(bytes);
}

fn decode_path(at: &mut Decoder<'_>) -> Option<PathBuf> {
    let length = at.u16()?.into();
    Some(PathBuf::from(OsStr::from_bytes(at.take(length)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::subject::geometry;

    fn slot(change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut superblock =
            Superblock { generation: 2, number: 1, identity: [2; 16], geometry: geometry(2, 3, 2, (2, 1)) };
        change(&mut superblock);
        superblock.encode().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        assert!(Superblock::decode(&slot(|_| {})).unwrap().is_some());
        assert!(Superblock::decode(&slot(|superblock| superblock.number = NO_DEVICE)).unwrap().is_some());
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
            |superblock| superblock.number = 5,
        ] {
            assert_eq!(Superblock::decode(&slot(change)).unwrap(), None);
        }
    }
}
