//! The catalog in SQLite: one writer, any number of readers in other processes, whole transactions (docs/FORMAT.md, section 9).
//!
//! WAL with `synchronous=NORMAL`: a killed process loses nothing, a power failure takes the catalog back to an older whole state, unless a
//! transaction asked to be durable; it is then synced with all before it. The header row has a checksum, and so have recent
//! changes. What SQLite or a checksum finds wrong is [`ErrorKind::Corrupt`], with the advice to make the index anew.
//!
//! A version counts transactions. It starts at the time at which the catalog was made, so that one made anew is not taken for a
//! continuation, and every row that may change says in which version it did: a reader fetches what is new, or learns from one row that
//! nothing is. Numbers of 64 bits are kept as SQLite's signed ones, by their bits.

use std::fs::{self, File};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use twox_hash::XxHash3_64;

use super::{Catalog, Change, Position, State};
use crate::error::{Error, ErrorKind, Result};
use crate::index::table::REBUILD_ADVICE;

mod rows;

/// Name of the file in the index directory.
const FILE_NAME: &str = "catalog.sqlite";
/// `gran`: what `file` and SQLite say the file is.
const APPLICATION_ID: i32 = 0x6772_616e;
/// The version of the tables in it.
const VERSION: i32 = 1;
/// How long to wait for a lock: they are held for moments, but for a checkpoint.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// What is left of the write-ahead log after a checkpoint, at most, in bytes.
const LOG_BYTES: i64 = 16 << 20;
/// Changes that `recent` may have beyond twice the entries that they leave, before it is written anew.
const SPARE_CHANGES: u64 = 4096;

const READ: &str = "read the catalog";
const WRITE: &str = "write the catalog";

/// A catalog in a file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    read_only: bool,
    opened: Mutex<Opened>,
}

#[derive(Debug)]
struct Opened {
    connection: Connection,
    /// Device and inode of the file.
    file: (u64, u64),
    /// Whether commits are synced now.
    synced: bool,
}

/// The one row of `state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Header {
    version: u64,
    /// The version that the catalog began with.
    created: u64,
    position: Position,
    epoch: u64,
    highest_id: u64,
    next_table: u64,
    /// Version in which `recent` was last cleared or written anew.
    recent_base: u64,
    /// Changes in `recent`.
    recent_changes: u64,
    /// Versions in which rows were last removed or all replaced.
    replaced: Replaced,
}

/// For each table that is not written by rows alone, the version in which rows were last removed, or all replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Replaced {
    ranges: u64,
    tables: u64,
    segments: u64,
    extents: u64,
    shared: u64,
    freed: u64,
    notes: u64,
}

/// Numbers of a header, in the order of the columns.
const HEADER_NUMBERS: usize = 18;
const READ_HEADER: &str = "SELECT version, created, segment, offset, sequence, chain, epoch, highest_id, next_table, recent_base, \
     recent_changes, ranges_replaced, tables_replaced, segments_replaced, extents_replaced, shared_replaced, freed_replaced, \
     notes_replaced, checksum FROM state";
const WRITE_HEADER: &str = "REPLACE INTO state VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

impl Header {
    fn numbers(&self) -> [u64; HEADER_NUMBERS] {
        let Header { version, created, position, epoch, highest_id, next_table, recent_base, recent_changes, replaced } =
            *self;
        let Position { segment, offset, sequence, chain } = position;
        let Replaced { ranges, tables, segments, extents, shared, freed, notes } = replaced;
        [
            version,
            created,
            segment,
            offset,
            sequence,
            chain,
            epoch,
            highest_id,
            next_table,
            recent_base,
            recent_changes,
            ranges,
            tables,
            segments,
            extents,
            shared,
            freed,
            notes,
        ]
    }

    fn of_numbers(numbers: [u64; HEADER_NUMBERS]) -> Header {
        let [
            version,
            created,
            segment,
            offset,
            sequence,
            chain,
            epoch,
            highest_id,
            next_table,
            recent_base,
            recent_changes,
            ranges,
            tables,
            segments,
            extents,
            shared,
            freed,
            notes,
        ] = numbers;
        let position = Position { segment, offset, sequence, chain };
        let replaced = Replaced { ranges, tables, segments, extents, shared, freed, notes };
        Header { version, created, position, epoch, highest_id, next_table, recent_base, recent_changes, replaced }
    }

    fn checksum(numbers: &[u64; HEADER_NUMBERS]) -> u64 {
        let mut checksum = XxHash3_64::new();
        numbers.iter().for_each(|number| checksum.write(&number.to_le_bytes()));
        checksum.finish()
    }

