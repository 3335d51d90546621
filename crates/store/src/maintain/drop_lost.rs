//! Removing what no redundancy can repair, on request.
//!
//! What the index can restore is not removed: a directory, and one of several names of a file that is not lost. With a
//! lost file go all its names, however many there are: they are found by one pass through the index, and removed on the
//! way.

use std::collections::BTreeSet;

use super::repair::RepairReport;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT_KEY, entry_of_key, is_superseded, object_of};
use crate::format::key::Key;
use crate::index::Snapshot;
use crate::index::paths::Ways;
use crate::{Attributes, Durability, Store};

/// Lost objects being removed.
struct Dropping<'d> {
    store: &'d Store,
    /// The index before.
    snapshot: Snapshot,
    ways: Ways,
    /// Lost files with several names.
    shared: BTreeSet<ObjectNumber>,
    report: &'d mut RepairReport,
}

impl Store {
    /// Removes what is lost, by index keys. A directory, and one of several names of a file that is not lost, are
    /// restored from the index. What the index does not have, as its removal was lost, is removed again.
    ///
    /// # Errors
    /// A device that should be in service cannot be written: what could not be read is perhaps not lost; errors of
    /// reading the index and of removing.
    pub(crate) fn drop_lost(&self, lost: BTreeSet<Vec<u8>>, report: &mut RepairReport) -> Result<()> {
        let engine = self.engine();
        if let Some((device, error)) = engine.devices.unwritable().into_iter().next() {
            let cause = format!("device {device} fails, and may have what cannot be read: {error}");
            return Err(Error::new(ErrorKind::Lost, "drop what is lost", cause)
                .at(&engine.home)
                .advise("nothing was dropped; bring the device back, or give it up with granulo store rebuild"));
        }
        let snapshot = engine.view().snapshot();
        let shared: BTreeSet<ObjectNumber> = lost.iter().filter_map(|key| object_of(key)).collect();
        let keys = lost.into_iter().filter(|key| object_of(key).is_none());
        let (versions, keys): (Vec<_>, Vec<_>) = keys.partition(|key| is_superseded(key));
        report.dropped += engine.forget_versions(&versions)?;
        let mut dropping = Dropping { store: self, ways: Ways::of(&snapshot)?, snapshot, shared, report };
        for key in keys {
            dropping.drop(&key)?;
        }
        dropping.drop_names()?;
        self.sync()?;
        match report.dropped {
            0 => Ok(()),
            _ => engine.recount_units(),
        }
    }
}

impl Dropping<'_> {
    /// Removes the object with an index key, or restores it.
    fn drop(&mut self, stored: &[u8]) -> Result<()> {
        match self.snapshot.look_up(stored)? {
            Some(entry) => self.drop_or_restore(stored, &entry),
            None => {
                let Some((directory, name)) = entry_of_key(stored) else { return Ok(()) };
                let mut batch = self.store.batch(Durability::None);
                batch.drop_entry(directory, name)?;
                batch.commit()
            }
        }
    }

    /// Removes the names of lost files.
    fn drop_names(&mut self) -> Result<()> {
        if self.shared.is_empty() {
            return Ok(());
        }
        let snapshot = self.snapshot.clone();
        let mut scan = snapshot.scan_from(ROOT_KEY)?;
        while let Some((key, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Link && self.shared.contains(&entry.linked()) {
                self.drop_or_restore(key, entry)?;
            }
        }
        Ok(())
    }

    fn drop_or_restore(&mut self, stored: &[u8], entry: &Entry) -> Result<()> {
        let path = entry_of_key(stored).and_then(|(directory, name)| match directory {
            ObjectNumber::NONE => Some(Key::root()),
            _ => self.ways.path(directory, name),
        });
        let Some(key) = path else { return Ok(()) };
        let mut batch = self.store.batch(Durability::None);
        if entry.kind == Kind::Link && !self.shared.contains(&entry.linked()) {
            batch.link(&key, entry.linked())?;
            self.report.restored_names += 1;
        } else if entry.kind == Kind::Directory {
            let attributes = Attributes {
                mode: entry.mode,
                uid: entry.uid,
                gid: entry.gid,
                mtime: entry.mtime,
                ctime: Some(entry.ctime),
                ..Attributes::default()
            };
            batch.directory(&key, &attributes)?;
            self.report.restored_directories += 1;
        } else {
            self.report.dropped += u64::from(batch.remove(&key)?);
        }
        // It also bounds the memory of what is not in a sorted table yet.
        batch.commit()
    }
}
