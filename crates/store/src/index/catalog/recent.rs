//! Encoding of recent changes (docs/FORMAT.md, section 10).
//!
//! A sequence of changes: length of the key, key, kind (0 for a dropped key, with nothing after it), then id, number,
//! segment, offset, length of the record, size, mode, owner, owning group, seconds (zigzag) and nanoseconds of the
//! modification time, the difference of the change time from it in seconds and nanoseconds (both zigzag), and, if the
//! kind says so, the id of the record with its attributes. All numbers but the kind are varints.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::sync::Arc;

use crate::format::entry::{Entry, Location, StoredKind, Time};
use crate::format::ids::{LogOffset, ObjectNumber, SegmentNumber};
use crate::format::index_key::LONGEST_INDEX_KEY_BYTES;
use crate::io::varint::{put, take, take_bytes, unzigzag, zigzag};

/// In place of the kind of an entry: the key was dropped.
const DROPPED: u8 = 0;

/// Dropped keys, and keys with their new entries.
pub(crate) type KeyChanges = (Vec<Arc<[u8]>>, Vec<(Arc<[u8]>, Entry)>);

/// Appends changes.
pub(crate) fn encode<'a>(out: &mut Vec<u8>, changes: impl Iterator<Item = (&'a [u8], Option<&'a Entry>)>) {
    for (key, entry) in changes {
        put(out, key.len() as u64);
        out.extend_from_slice(key);
        let Some(entry) = entry else {
            out.push(DROPPED);
            continue;
        };
        out.push(entry.stored_kind());
        let Location { segment, offset, record_bytes } = entry.location;
        let owners = [u64::from(entry.mode), u64::from(entry.uid), u64::from(entry.gid)];
        for number in
            [entry.id, entry.number.0, segment.0, offset.0, record_bytes, entry.size_bytes].into_iter().chain(owners)
        {
            put(out, number);
        }
        put(out, zigzag(entry.mtime.seconds));
        put(out, u64::from(entry.mtime.nanoseconds));
        put(out, zigzag(entry.ctime.seconds.wrapping_sub(entry.mtime.seconds)));
        put(out, zigzag(i64::from(entry.ctime.nanoseconds) - i64::from(entry.mtime.nanoseconds)));
        if entry.attributes_id > 0 {
            put(out, entry.attributes_id);
        }
    }
}

/// Decodes changes; `None` if they are damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<KeyChanges> {
    let (mut dropped, mut present, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let length = take(bytes, &mut at).filter(|&length| length <= LONGEST_INDEX_KEY_BYTES as u64)?;
        let key = take_bytes(bytes, &mut at, length)?.into();
        let kind = *bytes.get(at)?;
        at += 1;
        match kind {
            DROPPED => dropped.push(key),
            kind => present.push((key, decode_entry(bytes, &mut at, kind)?)),
        }
    }
    Some((dropped, present))
}

fn decode_entry(bytes: &[u8], at: &mut usize, kind: u8) -> Option<Entry> {
    let StoredKind { kind, has_attributes_id, is_plain } = StoredKind::of(kind)?;
    let mut number = || take(bytes, at);
    let mut entry = Entry {
        kind,
        id: number()?,
        number: ObjectNumber::stored(number()?)?,
        attributes_id: 0,
        is_plain,
        location: Location { segment: SegmentNumber(number()?), offset: LogOffset(number()?), record_bytes: number()? },
        size_bytes: number()?,
        mode: number()?.try_into().ok()?,
        uid: number()?.try_into().ok()?,
        gid: number()?.try_into().ok()?,
        mtime: Time { seconds: unzigzag(number()?), nanoseconds: number()?.try_into().ok()? },
        ctime: Time::default(),
    };
    let nanoseconds = |before: u32, behind: i64| i64::from(before).checked_add(behind)?.try_into().ok();
    entry.location.offset.0.checked_add(entry.location.record_bytes)?;
    entry.ctime = Time {
        seconds: entry.mtime.seconds.wrapping_add(unzigzag(number()?)),
        nanoseconds: nanoseconds(entry.mtime.nanoseconds, unzigzag(number()?))?,
    };
    if has_attributes_id {
        entry.attributes_id = Some(number()?).filter(|&id| id > entry.id)?;
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_ends_behind_the_largest_offset_is_refused() {
        for (record_bytes, is_read) in [(4, true), (8, false)] {
            let location = Location { segment: SegmentNumber(1), offset: LogOffset(u64::MAX - 7), record_bytes };
            let mut bytes = Vec::new();
            encode(&mut bytes, [(&b"key"[..], Some(&Entry::removal(1, location)))].into_iter());
            assert_eq!(decode(&bytes).is_some(), is_read);
        }
    }

    #[test]
    fn a_key_that_no_table_can_have_is_refused() {
        for (more, is_read) in [(0, true), (1, false)] {
            let mut bytes = Vec::new();
            encode(&mut bytes, [(&vec![b'k'; LONGEST_INDEX_KEY_BYTES + more][..], None)].into_iter());
            assert_eq!(decode(&bytes).is_some(), is_read);
        }
    }

    #[test]
    fn a_number_of_more_than_48_bits_is_refused() {
        let location = Location { segment: SegmentNumber(1), offset: LogOffset(8), record_bytes: 4 };
        for (number, is_read) in [((1 << 48) - 1, true), (1 << 48, false), (u64::MAX, false)] {
            let entry = Entry { number: ObjectNumber(number), ..Entry::removal(1, location) };
            let mut bytes = Vec::new();
            encode(&mut bytes, [(&b"key"[..], Some(&entry))].into_iter());
            assert_eq!(decode(&bytes).is_some(), is_read, "{number}");
        }
    }
}
