//! What an engine does in this comparison, and which engines there are.
//!
//! Every step is a process of its own that opens what an earlier one made. An engine is durable when [`Writer::finish`] and
//! [`Engine::delete`] return, and answers with whole contents: a missing key is an error.

mod files;
mod floor;
mod granulo;
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod squashfs;
mod tape;

use std::error::Error;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A part of an object that a load delivers: all of it, or consecutive pieces, all but the last a multiple of 4,096 bytes.
pub struct Piece<'a> {
    pub key: &'a [u8],
    pub size: usize,
    pub start: usize,
    pub bytes: &'a [u8],
}

/// A way to keep objects. `place` is an empty directory at first, the engine's own.
pub trait Engine: Sync {
    /// `objects` and `total_bytes` will come: for what wants to reserve.
    fn create(&self, place: &Path, objects: u64, total_bytes: u64) -> Result<Box<dyn Writer>>;

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>>;

    /// Deletes each of these; `false`, and nothing done, where single objects cannot be deleted.
    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool>;

    /// Bytes of the files that hold nothing but the index, where there are such files.
    fn index_bytes(&self, _place: &Path) -> Result<Option<u64>> {
        Ok(None)
    }
}

pub trait Writer {
    /// Keys come in rising order.
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()>;

    /// Everything is durable when it returns.
    fn finish(self: Box<Self>) -> Result<()>;
}

pub trait Reader: Sync {
    /// What one thread reads with.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Every object, in the order that is fastest.
    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()>;

    /// Every key, those of a directory together.
    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Every key with what `ls -l` shows, of which the size is handed out; `false` where an engine keeps no such attributes.
    fn list_attributes(&self, _visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        Ok(false)
    }

    /// Reads all these, in any order, with up to `depth` requests at the device at once; `false`, and nothing done, where
    /// the engine has no call for it and `depth` threads have to do it.
    fn read_many(&self, _keys: &[&str], _depth: usize, _visit: &(dyn Fn(&[u8]) + Sync)) -> Result<bool> {
        Ok(false)
    }
}

pub trait Session {
    /// Hands out the content of an object.
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// The engines of this build, in the order of the tables.
pub const NAMES: &[&str] = &[
    "files",
    "floor",
    "floor-checksum",
    "tar",
    "squashfs",
    "sqlite",
    "sqlite-mmap",
    "lmdb",
    "lmdb-writemap",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    "granulo",
];

pub fn find(name: &str) -> Result<Box<dyn Engine>> {
    Ok(match name {
        "files" => Box::new(files::Files),
        "floor" => Box::new(floor::Floor { checksum: false }),
        "floor-checksum" => Box::new(floor::Floor { checksum: true }),
        "tar" => Box::new(tape::Tar),
        "squashfs" => Box::new(squashfs::Squashfs),
        "sqlite" => Box::new(sqlite::Sqlite { mapped: false }),
        "sqlite-mmap" => Box::new(sqlite::Sqlite { mapped: true }),
        "lmdb" => Box::new(lmdb::Lmdb { write_map: false }),
        "lmdb-writemap" => Box::new(lmdb::Lmdb { write_map: true }),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::RocksDb),
        "granulo" => Box::new(granulo::Granulo::default()),
        "granulo-tree" => Box::new(granulo::Granulo { tree: true, ..Default::default() }),
        "granulo-batches" => Box::new(granulo::Granulo { batches: true, ..Default::default() }),
        _ => return Err(format!("no engine {name} in this build").into()),
    })
}

/// What an engine says of a key that must be there.
fn missing(key: &str) -> Box<dyn Error + Send + Sync> {
    format!("no object {key}").into()
}
