//! Keys of the index: a directory entry is the number of its directory and a name; an object without a name is its
//! number alone. Attributes that were changed alone have a key too.
//!
//! Numbers are big-endian, so the entries of a directory are adjacent and in the order of their names. The root is the
//! entry without a name in directory 0, which does not exist, and has number [`ROOT`]. Objects with several names come
//! after all entries: the highest bit of their number is set, which no number of 48 bits has. Then come attributes that
//! are in a record of their own, under the key of their object with other bits. After these come superseded versions
//! that a snapshot references: the same key with the next bit set too, followed by the sequence number of the record
//! that superseded it (docs/FORMAT.md, section 10).

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::ids::ObjectNumber;

/// Number of the root directory.
pub(crate) const ROOT: ObjectNumber = ObjectNumber(1);
/// Key of the root directory.
pub(crate) const ROOT_KEY: &[u8] = &[0; NUMBER_BYTES];

/// The longest name, in bytes.
pub(crate) const LONGEST_NAME_BYTES: usize = u16::MAX as usize;
/// The longest key, in bytes: that of a superseded version of the longest name.
pub(crate) const LONGEST_INDEX_KEY_BYTES: usize = NUMBER_BYTES + LONGEST_NAME_BYTES + 1 + SEQUENCE_BYTES;

const NUMBER_BYTES: usize = 8;
const SEQUENCE_BYTES: usize = 8;
/// Bit in the key of an object.
const OBJECT: u64 = 1 << 63;
/// Bits in the key of the attributes of an entry.
const ATTRIBUTES: u64 = OBJECT | 1 << 60;
/// Bits in the key of the attributes of an object with several names.
const ATTRIBUTES_OF_OBJECT: u64 = ATTRIBUTES | 1 << 59;
/// Bits in the key of a superseded version.
const SUPERSEDED: u64 = OBJECT | 1 << 62;
/// Bits in the key of a superseded version of an object: its number has the highest bit already, so a third bit is
/// needed.
const SUPERSEDED_OBJECT: u64 = SUPERSEDED | 1 << 61;
/// Separates a name from the sequence number after it: no name contains it, so names keep their order.
const BEHIND_NAME: u8 = 0;

/// Key of the entry `name` of a directory.
pub(crate) fn entry_key(directory: ObjectNumber, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(NUMBER_BYTES + name.len());
    push_entry_key(&mut key, directory, name);
    key
}

/// Appends the same.
pub(crate) fn push_entry_key(onto: &mut Vec<u8>, directory: ObjectNumber, name: &[u8]) {
    debug_assert!(directory.0 < OBJECT, "a number has 48 bits");
    onto.extend_from_slice(&directory.0.to_be_bytes());
    onto.extend_from_slice(name);
}

/// Key of an object with several names.
pub(crate) fn object_key(number: ObjectNumber) -> [u8; NUMBER_BYTES] {
    (OBJECT | number.0).to_be_bytes()
}

/// Key of the attributes of the object with this key, if they are in a record of their own.
pub(crate) fn attributes_key(key: &[u8]) -> Vec<u8> {
    let (number, name) = key.split_first_chunk().expect("a key begins with a number");
    let number = u64::from_be_bytes(*number);
    debug_assert!(number & (SUPERSEDED | ATTRIBUTES_OF_OBJECT) & !OBJECT == 0, "the key of a current object");
    let bits = if number & OBJECT == 0 { ATTRIBUTES } else { ATTRIBUTES_OF_OBJECT };
    [&(number | bits).to_be_bytes()[..], name].concat()
}

/// The key of the object whose attributes have this key; `None` for other keys.
pub(crate) fn object_of_attributes(key: &[u8]) -> Option<Vec<u8>> {
    let (number, name) = key.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    let object = match number & (SUPERSEDED | ATTRIBUTES_OF_OBJECT) {
        ATTRIBUTES => number & !ATTRIBUTES,
        ATTRIBUTES_OF_OBJECT => number & !ATTRIBUTES_OF_OBJECT | OBJECT,
        _ => return None,
    };
    Some([&object.to_be_bytes()[..], name].concat())
}

/// The directory of an entry, by its key or by that of its attributes; `None` for an object.
#[inline]
pub(crate) fn directory_of(key: &[u8]) -> Option<ObjectNumber> {
    let number = leading_number(key)?;
    match number & (SUPERSEDED | ATTRIBUTES_OF_OBJECT) {
        0 => Some(ObjectNumber(number)),
        ATTRIBUTES => Some(ObjectNumber(number & !ATTRIBUTES)),
        _ => None,
    }
}

