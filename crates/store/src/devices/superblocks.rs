//! Superblocks on their devices: two slots are written alternately, each time the one that is not the newest valid one,
//! so that a crash leaves one of them. A checksum detects a damaged slot, or a file that is not a superblock; if both
//! are damaged, the error says what to do.

use std::io;

use rustix::io::Errno;

use super::epochs::goes_on;
use crate::devices::device::{Device, DeviceFile, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode::Decoder;
use crate::format::geometry::DeviceEntry;
use crate::format::history::History;
use crate::format::superblock::{CHECKSUM_BYTES, LENGTH_AT, MAGIC, SLOT_BYTES, SUPERBLOCK, Superblock, WRITES_AT};

/// Too many open files, here or on the machine; no memory; interrupted.
const OF_PROCESS: [i32; 5] = [
    Errno::MFILE.raw_os_error(),
    Errno::NFILE.raw_os_error(),
    Errno::NOMEM.raw_os_error(),
    Errno::AGAIN.raw_os_error(),
    Errno::INTR.raw_os_error(),
];
const SLOTS: u64 = 2;
/// How often both slots are read before they count as damaged.
const ATTEMPTS: usize = 3;
/// Where a slot has the identity of the store.
const STORE_AT: usize = 32;
/// Minimum length of a slot; slots are written in such pages.
const PAGE_BYTES: usize = 4096;

/// The superblock of a device, and the slot for its next one.
#[derive(Debug, Clone)]
pub(crate) struct OnDevice {
    pub(crate) superblock: Superblock,
    slot: u64,
    /// The other slot is not valid, and may have had a newer one.
    pub(crate) is_alone: bool,
}

impl Superblock {
    /// Whether a device continued a history, and something was written then: see [`goes_on`].
    pub(super) fn goes_on(&self, known: &History) -> bool {
        goes_on(&self.history, known, self.mark.map_or(0, |mark| mark.sequence))
    }

    /// Whether a device of this store had the number of a device before that.
    pub(crate) fn is_former_of(&self, store: &[u8; 16], device: &DeviceEntry) -> bool {
        self.geometry.store == *store && self.number == device.number && self.identity != device.identity
    }

    /// Reads the superblock of a device; `None` if it has no such file.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file exists and no slot is valid; any error of reading.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<OnDevice>> {
        // A reader that loses the processor between the two slots may meet a write in each of them.
        for _ in 0..ATTEMPTS {
            let Some(slots) = read_slots(device)? else { return Ok(None) };
            let is_alone = slots.iter().any(Option::is_none);
            let newest = (0..SLOTS).zip(slots).filter_map(|(slot, found)| Some((slot, found?)));
            if let Some((slot, superblock)) = newest.max_by_key(|(_, superblock)| superblock.writes) {
                return Ok(Some(OnDevice { superblock, slot, is_alone }));
            }
        }
        Err(Error::new(ErrorKind::Corrupt, "read the superblock", "both of its slots are damaged")
            .at(&device.place().join(SUPERBLOCK))
            .advise("name another device of the store, and run granulo store repair; if it has no other, docs/read_store.py reads its \
                 segments"))
    }

    /// Makes what was read durable: a killed process may have left it in memory only.
    ///
    /// # Errors
    /// Any error of opening and syncing.
    pub(crate) fn sync(device: &dyn Device) -> io::Result<()> {
        device.open(SUPERBLOCK, Mode::Read)?.sync()
    }

    /// How many of the two slots are valid, 0 to 2.
    pub(crate) fn sound_slots(device: &dyn Device) -> Result<usize> {
        Ok(read_slots(device)?.map_or(0, |slots| slots.iter().flatten().count()))
    }

    /// Whether a file without a valid slot is what a crash left of the first superblock of a device of this store: each
    /// slot begins with the identity of the store, or was not written at all.
    ///
    /// # Errors
    /// Any error of reading.
    pub(crate) fn is_unfinished(device: &dyn Device, store: [u8; 16]) -> Result<bool> {
        let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
        let file = device.open(SUPERBLOCK, Mode::Read).map_err(fail)?;
        for slot in 0..SLOTS {
            let mut begin = Vec::new();
            file.read_onto(&mut begin, STORE_AT + store.len(), slot * SLOT_BYTES).map_err(fail)?;
            let is_ours = begin.get(STORE_AT..) == Some(&store[..]) && begin[CHECKSUM_BYTES..].starts_with(MAGIC);
            if !is_ours && begin.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an invalid slot may be the work of a killed writer: it has several pages, and its first one is older
    /// than the other slot. A slot of one page is written as a whole or not at all, so if it is invalid, it is damaged.
    ///
    /// # Errors
    /// Any error of reading.
    pub(crate) fn has_unfinished_slot(device: &dyn Device) -> Result<bool> {
        let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
        let Some(OnDevice { superblock, slot, .. }) = Superblock::read(device)? else { return Ok(false) };
        let file = device.open(SUPERBLOCK, Mode::Read).map_err(fail)?;
        // An unreadable slot is damaged.
        let Ok(bytes) = read_slot(&*file, (slot + 1) % SLOTS * SLOT_BYTES) else { return Ok(false) };
        let first_page = bytes.get(CHECKSUM_BYTES..).filter(|body| body.starts_with(MAGIC) && bytes.len() > PAGE_BYTES);
        let writes = first_page.and_then(|body| Decoder::new(body.get(WRITES_AT - CHECKSUM_BYTES..)?).u64());
        Ok(Superblock::decode(&bytes)?.is_none() && writes.is_some_and(|writes| writes + 1 == superblock.writes))
    }

    /// Writes the first superblock of a device, or a new one if none was valid: to both slots.
    ///
    /// # Errors
    /// Any error of writing or syncing.
    pub(crate) fn write_first(mut self, device: &dyn Device) -> Result<OnDevice> {
        self.writes = 1;
        let there = device.open(SUPERBLOCK, Mode::Read);
        let is_new = there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.write_to(device, 0, if is_new { Mode::Create } else { Mode::Write })?;
        // A killed process may have left the name in memory only.
        let fail = |error| Error::io("write the superblock", &device.place().join(SUPERBLOCK), error);
        device.sync_directory("").map_err(fail)?;
        OnDevice { superblock: self.clone(), slot: 0, is_alone: true }.replace(device, self)
    }

    fn write_to(&self, device: &dyn Device, slot: u64, mode: Mode) -> Result<()> {
        let fail = |error| Error::io("write the superblock", &device.place().join(SUPERBLOCK), error);
        let mut bytes = self.encode()?;
        // Whole pages: overwriting a bad sector needs the whole page.
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let file = device.open(SUPERBLOCK, mode).map_err(fail)?;
        // A process can be killed between two pages. The first is written last: until then the slot identifies itself
        // as the older one.
        let (first, others) = bytes.split_at(PAGE_BYTES);
        if !others.is_empty() {
            file.write_at(others, slot * SLOT_BYTES + PAGE_BYTES as u64).map_err(fail)?;
        }
        file.write_at(first, slot * SLOT_BYTES).map_err(fail)?;
        file.sync().map_err(fail)
    }
}

impl OnDevice {
    /// Writes the next superblock over the older of the two, and syncs.
    ///
    /// # Errors
    /// Any error of writing or syncing; the current slot is unchanged.
    pub(crate) fn replace(&self, device: &dyn Device, mut superblock: Superblock) -> Result<OnDevice> {
        superblock.writes = self.superblock.writes + 1;
        let slot = (self.slot + 1) % SLOTS;
        // If the file is gone, so is the device: a mount point without its file system must not look like one.
        superblock.write_to(device, slot, Mode::Write)?;
        Ok(OnDevice { superblock, slot, is_alone: false })
    }

    /// Writes it to both slots, one after the other: if one rots, the other must not bring back what was there.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub(crate) fn replace_both(&self, device: &dyn Device, superblock: Superblock) -> Result<OnDevice> {
        self.replace(device, superblock.clone())?.replace(device, superblock)
    }
}

/// Whether an error is one of this process or of the machine, and says nothing about the device.
pub(crate) fn is_of_process(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| OF_PROCESS.contains(&errno))
}

