//! Committing the pending state of an open file: the object's record is rewritten with other content.
//!
//! What is to be stored decides how. Content that fits a record is assembled in memory and compressed as by a put. In a
//! large object whose retained parts all stay in place, only affected stripes are written (see `splice`); any other is
//! rewritten from beginning to end, in bounded memory.
//!
//! If only attributes are pending, the content stays where it is, and they get a record of their own
//! ([`attributes`](crate::engine::attributes)), or the record is rewritten if it is small.
//!
//! Building it holds only the lock of the pending state. Then, with the writer's lock held, the record is checked to be
//! still the one that was read: if the object was put, renamed or moved meanwhile, the new bytes are abandoned, and
//! everything is repeated over the current state. So a batch and a handle that write the same object each see the
//! other's complete work. An object without a name gets no record: from then on it is what was built.

use std::ops::Range;
use std::sync::{Arc, RwLockWriteGuard};

use super::pending::{Pending, StoredPiece, WritePlan};
use super::{NamedBase, OpenFile};
use crate::devices::device::Room;
use crate::devices::extents::Touched;
use crate::devices::placement::Purpose;
use crate::engine::attributes::are_changed_alone;
use crate::engine::content::{Base, StoredContent, entry_of};
use crate::engine::effects::{Effects, Nameless, UNPLACED};
use crate::engine::{Engine, EngineAccounts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Attributes;
use crate::format::descriptor::{Chunk, Descriptor};
use crate::format::entry::{Entry, Kind, Location, Time};
use crate::format::geometry::Class;
use crate::format::ids::{LogOffset, ObjectNumber};
use crate::format::index_key::{attributes_key, entry_of_key};
use crate::format::key::shared_key;
use crate::format::record::{NewRecord, give_id, give_numbers};
use crate::layout::granulo::Striping;
use crate::locks::lock;
use crate::log::writer::{Batched, Writer};

/// How often to retry while others keep changing the same object.
const ATTEMPTS: u32 = 100;
/// Bytes per read of content that is rewritten.
const READ_BYTES: u64 = 4 << 20;
/// Holes that are stored as data are passed on in slices of this.
const ZEROES: [u8; 4096] = [0; 4096];

/// The new object.
#[derive(Debug)]
struct Built {
    base: Base,
    /// Chunks that no record references yet.
    fresh: Vec<Chunk>,
    touched: Touched,
}

/// An object, or its attributes, with a record that is to be appended.
struct NewEntry<'n> {
    /// Its key in the index.
    key: &'n Arc<[u8]>,
    /// The directory of its name.
    parent: ObjectNumber,
    /// Its future entry, without id and location.
    entry: Entry,
    descriptor: Option<&'n Descriptor>,
    /// Extent files with new units of it.
    touched: Touched,
}

impl OpenFile {
    /// Makes the pending state the content of the object; not durable.
    ///
    /// # Errors
    /// Any error of reading the object and of writing; [`ErrorKind::Busy`] if others keep changing it. Everything
    /// pending stays pending.
    pub(crate) fn commit(&self, engine: &Engine, pending: &mut RwLockWriteGuard<'_, Pending>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if pending.is_empty() {
                return Ok(());
            }
            if pending.has_only_attributes() && self.take_attributes(engine, pending)? {
                **pending = Pending::default();
                return Ok(());
            }
            let outcome = self.read_with(engine, |NamedBase { base, named }| {
                engine.build(self.number, base, pending).map(|built| (named.clone(), built))
            });
            match outcome.and_then(|(named, built)| self.take(engine, named, built)) {
                Ok(true) => {
                    **pending = Pending::default();
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) if engine.goes_on_without(&error)? => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, "write to an object", "others keep changing it"))
    }

    /// Makes the object what was built; returns whether it was still what that was built from.
    fn take(&self, engine: &Engine, named: Option<(Arc<[u8]>, Entry)>, mut built: Built) -> Result<bool> {
        let fresh = std::mem::take(&mut built.fresh);
        let taken = match named {
            Some((key, entry)) => engine.put_again(self, &key, entry, built),
            None => Ok(self.replace_nameless(built)),
        };
        match &taken {
            Ok(true) => {}
            // After other failures it is unknown what is in the log, so units that it may reference stay.
            Err(error) if error.kind() != ErrorKind::NoSpace => {}
            _ => self.allocator.give_up_chunks(fresh),
        }
        taken
    }

    /// Commits pending attributes in a record of their own; returns whether that was possible.
    fn take_attributes(&self, engine: &Engine, pending: &Pending) -> Result<bool> {
        let NamedBase { base, named } = self.current(engine)?;
        match named.filter(|(_, entry)| are_changed_alone(&engine.view().state, entry)) {
            Some((key, entry)) => {
                let ctime = Some(pending.given_ctime().unwrap_or_else(|| engine.now()));
                let attributes = Attributes { ctime, ..pending.attributes_over(&base.attributes, None) };
                engine.put_attributes(self, &key, entry, &attributes)
            }
            None => Ok(false),
        }
    }

    fn replace_nameless(&self, built: Built) -> bool {
        let mut place = lock(&self.place);
        if place.named.is_some() {
            return false;
        }
        place.base = Some(Arc::new(built.base));
        place.touched.merge(built.touched);
        self.claim(&mut place);
        true
    }

    /// The extent files with units of an object without a name; `None` if it has one.
    pub(crate) fn unnamed_units(&self) -> Option<Touched> {
        let place = lock(&self.place);
        place.named.is_none().then(|| place.touched.clone())
    }
}

