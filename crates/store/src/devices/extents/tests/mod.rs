//! Large objects on real directories: all widths, sizes around boundaries, lost and full devices, flipped bits.

mod files;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tempfile::TempDir;

use super::repair::Repaired;
use super::*;
use crate::devices::device::Room;
use crate::devices::directory::Directory;
use crate::devices::threads;
use crate::error::ErrorKind;
use crate::format::descriptor::{Component, Descriptor};
use crate::format::ids::DeviceNumber;
use crate::format::rows::ExtentRow;
use crate::format::superblock::SUPERBLOCK;
use crate::layout::granulo::{DEFAULT_PACKED_BYTES, Stripes, Striping};
use crate::locks::lock;
use crate::random::Random;

/// A directory with a configurable amount of space and number of successful writes.
#[derive(Debug)]
struct Limited {
    directory: Directory,
    room_bytes: AtomicU64,
    /// Does not say how much space it has.
    is_silent: AtomicBool,
    writes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct LimitedFile {
    file: Arc<dyn DeviceFile>,
    writes: Arc<AtomicU64>,
}

impl Device for Limited {
    fn place(&self) -> std::path::PathBuf {
        self.directory.place()
    }
    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.directory.open(path, mode)?;
        Ok(Arc::new(LimitedFile { file, writes: Arc::clone(&self.writes) }))
    }
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.directory.list(directory)
    }
    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.directory.create_directory(directory)
    }
    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.directory.sync_directory(directory)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.directory.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }
    fn room(&self) -> io::Result<Room> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Err(rustix::io::Errno::IO.into());
        }
        let available_bytes = self.room_bytes.load(Ordering::Relaxed);
        // A size of 0, so that nothing is reserved.
        Ok(Room { total_bytes: 0, available_bytes })
    }
}

impl DeviceFile for LimitedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        self.file.read_onto(buffer, length, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let left = self.writes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
        self.file.write_at(data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.file.set_size(size_bytes)
    }
    fn start_writeback(&self, offset: u64, length: u64) {
        self.file.start_writeback(offset, length);
    }
}

#[derive(Debug)]
struct Devices {
    devices: Mutex<Vec<Option<Arc<Limited>>>>,
    stale: Mutex<BTreeSet<DeviceNumber>>,
    root: PathBuf,
}

impl DeviceSource for Devices {
    fn device(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        let devices = self.devices.lock().unwrap();
        let device = devices.get(number.index())?.clone()?;
        Some(device)
    }
    fn device_to_write(&self, number: DeviceNumber) -> Option<Arc<dyn Device>> {
        self.device(number).filter(|_| !lock(&self.stale).contains(&number))
    }
    fn directory(&self, number: DeviceNumber) -> PathBuf {
        self.root.join(number.to_string())
    }
    fn epoch(&self) -> u32 {
        EPOCH
    }
}

/// Devices in a temporary directory, with code to write and read objects on them.
struct Bench {
    _directory: TempDir,
    devices: Arc<Devices>,
    files: Arc<ExtentFiles>,
    allocator: Arc<Allocator>,
    identities: Vec<(DeviceNumber, [u8; 16])>,
    packed_bytes: u64,
}

/// Low half of the epoch in the names of files.
const EPOCH: u32 = 0xfeed;

/// Files are full at this size, in bytes.
const LIMIT_BYTES: u64 = 1 << 30;

fn allocator(rows: impl IntoIterator<Item = ExtentRow>) -> Arc<Allocator> {
    Arc::new(Allocator::new(rows, [], LIMIT_BYTES))
}

fn device(path: &Path) -> Arc<Limited> {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join(SUPERBLOCK), "it is no mount point").unwrap();
    Arc::new(Limited {
        directory: Directory::new(path),
        room_bytes: AtomicU64::new(1 << 40),
        is_silent: AtomicBool::new(false),
        writes: Arc::new(AtomicU64::new(u64::MAX)),
    })
}

