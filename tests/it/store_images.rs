//! Stores written by earlier versions of granulo: images in `tests/data/stores`, which this version must open, read,
//! check and write to.
//!
//! An image is the directory of a store with all its devices, as `tar.zst`, named after the version of the format. Its
//! contents follow from [`contents`], which may gain objects only for images of a later version.
//! `GRANULO_UPDATE_GOLDEN=1` makes missing images; an existing one is never rewritten: it is what that version wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use granulo::progress::Progress;
use granulo::store::geometry::Alignment;
use granulo::store::{
    Attributes, Buffer, CheckOptions, Choice, CompactOptions, Compression, Durability, Holes, Key, Kind, Plan, Problem,
    Store, Time,
};
use tempfile::TempDir;

use crate::harness::{sandbox, source_tree};

/// Largest size of an image: an archive cannot compress parity.
const MOST_BYTES: u64 = 320 << 10;

/// Images, and the state in which their store was left.
const IMAGES: [(&str, Left); 11] = [
    ("v2-single", Left::Closed),
    ("v2-zstd", Left::Closed),
    ("v2-mirror", Left::Closed),
    ("v2-triple", Left::Closed),
    ("v2-raid5", Left::Closed),
    ("v2-raid6", Left::Closed),
    ("v2-four-alike", Left::Closed),
    ("v2-unfinished", Left::Unfinished),
    ("v2-aligned-512", Left::Closed),
    ("v2-aligned-4096", Left::Unfinished),
    ("v2-packed-12288", Left::Closed),
];

/// The state in which a store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// By a writer that closed it.
    Closed,
    /// By a writer that was killed: the end of the log is not in the index.
    Unfinished,
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    /// All bytes, holes filled in.
    File(Vec<u8>),
    Directory,
    Symlink(Vec<u8>),
    Special(u32, u32),
}

/// Keys with kind, attributes, content.
type Contents = BTreeMap<String, (Attributes, Body)>;

/// Bytes that distinguish each object from the others and compress well.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let line = |number: usize| {
        if number.is_multiple_of(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        format!("{state:016x} {number}\n").into_bytes()
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(18)).flat_map(line).collect();
    bytes.truncate(length);
    bytes
}

fn attributes(mode: u16, seed: i64) -> Attributes {
    let mtime = Time { seconds: 1_700_000_000 - seed * 86_400, nanoseconds: 123_456_789 };
    // Changed when it was modified, at one time with others, or by itself; and then or before.
    let ctime = match seed.rem_euclid(3) {
        0 => mtime,
        1 => Time { seconds: 1_750_000_000, nanoseconds: 999_999_999 },
        _ => Time { seconds: mtime.seconds + seed, nanoseconds: 0 },
    };
    let btime = if seed % 2 == 0 { ctime } else { Time { seconds: -seed, nanoseconds: 1 } };
    let (ctime, btime) = (Some(ctime), Some(btime));
    Attributes { mode, uid: 1000, gid: 100, mtime, ctime, btime, ..Attributes::default() }
}

fn holes() -> Holes {
    Holes { size_bytes: 50_000, data: vec![(4096, 1000), (30_000, 2000)] }
}

/// The contents of the images of format version 2.
fn contents() -> Contents {
    let mut contents = Contents::new();
    for (seed, path) in ["d", "d/empty", "d/e", "d/e/f", "replaced"].into_iter().enumerate() {
        contents.insert(path.to_owned(), (attributes(0o040_750, seed as i64), Body::Directory));
    }
    contents.insert(String::new(), (attributes(0o040_711, -1), Body::Directory));
    for (seed, length) in [0, 1, 3, 4096, 8191, 8192, 8193, 20_000, 70_001, 200_000].into_iter().enumerate() {
        let file = Body::File(text(seed as u64, length));
        contents.insert(format!("d/e/{length}"), (attributes(0o100_644, seed as i64), file));
    }
    for number in 0..40 {
        let file = Body::File(text(100 + number, 10 * number as usize));
        contents.insert(format!("d/e/f/{number:02}"), (attributes(0o100_600, number as i64), file));
    }
    for number in 0..4 {
        let file = Body::File(text(200 + number, 3000));
        contents.insert(format!("replaced/{number}"), (attributes(0o100_640, -5), file));
    }
    for path in ["d/first name", "d/e/second name"] {
        contents.insert(path.to_owned(), (attributes(0o100_444, 7), Body::File(text(300, 5000))));
    }
    contents.insert("d/symlink".to_owned(), (attributes(0o120_777, 8), Body::Symlink(b"../not there".to_vec())));
    contents.insert("d/fifo".to_owned(), (attributes(0o010_644, 9), Body::Special(0, 0)));
    contents.insert("d/device".to_owned(), (attributes(0o020_620, 10), Body::Special(5, 1)));
    let mut sparse = attributes(0o100_644, 11);
    sparse.holes = Some(holes());
    let data = text(301, 3000);
    let mut filled = vec![0; 50_000];
    filled[4096..5096].copy_from_slice(&data[..1000]);
    filled[30_000..32_000].copy_from_slice(&data[1000..]);
    contents.insert("d/sparse".to_owned(), (sparse, Body::File(filled)));
    let mut extended = attributes(0o104_755, 12);
    extended.atime = Some(Time { seconds: -1, nanoseconds: 999_999_999 });
    extended.xattrs = vec![(b"security.any".to_vec(), vec![0, 255]), (b"user.long".to_vec(), text(302, 600))];
    contents.insert("d/new\nline and \u{e9}".to_owned(), (extended, Body::File(text(303, 77))));
    contents
}

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

