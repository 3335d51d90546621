//! Where the next chunk goes: devices by the object's id, extent files one after the other.
//!
//! The end of a device's newest extent file only moves forward while writers hold reservations behind it. A reservation is of
//! offsets, not of space: what a writer did not reach stays a hole, and goes back if nothing was reserved behind it. A file is never
//! longer than its first 16 GiB and one component.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use twox_hash::XxHash3_64;

use super::{ExtentFiles, lock};
use crate::devices::device::DeviceFile;
use crate::devices::placement::reserve_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Component;
use crate::format::geometry::LARGEST_FILE_BYTES;
use crate::index::catalog::ExtentRow;
use crate::layout::granulo::{SECTOR_BYTES, Striping};
use crate::layout::round_up;

/// The devices of an object, first to last: in order of XXH3 of its id and their identities, so that each loss spreads over all others.
pub(crate) fn order(id: u64, devices: &[(u16, [u8; 16])]) -> Vec<u16> {
    let mut order: Vec<(u64, u16)> = devices
        .iter()
        .map(|(number, identity)| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&id.to_le_bytes());
            bytes[8..].copy_from_slice(identity);
            (XxHash3_64::oneshot(&bytes), *number)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, number)| number).collect()
}

/// The newest extent file of a device.
#[derive(Debug, Clone, Copy)]
struct Tail {
    file: u32,
    end_bytes: u64,
}

/// A place for a component, and the file that it is in.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) component: Component,
    pub(super) end_bytes: u64,
    pub(super) file: Arc<dyn DeviceFile>,
}

/// Gives out places in extent files. Shared by writers.
#[derive(Debug)]
pub(crate) struct Allocator {
    tails: Mutex<BTreeMap<u16, Tail>>,
}

impl Allocator {
    /// Goes on behind what the catalog knows.
    pub(crate) fn new(rows: impl IntoIterator<Item = ExtentRow>) -> Allocator {
        let mut tails: BTreeMap<u16, Tail> = BTreeMap::new();
        for row in rows {
            let tail = Tail { file: row.file, end_bytes: round_up(row.end_bytes, SECTOR_BYTES) };
            let known = tails.entry(row.device).or_insert(tail);
            if known.file < tail.file {
                *known = tail;
            }
        }
        Allocator { tails: Mutex::new(tails) }
    }

    /// Places for the components of the chunk with this number on the first devices of `order` that are in service and have room for
    /// it, and how it is striped: with as many data units as there are devices for. `left_bytes` is what of the object is left, if that is known.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if fewer devices are in service than one data unit and parity need, [`ErrorKind::NoSpace`] if fewer of these have
    /// room; what making a file fails with.
    pub(super) fn reserve(
        &self,
        files: &ExtentFiles,
        order: &[u16],
        rule: Striping,
        chunk: usize,
        left_bytes: Option<u64>,
    ) -> Result<(Striping, Vec<Reserved>)> {
        let in_service: Vec<u16> =
            order.iter().copied().filter(|&number| files.source.device(number).is_some()).collect();
        // Asked once at most, and only as far as it is needed.
        let mut rooms: Vec<Option<u64>> = vec![None; in_service.len()];
        let mut room_of =
            |position: usize| *rooms[position].get_or_insert_with(|| files.room_bytes(in_service[position]));
        for data in (1..=rule.data).rev() {
            let striping = Striping { data, ..rule };
            let width = usize::from(data) + usize::from(rule.parity);
            if width > in_service.len() {
                continue;
            }
            let unit = u64::from(striping.unit_bytes(chunk));
            let longest = striping.longest_chunk_bytes(chunk);
            let stripe = unit * u64::from(data);
            let length = left_bytes.map_or(longest, |left| round_up(left.max(1), stripe).min(longest));
            let component_bytes = length / u64::from(data);
            // Of an object of unknown length it is not known what it will need.
            let needed = if left_bytes.is_some() { component_bytes } else { unit };
            let chosen: Vec<u16> = (0..in_service.len())
                .filter(|&position| room_of(position) >= needed)
                .take(width)
                .map(|position| in_service[position])
                .collect();
            if chosen.len() < width {
                continue;
            }
            let mut reserved = Vec::with_capacity(width);
            for device in chosen {
                match self.reserve_on(files, device, component_bytes) {
                    Ok(place) => reserved.push(place),
                    Err(error) => {
                        reserved.iter().for_each(|place| self.release(place, place.component.offset_bytes));
                        return Err(error);
                    }
                }
            }
            return Ok((striping, reserved));
        }
        Err(too_few(in_service.len(), rule.parity))
    }

