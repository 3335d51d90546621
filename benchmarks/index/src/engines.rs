//! The candidates behind two traits: one for writers, one for readers' snapshots.
//!
//! Engines with a cache of their own get 32 MiB, because granulo's store must stay below 64 MiB. `redb-1g` is redb with
//! its default cache, `lmdb-nora` LMDB without read-ahead, `sqlite-mmap` SQLite reading through a mapping, `redb-qr`
//! redb that saves the state of its allocator with every commit. They differ in how a file is opened, not in the file.

use crate::keys::VALUE;
use crate::table;
use std::error::Error;
use std::ops::Bound;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CACHE: usize = 32 << 20;
const MAP: usize = 16 << 30;

/// One batch: keys end to end; a missing value is a deletion.
#[derive(Default)]
pub struct Batch {
    keys: Vec<u8>,
    ends: Vec<usize>,
    values: Vec<Option<[u8; VALUE]>>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.values.clear();
    }

    pub fn push(&mut self, value: Option<[u8; VALUE]>, key: impl FnOnce(&mut Vec<u8>)) {
        key(&mut self.keys);
        self.ends.push(self.keys.len());
        self.values.push(value);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8; VALUE]>)> {
        (0..self.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            (&self.keys[start..self.ends[i]], self.values[i].as_ref())
        })
    }
}

pub trait Writer {
    /// Applies a batch in the open transaction, which begins with the first one.
    fn apply(&mut self, batch: &Batch) -> Result<()>;
    /// Durable when it returns.
    fn commit(&mut self) -> Result<()>;
    /// Waits for background work.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
    /// Forgets dead readers, where that must be requested.
    fn clear_stale(&mut self) -> Result<String> {
        Ok("nothing to do".into())
    }
}

pub trait Reader: Send + Sync {
    /// A new snapshot.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

pub trait Session {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool>;
    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
}

/// `bulk`: keys arrive in order, and all are new.
pub fn writer(engine: &str, dir: &Path, bulk: bool) -> Result<Box<dyn Writer>> {
    std::fs::create_dir_all(dir)?;
    Ok(match base(engine) {
        "lmdb" => Box::new(LmdbWriter { lmdb: Lmdb::open(dir, engine, true)?, txn: None, bulk }),
        "redb" => Box::new(RedbWriter::open(dir, engine, bulk)?),
        "sqlite" => Box::new(SqliteWriter::open(dir)?),
        "fjall" => Box::new(FjallWriter::open(dir, bulk)?),
        "table" => Box::new(TableWriter(Some(table::Builder::create(&dir.join("index.table"))?))),
        _ => return Err("no such engine".into()),
    })
}

pub fn reader(engine: &str, dir: &Path) -> Result<Box<dyn Reader>> {
    Ok(match base(engine) {
        "lmdb" => Box::new(Lmdb::open(dir, engine, false)?),
        "redb" => Box::new(Redb(redb_builder(engine).open_read_only(dir.join("index.redb"))?)),
        "sqlite" => Box::new(Sqlite { path: dir.join("index.sqlite"), mmap: engine == "sqlite-mmap" }),
        "fjall" => {
            let (db, keyspace) = fjall_open(dir)?;
            Box::new(Fjall { db, keyspace })
        }
        "table" => Box::new(table::Table::open(&dir.join("index.table"))?),
        _ => return Err("no such engine".into()),
    })
}

fn base(engine: &str) -> &str {
    engine.split('-').next().expect("a first part")
}

// LMDB

type LmdbEnv = heed::Env<heed::WithoutTls>;
type LmdbDatabase = heed::Database<'static, heed::types::Bytes, heed::types::Bytes>;

struct Lmdb {
    env: &'static LmdbEnv,
    db: LmdbDatabase,
}

impl Lmdb {
    fn open(dir: &Path, engine: &str, write: bool) -> Result<Self> {
        let mut options = heed::EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP);
        let mut flags = heed::EnvFlags::empty();
        flags.set(heed::EnvFlags::NO_READ_AHEAD, engine == "lmdb-nora");
        flags.set(heed::EnvFlags::READ_ONLY, !write);
        // SAFETY: the file belongs to the benchmark, on a local file system; nobody else changes it.
        let env = unsafe { options.flags(flags).open(dir) }?;
        let env: &'static LmdbEnv = Box::leak(Box::new(env));
        let db = if write {
            let txn = env.write_txn()?;
            env.create_databases_and_commit(txn, |opener, txn| {
                opener.create_database(txn, None).map(heed::CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit()
        } else {
            let txn = env.read_txn()?;
            env.open_databases_and_commit(txn, |opener, txn| {
                opener.open_database(txn, None).map(heed::CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit()
            .ok_or("no database")?
        };
        Ok(Self { env, db })
    }
}

struct LmdbWriter {
    lmdb: Lmdb,
    txn: Option<heed::RwTxn<'static>>,
    bulk: bool,
}

impl Writer for LmdbWriter {
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        let Lmdb { env, db } = &self.lmdb;
        if self.txn.is_none() {
            self.txn = Some(env.write_txn()?);
        }
        let txn = self.txn.as_mut().expect("just opened");
        let flags = if self.bulk { heed::PutFlags::APPEND } else { heed::PutFlags::empty() };
        for (key, value) in batch.iter() {
            match value {
                Some(value) => db.put_with_flags(txn, flags, key, value)?,
                None => drop(db.delete(txn, key)?),
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(self.txn.take().map_or(Ok(()), heed::RwTxn::commit)?)
    }

    fn clear_stale(&mut self) -> Result<String> {
        Ok(format!("{} stale readers", self.lmdb.env.clear_stale_readers()?))
    }
}

struct LmdbSession {
    db: LmdbDatabase,
    txn: heed::RoTxn<'static, heed::WithoutTls>,
}

impl Reader for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { db: self.db, txn: self.env.read_txn()? }))
    }
}

impl Session for LmdbSession {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool> {
        Ok(self.db.get(&self.txn, key)?.map(|value| out.copy_from_slice(value)).is_some())
    }

    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        // LMDB does not support an empty key, not even as a bound.
        let start = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix) };
        let from = (start, Bound::<&[u8]>::Unbounded);
        for entry in self.db.range(&self.txn, &from)? {
            let (key, value) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            visit(key, value);
        }
        Ok(())
    }
}

