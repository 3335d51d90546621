//! Where the next chunk goes: devices by the object's id, extent files in sequence.
//!
//! A device's newest extent file grows until the next component would exceed its limit. Space is allocated after
//! everything in the file, including bytes that nothing refers to any more (the quarantine of a killed writer):
//! existing bytes are never overwritten. What a writer of this process abandoned unreferenced is reallocated if nothing
//! was reserved after it.
//!
//! The holder of a reservation has a [`Claim`] on its file until what it wrote is referenced and durable, or abandoned;
//! a file with claims is not released.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, Weak};

use twox_hash::XxHash3_64;

use super::{Claim, ExtentFiles, OpenExtent};
use crate::devices::device::Room;
use crate::devices::placement::{file_bytes, moving_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::{Component, Descriptor, Run};
use crate::format::ids::DeviceNumber;
use crate::format::names::EXTENTS;
use crate::format::rows::ExtentRow;
use crate::layout::granulo::{SECTOR_BYTES, Striping};
use crate::layout::round_up;
use crate::locks::lock;

/// The devices of an object, first to last: in order of XXH3 of its id and their identities, so that each loss is
/// spread over all others.
pub(crate) fn order(id: u64, devices: &[(DeviceNumber, [u8; 16])]) -> Vec<DeviceNumber> {
    let mut order: Vec<(u64, DeviceNumber)> = devices
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

/// The extent file that receives a device's next component.
#[derive(Debug, Clone, Copy)]
struct ExtentTail {
    file: u32,
    end_bytes: u64,
}

/// Space for a component, and its file.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) component: Component,
    pub(crate) claim: Claim,
    pub(super) end_bytes: u64,
    pub(super) file: OpenExtent,
}

/// What was allocated.
#[derive(Debug, Default)]
struct Allocated {
    /// Highest number of a file, and its end, that the catalog knows on each device.
    known: BTreeMap<DeviceNumber, ExtentTail>,
    /// Where the next component goes, on each device with reservations.
    tails: BTreeMap<DeviceNumber, ExtentTail>,
    /// Files that receive nothing more.
    closed: BTreeSet<(DeviceNumber, u32)>,
    claims: BTreeMap<(DeviceNumber, u32), Weak<()>>,
}

impl Allocated {
    /// The number after the newest file and all closed ones: a closed file may have been freed by now, and a reader of
    /// the log considers any file with a released number dead.
    fn next_file(&self, device: DeviceNumber, newest: Option<ExtentTail>) -> Option<u32> {
        let closed = self.closed.range((device, 0)..=(device, u32::MAX)).next_back().map(|&(_, file)| file);
        let last = newest.map(|tail| tail.file).max(closed);
        last.map_or(Some(0), |file| file.checked_add(1))
    }

    fn claim(&mut self, device: DeviceNumber, file: u32) -> Claim {
        let claim = self.claims.get(&(device, file)).and_then(Weak::upgrade).unwrap_or_default();
        self.claims.insert((device, file), Arc::downgrade(&claim));
        Claim(claim)
    }
}

/// Allocates space in extent files. Shared by writers.
#[derive(Debug)]
pub(crate) struct Allocator {
    places: Mutex<Allocated>,
    /// No component may end past this offset in a file, or past a fraction of a small device, unless the component
    /// alone is longer.
    limit_bytes: u64,
}

impl Allocator {
    /// Continues after what the catalog knows and what is in the files, and skips all files up to those in `closed`. A
    /// file is full at `limit_bytes`.
    pub(crate) fn new(
        rows: impl IntoIterator<Item = ExtentRow>,
        closed: impl IntoIterator<Item = (DeviceNumber, u32)>,
        limit_bytes: u64,
    ) -> Allocator {
        let mut known: BTreeMap<DeviceNumber, ExtentTail> = BTreeMap::new();
        let of_row = |row: ExtentRow| {
            (row.device, ExtentTail { file: row.file, end_bytes: round_up(row.end_bytes, SECTOR_BYTES) })
        };
        let closed = closed.into_iter().map(|(device, file)| (device, ExtentTail { file, end_bytes: u64::MAX }));
        for (device, tail) in rows.into_iter().map(of_row).chain(closed) {
            let last = known.entry(device).or_insert(tail);
            if (last.file, last.end_bytes) < (tail.file, tail.end_bytes) {
                *last = tail;
            }
        }
        let places = Allocated { known, ..Allocated::default() };
        Allocator { places: Mutex::new(places), limit_bytes }
    }

    /// Closes a file: later components go to another.
    pub(crate) fn retire(&self, device: DeviceNumber, file: u32) {
        lock(&self.places).closed.insert((device, file));
    }

    /// Whether units in a file are about to be referenced.
    pub(crate) fn is_claimed(&self, device: DeviceNumber, file: u32) -> bool {
        lock(&self.places).claims.get(&(device, file)).is_some_and(|claim| claim.strong_count() > 0)
    }

    /// Protects a file from being released, for units in it that no record references (any more).
    pub(crate) fn claim(&self, device: DeviceNumber, file: u32) -> Claim {
        lock(&self.places).claim(device, file)
    }

    /// Reserves space for the components of the chunk with this number on the first devices of `order` that are in
    /// service and have enough, and determines its striping: as many data units as there are devices for. `left_bytes`
    /// is the length of the rest of the object, if known.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if fewer devices are in service than one data unit and parity need, [`ErrorKind::NoSpace`]
    /// if fewer of these have space; any error of asking one for its space, and of creating a file.
    pub(super) fn reserve(
        &self,
        files: &ExtentFiles,
        order: &[DeviceNumber],
        rule: Striping,
        chunk: usize,
        left_bytes: Option<u64>,
    ) -> Result<(Striping, Vec<Reserved>)> {
        let in_service: Vec<DeviceNumber> =
            order.iter().copied().filter(|&number| files.source.device_to_write(number).is_some()).collect();
        // Queried at most once, and only as far as needed.
        let mut rooms: Vec<Option<u64>> = vec![None; in_service.len()];
        let mut room_of = |position: usize| match rooms[position] {
            Some(room) => Ok(room),
            None => files.room_bytes(in_service[position]).inspect(|&room| rooms[position] = Some(room)),
        };
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
            // For an object of unknown length, future needs are unknown.
            let needed = if left_bytes.is_some() { component_bytes } else { unit };
            let mut chosen = Vec::with_capacity(width);
            for (position, &device) in in_service.iter().enumerate() {
                if chosen.len() < width && room_of(position)? >= needed {
                    chosen.push(device);
                }
            }
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

    /// Reserves `length_bytes` on one device.
    ///
    /// # Errors
    /// Any error of asking the device for its space, and of listing or creating a file.
    pub(crate) fn reserve_on(&self, files: &ExtentFiles, device: DeviceNumber, length_bytes: u64) -> Result<Reserved> {
        let mut places = lock(&self.places);
        let length_bytes = round_up(length_bytes, SECTOR_BYTES);
        let newest = match places.tails.get(&device) {
            Some(&tail) => Some(tail),
            None => newest(files, device, places.known.get(&device).copied())?,
        };
        let limit_bytes = files.room(device)?.map_or(self.limit_bytes, |room| file_bytes(room, self.limit_bytes));
        let fits =
            |tail: &ExtentTail| tail.end_bytes == 0 || tail.end_bytes.saturating_add(length_bytes) <= limit_bytes;
        let tail = newest.filter(|tail| fits(tail) && !places.closed.contains(&(device, tail.file)));
        let opened = match tail {
            Some(tail) => match files.open(device, tail.file, true) {
                // On a device that was emptied or replaced, begins a file with an unused number.
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
            None => create_next(files, device, places.next_file(device, newest))?,
        };
        let end_bytes = tail.end_bytes + length_bytes;
        places.tails.insert(device, ExtentTail { file: tail.file, end_bytes });
        let component = Component { device, file: tail.file, offset_bytes: tail.end_bytes };
        Ok(Reserved { component, claim: places.claim(device, tail.file), end_bytes, file })
    }

    /// Ends a reservation that was used up to `used_end_bytes`; the rest is reallocated if nothing was reserved after
    /// it.
    pub(super) fn release(&self, reserved: &Reserved, used_end_bytes: u64) {
        self.give_back(reserved.component, reserved.end_bytes, used_end_bytes);
    }

    /// As [`release`](Self::release), for a component that ends at `end_bytes`.
    pub(super) fn give_back(&self, component: Component, end_bytes: u64, used_end_bytes: u64) {
        if let Some(tail) = lock(&self.places).tails.get_mut(&component.device)
            && (tail.file, tail.end_bytes) == (component.file, end_bytes)
        {
            tail.end_bytes = used_end_bytes;
        }
    }

    /// Frees the space of an object that was never handed to the log for reallocation, as far as nothing was reserved
    /// after it.
    pub(crate) fn give_up(&self, descriptor: &Descriptor) {
        let runs: Vec<Run> = descriptor.runs().collect();
        for &Run { device, file, offset_bytes, length_bytes } in runs.iter().rev() {
            self.give_back(Component { device, file, offset_bytes }, offset_bytes + length_bytes, offset_bytes);
        }
    }
}

/// The newest file on a device, according to the device and the catalog, and its end; `None` if neither has one. One
/// unknown to the catalog ends at `u64::MAX`, so it receives nothing more: a killed writer left it, and its name may
/// not be durable.
fn newest(files: &ExtentFiles, device: DeviceNumber, known: Option<ExtentTail>) -> Result<Option<ExtentTail>> {
    let listed = files
        .list(device)
        .map_err(|error| Error::io("list the extent files in", &files.source.directory(device).join(EXTENTS), error))?;
    let there =
        listed.last_key_value().map(|(&file, &size)| ExtentTail { file, end_bytes: round_up(size, SECTOR_BYTES) });
    Ok(match (there, known) {
        (Some(there), Some(known)) if there.file == known.file => {
            Some(ExtentTail { end_bytes: there.end_bytes.max(known.end_bytes), ..there })
        }
        (Some(there), known) if known.is_none_or(|known| there.file > known.file) => {
            Some(ExtentTail { end_bytes: u64::MAX, ..there })
        }
        (_, known) => known,
    })
}

impl ExtentFiles {
    /// Bytes of units that may still be written to a device: without the reserve for removals, for moving records and
    /// for the index. None on a device that may not be written.
    ///
    /// # Errors
    /// The device does not say: it is not full, but may be broken.
    pub(crate) fn room_bytes(&self, device: DeviceNumber) -> Result<u64> {
        Ok(self.room(device)?.map_or(0, Room::put_bytes))
    }

    /// Bytes that moved units may occupy on a device before their old file is freed.
    ///
    /// # Errors
    /// As [`room_bytes`](Self::room_bytes).
    pub(crate) fn moving_room_bytes(&self, device: DeviceNumber) -> Result<u64> {
        Ok(self.room(device)?.map_or(0, moving_bytes))
    }

    fn room(&self, device: DeviceNumber) -> Result<Option<Room>> {
        let room = self.source.device_to_write(device).map(|on| on.room()).transpose();
        room.map_err(|error| {
            let directory = self.source.directory(device);
            Error::io("read the free space of", &directory, error).on_device(device.0)
        })
    }
}

/// Creates the first possible file from `next` on.
fn create_next(files: &ExtentFiles, device: DeviceNumber, next: Option<u32>) -> Result<(ExtentTail, OpenExtent)> {
    let mut next = next;
    while let Some(file) = next {
        match files.create(device, file) {
            Ok(created) => return Ok((ExtentTail { file, end_bytes: 0 }, created)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next = file.checked_add(1),
            Err(error) => return Err(files.error("create the extent file", device, file, error)),
        }
    }
    let cause = "all numbers of extent files are used up";
    Err(Error::new(ErrorKind::NoSpace, "create an extent file", cause).at(&files.source.directory(device)))
}

pub(super) fn too_few(in_service: usize, parity: u8) -> Error {
    let least = usize::from(parity) + 1;
    if in_service < least {
        let cause = format!("only {in_service} devices are in service; parity needs {least}");
        Error::new(ErrorKind::Lost, "place a large object", cause).advise("rebuild the lost devices first")
    } else {
        let cause = format!("fewer than {least} of {in_service} devices have space for it");
        Error::new(ErrorKind::NoSpace, "place a large object", cause).advise("free some space, or compact the store")
    }
}
