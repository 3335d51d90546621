//! What is encoded is read back; nothing else is.

use proptest::prelude::*;

use super::*;
use crate::devices::objects::Memory;
use crate::devices::published::{Machine, Writer};
use crate::format::geometry::Class;

/// Objects of 100, 200 and 300 bytes, published by nobody.
pub(crate) fn three_objects() -> Vec<Arc<PublishedObject>> {
    let mut writer = Writer::create(Arc::new(Memory::default()), Arc::new(Machine::default())).unwrap();
    let lengths = [(Class::Fast, 100), (Class::Slow, 200), (Class::Fast, 300)];
    let staged = lengths.map(|(class, length)| writer.stage(class, &vec![1; length]).unwrap());
    staged.iter().map(|staged| Arc::new(staged.published(1))).collect()
}

fn indexes(objects: &[Arc<PublishedObject>]) -> BTreeMap<u64, u64> {
    objects.iter().zip(0..).map(|(object, index)| (object.number(), index)).collect()
}

/// What a table says, in one form.
fn words(table: &FileTable) -> Vec<String> {
    let directories = table.directories().map(|path| format!("{path}/"));
    let files = table.named().map(|(path, number, pieces)| {
        let mut all = format!("{path} {}:", number.0);
        let mut was_bytes = false;
        for piece in pieces.iter() {
            let is_bytes = piece.bytes().is_some();
            match &piece.source {
                Source::Hole => all += &format!(" hole {}", piece.length),
                Source::Object { object, offset } => {
                    all += &format!(" object {} from {offset} {}", object.number(), piece.length);
                }
                Source::Bytes { .. } => {
                    all += if was_bytes { "," } else { " bytes " };
                    all += &format!("{:?}", piece.bytes().unwrap()).trim_matches(['[', ']']).replace(' ', "");
                }
            }
            was_bytes = is_bytes;
        }
        all
    });
    directories.chain(files).chain([format!("next {}", table.next().0)]).collect()
}

/// A body with something of each kind.
pub(crate) fn a_body(objects: &[Arc<PublishedObject>]) -> Body {
    Body {
        lease: a_lease(),
        table: a_table(objects),
        dropped: some_dropped(),
        spent: some_requests(),
        remembered: Remembered { fast_class: None, slow_class: Some("STANDARD_IA".to_owned()), grace_seconds: Some(0) },
    }
}

/// Of two epochs and both classes, two of them at one time.
fn some_dropped() -> Dropped {
    let mut dropped = Dropped::default();
    for (seconds, number, epoch, class) in
        [(1_800_000_000, 70, 9, Class::Fast), (1_800_000_000, 71, 5, Class::Slow), (1_800_000_100, 3, 9, Class::Slow)]
    {
        assert!(dropped.add(seconds, ObjectName { number, epoch: Epoch(epoch), nonce: 0xabcd, class }));
    }
    dropped
}

fn some_requests() -> Requests {
    Requests::of_numbers([1, 200, 3, 40_000, 0, 6, 1 << 40, u64::MAX])
}

fn a_lease() -> Lease {
    let mut holder = Process::default();
    (holder.number, holder.began) = (4711, 1 << 40);
    (holder.host, holder.machine) = ("host".to_owned(), "the machine".to_owned());
    Lease { is_released: false, holder, renewed_milliseconds: 300 }
}

fn a_table(objects: &[Arc<PublishedObject>]) -> FileTable {
    let mut table = FileTable::default();
    table.create_directory("index/pins").unwrap();
    table.create_directory("segments").unwrap();
    for (path, source) in [
        ("superblock", Source::Hole),
        ("segments/1", Source::Object { object: Arc::clone(&objects[1]), offset: 5 }),
        ("segments/10", Source::Bytes { bytes: Arc::new(b"in the body".to_vec()), offset: 3 }),
    ] {
        let number = table.create(path).unwrap();
        let pieces = table.pieces_mut(number).unwrap();
        pieces.append(8, source);
        pieces.write(30, b"end");
    }
    table.create("index/empty").unwrap();
    table
}

#[test]
fn a_table_is_read_back() {
    let objects = three_objects();
    let body = a_body(&objects);
    let bytes = encode(&body, &indexes(&objects));
    let found = decode(&bytes, &objects).unwrap();
    assert_eq!((found.lease, found.dropped, found.spent), (a_lease(), some_dropped(), some_requests()));
    assert_eq!(found.remembered, body.remembered);
    let nothing = Body { remembered: Remembered::default(), ..a_body(&objects) };
    let without = encode(&nothing, &indexes(&objects));
    assert_eq!(decode(&without, &objects).unwrap().remembered, Remembered::default());
    assert_eq!(words(&found.table), words(&body.table));
    assert_eq!(
        words(&found.table),
        [
            "index/",
            "index/pins/",
            "segments/",
            "index/empty 3:",
            "segments/1 1: object 2 from 5 8 hole 22 bytes 101,110,100",
            "segments/10 2: bytes 116,104,101,32,98,111,100,121 hole 22 bytes 101,110,100",
            "superblock 0: hole 30 bytes 101,110,100",
            "next 4",
        ]
    );
    // The object has no such range, or is not there.
    assert_eq!(decode(&bytes, &objects[..1]).unwrap_err(), BodyError::Damaged);
    let others = [Arc::clone(&objects[0]), Arc::clone(&objects[0])];
    assert!(decode(&bytes, &others).is_ok(), "it has bytes 5 to 12");
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(decode(&newer, &objects).unwrap_err(), BodyError::Newer(9));
    // Before a section that need not be there, it is whole.
    for end in (0..bytes.len()).filter(|&end| end != without.len()) {
        assert!(decode(&bytes[..end], &objects).is_err(), "cut at {end}");
    }
}

