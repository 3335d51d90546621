//! The entry points for fuzzers on real bytes, intact and mutated. `GRANULO_UPDATE_GOLDEN=1` writes the real bytes as
//! seeds.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::devices::bucket::body::tests::a_body as a_volume;
use crate::devices::objects::Objects;
use crate::devices::published::MANIFEST;
use crate::devices::published::manifest::tests::a_manifest;
use crate::format::ids::DeviceNumber;
use crate::index::catalog::tests::a_change;
use crate::index::table::TableWriter;
use crate::index::table::tests::{device, imported};
use crate::random::Random;
use crate::{Durability, Key, Plan, Store};

/// Mutations per seed.
const MUTATIONS: u64 = 200;

type Target = fn(&[u8]);

/// The targets, by name.
const TARGETS: [(&str, Target); 10] = [
    ("record", record),
    ("segment", segment),
    ("descriptor", descriptor),
    ("superblock", superblock),
    ("table", table),
    ("catalog", catalog),
    ("published", published),
    ("volume", volume),
    ("replica", replica),
    ("archive", archive),
];

/// Bytes for each target: the files of a real store with two fast and three slow devices, a table and an archive.
fn real() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let sandbox = tempfile::tempdir().unwrap();
    let directories =
        |class: &str, count: usize| (0..count).map(|n| sandbox.path().join(format!("{class}{n}"))).collect();
    let plan = Plan {
        fast: directories("fast", 2),
        slow: directories("slow", 3),
        cutoff_bytes: 4096,
        stripe_unit_bytes: 4096,
        segment_bytes: 1 << 20,
        // However full the test's disk is.
        watermarks_percent: (100, 99),
        ..Plan::default()
    };
    let store = Store::create(&sandbox.path().join("home"), &plan).unwrap();
    let mut attributes = Attributes::of_file(crate::Time { seconds: 1_000_000_000, nanoseconds: 5 });
    attributes.xattrs = vec![(b"user.a".to_vec(), b"value".to_vec())];
    let mut batch = store.batch(Durability::Batch);
    batch.put(&Key::parse("directory/small").unwrap(), &attributes, b"content").unwrap();
    batch.put(&Key::parse("directory/large").unwrap(), &attributes, &[7; 30_000]).unwrap();
    batch.commit().unwrap();
    store.remove(&Key::parse("directory/small").unwrap()).unwrap();
    drop(store);

    let segments = sandbox.path().join("fast0/segments");
    let log = fs::read(fs::read_dir(segments).unwrap().next().unwrap().unwrap().path()).unwrap();
    let mut bytes = vec![("segment", "real", log.clone())];
    let header = SegmentHeader::decode(&log).unwrap();
    let seed = header.id.seed(&header.store);
    let mut scan = SegmentScan::new(vec![(DeviceNumber(0), Arc::new(MemoryFile::new(&log)))], seed, LogOffset::START);
    loop {
        let (offset, found) = match scan.next(false) {
            Some(ScanStep::Record(offset, found, _)) => (offset, found),
            Some(ScanStep::Commit(committed, found, _)) => (committed.at, found),
            _ => break,
        };
        let name = match found.head.kind {
            Kind::File => "file",
            Kind::Large => {
                bytes.push(("descriptor", "real", found.content.to_vec()));
                "large"
            }
            Kind::Commit => "commit",
            Kind::Removal => "removal",
            _ => continue,
        };
        bytes.push(("record", name, log[offset.0 as usize..(offset + found.record_bytes()).0 as usize].to_vec()));
    }
    let slots = fs::read(sandbox.path().join("slow0/superblock")).unwrap();
    let length = 8 + u32::from_le_bytes(slots[20..24].try_into().unwrap()) as usize;
    bytes.push(("superblock", "real", slots[..length].to_vec()));
    // The body, for which the target adds header and checksum.
    bytes.push(("superblock", "body", slots[24..length].to_vec()));

    let (_guard, device) = device();
    for (number, name, count) in [(1, "small", 20), (2, "levels", 900)] {
        let entries = imported(count);
        let mut writer = TableWriter::create(&device, number).unwrap();
        entries.iter().for_each(|(key, entry)| writer.add(key, entry).unwrap());
        writer.finish().unwrap();
        let file = device.open(&crate::index::table::table_path(number), Mode::Read).unwrap();
        let mut table = Vec::new();
        file.read_onto(&mut table, 1 << 20, 0).unwrap();
        bytes.push(("table", name, table));
    }
    let entries: BTreeMap<_, _> = imported(20);
    let change = a_change(entries.into_iter().collect());
    bytes.push(("catalog", "change", encoding::encode_change(1, &change)));
    let mut state = State::default();
    state.apply(&change);
    bytes.push(("catalog", "state", encoding::encode_state(&state).unwrap()));
    bytes.push((
        "catalog",
        "manifest",
        manifest::encode(&[7; 16], crate::format::ids::Epoch(1), 2, 3, &state).unwrap().1,
    ));
    bytes.push(("published", "manifest", a_manifest().encode()));
    bytes.push(("published", "objects", published_by_a_writer()));
    bytes.push(("volume", "table", a_body()));
    bytes.push(("replica", "image", wire::tests::an_image()));
    bytes.push(("replica", "frames", wire::tests::frames()));
    bytes.push(("archive", "real", tar_of_several_kinds()));
    bytes
}

