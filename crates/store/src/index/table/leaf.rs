//! The value of a key in a leaf (docs/FORMAT.md, section 10): numbers as differences from the previous entry, where
//! that makes them small.
//!
//! A leaf can be read from any restart, so an entry there refers to nothing. A tombstone has only a kind and an id. Ids
//! refer to the previous entry; locations and times to the previous one that is no tombstone.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use crate::format::entry::{Entry, Kind, Location, StoredKind, Time};
use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::io::varint::{put, take, unzigzag, zigzag};

/// Mode, owner, owning group.
pub(crate) type AttributeClass = (u16, u32, u32);

/// The class of an entry.
pub(crate) fn class_of(entry: &Entry) -> AttributeClass {
    (entry.mode, entry.uid, entry.gid)
}

const KIND_BITS: u8 = 0x0f;
/// The record directly follows the previous one.
const ADJACENT: u8 = 0x10;
/// The size is encoded as how much less it is than the record's length.
const SIZE_BELOW_RECORD: u8 = 0x20;
/// The record is not the first of its object: the object's number is encoded, as how much less it is than the id.
const NUMBERED: u8 = 0x40;
/// The change time is encoded: it differs from the modification time.
const CHANGED: u8 = 0x80;
/// The change time equals that of the previous entry.
const CHANGED_WITH_BEFORE: u64 = 0;

/// What an entry's numbers refer to. The default is for a restart: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Previous {
    id: u64,
    seconds: i64,
    /// Change time of the last entry; `None` at a restart.
    changed: Option<Time>,
    /// Segment of the last record, and where it ends; `None` at a restart.
    place: Option<(SegmentNumber, LogOffset)>,
}

/// An entry as stored in a leaf, with the number of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    kind: Kind,
    id: u64,
    number: ObjectNumber,
    attributes_id: u64,
    is_plain: bool,
    location: Location,
    size_bytes: u64,
    class: u64,
    mtime: Time,
    ctime: Time,
}

impl LeafEntry {
    /// The entry; `None` if there is no such class.
    #[inline(always)]
    pub(crate) fn resolve(&self, classes: &[AttributeClass]) -> Option<Entry> {
        if self.kind == Kind::Removal {
            return Some(Entry::removal(self.id, self.location));
        }
        let &(mode, uid, gid) = classes.get(usize::try_from(self.class).ok()?)?;
        let LeafEntry { kind, id, number, attributes_id, is_plain, location, size_bytes, mtime, ctime, .. } = *self;
        Some(Entry { kind, id, number, attributes_id, is_plain, location, size_bytes, mode, uid, gid, mtime, ctime })
    }
}

/// Why a sorted table cannot have the entry; `None` if it can.
pub(crate) fn refuse(entry: &Entry) -> Option<&'static str> {
    let Location { offset, record_bytes, .. } = entry.location;
    match entry.kind {
        Kind::Removal => None,
        Kind::TreeRemoval | Kind::Commit | Kind::Release | Kind::Snapshot => {
            Some("entries of this kind are not in an index")
        }
        _ if offset.0 % 4 != 0 || record_bytes % 4 != 0 || offset.0.checked_add(record_bytes).is_none() => {
            Some("the location of its record is impossible")
        }
        _ if ObjectNumber::stored(entry.number.0).is_none_or(ObjectNumber::is_none) || entry.number.0 > entry.id => {
            Some("the number of its object is impossible")
        }
        kind if entry.attributes_id > 0 && !(kind.is_file() && entry.attributes_id > entry.id) => {
            Some("it cannot have attributes of their own with this id")
        }
        kind if entry.is_plain && (kind.plain_code().is_none() || entry.attributes_id > 0) => {
            Some("it has attributes that it does not show")
        }
        _ if entry.mtime.nanoseconds.max(entry.ctime.nanoseconds) >= 1_000_000_000 => {
            Some("the nanoseconds of its time are a second or more")
        }
        _ if seconds_between(entry).is_none() => Some("its times are too far apart"),
        _ => None,
    }
}