impl Bench {
    fn new(count: u16) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let devices = (0..count).map(|number| Some(device(&root.join(number.to_string())))).collect();
        let devices = Arc::new(Devices { devices: Mutex::new(devices), stale: Mutex::default(), root });
        let files = Arc::new(ExtentFiles::new(Arc::clone(&devices) as Arc<dyn DeviceSource>));
        let identities = (0..count).map(|number| (DeviceNumber(number), [number as u8 + 1; 16])).collect();
        let packed_bytes = DEFAULT_PACKED_BYTES;
        Bench { _directory: directory, devices, files, allocator: allocator([]), identities, packed_bytes }
    }

    fn of(rule: Striping) -> Bench {
        Bench::new(u16::from(rule.data) + u16::from(rule.parity))
    }

    fn writer(&self, id: u64, rule: Striping, expected_bytes: Option<u64>) -> LargeWriter {
        let (files, allocator) = (Arc::clone(&self.files), Arc::clone(&self.allocator));
        LargeWriter::begin(files, allocator, order(id, &self.identities), (rule, self.packed_bytes), expected_bytes)
    }

    /// Writes an object in pieces of `step` bytes.
    fn put(&self, id: u64, rule: Striping, content: &[u8], known: bool, step: usize) -> Descriptor {
        let mut writer = self.writer(id, rule, known.then_some(content.len() as u64));
        content.chunks(step).for_each(|piece| writer.write(piece).unwrap());
        let written = writer.finish().unwrap();
        assert!(!written.touched.is_empty());
        self.files.sync(&written.touched).unwrap();
        let bytes = written.descriptor.encode();
        assert_eq!(Descriptor::decode(&bytes, Path::new("o")).unwrap(), written.descriptor);
        written.descriptor
    }

    fn read(&self, descriptor: &Descriptor) -> (Vec<u8>, Vec<FaultyUnit>) {
        let mut out = Vec::new();
        let wrong = self.files.read_range(descriptor, 0..u64::MAX, &mut out).unwrap();
        (out, wrong)
    }

    fn verify(&self, descriptor: &Descriptor) -> Vec<FaultyUnit> {
        self.files.verify(descriptor, &mut |_| Ok(())).unwrap()
    }

    fn repair(&self, descriptor: &Descriptor, wrong: &[FaultyUnit]) -> Repaired {
        let repaired = self.files.repair(descriptor, wrong).unwrap();
        self.files.sync(&repaired.touched).unwrap();
        repaired
    }

    fn limited(&self, number: DeviceNumber) -> Arc<Limited> {
        self.devices.devices.lock().unwrap()[number.index()].clone().unwrap()
    }

    fn lose(&self, number: DeviceNumber) -> Option<Arc<Limited>> {
        self.files.forget(number);
        self.devices.devices.lock().unwrap()[number.index()].take()
    }

    fn bring_back(&self, number: DeviceNumber, device: Option<Arc<Limited>>) {
        self.devices.devices.lock().unwrap()[number.index()] = device;
    }

    /// Replaces this device with an empty one.
    fn replace(&self, number: DeviceNumber) {
        self.lose(number);
        let path = self.devices.directory(number);
        fs::remove_dir_all(&path).unwrap();
        self.bring_back(number, Some(device(&path)));
    }

    fn extent(&self, number: DeviceNumber, file: u32) -> PathBuf {
        self.devices.directory(number).join(EXTENTS).join(file_name(file, EPOCH))
    }

    /// Total size of the extent files of all devices.
    fn file_bytes(&self) -> u64 {
        self.identities.iter().flat_map(|&(number, _)| self.files.list(number).unwrap().into_values()).sum()
    }
}

fn rule(data: u8, parity: u8) -> Striping {
    Striping { stripe_unit_bytes: 4096, data, parity }
}

fn content(length: usize) -> Vec<u8> {
    Random::new(length as u64).bytes(length)
}

const WIDTHS: [(u8, u8); 8] = [(1, 0), (1, 1), (1, 2), (2, 1), (4, 1), (4, 2), (8, 2), (10, 1)];

