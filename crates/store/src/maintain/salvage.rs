//! Moving records out of segments that cannot be repaired, and freeing these.
//!
//! A record is moved with its id and timestamp, after a check under the writer's lock that its key still has it.
//! Removals are moved too, as other segments may have older records of their keys, if the index agrees with them: where
//! a commit is damaged, nothing else vouches for them. A segment whose header, or bytes that no live object needs, are
//! damaged on every copy is emptied in this way; what is unreadable in it was lost before. The caller has verified that
//! no removal is missing. So a segment stays if anything more of it cannot be read than when that was verified: it may
//! be a removal, and may be readable again. Memory does not grow with the number of records: what was moved becomes
//! durable, and part of a sorted table, on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::audit::Observation;
use super::problem::{Problem, ProblemKind, Remedy};
use crate::devices::placement::Purpose;
use crate::engine::effects::{Effects, Nameless, UNPLACED};
use crate::engine::pace::Pace;
use crate::engine::{Engine, EngineAccounts};
use crate::error::{Error, ErrorKind, Result};
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Entry, Kind, Location};
use crate::format::ids::{DeviceNumber, LogOffset, SegmentNumber};
use crate::format::index_key::until_of;
use crate::format::record::{Head, NewRecord, Record, decode_directories};
use crate::index::Snapshot;
use crate::index::catalog::{Change, ExtentRow, SegmentRow, Superseded};
use crate::layout::granulo::Alignment;
use crate::log::writer::Batched;

/// Most bytes and records in one commit.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_RECORDS: usize = 1 << 12;

/// Damage that no copy can repair, by segment, as a check met it: in order, without what objects in use are in.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownDamage(BTreeMap<SegmentNumber, Vec<Range<LogOffset>>>);

impl KnownDamage {
    /// Adds damage in a segment; `range` is that of bytes which are not records, if it is about such.
    pub(super) fn add(&mut self, segment: SegmentNumber, range: Option<Range<LogOffset>>) {
        self.0.entry(segment).or_default().extend(range);
    }

    /// The damaged segments.
    pub(super) fn segments(&self) -> BTreeSet<SegmentNumber> {
        self.0.keys().copied().collect()
    }

    /// Whether all bytes of a range are known to be damaged.
    fn covers(&self, segment: SegmentNumber, range: &Range<LogOffset>) -> bool {
        let known = self.0.get(&segment).into_iter().flatten();
        let reach =
            |end: LogOffset, known: &Range<LogOffset>| if known.start <= end { end.max(known.end) } else { end };
        known.fold(range.start, reach) >= range.end
    }
}

/// What became of a segment that was to be emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// Nothing in it is needed.
    Whole,
    /// The index has objects in it that could not be moved.
    InUse,
    /// These bytes cannot be read, and were not known to be damaged.
    Unread(Range<LogOffset>),
}

/// A record to be moved.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) key: Arc<[u8]>,
    /// Its index entry; for a removal, its id and place.
    pub(crate) entry: Entry,
    /// The map of a large object, if it is a new one.
    pub(crate) descriptor: Option<Descriptor>,
    /// The encoded record.
    bytes: Vec<u8>,
    /// The alignment for which it is encoded: that of the store may have changed since.
    alignment: Alignment,
}

impl Moving {
    /// A record with the same id that the index has under `key`; with another map if `descriptor` is one.
    ///
    /// # Errors
    /// If the descriptor is too long for a record.
    pub(crate) fn new(
        key: &[u8],
        entry: Entry,
        record: &Record<'_>,
        descriptor: Option<Descriptor>,
        alignment: Alignment,
    ) -> Result<Moving> {
        let head = &record.head;
        let map = descriptor.as_ref().map(Descriptor::encode);
        let content = map.as_deref().unwrap_or(record.content);
        let mut bytes = Vec::new();
        NewRecord::moved(*head, until_of(key), content).encode(alignment, &mut bytes)?;
        // The checksum is that of the verified read: a bit flip in memory in between is detected.
        let is_same = |again: Head<'_>| map.is_some() || again.content_checksum == head.content_checksum;
        if !Head::parse(&bytes).is_some_and(is_same) {
            return Err(Error::new(ErrorKind::Corrupt, "move a record", "its content changed in memory"));
        }
        Ok(Moving { key: key.into(), entry, descriptor, bytes, alignment })
    }
}

impl Engine {
    /// Commits moved records, as one batch if they have the same alignment; those whose keys have another record by now
    /// are omitted, and returned.
    ///
    /// # Errors
    /// Errors of writing.
    pub(crate) fn append_moved(&self, moving: Vec<Moving>) -> Result<Vec<Moving>> {
        let mut outdated = Vec::new();
        let mut moving = moving.into_iter().peekable();
        loop {
            let alignment = moving.peek().map_or_else(|| self.geometry().alignment, |record| record.alignment);
            let alike = std::iter::from_fn(|| moving.next_if(|record| record.alignment == alignment)).collect();
            outdated.extend(self.append_alike(alike, alignment)?);
            if moving.peek().is_none() {
                return Ok(outdated);
            }
        }
    }

