//! A simulated device as the store sees it, and methods that damage it.
//!
//! Damage is done to a device at rest: what was written to the file before becomes durable.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::media::{File, FileChange, FileContent, LONGEST_FILE_BYTES, NameChange, directory_of};
use super::mishap::{Betrayal, FileKind};
use super::world::{DeviceOperation, Disk, World, WorldState};
use crate::devices::device::{Device, DeviceFile, Mode, Room};
use crate::random::Random;

/// Size of an unlimited device, in bytes.
const ENDLESS_BYTES: u64 = 1 << 44;

/// A device of a [`World`].
#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    world: World,
    number: usize,
}

/// An earlier state of a device.
#[derive(Debug, Clone)]
pub(crate) struct DeviceImage(pub(super) Disk);

impl World {
    /// One of the devices.
    pub(crate) fn device(&self, number: usize) -> Arc<SimulatedDevice> {
        assert!(number < self.state().disks.len());
        Arc::new(SimulatedDevice { world: self.clone(), number })
    }

    /// All devices, for a store.
    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        let count = self.state().disks.len();
        (0..count).map(|number| self.device(number) as Arc<dyn Device>).collect()
    }
}

impl SimulatedDevice {
    pub(super) fn new(world: World, number: usize) -> SimulatedDevice {
        SimulatedDevice { world, number }
    }

    fn disk<T>(&self, of: impl FnOnce(&mut Disk) -> T) -> T {
        of(&mut self.world.state().disks[self.number])
    }

    /// Limits what can be allocated, in bytes.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.disk(|disk| disk.capacity_bytes = Some(capacity_bytes));
    }

    /// Removes the limits.
    pub(crate) fn set_endless(&self) {
        self.disk(|disk| (disk.capacity_bytes, disk.quota_bytes) = (None, None));
    }

    /// Paths and sizes in bytes of all files, by path.
    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        self.disk(|disk| {
            let size = |number| disk.files.get(number).map_or(0, |file| file.current.bytes.len() as u64);
            disk.names.current.iter().map(|(path, number)| (path.clone(), size(number))).collect()
        })
    }

    /// Content of a file, which must exist.
    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        self.disk(|disk| disk.files[&disk.names.current[path]].current.bytes.clone())
    }

    fn damage(&self, path: &str, damage: impl FnOnce(&mut FileContent)) {
        self.disk(|disk| {
            let number = disk.names.current[path];
            let mut content = FileContent::clone(&disk.files[&number].current);
            damage(&mut content);
            disk.files.insert(number, File::settled(Arc::new(content)));
        });
    }

    /// Flips one bit of a file: the lowest bit of the first byte is number 0.
    pub(crate) fn flip_bit(&self, path: &str, bit: u64) {
        self.damage(path, |content| content.bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
    }

    /// Truncates a file.
    pub(crate) fn truncate(&self, path: &str, size_bytes: u64) {
        self.damage(path, |content| {
            content.bytes.truncate(size_bytes as usize);
            *content = FileContent::new(std::mem::take(&mut content.bytes));
        });
    }

    /// Zeroes a range, up to the end of the file.
    pub(crate) fn zero(&self, path: &str, offset: u64, length: u64) {
        self.damage(path, |content| {
            let end = content.bytes.len().min((offset + length) as usize);
            content.bytes[offset as usize..end].fill(0);
        });
    }

    /// Makes reads in a range fail until it is written again.
    pub(crate) fn make_unreadable(&self, path: &str, offset: u64, length: u64) {
        self.damage(path, |content| content.make_unreadable(offset, length));
    }

    /// Makes all of a file readable again.
    pub(crate) fn make_readable(&self, path: &str) {
        self.damage(path, FileContent::make_readable);
    }

    /// Sets whether the names in a directory can be read.
    pub(crate) fn set_listable(&self, directory: &str, is_listable: bool) {
        self.disk(|disk| match is_listable {
            true => disk.unlistable.remove(directory),
            false => disk.unlistable.insert(directory.to_owned()),
        });
    }

    /// Sets whether a file can be opened for writing.
    pub(crate) fn set_writable(&self, path: &str, is_writable: bool) {
        self.disk(|disk| match is_writable {
            true => disk.protected.remove(path),
            false => disk.protected.insert(path.to_owned()),
        });
    }

    /// Deletes a file.
    pub(crate) fn delete(&self, path: &str) {
        self.disk(|disk| {
            *disk = disk.settled();
            let number = disk.names.current.get(path).copied().expect("there is such a file");
            disk.names.change(NameChange::Remove(path.to_owned()));
            disk.files.remove(&number);
            *disk = disk.settled();
        });
    }

    /// Removes all files and directories.
    pub(crate) fn empty(&self) {
        self.disk(|disk| {
            *disk = Disk { capacity_bytes: disk.capacity_bytes, node: disk.node, ..Disk::default() };
        });
    }

    /// From now on everything on this device fails.
    pub(crate) fn lose(&self) {
        self.disk(|disk| disk.is_lost = true);
    }

    /// The current state of the device, with everything that was written.
    pub(crate) fn snapshot(&self) -> DeviceImage {
        DeviceImage(self.disk(|disk| disk.settled()))
    }

    /// Restores an earlier state of the device.
    pub(crate) fn restore(&self, snapshot: &DeviceImage) {
        let mut state = self.world.state();
        let newest = snapshot.0.files.keys().max().copied().unwrap_or(0);
        state.next_file = state.next_file.max(newest + 1);
        state.disks[self.number] = snapshot.0.clone();
    }

    /// Counts an atomic operation. One that must fail for another reason than lack of space may be done nevertheless.
    fn whole<T>(
        &self,
        operation: DeviceOperation,
        act: impl FnOnce(&mut WorldState, &SimulatedDevice) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut state, failure) = self.world.begin(operation, self.number)?;
        let Some(errno) = failure else { return act(&mut state, self) };
        if errno != Errno::NOSPC && state.random.happens(1, 2) {
            let done = act(&mut state, self);
            // What is dropped here may be a handle, which takes the lock when it is dropped.
            drop(state);
            done?;
        }
        Err(errno.into())
    }

    fn handle(&self, state: &mut WorldState, path: &str, file: u64, is_writable: bool) -> Arc<dyn DeviceFile> {
        *state.handles.entry((self.number, file)).or_default() += 1;
        let device = SimulatedDevice::new(self.world.clone(), self.number);
        let incarnation = state.disks[self.number].incarnation;
        Arc::new(SimulatedFile { device, file, kind: FileKind::of(path), incarnation, is_writable })
    }
}

