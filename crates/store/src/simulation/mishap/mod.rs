//! Faults of whole devices and single writes: a device disappears and returns, is emptied, is stale, has another's
//! place; bytes rot, or cannot be read for a while; an acknowledged write never reached the device, or reached another
//! place of it; a device has less space than it says, or is gone for some operations.
//!
//! What was written and is not durable disappears with its device. Files that were open on it fail for ever, even after
//! its return.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::device::{DeviceImage, SimulatedDevice};
use super::media::{BLOCK_BYTES, File, FileChange, FileContent, Luck};
use super::world::{Disk, World, WorldState};
use crate::devices::names::OTHER;
use crate::random::Random;

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// Identity of the store and the device.
    Superblock,
    /// The log.
    Segment,
    /// Stripe units.
    Extent,
    /// The document of the catalog.
    Manifest,
    /// Its continuation.
    Journal,
    /// A sorted table.
    Table,
    /// Locks and the like.
    Other,
}

impl FileKind {
    /// The kind of a file, from its path on the device.
    pub(crate) fn of(path: &str) -> FileKind {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        match directory {
            // A file to be renamed has an extension; one that is made durable again has another for a moment.
            "segments" if !name.trim_end_matches(OTHER).contains('.') => FileKind::Segment,
            "extents" if !name.trim_end_matches(OTHER).contains('.') => FileKind::Extent,
            "index" if name.starts_with("manifest") => FileKind::Manifest,
            "index" if name.starts_with("journal") => FileKind::Journal,
            "index" if name.contains(".table") => FileKind::Table,
            "" if name == "superblock" => FileKind::Superblock,
            _ => FileKind::Other,
        }
    }

    /// Whether its content can be rebuilt from the log.
    pub(crate) fn is_of_index(self) -> bool {
        matches!(self, FileKind::Manifest | FileKind::Journal | FileKind::Table)
    }
}

/// How a device is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Not mounted: an empty directory.
    Unmounted,
    /// The directory does not exist.
    Missing,
    /// Everything fails.
    Failing,
}

/// How a place is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rot {
    /// One bit is flipped.
    Bit,
    /// A sector cannot be read.
    Unreadable,
    /// The file ends here: what a file system makes of a file after its own damage.
    Cut,
    /// The file is empty.
    Emptied,
    /// The file is gone.
    Gone,
}

/// A write that the device acknowledges but does not do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Betrayal {
    /// The device.
    pub(crate) device: usize,
    /// The next write to a file of this kind.
    pub(crate) kind: FileKind,
    /// It overwrites a block of another or the same file of the kind; otherwise it is dropped.
    pub(crate) goes_elsewhere: bool,
}

/// A place that cannot be read for a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passing {
    /// The device.
    pub(crate) device: usize,
    file: u64,
    at: u64,
    /// Reads of it that succeed first.
    spared: u64,
    /// Reads that fail then.
    failing: u64,
}

/// A time in which everything on a device fails.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// The device.
    pub(crate) device: usize,
    /// The operations of the world in it.
    operations: Range<u64>,
}

/// A removed device.
#[derive(Debug, Clone)]
pub(crate) struct Detached(Disk);

/// The files of a device, by path.
pub(crate) type Image = BTreeMap<String, Arc<FileContent>>;

impl Disk {
    fn image(&self) -> Image {
        let content = |number: &u64| self.files.get(number).map(|file| Arc::clone(&file.current)).unwrap_or_default();
        self.names.current.iter().map(|(path, number)| (path.clone(), content(number))).collect()
    }
}

impl WorldState {
    /// The betrayal that a write to a file of this kind meets, and that is thereby used up.
    pub(super) fn betrayal(&mut self, device: usize, kind: FileKind) -> Option<Betrayal> {
        let at = self.betrayals.iter().position(|one| one.device == device && one.kind == kind)?;
        Some(self.betrayals.remove(at))
    }

    /// Whether a range of a file can be read now.
    pub(super) fn pass(&mut self, device: usize, file: u64, range: Range<u64>) -> bool {
        let is_met = |one: &Passing| (one.device, one.file) == (device, file) && range.contains(&one.at);
        let Some(at) = self.passing.iter().position(is_met) else { return true };
        let one = &mut self.passing[at];
        if one.spared > 0 {
            one.spared -= 1;
            return true;
        }
        one.failing -= 1;
        if one.failing == 0 {
            self.passing.remove(at);
        }
        self.passed += 1;
        false
    }

    /// Whether everything on a device fails at an operation.
    pub(super) fn is_out(&self, device: usize, operation: u64) -> bool {
        self.outages.iter().any(|outage| outage.device == device && outage.operations.contains(&operation))
    }