/// The encoded difference of change time and modification time in seconds, with room for the value that means the
/// previous entry's.
fn seconds_between(entry: &Entry) -> Option<u64> {
    zigzag(entry.ctime.seconds.checked_sub(entry.mtime.seconds)?).checked_add(1)
}

/// Appends an entry that [`refuse`] accepts; `class` is the number of its class.
pub(crate) fn encode(out: &mut Vec<u8>, before: &mut Previous, entry: &Entry, class: u64) {
    let id_difference = zigzag(entry.id.wrapping_sub(before.id) as i64);
    before.id = entry.id;
    if entry.kind == Kind::Removal {
        out.push(entry.kind as u8);
        put(out, id_difference);
        return;
    }
    let Location { segment, offset, record_bytes } = entry.location;
    let adjacent = before.place == Some((segment, offset));
    // A link's size is the number of a shared object and unrelated to its record.
    let below_record = record_bytes
        .checked_sub(entry.size_bytes)
        .filter(|&difference| entry.kind != Kind::Link && difference < entry.size_bytes);
    let number_below = entry.id.wrapping_sub(entry.number.0);
    let mut tag = entry.stored_kind();
    tag |= if adjacent { ADJACENT } else { 0 };
    tag |= if below_record.is_some() { SIZE_BELOW_RECORD } else { 0 };
    tag |= if number_below > 0 { NUMBERED } else { 0 };
    tag |= if entry.ctime == entry.mtime { 0 } else { CHANGED };
    out.push(tag);
    put(out, id_difference);
    if number_below > 0 {
        put(out, number_below);
    }
    if entry.attributes_id > 0 {
        put(out, entry.attributes_id.wrapping_sub(entry.id));
    }
    if !adjacent {
        put(out, segment.0);
        put(out, offset.0 / 4);
    }
    put(out, record_bytes / 4);
    put(out, below_record.unwrap_or(entry.size_bytes));
    put(out, class);
    put(out, zigzag(entry.mtime.seconds.wrapping_sub(before.seconds)));
    put(out, u64::from(entry.mtime.nanoseconds));
    if before.changed == Some(entry.ctime) && entry.ctime != entry.mtime {
        put(out, CHANGED_WITH_BEFORE);
    } else if entry.ctime != entry.mtime {
        put(out, seconds_between(entry).unwrap_or(CHANGED_WITH_BEFORE));
        put(out, u64::from(entry.ctime.nanoseconds));
    }
    before.changed = Some(entry.ctime);
    before.seconds = entry.mtime.seconds;
    before.place = Some((segment, offset + record_bytes));
}

