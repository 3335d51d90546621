//! How the SQLite catalog has recent changes: one value for those of a transaction (docs/FORMAT.md, section 9).
//!
//! A value is entries one after the other, then the low half of XXH3 of all before: length of the key, key, kind (0 for a key that is
//! forgotten, and nothing after that), then id, segment, offset, length of the record, size, mode, owner, owning group, seconds
//! (zigzag), nanoseconds. All numbers but the kind and the checksum are varints. Nothing in a damaged value is believed.

use twox_hash::XxHash3_64;

use crate::format::entry::{Entry, Kind, Location, Time};
use crate::io::varint::{put, take, take_bytes, unzigzag, zigzag};

/// What a transaction did to a key: what it has now, or that it is forgotten.
pub(crate) type KeyChange = (Vec<u8>, Option<Entry>);

/// The value of some changes.
pub(crate) fn encode<'a>(changes: impl Iterator<Item = (&'a [u8], Option<&'a Entry>)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, entry) in changes {
        put(&mut out, key.len() as u64);
        out.extend_from_slice(key);
        let Some(entry) = entry else {
            out.push(0);
            continue;
        };
        out.push(entry.kind as u8);
        let Location { segment, offset, record_bytes } = entry.location;
        let owners = [u64::from(entry.mode), u64::from(entry.uid), u64::from(entry.gid)];
        for number in [entry.id, segment, offset, record_bytes, entry.size_bytes].into_iter().chain(owners) {
            put(&mut out, number);
        }
        put(&mut out, zigzag(entry.mtime.seconds));
        put(&mut out, u64::from(entry.mtime.nanoseconds));
    }
    let checksum = XxHash3_64::oneshot(&out) as u32;
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// The changes of a value; `None` if it is damaged.
pub(crate) fn decode(value: &[u8]) -> Option<Vec<KeyChange>> {
    let (bytes, checksum) = value.split_last_chunk()?;
    if XxHash3_64::oneshot(bytes) as u32 != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (mut changes, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = take(bytes, &mut at)?;
        let key = take_bytes(bytes, &mut at, length)?.to_vec();
        let kind = *bytes.get(at)?;
        at += 1;
        let entry = if kind == 0 { None } else { Some(decode_entry(bytes, &mut at, Kind::from_byte(kind)?)?) };
        changes.push((key, entry));
    }
    Some(changes)
}

fn decode_entry(bytes: &[u8], at: &mut usize, kind: Kind) -> Option<Entry> {
    let mut number = || take(bytes, at);
    Some(Entry {
        kind,
        id: number()?,
        location: Location { segment: number()?, offset: number()?, record_bytes: number()? },
        size_bytes: number()?,
        mode: number()?.try_into().ok()?,
        uid: number()?.try_into().ok()?,
        gid: number()?.try_into().ok()?,
        mtime: Time { seconds: unzigzag(number()?), nanoseconds: number()?.try_into().ok()? },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::table::tests::any_entry;

    proptest! {
        #[test]
        fn changes_come_back_and_a_flipped_bit_is_found(
            changes in prop::collection::vec((any::<Vec<u8>>(), prop::option::of(any_entry())), 0..20),
            bit: prop::sample::Index,
        ) {
            let mut value = encode(changes.iter().map(|(key, entry)| (key.as_slice(), entry.as_ref())));
            prop_assert_eq!(decode(&value), Some(changes));
            let bit = bit.index(value.len() * 8);
            value[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&value), None);
        }

        #[test]
        fn values_that_lie_do_not_panic(mut bytes: Vec<u8>) {
            let checksum = XxHash3_64::oneshot(&bytes) as u32;
            bytes.extend_from_slice(&checksum.to_le_bytes());
            if let Some(changes) = decode(&bytes) {
                // Keys are borrowed from the value: it cannot say more than it has.
                prop_assert!(changes.iter().map(|(key, _)| key.len() + 2).sum::<usize>() <= bytes.len());
            }
        }
    }
}
