//! A cache on disk: blocks of objects that have an index, so that another process need not fetch them again.
//!
//! `DIRECTORY/STORE/OBJECT.BLOCK` has the bytes of a block, and a checksum of these and of what they are. Objects never
//! change, and no two stores have one name, so a block is never out of date.
//!
//! - **Nothing is trusted without its checksum.** A block that is damaged, incomplete, of another name or not there is
//!   fetched again.
//! - **Several processes share it**, without locks: a block comes by a rename, as a whole. Two who write the same one
//!   write the same bytes. What one removes, another fetches again.
//! - **It is bounded**: all files in the directory are counted when a process first adds one, and again whenever it has
//!   added a sixteenth of the bound. Those used longest ago go, by their modification times, which a use renews.
//! - **It may fail**: a full disk, a directory that cannot be written. Then there is nothing in it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use twox_hash::XxHash3_64;

use crate::devices::published::ObjectName;
use crate::format::record::checksum;
use crate::locks::lock;

/// Length of a block, unless the object ends before.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;
const CHECKSUM_BYTES: usize = 8;
/// The part of the bound that may be added before all is counted again, and that is freed when it is exceeded.
const SHARE: u64 = 16;

/// A cache of one store's objects.
#[derive(Debug)]
pub(super) struct DiskCache {
    /// Of all stores.
    directory: PathBuf,
    /// Of this one.
    own: PathBuf,
    most_bytes: u64,
    /// What was added since all was counted; `None`: it was not yet.
    added_bytes: Mutex<Option<u64>>,
}

/// What distinguishes the checksum of a block from those of others.
fn seed_of(object: ObjectName, block: u64) -> u64 {
    checksum(format!("{}.{block:x}", object.path()).as_bytes())
}

impl DiskCache {
    /// A cache in a directory, which need not exist.
    pub(super) fn new(directory: &Path, store: &[u8; 16], most_bytes: u64) -> DiskCache {
        // A server in the background changes its directory.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let own = directory.join(format!("{:032x}", u128::from_be_bytes(*store)));
        DiskCache { directory, own, most_bytes, added_bytes: Mutex::default() }
    }

