//! (Skeleton of the interface; bodies follow.)
use super::*;
use crate::error::Result;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// When a batch is durable and visible to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Each object when its call returns.
    Each,
    /// All of the batch when `commit` returns.
    Batch,
    /// At the next [`Store::sync`].
    None,
}

/// A store that is open. Clones are the same store; may be used by many threads.
#[derive(Debug, Clone)]
pub struct Store(Arc<()>);

/// What is known of an object. Links are followed: this is of the file, not of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Kind, size, place of the record.
    pub entry: Entry,
    /// All attributes, extended ones and holes with them.
    pub attributes: Attributes,
    /// Names that the file has.
    pub names: u64,
    /// Number of the shared object, if it has more than one name or once had.
    pub shared: Option<u64>,
    /// Bytes taken on all devices: records and stripe units with redundancy, without the index.
    pub allocated_bytes: u64,
}

/// Memory that reads go to; use it again to save allocations.
#[derive(Debug, Default)]
pub struct Buffer {
    pub(crate) record: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

/// An object that was read and verified.
#[derive(Debug)]
pub struct Object<'b> {
    /// Its key; of a link the name that was asked for.
    pub key: Key,
    /// What the index has of it (links followed).
    pub entry: Entry,
    /// Its attributes.
    pub attributes: Attributes,
    /// The content: of a file all bytes, holes filled with zeroes; of a symlink the target; of a special file 4 bytes major, 4 bytes minor.
    pub content: &'b [u8],
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The whole key.
    pub key: Key,
    /// Links are followed for size, mode, owner and time.
    pub entry: Entry,
    /// Number of the shared object if the name is one of several.
    pub shared: Option<u64>,
}

/// Records that go to the log together. See [`Store::batch`]. Dropped without [`commit`](Batch::commit), nothing of the piece in hand is kept.
#[derive(Debug)]
pub struct Batch<'s> {
    store: &'s Store,
}

impl Store {
    /// Makes a store. The home and its devices must be empty or not exist.
    pub fn create(home: &Path, plan: &Plan) -> Result<Store> {
        unimplemented!()
    }
    /// Opens for reading and writing; recovers what a crash left. `ErrorKind::Busy` if another process writes.
    pub fn open(home: &Path) -> Result<Store> {
        unimplemented!()
    }
    /// Opens for reading, beside a writer or without one.
    pub fn open_read_only(home: &Path) -> Result<Store> {
        unimplemented!()
    }
    /// The geometry.
    pub fn geometry(&self) -> Arc<Geometry> {
        unimplemented!()
    }
    /// A batch. Up to 8 MiB of records are atomic; a larger batch is committed in pieces of that size. Several batches may be filled at once by several threads.
    pub fn batch(&self, durability: Durability) -> Batch<'_> {
        unimplemented!()
    }
    /// Puts a file, durable on return. Directories above it are made if they are missing.
    pub fn put(&self, key: &Key, attributes: &Attributes, content: &[u8]) -> Result<()> {
        unimplemented!()
    }
    /// Removes a file, a link, or an empty directory, durable on return; gives whether it was there.
    pub fn remove(&self, key: &Key) -> Result<bool> {
        unimplemented!()
    }
    /// Removes an object and, of a directory, all below it; gives whether it was there.
    pub fn remove_tree(&self, key: &Key) -> Result<bool> {
        unimplemented!()
    }
    /// Makes everything durable that was committed, and visible to other processes.
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }
    /// What the index has for a key, links followed; no record is read.
    pub fn entry(&self, key: &Key) -> Result<Option<Listed>> {
        unimplemented!()
    }
    /// All that is known of a key; reads its record.
    pub fn stat(&self, key: &Key) -> Result<Option<Status>> {
        unimplemented!()
    }
    /// The content of an object.
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
    /// Reads an object, verified, into `buffer`.
    pub fn read<'b>(&self, key: &Key, buffer: &'b mut Buffer) -> Result<Option<Object<'b>>> {
        unimplemented!()
    }
    /// Appends bytes of the content to `onto`, as many as there are of the range; gives how many. Memory is bounded by the range.
    pub fn read_range(&self, key: &Key, range: Range<u64>, onto: &mut Vec<u8>) -> Result<Option<u64>> {
        unimplemented!()
    }
    /// The entries of a directory, by name.
    pub fn list(&self, directory: &Key) -> Result<Walk> {
        unimplemented!()
    }
    /// An object and all below it, in order of keys.
    pub fn walk(&self, top: &Key) -> Result<Walk> {
        unimplemented!()
    }
}

/// Entries in order of keys, of one consistent state.
#[derive(Debug)]
pub struct Walk {}

impl Iterator for Walk {
    type Item = Result<Listed>;
    fn next(&mut self) -> Option<Result<Listed>> {
        unimplemented!()
    }
}

impl Batch<'_> {
    /// Puts a file with this content.
    pub fn put(&mut self, key: &Key, attributes: &Attributes, content: &[u8]) -> Result<()> {
        unimplemented!()
    }
    /// Puts a file from a stream. With `attributes.holes`, the stream is the data runs one after the other. `size` is a hint. Gives the bytes read.
    pub fn put_from(
        &mut self,
        key: &Key,
        attributes: &Attributes,
        stream: &mut dyn Read,
        size: Option<u64>,
    ) -> Result<u64> {
        unimplemented!()
    }
    /// Puts a directory, or gives one other attributes.
    pub fn directory(&mut self, key: &Key, attributes: &Attributes) -> Result<()> {
        unimplemented!()
    }
    /// Puts a symlink.
    pub fn symlink(&mut self, key: &Key, attributes: &Attributes, target: &[u8]) -> Result<()> {
        unimplemented!()
    }
    /// Puts a fifo, socket or device; the mode says which.
    pub fn special(&mut self, key: &Key, attributes: &Attributes, major: u32, minor: u32) -> Result<()> {
        unimplemented!()
    }
    /// Puts a file that is to have several names; gives its number for [`link`](Batch::link) in this batch or a later one before the last name goes.
    pub fn shared(&mut self, attributes: &Attributes, stream: &mut dyn Read, size: Option<u64>) -> Result<u64> {
        unimplemented!()
    }
    /// Gives a shared file a name.
    pub fn link(&mut self, key: &Key, shared: u64) -> Result<()> {
        unimplemented!()
    }
    /// Removes a file, a link or an empty directory; gives whether it was there.
    pub fn remove(&mut self, key: &Key) -> Result<bool> {
        unimplemented!()
    }
    /// Removes an object and all below it; gives whether it was there.
    pub fn remove_tree(&mut self, key: &Key) -> Result<bool> {
        unimplemented!()
    }
    /// Ends the batch.
    pub fn commit(self) -> Result<()> {
        unimplemented!()
    }
}
