//! SQLite: one table with the key and the content, one transaction, a rollback journal with `synchronous=FULL`.
//!
//! Pages of 4 KiB, because larger ones need more space at these sizes. A write-ahead log would write everything twice,
//! and the journal of an empty database is nearly empty. 32 MiB of cache for a single connection, 4 MiB for each of
//! several. `mapped` reads through a mapping. Reads are not verified.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::path::{Path, PathBuf};

const CACHE_KIB: i64 = 32 << 10;
const SESSION_CACHE_KIB: i64 = 4 << 10;
const MAPPED_BYTES: i64 = 64 << 30;

pub struct Sqlite {
    pub mapped: bool,
}

impl Engine for Sqlite {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        let connection = writing(place)?;
        connection.execute_batch(
            "CREATE TABLE object (key BLOB PRIMARY KEY NOT NULL, content BLOB NOT NULL); BEGIN IMMEDIATE",
        )?;
        Ok(Box::new(Inserting(connection)))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Database { path: path(place), mapped: self.mapped }))
    }

    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let connection = writing(place)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for key in keys {
            if connection.prepare_cached("DELETE FROM object WHERE key = ?")?.execute([key.as_bytes()])? != 1 {
                return Err(missing(key));
            }
        }
        connection.execute_batch("COMMIT")?;
        Ok(true)
    }
}

fn path(place: &Path) -> PathBuf {
    place.join("objects.sqlite")
}

fn writing(place: &Path) -> Result<Connection> {
    let connection = Connection::open(path(place))?;
    connection.pragma_update(None, "page_size", 4096)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}

struct Inserting(Connection);

impl Writer for Inserting {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        self.0.prepare_cached("INSERT INTO object VALUES (?, ?)")?.execute((key.as_bytes(), content))?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.execute_batch("COMMIT")?;
        self.0.close().map_err(|(_, error)| error.into())
    }
}

struct Database {
    path: PathBuf,
    mapped: bool,
}

impl Database {
    fn connect(&self, cache_kib: i64) -> Result<Connection> {
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.pragma_update(None, "cache_size", -cache_kib)?;
        if self.mapped {
            connection.pragma_update(None, "mmap_size", MAPPED_BYTES)?;
        }
        // A permanent read transaction: no lock is acquired and released for each look-up.
        connection.execute_batch("BEGIN")?;
        Ok(connection)
    }
}

impl Reader for Database {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Selecting(self.connect(SESSION_CACHE_KIB)?)))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let connection = self.connect(CACHE_KIB)?;
        let mut select = connection.prepare("SELECT key, content FROM object ORDER BY rowid")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_blob()?;
            visit(Piece { key: row.get_ref(0)?.as_blob()?, size: bytes.len(), start: 0, bytes });
        }
        Ok(())
    }

    /// From the index of the keys alone.
    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let connection = self.connect(CACHE_KIB)?;
        let mut select = connection.prepare("SELECT key FROM object ORDER BY key")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }
}

struct Selecting(Connection);

impl Session for Selecting {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut select = self.0.prepare_cached("SELECT content FROM object WHERE key = ?")?;
        let found = select.query_row([key.as_bytes()], |row| {
            visit(row.get_ref(0)?.as_blob()?);
            Ok(())
        });
        found.optional()?.ok_or_else(|| missing(key))
    }
}
