//! A block of a tree: keys in order, and items or pointers.

use super::{u32_at, u64_at};

pub(super) const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;
/// Largest level of a tree.
pub(super) const MOST_LEVELS: u8 = 7;

/// Object, type, and an offset whose meaning depends on the type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u8,
    pub(super) offset: u64,
}

impl Key {
    pub(super) const LAST: Key = Key { object: u64::MAX, kind: u8::MAX, offset: u64::MAX };

    pub(super) fn at(bytes: &[u8], at: usize) -> Key {
        let kind = bytes.get(at + 8).copied().unwrap_or_default();
        Key { object: u64_at(bytes, at), kind, offset: u64_at(bytes, at + 9) }
    }
}

/// The address of a block, and its expected properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Its logical address.
    pub(super) block: u64,
    /// The transaction that wrote it.
    pub(super) generation: u64,
    /// Its first key; `None` for a root, whose pointer does not have it.
    pub(super) first: Option<Key>,
}

pub(super) fn level(block: &[u8]) -> u8 {
    block.get(0x64).copied().unwrap_or(u8::MAX)
}

fn count(block: &[u8]) -> usize {
    u32_at(block, 0x60) as usize
}

/// Whether the entries of a block fit in it, and it begins with the expected key.
pub(super) fn fits(block: &[u8], first: Option<Key>) -> bool {
    let a_one = if level(block) == 0 { ITEM_BYTES } else { POINTER_BYTES };
    let room = block.len().saturating_sub(HEADER_BYTES) / a_one;
    count(block) <= room && first.is_none_or(|first| count(block) > 0 && Key::at(block, HEADER_BYTES) == first)
}

/// The items of a leaf; one that extends past its end is empty.
pub(super) fn items(block: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let headers = block.get(HEADER_BYTES..).unwrap_or_default();
    headers.chunks_exact(ITEM_BYTES).take(count(block)).map(move |header| {
        let (start, length) = (u32_at(header, 17) as usize, u32_at(header, 21) as usize);
        let data = start.checked_add(length).and_then(|end| headers.get(start..end)).unwrap_or_default();
        (Key::at(header, 0), data)
    })
}

/// The children of a node above the leaves.
pub(super) fn pointers(block: &[u8]) -> impl Iterator<Item = Pointer> {
    let entries = block.get(HEADER_BYTES..).unwrap_or_default();
    entries.chunks_exact(POINTER_BYTES).take(count(block)).map(|entry| Pointer {
        block: u64_at(entry, 17),
        generation: u64_at(entry, 25),
        first: Some(Key::at(entry, 0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_lead_out_of_their_leaf_are_empty() {
        let mut leaf = vec![0; 4096];
        leaf[0x60] = 3;
        for (at, (start, length)) in [(3000u32, 90u32), (3990, 90), (u32::MAX, u32::MAX)].into_iter().enumerate() {
            let header = HEADER_BYTES + at * ITEM_BYTES;
            leaf[header] = at as u8;
            leaf[header + 17..header + 21].copy_from_slice(&start.to_le_bytes());
            leaf[header + 21..header + 25].copy_from_slice(&length.to_le_bytes());
        }
        let found: Vec<(u64, usize)> = items(&leaf).map(|(key, data)| (key.object, data.len())).collect();
        assert_eq!(found, [(0, 90), (1, 0), (2, 0)]);
        assert!(fits(&leaf, None) && fits(&leaf, Some(Key::default())) && !fits(&leaf, Some(Key::LAST)));
        leaf[0x61] = 1;
        assert!(!fits(&leaf, None));
    }

    #[test]
    fn keys_are_ordered_by_object_then_kind_then_offset() {
        let key = |object, kind, offset| Key { object, kind, offset };
        let mut keys = [key(2, 0, 0), key(1, 96, 3), key(1, 96, 2), key(1, 1, 900)];
        keys.sort_unstable();
        assert_eq!(keys, [key(1, 1, 900), key(1, 96, 2), key(1, 96, 3), key(2, 0, 0)]);
    }
}
