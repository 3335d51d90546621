//! A block of a tree: keys in order, and items or pointers.

use crate::scan::inodes::fields::{LittleEndian, Record as _};

pub(super) const HEADER_BYTES: usize = 101;
/// Offset of the level of a block in its header.
pub(super) const LEVEL: usize = 0x64;
pub(super) const KEY_BYTES: usize = 17;
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

    pub(super) fn parse(bytes: &[u8; KEY_BYTES]) -> Key {
        Key { object: bytes.u64::<0>(), kind: bytes[8], offset: bytes.u64::<9>() }
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

/// The number of entries of a block, and their bytes.
fn entries(block: &[u8]) -> (usize, &[u8]) {
    let parts = block.split_first_chunk::<HEADER_BYTES>();
    parts.map_or((0, &[]), |(header, entries)| (header.u32::<0x60>() as usize, entries))
}

/// Whether the entries of a block fit in it, and it begins with the expected key.
pub(super) fn fits(block: &[u8], first: Option<Key>) -> bool {
    let a_one = if block.get(LEVEL) == Some(&0) { ITEM_BYTES } else { POINTER_BYTES };
    let (count, entries) = entries(block);
    let begins_with = |first| count > 0 && entries.first_chunk().map(Key::parse) == Some(first);
    count <= entries.len() / a_one && first.is_none_or(begins_with)
}

/// The items of a leaf; one that extends past its end is empty.
pub(super) fn items(block: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let (count, entries) = entries(block);
    entries.as_chunks::<ITEM_BYTES>().0.iter().take(count).map(move |item| {
        let (start, length) = (item.u32::<17>() as usize, item.u32::<21>() as usize);
        let data = start.checked_add(length).and_then(|end| entries.get(start..end)).unwrap_or_default();
        (Key::parse(item.field::<0, KEY_BYTES>()), data)
    })
}

/// The children of a node above the leaves.
pub(super) fn pointers(block: &[u8]) -> impl Iterator<Item = Pointer> {
    let (count, entries) = entries(block);
    entries.as_chunks::<POINTER_BYTES>().0.iter().take(count).map(|pointer| Pointer {
        block: pointer.u64::<17>(),
        generation: pointer.u64::<25>(),
        first: Some(Key::parse(pointer.field::<0, KEY_BYTES>())),
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
