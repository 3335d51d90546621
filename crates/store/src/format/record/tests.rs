//! Records: what is encoded is decoded, at its place only, and whatever contradicts itself is refused.

use super::*;
use crate::format::ids::{Epoch, SegmentNumber};
use crate::layout::granulo::{DESCRIPTOR_HEADER_BYTES, record_bytes};
use proptest::prelude::*;

const STORE: [u8; 16] = [9; 16];

fn seed() -> Seed {
    SegmentId::new(SegmentNumber(3), Epoch(4)).seed(&STORE)
}

fn seal_here() -> Seal {
    seed().at(LogOffset(128))
}

fn encode(
    alignment: Alignment,
    kind: Kind,
    moved: Option<u64>,
    name: &[u8],
    attributes: &[u8],
    content: &[u8],
) -> Vec<u8> {
    let name = parts(kind, true).map(|_| name);
    let number = ObjectNumber(if kind.is_used() { 0x0c0b_0a09_0807 } else { 0 });
    let parent = ObjectNumber(if name.is_some_and(|name| !name.is_empty()) { 0x1211_100f_0e0d } else { 0 });
    let id = 0x0605_0403_0201;
    let record = NewRecord { kind, is_zstd: false, moved, id, number, parent, name, attributes, content };
    let mut bytes = Vec::new();
    record.encode(alignment, &mut bytes).unwrap();
    seal(&mut bytes, seed(), LogOffset(128));
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_and_as_long_as_the_layout_says(
        key in proptest::collection::vec(any::<u8>().prop_filter("of no name", |byte| !b"\0/.".contains(byte)), 1..300),
        attributes in proptest::collection::vec(any::<u8>(), 0..100),
        content in proptest::collection::vec(any::<u8>(), 0..3000),
        moved in proptest::option::of(any::<bool>()),
        turn in 0usize..3,
    ) {
        let alignment = Alignment::ALL[turn];
        let moved = moved.map(|is_superseded| if is_superseded { 0x0605_0403_0202 } else { 0 });
        let bytes = encode(alignment, Kind::File, moved, &key, &attributes, &content);
        let beside = key.len() as u64 + if moved.is_some() { MOVED_BYTES } else { 0 };
        prop_assert_eq!(bytes.len() as u128, record_bytes(alignment, Content::File, beside, attributes.len() as u64, content.len() as u64));
        let record = Record::decode(&bytes, seal_here()).unwrap();
        prop_assert_eq!((record.head.name, record.head.attributes, record.content), (Some(&key[..]), &attributes[..], &content[..]));
        prop_assert_eq!((record.head.id, record.head.number), (0x0605_0403_0201, ObjectNumber(0x0c0b_0a09_0807)));
        prop_assert_eq!(record.head.parent.0, 0x1211_100f_0e0d);
        prop_assert_eq!((record.head.is_zstd, record.head.until), (false, moved.unwrap_or(0)));
        let unit = alignment.unit_bytes() as usize;
        let content_at = unit - 256 % unit + record.head.lengths.head_bytes();
        prop_assert!(alignment == Alignment::None || content.is_empty() || content_at.is_multiple_of(unit));
        let again = Record::parse(&bytes).unwrap();
        prop_assert_eq!((again.head.name, again.content), (record.head.name, record.content));
    }

    #[test]
    fn any_bytes_are_a_record_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Record::decode(&bytes, seal_here()).is_none());
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen() {
    for (moved, alignment) in [(None, Alignment::None), (Some(0), Alignment::None), (Some(0), Alignment::Sector)] {
        let bytes = encode(alignment, Kind::File, moved, b"a b", &[1; 19], b"content");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged, seal_here()).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Record::decode(&bytes[..length], seal_here()).is_none(), "{length} bytes");
            let again = Record::parse(&bytes[..length]);
            assert!(again.is_none_or(|record| record.content == b"content"), "{length} bytes");
        }
    }
}