// redb

const TABLE: redb::TableDefinition<&[u8], &[u8; VALUE]> = redb::TableDefinition::new("index");

fn redb_builder(engine: &str) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
    if engine != "redb-1g" {
        builder.set_cache_size(CACHE);
    }
    builder
}

struct RedbWriter {
    db: redb::Database,
    txn: Option<redb::WriteTransaction>,
    quick: bool,
    bulk: bool,
}

impl RedbWriter {
    fn open(dir: &Path, engine: &str, bulk: bool) -> Result<Self> {
        Ok(Self {
            db: redb_builder(engine).create(dir.join("index.redb"))?,
            txn: None,
            quick: engine == "redb-qr",
            bulk,
        })
    }
}

impl Writer for RedbWriter {
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        if self.txn.is_none() {
            let mut txn = self.db.begin_write()?;
            txn.set_quick_repair(self.quick);
            self.txn = Some(txn);
        }
        let mut table = self.txn.as_ref().expect("just opened").open_table(TABLE)?;
        if self.bulk {
            let mut end = table.upper_bound_mut(Bound::<&[u8]>::Unbounded)?;
            for (key, value) in batch.iter() {
                end.insert_before(key, value.expect("no deletions in a bulk load"))?;
            }
            end.close()?;
            return Ok(());
        }
        for (key, value) in batch.iter() {
            match value {
                Some(value) => drop(table.insert(key, value)?),
                None => drop(table.remove(key)?),
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(self.txn.take().map_or(Ok(()), redb::WriteTransaction::commit)?)
    }
}

struct Redb(redb::ReadOnlyDatabase);

impl Reader for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        use redb::ReadableDatabase;
        let txn = self.0.begin_read()?;
        Ok(Box::new(RedbSession { table: txn.open_table(TABLE)?, _txn: txn }))
    }
}

struct RedbSession {
    table: redb::ReadOnlyTable<&'static [u8], &'static [u8; VALUE]>,
    _txn: redb::ReadTransaction,
}

impl Session for RedbSession {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool> {
        Ok(self.table.get(key)?.map(|value| *out = *value.value()).is_some())
    }

    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for entry in self.table.range::<&[u8]>(prefix..)? {
            let (key, value) = entry?;
            if !key.value().starts_with(prefix) {
                break;
            }
            visit(key.value(), value.value());
        }
        Ok(())
    }
}

// SQLite

struct SqliteWriter {
    connection: rusqlite::Connection,
    open: bool,
}

impl SqliteWriter {
    fn open(dir: &Path) -> Result<Self> {
        let connection = rusqlite::Connection::open(dir.join("index.sqlite"))?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -(CACHE as i64 / 1024))?;
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS entry (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")?;
        Ok(Self { connection, open: false })
    }
}

