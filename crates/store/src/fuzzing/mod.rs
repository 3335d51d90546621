//! Entry points for fuzzers: one function for each decoder, with the laws that hold for any bytes. Nothing else calls
//! them.
//!
//! Each takes any bytes, panics only on a violation of a law (the assertions here), and needs memory in proportion to
//! them. Where a checksum would stop a fuzzer, the bytes are tried unchanged and again with valid checksums. Seeds are
//! in `fuzz/seeds`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use super::tree::archive::Archive;
use crate::devices::bucket::body;
use crate::devices::device::{Device, DeviceFile, Mode, Room};
use crate::devices::objects::Memory;
use crate::devices::published::manifest::{self as published_manifest, ObjectName};
use crate::devices::published::{Machine, Manifest, PublishedObject, Writer};
use crate::format::VERSION;
use crate::format::attributes::Attributes;
use crate::format::descriptor::Descriptor;
use crate::format::entry::{Kind, Time};
use crate::format::geometry::Class;
use crate::format::ids::{BatchSequence, DeviceNumber, Epoch, LogOffset, ObjectNumber, SegmentId, SegmentNumber};
use crate::format::index_key::{ROOT, is_name};
use crate::format::record::{LARGEST_ID, NewRecord, Record, checksum, seal};
use crate::format::segment::{Commit, Continued, FIRST_BATCH_AT, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::index::catalog::{State, TableRow, encoding, journal, manifest};
use crate::index::table::block::{self, PAGE_BYTES, pages_of};
use crate::index::table::footer::Footer;
use crate::index::table::{BlockCache, KeyHash, Table, TableScan};
use crate::layout::granulo::Alignment;
use crate::log::scan::{DifferingCopies, ScanStep, SegmentScan};
use crate::maintain::replicate::wire;

/// A read-only file of a device without other files.
#[derive(Debug, Clone)]
struct MemoryFile(Arc<[u8]>);

impl MemoryFile {
    fn new(bytes: &[u8]) -> MemoryFile {
        MemoryFile(bytes.into())
    }
}

fn refuse<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl DeviceFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let length = rest.len().min(length);
        buffer.extend_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        refuse()
    }

    fn sync(&self) -> io::Result<()> {
        refuse()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_size(&self, _size_bytes: u64) -> io::Result<()> {
        refuse()
    }

    fn start_writeback(&self, _offset: u64, _length: u64) {}
}

impl Device for MemoryFile {
    fn place(&self) -> PathBuf {
        PathBuf::from("fuzz")
    }

    fn open(&self, _path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        if mode == Mode::Read { Ok(Arc::new(self.clone())) } else { refuse() }
    }

    fn list(&self, _directory: &str) -> io::Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    fn create_directory(&self, _directory: &str) -> io::Result<()> {
        refuse()
    }

    fn sync_directory(&self, _directory: &str) -> io::Result<()> {
        refuse()
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        refuse()
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        refuse()
    }

    fn room(&self) -> io::Result<Room> {
        Ok(Room { total_bytes: 0, available_bytes: 0 })
    }
}

/// Removes up to `length` bytes from the front, and returns them.
fn take<'b>(bytes: &mut &'b [u8], length: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(length.min(bytes.len()));
    *bytes = rest;
    taken
}