#[test]
fn a_lease_is_exchanged_alone() {
    let objects = three_objects();
    let before = encode(&a_body(&objects), &indexes(&objects));
    let released = with_lease(&before, &Lease::default()).unwrap();
    let found = decode(&released, &objects).unwrap();
    assert!(found.lease.is_released && released.len() < before.len());
    assert_eq!(words(&found.table), words(&a_table(&objects)));
    assert_eq!(with_lease(&released, &a_lease()).unwrap(), before);
    for end in 0..=LEASE_AT + SECTION_BYTES {
        assert!(with_lease(&before[..end], &Lease::default()).is_err(), "cut at {end}");
    }
    let mut strange = before;
    strange[LEASE_AT + SECTION_BYTES] = 2;
    assert_eq!(decode(&strange, &objects).unwrap_err(), BodyError::Damaged, "a flag that nobody sets");
}

/// Counts and lengths that are not there allocate nothing.
#[test]
fn what_claims_to_be_long_is_refused() {
    let objects = three_objects();
    let bytes = encode(&Body::default(), &BTreeMap::new());
    // The lease: flags, three numbers, two lengths.
    let files_at = LEASE_AT + SECTION_BYTES + 6 + SECTION_BYTES + 1 + SECTION_BYTES;
    for claim in [&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0xff; 9]] {
        let mut long = bytes[..files_at].to_vec();
        long.extend_from_slice(claim);
        long.extend_from_slice(&bytes[files_at + 1..]);
        long[files_at - 4] = claim.len() as u8;
        assert_eq!(decode(&long, &objects).unwrap_err(), BodyError::Damaged);
    }
}

#[derive(Debug, Clone)]
enum Part {
    Hole(u64),
    Object(usize, u64, u64),
    Bytes(Vec<u8>),
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        (1..1_000_000_u64).prop_map(Part::Hole),
        (0..3_usize, 0..90_u64, 1..10_u64).prop_map(|(object, from, length)| Part::Object(object, from, length)),
        proptest::collection::vec(any::<u8>(), 1..20).prop_map(Part::Bytes),
    ];
    proptest::collection::vec(part, 0..6)
}

proptest! {
    #[test]
    fn what_is_encoded_is_what_is_read_back(
        files in proptest::collection::btree_map("[a-c]{1,2}(/[a-c]{1,3}){0,3}", parts(), 0..12),
        skipped in 0..5_u64,
    ) {
        let objects = three_objects();
        let mut table = FileTable::default();
        for (path, parts) in files {
            if let Some((above, _)) = path.rsplit_once('/')
                && table.create_directory(above).is_err()
            {
                continue;
            }
            table.set_next(FileNumber(table.next().0 + skipped));
            let Ok(number) = table.create(&path) else { continue };
            let pieces = table.pieces_mut(number).unwrap();
            for part in parts {
                match part {
                    Part::Hole(length) => pieces.append(length, Source::Hole),
                    Part::Object(index, offset, length) => {
                        pieces.append(length, Source::Object { object: Arc::clone(&objects[index]), offset });
                    }
                    Part::Bytes(bytes) => {
                        let length = bytes.len() as u64;
                        pieces.append(length, Source::Bytes { bytes: Arc::new(bytes), offset: 0 });
                    }
                }
            }
        }
        let body = Body { lease: a_lease(), table, dropped: some_dropped(), spent: some_requests(), ..Body::default() };
        let bytes = encode(&body, &indexes(&objects));
        let found = decode(&bytes, &objects).unwrap();
        prop_assert_eq!(words(&found.table), words(&body.table));
        prop_assert_eq!((&found.lease, &found.dropped), (&body.lease, &body.dropped));
        prop_assert_eq!(encode(&found, &indexes(&objects)), bytes);
    }

    #[test]
    fn any_bytes_are_refused_or_read(at in 0..400_usize, byte in any::<u8>(), rest in proptest::collection::vec(any::<u8>(), 0..60)) {
        let objects = three_objects();
        let mut bytes = encode(&a_body(&objects), &indexes(&objects));
        let at = at % bytes.len();
        bytes[at] = byte;
        check(&bytes, &objects);
        bytes.splice(at.., rest);
        check(&bytes, &objects);
    }
}

/// What is decoded can be encoded, and is the same then.
fn check(bytes: &[u8], objects: &[Arc<PublishedObject>]) {
    if let Ok(body) = decode(bytes, objects) {
        let again = decode(&encode(&body, &indexes(objects)), objects).unwrap();
        assert_eq!(words(&again.table), words(&body.table));
        assert_eq!((again.lease, again.dropped), (body.lease, body.dropped));
    }
}
