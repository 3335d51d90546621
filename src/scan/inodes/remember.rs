//! Reuses unchanged directories: a file beside a survey keeps their names for the next scan.
//!
//! [`Remembering`] wraps another source. The names of a directory whose inode is the same as when they were kept (times
//! of change of inode and content, size, generation and version) come from the file; any other directory is read, and
//! its names are kept. Both report the same names (but for "." and "..", which a scan ignores), so its result does not
//! depend on the file. A directory that changed just before it was read is not kept, since it may change again within
//! the resolution of its time; nor is one in which anything but a name was found ([`Listed`]: damage, a mount point, a
//! name that cannot be looked up).
//!
//! The file has a header, the listings, concatenated, and an index by inode. Index and listings have checksums; a file
//! that is damaged, or belongs to another file system, is ignored.

use std::fs::File;
use std::hash::Hasher;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use twox_hash::XxHash3_64;

use super::fields::{LittleEndian, Record as _};
use super::medium::{Device, Medium, Window};
use super::{Found, InodeSource, Listed, Slot};
use crate::error::{Error, Result};
use crate::io::{AtomicFile, varint};
use crate::locks::{lock, unpoisoned};

const MAGIC: &[u8; 24] = b"granulo directories v1 \n";
/// Magic, identity of the file system, offset and number of entries of the index, its checksum, and a checksum of all
/// that.
const HEADER_BYTES: usize = MAGIC.len() + WORDS_BYTES;
const ENTRY_BYTES: usize = WORDS_BYTES;
const WORDS_BYTES: usize = 8 * 5;
/// More than a file system can have: a larger index is damaged.
const MOST_DIRECTORIES: u64 = u32::MAX as u64;
/// Bytes of listings per write.
const BLOCK_BYTES: usize = 1 << 20;
/// File systems may record times in whole seconds, and lag behind the clock of programs.
const SETTLED_SECONDS: i64 = 2;

/// Location of a directory's names, and its state when they were read.
#[derive(Debug, Clone, Copy)]
struct IndexRow {
    inode: u64,
    version: u64,
    offset: u64,
    length: u64,
    checksum: u64,
}

impl IndexRow {
    fn words(self) -> [u64; 5] {
        [self.inode, self.version, self.offset, self.length, self.checksum]
    }
}

fn words(bytes: &[u8; WORDS_BYTES]) -> [u64; 5] {
    [bytes.u64::<0>(), bytes.u64::<8>(), bytes.u64::<16>(), bytes.u64::<24>(), bytes.u64::<32>()]
}

/// The version of a directory: a hash of the parts of its inode that differ after every change. Parts that the inode is
/// too short for count as empty.
pub(super) fn version_of(seed: u64, inode: &[u8], parts: impl IntoIterator<Item = Range<usize>>) -> u64 {
    let mut hash = XxHash3_64::with_seed(seed);
    parts.into_iter().for_each(|part| hash.write(inode.get(part).unwrap_or_default()));
    hash.finish()
}

/// Names from an earlier scan.
#[derive(Debug)]
pub struct RememberedNames {
    file: Device,
    /// By inode.
    index: Vec<IndexRow>,
}

impl RememberedNames {
    /// Opens the file kept for the file system of this identity.
    ///
    /// # Errors
    /// Why it is unusable, in words: the scan then reads every directory.
    pub fn open(path: &Path, identity: u64) -> std::result::Result<RememberedNames, String> {
        let file = Device::open(path).map_err(|error| error.to_string())?;
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(|_| "it is too short".to_owned())?;
        let [kept_identity, start, count, index_checksum, checksum] =
            words(header.field::<{ MAGIC.len() }, WORDS_BYTES>());
        if !header.starts_with(MAGIC) {
            return Err("it is not a file of names, or has another version".to_owned());
        }
        if checksum != XxHash3_64::oneshot(&header[..HEADER_BYTES - 8]) {
            return Err("it is damaged".to_owned());
        }
        if kept_identity != identity {
            return Err("it belongs to another file system, or was written before this one was checked".to_owned());
        }
        let length = count.saturating_mul(ENTRY_BYTES as u64);
        if count > MOST_DIRECTORIES || start.saturating_add(length) != file.length_bytes() {
            return Err("it is damaged".to_owned());
        }
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, start).map_err(|error| error.to_string())?;
        if index_checksum != XxHash3_64::oneshot(&bytes) {
            return Err("it is damaged".to_owned());
        }
        let row = |bytes: &[u8; ENTRY_BYTES]| {
            let [inode, version, offset, length, checksum] = words(bytes);
            IndexRow { inode, version, offset, length, checksum }
        };
        Ok(RememberedNames { file, index: bytes.as_chunks().0.iter().map(row).collect() })
    }

    fn find(&self, inode: u64) -> Option<&IndexRow> {
        let at = self.index.binary_search_by_key(&inode, |kept| kept.inode).ok()?;
        self.index.get(at)
    }
}

