//! First keys and pages of the blocks of a level, for the level above: in memory, or in a file beside the table if
//! there are many.
//!
//! So a writer's memory does not grow with the table. The file is a list of varints (page, length of the key), each
//! followed by the key; it is read once, sequentially, and must be what was written: if a device returns anything else,
//! the writer fails, instead of writing a wrong table. A crash leaves the file under a temporary name, and the next
//! writer removes it.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::create_temporary;
use crate::devices::device::{Device, DeviceFile};
use crate::format::index_key::LONGEST_INDEX_KEY_BYTES;
use crate::io::varint;

/// Maximum length in memory, in bytes. Smaller in tests, which then use a file.
const MEMORY_BYTES: usize = if cfg!(test) { 512 } else { 4 << 20 };
/// Bytes per read.
const READ_BYTES: usize = 256 << 10;
/// Maximum length of an entry: two varints and a key.
const LONGEST_BYTES: usize = 2 * varint::LONGEST_BYTES + LONGEST_INDEX_KEY_BYTES;

/// A list being built. Removes its file when dropped.
pub(super) struct Heads<'a> {
    device: &'a dyn Device,
    path: String,
    file: Option<Arc<dyn DeviceFile>>,
    file_bytes: u64,
    /// Digest of what is in the file.
    digest: XxHash3_64,
    memory: Vec<u8>,
    count: u64,
    first_page: u64,
}

impl<'a> Heads<'a> {
    /// An empty list, which uses a file of this name if necessary.
    pub(super) fn new(device: &'a dyn Device, path: String) -> Heads<'a> {
        let digest = XxHash3_64::new();
        Heads { device, path, file: None, file_bytes: 0, digest, memory: Vec::new(), count: 0, first_page: 0 }
    }

    /// Number of blocks so far.
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
    /// Any error of writing.
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
            None => self.file.insert(create_temporary(self.device, &self.path)?),
        };
        file.write_at(&self.memory, self.file_bytes)?;
        self.digest.write(&self.memory);
        self.file_bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Calls `take` for all blocks in order, each with its first key and page.
    ///
    /// # Errors
    /// Any error of reading, and those of `take`.
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
            // What may be truncated is left for the next read.
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

/// Passes the entry at the beginning of `bytes` to `take`; returns its length.
fn one(bytes: &[u8], take: &mut impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<usize> {
    let mut at = 0;
    let page = varint::take(bytes, &mut at).ok_or_else(changed)?;
    let length = varint::take(bytes, &mut at).and_then(|length| usize::try_from(length).ok()).ok_or_else(changed)?;
    let end = at.checked_add(length).ok_or_else(changed)?;
    take(bytes.get(at..end).ok_or_else(changed)?, page)?;
    Ok(end)
}

fn changed() -> io::Error {
    io::Error::other("the temporary file of the table does not have what was written")
}

impl Drop for Heads<'_> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // It has no readers, and the next writer of the number replaces it.
            let _ = self.device.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::INDEX_DIRECTORY;
    use super::super::tests::device;
    use super::*;
    use crate::devices::device::Mode;

    fn key(number: u64) -> Vec<u8> {
        // A long one among short ones; entries span reads.
        let length = if number % 97 == 96 { LONGEST_INDEX_KEY_BYTES } else { number as usize % 40 };
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