/// A little-endian number from the bytes at the front, of up to `length` bytes.
fn number(bytes: &mut &[u8], length: usize) -> u64 {
    take(bytes, length).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Records: what decodes is what was encoded; its attributes, descriptors and commits are decoded or refused.
///
/// # Panics
/// On a violation of a law.
pub fn record(bytes: &[u8]) {
    let here = SEED_OF.seed(&STORE).at(LogOffset(SEGMENT_HEADER_BYTES));
    if let Some(record) = Record::decode(bytes, here).or_else(|| Record::parse(bytes)) {
        look_into(&record);
    }
    let mut rest = bytes;
    let (kind, flags) = (number(&mut rest, 1), number(&mut rest, 1));
    let Some(kind) = Kind::from_byte(kind as u8) else { return };
    let id = number(&mut rest, 6);
    let (key_length, attributes_length) = (number(&mut rest, 1), number(&mut rest, 2));
    let (key, attributes) = (take(&mut rest, key_length as usize), take(&mut rest, attributes_length as usize));
    let is_zstd = flags & 1 != 0 && kind == Kind::File;
    let moved = (flags & 2 != 0).then_some(if kind.is_used() && flags & 64 != 0 { LARGEST_ID } else { 0 });
    let has_object = kind.is_used() || kind == Kind::TreeRemoval;
    let number = ObjectNumber(if has_object { id.max(1) & LARGEST_ID } else { 0 });
    let is_nameless = matches!(kind, Kind::Commit | Kind::Release) || kind == Kind::Snapshot && !is_name(key);
    let (parent, key) = match is_name(key) && !is_nameless {
        true => (if kind == Kind::Snapshot { ObjectNumber::NONE } else { ROOT }, key),
        false => (ObjectNumber::NONE, &[][..]),
    };
    // What is not a name is that of the root, which is a directory.
    if key.is_empty() && !is_nameless && !matches!(kind, Kind::Directory | Kind::TreeRemoval) {
        return;
    }
    let attributes = if kind.is_used() && kind != Kind::Link { attributes } else { &[] };
    let rest = if matches!(kind, Kind::Link | Kind::Removal | Kind::Attributes) { &[] } else { rest };
    // What superseded it is newer.
    let id = id & LARGEST_ID.min(if moved.is_some() { LARGEST_ID - 1 } else { LARGEST_ID });
    let name = (!is_nameless).then_some(key);
    let new = NewRecord { kind, is_zstd, moved, id, number, parent, name, attributes, content: rest };
    let mut encoded = Vec::new();
    let alignment = Alignment::ALL[flags as usize / 4 % 3];
    new.encode(alignment, &mut encoded).expect("no part is too long");
    let list = seal(&mut encoded, SEED_OF.seed(&STORE), LogOffset(SEGMENT_HEADER_BYTES));
    let record = Record::decode(&encoded, here).expect("what was encoded is decoded");
    assert_eq!(list, [record.head.listed()]);
    assert_eq!(record.record_bytes(), encoded.len() as u64);
    let head = record.head;
    assert_eq!((head.kind, head.id, head.number, head.parent), (kind, id, number, parent));
    assert_eq!(head.until, moved.unwrap_or(0));
    assert_eq!((head.name, head.attributes, record.content, head.is_zstd), (name, attributes, rest, is_zstd));
    look_into(&record);
}

fn look_into(record: &Record<'_>) {
    if let Some(attributes) = Attributes::decode(record.head.attributes) {
        let mut again = Vec::new();
        if attributes.encode(Time::default(), &mut again).is_ok() {
            assert_eq!(Attributes::decode(&again), Some(attributes));
        }
    }
    match record.head.kind {
        Kind::Large => descriptor(record.content),
        Kind::Commit => {
            let commit = Commit::decode(record.content);
            assert!(commit.is_none_or(|commit| commit.encode() == record.content));
        }
        _ => {}
    }
}

/// A segment that is read from beginning to end: it returns only what was written at its place, and everything in an
/// undamaged batch.
///
/// # Panics
/// On a violation of a law.
pub fn segment(bytes: &[u8]) {
    scan(bytes);
    // Batches of records whose content is a piece of the bytes; some are damaged.
    let mut file = SegmentHeader {
        class: Class::Fast,
        copies: 1,
        alignment: Alignment::None,
        store: STORE,
        id: SEED_OF,
        created_nanoseconds: 0,
        continues: Continued::default(),
        highest_id: 0,
    }
    .encode();
    let seed = SEED_OF.seed(&STORE);
    let append = |file: &mut Vec<u8>, kind: Kind, id: u64, content: &[u8]| {
        let begin = file.len();
        let number = ObjectNumber(if kind.is_used() { id.max(1) } else { 0 });
        let new = NewRecord { id, number, content, ..NewRecord::of(kind) };
        new.encode(Alignment::None, file).expect("no part is too long");
        (begin, seal(&mut file[begin..], seed, LogOffset(begin as u64)))
    };
    let (mut rest, mut sequence, mut chain_before) = (bytes, BatchSequence(0), 0);
    let mut written: BTreeMap<LogOffset, Vec<u8>> = BTreeMap::new();
    let mut damages = Vec::new();
    let mut undamaged = BTreeSet::new();
    while !rest.is_empty() {
        let (records, damage) = (number(&mut rest, 1) % 4, number(&mut rest, 2) as usize);
        let (begin, mut list, mut places) = (file.len(), Vec::new(), Vec::new());
        for id in 0..records {
            let length = number(&mut rest, 1) as usize;
            let (at, listed) = append(&mut file, Kind::File, id, take(&mut rest, length * 4));
            written.insert(LogOffset(at as u64), file[at..].to_vec());
            places.push(LogOffset(at as u64));
            list.extend(listed);
        }
        sequence = sequence.next();
        let commit = Commit {
            sequence,
            mark: BatchSequence(0),
            begin: LogOffset(begin as u64),
            chain_before,
            time_nanoseconds: 0,
            highest_id: 0,
            epoch: SEED_OF.epoch,
            is_close: false,
            list,
        };
        chain_before = commit.chain();
        let (at, _) = append(&mut file, Kind::Commit, 0, &commit.encode());
        written.insert(LogOffset(at as u64), file[at..].to_vec());
        match damage % 3 {
            0 => damages.push(begin + damage % (file.len() - begin)),
            _ => {
                places.push(LogOffset(at as u64));
                undamaged.extend(places);
            }
        }
    }
    for at in damages {
        file[at] ^= 0x55;
    }
    let found = scan(&file);
    assert!(found.iter().all(|(at, record)| written.get(at) == Some(record)));
    assert!(undamaged.iter().all(|at| found.contains_key(at)));
}

/// The segment that targets read.
const SEED_OF: SegmentId = SegmentId { number: SegmentNumber(1), epoch: Epoch(2) };
const STORE: [u8; 16] = [1; 16];

/// Returns the records in a segment, including commits, by their places.
fn scan(bytes: &[u8]) -> BTreeMap<LogOffset, Vec<u8>> {
    let mut scan = SegmentScan::new(
        vec![(DeviceNumber(0), Arc::new(MemoryFile::new(bytes)))],
        SEED_OF.seed(&STORE),
        LogOffset::START,
    );
    let (header, without) = scan.header(SEED_OF.into());
    assert_ne!(header.is_some(), without == [DeviceNumber(0)]);
    let mut found = BTreeMap::new();
    let within = |range: Range<LogOffset>| {
        assert!(range.start >= FIRST_BATCH_AT && range.end.0 <= bytes.len() as u64 && !range.is_empty());
        bytes[range.start.0 as usize..range.end.0 as usize].to_vec()
    };
    while let Some(step) = scan.next(true) {
        let range = match step {
            ScanStep::Record(at, record, copies) => {
                assert_eq!(copies, DifferingCopies::default());
                at..at + record.record_bytes()
            }
            ScanStep::Commit(committed, ..) => {
                assert!(committed.commit.begin + committed.commit.listed_bytes() == committed.at);
                for refuted in committed.refuted {
                    found.remove(&refuted);
                }
                committed.at..committed.end
            }
            ScanStep::Damage(range, _) => {
                within(range);
                continue;
            }
        };
        found.insert(range.start, within(range));
    }
    found
}

/// Descriptors: what decodes is encoded identically, exactly the units with bytes have a checksum, and the runs are at
/// least as long as what is not in the descriptor itself.
///
/// # Panics
/// On a violation of a law.
pub fn descriptor(bytes: &[u8]) {
    let Ok(descriptor) = Descriptor::decode(bytes, Path::new("fuzz")) else { return };
    assert_eq!(descriptor.encode(), bytes);
    for chunk in &descriptor.chunks {
        for stripe in 0..chunk.stripes.count() {
            for unit in 0..chunk.stripes.width() {
                let run = chunk.unit(stripe, unit);
                let checksum = chunk.stripes.checksum_index(stripe, unit);
                assert_eq!(checksum.is_some(), run.length_bytes > 0);
                assert!(checksum.is_none_or(|index| index < chunk.checksums.len()));
            }
        }
    }
    // Longer by parity and padding. The packed bytes are part of the stored ones.
    assert!(
        descriptor.runs().map(|run| u128::from(run.length_bytes)).sum::<u128>()
            >= u128::from(descriptor.stored_bytes) - descriptor.packed.len() as u128
    );
}

/// Superblocks: what decodes is encoded with the same meaning.
///
/// # Panics
/// On a violation of a law.
pub fn superblock(bytes: &[u8]) {
    let slot = |bytes: &[u8]| {
        let Ok(Some(found)) = Superblock::decode(bytes) else { return };
        found.geometry.survives();
        assert_eq!(found.geometry.out_of_bounds(), None);
        if let Ok(again) = found.encode() {
            assert_eq!(Superblock::decode(&again).ok().flatten(), Some(found));
        }
    };
    slot(bytes);
    // The same with a valid header and checksum.
    let mut body = b"granulo\0".to_vec();
    body.extend_from_slice(&VERSION.to_le_bytes());
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&(16 + bytes.len() as u32).to_le_bytes());
    body.extend_from_slice(bytes);
    slot(&[&checksum(&body).to_le_bytes()[..], &body].concat());
}