/// Decodes the entry at `at` and advances `at`; `None` if it is invalid: numbers and flags are those that [`encode`]
/// writes, and no others.
///
/// Always inlined: otherwise the result is copied by words just after it was written by fields, and the processor
/// stalls.
#[inline(always)]
pub(crate) fn decode(bytes: &[u8], at: &mut usize, before: &mut Previous) -> Option<LeafEntry> {
    let tag = *bytes.get(*at)?;
    *at += 1;
    let StoredKind { kind, has_attributes_id, is_plain } = StoredKind::of(tag & KIND_BITS)?;
    let id = before.id.wrapping_add(unzigzag(take(bytes, at)?) as u64);
    before.id = id;
    if !kind.is_used() {
        let location = Location::NONE;
        let (mtime, ctime) = (Time::default(), Time::default());
        let removal = LeafEntry {
            kind,
            id,
            number: ObjectNumber::NONE,
            attributes_id: 0,
            is_plain: false,
            location,
            size_bytes: 0,
            class: 0,
            mtime,
            ctime,
        };
        return (tag == Kind::Removal as u8).then_some(removal);
    }
    let number_below = if tag & NUMBERED != 0 { Some(take(bytes, at)?).filter(|&below| below > 0)? } else { 0 };
    let number = id.checked_sub(number_below).filter(|&number| number > 0)?;
    let attributes_id = match has_attributes_id {
        true => id.checked_add(take(bytes, at)?).filter(|&attributes_id| attributes_id > id)?,
        false => 0,
    };
    let (segment, offset) = if tag & ADJACENT != 0 {
        before.place?
    } else {
        (SegmentNumber(take(bytes, at)?), LogOffset(take(bytes, at)?.checked_mul(4)?))
    };
    let record_bytes = take(bytes, at)?.checked_mul(4)?;
    let size = take(bytes, at)?;
    let size_bytes = match tag & SIZE_BELOW_RECORD {
        0 => size,
        _ => record_bytes.checked_sub(size).filter(|&size_bytes| kind != Kind::Link && size < size_bytes)?,
    };
    let class = take(bytes, at)?;
    let seconds = before.seconds.wrapping_add(unzigzag(take(bytes, at)?));
    let mtime = Time { seconds, nanoseconds: take_nanoseconds(bytes, at)? };
    let ctime = match tag & CHANGED {
        0 => mtime,
        _ => match take(bytes, at)? {
            CHANGED_WITH_BEFORE => before.changed?,
            behind => {
                let seconds = seconds.wrapping_add(unzigzag(behind - 1));
                Time { seconds, nanoseconds: take_nanoseconds(bytes, at)? }
            }
        },
    };
    before.changed = Some(ctime);
    before.seconds = seconds;
    before.place = Some((segment, LogOffset(offset.0.checked_add(record_bytes)?)));
    let location = Location { segment, offset, record_bytes };
    let number = ObjectNumber::stored(number)?;
    Some(LeafEntry { kind, id, number, attributes_id, is_plain, location, size_bytes, class, mtime, ctime })
}

