//! Removing what no redundancy can repair, on request.
//!
//! What the index can restore is not removed but written again, also if only a snapshot has it: a directory, attributes
//! in a record of their own, and one of several names of a file that is not lost. With a lost file go all its names,
//! however many there are: they are found by one pass through the index, and removed on the way.

use std::collections::BTreeSet;

use super::repair::RepairReport;
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{Entry, Kind};
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{ROOT_KEY, entry_of_key, is_superseded, object_of};
use crate::index::Snapshot;
use crate::index::paths::Ways;
use crate::{Durability, Store};

/// Entries that are restored, or versions that are forgotten, together.
const TOGETHER: usize = 1 << 12;

/// Lost objects being removed.
struct Dropping<'d> {
    store: &'d Store,
    /// The index before.
    snapshot: Snapshot,
    ways: Ways,
    /// Lost files with several names.
    shared: BTreeSet<ObjectNumber>,
    /// Entries to be restored, by index key.
    restored: Vec<(Vec<u8>, Entry)>,
    /// Index keys of lost versions.
    versions: Vec<Vec<u8>>,
    report: &'d mut RepairReport,
}

impl Store {
    /// Removes what is lost, by index keys. A directory, attributes in a record of their own, and one of several names
    /// of a file that is not lost, are restored from the index. What the index does not have, as its removal was lost,
    /// is removed again.
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
        let snapshot = engine.snapshot();
        let shared: BTreeSet<ObjectNumber> = lost.iter().filter_map(|key| object_of(key)).collect();
        let (ways, restored, versions) = (Ways::of(&snapshot)?, Vec::new(), Vec::new());
        let mut dropping = Dropping { store: self, ways, snapshot, shared, restored, versions, report };
        for key in lost.into_iter().filter(|key| object_of(key).is_none()) {
            dropping.drop(&key)?;
        }
        dropping.drop_names()?;
        dropping.restore()?;
        dropping.forget()?;
        self.sync()?;
        match report.dropped {
            0 => Ok(()),
            _ => engine.recount_units(),
        }
    }
}

impl Dropping<'_> {
    /// Removes the object or the version with an index key, or restores it.
    fn drop(&mut self, stored: &[u8]) -> Result<()> {
        match self.snapshot.look_up(stored)? {
            Some(entry) if is_superseded(stored) && !self.can_restore(&entry) => {
                self.versions.push(stored.to_vec());
                if self.versions.len() < TOGETHER { Ok(()) } else { self.forget() }
            }
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

    /// Whether the index has all of what is lost.
    fn can_restore(&self, entry: &Entry) -> bool {
        match entry.kind {
            Kind::Directory | Kind::Attributes => true,
            Kind::Link => !self.shared.contains(&entry.linked()),
            _ => false,
        }
    }

    /// Queues what the index can restore; removes the rest by its path, not yet durably. Skips what has no path: the
    /// check after it reports that again.
    fn drop_or_restore(&mut self, stored: &[u8], entry: &Entry) -> Result<()> {
        if self.can_restore(entry) {
            self.restored.push((stored.to_vec(), *entry));
            return if self.restored.len() < TOGETHER { Ok(()) } else { self.restore() };
        }
        let Some((directory, name)) = entry_of_key(stored) else { return Ok(()) };
        let Some(key) = self.ways.path(directory, name) else { return Ok(()) };
        let mut batch = self.store.batch(Durability::None);
        self.report.dropped += u64::from(batch.remove(&key)?);
        // One commit for each: together, what is in no sorted table yet would grow without bound.
        batch.commit()
    }

    fn forget(&mut self) -> Result<()> {
        let versions = std::mem::take(&mut self.versions);
        self.report.dropped += self.store.engine().forget_versions(&versions)?;
        Ok(())
    }

    fn restore(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.restored);
        self.store.engine().restore_records(&entries)?;
        let count = |kind| entries.iter().filter(|(_, entry)| entry.kind == kind).count() as u64;
        self.report.restored_directories += count(Kind::Directory);
        self.report.restored_attributes += count(Kind::Attributes);
        self.report.restored_names += count(Kind::Link);
        Ok(())
    }
}
