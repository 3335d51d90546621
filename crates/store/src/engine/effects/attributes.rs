//! Attributes that were changed alone: a record of their own, whose entry has a key beside that of the object.
//!
//! Laws: an attributes record belongs to the newest record of its object that is older than itself, and is retired with
//! it. The entry of the object has the id of its newest attributes record, and what a listing shows of it. In a log
//! that is read from its beginning the two may come in either order, as compaction moves records: whichever is second
//! joins them, and the removal of an object looks for both. Until then they may be joined with an older record of their
//! object, which is told when it is superseded ([`as_it_was`](Effects::as_it_was)). What stays without an object,
//! because that is lost, or only in a snapshot, is taken out at the end ([`drop_unjoined`](Effects::drop_unjoined)).

use std::sync::Arc;

use super::{Accounts, Effects, Leaves};
use crate::error::Result;
use crate::format::entry::{Entry, Kind};
use crate::format::index_key::{attributes_key, object_of_attributes, until_of};

impl<L: Accounts> Effects<'_, L> {
    /// Applies an attributes record; `key` is its own.
    pub(super) fn put_attributes(&mut self, key: &Arc<[u8]>, new: Entry) -> Result<()> {
        let object_key = object_of_attributes(key).expect("an attributes record has the key of one");
        let object = self.look_up(&object_key)?;
        let old = self.look_up(key)?;
        if object.is_some_and(|object| object.id > new.id) || old.is_some_and(|old| old.id > new.id) {
            self.dead(new.location, new.id);
            return Ok(());
        }
        if let Some(old) = old {
            let leaves = if old.id == new.id { Leaves::Moved } else { Leaves::Superseded(new.id) };
            self.retire(key, old, leaves)?;
        }
        self.count(new);
        self.keys.insert(key, new);
        match object.filter(|object| is_of(object, &new)) {
            Some(object) => self.keys.insert(&object_key.into(), object.with_attributes(&new)),
            None => self.unjoined += 1,
        }
        Ok(())
    }

    /// An entry that comes instead of `old`, with the attributes record that is newer than it, if there is one. An
    /// older one is retired.
    pub(super) fn join_attributes(&mut self, key: &[u8], old: Option<Entry>, new: Entry) -> Result<Entry> {
        let Some((own, attributes)) = self.attributes_record(key, old)? else { return Ok(new) };
        if attributes.id > new.id {
            return Ok(if is_of(&new, &attributes) { new.with_attributes(&attributes) } else { new });
        }
        self.take_out(&own, attributes, new.id)?;
        Ok(new)
    }

    /// Retires the attributes record of an object that record `id` removes.
    pub(super) fn retire_attributes(&mut self, key: &[u8], old: Option<Entry>, id: u64) -> Result<()> {
        match self.attributes_record(key, old)?.filter(|(_, attributes)| attributes.id <= id) {
            Some((own, attributes)) => self.take_out(&own, attributes, id),
            None => Ok(()),
        }
    }

    /// Retires the attributes record of a shared object that goes with its last name, if only in a snapshot until
    /// record `until`.
    pub(super) fn drop_attributes(&mut self, key: &[u8], old: Entry, until: u64) -> Result<()> {
        match self.attributes_record(key, Some(old))? {
            Some((own, attributes)) => self.take_out(&own, attributes, until),
            None => Ok(()),
        }
    }

    fn take_out(&mut self, key: &Arc<[u8]>, attributes: Entry, until: u64) -> Result<()> {
        self.forget(key, until, attributes.location);
        self.retire(key, attributes, Leaves::Superseded(until))
    }

    fn may_have_unjoined(&self) -> bool {
        self.unjoined > 0 || self.accounts.may_have_unjoined()
    }

    /// The attributes record of an object whose entry is `old`, with its key.
    fn attributes_record(&self, key: &[u8], old: Option<Entry>) -> Result<Option<(Arc<[u8]>, Entry)>> {
        let has_one = old.is_some_and(|old| old.attributes_id > 0);
        if !has_one && !self.may_have_unjoined() {
            return Ok(None);
        }
        let key: Arc<[u8]> = attributes_key(key).into();
        Ok(self.look_up(&key)?.map(|attributes| (key, attributes)))
    }

    /// A version of an object, or of an attributes record, superseded by record `until`, joined with its counterpart.
    pub(super) fn join_version(&mut self, of: &[u8], until: u64, new: Entry) -> Result<Entry> {
        if new.kind != Kind::Attributes {
            // What removed it may come later in the log, or is the removal of its last name.
            if let Some(now) = self.look_up(of)?.filter(|now| now.id == new.id) {
                return Ok(new.with_attributes_as(&self.as_it_was(of, now, until)?));
            }
            if !self.may_have_unjoined() {
                return Ok(new);
            }
            let own = attributes_key(of);
            let newest = match self.look_up(&own)? {
                Some(now) if now.id < until => Some(now),
                _ => self.newest_version_before(&own, until)?,
            };
            let newest = newest.filter(|attributes| attributes.id > new.id && is_of(&new, attributes));
            return Ok(newest.map_or(new, |attributes| new.with_attributes(&attributes)));
        }
        let Some(object_key) = object_of_attributes(of) else { return Ok(new) };
        match self.version_behind(&object_key, new.id)? {
            Some((key, object)) if is_of(&object, &new) && object.id < new.id && object.attributes_id < new.id => {
                self.set_version(&key.into(), object.with_attributes(&new));
            }
            Some((_, object)) if is_of(&object, &new) && object.id < new.id => {}
            _ => self.unjoined += 1,
        }
        Ok(new)
    }

    /// An entry as it was before record `until` superseded it, if it was joined with newer attributes: those of another
    /// record of its object, which was moved and comes later in the log.
    pub(super) fn as_it_was(&self, key: &[u8], old: Entry, until: u64) -> Result<Entry> {
        if old.attributes_id <= until {
            return Ok(old);
        }
        let own = self.accounts.with_own_attributes(old)?;
        let then = self.newest_version_before(&attributes_key(key), until)?;
        let then = then.filter(|attributes| attributes.id > old.id && is_of(&own, attributes));
        Ok(then.map_or(own, |attributes| own.with_attributes(&attributes)))
    }

    /// The newest version of a key from before a sequence number.
    fn newest_version_before(&self, key: &[u8], sequence: u64) -> Result<Option<Entry>> {
        let (mut newest, mut behind) = (None, 0);
        while let Some((version, entry)) = self.version_behind(key, behind)?.filter(|(_, entry)| entry.id < sequence) {
            newest = Some(entry);
            behind = until_of(&version);
        }
        Ok(newest)
    }

    /// How many attributes records came whose object had no entry.
    pub(crate) fn unjoined(&self) -> u64 {
        self.unjoined
    }

    /// Removes an attributes record whose object has no entry that says so. If a snapshot has the object, it has them.
    pub(crate) fn drop_unjoined(&mut self, key: &[u8]) -> Result<()> {
        let Some(attributes) = self.look_up(key)? else { return Ok(()) };
        let object_key = object_of_attributes(key).expect("an attributes record has the key of one");
        let version = self.version_behind(&object_key, attributes.id)?;
        let version = version.filter(|(_, object)| object.id < attributes.id && is_of(object, &attributes));
        let until = version.map_or(attributes.id, |(version, _)| until_of(&version));
        self.take_out(&key.into(), attributes, until)
    }
}

/// Whether an object may have these attributes.
fn is_of(object: &Entry, attributes: &Entry) -> bool {
    object.kind.is_file() && object.number == attributes.number
}
