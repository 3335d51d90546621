//! What a log that was read leaves without a reference: shared objects without a name, and attributes records without
//! an object.
//!
//! Compaction moves records, so a name or an object may come after what refers to it: only once the log has been read
//! to its end is it known what has none. Both are removed some per transaction, each complete by itself; without space
//! in the index they stay, unreachable, until the next rebuild or compaction.

use std::collections::HashMap;
use std::ops::Bound;

use super::effects::{Effects, Nameless};
use super::snapshots::DROPPED_TOGETHER;
use super::{Engine, EngineAccounts};
use crate::error::Result;
use crate::format::entry::Kind;
use crate::format::ids::ObjectNumber;
use crate::format::index_key::{
    first_attributes, first_object, first_superseded, object_key, object_of, object_of_attributes, until_of,
};

impl Engine {
    /// Removes shared objects without a name from a rebuilt index, some per transaction: each by itself is complete.
    /// Nothing may be pending, and no batch may arrive.
    ///
    /// # Errors
    /// Errors of the index.
    pub(crate) fn drop_nameless(&self) -> Result<()> {
        let mut named_until = None;
        let mut next = Some(first_object());
        while let Some(from) = next.take() {
            let accounts = EngineAccounts::new(self);
            let mut nameless = Vec::new();
            let mut scan = accounts.snapshot.scan_from(&from)?;
            while let Some((key, _)) = scan.next_entry()? {
                let Some(number) = object_of(key) else { break };
                if nameless.len() == DROPPED_TOGETHER {
                    next = Some(object_key(number));
                    break;
                }
                if accounts.state.shared.get(&number).copied().unwrap_or(0) == 0 {
                    nameless.push(number);
                }
            }
            drop(scan);
            // All versions are read for it: not without need.
            if !nameless.is_empty() && named_until.is_none() {
                named_until = Some(self.named_in_snapshots()?);
            }
            let known = |number: ObjectNumber| named_until.as_ref().and_then(|known| known.get(&number)).copied();
            let until = |number: ObjectNumber| (number, known(number).unwrap_or(0));
            let mut effects = Effects::new(&accounts, Nameless::Go);
            effects.drop_nameless(nameless.into_iter().map(until))?;
            let change = effects.finish(None);
            drop(accounts);
            self.change_index(&change)?;
        }
        Ok(())
    }

    /// Shared objects that have a name in a snapshot, with the record that superseded the last of these names: until
    /// then they were in use. One that had lost its last name before is in no snapshot.
    fn named_in_snapshots(&self) -> Result<HashMap<ObjectNumber, u64>> {
        let mut named_until = HashMap::new();
        let mut scan = self.snapshot().scan_versions_from(&first_superseded())?;
        while let Some((key, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Link {
                let until: &mut u64 = named_until.entry(entry.linked()).or_default();
                *until = until_of(key).max(*until);
            }
        }
        Ok(named_until)
    }

    /// Removes attributes records from the index that no entry of an object refers to, as
    /// [`drop_nameless`](Self::drop_nameless).
    pub(super) fn drop_unjoined(&self) -> Result<()> {
        let mut next = Some(first_attributes().to_vec());
        while let Some(from) = next.take() {
            let accounts = EngineAccounts::new(self);
            let mut effects = Effects::new(&accounts, Nameless::Go);
            let (mut dropped, to) = (0, first_superseded());
            let mut scan = accounts.snapshot.scan(Bound::Included(&from), Bound::Excluded(&to))?;
            while let Some((key, attributes)) = scan.next_entry()? {
                let object = object_of_attributes(key).map(|object| accounts.snapshot.look_up(&object)).transpose()?;
                if object.flatten().is_some_and(|object| object.attributes_id == attributes.id) {
                    continue;
                }
                if dropped == DROPPED_TOGETHER {
                    next = Some(key.to_vec());
                    break;
                }
                effects.drop_unjoined(key)?;
                dropped += 1;
            }
            drop(scan);
            let change = effects.finish(None);
            drop(accounts);
            self.change_index(&change)?;
        }
        Ok(())
    }
}