/// The number at the beginning of a key: of a directory, or of an object with [`OBJECT`].
#[inline]
fn leading_number(key: &[u8]) -> Option<u64> {
    key.first_chunk().copied().map(u64::from_be_bytes)
}

/// The number of the object with several names that a key belongs to.
pub(crate) fn object_of(key: &[u8]) -> Option<ObjectNumber> {
    let number = leading_number(key).filter(|number| number & (SUPERSEDED | ATTRIBUTES_OF_OBJECT) == OBJECT)?;
    Some(ObjectNumber(number & !OBJECT))
}

/// The directory and the name in a key; `None` for an object.
pub(crate) fn entry_of_key(key: &[u8]) -> Option<(ObjectNumber, &[u8])> {
    let (number, name) = key.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    (number & OBJECT == 0).then_some((ObjectNumber(number), name))
}

/// Beginning and end of the entries of a directory.
pub(crate) fn entries_of(directory: ObjectNumber) -> (Vec<u8>, Vec<u8>) {
    (entry_key(directory, &[]), entry_key(directory.next(), &[]))
}

/// Beginning and end of the attributes of a directory's entries.
pub(crate) fn attributes_of(directory: ObjectNumber) -> (Vec<u8>, Vec<u8>) {
    (attributes_key(&entry_key(directory, &[])), attributes_key(&entry_key(directory.next(), &[])))
}

/// Where attributes in records of their own begin.
pub(crate) fn first_attributes() -> [u8; NUMBER_BYTES] {
    ATTRIBUTES.to_be_bytes()
}

/// Where objects with several names begin.
pub(crate) fn first_object() -> [u8; NUMBER_BYTES] {
    object_key(ObjectNumber(0))
}

/// Where superseded versions begin.
pub(crate) fn first_superseded() -> [u8; NUMBER_BYTES] {
    SUPERSEDED.to_be_bytes()
}

/// Prefix of the versions of a key; the sequence number that superseded each one follows.
pub(crate) fn versions_of(key: &[u8]) -> Vec<u8> {
    let mut versions = versions_from(key);
    versions.push(BEHIND_NAME);
    versions
}

/// Where the versions of this key and of later ones begin.
pub(crate) fn versions_from(key: &[u8]) -> Vec<u8> {
    let Some((number, name)) = key.split_first_chunk() else { return first_superseded().to_vec() };
    let number = u64::from_be_bytes(*number);
    let flags = if number & OBJECT > 0 { SUPERSEDED_OBJECT } else { SUPERSEDED };
    [&(number | flags).to_be_bytes()[..], name].concat()
}

/// Where the versions of keys after this one begin.
pub(crate) fn versions_behind(key: &[u8]) -> Vec<u8> {
    let mut versions = versions_from(key);
    versions.push(BEHIND_NAME + 1);
    versions
}

/// Key of a version that record `until` superseded.
pub(crate) fn superseded_key(key: &[u8], until: u64) -> Vec<u8> {
    let mut versions = versions_of(key);
    versions.extend_from_slice(&until.to_be_bytes());
    versions
}

/// The former key of a version, and the sequence number that superseded it; `None` if `key` is not that of a superseded
/// version.
pub(crate) fn superseded(key: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (rest, until) = key.split_last_chunk()?;
    let (number, name) = rest.strip_suffix(&[BEHIND_NAME])?.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    if number & SUPERSEDED != SUPERSEDED {
        return None;
    }
    let own = if number & SUPERSEDED_OBJECT == SUPERSEDED_OBJECT { OBJECT } else { 0 };
    let number = number & !SUPERSEDED_OBJECT | own;
    Some(([&number.to_be_bytes()[..], name].concat(), u64::from_be_bytes(*until)))
}

/// The sequence number that superseded the version with this key; 0 if none did.
pub(crate) fn until_of(key: &[u8]) -> u64 {
    superseded(key).map_or(0, |(_, until)| until)
}

/// Whether `key` is that of a superseded version.
pub(crate) fn is_superseded(key: &[u8]) -> bool {
    leading_number(key).is_some_and(|number| number & SUPERSEDED == SUPERSEDED)
}