/// Sorted tables: opened or refused, searched, scanned; one that verification finds whole contains in order what its
/// footer says.
///
/// # Panics
/// On a violation of a law.
pub fn table(bytes: &[u8]) {
    look_through(bytes);
    // The same with valid checksums: those of blocks by their stated length, and that of the last page.
    let mut sealed = bytes[..bytes.len() / PAGE_BYTES * PAGE_BYTES].to_vec();
    let Some(footer) = sealed.len().checked_sub(PAGE_BYTES) else { return };
    let mut at = 0;
    while at < footer {
        let end = footer.min(at + pages_of(&sealed[at..]) * PAGE_BYTES);
        block::seal(&mut sealed[at..end]);
        at = end;
    }
    block::seal(&mut sealed[footer..]);
    look_through(&sealed);
}

fn look_through(bytes: &[u8]) {
    let pages = (bytes.len() / PAGE_BYTES) as u64;
    let footer = bytes.rchunks_exact(PAGE_BYTES).next().and_then(|page| Footer::decode(page, pages).ok());
    let (entries, lowest_id, highest_id) =
        footer.as_ref().map_or((0, 0, 0), |footer| (footer.entries, footer.lowest_id, footer.highest_id));
    let row = TableRow { number: 1, entries, size_bytes: bytes.len() as u64, lowest_id, highest_id };
    let Ok(table) = Table::open(&MemoryFile::new(bytes), &row, &Arc::new(BlockCache::new(1 << 16))) else { return };
    let table = Arc::new(table);
    let is_whole = table.verify().is_ok();
    let mut last: Option<Vec<u8>> = None;
    let mut count = 0;
    let mut scan = TableScan::new(Arc::clone(&table), Bound::Unbounded);
    while let Ok(at) = &mut scan {
        let Some((key, entry)) = at.head() else { break };
        count += 1;
        assert!(count <= bytes.len() as u64, "a scan goes on for ever");
        let found = table.look_up(key);
        let may_have = table.may_have(key, KeyHash::of(key));
        if is_whole {
            assert!(may_have, "a filter hides a key");
            assert!(last.as_deref().is_none_or(|last| last < key));
            assert_eq!(found.ok().flatten(), Some(*entry));
        }
        last = Some(key.to_vec());
        if let Err(error) = at.advance() {
            assert!(!is_whole, "{error}");
            break;
        }
    }
    assert!(!is_whole || count == entries);
    let key = &bytes[..bytes.len().min(16)];
    for from in [Bound::Included(key), Bound::Excluded(key)] {
        if let Ok(mut scan) = TableScan::new(Arc::clone(&table), from) {
            let _ = scan.seek(&[key, &[0xff]].concat());
        }
    }
}