    /// Overwrites existing blocks of a file of the device with `data`.
    pub(super) fn misdirect(&mut self, device: usize, meant: u64, data: &[u8]) {
        let files: Vec<u64> = self.disks[device]
            .names
            .current
            .iter()
            .filter(|(path, file)| FileKind::of(path) == FileKind::Segment || **file == meant)
            .map(|(_, file)| *file)
            .collect();
        let file = *self.random.pick(&files);
        let blocks = self.disks[device].files[&file].current.bytes.len() / BLOCK_BYTES;
        let offset = (self.random.index(blocks.max(1)) * BLOCK_BYTES) as u64;
        if let Some(file) = self.disks[device].files.get_mut(&file) {
            file.change(FileChange::Write(offset, data.into()));
        }
    }

    fn put(&mut self, device: usize, mut disk: Disk) {
        let newest = disk.files.keys().max().copied().unwrap_or(0);
        self.next_file = self.next_file.max(newest) + 1;
        // As unique as the numbers of files.
        disk.incarnation = self.next_file;
        self.disks[device] = disk;
    }

    /// A new number for a directory.
    fn new_node(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file
    }
}

impl World {
    /// The device at a path; an empty one if there was none.
    pub(crate) fn device_at(&self, path: &str) -> Arc<SimulatedDevice> {
        let mut state = self.state();
        let number = match state.places.get(path) {
            Some(number) => *number,
            None => {
                state.disks.push(Disk::default());
                let number = state.disks.len() - 1;
                state.places.insert(path.to_owned(), number);
                number
            }
        };
        drop(state);
        self.device(number)
    }

    /// The inode number of the directory at a path; `None` if there is none.
    pub(crate) fn node_at(&self, path: &str) -> Option<u64> {
        let state = self.state();
        let disk = &state.disks[*state.places.get(path)?];
        (disk.node > 0 && !disk.is_lost).then_some(disk.node)
    }

    /// Moves everything below one directory to another.
    pub(crate) fn move_below(&self, from: &str, to: &str) {
        let mut state = self.state();
        let places = std::mem::take(&mut state.places);
        let moved = |path: String| path.strip_prefix(from).map(|rest| format!("{to}{rest}")).unwrap_or(path);
        state.places = places.into_iter().map(|(path, disk)| (moved(path), disk)).collect();
    }

    /// Whether there is anything beside a directory.
    pub(crate) fn is_beside(&self, place: &str) -> bool {
        self.state().places.keys().any(|path| !path.starts_with(place))
    }

    /// Copies everything below one directory to another, as `cp -a` does.
    pub(crate) fn copy_below(&self, from: &str, to: &str) {
        let mut state = self.state();
        let paths: Vec<(String, usize)> = state
            .places
            .iter()
            .filter_map(|(path, disk)| Some((format!("{to}{}", path.strip_prefix(from)?), *disk)))
            .collect();
        for (path, disk) in paths {
            let copy = Disk { node: state.new_node(), ..state.disks[disk].settled() };
            state.disks.push(copy);
            let number = state.disks.len() - 1;
            state.places.insert(path, number);
        }
    }

    /// Removes a device; all or some of what was not durable is lost.
    pub(crate) fn detach(&self, device: usize, absence: Absence, seed: u64) -> Detached {
        let mut random = Random::new(seed);
        let mut state = self.state();
        let gone = state.disks[device].remains(None, &mut random);
        let node = if absence == Absence::Missing { 0 } else { state.new_node() };
        state.put(device, Disk { is_lost: absence == Absence::Failing, node, ..Disk::default() });
        Detached(gone)
    }

    /// Returns a device to its place, replacing what is there.
    pub(crate) fn attach(&self, device: usize, detached: &Detached) {
        self.state().put(device, detached.0.clone());
    }

    /// As [`SimulatedDevice::restore`]; open files fail.
    pub(crate) fn restore(&self, device: usize, snapshot: &DeviceImage) {
        self.state().put(device, snapshot.0.clone());
    }

    /// Drops what failed syncs left only in memory: files read as they are on the devices.
    pub(crate) fn drop_pages(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut state = self.state();
        for file in state.disks.iter_mut().flat_map(|disk| disk.files.values_mut()) {
            file.drop_doubtful(Luck::draw(&mut random), &mut random);
        }
    }

    /// The next write to such a file is not done as acknowledged.
    pub(crate) fn betray(&self, betrayal: Betrayal) {
        self.state().betrayals.push(betrayal);
    }

    /// Number of betrayals still to come.
    pub(crate) fn betrayals(&self) -> usize {
        self.state().betrayals.len()
    }

    /// Leaves this many free blocks on a device.
    pub(crate) fn fill(&self, device: usize, blocks: u64) {
        let mut state = self.state();
        let taken_bytes = state.taken_bytes(device);
        state.disks[device].capacity_bytes = Some(taken_bytes + blocks * BLOCK_BYTES as u64);
    }