/// Buffers that a thread reuses.
#[derive(Debug, Default)]
pub struct Buffers<B> {
    inner: B,
    window: Window,
    listing: Vec<u8>,
}

/// What is kept for the next scan.
struct Keeping {
    target: AtomicFile,
    file: File,
    /// Bytes that are not written yet.
    block: Vec<u8>,
    /// Bytes written, including the header.
    written: u64,
    index: Vec<IndexRow>,
    failed: Option<std::io::Error>,
}

/// A source that reads only directories that changed.
pub struct Remembering<'s, S> {
    source: &'s S,
    identity: u64,
    names: Option<RememberedNames>,
    keeping: Mutex<Keeping>,
    /// Directories that changed since are not kept.
    settled_before: i64,
    passes: AtomicUsize,
    reused: AtomicU64,
    read: AtomicU64,
}

impl<'s, S: InodeSource> Remembering<'s, S> {
    /// A source that answers from `names` where a directory is unchanged, else from `source`. Names for the next scan
    /// go to a temporary file, which [`complete`](Self::complete) puts at `target`. `identity` is that of `source`,
    /// with which `names` was opened; `now`, in seconds since 1970, is before the first inode is read.
    ///
    /// # Errors
    /// If `target` is not writable; it is unchanged.
    pub fn new(source: &'s S, identity: u64, names: Option<RememberedNames>, target: &Path, now: i64) -> Result<Self> {
        let target_file = AtomicFile::create(target)?;
        let file = target_file.file().map_err(|error| Error::io("store the names in", target, error))?;
        let keeping = Keeping {
            target: target_file,
            file,
            block: Vec::with_capacity(BLOCK_BYTES + (64 << 10)),
            written: HEADER_BYTES as u64,
            index: Vec::new(),
            failed: None,
        };
        Ok(Remembering {
            source,
            identity,
            names,
            keeping: Mutex::new(keeping),
            settled_before: now - SETTLED_SECONDS,
            passes: AtomicUsize::new(0),
            reused: AtomicU64::new(0),
            read: AtomicU64::new(0),
        })
    }

    /// Numbers of directories that came from the file, and that were read.
    pub fn counts(&self) -> [u64; 2] {
        [self.reused.load(Relaxed), self.read.load(Relaxed)]
    }

    /// Completes and publishes the file.
    ///
    /// # Errors
    /// Errors from writing; the previous file then remains.
    pub fn complete(self, path: &Path) -> Result<()> {
        let mut keeping = unpoisoned(self.keeping.into_inner());
        let fail = |error| Error::io("store the names in", path, error);
        keeping.flush();
        if let Some(error) = keeping.failed.take() {
            return Err(fail(error));
        }
        let mut index = std::mem::take(&mut keeping.index);
        index.sort_unstable_by_key(|kept| kept.inode);
        let bytes: Vec<u8> = index.iter().flat_map(|kept| kept.words()).flat_map(u64::to_le_bytes).collect();
        let words = [self.identity, keeping.written, index.len() as u64, XxHash3_64::oneshot(&bytes)];
        let mut header = MAGIC.to_vec();
        header.extend(words.into_iter().flat_map(u64::to_le_bytes));
        header.extend(XxHash3_64::oneshot(&header).to_le_bytes());
        keeping.file.write_all_at(&bytes, keeping.written).map_err(fail)?;
        keeping.file.write_all_at(&header, 0).map_err(fail)?;
        drop(keeping.file);
        // No sync: the file can be recreated, and checksums detect one that a crash left incomplete.
        keeping.target.publish()
    }

    /// Directories may be read in several passes; they are kept and counted in the first.
    fn is_first_pass(&self) -> bool {
        self.passes.load(Relaxed) <= 1
    }

    fn keep(&self, inode: u64, version: u64, listing: &[u8]) {
        let checksum = XxHash3_64::oneshot(listing);
        let mut keeping = lock(&self.keeping);
        let offset = keeping.written + keeping.block.len() as u64;
        keeping.index.push(IndexRow { inode, version, offset, length: listing.len() as u64, checksum });
        keeping.block.extend_from_slice(listing);
        if keeping.block.len() >= BLOCK_BYTES {
            keeping.flush();
        }
    }