/// Frames and manifests of the catalog: what decodes is encoded with the same meaning, and nothing incomplete is
/// accepted.
///
/// # Panics
/// On a violation of a law.
pub fn catalog(bytes: &[u8]) {
    if let Ok((version, change)) = encoding::decode(bytes) {
        let mut state = State { version: version.saturating_sub(1), ..State::default() };
        let again = encoding::encode_change(version, &change);
        assert_eq!(encoding::decode(&again).map(|(version, _)| version), Ok(version));
        assert_eq!(encoding::encode_change(version, &encoding::decode(&again).unwrap_or_default().1), again);
        state.apply(&change);
        let whole = encoding::encode_state(&state);
        let document = manifest::encode(&[7; 16], crate::format::ids::Epoch(1), 2, 3, &state);
        assert_eq!(document.as_ref().and_then(|(_, bytes)| bytes.get(manifest::HEAD_BYTES..)), whole.as_deref());
        if let Some((head, document)) = document {
            let read = manifest::decode(&document, &[7; 16]);
            assert!(read.is_ok_and(|read| read.head == head && read.state == state));
        }
        let frame = journal::frame(3, 0, bytes);
        assert_eq!(
            journal::frames(3, 0, version.wrapping_sub(1), &frame).is_ok_and(|read| read.changes.len() == 1),
            version > 0
        );
        assert!(journal::frames(4, 0, version.wrapping_sub(1), &frame).is_ok_and(|read| read.changes.is_empty()));
    }
    if let Ok(frames) = journal::frames(3, 0, 0, bytes) {
        assert!(frames.end <= bytes.len() as u64);
    }
    let _ = manifest::decode(bytes, &[7; 16]);
    let _ = manifest::decode(&manifest::sealed(bytes), &[7; 16]);
}

