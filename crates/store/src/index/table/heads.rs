//! First keys and pages of the blocks of a level, for the level above: in memory, and where they are many in a file beside the table.
//!
//! So what a writer needs does not grow with the table. The file is a list of varints (page, length of the key) with the key behind; it is read once, from
//! its beginning to its end, and must be what was written: a device that gives something else makes the writer fail, not the table wrong. A crash leaves it
//! behind under a temporary name, and the next writer takes it away.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::devices::device::{Device, DeviceFile, Mode};
use crate::format::key::LONGEST_KEY_BYTES;
use crate::io::varint;

/// What is in memory, in bytes. Tests come to a file sooner.
const MEMORY_BYTES: usize = if cfg!(test) { 512 } else { 4 << 20 };
/// What is read at once, in bytes.
const READ_BYTES: usize = 256 << 10;
/// The longest entry: two varints and a key.
const LONGEST_BYTES: usize = 2 * varint::LONGEST_BYTES + LONGEST_KEY_BYTES;

/// A list in the making. Dropped, it leaves nothing behind.
pub(super) struct Heads<'a> {
    device: &'a dyn Device,
    path: String,
    file: Option<Arc<dyn DeviceFile>>,
    file_bytes: u64,
    /// Of what is in the file.
    digest: XxHash3_64,
    memory: Vec<u8>,
    count: u64,
    first_page: u64,
}

impl<'a> Heads<'a> {
    /// An empty list, with a file of this name if it takes one.
    pub(super) fn new(device: &'a dyn Device, path: String) -> Heads<'a> {
        let digest = XxHash3_64::new();
        Heads { device, path, file: None, file_bytes: 0, digest, memory: Vec::new(), count: 0, first_page: 0 }
    }

    /// Blocks so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The page of the first block, 0 if there is none.
    pub(super) fn first_page(&self) -> u64 {
        self.first_page
    }

    /// Appends a block.
    ///
    /// # Errors
    /// What writing fails with.
    pub(super) fn push(&mut self, key: &[u8], page: u64) -> io::Result<()> {
        if self.count == 0 {
            self.first_page = page;
        }
        varint::put(&mut self.memory, page);
        varint::put(&mut self.memory, key.len() as u64);
        self.memory.extend_from_slice(key);
        self.count += 1;
        if self.memory.len() >= MEMORY_BYTES { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(create(self.device, &self.path)?),
        };
        file.write_at(&self.memory, self.file_bytes)?;
        self.digest.write(&self.memory);
        self.file_bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// All blocks from the first to the last, each with its first key and page.
    ///
    /// # Errors
    /// What reading fails with, and `take`.
    pub(super) fn for_each(&self, mut take: impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<()> {
        let (mut bytes, mut at, mut offset) = (Vec::new(), 0, 0);
        let mut digest = XxHash3_64::new();
        let mut left = self.count;
        while let Some(file) = &self.file
            && offset < self.file_bytes
        {
            bytes.drain(..at);
            at = 0;
            let begin = bytes.len();
            let length = (self.file_bytes - offset).min(READ_BYTES as u64) as usize;
            bytes.resize(begin + length, 0);
            if file.read_at(&mut bytes[begin..], offset)? != length {
                return Err(changed());
            }
            digest.write(&bytes[begin..]);
            offset += length as u64;
            // What may be cut off is left for the next read.
            let until = if offset < self.file_bytes { bytes.len().saturating_sub(LONGEST_BYTES) } else { bytes.len() };
            while at < until {
                at += one(&bytes[at..], &mut take)?;
                left = left.checked_sub(1).ok_or_else(changed)?;
            }
        }
        if at != bytes.len() || digest.finish() != self.digest.finish() {
            return Err(changed());
        }
        let mut at = 0;
        while at < self.memory.len() {
            at += one(&self.memory[at..], &mut take)?;
            left = left.checked_sub(1).ok_or_else(changed)?;
        }
        if left == 0 { Ok(()) } else { Err(changed()) }
    }
}

/// Gives away the entry at the beginning of `bytes`; how long it is.
fn one(bytes: &[u8], take: &mut impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<usize> {
    let mut at = 0;
    let page = varint::take(bytes, &mut at).ok_or_else(changed)?;
    let length = varint::take(bytes, &mut at).and_then(|length| usize::try_from(length).ok()).ok_or_else(changed)?;
    let end = at.checked_add(length).ok_or_else(changed)?;
    take(bytes.get(at..end).ok_or_else(changed)?, page)?;
    Ok(end)
}

fn changed() -> io::Error {
    io::Error::other("what was written beside the table is not what is read")
}

fn create(device: &dyn Device, path: &str) -> io::Result<Arc<dyn DeviceFile>> {
    match device.open(path, Mode::Create) {
        // Of a writer that died.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            device.remove(path)?;
            device.open(path, Mode::Create)
        }
        result => result,
    }
}

impl Drop for Heads<'_> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nobody reads it, and the next writer of the number replaces it.
            let _ = self.device.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::INDEX_DIRECTORY;
    use super::super::tests::device;
    use super::*;

    fn key(number: u64) -> Vec<u8> {
        // A long one among short ones; entries lie across reads.
        let length = if number % 97 == 96 { LONGEST_KEY_BYTES } else { number as usize % 40 };
        let mut key = number.to_be_bytes().to_vec();
        key.resize(length.max(8), b'k');
        key
    }

    #[test]
    fn what_is_in_a_file_comes_back_in_order_and_goes() {
        let (_guard, device) = device();
        let path = format!("{INDEX_DIRECTORY}/heads.tmp");
        device.open(&path, Mode::Create).unwrap().write_at(b"of a writer that died", 0).unwrap();
        for count in [0, 1, 5, 1000] {
            let mut heads = Heads::new(&device, path.clone());
            (0..count).for_each(|number| heads.push(&key(number), 3 * number + 1).unwrap());
            assert_eq!((heads.count(), heads.first_page()), (count, u64::from(count > 0)));
            assert_eq!(heads.file.is_some(), count == 1000);
            let mut next = 0;
            heads
                .for_each(|found, page| {
                    assert_eq!((found, page), (&key(next)[..], 3 * next + 1));
                    next += 1;
                    Ok(())
                })
                .unwrap();
            assert_eq!(next, count);
            let has_file = heads.file.is_some();
            drop(heads);
            assert!(!has_file || device.open(&path, Mode::Read).is_err());
        }
    }

    #[test]
    fn a_device_that_gives_something_else_is_noticed() {
        let (_guard, device) = device();
        let path = format!("{INDEX_DIRECTORY}/heads.tmp");
        let mut heads = Heads::new(&device, path.clone());
        (0..200).for_each(|number| heads.push(&number.to_string().into_bytes(), number).unwrap());
        let file = device.open(&path, Mode::Write).unwrap();
        let mut byte = [0];
        for offset in (0..heads.file_bytes).step_by(37) {
            file.read_at(&mut byte, offset).unwrap();
            file.write_at(&[byte[0] ^ 0x10], offset).unwrap();
            assert!(heads.for_each(|_, _| Ok(())).is_err(), "byte {offset}");
            file.write_at(&byte, offset).unwrap();
        }
        heads.for_each(|_, _| Ok(())).unwrap();
        file.set_size(heads.file_bytes - 1).unwrap();
        assert!(heads.for_each(|_, _| Ok(())).is_err());
    }
}