#[inline(always)]
fn take_nanoseconds(bytes: &[u8], at: &mut usize) -> Option<u32> {
    u32::try_from(take(bytes, at)?).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64, offset: u64, record_bytes: u64, size_bytes: u64) -> Entry {
        Entry {
            kind: Kind::File,
            id,
            number: ObjectNumber(id),
            attributes_id: 0,
            is_plain: false,
            location: Location { segment: SegmentNumber(3), offset: LogOffset(offset), record_bytes },
            size_bytes,
            mode: 0o100_644,
            uid: 1,
            gid: 2,
            mtime: Time { seconds: -5, nanoseconds: 999_999_999 },
            ctime: Time { seconds: -5, nanoseconds: 999_999_999 },
        }
    }

    #[test]
    fn a_change_time_is_told_once_for_entries_that_share_it() {
        let nowhere = Location::NONE;
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        let imported = |id, mtime| Entry { mtime, ctime: time(60, 9), ..file(id, 80 * id, 80, 0) };
        let written = |id, mtime| Entry { mtime, ctime: mtime, ..file(id, 80 * id, 80, 0) };
        let entries = [
            imported(1, time(0, 1)),
            imported(2, time(3, 1)),
            Entry::removal(3, nowhere),
            imported(4, time(61, 1)),
            written(5, time(62, 1)),
            imported(6, time(62, 1)),
            // An entry changed together with another needs no change time if that equals its modification time.
            imported(7, time(60, 9)),
            Entry { ctime: time(-3, 2), ..written(8, time(60, 9)) },
        ];
        let (mut told, mut untold) = (Vec::new(), Vec::new());
        let (mut before, mut without) = (Previous::default(), Previous::default());
        let mut more = Vec::new();
        for entry in &entries {
            let lengths = (told.len(), untold.len());
            encode(&mut told, &mut before, entry, 0);
            encode(&mut untold, &mut without, &Entry { ctime: entry.mtime, ..*entry }, 0);
            more.push((told.len() - lengths.0) - (untold.len() - lengths.1));
        }
        assert_eq!(more, [2, 1, 0, 1, 0, 2, 0, 2]);
        let (mut at, mut before) = (0, Previous::default());
        for entry in entries {
            let read = decode(&told, &mut at, &mut before).unwrap();
            assert_eq!(read.resolve(&[(0o100_644, 1, 2)]), Some(entry));
        }
        assert_eq!(at, told.len());
    }

    #[test]
    fn a_record_right_after_the_last_takes_no_place_even_behind_a_removal() {
        let (mut out, mut before) = (Vec::new(), Previous::default());
        let place = Location { segment: SegmentNumber(9), offset: LogOffset(4), record_bytes: 4 };
        let entries = [file(7, 80, 20_064, 20_000), Entry::removal(8, place), file(9, 20_144, 64, 0)];
        let mut lengths = Vec::new();
        for entry in &entries {
            let start = out.len();
            encode(&mut out, &mut before, entry, 0);
            lengths.push(out.len() - start);
        }
        assert_eq!(lengths, [14, 2, 11]);
        let (mut at, mut before) = (0, Previous::default());
        let nowhere = Location::NONE;
        for entry in [entries[0], Entry::removal(8, nowhere), entries[2]] {
            let read = decode(&out, &mut at, &mut before).unwrap();
            assert_eq!(read.resolve(&[(0o100_644, 1, 2)]), Some(entry));
        }
        assert_eq!(at, out.len());
    }

    #[test]
    fn the_id_of_attributes_of_their_own_follows_that_of_the_record() {
        let entries = [
            Entry { attributes_id: 10, ..file(7, 80, 20_064, 20_000) },
            Entry { attributes_id: 9, kind: Kind::Large, number: ObjectNumber(3), ..file(8, 20_144, 80, 1 << 30) },
            Entry { kind: Kind::Attributes, number: ObjectNumber(7), ..file(10, 20_224, 80, 0) },
        ];
        let (mut out, mut before) = (Vec::new(), Previous::default());
        entries.iter().for_each(|entry| encode(&mut out, &mut before, entry, 0));
        let (mut at, mut before) = (0, Previous::default());
        for entry in entries {
            assert_eq!(refuse(&entry), None);
            assert_eq!(decode(&out, &mut at, &mut before).unwrap().resolve(&[(0o100_644, 1, 2)]), Some(entry));
        }
        assert_eq!(at, out.len());
        for wrong in [Entry { attributes_id: 7, ..entries[0] }, Entry { attributes_id: 11, ..entries[2] }] {
            assert!(refuse(&wrong).is_some());
        }
        let same_id = [13, zigzag(5) as u8, 0, 1, 1, 1, 1, 0, 0, 0];
        assert_eq!(decode(&same_id, &mut 0, &mut Previous::default()), None);
    }

    #[test]
    fn an_entry_that_shows_all_attributes_says_so() {
        let (mut out, mut before) = (Vec::new(), Previous::default());
        let kinds = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Special];
        let entries = kinds.map(|kind| Entry { kind, is_plain: true, ..file(7, 80, 20_064, 20_000) });
        entries.iter().for_each(|entry| encode(&mut out, &mut before, entry, 0));
        let (mut at, mut before) = (0, Previous::default());
        for entry in entries {
            assert_eq!(refuse(&entry), None);
            assert_eq!(decode(&out, &mut at, &mut before).unwrap().resolve(&[(0o100_644, 1, 2)]), Some(entry));
        }
        for wrong in [Entry { kind: Kind::Large, ..entries[0] }, Entry { attributes_id: 8, ..entries[0] }] {
            assert!(refuse(&wrong).is_some());
        }
    }

    #[test]
    fn what_no_table_has_is_refused() {
        let read = |bytes: &[u8]| decode(bytes, &mut 0, &mut Previous::default()).map(|entry| entry.size_bytes);
        let (file, link, id) = (Kind::File as u8, Kind::Link as u8, zigzag(7) as u8);
        // Segment, offset, length of the record, size, class, time.
        assert_eq!(read(&[file, id, 1, 1, 20, 5, 0, 0, 0]), Some(5));
        assert_eq!(read(&[file, zigzag(0) as u8, 1, 1, 20, 5, 0, 0, 0]), None, "no record has number 0");
        for (below, is_read) in [(0, false), (6, true), (7, false), (8, false)] {
            assert_eq!(read(&[file | NUMBERED, id, below, 1, 1, 20, 5, 0, 0, 0]).is_some(), is_read, "{below}");
        }
        // A record of 80 bytes: the difference is written if it is the lower number, and never of a link.
        for (below, size_bytes) in [(39, Some(41)), (40, None), (81, None)] {
            assert_eq!(read(&[file | SIZE_BELOW_RECORD, id, 1, 1, 20, below, 0, 0, 0]), size_bytes, "{below}");
        }
        assert_eq!(read(&[link, id, 1, 1, 20, 5, 0, 0, 0]), Some(5));
        assert_eq!(read(&[link | SIZE_BELOW_RECORD, id, 1, 1, 20, 5, 0, 0, 0]), None);
    }

    #[test]
    fn what_refers_to_nothing_or_overflows_is_refused() {
        let nothing_before = [Kind::File as u8 | ADJACENT, 2, 1, 0, 0, 0, 0];
        assert_eq!(decode(&nothing_before, &mut 0, &mut Previous::default()), None);
        let larger_than_its_record = [Kind::File as u8 | SIZE_BELOW_RECORD, 2, 1, 1, 1, 5, 0, 0, 0];
        assert_eq!(decode(&larger_than_its_record, &mut 0, &mut Previous::default()), None);
        for tag in [0, 15, Kind::Removal as u8 | ADJACENT] {
            assert_eq!(decode(&[tag, 2, 1, 1, 1, 1, 0, 0, 0], &mut 0, &mut Previous::default()), None, "{tag}");
        }
        let number_of_none = [Kind::File as u8 | NUMBERED, zigzag(5) as u8, 5, 1, 1, 1, 0, 0, 0, 0];
        assert_eq!(decode(&number_of_none, &mut 0, &mut Previous::default()), None);
        for (id, is_read) in [((1 << 47) - 1, true), (1 << 48, false)] {
            let mut far = vec![Kind::File as u8];
            put(&mut far, zigzag(id));
            far.extend([1, 1, 1, 1, 0, 0, 0]);
            assert_eq!(decode(&far, &mut 0, &mut Previous::default()).is_some(), is_read, "{id}");
        }
        let changed = |rest: &[u8]| {
            let bytes = [&[Kind::File as u8 | CHANGED, 2, 1, 1, 1, 1, 0, 0, 0], rest].concat();
            decode(&bytes, &mut 0, &mut Previous::default()).map(|entry| entry.ctime)
        };
        assert_eq!(changed(&[1, 7]), Some(Time { seconds: 0, nanoseconds: 7 }));
        assert_eq!((changed(&[]), changed(&[1]), changed(&[0])), (None, None, None), "there is no entry before");
        let (mut second, at) = (vec![1], 1_000_000_000);
        put(&mut second, at);
        assert_eq!(changed(&second), None);
        let mut wrong = file(1, 80, 60, 0);
        let far = Entry { ctime: Time { seconds: i64::MAX, nanoseconds: 0 }, ..wrong };
        let nanoseconds = Entry { ctime: Time { seconds: 0, nanoseconds: 1_000_000_000 }, ..wrong };
        assert!(refuse(&far).is_some() && refuse(&nanoseconds).is_some());
        assert_eq!(refuse(&wrong), None);
        for (id, number) in [(1, 0), (1, 2), (1 << 50, 1 << 48)] {
            assert!(refuse(&Entry { id, number: ObjectNumber(number), ..wrong }).is_some());
        }
        wrong.location.offset = LogOffset(82);
        assert!(refuse(&wrong).is_some());
        let unknown_class = [Kind::File as u8, 2, 1, 1, 1, 1, 7, 0, 0];
        let read = decode(&unknown_class, &mut 0, &mut Previous::default()).unwrap();
        assert_eq!(read.resolve(&[(0, 0, 0)]), None);
    }
}