/// A manifest of two epochs, with batches, a pin, and objects that only the pin keeps.
fn published_by_a_writer() -> Vec<u8> {
    let (bucket, machine) = (Arc::new(Memory::default()), Arc::new(Machine::default()));
    let mut writer = Writer::create(bucket.clone(), machine.clone()).unwrap();
    writer.publish(&[b"one", b"two"], &[]).unwrap();
    writer.pin("pin").unwrap();
    let mut writer = Writer::open(bucket.clone(), machine).unwrap();
    writer.publish(&[b"three"], &[1]).unwrap();
    bucket.read(MANIFEST, 0..u64::MAX).unwrap().bytes
}

fn a_body() -> Vec<u8> {
    let objects = three_objects();
    body::encode(&a_volume(&objects), &objects.iter().zip(0..).map(|(object, at)| (object.number(), at)).collect())
}

fn tar_of_several_kinds() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(600);
    builder.append_data(&mut header, "file", &[1; 600][..]).unwrap();
    builder.append_pax_extensions([("SCHILY.xattr.user.a", &b"value"[..]), ("mtime", b"1.5")]).unwrap();
    header.set_size(3);
    builder.append_data(&mut header, "with/attributes", &b"abc"[..]).unwrap();
    let map: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"sparse"),
        ("GNU.sparse.realsize", b"99"),
    ];
    builder.append_pax_extensions(map).unwrap();
    let mut data = b"1\n9\n3\n".to_vec();
    data.resize(512, 0);
    data.extend_from_slice(b"abc");
    header.set_size(data.len() as u64);
    builder.append_data(&mut header, "sparse", &data[..]).unwrap();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "symlink", "../file").unwrap();
    let mut long = tar::Header::new_gnu();
    long.set_size(1);
    builder.append_data(&mut long, "long/".repeat(40) + "name", &b"x"[..]).unwrap();
    builder.into_inner().unwrap()
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            2 => bytes.truncate(at),
            3 => {
                let end = bytes.len().min(at + random.below(64) as usize);
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, piece);
            }
            4 => {
                let end = bytes.len().min(at + random.below(64) as usize);
                bytes.drain(at..end);
            }
            _ => {
                let end = bytes.len().min(at + 8);
                bytes[at..end].fill(0xff);
            }
        }
    }
}

#[test]
fn no_decoder_panics_on_mutated_bytes_and_every_law_holds() {
    let real = real();
    if std::env::var_os("GRANULO_UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        for (target, name, bytes) in &real {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), bytes).unwrap();
        }
    }
    let mut random = Random::new(1);
    for (name, target) in TARGETS {
        let seeds: Vec<&Vec<u8>> = real.iter().filter(|(of, _, _)| *of == name).map(|(_, _, bytes)| bytes).collect();
        assert!(!seeds.is_empty(), "{name} has no seed");
        for seed in seeds {
            target(seed);
            for _ in 0..MUTATIONS {
                let mut bytes = seed.clone();
                mutate(&mut bytes, &mut random);
                target(&bytes);
            }
        }
    }
}