#[test]
fn a_record_has_the_parts_of_its_kind() {
    let encode = |kind, name: Option<&[u8]>| {
        let number = ObjectNumber(if Kind::is_used(kind) { 7 } else { 0 });
        let (attributes, content) = (&[][..], &[][..]);
        let parent = ObjectNumber(if name.is_some() { 3 } else { 0 });
        let record = NewRecord { kind, is_zstd: false, moved: None, id: 9, number, parent, name, attributes, content };
        let mut bytes = Vec::new();
        record.encode(Alignment::None, &mut bytes).unwrap();
        seal(&mut bytes, seed(), LogOffset(128));
        bytes
    };
    let shared = encode(Kind::File, None);
    let head = Record::decode(&shared, seal_here()).unwrap().head;
    assert_eq!((head.name, head.key()), (None, object_key(ObjectNumber(7)).to_vec()));
    let mut link = encode(Kind::Link, Some(b"a"));
    assert_eq!(Record::decode(&link, seal_here()).unwrap().head.key(), entry_key(ObjectNumber(3), b"a"));
    let name_at = HEADER_BYTES;
    // A name without its part, a compressed name, a name with attributes, a kind that lacks its name, an object without
    // number, no directory, an invalid name.
    let wrong = [
        (FLAGS_AT, ATTRIBUTES | CONTENT),
        (FLAGS_AT, NAME | ZSTD),
        (ATTRIBUTES_LENGTH_AT, 1),
        (KIND_AT, Kind::Symlink as u8),
        (NUMBER_AT, 0),
        (PARENT_AT, 0),
        (name_at, b'/'),
        (name_at, b'.'),
    ];
    for (at, byte) in wrong {
        let before = std::mem::replace(&mut link[at], byte);
        seal(&mut link, seed(), LogOffset(128));
        assert!(Record::decode(&link, seal_here()).is_none(), "{at}");
        link[at] = before;
    }
    // Only a directory, or what removes all in it, is the root.
    let is_record = |kind| {
        let bytes = self::encode(Alignment::None, kind, None, b"", &[], b"");
        Record::decode(&bytes, seal_here()).is_some()
    };
    assert!(is_record(Kind::Directory) && !is_record(Kind::File) && !is_record(Kind::Removal));
}

#[test]
fn what_is_in_front_of_a_name_is_zeroes_and_flags_say_one_alignment() {
    let padded = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        seal(&mut bytes, seed(), LogOffset(128));
        Record::decode(&bytes, seal_here()).is_some()
    };
    let bytes = encode(Alignment::Sector, Kind::Large, None, b"key", &[1; 19], &[2; 300]);
    assert_eq!(bytes.len(), 1024);
    let record = Record::decode(&bytes, seal_here()).unwrap();
    assert_eq!(record.head.lengths.head_bytes() as u64 + DESCRIPTOR_HEADER_BYTES, 256);
    assert!(padded(&bytes));
    let mut other = bytes.clone();
    other[HEADER_BYTES + 5] = 1;
    assert!(!padded(&other));
    let mut other = bytes;
    other[FLAGS_AT] |= OF_PAGES;
    assert_eq!(Lengths::peek(&other), None);
}

#[test]
fn a_record_anywhere_else_is_none() {
    let bytes = encode(Alignment::None, Kind::Removal, None, b"key", &[], b"");
    assert!(Record::decode(&bytes, seal_here()).is_some());
    let others = [
        SegmentId::new(SegmentNumber(3), Epoch(4)).seed(&STORE).at(LogOffset(132)),
        SegmentId::new(SegmentNumber(2), Epoch(4)).seed(&STORE).at(LogOffset(128)),
        SegmentId::new(SegmentNumber(3), Epoch(5)).seed(&STORE).at(LogOffset(128)),
        SegmentId::new(SegmentNumber(3), Epoch(4)).seed(&[8; 16]).at(LogOffset(128)),
    ];
    assert!(others.into_iter().all(|seal| Record::decode(&bytes, seal).is_none()));
}

#[test]
fn an_id_can_be_given_later_and_a_list_has_what_was_sealed() {
    let mut bytes = encode(Alignment::None, Kind::Removal, None, b"key", &[], b"");
    let first = bytes.len();
    bytes.extend(encode(Alignment::None, Kind::File, None, b"other", &[1; 19], b"four"));
    give_id(&mut bytes, 9);
    give_numbers(&mut bytes[first..], ObjectNumber(8), ObjectNumber(5));
    assert!(Record::decode(&bytes, seal_here()).is_none());
    let list = seal(&mut bytes, seed(), LogOffset(128));
    let record = Record::decode(&bytes, seal_here()).unwrap();
    assert_eq!((record.head.id, record.head.listed()), (9, list[0]));
    let second = Record::decode(&bytes[first..], seed().at(LogOffset(128 + first as u64))).unwrap();
    assert_eq!(
        (second.head.number, second.head.parent, second.head.listed()),
        (ObjectNumber(8), ObjectNumber(5), list[1])
    );
}