    fn read(connection: &Connection) -> std::result::Result<Header, Failure> {
        let mut numbers = [0; HEADER_NUMBERS];
        let checksum = connection.prepare_cached(READ_HEADER)?.query_row([], |row| {
            for (column, number) in numbers.iter_mut().enumerate() {
                *number = rows::number(row, column)?;
            }
            rows::number(row, HEADER_NUMBERS)
        })?;
        if checksum == Header::checksum(&numbers) {
            Ok(Header::of_numbers(numbers))
        } else {
            Err(Failure::Damaged("its state"))
        }
    }

    fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let numbers = self.numbers();
        let values = numbers.iter().copied().chain([Header::checksum(&numbers)]).map(|number| number as i64);
        connection.prepare_cached(WRITE_HEADER)?.execute(rusqlite::params_from_iter(values))?;
        Ok(())
    }
}

/// Why a transaction failed.
#[derive(Debug)]
enum Failure {
    Sqlite(rusqlite::Error),
    /// What is damaged.
    Damaged(&'static str),
    /// Somebody else wrote.
    Overtaken,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Sqlite(error)
    }
}

impl Failure {
    fn into_error(self, operation: &'static str, path: &Path) -> Error {
        let error = |kind, cause: String| Error::new(kind, operation, cause).at(path);
        let failure = match self {
            Failure::Damaged(what) => {
                return error(ErrorKind::Corrupt, format!("{what} is damaged")).advise(REBUILD_ADVICE);
            }
            Failure::Overtaken => {
                return error(ErrorKind::Busy, "somebody else has changed it".to_owned())
                    .advise("open the store again");
            }
            Failure::Sqlite(failure) => failure,
        };
        let cause = failure.to_string();
        match failure.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => error(ErrorKind::NoSpace, cause).advise("free some space on the device"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                error(ErrorKind::Busy, cause).advise("find out which process holds a lock on it")
            }
            Some(ErrorCode::ReadOnly) => error(ErrorKind::ReadOnly, cause),
            Some(ErrorCode::PermissionDenied) => error(ErrorKind::PermissionDenied, cause),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
                error(ErrorKind::Io, cause)
            }
            // The statements are sound: what else fails does so because of what is in the file.
            _ => error(ErrorKind::Corrupt, cause).advise(REBUILD_ADVICE),
        }
    }
}

impl Sqlite {
    /// Makes an empty catalog in the index directory, in the place of one that is there.
    ///
    /// # Errors
    /// What removing and creating files there fails with.
    pub fn create(directory: &Path) -> Result<Sqlite> {
        let path = directory.join(FILE_NAME);
        for suffix in ["", "-wal", "-shm"] {
            let old = with_suffix(&path, suffix);
            match fs::remove_file(&old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove the old catalog", &old, error));
                }
                _ => {}
            }
        }
        let make = || -> std::result::Result<(), Failure> {
            let mut connection = Connection::open(&path)?;
            configure(&connection)?;
            // Before there is anything in it, or it has no effect.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(rows::SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
            Header { version: now, created: now, ..Header::default() }.write(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        make().map_err(|failure| failure.into_error("create the catalog", &path))?;
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| Error::io("sync the index directory", directory, error))?;
        Sqlite::open(directory, false)
    }

    /// Opens the catalog in the index directory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Corrupt`], [`ErrorKind::NewerVersion`]; [`ErrorKind::ReadOnly`] on a medium that cannot be
    /// written, if the last writer there did not close the catalog.
    pub fn open(directory: &Path, read_only: bool) -> Result<Sqlite> {
        let path = directory.join(FILE_NAME);
        let opened = Opened::new(&path, read_only)?;
        Ok(Sqlite { path, read_only, opened: Mutex::new(opened) })
    }

    /// Verifies the whole file: SQLite's structures, and what has a checksum of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with what is wrong first.
    pub fn verify(&self) -> Result<()> {
        let report = self.opened().connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
        match report {
            Ok(report) if report == "ok" => self.refresh(&mut State::default()).map(|_| ()),
            Ok(report) => {
                Err(Error::new(ErrorKind::Corrupt, "verify the catalog", report).at(&self.path).advise(REBUILD_ADVICE))
            }
            Err(error) => Err(Failure::from(error).into_error("verify the catalog", &self.path)),
        }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        // A panic cannot leave more behind than a transaction, which is rolled back.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn new(path: &Path, read_only: bool) -> Result<Opened> {
        let metadata =
            fs::metadata(path).map_err(|error| Error::io("open the catalog", path, error).advise(REBUILD_ADVICE))?;
        let failed = |failure: Failure| failure.into_error("open the catalog", path);
        let access = if read_only { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match open_connection(path, flags) {
            Err(Failure::Sqlite(error)) if read_only && is_unwritable(&error) => {
                if fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > 0) {
                    let cause =
                        "its last changes are in a log that can be taken in only where the directory can be written";
                    return Err(Error::new(ErrorKind::ReadOnly, "open the catalog", cause)
                        .at(path)
                        .advise("open the store once where it can be written"));
                }
                // Nobody can change it: no locks are needed, which would be files beside it.
                open_connection(&immutable(path), flags | OpenFlags::SQLITE_OPEN_URI).map_err(failed)?
            }
            result => result.map_err(failed)?,
        };
        let version: i32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|error| failed(error.into()))?;
        if version > VERSION {
            let cause = format!("it has version {version}, and this granulo reads up to {VERSION}");
            return Err(Error::new(ErrorKind::NewerVersion, "open the catalog", cause)
                .at(path)
                .advise("use a newer granulo"));
        }
        Ok(Opened { connection, file: (metadata.dev(), metadata.ino()), synced: false })
    }
}