    fn append_alike(&self, moving: Vec<Moving>, alignment: Alignment) -> Result<Vec<Moving>> {
        let mut writer = self.writer()?;
        let accounts = EngineAccounts::new(self);
        let mut effects = Effects::new(&accounts, Nameless::Go);
        let (mut current, mut outdated) = (Vec::with_capacity(moving.len()), Vec::new());
        for record in moving {
            let now = effects.look_up(&record.key)?;
            let has = now.is_some_and(|now| now.id == record.entry.id && now.location == record.entry.location);
            if has || !record.entry.kind.is_used() { current.push(record) } else { outdated.push(record) }
        }
        let (mut records, mut starts) = (Vec::new(), Vec::with_capacity(current.len()));
        for record in &current {
            starts.push(records.len() as u64);
            records.extend_from_slice(&record.bytes);
        }
        let geometry = self.geometry();
        for (record, start) in current.iter().zip(starts) {
            let record_bytes = record.bytes.len() as u64;
            let location = Location { segment: UNPLACED, offset: LogOffset(start), record_bytes };
            match record.entry.kind.is_used() {
                true => effects.put(&record.key, Entry { location, ..record.entry }, record.descriptor.as_ref())?,
                false => effects.dead(location, record.entry.id),
            }
        }
        let batch = Batched { alignment, ..self.batch_of(&mut records) };
        let written = self.append_claiming(&mut writer, &geometry, Purpose::Frees, batch)?;
        effects.appended(writer.active_row(), written.position);
        effects.placed(written.segment, written.begin);
        let change = effects.finish(Some(written.position));
        drop(accounts);
        self.apply_pending(&mut writer, change)?;
        Ok(outdated)
    }

    /// Recounts live units, after objects were dropped whose maps are lost. As long as another map cannot be read, its
    /// units are unknown, and the accounts stay: they are too high, not too low.
    ///
    /// # Errors
    /// Errors of reading the index.
    pub(crate) fn recount_units(&self) -> Result<()> {
        let snapshot = self.snapshot();
        let mut counted: BTreeMap<(DeviceNumber, u32), u64> = BTreeMap::new();
        let mut scan = snapshot.scan_versions_from(&[])?;
        while let Some((_, entry)) = scan.next_entry()? {
            if entry.kind == Kind::Large {
                let descriptor = match self.descriptor(entry) {
                    Ok(descriptor) => descriptor,
                    Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Corrupt) => return Ok(()),
                    Err(error) => return Err(error),
                };
                for run in descriptor.runs() {
                    *counted.entry((run.device, run.file)).or_default() += run.length_bytes;
                }
            }
        }
        self.adjust(|state| {
            let count = |row: &ExtentRow| ExtentRow {
                live_bytes: counted.get(&(row.device, row.file)).copied().unwrap_or(0),
                ..*row
            };
            let extents = state.extents.values().map(count).collect();
            Change { extents, durable: true, ..Change::default() }
        })
    }

    /// Frees segments in which nothing is needed, and forgets some notes in the same transaction.
    ///
    /// # Errors
    /// Errors of syncing and of the index.
    pub(super) fn supersede(&self, segments: Vec<SegmentNumber>, forgotten: &[&str]) -> Result<()> {
        self.adjust(|state| Change {
            superseded: segments.into_iter().map(|number| (state.epoch, Superseded::Segment(number))).collect(),
            notes: forgotten.iter().map(|&name| (name.to_owned(), Vec::new())).collect(),
            durable: true,
            ..Change::default()
        })
    }

    /// Moves the valid records out of a segment that no longer changes; returns whether anything in it is needed then,
    /// or may be, because it cannot be read and was not `known` to be damaged.
    ///
    /// # Errors
    /// Errors of reading the index, of writing and of `pace`.
    pub(super) fn empty_segment(&self, row: &SegmentRow, known: &KnownDamage, pace: &mut Pace<'_>) -> Result<Emptied> {
        let snapshot = self.snapshot();
        let (mut moving, mut bytes, mut unread) = (Vec::new(), 0, None);
        let most_bytes = self.batch_bytes(BATCH_BYTES);
        self.audit_segment(row, &snapshot, LogOffset::START, pace, &mut |sight, _| {
            let met = match sight {
                Observation::Record(met) => met,
                Observation::Damage(range, _) if unread.is_none() && !known.covers(row.number, &range) => {
                    unread = Some(range);
                    return Ok(());
                }
                _ => return Ok(()),
            };
            let location = Location { segment: row.number, offset: met.at, record_bytes: met.record.record_bytes() };
            let head = &met.record.head;
            let (key, entry) = match (head.kind, met.live) {
                (Kind::Removal | Kind::TreeRemoval, _) if agrees(&snapshot, &met.record)? => {
                    (head.key(), Entry { kind: head.kind, ..Entry::removal(head.id, location) })
                }
                (_, Some(entry)) => (met.key.clone(), entry),
                _ => return Ok(()),
            };
            let record = Moving::new(&key, entry, &met.record, None, self.geometry().alignment)?;
            bytes += record.bytes.len() as u64;
            moving.push(record);
            if bytes >= most_bytes || moving.len() >= BATCH_RECORDS {
                bytes = 0;
                self.append_moved(std::mem::take(&mut moving))?;
                // Moved entries stay in memory until they are in a sorted table.
                self.flush_if_full()?;
            }
            Ok(())
        })?;
        // Even without records: the log must not end in a segment that is freed.
        self.append_moved(moving)?;
        self.sync_all()?;
        let is_in_use = self.view().state.segments.get(&row.number).is_none_or(|now| now.live_records > 0);
        Ok(if is_in_use { Emptied::InUse } else { unread.map_or(Emptied::Whole, Emptied::Unread) })
    }

    /// The problem of a segment that stays, because not all of it could be read when it was to be freed.
    pub(super) fn problem_of_unread(&self, row: &SegmentRow, range: Range<LogOffset>) -> Problem {
        let cause = "these bytes could be read, and cannot any more: the segment was not freed, as they may be needed";
        Problem::new(ProblemKind::Record, self.segment_place(row), cause, Remedy::Repair).within(row.number, range)
    }
}

