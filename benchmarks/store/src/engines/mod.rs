//! The interface of an engine in this comparison, and the list of engines.
//!
//! Every step is a separate process that opens what an earlier one made. Data is durable when [`Writer::finish`],
//! [`Engine::set_modes`] and [`Engine::delete`] return. Reads return whole contents, and a missing key is an error.

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

/// A part of an object that a load delivers: all of it, or consecutive pieces, all but the last a multiple of 4,096
/// bytes.
pub struct Piece<'a> {
    pub key: &'a [u8],
    pub size: usize,
    pub start: usize,
    pub bytes: &'a [u8],
}

/// A way to store objects. `place` is the engine's own directory, empty at first.
pub trait Engine: Sync {
    /// `objects` and `total_bytes` announce the amount, for engines that reserve space.
    fn create(&self, place: &Path, objects: u64, total_bytes: u64) -> Result<Box<dyn Writer>>;

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>>;

    /// Deletes each of these; `false`, without any change, where single objects cannot be deleted.
    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool>;

    /// Gives each of these another mode; `false`, without any change, where objects have none, or it cannot be changed.
    fn set_modes(&self, _place: &Path, _keys: &[String]) -> Result<bool> {
        Ok(false)
    }

    /// Bytes of the files that hold only the index, where such files exist.
    fn index_bytes(&self, _place: &Path) -> Result<Option<u64>> {
        Ok(None)
    }
}

pub trait Writer {
    /// Keys arrive in rising order.
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()>;

    /// Everything is durable when it returns.
    fn finish(self: Box<Self>) -> Result<()>;
}

pub trait Reader: Sync {
    /// The handle with which one thread reads.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Every object, in the fastest order.
    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()>;

    /// Every key, those of a directory together.
    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Every key with what `ls -l` shows; the size is passed to `visit`. `false` where an engine stores no such
    /// attributes.
    fn list_attributes(&self, _visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        Ok(false)
    }

    /// Reads all these, in any order, with up to `depth` requests in flight; `false`, without any read, where the
    /// engine has no call for it and `depth` threads must do it.
    fn read_many(&self, _keys: &[&str], _depth: usize, _visit: &(dyn Fn(&[u8]) + Sync)) -> Result<bool> {
        Ok(false)
    }
}

pub trait Session {
    /// Passes the content of an object to `visit`.
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// The engines of this build, in table order.
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

/// The error for a missing key that must exist.
fn missing(key: &str) -> Box<dyn Error + Send + Sync> {
    format!("no object {key}").into()
}