    /// A place of so many bytes on one device.
    ///
    /// # Errors
    /// What making a file fails with.
    pub(super) fn reserve_on(&self, files: &ExtentFiles, device: u16, length_bytes: u64) -> Result<Reserved> {
        let mut tails = lock(&self.tails);
        let tail = tails.get(&device).copied().filter(|tail| tail.end_bytes < LARGEST_FILE_BYTES);
        let opened = match tail {
            Some(tail) => match files.open(device, tail.file, true) {
                // A device that was emptied or replaced begins a file that was never there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => {
                    let file = opened.map_err(|error| files.error("open the extent file", device, tail.file, error))?;
                    Some((tail, file))
                }
            },
            None => None,
        };
        let (tail, file) = match opened {
            Some(opened) => opened,
            None => {
                let next = tails.get(&device).map_or(Some(0), |tail| tail.file.checked_add(1));
                create_next(files, device, next)?
            }
        };
        let end_bytes = tail.end_bytes + round_up(length_bytes, SECTOR_BYTES);
        tails.insert(device, Tail { file: tail.file, end_bytes });
        let component = Component { device, file: tail.file, offset_bytes: tail.end_bytes };
        Ok(Reserved { component, end_bytes, file })
    }

    /// Says that a reservation was used up to `used_end_bytes`; the rest is given out again if nothing was reserved behind it.
    pub(super) fn release(&self, reserved: &Reserved, used_end_bytes: u64) {
        self.give_back(reserved.component, reserved.end_bytes, used_end_bytes);
    }

    /// As [`release`](Self::release), of a component that ends at `end_bytes`.
    pub(super) fn give_back(&self, component: Component, end_bytes: u64, used_end_bytes: u64) {
        if let Some(tail) = lock(&self.tails).get_mut(&component.device)
            && (tail.file, tail.end_bytes) == (component.file, end_bytes)
        {
            tail.end_bytes = used_end_bytes;
        }
    }
}

impl ExtentFiles {
    /// What units may still be written to a device: without what is kept back for removals, for moving records and for the index.
    pub(super) fn room_bytes(&self, device: u16) -> u64 {
        let room = self.source.device(device).and_then(|device| device.room().ok());
        room.map_or(0, |room| room.available_bytes.saturating_sub(reserve_bytes(room)))
    }
}

/// The first file from `next` on that can be made. One that is there already is the remains of a crash: it is for recovery.
fn create_next(files: &ExtentFiles, device: u16, next: Option<u32>) -> Result<(Tail, Arc<dyn DeviceFile>)> {
    let mut next = next;
    while let Some(file) = next {
        match files.create(device, file) {
            Ok(created) => return Ok((Tail { file, end_bytes: 0 }, created)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next = file.checked_add(1),
            Err(error) => return Err(files.error("make the extent file", device, file, error)),
        }
    }
    let cause = "all numbers of extent files are given away";
    Err(Error::new(ErrorKind::NoSpace, "make an extent file", cause).at(&files.source.directory(device)))
}

pub(super) fn too_few(in_service: usize, parity: u8) -> Error {
    let least = usize::from(parity) + 1;
    if in_service < least {
        let cause = format!("{in_service} devices are in service, and parity needs {least}");
        Error::new(ErrorKind::Lost, "place a large object", cause).advise("rebuild the lost devices first")
    } else {
        let cause = format!("fewer than {least} of {in_service} devices have room for it");
        Error::new(ErrorKind::NoSpace, "place a large object", cause)
            .advise("free some space, compact the store, or add devices")
    }
}