fn read_slots(device: &dyn Device) -> Result<Option<Vec<Option<Superblock>>>> {
    let fail = |error| Error::io("read the superblock", &device.place().join(SUPERBLOCK), error);
    let file = match device.open(SUPERBLOCK, Mode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut refused = None;
    let mut slots = Vec::new();
    for slot in 0..SLOTS {
        match read_slot(&*file, slot * SLOT_BYTES) {
            Ok(bytes) => slots.push(Superblock::decode(&bytes)?),
            Err(error) if is_of_process(&error) => return Err(fail(error)),
            Err(error) => {
                refused = Some(fail(error));
                slots.push(None);
            }
        }
    }
    // A slot on a bad sector counts as damaged as long as the other identifies the device.
    match refused {
        Some(error) if slots.iter().all(Option::is_none) => Err(error),
        _ => Ok(Some(slots)),
    }
}

/// Reads a slot up to its stated length.
fn read_slot(file: &dyn DeviceFile, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_onto(&mut bytes, PAGE_BYTES, at)?;
    let length = bytes.get(LENGTH_AT..).and_then(|rest| Decoder::new(rest).u32()).unwrap_or(0);
    let whole = (CHECKSUM_BYTES + length as usize).min(SLOT_BYTES as usize);
    if bytes.len() == PAGE_BYTES && whole > PAGE_BYTES {
        file.read_onto(&mut bytes, whole - PAGE_BYTES, at + PAGE_BYTES as u64)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::directory::Directory;
    use crate::format::history::EpochEntry;
    use crate::format::ids::Epoch;
    use crate::format::superblock::LogMark;
    use crate::format::superblock::tests::superblock;

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
            // The next write may be torn: the previous superblock survives.
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
        // In the reverse order it claims to be the newer one and is invalid: that is damage.
        let rotten = [&new[..page], &old[page..]].concat();
        std::fs::write(&path, &rotten).unwrap();
        assert!(Superblock::sound_slots(&device).unwrap() == 1 && !Superblock::has_unfinished_slot(&device).unwrap());
    }
}