/// Whether `key` is that of a version that record `until` superseded.
pub(crate) fn is_superseded_by(key: &[u8], until: u64) -> bool {
    is_superseded(key) && key.split_last_chunk().is_some_and(|(_, last)| u64::from_be_bytes(*last) == until)
}

/// Whether an entry may have this name: 1 to 65,535 bytes without NUL and `/`, not `.` or `..`.
#[inline]
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_short = name.len() <= LONGEST_NAME_BYTES;
    is_short && !matches!(name, b"" | b"." | b"..") && !name.iter().any(|&byte| byte == 0 || byte == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_directory_lie_together_and_objects_behind_all() {
        let mut keys = [
            object_key(ObjectNumber(2)).to_vec(),
            entry_key(ObjectNumber(300), b"a"),
            entry_key(ObjectNumber(2), b"\xff\xff"),
            ROOT_KEY.to_vec(),
            entry_key(ROOT, b"b"),
            entry_key(ObjectNumber(2), b"a"),
            entry_key(ROOT, b"a"),
        ];
        keys.sort();
        let entries: Vec<(ObjectNumber, &[u8])> = keys.iter().filter_map(|key| entry_of_key(key)).collect();
        let expected: [(ObjectNumber, &[u8]); 6] = [
            (ObjectNumber(0), b""),
            (ROOT, b"a"),
            (ROOT, b"b"),
            (ObjectNumber(2), b"a"),
            (ObjectNumber(2), b"\xff\xff"),
            (ObjectNumber(300), b"a"),
        ];
        assert_eq!(entries, expected);
        assert_eq!(keys.map(|key| object_of(&key)), [None, None, None, None, None, None, Some(ObjectNumber(2))]);
    }

    #[test]
    fn entries_of_a_directory_are_a_range_of_keys() {
        let keys = [
            entry_key(ObjectNumber(1), b"\xff"),
            entry_key(ObjectNumber(2), b"a"),
            entry_key(ObjectNumber(2), b"\xff\xff"),
            entry_key(ObjectNumber(3), b"a"),
        ];
        let (from, to) = entries_of(ObjectNumber(2));
        assert_eq!(keys.map(|key| key >= from && key < to), [false, true, true, false]);
        assert!(to[..] < first_object()[..]);
    }

    #[test]
    fn versions_lie_behind_all_in_the_order_of_their_keys() {
        let keys = [
            ROOT_KEY.to_vec(),
            entry_key(ObjectNumber(2), b"a"),
            entry_key(ObjectNumber(2), b"a\x01"),
            entry_key(ObjectNumber(2), b"ab"),
            object_key(ObjectNumber(2)).to_vec(),
        ];
        let mut versions = Vec::new();
        for key in &keys {
            for until in [3, 1 << 40] {
                let version = superseded_key(key, until);
                assert_eq!(superseded(&version), Some((key.clone(), until)));
                assert!(version > versions_of(key) && version < versions_behind(key) && version >= versions_from(key));
                assert!(is_superseded(&version) && !is_superseded(key) && superseded(key).is_none());
                assert!(is_superseded_by(&version, until) && !is_superseded_by(&version, 4));
                assert!(!is_superseded_by(key, until));
                assert!(entry_of_key(&version).is_none() && object_of(&version).is_none());
                assert!(version[..] > first_superseded()[..] && key[..] < first_superseded()[..]);
                versions.push(version);
            }
        }
        assert!(versions.is_sorted());
        assert!(keys.windows(2).all(|pair| versions_behind(&pair[0]) <= versions_from(&pair[1])));
    }

    #[test]
    fn what_is_too_short_is_no_key() {
        assert_eq!((entry_of_key(b"1234567"), object_of(b"\xff"), leading_number(b"")), (None, None, None));
    }

    #[test]
    fn names_are_components_of_paths() {
        let long = [b'a'; LONGEST_NAME_BYTES + 1];
        for wrong in [&b""[..], b".", b"..", b"a/b", b"a\0", b"/", &long] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
        for right in [&b"..."[..], b".a", b"\x01", b" ", b"\xff", &long[1..]] {
            assert!(is_name(right), "{right:?}");
        }
    }

    #[test]
    fn no_key_of_a_name_is_longer_than_the_longest() {
        let entry = entry_key(ROOT, &[b'a'; LONGEST_NAME_BYTES]);
        for key in [superseded_key(&entry, 1), superseded_key(&attributes_key(&entry), 1)] {
            assert_eq!(key.len(), LONGEST_INDEX_KEY_BYTES);
        }
    }
}