    fn path(&self, object: ObjectName, block: u64) -> PathBuf {
        let path = object.path();
        let name = path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name);
        self.own.join(format!("{name}.{block:x}"))
    }

    /// Whether a block seems to be there.
    pub(super) fn has(&self, object: ObjectName, block: u64) -> bool {
        fs::symlink_metadata(self.path(object, block)).is_ok()
    }

    /// Appends a block of so many bytes; returns whether it is there. If not, nothing is appended.
    pub(super) fn read(&self, object: ObjectName, block: u64, length: usize, onto: &mut Vec<u8>) -> bool {
        let before = onto.len();
        let is_sound = self.read_block(object, block, length, onto).unwrap_or(false);
        onto.truncate(if is_sound { before + length } else { before });
        is_sound
    }

    fn read_block(&self, object: ObjectName, block: u64, length: usize, onto: &mut Vec<u8>) -> io::Result<bool> {
        let before = onto.len();
        let mut file = File::open(self.path(object, block))?;
        onto.reserve(length + CHECKSUM_BYTES);
        // One more, to see that it ends there.
        (&mut file).take((length + CHECKSUM_BYTES) as u64 + 1).read_to_end(onto)?;
        let is_sound = match onto.get(before..).and_then(|read| read.split_at_checked(length)) {
            Some((bytes, sum)) => sum == XxHash3_64::oneshot_with_seed(seed_of(object, block), bytes).to_le_bytes(),
            None => false,
        };
        if is_sound {
            // It is used, which only matters for what goes first.
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(is_sound)
    }

    /// Adds a block, if that is possible.
    pub(super) fn write(&self, object: ObjectName, block: u64, bytes: &[u8]) {
        if self.write_block(object, block, bytes).is_ok() {
            self.count((bytes.len() + CHECKSUM_BYTES) as u64);
        }
    }

    fn write_block(&self, object: ObjectName, block: u64, bytes: &[u8]) -> io::Result<()> {
        static TEMPORARY: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.own)?;
        let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
        let temporary = self.own.join(format!("{}-{number}.tmp", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let sum = XxHash3_64::oneshot_with_seed(seed_of(object, block), bytes);
        let written = file
            .write_all(bytes)
            .and_then(|()| file.write_all(&sum.to_le_bytes()))
            .and_then(|()| fs::rename(&temporary, self.path(object, block)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes a block, if it is there.
    pub(super) fn forget(&self, object: ObjectName, block: u64) {
        let _ = fs::remove_file(self.path(object, block));
    }

    /// Bytes were added.
    fn count(&self, bytes: u64) {
        let mut added = lock(&self.added_bytes);
        match &mut *added {
            Some(added) if *added + bytes <= self.most_bytes / SHARE => *added += bytes,
            _ => {
                *added = Some(0);
                self.remove_oldest();
            }
        }
    }

    /// Removes those used longest ago, if there are too many bytes.
    fn remove_oldest(&self) {
        let mut files = files_below(&self.directory);
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if bytes <= self.most_bytes {
            return;
        }
        files.sort();
        for (_, length, path) in files {
            if bytes <= self.most_bytes - self.most_bytes / SHARE {
                return;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(path);
            bytes -= length;
        }
    }
}

/// The files of all stores, with the time of their last use and their size.
fn files_below(directory: &Path) -> Vec<(SystemTime, u64, PathBuf)> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let of_store = |store: fs::DirEntry| {
        // No link, and nothing else that somebody has put beside them.
        let is_store = store.file_type().is_ok_and(|kind| kind.is_dir())
            && store
                .file_name()
                .to_str()
                .is_some_and(|name| name.len() == 32 && u128::from_str_radix(name, 16).is_ok());
        is_store.then(|| store.path())
    };
    let file = |file: fs::DirEntry| {
        let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((found.modified().ok()?, found.len(), file.path()))
    };
    entries(directory).filter_map(of_store).flat_map(|store| entries(&store)).filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    const STORE: [u8; 16] = [7; 16];

    fn object(number: u64) -> ObjectName {
        ObjectName::of(&format!("fast/{number:016x}-{:016x}-{:08x}", 7, 9)).unwrap()
    }

    fn read(cache: &DiskCache, number: u64, block: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = b"before".to_vec();
        let is_there = cache.read(object(number), block, length, &mut bytes);
        assert_eq!(&bytes[..6], b"before");
        assert_eq!(bytes.len(), if is_there { 6 + length } else { 6 });
        is_there.then(|| bytes[6..].to_vec())
    }

    #[test]
    fn a_block_is_what_was_written_or_not_there() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("cache");
        let cache = DiskCache::new(&directory, &STORE, 1 << 30);
        assert_eq!(read(&cache, 1, 0, 4), None);
        cache.write(object(1), 0, b"four");
        cache.write(object(1), 1, b"more bytes");
        // Of another process, and of another store.
        let same = DiskCache::new(&directory, &STORE, 1 << 30);
        assert_eq!(read(&same, 1, 0, 4).unwrap(), b"four");
        assert_eq!(read(&same, 1, 1, 10).unwrap(), b"more bytes");
        assert_eq!(read(&DiskCache::new(&directory, &[8; 16], 1 << 30), 1, 0, 4), None);
        assert_eq!((read(&same, 1, 0, 3), read(&same, 1, 0, 5), read(&same, 1, 2, 4)), (None, None, None));
        assert!(same.has(object(1), 1) && !same.has(object(1), 2));
        let path = cache.path(object(1), 0);
        let whole = fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o077, 0, "nobody else reads it");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
        // Each bit of it, and each length, and each other name.
        for at in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(&same, 1, 0, 4), None, "bit {at}");
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&same, 1, 0, 4), None);
        }
        fs::write(cache.path(object(1), 3), &whole).unwrap();
        fs::write(cache.path(object(2), 0), &whole).unwrap();
        assert_eq!((read(&same, 1, 3, 4), read(&same, 2, 0, 4)), (None, None), "it is another block's");
        cache.write(object(1), 0, b"four");
        assert_eq!(read(&same, 1, 0, 4).unwrap(), b"four");
        same.forget(object(1), 0);
        assert_eq!(read(&cache, 1, 0, 4), None);
        let left: Vec<_> = fs::read_dir(&cache.own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().ends_with(".tmp")), "{left:?}");
    }

    #[test]
    fn those_used_longest_ago_go_whichever_store_they_are_of() {
        let place = tempfile::tempdir().unwrap();
        let most_bytes = 16 * 1000;
        let (cache, other) =
            (DiskCache::new(place.path(), &STORE, most_bytes), DiskCache::new(place.path(), &[8; 16], most_bytes));
        let bystander = place.path().join("notes");
        fs::write(&bystander, vec![0; 20_000]).unwrap();
        let block = vec![1; 1000 - CHECKSUM_BYTES];
        let used = |cache: &DiskCache, number: u64, seconds: u64| {
            let file = File::options().write(true).open(cache.path(object(number), 0)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        for number in 0..8 {
            cache.write(object(number), 0, &block);
            other.write(object(number), 0, &block);
            used(&cache, number, 100 + number);
            used(&other, number, 200 + number);
        }
        let count = |cache: &DiskCache| (0..8).filter(|number| cache.has(object(*number), 0)).count();
        assert_eq!((count(&cache), count(&other)), (8, 8), "as many as there may be");
        // One of them is used, and is no longer the oldest.
        assert!(read(&cache, 0, 0, block.len()).is_some());
        cache.write(object(8), 0, &block);
        assert!(cache.has(object(0), 0) && !cache.has(object(1), 0) && !cache.has(object(2), 0));
        assert!(cache.has(object(3), 0) && cache.has(object(8), 0) && count(&other) == 8 && bystander.exists());
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_empty() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "no directory").unwrap();
        let cache = DiskCache::new(&file, &STORE, 1 << 30);
        cache.write(object(1), 0, b"four");
        assert_eq!(read(&cache, 1, 0, 4), None);
        assert_eq!(fs::read(&file).unwrap(), b"no directory");
    }
}