    /// The same, and the device says that it has more.
    pub(crate) fn set_quota(&self, device: usize, blocks: u64) {
        let mut state = self.state();
        let taken_bytes = state.taken_bytes(device);
        state.disks[device].quota_bytes = Some(taken_bytes + blocks * BLOCK_BYTES as u64);
    }

    /// Whether a device is full, or will fail.
    pub(crate) fn is_troubled(&self) -> bool {
        let state = self.state();
        let is_full = |disk: &Disk| disk.capacity_bytes.is_some() || disk.quota_bytes.is_some();
        state.has_faults() || !state.outages.is_empty() || state.disks.iter().any(is_full)
    }

    /// A place determined by `place`, in the files of a kind, cannot be read for `failing` reads of it, after `spared`
    /// of them; returns whether there is such a file.
    pub(crate) fn unread(&self, device: usize, kind: FileKind, place: u64, (spared, failing): (u64, u64)) -> bool {
        assert!(failing > 0, "some reads fail");
        let Some((path, at)) = self.place_in(device, kind, &mut Random::new(place)) else { return false };
        let mut state = self.state();
        let file = state.disks[device].names.current[&path];
        state.passing.push(Passing { device, file, at, spared, failing });
        true
    }

    /// Everything can be read again.
    pub(crate) fn end_passing(&self) {
        self.state().passing.clear();
    }

    /// Number of reads that failed for a while.
    pub(crate) fn passed(&self) -> u64 {
        self.state().passed
    }

    /// After this many operations, everything on a device fails for as many as that.
    pub(crate) fn lose_for(&self, device: usize, after: u64, operations: u64) {
        let mut state = self.state();
        let from = state.operations() + after;
        state.outages.push(Outage { device, operations: from..from + operations });
    }

    /// All devices work again.
    pub(crate) fn end_outages(&self) {
        self.state().outages.clear();
    }

    /// The number of the disk at a path, if there is one.
    pub(crate) fn disk_at(&self, path: &str) -> Option<usize> {
        self.state().places.get(path).copied()
    }

    /// Number of reads of the content of files.
    pub(crate) fn reads(&self, kind: FileKind) -> u64 {
        self.state().reads.get(&kind).copied().unwrap_or(0)
    }

    /// The current files of a device.
    pub(crate) fn image(&self, device: usize) -> Image {
        self.state().disks[device].image()
    }

    /// The current files of all devices.
    pub(crate) fn images(&self) -> Vec<Image> {
        let count = self.state().disks.len();
        (0..count).map(|device| self.image(device)).collect()
    }

    /// A place in the files of a kind.
    fn place_in(&self, device: usize, kind: FileKind, random: &mut Random) -> Option<(String, u64)> {
        let files: Vec<(String, u64)> = self
            .device(device)
            .files()
            .into_iter()
            .filter(|(path, size_bytes)| FileKind::of(path) == kind && *size_bytes > 0)
            .collect();
        let total: u64 = files.iter().map(|(_, size_bytes)| size_bytes).sum();
        let mut at = random.below(total);
        let (path, _) = files.into_iter().find(|(_, size_bytes)| {
            let is_here = at < *size_bytes;
            if !is_here {
                at -= size_bytes;
            }
            is_here
        })?;
        Some((path, at))
    }

    /// Damages a place determined by `place`, in the files of a kind; returns where, if there is such a file.
    pub(crate) fn rot(&self, device: usize, kind: FileKind, rot: Rot, place: u64) -> Option<(String, u64)> {
        let mut random = Random::new(place);
        let (path, at) = self.place_in(device, kind, &mut random)?;
        match rot {
            Rot::Bit => self.device(device).flip_bit(&path, at * 8 + random.below(8)),
            Rot::Unreadable => self.device(device).make_unreadable(&path, at, 1),
            Rot::Cut => self.device(device).truncate(&path, at),
            Rot::Emptied => self.device(device).truncate(&path, 0),
            Rot::Gone => self.device(device).delete(&path),
        }
        Some((path, at))
    }

    /// Removes the index of a device.
    pub(crate) fn lose_index(&self, device: usize) {
        let one = self.device(device);
        for (path, _) in one.files() {
            if FileKind::of(&path).is_of_index() {
                one.delete(&path);
            }
        }
    }

    /// Restores the index of a device from a snapshot.
    pub(crate) fn restore_index(&self, device: usize, snapshot: &DeviceImage) {
        self.lose_index(device);
        let mut state = self.state();
        let old = &snapshot.0;
        let files: Vec<(String, File)> = old
            .names
            .current
            .iter()
            .filter(|(path, _)| FileKind::of(path).is_of_index())
            .filter_map(|(path, number)| Some((path.clone(), old.files.get(number)?.clone())))
            .collect();
        for (path, file) in files {
            let number = state.next_file;
            state.next_file += 1;
            let disk = &mut state.disks[device];
            disk.names.settle(path, number);
            disk.files.insert(number, File::settled(file.current));
        }
    }
}

#[cfg(test)]
mod tests;