    /// Reports a directory from the file; `false` if it is not there, or has changed.
    fn recall(
        &self,
        inode: u64,
        version: u64,
        buffers: &mut Buffers<S::Buffers>,
        listed: &mut dyn FnMut(Listed<'_>),
    ) -> bool {
        let Some(names) = &self.names else { return false };
        let Some(kept) = names.find(inode).filter(|kept| kept.version == version) else { return false };
        let fits = kept.offset.checked_add(kept.length).is_some_and(|end| end <= names.file.length_bytes());
        if !fits {
            return false;
        }
        let Ok(listing) = buffers.window.read(&names.file, kept.offset, kept.length as usize) else { return false };
        if XxHash3_64::oneshot(listing) != kept.checksum {
            return false;
        }
        if self.is_first_pass() {
            self.keep(inode, version, listing);
        }
        report_names(listing, listed);
        true
    }
}

impl Keeping {
    fn flush(&mut self) {
        if let Err(error) = self.file.write_all_at(&self.block, self.written) {
            self.failed.get_or_insert(error);
        }
        self.written += self.block.len() as u64;
        self.block.clear();
    }
}

/// Adds a name to a listing; `last` is the inode of the previous name, or of the directory.
fn put(listing: &mut Vec<u8>, name: &[u8], inode: u64, last: &mut u64) {
    varint::put(listing, varint::zigzag(inode.wrapping_sub(*last) as i64));
    varint::put(listing, name.len() as u64);
    listing.extend_from_slice(name);
    *last = inode;
}

/// Reports the names of a listing, which begins with the inode of its directory.
fn report_names(listing: &[u8], listed: &mut dyn FnMut(Listed<'_>)) {
    let mut at = 0;
    let Some(mut last) = varint::take(listing, &mut at) else { return };
    while at < listing.len() {
        let Some(step) = varint::take(listing, &mut at) else { return };
        let Some(length) = varint::take(listing, &mut at) else { return };
        let Some(name) = varint::take_bytes(listing, &mut at, length) else { return };
        last = last.wrapping_add(varint::unzigzag(step) as u64);
        listed(Listed::Name(name, last));
    }
}

impl<S: InodeSource> InodeSource for Remembering<'_, S> {
    type Listing = S::Listing;
    type Buffers = Buffers<S::Buffers>;

    fn root(&self) -> u64 {
        self.source.root()
    }

    fn parts(&self) -> usize {
        self.source.parts()
    }

    fn slots(&self, part: usize) -> usize {
        self.source.slots(part)
    }

    fn slot(&self, inode: u64) -> Option<Slot> {
        self.source.slot(inode)
    }

    fn read_part(&self, part: usize, buffers: &mut Self::Buffers, found: &mut impl FnMut(Found<Self::Listing>)) {
        self.source.read_part(part, &mut buffers.inner, found);
    }

    fn position(&self, listing: &Self::Listing) -> u64 {
        self.source.position(listing)
    }

    fn inodes_in_use(&self) -> Option<u64> {
        self.source.inodes_in_use()
    }

    fn extent(&self, listing: &Self::Listing) -> Option<(u64, u64)> {
        // Directories that come from the file will not be read.
        self.source.extent(listing).filter(|_| self.names.is_none())
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.source.will_need(offset, length);
    }

    fn identity(&self) -> Option<u64> {
        self.source.identity()
    }

    fn version(&self, listing: &Self::Listing) -> Option<(u64, i64)> {
        self.source.version(listing)
    }

    fn list(
        &self,
        inode: u64,
        listing: &Self::Listing,
        buffers: &mut Self::Buffers,
        listed: &mut dyn FnMut(Listed<'_>),
    ) {
        let version = self.source.version(listing);
        let first = self.is_first_pass();
        if let Some((version, _)) = version
            && self.recall(inode, version, buffers, listed)
        {
            self.reused.fetch_add(u64::from(first), Relaxed);
            return;
        }
        self.read.fetch_add(u64::from(first), Relaxed);
        let Buffers { inner, listing: kept, .. } = buffers;
        kept.clear();
        varint::put(kept, inode);
        let (mut last, mut only_names) = (inode, true);
        self.source.list(inode, listing, inner, &mut |found| {
            match &found {
                Listed::Name(b"." | b"..", _) => {}
                Listed::Name(name, inode) => put(kept, name, *inode, &mut last),
                _ => only_names = false,
            }
            listed(found);
        });
        if let Some((version, changed)) = version
            && first
            && only_names
            && changed < self.settled_before
        {
            self.keep(inode, version, kept);
        }
    }

    fn begin_listing(&self) {
        self.passes.fetch_add(1, Relaxed);
        self.source.begin_listing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_come_back() {
        let names: [(&[u8], u64); 4] = [(b"a", 12), (b"", 7), (&[0xff; 255], u64::MAX), (b"x/y", 0)];
        let (mut listing, mut last) = (Vec::new(), 100);
        varint::put(&mut listing, last);
        names.iter().for_each(|(name, inode)| put(&mut listing, name, *inode, &mut last));
        for length in 0..=listing.len() {
            let mut told = Vec::new();
            report_names(&listing[..length], &mut |found| match found {
                Listed::Name(name, inode) => told.push((name.to_vec(), inode)),
                _ => panic!(),
            });
            assert!(told.len() <= names.len());
            assert!(told.iter().zip(&names).all(|((name, inode), known)| (&name[..], *inode) == *known));
            assert!(length < listing.len() || told.len() == names.len());
        }
    }
}