/// The contents of the snapshot of each image: files that are replaced or removed after it.
fn kept() -> BTreeMap<String, Vec<u8>> {
    let of = |number: u64| {
        let replaced = (format!("replaced/{number}"), text(400 + number, 9500));
        let removed = (format!("removed/{number}"), text(500 + number, 9000));
        [replaced, removed, (format!("d/e/gone {number}"), text(600 + number, 2000))]
    };
    (0..4).flat_map(of).collect()
}

/// Puts everything, in several batches, including objects that are replaced, removed and moved later.
fn fill(store: &Store, left: Left) {
    let before = attributes(0o100_600, 0);
    let mut batch = store.batch(Durability::Batch);
    for (path, content) in kept() {
        batch.put(&key(&path), &before, &content).unwrap();
    }
    batch.commit().unwrap();
    store.create_snapshot("kept").unwrap();
    for number in 0..4 {
        assert!(store.remove(&key(&format!("d/e/gone {number}"))).unwrap());
    }
    assert!(store.remove_tree(&key("removed")).unwrap());
    put(store, Durability::Batch, &mut contents().iter().filter(|(path, _)| !is_late(path)));
    if left == Left::Closed {
        let options = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
        store.compact(&options, &Progress::default()).unwrap();
    }
    let late = if left == Left::Closed { Durability::Batch } else { Durability::None };
    put(store, late, &mut contents().iter().filter(|(path, _)| is_late(path)));
}

/// What is put at the end, after the compaction; it includes a large object.
fn is_late(path: &str) -> bool {
    path.starts_with("d/e/f/3") || path == "d/e/20000"
}

fn put(store: &Store, durability: Durability, objects: &mut dyn Iterator<Item = (&String, &(Attributes, Body))>) {
    let mut batch = store.batch(durability);
    let mut shared = None;
    for (path, (attributes, body)) in objects {
        let key = key(path);
        match body {
            Body::File(content) if path.ends_with(" name") => {
                let number = *shared.get_or_insert_with(|| {
                    batch.shared(attributes, &mut &content[..], Some(content.len() as u64)).unwrap()
                });
                batch.link(&key, number).unwrap();
            }
            Body::File(content) => {
                let stored = match &attributes.holes {
                    Some(holes) => {
                        let run =
                            |&(offset, length): &(u64, u64)| &content[offset as usize..(offset + length) as usize];
                        holes.data.iter().map(run).collect::<Vec<_>>().concat()
                    }
                    None => content.clone(),
                };
                batch.put(&key, attributes, &stored).unwrap();
            }
            Body::Directory => batch.directory(&key, attributes).unwrap(),
            Body::Symlink(target) => batch.symlink(&key, attributes, target).unwrap(),
            Body::Special(major, minor) => batch.special(&key, attributes, *major, *minor).unwrap(),
        }
    }
    batch.commit().unwrap();
}

/// The contents of the store.
fn read(store: &Store) -> Contents {
    let mut contents = Contents::new();
    let mut buffer = Buffer::default();
    for listed in store.walk(&Key::root()).unwrap() {
        let listed = listed.unwrap();
        let object = store.read(&listed.key, &mut buffer).unwrap().unwrap();
        let number = |at: usize| u32::from_le_bytes(object.content[at..at + 4].try_into().unwrap());
        let body = match object.entry.kind {
            Kind::Directory => Body::Directory,
            Kind::Symlink => Body::Symlink(object.content.to_vec()),
            Kind::Special => Body::Special(number(0), number(4)),
            _ => Body::File(object.content.to_vec()),
        };
        // Two names of one file, and a separate file for each other name.
        assert_eq!(listed.shared.is_some(), listed.key.name().is_some_and(|name| name.ends_with(b" name")));
        let path = listed.key.to_path().to_str().unwrap().to_owned();
        contents.insert(if listed.key.is_root() { String::new() } else { path }, (object.attributes.clone(), body));
    }
    contents
}

#[track_caller]
fn has(store: &Store, expected: &Contents, image: &str) {
    let then = store.snapshot_named("kept").unwrap().unwrap();
    let mut buffer = Buffer::default();
    for listed in then.walk(&Key::root(), &Key::root()).unwrap().map(Result::unwrap) {
        let object = then.read(&listed.key, &mut buffer).unwrap().unwrap();
        let expected = kept().remove(&listed.key.to_string());
        let content = (object.entry.kind != Kind::Directory).then(|| object.content.to_vec());
        assert!(content == expected, "{image}: {} has other content in the snapshot", listed.key);
    }
    assert_eq!(then.list(&key("removed"), b"").unwrap().count(), 4, "{image}");
    let found = read(store);
    let keys = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&found), keys(expected), "{image}");
    for (path, (attributes, body)) in expected {
        assert_eq!(&found[path].0, attributes, "{image}: {path}");
        assert!(&found[path].1 == body, "{image}: {path} has other content");
    }
}