fn missing() -> io::Error {
    Errno::NOENT.into()
}

impl Device for SimulatedDevice {
    fn place(&self) -> std::path::PathBuf {
        std::path::PathBuf::from(format!("/simulated/{}", self.number))
    }

    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        if mode == Mode::Create {
            return self.whole(DeviceOperation::Create, |state, device| {
                let file = state.next_file;
                let disk = &mut state.disks[device.number];
                if disk.names.current.contains_key(path) {
                    return Err(Errno::EXIST.into());
                }
                let directory = directory_of(path);
                if !directory.is_empty() && !disk.directories.contains(directory) {
                    return Err(missing());
                }
                disk.names.change(NameChange::Create(path.to_owned(), file));
                disk.files.insert(file, File::default());
                state.next_file += 1;
                Ok(device.handle(state, path, file, true))
            });
        }
        self.whole(DeviceOperation::Read, |state, device| {
            let disk = &state.disks[device.number];
            let file = *disk.names.current.get(path).ok_or_else(missing)?;
            if mode == Mode::Write && disk.protected.contains(path) {
                return Err(Errno::ACCESS.into());
            }
            Ok(device.handle(state, path, file, mode == Mode::Write))
        })
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.whole(DeviceOperation::Read, |state, device| {
            let disk = &state.disks[device.number];
            if disk.unlistable.contains(directory) {
                return Err(Errno::IO.into());
            }
            let files = disk.names.current.iter().filter(|(path, _)| directory_of(path) == directory);
            let mut files: Vec<(String, u64)> = files
                .map(|(path, number)| {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    (name.to_owned(), disk.files[number].current.bytes.len() as u64)
                })
                .collect();
            // In random order, to exclude that of the names.
            state.random.shuffle(&mut files);
            Ok(files)
        })
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.whole(DeviceOperation::CreateDirectory, |state, device| {
            if state.disks[device.number].node == 0 {
                state.next_file += 1;
                state.disks[device.number].node = state.next_file;
            }
            let made = &mut state.disks[device.number].directories;
            let mut path = directory;
            while !path.is_empty() {
                made.insert(path.to_owned());
                path = directory_of(path);
            }
            Ok(())
        })
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let (mut state, failure) = self.world.begin(DeviceOperation::SyncDirectory, self.number)?;
        let disk = &mut state.disks[self.number];
        if !directory.is_empty() && !disk.directories.contains(directory) {
            return Err(missing());
        }
        match failure {
            None => disk.names.sync(directory),
            Some(_) => disk.names.fail_sync(directory),
        }
        failure.map_or(Ok(()), |errno| Err(errno.into()))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.whole(DeviceOperation::Remove, |state, device| {
            let names = &mut state.disks[device.number].names;
            if !names.current.contains_key(path) {
                return Err(missing());
            }
            names.change(NameChange::Remove(path.to_owned()));
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.whole(DeviceOperation::Rename, |state, device| {
            let disk = &mut state.disks[device.number];
            let file = *disk.names.current.get(from).ok_or_else(missing)?;
            let directory = directory_of(to);
            if !directory.is_empty() && !disk.directories.contains(directory) {
                return Err(missing());
            }
            disk.names.change(NameChange::Rename(from.to_owned(), to.to_owned(), file));
            Ok(())
        })
    }

    fn room(&self) -> io::Result<Room> {
        self.whole(DeviceOperation::Read, |state, device| {
            let total_bytes = state.disks[device.number].capacity_bytes.unwrap_or(ENDLESS_BYTES);
            let taken_bytes = state.taken_bytes(device.number) + state.taken_by_others_bytes(device.number);
            Ok(Room { total_bytes, available_bytes: total_bytes.saturating_sub(taken_bytes) })
        })
    }
}

/// An open file; it belongs to the file, not to its name.
#[derive(Debug)]
struct SimulatedFile {
    device: SimulatedDevice,
    file: u64,
    kind: FileKind,
    incarnation: u64,
    is_writable: bool,
}

impl SimulatedFile {
    fn in_state<'a>(&self, state: &'a mut WorldState) -> io::Result<&'a mut File> {
        let disk = &mut state.disks[self.device.number];
        // The file was removed with its device.
        let is_there = disk.incarnation == self.incarnation;
        disk.files.get_mut(&self.file).filter(|_| is_there).ok_or_else(|| Errno::STALE.into())
    }

    fn read_content(&self) -> io::Result<Arc<FileContent>> {
        *self.device.world.state().reads.entry(self.kind).or_default() += 1;
        self.content()
    }

    fn content(&self) -> io::Result<Arc<FileContent>> {
        self.device.whole(DeviceOperation::Read, |state, _| Ok(Arc::clone(&self.in_state(state)?.current)))
    }

    /// Fails if the range cannot be read now.
    fn pass(&self, offset: u64, length: usize) -> io::Result<()> {
        let range = offset..offset.saturating_add(length as u64);
        match self.device.world.state().pass(self.device.number, self.file, range) {
            true => Ok(()),
            false => Err(Errno::IO.into()),
        }
    }

    fn must_be_writable(&self, errno: Errno) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(errno.into()) }
    }

    /// The bytes of a range, up to the end of the file.
    fn part(content: &FileContent, offset: u64, length: usize) -> io::Result<&[u8]> {
        let start = content.bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let end = content.bytes.len().min(start.saturating_add(length));
        if !content.is_readable(start as u64, (end - start) as u64) {
            return Err(Errno::IO.into());
        }
        Ok(&content.bytes[start..end])
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let handles = &mut self.device.world.state().handles;
        if let Some(count) = handles.get_mut(&(self.device.number, self.file)) {
            *count -= 1;
            if *count == 0 {
                handles.remove(&(self.device.number, self.file));
            }
        }
    }
}