/// Opens and configures a connection, and reads from it, as SQLite finds out only then what it can.
fn open_connection(path: &Path, flags: OpenFlags) -> std::result::Result<Connection, Failure> {
    let connection = Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Err(Failure::Damaged("what it is"));
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)
}

/// Whether opening failed because SQLite's files beside the catalog could not be made.
fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied))
}

/// The URI that opens a file as one that nobody can change.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    PathBuf::from(uri)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Catalog for Sqlite {
    fn refresh(&self, state: &mut State) -> Result<bool> {
        let mut opened = self.opened();
        // A catalog that was made anew is another file.
        if let Ok(metadata) = fs::metadata(&self.path)
            && (metadata.dev(), metadata.ino()) != opened.file
        {
            *opened = Opened::new(&self.path, self.read_only)?;
        }
        refresh(&mut opened.connection, state).map_err(|failure| failure.into_error(READ, &self.path))
    }

    /// `state` must be the last: from [`Catalog::refresh`], or from the commit before.
    fn commit(&self, state: &mut State, change: Change) -> Result<()> {
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, WRITE, "it was opened for reading").at(&self.path));
        }
        let mut opened = self.opened();
        let version = commit(&mut opened, state, &change).map_err(|failure| failure.into_error(WRITE, &self.path))?;
        state.apply(change);
        state.version = version;
        Ok(())
    }
}

fn refresh(connection: &mut Connection, state: &mut State) -> std::result::Result<bool, Failure> {
    let version = connection.prepare_cached("SELECT version FROM state")?.query_row([], |row| rows::number(row, 0))?;
    if version == state.version {
        return Ok(false);
    }
    let transaction = connection.transaction()?;
    let header = Header::read(&transaction)?;
    // A state of another catalog, or of a future that a power failure took back.
    let foreign = !(header.created..=header.version).contains(&state.version);
    let seen = if foreign { 0 } else { state.version };
    let news = rows::read(&transaction, &header, seen)?;
    transaction.commit()?;
    // From here on nothing fails.
    if foreign {
        *state = State::default();
    }
    news.apply(state);
    state.version = header.version;
    Ok(true)
}

/// Writes one transaction; gives its version.
fn commit(opened: &mut Opened, state: &State, change: &Change) -> std::result::Result<u64, Failure> {
    if change.durable != opened.synced {
        opened.connection.pragma_update(None, "synchronous", if change.durable { "FULL" } else { "NORMAL" })?;
        opened.synced = change.durable;
    }
    let transaction = opened.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut header = Header::read(&transaction)?;
    if header.version != state.version {
        return Err(Failure::Overtaken);
    }
    header.version += 1;
    header.position = change.position.unwrap_or(header.position);
    header.epoch = change.epoch.unwrap_or(header.epoch);
    header.highest_id = header.highest_id.max(change.highest_id.unwrap_or(0));
    header.next_table = change.next_table.unwrap_or(header.next_table);
    rows::write(&transaction, &mut header, state, change)?;
    header.write(&transaction)?;
    if change.clear_recent {
        give_back(&transaction)?;
    }
    transaction.commit()?;
    Ok(header.version)
}

/// Gives free pages back to the file system: what was recent is in a sorted table now, and would be counted twice.
fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// As [`Sqlite::open`] does on a medium that cannot be written.
#[cfg(test)]
pub(super) fn open_immutable(directory: &Path) -> Sqlite {
    let path = directory.join(FILE_NAME);
    let metadata = fs::metadata(&path).unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = open_connection(&immutable(&path), flags).unwrap();
    let opened = Opened { connection, file: (metadata.dev(), metadata.ino()), synced: false };
    Sqlite { path, read_only: true, opened: Mutex::new(opened) }
}