#[track_caller]
fn is_sound(store: &Store, image: &str) {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
    let report =
        store.check(options, &mut |problem: Problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(report.is_complete && problems.is_empty(), "{image}: {problems:#?}");
}

fn path_of(image: &str) -> PathBuf {
    source_tree().join("tests/data/stores").join(format!("{image}.tar.zst"))
}

fn plan(image: &str, home: &Path) -> Plan {
    let directories =
        |class: &str, count: usize| (0..count).map(|number| home.join(format!("{class}{number}"))).collect();
    let plan = Plan { cutoff_bytes: 8192, stripe_unit_bytes: 4096, segment_bytes: 1 << 20, ..Plan::default() };
    match image {
        "v2-mirror" => Plan { fast: directories("fast", 2), ..plan },
        "v2-triple" => Plan { fast: directories("fast", 3), copies: Some(3), ..plan },
        "v2-raid5" => Plan { fast: directories("fast", 2), slow: directories("slow", 3), ..plan },
        "v2-raid6" => Plan { fast: directories("fast", 2), slow: directories("slow", 5), parity: Some(2), ..plan },
        "v2-four-alike" => Plan { slow: directories("slow", 4), ..plan },
        "v2-zstd" | "v2-unfinished" => Plan { compression: Compression::Zstd(3), ..plan },
        "v2-aligned-512" => Plan { alignment: Alignment::Sector, compression: Compression::Zstd(3), ..plan },
        "v2-packed-12288" => {
            Plan { packed_bytes: 12 << 10, fast: directories("fast", 1), slow: directories("slow", 2), ..plan }
        }
        "v2-aligned-4096" => Plan { alignment: Alignment::Page, fast: directories("fast", 2), ..plan },
        _ => plan,
    }
}

/// Makes the image of a store of this version.
fn make(image: &str, left: Left) {
    let sandbox = sandbox();
    let home = sandbox.path().join("store");
    let store = Store::create(&home, &plan(image, &home)).unwrap();
    fill(&store, left);
    let pack = || {
        let mut archive = tar::Builder::new(zstd::Encoder::new(Vec::new(), 19).unwrap());
        archive.append_dir_all("store", &home).unwrap();
        archive.into_inner().unwrap().finish().unwrap()
    };
    let packed = match left {
        Left::Unfinished => pack(),
        Left::Closed => {
            drop(store);
            pack()
        }
    };
    fs::create_dir_all(path_of(image).parent().unwrap()).unwrap();
    fs::write(path_of(image), packed).unwrap();
}

fn unpack(image: &str) -> (TempDir, PathBuf) {
    let sandbox = sandbox();
    let bytes =
        fs::read(path_of(image)).unwrap_or_else(|error| panic!("{image}: {error} (GRANULO_UPDATE_GOLDEN=1 makes it)"));
    assert!(bytes.len() as u64 <= MOST_BYTES, "{image} has {} bytes", bytes.len());
    tar::Archive::new(zstd::Decoder::new(&bytes[..]).unwrap()).unpack(sandbox.path()).unwrap();
    // At another path than the original.
    let home = sandbox.path().join("moved");
    fs::rename(sandbox.path().join("store"), &home).unwrap();
    (sandbox, home)
}

#[test]
fn stores_of_every_version_of_the_format_are_read_and_written_to() {
    for (image, left) in IMAGES {
        let wanted = std::env::var_os("GRANULO_UPDATE_GOLDEN").is_some_and(|value| value == "1");
        if wanted && !path_of(image).exists() {
            make(image, left);
        }
        let mut expected = contents();
        let (_sandbox, home) = unpack(image);
        let reader = Store::open_read_only(&home).unwrap();
        assert_eq!(reader.troubles(), [], "{image}");
        assert_eq!(reader.recovered().batches > 0, left == Left::Unfinished, "{image}");
        has(&reader, &expected, image);
        // Entries that it took from the log into memory stay after it has checked for news.
        std::thread::sleep(Duration::from_millis(5));
        has(&reader, &expected, image);
        is_sound(&reader, image);
        drop(reader);

        let store = Store::open(&home).unwrap();
        assert_eq!(store.troubles(), [], "{image}");
        has(&store, &expected, image);
        is_sound(&store, image);
        let late = (attributes(0o100_644, 0), Body::File(text(900, 100_000)));
        expected.insert("written by a later version".to_owned(), late);
        put(&store, Durability::Batch, &mut expected.iter().filter(|(path, _)| path.starts_with("written")));
        for path in ["d/e/4096", "d/e/200000", "d/first name"] {
            assert!(store.remove(&key(path)).unwrap(), "{image}: {path}");
            expected.remove(path);
        }
        has(&store, &expected, image);
        drop(store);

        let store = Store::open(&home).unwrap();
        let options = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
        store.compact(&options, &Progress::default()).unwrap();
        has(&store, &expected, image);
        is_sound(&store, image);
    }
}