impl DeviceFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.read_content()?;
        let part = SimulatedFile::part(&content, offset, buffer.len())?;
        self.pass(offset, part.len())?;
        buffer[..part.len()].copy_from_slice(part);
        Ok(part.len())
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        let content = self.read_content()?;
        let part = SimulatedFile::part(&content, offset, length)?;
        self.pass(offset, part.len())?;
        buffer.extend_from_slice(part);
        Ok(part.len())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, failure) = self.device.world.begin(DeviceOperation::Write, self.device.number)?;
        self.must_be_writable(Errno::BADF)?;
        if offset.saturating_add(data.len() as u64) > LONGEST_FILE_BYTES {
            return Err(Errno::FBIG.into());
        }
        // A write that fails may have been done up to any byte.
        let meant = if failure.is_some() { state.random.index(data.len() + 1) } else { data.len() };
        let room_bytes = state.room_bytes(self.device.number);
        let betrayal = failure.is_none().then(|| state.betrayal(self.device.number, self.kind)).flatten();
        let file = self.in_state(&mut state)?;
        if let Some(Betrayal { goes_elsewhere, .. }) = betrayal {
            if goes_elsewhere {
                state.misdirect(self.device.number, self.file, data);
            }
            return Ok(());
        }
        let written = file.current.fitting(offset, meant, room_bytes);
        if written > 0 {
            file.change(FileChange::Write(offset, data[..written].into()));
        }
        match failure {
            Some(errno) => Err(errno.into()),
            None if written < data.len() => Err(Errno::NOSPC.into()),
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.device.world.pass_gate(self.kind);
        let (mut state, failure) = self.device.world.begin(DeviceOperation::Sync, self.device.number)?;
        let file = self.in_state(&mut state)?;
        match failure {
            // Without anything to write, no space is lacking.
            Some(Errno::NOSPC) if !file.is_dirty() => Ok(()),
            Some(errno) => {
                file.fail_sync();
                Err(errno.into())
            }
            None => {
                file.sync();
                Ok(())
            }
        }
    }

    fn drop_cache(&self) {
        let _ = self.sync();
        let mut state = self.device.world.state();
        let mut random = Random::new(state.random.any());
        if let Ok(file) = self.in_state(&mut state) {
            file.drop_doubtful_content(&mut random);
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.content()?.bytes.len() as u64)
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.device.whole(DeviceOperation::SetSize, |state, _| {
            self.must_be_writable(Errno::INVAL)?;
            if size_bytes > LONGEST_FILE_BYTES {
                return Err(Errno::FBIG.into());
            }
            self.in_state(state)?.change(FileChange::Size(size_bytes));
            Ok(())
        })
    }

    /// Does nothing: a write that is not synced may be durable anyway.
    fn start_writeback(&self, _offset: u64, _length: u64) {}
}

#[cfg(test)]
mod tests;