/// The manifest of a log on a bucket: what decodes is encoded identically, also with valid length and checksum; the
/// same for names of objects.
///
/// # Panics
/// On a violation of a law.
pub fn published(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    published_manifest::seal(&mut sealed);
    for bytes in [bytes, &sealed] {
        let Ok(manifest) = Manifest::decode(bytes) else { continue };
        assert_eq!(manifest.encode(), bytes);
        let versions = manifest.pins().map(|(_, version)| version).chain([manifest.version()]);
        for object in versions.flat_map(|version| manifest.at(version)) {
            assert!(ObjectName::of(&object.path()).is_some_and(|name| manifest.names(name)));
        }
    }
    if let Ok(path) = std::str::from_utf8(bytes) {
        assert!(ObjectName::of(path).is_none_or(|name| name.path() == path));
    }
}

/// The body of a manifest: what decodes can be encoded, and is then the same.
///
/// # Panics
/// On a violation of a law.
pub fn volume(bytes: &[u8]) {
    static OBJECTS: LazyLock<Vec<Arc<PublishedObject>>> = LazyLock::new(three_objects);
    let indexes = OBJECTS.iter().zip(0..).map(|(object, index)| (object.number(), index)).collect();
    if let Ok(decoded) = body::decode(bytes, &OBJECTS) {
        let encoded = body::encode(&decoded, &indexes);
        let again = body::decode(&encoded, &OBJECTS).expect("what was encoded is a body");
        assert_eq!(body::encode(&again, &indexes), encoded);
    }
}

/// Objects of 100, 200 and 300 bytes, as a log has them.
fn three_objects() -> Vec<Arc<PublishedObject>> {
    let mut writer = Writer::create(Arc::new(Memory::default()), Arc::new(Machine::default())).expect("it is empty");
    let stage = |length| Arc::new(writer.stage(Class::Fast, &vec![1; length]).expect("it is in memory").published(1));
    [100, 200, 300].map(stage).to_vec()
}

/// What another granulo sends while a store is copied: frames, and images of stores in them. What decodes can be
/// encoded, and is then the same.
///
/// # Panics
/// On a violation of a law.
pub fn replica(bytes: &[u8]) {
    wire::read_all(bytes);
    if let Some(image) = wire::decode_image(bytes) {
        let encoded = wire::encode_image(&image).expect("what was decoded can be encoded");
        let again = wire::decode_image(&encoded).expect("what was encoded is an image");
        assert_eq!(wire::encode_image(&again).expect("the same"), encoded);
    }
}

/// Tar archives: members and their data, or an error that says where. Headers with `ustar` in them are also tried with
/// a valid checksum.
///
/// # Panics
/// On a violation of a law.
pub fn archive(bytes: &[u8]) {
    check_members(bytes);
    let mut sealed = bytes.to_vec();
    for block in sealed.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    check_members(&sealed);
}

/// The laws: no name is longer than the archive, a map of holes agrees with the data, and data are complete or an
/// error.
fn check_members(bytes: &[u8]) {
    let mut archive = Archive::new(bytes);
    let mut data_bytes = 0;
    while let Ok(Some(member)) = archive.next() {
        assert!(member.name.len() <= bytes.len() && member.link.len() <= bytes.len());
        if let Some(holes) = &member.attributes.holes {
            assert_eq!(holes.data_bytes(), member.data_bytes);
        }
        let copied = io::copy(&mut archive.data(), &mut io::sink());
        data_bytes += copied.as_ref().copied().unwrap_or(0);
        assert!(data_bytes <= bytes.len() as u64);
        if copied.is_err() {
            return;
        }
        assert_eq!(copied.ok(), Some(member.data_bytes));
    }
}

#[cfg(test)]
mod tests;
