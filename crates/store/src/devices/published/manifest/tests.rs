//! The bytes of the manifest: valid, damaged and forged; what one manifest says about another.

use proptest::prelude::*;

use super::*;

/// A manifest with something in each part, like a real one.
pub(crate) fn a_manifest() -> Manifest {
    let entry = |epoch, follows_version, follows_nonce| WriterEpoch {
        epoch: Epoch(epoch),
        began_nanoseconds: -5,
        follows_version,
        follows_nonce,
    };
    let object = |number, added, removed| PublishedObject {
        name: ObjectName { number, epoch: Epoch(0x11), nonce: 0xABCD, class: CLASSES[number as usize % 2] },
        length_bytes: 64,
        checksum: 7,
        added,
        removed,
    };
    Manifest {
        store: [9; 16],
        version: 8,
        nonce: 77,
        next_number: 5,
        epochs: vec![entry(0x11, 0, 0), entry(0x22, 5, 55)],
        pins: BTreeMap::from([("one".to_owned(), 3), ("two".to_owned(), 8)]),
        objects: vec![object(1, 2, 6), object(2, 2, 0), object(4, 7, 0)],
        body: Arc::new(b"meaning".to_vec()),
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let bytes = a_manifest().encode();
    assert_eq!(bytes.len(), HEAD_BYTES + 2 * EPOCH_BYTES + 2 * (PIN_BYTES + 3) + 3 * OBJECT_BYTES + 8 + 7);
    assert_eq!((HEAD_BYTES, EPOCH_BYTES, PIN_BYTES, OBJECT_BYTES), (88, 32, 10, 53));
    assert_eq!(bytes[8..16], *b"granpub\0");
    assert_eq!(bytes[24..32], (bytes.len() as u64).to_le_bytes());
    assert_eq!((bytes[32], bytes[48], bytes[56], bytes[64], bytes[72], bytes[76], bytes[80]), (9, 8, 77, 5, 2, 2, 3));
    assert!(bytes.ends_with(b"\x07\0\0\0\0\0\0\0meaning"));
    assert_eq!(Manifest::decode(&bytes), Ok(a_manifest()));
}

#[test]
fn what_contradicts_itself_is_refused() {
    type Change = fn(&mut Manifest);
    let changes: [Change; 17] = [
        |manifest| manifest.version = 6,
        |manifest| manifest.version = 0,
        |manifest| manifest.version = u64::MAX,
        |manifest| manifest.next_number = 4,
        |manifest| manifest.next_number = u64::MAX,
        |manifest| manifest.epochs.clear(),
        |manifest| manifest.epochs = vec![manifest.epochs[0].clone(); 2],
        |manifest| manifest.epochs[1].follows_version = 8,
        |manifest| _ = manifest.pins.remove("one"),
        |manifest| _ = manifest.pins.insert("three".to_owned(), 9),
        |manifest| _ = manifest.pins.insert(String::new(), 1),
        |manifest| manifest.objects.swap(0, 1),
        |manifest| manifest.objects[1].name.number = 1,
        |manifest| manifest.objects[1].added = 0,
        |manifest| manifest.objects[1].added = 9,
        |manifest| manifest.objects[0].removed = 2,
        |manifest| manifest.objects[0].removed = 9,
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut manifest = a_manifest();
        change(&mut manifest);
        let refused = Err(DecodeError::Damaged("it is inconsistent"));
        assert_eq!(Manifest::decode(&manifest.encode()), refused, "change {at}");
    }
    let mut longer = a_manifest().encode();
    longer.push(0);
    assert_eq!(Manifest::decode(&longer), Err(DecodeError::Damaged("its length is wrong")));
    seal(&mut longer);
    assert_eq!(Manifest::decode(&longer), Err(DecodeError::Damaged("it is inconsistent")));
    let mut newer = a_manifest().encode();
    newer[16] = 3;
    assert_eq!(Manifest::decode(&newer), Err(DecodeError::Newer(3)));
    assert_eq!(Manifest::decode(b""), Err(DecodeError::Damaged("it is not a manifest")));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = a_manifest().encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(Manifest::decode(&changed).is_err(), "byte {at}");
        assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn a_name_is_read_as_it_is_written_only() {
    let name = ObjectName { number: 1, epoch: Epoch(0xEE), nonce: 2, class: Class::Fast };
    assert_eq!(name.path(), "fast/0000000000000001-00000000000000ee-00000002");
    let slow = ObjectName { class: Class::Slow, ..name };
    assert_eq!(slow.path(), name.path().replace("fast", "slow"));
    for name in [name, slow] {
        assert_eq!(ObjectName::of(&name.path()), Some(name));
    }
    for other in [
        "fast/0000000000000001-00000000000000EE-00000002",
        "fast/0000000000000001-00000000000000ee",
        "fast/0000000000000001-00000000000000ee-00000002-",
        "fast/+000000000000001-00000000000000ee-00000002",
        "fast/0000000000000001-00000000000000ee-000000002",
        "0000000000000001-00000000000000ee-00000002",
        "fast/",
    ] {
        assert_eq!(ObjectName::of(other), None, "{other}");
    }
}

#[test]
fn a_manifest_tells_what_became_of_another() {
    // Sent by epoch 0x22 at version 9, on version 8.
    let before = a_manifest();
    let sent = before.succeeded_by(99);
    let fate = |found: &Manifest| found.fate_of(&sent);
    assert_eq!(fate(&before), Fate::Before);
    assert_eq!(fate(&sent), Fate::Newest);
    let begin = |on: &Manifest, epoch: u64| {
        let mut next = on.succeeded_by(epoch);
        let (follows_version, follows_nonce) = (on.version, on.nonce);
        next.epochs.push(WriterEpoch { epoch: Epoch(epoch), began_nanoseconds: 0, follows_version, follows_nonce });
        next
    };
    // Others continued without it, from its predecessor.
    let without = begin(&before, 0x33);
    assert_eq!(fate(&without), Fate::Overtaken);
    assert_eq!(fate(&without.succeeded_by(1)), Fate::Overtaken);
    assert_eq!(fate(&begin(&without.succeeded_by(1), 0x44)), Fate::Overtaken);
    // Others continued from it.
    assert_eq!(fate(&begin(&sent, 0x33)), Fate::Followed);
    assert_eq!(fate(&begin(&begin(&sent, 0x33).succeeded_by(2), 0x44)), Fate::Followed);
    // A copy of the writer was faster; if a later epoch follows immediately, nonces tell which one took effect.
    let twin = before.succeeded_by(98);
    assert_eq!(fate(&twin), Fate::Overtaken);
    assert_eq!(fate(&begin(&twin, 0x33)), Fate::Overtaken);
    assert_eq!(fate(&twin.succeeded_by(97)), Fate::Unknown);
    // The history does not reach back.
    let mut forgetful = begin(&without.succeeded_by(1), 0x44);
    forgetful.epochs.drain(..3);
    assert_eq!(fate(&forgetful), Fate::Unknown);
    let other = Manifest { store: [1; 16], ..sent.clone() };
    assert_eq!(fate(&other), Fate::Unknown);
}

proptest! {
    #[test]
    fn what_is_encoded_is_what_is_read_back(
        (store, nonce) in any::<([u8; 16], u64)>(),
        epochs in proptest::collection::vec((any::<u64>(), any::<i64>(), 1..1000u64, any::<u64>()), 1..20),
        pins in proptest::collection::btree_map("\\PC{1,20}", 0..1000u64, 0..4),
        objects in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u64>(), 1..4u64, 0..9u64, 0..100u64), 0..50),
        (more, body) in (0..1000u64, proptest::collection::vec(any::<u8>(), 0..40)),
    ) {
        let mut follows_version = 0;
        let epochs: Vec<WriterEpoch> = epochs.into_iter().map(|(epoch, began_nanoseconds, step, follows_nonce)| {
            follows_version += step;
            WriterEpoch { epoch: Epoch(epoch), began_nanoseconds, follows_version, follows_nonce }
        }).collect();
        let mut number = 0;
        let objects: Vec<PublishedObject> = objects.into_iter().map(|(epoch, nonce, checksum, step, added, lives)| {
            // In any order: what was staged first may be published last.
            let added = added + 1;
            number += step;
            let name = ObjectName { number, epoch: Epoch(epoch), nonce, class: CLASSES[(nonce % 2) as usize] };
            let removed = if lives < 50 { 0 } else { added + lives };
            PublishedObject { name, length_bytes: checksum >> 3, checksum, added, removed }
        }).collect();
        let version = (follows_version + 1).max(110) + more;
        let pins = pins.into_iter().map(|(name, at)| (name, at % version + 1)).collect();
        let (next_number, body) = (number + 1, Arc::new(body));
        let mut manifest = Manifest { store, version, nonce, next_number, epochs, pins, objects, body };
        manifest.forget();
        prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }

    #[test]
    fn any_bytes_are_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Manifest::decode(&bytes).is_err());
        let real = a_manifest().encode();
        let head = bytes.len().min(24);
        bytes[..head].copy_from_slice(&real[..head]);
        seal(&mut bytes);
        if let Ok(manifest) = Manifest::decode(&bytes) {
            prop_assert_eq!(manifest.encode(), bytes);
        }
    }
}
