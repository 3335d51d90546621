//! LMDB: keys appended in order, commits of 64 MiB without syncing and one sync at the end, which is as durable as any
//! other here, because nothing was acknowledged before.
//!
//! Two rows: without read-ahead, for databases larger than memory; and with a writable mapping and read-ahead, for the
//! fastest writes and for loads. Contents are returned as pointers into the mapping, and nothing is verified.

use super::{Engine, Piece, Reader, Result, Session, Writer, missing};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwTxn, WithoutTls};
use std::path::Path;

const COMMIT_BYTES: usize = 64 << 20;
const COMMIT_DELETIONS: usize = 10_000;
const MAP_BYTES: u64 = 1 << 30;

type Table = Database<'static, Bytes, Bytes>;

pub struct Lmdb {
    pub write_map: bool,
}

/// An open environment; it lives until its process ends, after one step.
struct Opened {
    env: &'static Env<WithoutTls>,
    table: Table,
}

impl Lmdb {
    /// `map_bytes` is for a new one; otherwise the map keeps its size.
    fn opened(&self, place: &Path, write: bool, map_bytes: Option<u64>) -> Result<Opened> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        if let Some(map_bytes) = map_bytes {
            options.map_size(map_bytes as usize);
        }
        let mut flags = EnvFlags::empty();
        flags.set(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC, write);
        flags.set(EnvFlags::READ_ONLY, !write);
        flags.set(EnvFlags::WRITE_MAP, write && self.write_map);
        flags.set(EnvFlags::NO_READ_AHEAD, !self.write_map);
        // SAFETY: the file belongs to this benchmark and no two processes have it open; writers sync at the end.
        let env: &'static Env<WithoutTls> = Box::leak(Box::new(unsafe { options.flags(flags).open(place) }?));
        let table = if write {
            let made = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
                opener.create_database(txn, None).map(CommitOrAbort::<_, ()>::Commit)
            })?;
            made.unwrap_commit()
        } else {
            let found = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
                opener.open_database(txn, None).map(CommitOrAbort::<_, ()>::Commit)
            })?;
            found.unwrap_commit().ok_or("no table")?
        };
        Ok(Opened { env, table })
    }
}

impl Engine for Lmdb {
    fn create(&self, place: &Path, _objects: u64, total_bytes: u64) -> Result<Box<dyn Writer>> {
        // Contents need whole pages, so small ones need a multiple of their size.
        let map_bytes = (2 * total_bytes + MAP_BYTES).next_multiple_of(4096);
        Ok(Box::new(Appending { opened: self.opened(place, true, Some(map_bytes))?, txn: None, pending_bytes: 0 }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(self.opened(place, false, None)?))
    }

    fn delete(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let Opened { env, table } = self.opened(place, true, None)?;
        let mut txn = env.write_txn()?;
        for (deleted, key) in keys.iter().enumerate() {
            if deleted > 0 && deleted % COMMIT_DELETIONS == 0 {
                txn.commit()?;
                txn = env.write_txn()?;
            }
            if !table.delete(&mut txn, key.as_bytes())? {
                return Err(missing(key));
            }
        }
        txn.commit()?;
        env.force_sync()?;
        Ok(true)
    }
}

struct Appending {
    opened: Opened,
    txn: Option<RwTxn<'static>>,
    pending_bytes: usize,
}

impl Writer for Appending {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        let mut txn = match self.txn.take() {
            Some(txn) => txn,
            None => self.opened.env.write_txn()?,
        };
        self.opened.table.put_with_flags(&mut txn, PutFlags::APPEND, key.as_bytes(), content)?;
        self.pending_bytes += content.len();
        if self.pending_bytes < COMMIT_BYTES {
            self.txn = Some(txn);
        } else {
            txn.commit()?;
            self.pending_bytes = 0;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if let Some(txn) = self.txn.take() {
            txn.commit()?;
        }
        Ok(self.opened.env.force_sync()?)
    }
}

impl Reader for Opened {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Snapshot { table: self.table, txn: self.env.read_txn()? }))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let txn = self.env.read_txn()?;
        for entry in self.table.iter(&txn)? {
            let (key, bytes) = entry?;
            visit(Piece { key, size: bytes.len(), start: 0, bytes });
        }
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let txn = self.env.read_txn()?;
        for entry in self.table.remap_data_type::<heed::types::DecodeIgnore>().iter(&txn)? {
            visit(entry?.0);
        }
        Ok(())
    }
}

struct Snapshot {
    table: Table,
    txn: RoTxn<'static, WithoutTls>,
}

impl Session for Snapshot {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        visit(self.table.get(&self.txn, key.as_bytes())?.ok_or_else(|| missing(key))?);
        Ok(())
    }
}