#[test]
fn every_width_and_sizes_around_every_boundary_read_back() {
    for (data, parity) in WIDTHS {
        let rule = rule(data, parity);
        let mut bench = Bench::of(rule);
        let stripe = 4096 * usize::from(data);
        let chunk = rule.longest_chunk_bytes(0) as usize;
        let mut sizes = BTreeSet::new();
        for edge in [1, 4096, stripe, 2 * stripe, chunk, chunk + 2 * stripe, 3 * chunk] {
            sizes.extend([edge - 1, edge, edge + 1].map(|size| size.max(1)));
        }
        for (id, striped_bytes) in sizes.into_iter().enumerate() {
            bench.packed_bytes = [4096, 12_288, 65_536][id % 3];
            let size = bench.packed_bytes as usize + striped_bytes;
            let object = content(size);
            for (known, step) in [(true, size), (false, size), (id % 2 == 0, 10_007)] {
                let descriptor = bench.put(id as u64, rule, &object, known, step);
                let (read, wrong) = bench.read(&descriptor);
                assert!(read == object && wrong.is_empty(), "{data}+{parity}, {size}");
                assert_eq!(bench.verify(&descriptor), []);
                // The layout says how much space is needed.
                let taken: u64 = descriptor.runs().map(|run| run.length_bytes).sum();
                assert_eq!(u128::from(taken), rule.striped_bytes(striped_bytes as u64));
                let content_bytes = rule.descriptor_content_bytes(bench.packed_bytes, size as u64);
                assert_eq!(descriptor.encode().len() as u128, content_bytes);
                let stripes: Vec<Stripes> = descriptor.chunks.iter().map(|chunk| chunk.stripes).collect();
                assert_eq!(stripes, rule.chunks(striped_bytes as u64).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn any_devices_up_to_the_parity_may_be_lost() {
    for (data, parity) in WIDTHS.into_iter().filter(|&(_, parity)| parity > 0) {
        let rule = rule(data, parity);
        let bench = Bench::of(rule);
        // The long one is read from all devices in parallel.
        for size in [4097, 9000, 100_001, 5_500_000] {
            let object = content(size);
            let descriptor = bench.put(7, rule, &object, true, size);
            let count = bench.identities.len() as u16;
            for (first, second) in (0..count).flat_map(|first| (first..count).map(move |second| (first, second))) {
                // For the long one, adjacent pairs only.
                if first != second && (parity < 2 || size > 1_000_000 && second > first + 1) {
                    continue;
                }
                let (one, two) = (bench.lose(DeviceNumber(first)), bench.lose(DeviceNumber(second)));
                let (read, wrong) = bench.read(&descriptor);
                assert!(read == object, "{data}+{parity} without {first} and {second}, {size}");
                assert!(wrong.iter().all(|wrong| [first, second].contains(&wrong.device.0)));
                assert!(wrong.iter().all(|wrong| wrong.fault == UnitFault::Absent));
                let absent: usize = bench.verify(&descriptor).len();
                assert!(absent >= wrong.len());
                bench.bring_back(DeviceNumber(first), one);
                if first != second {
                    bench.bring_back(DeviceNumber(second), two);
                }
                assert_eq!(bench.verify(&descriptor), []);
            }
        }
    }
}

#[test]
fn more_than_parity_makes_up_for_is_lost_and_nothing_is_read() {
    let rule = rule(4, 1);
    let bench = Bench::of(rule);
    for size in [60_000, 6_000_000] {
        let descriptor = bench.put(3, rule, &content(size), true, size);
        let (one, two) = (bench.lose(DeviceNumber(0)), bench.lose(DeviceNumber(3)));
        let mut out = b"before".to_vec();
        let error = bench.files.read_range(&descriptor, 0..u64::MAX, &mut out).unwrap_err();
        assert_eq!((error.kind(), out), (ErrorKind::Lost, b"before".to_vec()));
        let said = error.to_string();
        assert!(said.contains("on device 0 is missing") && said.contains("on device 3 is missing"), "{said}");
        // The packed bytes remain readable.
        assert_eq!(bench.files.read_range(&descriptor, 0..4096, &mut Vec::new()).unwrap(), []);
        let left = bench.repair(&descriptor, &bench.verify(&descriptor)).left;
        assert!(
            left.iter().any(|wrong| wrong.device == DeviceNumber(0))
                && left.iter().all(|wrong| [0, 3].contains(&wrong.device.0))
        );
        bench.bring_back(DeviceNumber(0), one);
        bench.bring_back(DeviceNumber(3), two);
    }
}
#[test]
fn every_flipped_byte_is_found_and_repaired() {
    for (data, parity) in [(2, 1), (1, 1), (3, 2)] {
        let rule = rule(data, parity);
        let bench = Bench::of(rule);
        let object = content(4096 + 4096 * usize::from(data) + 700);
        let descriptor = bench.put(1, rule, &object, true, 5000);
        for run in descriptor.runs() {
            let path = bench.extent(run.device, run.file);
            let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
            // With two, the general decoder runs, which is slow.
            let step = if parity == 2 { 13 } else { 1 };
            for offset in (run.offset_bytes..run.offset_bytes + run.length_bytes).step_by(step) {
                let mut byte = [0];
                file.read_exact_at(&mut byte, offset).unwrap();
                file.write_all_at(&[byte[0] ^ 1 << (offset % 8)], offset).unwrap();
                let wrong = bench.verify(&descriptor);
                assert_eq!((wrong.len(), wrong[0].device, &wrong[0].fault), (1, run.device, &UnitFault::Changed));
                if offset % 97 == 0 {
                    let (read, _) = bench.read(&descriptor);
                    assert!(read == object);
                }
                let repaired = bench.files.repair(&descriptor, &wrong).unwrap();
                assert_eq!((repaired.units, repaired.left), (1, vec![]));
                let mut after = [0];
                file.read_exact_at(&mut after, offset).unwrap();
                assert_eq!(after, byte);
            }
        }
        assert_eq!(bench.verify(&descriptor), []);
    }
}
#[test]
fn without_parity_a_flipped_bit_is_an_error_and_never_read() {
    let rule = Striping { stripe_unit_bytes: 65536, data: 1, parity: 0 };
    let bench = Bench::of(rule);
    let object = content(4096 + 3_000_000);
    let descriptor = bench.put(1, rule, &object, true, 1 << 20);
    let file = fs::OpenOptions::new().write(true).open(bench.extent(DeviceNumber(0), 0)).unwrap();
    file.write_all_at(&[object[4096 + 1_500_000] ^ 4], 1_500_000).unwrap();
    let unit = 1_500_000 / 65536;
    let wrong = bench.verify(&descriptor);
    assert_eq!(
        wrong,
        [FaultyUnit { device: DeviceNumber(0), chunk: 0, stripe: unit, unit: 0, fault: UnitFault::Changed }]
    );
    let error = bench.files.read_range(&descriptor, 0..u64::MAX, &mut Vec::new()).unwrap_err();
    assert!(
        error.to_string().contains(&format!("in stripe {unit} of chunk 0 unit 0 on device 0 is damaged")),
        "{error}"
    );
    let (begin, end) = (4096 + unit as u64 * 65536, 4096 + (unit as u64 + 1) * 65536);
    for range in [0..begin, end..object.len() as u64] {
        let mut out = Vec::new();
        bench.files.read_range(&descriptor, range.clone(), &mut out).unwrap();
        assert!(out == object[range.start as usize..range.end as usize]);
    }
    assert_eq!(bench.repair(&descriptor, &wrong).left, wrong);
}
#[test]
fn truncated_files_are_found_and_rewritten() {
    let rule = rule(4, 2);
    let bench = Bench::of(rule);
    let object = content(700_000);
    let descriptor = bench.put(9, rule, &object, false, 70_000);
    for length in [0, 5, 4096, 50_000] {
        let file = fs::OpenOptions::new().write(true).open(bench.extent(DeviceNumber(2), 0)).unwrap();
        file.set_len(length).unwrap();
        fs::remove_file(bench.extent(DeviceNumber(4), 0)).unwrap();
        bench.files.forget(DeviceNumber(4));
        let (read, wrong) = bench.read(&descriptor);
        assert!(read == object && !wrong.is_empty());
        let all = bench.verify(&descriptor);
        assert!(all.iter().any(|wrong| (wrong.device, &wrong.fault) == (DeviceNumber(2), &UnitFault::Short)));
        assert!(all.iter().any(|wrong| (wrong.device, &wrong.fault) == (DeviceNumber(4), &UnitFault::Absent)));
        let repaired = bench.repair(&descriptor, &all);
        assert_eq!((repaired.units, repaired.left), (all.len() as u64, vec![]));
        assert_eq!(bench.verify(&descriptor), []);
    }
}
#[test]
fn a_component_is_rebuilt_in_its_place_or_on_another_device() {
    for (data, parity) in [(2, 1), (4, 2), (1, 1)] {
        let rule = rule(data, parity);
        let bench = Bench::new(u16::from(data) + u16::from(parity) + 1);
        let object = content(5_000_000);
        let mut descriptor = bench.put(5, rule, &object, true, 1 << 20);
        // In place, after the device was replaced; stopped midway and restarted.
        let lost = descriptor.chunks[0].components[1].device;
        bench.replace(lost);
        let mut written = 0;
        for number in 0..descriptor.chunks.len() {
            let Some(at) = descriptor.chunks[number].components.iter().position(|c| c.device == lost) else { continue };
            let target = descriptor.chunks[number].components[at];
            let stop = |left: &mut u64| {
                *left = left.saturating_sub(1);
                if *left == 0 { Err(Error::new(ErrorKind::Busy, "rebuild", "stopped")) } else { Ok(()) }
            };
            let mut left = 7;
            let stopped = bench.files.rebuild_component(&descriptor, number, at, target, &mut |_| stop(&mut left));
            assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Busy);
            let mut pace = |bytes| {
                written += bytes;
                Ok(())
            };
            let touched = bench.files.rebuild_component(&descriptor, number, at, target, &mut pace).unwrap();
            bench.files.sync(&touched).unwrap();
        }
        assert_eq!(bench.verify(&descriptor), []);
        let runs: u64 = descriptor.runs().filter(|run| run.device == lost).map(|run| run.length_bytes).sum();
        assert_eq!(written, runs);
        // To the device that has nothing of the object.
        let spare = bench.identities.iter().map(|&(number, _)| number);
        let spare = { spare }.find(|&number| descriptor.runs().all(|run| run.device != number)).unwrap();
        bench.lose(lost);
        for number in 0..descriptor.chunks.len() {
            let at = descriptor.chunks[number].components.iter().position(|c| c.device == lost).unwrap();
            let chunk = &descriptor.chunks[number];
            let other = chunk.components[(at + 1) % chunk.components.len()].device;
            let twice = bench.files.place_component(&bench.allocator, chunk, at, other).unwrap_err();
            assert_eq!(twice.kind(), ErrorKind::Usage);
            let target = bench.files.place_component(&bench.allocator, chunk, at, spare).unwrap().component;
            bench.files.rebuild_component(&descriptor, number, at, target, &mut |_| Ok(())).unwrap();
            descriptor.chunks[number].components[at] = target;
        }
        assert_eq!(bench.verify(&descriptor), []);
        let (read, wrong) = bench.read(&descriptor);
        assert!(read == object && wrong.is_empty());
    }
}
#[test]
fn a_writer_that_is_dropped_or_fails_gives_up_its_places() {
    let rule = rule(2, 1);
    let bench = Bench::of(rule);
    let object = content(9_000_000);
    let mut writer = bench.writer(1, rule, None);
    writer.write(&object).unwrap();
    let taken = bench.file_bytes();
    assert!(taken > 8_000_000 && bench.allocator.is_claimed(DeviceNumber(1), 0));
    drop(writer);
    assert!(!bench.allocator.is_claimed(DeviceNumber(1), 0));
    assert_eq!(bench.file_bytes(), taken, "nothing is punched or truncated");

    bench.limited(DeviceNumber(1)).writes.store(40, Ordering::Relaxed);
    let mut writer = bench.writer(1, rule, Some(object.len() as u64));
    let error = writer.write(&object).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("/1/extents/00000000-0000feed"), "{error}");
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Usage);

    // The next object takes their place: they were this process's own bytes, never referenced.
    bench.limited(DeviceNumber(1)).writes.store(u64::MAX, Ordering::Relaxed);
    let descriptor = bench.put(1, rule, &object, true, 100_000);
    assert!(descriptor.chunks[0].components.iter().all(|component| (component.file, component.offset_bytes) == (0, 0)));
    assert!(bench.read(&descriptor).0 == object);
    // Another process does not know whose they were, and begins another file.
    let other = Bench { allocator: allocator([]), ..bench };
    let behind = other.put(1, rule, &object, true, 100_000);
    assert!(behind.chunks[0].components.iter().all(|at| (at.file, at.offset_bytes) == (1, 0)));
    assert!(other.read(&descriptor).0 == object && other.read(&behind).0 == object);
}

#[test]
fn objects_are_written_at_the_same_time() {
    let rule = rule(3, 1);
    let bench = Bench::of(rule);
    let objects: Vec<Vec<u8>> = (0..6).map(|number| content(300_000 + 250_000 * number)).collect();
    let descriptors: Vec<Descriptor> = std::thread::scope(|scope| {
        let writing: Vec<_> = objects
            .iter()
            .enumerate()
            .map(|(id, object)| {
                let bench = &bench;
                scope.spawn(move || bench.put(id as u64, rule, object, id % 2 == 0, 50_000))
            })
            .collect();
        writing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut runs: Vec<Run> = descriptors.iter().flat_map(Descriptor::runs).collect();
    runs.sort_unstable();
    for pair in runs.windows(2).filter(|pair| (pair[0].device, pair[0].file) == (pair[1].device, pair[1].file)) {
        assert!(pair[0].offset_bytes + pair[0].length_bytes <= pair[1].offset_bytes, "{pair:?}");
    }
    for (descriptor, object) in descriptors.iter().zip(&objects) {
        assert!(bench.read(descriptor).0 == *object);
    }
}

#[test]
fn a_length_that_turns_out_different_does_no_harm() {
    let rule = rule(2, 1);
    let bench = Bench::of(rule);
    let object = content(1_000_000);
    for expected in [0, 10, 4097, 20_000, 999_999, 50_000_000] {
        let mut writer = bench.writer(1, rule, Some(expected));
        object.chunks(33_333).for_each(|piece| writer.write(piece).unwrap());
        let descriptor = writer.finish().unwrap().descriptor;
        assert_eq!(Descriptor::decode(&descriptor.encode(), Path::new("o")).unwrap(), descriptor);
        assert!(bench.read(&descriptor).0 == object, "{expected}");
    }
    let mut small = bench.writer(1, rule, None);
    small.write(&object[..4096]).unwrap();
    assert_eq!(small.finish().unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn a_lost_or_full_device_makes_stripes_narrower_and_never_less_safe() {
    let rule = rule(4, 2);
    let bench = Bench::of(rule);
    let object = content(200_000);
    let widths = |descriptor: &Descriptor| (descriptor.chunks[0].stripes.data, descriptor.chunks[0].stripes.parity);
    assert_eq!(widths(&bench.put(1, rule, &object, true, 4096)), (4, 2));
    bench.lose(DeviceNumber(5));
    assert_eq!(widths(&bench.put(1, rule, &object, true, 4096)), (3, 2));
    bench.limited(DeviceNumber(2)).room_bytes.store(1000, Ordering::Relaxed);
    let narrow = bench.put(1, rule, &object, true, 4096);
    assert_eq!(widths(&narrow), (2, 2));
    assert!(narrow.runs().all(|run| run.device != DeviceNumber(2) && run.device != DeviceNumber(5)));
    bench.limited(DeviceNumber(0)).room_bytes.store(1000, Ordering::Relaxed);
    bench.limited(DeviceNumber(1)).room_bytes.store(1000, Ordering::Relaxed);
    assert_eq!(bench.writer(1, rule, None).write(&object).unwrap_err().kind(), ErrorKind::NoSpace);
    (1..4).for_each(|number| drop(bench.lose(DeviceNumber(number))));
    let error = bench.writer(1, rule, None).write(&object).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("2 devices are in service; parity needs 3"), "{error}");
}

#[test]
fn a_device_that_does_not_say_how_much_space_it_has_is_not_full() {
    let rule = rule(4, 1);
    let bench = Bench::of(rule);
    let object = content(9_000_000);
    let mut begun = bench.writer(1, rule, None);
    begun.write(&object[..5_000_000]).unwrap();
    let silent = bench.limited(DeviceNumber(2));
    silent.is_silent.store(true, Ordering::Relaxed);
    let of_begun = begun.write(&object[5_000_000..]).unwrap_err();
    let of_new = bench.writer(2, rule, Some(9_000_000)).write(&object).unwrap_err();
    for error in [of_begun, of_new] {
        assert_eq!((error.kind(), error.device()), (ErrorKind::Io, Some(2)), "{error}");
    }
    silent.is_silent.store(false, Ordering::Relaxed);
    bench.put(2, rule, &object, true, 100_000);
}

#[test]
fn a_device_that_missed_writes_is_read_and_not_repaired() {
    let rule = rule(4, 1);
    let bench = Bench::of(rule);
    let descriptor = bench.put(1, rule, &content(200_000), true, 4096);
    let run = descriptor.runs().next().unwrap();
    let path = bench.files.place(run.device, run.file);
    let damaged = vec![0; fs::metadata(&path).unwrap().len() as usize];
    fs::write(&path, &damaged).unwrap();
    bench.files.forget(run.device);
    lock(&bench.devices.stale).insert(run.device);
    let wrong = bench.verify(&descriptor);
    let repaired = bench.repair(&descriptor, &wrong);
    assert_eq!((repaired.units, &repaired.left), (0, &wrong));
    assert_eq!(fs::read(&path).unwrap(), damaged);
    // Nor do new objects go there.
    let later = bench.put(2, Striping { data: 3, ..rule }, &content(200_000), true, 4096);
    assert!(later.runs().all(|other| other.device != run.device));
    lock(&bench.devices.stale).clear();
    assert_eq!(bench.repair(&descriptor, &wrong).units, wrong.len() as u64);
    assert_eq!(bench.verify(&descriptor), []);
}

#[test]
fn without_a_thread_devices_are_read_and_synced_one_after_the_other() {
    let rule = rule(4, 1);
    let bench = Bench::of(rule);
    let object = content(9_000_000);
    let descriptor = threads::without_threads(|| bench.put(1, rule, &object, true, 100_000));
    assert!(threads::without_threads(|| bench.read(&descriptor)).0 == object);
}

#[test]
fn objects_spread_over_all_devices() {
    let identities: Vec<(DeviceNumber, [u8; 16])> =
        (0..10).map(|number| (DeviceNumber(number), [number as u8; 16])).collect();
    let mut first = [0u32; 10];
    for id in 0..10_000 {
        let order = order(id, &identities);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 10);
        first[order[0].index()] += 1;
        // Without one device, the order of the others is the same.
        let without: Vec<(DeviceNumber, [u8; 16])> =
            identities.iter().copied().filter(|&(number, _)| number != DeviceNumber(4)).collect();
        let rest: Vec<DeviceNumber> = order.into_iter().filter(|&number| number != DeviceNumber(4)).collect();
        assert_eq!(super::order(id, &without), rest);
    }
    assert!(first.iter().all(|&count| (850..1150).contains(&count)), "{first:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_range_is_what_was_written(
        (shift, data, parity) in (12u32..15, 1u8..=8, 0u8..=2),
        (packed_pages, size, known, step) in (1u64..=16, 1usize..9_000_000, any::<bool>(), 1usize..3_000_000),
        less in 0u32..11,
        ranges in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
        lost in proptest::collection::vec(any::<prop::sample::Index>(), 0..=2),
    ) {
        let rule = Striping { stripe_unit_bytes: 1 << shift, data, parity };
        let bench = Bench { packed_bytes: packed_pages * 4096, ..Bench::of(rule) };
        let size = bench.packed_bytes as usize + (size >> less).max(1);
        let object = content(size);
        let descriptor = bench.put(size as u64, rule, &object, known, step.max(size / 500));
        for device in lost.iter().take(parity.into()) {
            bench.lose(DeviceNumber(device.index(bench.identities.len()) as u16));
        }
        for (from, to) in ranges {
            let (from, to) = (from.index(size + 10), to.index(size + 10));
            let mut out = vec![1, 2, 3];
            let wrong = bench.files.read_range(&descriptor, from as u64..to as u64, &mut out).unwrap();
            let want = if from < to { &object[from.min(size)..to.min(size)] } else { &[] };
            prop_assert!(out[..3] == [1, 2, 3] && &out[3..] == want, "{}..{} of {}", from, to, size);
            prop_assert!(wrong.is_empty() || !lost.is_empty());
        }
    }
}
