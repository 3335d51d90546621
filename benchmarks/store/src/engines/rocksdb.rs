//! RocksDB with contents in blob files, through its C interface: that has been stable for years, whereas the crate's
//! generated bindings need their own release, which takes half an hour to compile.
//!
//! No compression, no log, one flush at the end; a block cache of 32 MiB; checksums verified, its default. An iterator
//! reads the content of every key it passes, so that a listing is a load; later releases can be told not to. Deletion
//! is one synced batch of tombstones through the log; the blob files are removed by a later compaction.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const CACHE_BYTES: usize = 32 << 20;
const READ_AHEAD_BYTES: usize = 2 << 20;
/// Smaller contents stay with their keys.
const BLOB_BYTES: u64 = 1024;
const BLOB_FILE_BYTES: u64 = 256 << 20;

type Handle = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_enable_blob_files(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_min_blob_size(options: Handle, bytes: u64);
    fn rocksdb_options_set_blob_file_size(options: Handle, bytes: u64);
    fn rocksdb_options_set_max_open_files(options: Handle, files: c_int);
    fn rocksdb_options_set_bytes_per_sync(options: Handle, bytes: u64);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(table: Handle);
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);
    fn rocksdb_open(options: Handle, name: *const c_char, error: *mut *mut c_char) -> Handle;
    fn rocksdb_open_for_read_only(
        options: Handle,
        name: *const c_char,
        refuse_log: c_uchar,
        error: *mut *mut c_char,
    ) -> Handle;
    fn rocksdb_close(database: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_disable_WAL(options: Handle, yes: c_int);
    fn rocksdb_writeoptions_set_sync(options: Handle, yes: c_uchar);
    fn rocksdb_put(
        database: Handle,
        options: Handle,
        key: *const u8,
        key_length: usize,
        value: *const u8,
        value_length: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_flushoptions_create() -> Handle;
    fn rocksdb_flushoptions_destroy(options: Handle);
    fn rocksdb_flush(database: Handle, options: Handle, error: *mut *mut c_char);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_delete(batch: Handle, key: *const u8, key_length: usize);
    fn rocksdb_write(database: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_readoptions_set_readahead_size(options: Handle, bytes: usize);
    fn rocksdb_readoptions_set_fill_cache(options: Handle, yes: c_uchar);
    fn rocksdb_get_pinned(
        database: Handle,
        options: Handle,
        key: *const u8,
        key_length: usize,
        error: *mut *mut c_char,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, length: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(database: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek_to_first(iterator: Handle);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, length: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Handle, length: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Handle, error: *mut *mut c_char);
    fn rocksdb_free(memory: *mut c_void);
}

/// An object of the library, destroyed with its own function.
struct Owned {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle came from the matching constructor, is not null, and is destroyed once.
        unsafe { (self.destroy)(self.handle) }
    }
}

/// Calls with a slot for an error message, and converts the message to an error.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut message: *mut c_char = ptr::null_mut();
    let value = call(&mut message);
    if message.is_null() {
        return Ok(value);
    }
    // SAFETY: the library left a string there, and requires freeing it.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        rocksdb_free(message.cast());
        text
    };
    Err(text.into())
}

/// The bytes that the library points at.
///
/// # Safety
/// `length` bytes at `bytes` live for `'a`; `bytes` may be null if there are none.
unsafe fn slice<'a>(bytes: *const u8, length: usize) -> &'a [u8] {
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, length) } }
}

fn open(place: &Path, write: bool) -> Result<Owned> {
    let name = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: every handle is used after its constructor and before its destructor; the database keeps copies of its
    // options.
    let database = unsafe {
        let options = Owned { handle: rocksdb_options_create(), destroy: rocksdb_options_destroy };
        let table =
            Owned { handle: rocksdb_block_based_options_create(), destroy: rocksdb_block_based_options_destroy };
        let cache = Owned { handle: rocksdb_cache_create_lru(CACHE_BYTES), destroy: rocksdb_cache_destroy };
        rocksdb_block_based_options_set_block_cache(table.handle, cache.handle);
        rocksdb_options_set_block_based_table_factory(options.handle, table.handle);
        rocksdb_options_set_create_if_missing(options.handle, write.into());
        rocksdb_options_set_compression(options.handle, 0);
        rocksdb_options_set_enable_blob_files(options.handle, 1);
        rocksdb_options_set_min_blob_size(options.handle, BLOB_BYTES);
        rocksdb_options_set_blob_file_size(options.handle, BLOB_FILE_BYTES);
        rocksdb_options_set_bytes_per_sync(options.handle, 1 << 20);
        // Without a limit, a database of one level is opened in a mode that finds nothing in blob files (7.8).
        rocksdb_options_set_max_open_files(options.handle, 4096);
        checked(|error| match write {
            true => rocksdb_open(options.handle, name.as_ptr(), error),
            false => rocksdb_open_for_read_only(options.handle, name.as_ptr(), 0, error),
        })?
    };
    Ok(Owned { handle: database, destroy: rocksdb_close })
}

