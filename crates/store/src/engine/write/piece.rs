//! Committing one piece: its records get ids, the log gets the batch, and the index changes atomically.
//!
//! Everything else that may fail, above all reading what is removed, comes before the append: then the log has none of
//! these records. An append that fails leaves it unknown what the log has, and nothing more is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admission::Admitted;
use super::committer::{RecordSubject, Waiting};
use crate::devices::extents::{LargeWriter, Touched, order};
use crate::devices::placement::Purpose;
use crate::engine::early;
use crate::engine::effects::{Effects, Nameless, UNPLACED};
use crate::engine::{Engine, EngineAccounts, RESERVED_IDS};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Location, Time};
use crate::format::geometry::Class;
use crate::format::ids::{DeviceNumber, LogOffset};
use crate::format::index_key::{ROOT_KEY, attributes_key, object_key, push_entry_key};
use crate::format::key::{shared_number, split};
use crate::format::record::{LARGEST_ID, checksum, give_id, give_numbers};
use crate::layout::granulo::{Alignment, Striping};
use crate::locks::lock;
use crate::log::writer::Batched;

/// What a piece is written for. The root exists always, so what is put there are its attributes.
fn purpose_of(waiting: &[Waiting]) -> Purpose {
    let adds = |record: &Waiting| matches!(record.subject, RecordSubject::Put(..)) && !record.key.is_empty();
    if waiting.iter().any(adds) { Purpose::Put } else { Purpose::Changes }
}

impl Engine {
    /// Abandons the units of an object that never reached the log.
    pub(super) fn abandon(&self, descriptor: &Descriptor) {
        self.allocator().give_up(descriptor);
    }

    /// The devices for units of a stored key, in order, and their striping.
    pub(in crate::engine) fn striping_of(&self, key: &[u8]) -> (Vec<DeviceNumber>, Striping) {
        let geometry = self.geometry();
        let devices: Vec<(DeviceNumber, [u8; 16])> =
            self.devices.writable(Class::Slow).iter().map(|slot| (slot.entry.number, slot.entry.identity)).collect();
        let rule =
            Striping { stripe_unit_bytes: geometry.stripe_unit_bytes, data: geometry.data, parity: geometry.parity };
        (order(checksum(key), &devices), rule)
    }

    /// Begins a large object of a stored key, on the devices chosen by its key.
    pub(in crate::engine) fn begin_large(&self, key: &[u8], size_bytes: Option<u64>) -> LargeWriter {
        let (order, rule) = self.striping_of(key);
        let packing = (rule, self.geometry().packed_bytes);
        LargeWriter::begin(Arc::clone(&self.extents), self.allocator(), order, packing, size_bytes)
    }

    /// Assigns `count` ids and returns the first. Called with the writer's lock held.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if none are left; any error of reserving more in the superblocks.
    pub(crate) fn give_ids(&self, count: u64) -> Result<u64> {
        let first = self.highest_id.fetch_add(count, Ordering::Relaxed) + 1;
        let needed = first + count;
        if needed > LARGEST_ID {
            return Err(Error::new(ErrorKind::NoSpace, "write to the store", "all ids are used up"));
        }
        if needed > self.reserved_ids.load(Ordering::Relaxed) {
            self.reserve_ids(needed + RESERVED_IDS)?;
            self.reserved_ids.store(needed + RESERVED_IDS, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Commits records as one batch; after an error, `touched` is as before.
    ///
    /// # Errors
    /// Those of admission, of reading what is removed, and of writing.
    pub(super) fn commit(
        &self,
        records: &mut Vec<u8>,
        waiting: &mut Vec<Waiting>,
        touched: &mut Touched,
        alignment: Alignment,
        time: Time,
    ) -> Result<()> {
        // It may leave more versions than one change of the index should have.
        let is_tree = matches!(waiting.first(), Some(Waiting { subject: RecordSubject::TreeRemoval(_), .. }));
        let _sync = is_tree.then(|| lock(&self.sync));
        let mut writer = self.writer()?;
        let mut accounts = EngineAccounts::new(self);
        let admitted = self.admit_piece(&accounts, records, waiting, alignment, time)?;
        let Some(first) = waiting.first() else { return Ok(()) };
        if let RecordSubject::TreeRemoval(directories) = &first.subject
            && !accounts.state.snapshots.is_empty()
            && early::is_many(&accounts.snapshot, directories)?
        {
            let settled = self.settle(&mut writer);
            // If a device failed, it has appended a batch of its own.
            accounts = EngineAccounts::new(self);
            match settled {
                // What is in the log but has no space in the index waits in memory; so does this.
                Err(error) if self.is_waiting_for_space(&error) => {}
                other => {
                    other?;
                    accounts.may_write_early();
                }
            }
        }
        let mut effects = Effects::new(&accounts, Nameless::Go);
        effects.reserve(waiting.len());
        let first_id = self.give_ids(waiting.len() as u64)?;
        // If it cannot be applied, above all after an error in reading what is removed, the log is unchanged.
        let mut key = Vec::new();
        for ((record, Admitted { before, number, parent }), id) in waiting.iter().zip(admitted).zip(first_id..) {
            let (number, parent) = (number.resolve(id, first_id), parent.resolve(id, first_id));
            let encoded = &mut records[record.start..record.start + record.record_bytes];
            give_id(encoded, id);
            give_numbers(encoded, number, parent);
            key.clear();
            match (shared_number(&record.key), split(&record.key)) {
                (Some(shared), _) => key.extend_from_slice(&object_key(shared)),
                (None, Some((_, name))) => push_entry_key(&mut key, parent, name),
                (None, None) => key.extend_from_slice(ROOT_KEY),
            }
            let key: Arc<[u8]> = key[..].into();
            let location = Location {
                segment: UNPLACED,
                offset: LogOffset(record.start as u64),
                record_bytes: record.record_bytes as u64,
            };
            match &record.subject {
                RecordSubject::Put(entry, descriptor) => {
                    let entry = Entry { id, number, location, ..**entry };
                    effects.put_over(&key, entry, descriptor.as_deref(), before)?
                }
                RecordSubject::Name(named) => {
                    let entry = Entry { id, number, location, ..named.entry };
                    effects.put_over(&key, entry, named.descriptor.as_ref(), before)?
                }
                RecordSubject::Attributes(named) => {
                    let entry = Entry { id, number, location, ..named.entry };
                    effects.put(&attributes_key(&key).into(), entry, None)?
                }
                RecordSubject::Removal(_) => effects.remove_over(&key, id, location, before).map(|_| ())?,
                RecordSubject::TreeRemoval(directories) if directories.is_empty() => {
                    effects.remove_over(&key, id, location, before).map(|_| ())?
                }
                RecordSubject::TreeRemoval(directories) => {
                    let top = (!record.key.is_empty()).then_some(&key);
                    effects.remove_tree(top, directories, id, location)?
                }
            }
        }
        effects.settle_names()?;
        let batch = Batched { alignment, ..self.batch_of(records) };
        let written = self.append_somewhere(&mut writer, &self.geometry(), purpose_of(waiting), batch)?;
        effects.appended(writer.active_row(), written.position);
        effects.placed(written.segment, written.begin);
        for record in waiting.iter_mut() {
            // This batch can no longer free what is committed.
            if let RecordSubject::Put(_, descriptor) = &mut record.subject {
                *descriptor = None;
            }
        }
        let mut change = effects.finish(Some(written.position));
        change.highest_id = Some(self.highest_id.load(Ordering::Relaxed));
        drop(accounts);
        writer.touched.merge(std::mem::take(touched));
        self.apply_pending(&mut writer, change)?;
        Ok(())
    }
}