/// Whether the index has nothing that a removal removes.
fn agrees(snapshot: &Snapshot, removal: &Record<'_>) -> Result<bool> {
    let Head { kind, id, .. } = removal.head;
    let is_older = |entry: &Entry| entry.id < id;
    if snapshot.look_up(&removal.head.key())?.as_ref().is_some_and(is_older) {
        return Ok(false);
    }
    let directories = match kind {
        Kind::TreeRemoval => decode_directories(removal.content).unwrap_or_default(),
        _ => Vec::new(),
    };
    for directory in directories {
        let mut scan = snapshot.entries_of(directory)?;
        while let Some((_, entry)) = scan.next_entry()? {
            if is_older(entry) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::geometry::Geometry;
    use crate::log::scan::SegmentScan;
    use crate::{Attributes, Key, Plan, Store};

    #[test]
    fn damage_is_known_if_all_of_it_is() {
        let (of, other) = (SegmentNumber(1), SegmentNumber(2));
        let range = |start, end| LogOffset(start)..LogOffset(end);
        let mut known = KnownDamage::default();
        known.add(other, None);
        [(10, 20), (20, 30), (40, 50)].into_iter().for_each(|(start, end)| known.add(of, Some(range(start, end))));
        assert_eq!(known.segments(), BTreeSet::from([of, other]));
        assert!(known.covers(of, &range(12, 28)) && known.covers(of, &range(40, 50)));
        assert!(!known.covers(of, &range(25, 35)) && !known.covers(of, &range(28, 41)));
        assert!(!known.covers(of, &range(5, 15)) && !known.covers(other, &range(1, 2)));
    }

    #[test]
    fn a_record_is_moved_to_a_segment_of_the_alignment_that_it_was_encoded_for() {
        let sandbox = tempfile::tempdir().unwrap();
        let store = Store::create(&sandbox.path().join("s"), &Plan::default()).unwrap();
        let engine = store.engine();
        let names = ["a", "b", "c"].map(|name| Key::parse(name).unwrap());
        let moving = |key: &Key| {
            store.put(key, &Attributes::default(), b"content").unwrap();
            let entry = store.entry(key).unwrap().unwrap().entry;
            let mut buffer = Vec::new();
            let record = engine.read_entry(&entry, &mut buffer).unwrap();
            Moving::new(&record.head.key(), entry, &record, None, engine.geometry().alignment).unwrap()
        };
        let set = |alignment| engine.set_geometry(Geometry { alignment, ..(*engine.geometry()).clone() });
        let expected = [Alignment::None, Alignment::Page, Alignment::None];
        let mut moved = Vec::new();
        for (key, alignment) in names.iter().zip(expected) {
            set(alignment);
            moved.push(moving(key));
        }
        set(Alignment::Page);
        assert!(engine.append_moved(moved).unwrap().is_empty());
        for (key, alignment) in names.iter().zip(expected) {
            let location = store.entry(key).unwrap().unwrap().entry.location;
            let id = engine.segment_id(location.segment);
            let copies = engine.open_segment_copies(id, &engine.copies(location.segment));
            let header = SegmentScan::new(copies, engine.seed(id), LogOffset::START).header(id.into()).0;
            assert_eq!(header.map(|header| header.alignment), Some(alignment), "{key}");
            assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"content"[..]));
        }
    }
}