impl Engine {
    /// Appends stored content of an object to `onto`.
    ///
    /// # Errors
    /// As [`read_units`](Self::read_units).
    pub(crate) fn read_stored(&self, base: &Base, range: Range<u64>, onto: &mut Vec<u8>) -> Result<()> {
        match &base.content {
            StoredContent::Striped(descriptor) => self.read_units(descriptor, range, onto),
            StoredContent::Whole(content) => {
                let wrong =
                    || Error::new(ErrorKind::Corrupt, "read", "the object has less data than its list of holes states");
                onto.extend_from_slice(content.get(range.start as usize..range.end as usize).ok_or_else(wrong)?);
                Ok(())
            }
        }
    }

    /// Passes what is to be stored to `give`, in order, in slices of 4 MiB at most, or of one write.
    fn for_each_slice(
        &self,
        base: &Base,
        plan: &WritePlan<'_>,
        give: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for piece in &plan.pieces {
            match piece {
                StoredPiece::New(new) => give(new)?,
                StoredPiece::Zeroes(length) => {
                    for at in (0..*length).step_by(ZEROES.len()) {
                        give(&ZEROES[..(length - at).min(ZEROES.len() as u64) as usize])?;
                    }
                }
                StoredPiece::Kept(range) => {
                    for at in range.clone().step_by(READ_BYTES as usize) {
                        bytes.clear();
                        self.read_stored(base, at..(at + READ_BYTES).min(range.end), &mut bytes)?;
                        give(&bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Builds the new object and writes its units, which nothing references yet: they are not synced (see
    /// [`Touched`]), and given back if this fails.
    fn build(&self, number: ObjectNumber, base: &Base, pending: &Pending) -> Result<Built> {
        let mut plan = pending.plan(base)?;
        let attributes_before_ctime = pending.attributes_over(&base.attributes, plan.holes.take());
        let ctime = Some(pending.given_ctime().unwrap_or_else(|| self.now()));
        let attributes = Attributes { ctime, ..attributes_before_ctime };
        let size_bytes = plan.size_bytes;
        let built_of =
            |content, fresh, touched| Ok(Built { base: Base { attributes, size_bytes, content }, fresh, touched });
        if plan.stored_bytes <= self.geometry().largest_record_bytes() {
            let mut content = Vec::with_capacity(plan.stored_bytes as usize);
            self.for_each_slice(base, &plan, &mut |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
            return built_of(StoredContent::Whole(content), Vec::new(), Touched::default());
        }
        // By splicing first: stripes that stay in place are neither read nor written, even if new ones would now go to
        // other devices. Units are placed by the number of the object: its path may change while it is open.
        if let (StoredContent::Striped(before), Some(edits)) = (&base.content, plan.edits()) {
            let (order, rule) = self.striping_of(&shared_key(number));
            let stored_bytes = plan.stored_bytes;
            let (allocator, striping) = (self.allocator(), (&order[..], rule));
            let splice =
                |has_no_room| self.extents.splice(&allocator, striping, before, &edits, (stored_bytes, has_no_room));
            let spliced = match splice(false)? {
                None if !self.has_room_for(stored_bytes, rule)? => splice(true)?,
                spliced => spliced,
            };
            if let Some(spliced) = spliced {
                let descriptor = Descriptor { stored_bytes, packed: spliced.packed, chunks: spliced.chunks };
                return built_of(StoredContent::Striped(descriptor), spliced.fresh, spliced.touched);
            }
        }
        let mut writer = self.begin_large(&shared_key(number), Some(plan.stored_bytes));
        self.for_each_slice(base, &plan, &mut |bytes| writer.write(bytes))?;
        let written = writer.finish()?;
        let fresh = written.descriptor.chunks.clone();
        built_of(StoredContent::Striped(written.descriptor), fresh, written.touched)
    }

    /// Whether the devices have room for another object of this length.
    fn has_room_for(&self, stored_bytes: u64, rule: Striping) -> Result<bool> {
        let rooms = self
            .devices
            .writable(Class::Slow)
            .iter()
            .map(|slot| slot.room().map(Room::put_bytes))
            .collect::<Result<Vec<_>>>()?;
        let needed_bytes = stored_bytes / u64::from(rule.data).max(1) * (u64::from(rule.data) + u64::from(rule.parity));
        Ok(rooms.into_iter().fold(0, u64::saturating_add) >= needed_bytes)
    }

    /// Writes new attributes of an object, all of them set, if its record is still that of `before` and no snapshot
    /// needs another; returns whether that is so.
    fn put_attributes(&self, file: &OpenFile, key: &Arc<[u8]>, before: Entry, attributes: &Attributes) -> Result<bool> {
        let geometry = self.geometry();
        let (mut stored, mut records) = (Vec::new(), Vec::new());
        attributes.encode(Time::default(), &mut stored)?;
        let (parent, name) = place_of(key);
        let new = NewRecord { name, attributes: &stored, ..NewRecord::of(Kind::Attributes) };
        new.encode(geometry.alignment, &mut records)?;
        let mut writer = self.writer()?;
        let accounts = EngineAccounts::new(self);
        if lock(&file.place).named.as_ref().is_none_or(|(_, now)| *now != before)
            || !are_changed_alone(&accounts.state, &before)
        {
            return Ok(false);
        }
        let entry = Entry { number: file.number, ..entry_of(Kind::Attributes, attributes, Time::default()) };
        let key = attributes_key(key).into();
        let new = NewEntry { key: &key, parent, entry, descriptor: None, touched: Touched::default() };
        self.append_record(&mut writer, accounts, Purpose::Changes, records, new)?;
        Ok(true)
    }

    /// Appends the encoded record of an object and applies it. Called with the writer's lock held.
    fn append_record(
        &self,
        writer: &mut Writer,
        accounts: EngineAccounts<'_>,
        claim: Purpose,
        mut records: Vec<u8>,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let geometry = self.geometry();
        let id = self.give_ids(1)?;
        give_id(&mut records, id);
        give_numbers(&mut records, new.entry.number, new.parent);
        let location = Location { segment: UNPLACED, offset: LogOffset::START, record_bytes: records.len() as u64 };
        let mut effects = Effects::new(&accounts, Nameless::Go);
        effects.put(new.key, Entry { id, location, ..new.entry }, new.descriptor)?;
        effects.settle_names()?;
        let batch = Batched { alignment: geometry.alignment, ..self.batch_of(&mut records) };
        let written = self.append_somewhere(writer, &geometry, claim, batch)?;
        effects.appended(writer.active_row(), written.position);
        effects.placed(written.segment, written.begin);
        let change = effects.finish(Some(written.position));
        drop(accounts);
        writer.touched.merge(new.touched);
        self.apply_pending(writer, change)
    }

    /// Rewrites the record of an object with what was built, if its record is still that of `before`; returns whether
    /// it is.
    fn put_again(&self, file: &OpenFile, key: &Arc<[u8]>, before: Entry, built: Built) -> Result<bool> {
        let geometry = self.geometry();
        let mut records = Vec::new();
        let (parent, name) = place_of(key);
        let attributes = &built.base.attributes;
        built.base.encode(attributes, name, geometry.alignment, geometry.compression, &mut records)?;
        let mut writer = self.writer()?;
        if lock(&file.place).named.as_ref().is_none_or(|(_, now)| *now != before) {
            return Ok(false);
        }
        let entry = Entry { number: file.number, ..built.base.entry(attributes) };
        let is_shorter = built.base.size_bytes == 0 || built.base.size_bytes < before.size_bytes;
        let claim = if is_shorter { Purpose::Changes } else { Purpose::Put };
        let (descriptor, touched) = (built.base.descriptor(), built.touched);
        let new = NewEntry { key, parent, entry, descriptor, touched };
        self.append_record(&mut writer, EngineAccounts::new(self), claim, records, new)?;
        // Nobody else changes the place while the lock is held.
        lock(&file.place).base = Some(Arc::new(built.base));
        Ok(true)
    }
}

/// The directory of an entry and its name there, as its record has them; none for an object with several names.
fn place_of(key: &[u8]) -> (ObjectNumber, Option<&[u8]>) {
    match entry_of_key(key) {
        Some((parent, name)) => (parent, Some(name)),
        None => (ObjectNumber::NONE, None),
    }
}