fn write_options(log: bool) -> Owned {
    // SAFETY: as in `open`.
    unsafe {
        let options = Owned { handle: rocksdb_writeoptions_create(), destroy: rocksdb_writeoptions_destroy };
        rocksdb_writeoptions_disable_WAL(options.handle, (!log).into());
        rocksdb_writeoptions_set_sync(options.handle, log.into());
        options
    }
}

pub struct RocksDb;

impl Engine for RocksDb {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Putting { options: write_options(false), database: open(place, true)? }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        // SAFETY: a constructor without arguments.
        let options = Owned { handle: unsafe { rocksdb_readoptions_create() }, destroy: rocksdb_readoptions_destroy };
        Ok(Box::new(Opened { options, database: open(place, false)? }))
    }

    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let database = open(place, true)?;
        let options = write_options(true);
        // SAFETY: as in `open`; a key is copied by the call.
        unsafe {
            let batch = Owned { handle: rocksdb_writebatch_create(), destroy: rocksdb_writebatch_destroy };
            for key in keys {
                rocksdb_writebatch_delete(batch.handle, key.as_ptr(), key.len());
            }
            checked(|error| rocksdb_write(database.handle, options.handle, batch.handle, error))?;
        }
        Ok(true)
    }
}

/// Field order matters: the database is dropped last.
struct Putting {
    options: Owned,
    database: Owned,
}

impl Writer for Putting {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        // SAFETY: lengths belong to their pointers, and the call copies.
        checked(|error| unsafe {
            let (key_at, content_at) = (key.as_ptr(), content.as_ptr());
            rocksdb_put(self.database.handle, self.options.handle, key_at, key.len(), content_at, content.len(), error);
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        // SAFETY: as in `open`; by default it waits until the tables and blob files are synced.
        unsafe {
            let options = Owned { handle: rocksdb_flushoptions_create(), destroy: rocksdb_flushoptions_destroy };
            checked(|error| rocksdb_flush(self.database.handle, options.handle, error))
        }
    }
}

struct Opened {
    options: Owned,
    database: Owned,
}

// SAFETY: the library's databases and read options may be used by many threads concurrently.
unsafe impl Sync for Opened {}

impl Opened {
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        // SAFETY: as in `open`; key and value live until the iterator moves.
        unsafe {
            let options = Owned { handle: rocksdb_readoptions_create(), destroy: rocksdb_readoptions_destroy };
            rocksdb_readoptions_set_readahead_size(options.handle, READ_AHEAD_BYTES);
            rocksdb_readoptions_set_fill_cache(options.handle, 0);
            let created = rocksdb_create_iterator(self.database.handle, options.handle);
            let iterator = Owned { handle: created, destroy: rocksdb_iter_destroy };
            rocksdb_iter_seek_to_first(iterator.handle);
            while rocksdb_iter_valid(iterator.handle) != 0 {
                let (mut key_length, mut length) = (0, 0);
                let key = rocksdb_iter_key(iterator.handle, &mut key_length);
                let value = rocksdb_iter_value(iterator.handle, &mut length);
                visit(slice(key, key_length), slice(value, length));
                rocksdb_iter_next(iterator.handle);
            }
            checked(|error| rocksdb_iter_get_error(iterator.handle, error))
        }
    }
}

impl Reader for Opened {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Getting(self)))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        self.each(&mut |key, bytes| visit(Piece { key, size: bytes.len(), start: 0, bytes }))
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.each(&mut |key, _| visit(key))
    }
}

struct Getting<'a>(&'a Opened);

impl Session for Getting<'_> {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        // SAFETY: as in `open`; pinned memory lives until its handle is destroyed, which is after the visit.
        unsafe {
            let (database, options) = (self.0.database.handle, self.0.options.handle);
            let found = checked(|error| rocksdb_get_pinned(database, options, key.as_ptr(), key.len(), error))?;
            if found.is_null() {
                return Err(missing(key));
            }
            let pinned = Owned { handle: found, destroy: rocksdb_pinnableslice_destroy };
            let mut length = 0;
            let value = rocksdb_pinnableslice_value(pinned.handle, &mut length);
            visit(slice(value, length));
        }
        Ok(())
    }
}