impl Writer for SqliteWriter {
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        if !self.open {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            self.open = true;
        }
        let mut put = self.connection.prepare_cached("INSERT OR REPLACE INTO entry VALUES (?, ?)")?;
        let mut delete = self.connection.prepare_cached("DELETE FROM entry WHERE k = ?")?;
        for (key, value) in batch.iter() {
            match value {
                Some(value) => put.execute(rusqlite::params![key, &value[..]])?,
                None => delete.execute([key])?,
            };
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if std::mem::take(&mut self.open) {
            self.connection.execute_batch("COMMIT")?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

struct Sqlite {
    path: PathBuf,
    mmap: bool,
}

impl Reader for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        // A connection has its own cache: four threads share the same amount.
        connection.pragma_update(None, "cache_size", if self.mmap { -1024 } else { -(CACHE as i64 / 4096) })?;
        if self.mmap {
            connection.pragma_update(None, "mmap_size", MAP as i64)?;
        }
        connection.execute_batch("BEGIN")?;
        // A snapshot begins with the first statement that reads.
        connection.query_row("SELECT EXISTS (SELECT 1 FROM entry)", [], |_| Ok(()))?;
        Ok(Box::new(connection))
    }
}

impl Session for rusqlite::Connection {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool> {
        let mut statement = self.prepare_cached("SELECT v FROM entry WHERE k = ?")?;
        let mut rows = statement.query([key])?;
        Ok(match rows.next()? {
            Some(row) => {
                out.copy_from_slice(row.get_ref(0)?.as_blob()?);
                true
            }
            None => false,
        })
    }

    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut statement = self.prepare_cached("SELECT k, v FROM entry WHERE k >= ? ORDER BY k")?;
        let mut rows = statement.query([prefix])?;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_blob()?;
            if !key.starts_with(prefix) {
                break;
            }
            visit(key, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}

// fjall

fn fjall_open(dir: &Path) -> Result<(fjall::Database, fjall::Keyspace)> {
    let db = fjall::Database::builder(dir).cache_size(CACHE as u64).open()?;
    let keyspace = db.keyspace("index", || fjall::KeyspaceCreateOptions::default().max_memtable_size(16 << 20))?;
    Ok((db, keyspace))
}

type Ingest = dyn FnMut(Option<&Batch>) -> Result<()>;

struct FjallWriter {
    db: fjall::Database,
    keyspace: &'static fjall::Keyspace,
    // The ingestion, whose type has no public name: takes a batch, or finishes.
    ingestion: Option<Box<Ingest>>,
    bulk: bool,
    // Each is one atomic batch; the commit makes all of them durable.
    durable: bool,
}

impl FjallWriter {
    fn open(dir: &Path, bulk: bool) -> Result<Self> {
        let (db, keyspace) = fjall_open(dir)?;
        Ok(Self { db, keyspace: Box::leak(Box::new(keyspace)), ingestion: None, bulk, durable: true })
    }
}

impl Writer for FjallWriter {
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        if self.bulk {
            if self.ingestion.is_none() {
                let mut open = Some(self.keyspace.start_ingestion()?);
                self.ingestion = Some(Box::new(move |batch| {
                    let Some(batch) = batch else { return Ok(open.take().map_or(Ok(()), |open| open.finish())?) };
                    let open = open.as_mut().ok_or("finished")?;
                    for (key, value) in batch.iter() {
                        open.write(key, &value.expect("no deletions in a bulk load")[..])?;
                    }
                    Ok(())
                }));
            }
            return self.ingestion.as_mut().expect("just opened")(Some(batch));
        }
        let mut writes = self.db.batch();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => writes.insert(self.keyspace, key, &value[..]),
                None => writes.remove(self.keyspace, key),
            }
        }
        self.durable = false;
        Ok(writes.commit()?)
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(mut ingestion) = self.ingestion.take() {
            ingestion(None)?;
        }
        self.durable = true;
        Ok(self.db.persist(fjall::PersistMode::SyncAll)?)
    }

    fn settle(&mut self) -> Result<()> {
        if !self.durable {
            self.commit()?;
        }
        self.keyspace.rotate_memtable_and_wait()?;
        let mut quiet = 0;
        while quiet < 5 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }
}

struct Fjall {
    db: fjall::Database,
    keyspace: fjall::Keyspace,
}

struct FjallSession<'a> {
    snapshot: fjall::Snapshot,
    keyspace: &'a fjall::Keyspace,
}

impl Reader for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { snapshot: self.db.snapshot(), keyspace: &self.keyspace }))
    }
}

impl Session for FjallSession<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool> {
        use fjall::Readable;
        Ok(self.snapshot.get(self.keyspace, key)?.map(|value| out.copy_from_slice(&value)).is_some())
    }

    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        use fjall::Readable;
        for entry in self.snapshot.range(self.keyspace, prefix..) {
            let (key, value) = entry.into_inner()?;
            if !key.starts_with(prefix) {
                break;
            }
            visit(&key, &value);
        }
        Ok(())
    }
}

// The floor

struct TableWriter(Option<table::Builder>);

impl Writer for TableWriter {
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        let builder = self.0.as_mut().ok_or("a sealed table takes no more")?;
        for (key, value) in batch.iter() {
            builder.put(key, value.ok_or("a sealed table deletes nothing")?)?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(self.0.take().map_or(Ok(()), table::Builder::finish)?)
    }
}

struct TableSession<'a> {
    table: &'a table::Table,
    buffer: Vec<u8>,
    key: Vec<u8>,
}

impl Reader for table::Table {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(TableSession { table: self, buffer: Vec::new(), key: Vec::new() }))
    }
}

impl Session for TableSession<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8; VALUE]) -> Result<bool> {
        Ok(self.table.get(key, out, &mut self.buffer, &mut self.key)?)
    }

    fn scan(&mut self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(self.table.scan(prefix, visit)?)
    }
}
