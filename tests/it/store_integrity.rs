//! Integrity of a store: damaged, missing, swapped or old data is detected, explained, never returned, and repaired
//! where there is redundancy. The damage is done to the files of real stores with four geometries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use granulo::store::{
    Attributes, Cause, CheckOptions, CheckReport, Choice, CompactOptions, Durability, Key, OpenOptions, Plan, Problem,
    Progress, RebuildOptions, RepairOptions, ScrubOptions, Store, plan_repair, rebuild_index, repair,
};
use tempfile::TempDir;

use crate::harness::{Ran, granulo, sandbox_for_many};

/// Numbers of fast and slow devices; copies, parity.
const GEOMETRIES: [(usize, usize, u8, u8); 4] = [(0, 0, 1, 0), (2, 0, 2, 0), (2, 4, 2, 1), (3, 5, 3, 2)];

/// A store and its expected contents.
struct Sample {
    sandbox: TempDir,
    fast: usize,
    slow: usize,
    content: BTreeMap<String, Vec<u8>>,
    /// Blocks with units of live objects.
    units: Blocks,
}

/// Bytes that distinguish each object from the others.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

fn key(path: &str) -> Key {
    Key::parse(path.as_bytes()).unwrap()
}

fn file() -> Attributes {
    Attributes { mode: 0o100_644, ..Attributes::default() }
}

impl Sample {
    fn new((fast, slow, copies, parity): (usize, usize, u8, u8)) -> Sample {
        let sandbox = sandbox_for_many();
        let directories = |class: &str, count: usize| {
            (0..count).map(|n| sandbox.path().join(format!("{class}{n}"))).collect::<Vec<_>>()
        };
        let plan = Plan {
            fast: directories("fast", fast),
            slow: directories("slow", slow),
            // Two devices are too few for stripes with parity: with a mirror alone everything is a record.
            cutoff_bytes: if (fast, slow) == (2, 0) { 1 << 20 } else { 8192 },
            copies: (fast > 0).then_some(copies),
            parity: (slow > 0).then_some(parity),
            stripe_unit_bytes: 4096,
            segment_bytes: 1 << 20,
            ..Plan::default()
        };
        let store = Store::create(&sandbox.path().join("home"), &plan).unwrap();
        let mut sample = Sample { sandbox, fast, slow, content: BTreeMap::new(), units: Blocks::new() };
        for (seed, length) in [0, 1, 100, 5000, 8192, 8193, 20_000, 70_000].into_iter().enumerate() {
            sample.put(&store, &format!("d{}/e/{seed}", seed % 3), bytes(seed as u64, length));
        }
        // A stripe is not on all devices: this many leave each device with something that is not removed below.
        for seed in 20..32 {
            sample.put(&store, &format!("large/{seed}"), bytes(seed, 20_000));
        }
        let mut batch = store.batch(Durability::Batch);
        let shared = bytes(99, 3000);
        let number = batch.shared(&file(), &mut &shared[..], None).unwrap();
        for name in ["d1/first", "d2/second"] {
            batch.link(&key(name), number).unwrap();
            sample.content.insert(name.to_owned(), shared.clone());
        }
        batch.symlink(&key("d0/link"), &Attributes { mode: 0o120_777, ..Attributes::default() }, b"../there").unwrap();
        batch.commit().unwrap();
        for name in ["gone", "d0/gone", "tree/a", "tree/b/c"] {
            store.put(&key(name), &file(), &bytes(1007, 2000)).unwrap();
        }
        sample.units = written_blocks(&sample.devices());
        store.put(&key("gone-large"), &file(), &bytes(8, 30_000)).unwrap();
        for name in ["gone", "d0/gone", "gone-large"] {
            assert!(store.remove(&key(name)).unwrap());
        }
        assert!(store.remove_tree(&key("tree")).unwrap());
        sample.put(&store, "d1/e/1", bytes(50, 777));
        store.sync().unwrap();
        sample
    }

    fn put(&mut self, store: &Store, name: &str, content: Vec<u8>) {
        store.put(&key(name), &file(), &content).unwrap();
        self.content.insert(name.to_owned(), content);
    }

    fn home(&self) -> PathBuf {
        self.sandbox.path().join("home")
    }

    /// Directories of the devices, by number.
    fn devices(&self) -> Vec<PathBuf> {
        let of = |class: &str, count: usize| {
            (0..count).map(|n| self.sandbox.path().join(format!("{class}{n}"))).collect::<Vec<_>>()
        };
        match self.fast + self.slow {
            0 => vec![self.home()],
            _ => [of("fast", self.fast), of("slow", self.slow)].concat(),
        }
    }

    /// Reads everything: what is read must be right. Returns how many objects could not be read.
    #[track_caller]
    fn unreadable(&self, store: &Store) -> usize {
        let wrong = |(name, content): (&String, &Vec<u8>)| match store.get(&key(name)) {
            Ok(Some(read)) => {
                assert!(read == *content, "{name} has other content");
                false
            }
            Ok(None) => panic!("{name} is not there, and nothing says why"),
            Err(_) => true,
        };
        self.content.iter().filter(|&(name, content)| wrong((name, content))).count()
    }

    /// Asserts that everything can be read.
    #[track_caller]
    fn is_whole(&self) {
        let store = Store::open_read_only(&self.home()).unwrap();
        assert_eq!(self.unreadable(&store), 0);
        assert_eq!(store.get(&key("gone")).unwrap(), None);
        assert_eq!(store.get(&key("tree/b/c")).unwrap(), None);
    }

    /// Asserts that every byte is intact.
    #[track_caller]
    fn is_clean(&self) {
        let (report, problems) = check(&Store::open_read_only(&self.home()).unwrap(), true);
        assert!(problems.is_empty(), "{problems:#?}");
        assert!(report.is_complete && report.keys as usize >= self.content.len() && report.verified_bytes > 100_000);
    }
}

fn go_on(_: Progress) -> bool {
    true
}

fn check(store: &Store, is_deep: bool) -> (CheckReport, Vec<String>) {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep, ..CheckOptions::default() };
    let report = store.check(options, &mut |problem: Problem| problems.push(problem.to_string()), &mut go_on).unwrap();
    assert_eq!(report.problems() as usize, problems.len());
    (report, problems)
}

/// Files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn a_whole_store_of_any_geometry_is_clean() {
    for geometry in GEOMETRIES {
        let sample = Sample::new(geometry);
        sample.is_whole();
        sample.is_clean();
        let store = Store::open(&sample.home()).unwrap();
        assert!(check(&store, true).1.is_empty());
        drop(store);
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(rebuilt.recovered().damage, []);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
        drop(rebuilt);
        sample.is_whole();
    }
}

/// Flips one bit of a file.
fn flip(path: &Path, at: usize, bit: u8) {
    let mut content = fs::read(path).unwrap();
    content[at] ^= 1 << bit;
    // In place: the same file as before, as real damage would leave it.
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&content[at..=at], at as u64).unwrap();
}

/// Blocks of extent files.
type Blocks = BTreeSet<(PathBuf, usize)>;

/// Blocks of 4 KiB in extent files that have data.
fn written_blocks(devices: &[PathBuf]) -> Blocks {
    let extents = devices.iter().flat_map(|device| files(&device.join("extents")));
    let blocks_of = |path: PathBuf| {
        let content = fs::read(&path).unwrap();
        let blocks = content.chunks(4096).zip(0..).filter(|(block, _)| block.iter().any(|&byte| byte != 0));
        blocks.map(|(_, number)| (path.clone(), number)).collect::<Vec<_>>()
    };
    extents.flat_map(blocks_of).collect()
}

impl Sample {
    /// Whether damage at a position must be found: not in areas that are never read, which are those after the start of
    /// the two slots of a superblock, and in extent files where no unit is, or one of a removed object. A lock has the
    /// process id of a past writer, which has no other meaning.
    fn is_always_found(&self, path: &Path, at: usize) -> bool {
        if path.parent().is_some_and(|parent| parent.ends_with("extents")) {
            return self.units.contains(&(path.to_owned(), at / 4096));
        }
        match path.file_name().and_then(|name| name.to_str()) {
            Some("superblock") => {
                let length = &fs::read(path).unwrap()[at / 65_536 * 65_536 + 20..][..4];
                at % 65_536 < 8 + u32::from_le_bytes(length.try_into().unwrap()) as usize || at % 65_536 < 24
            }
            name => name != Some("lock"),
        }
    }
}

/// `GRANULO_FLIPS`: the number of flips in each file.
#[test]
fn every_flipped_bit_is_found_or_harmless_and_never_read() {
    for geometry in GEOMETRIES {
        let sample = Sample::new(geometry);
        let has_redundancy = geometry.2 > 1;
        let flips: usize = std::env::var("GRANULO_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(16);
        let mut all: Vec<(PathBuf, usize)> = Vec::new();
        for directory in sample.devices().into_iter().chain([sample.home()]) {
            all.extend(
                files(&directory)
                    .into_iter()
                    .map(|path| (fs::metadata(&path).unwrap().len() as usize, path))
                    .filter(|f| f.0 > 0)
                    .map(|(s, p)| (p, s)),
            );
        }
        all.sort();
        all.dedup();
        for (path, size) in all {
            // Every byte of small files in turn, with another bit each time; a prime stride avoids any period.
            let stride = (size / flips).max(1) | 1;
            for (round, at) in (0..size).step_by(stride).enumerate() {
                let bit = (round % 8) as u8;
                flip(&path, at, bit);
                let what = format!("{geometry:?}: bit {bit} of byte {at} in {}", path.display());
                match Store::open_read_only(&sample.home()) {
                    Err(_) => assert!(!has_redundancy || path.ends_with("superblock"), "{what}: cannot be opened"),
                    Ok(store) => {
                        let unreadable = sample.unreadable(&store);
                        let (_, problems) = check(&store, true);
                        assert!(!problems.is_empty() || !sample.is_always_found(&path, at), "{what}: not found");
                        assert!(unreadable == 0 || !has_redundancy, "{what}: {unreadable} unreadable");
                        assert!(unreadable == 0 || !problems.is_empty(), "{what}: unreadable, and not found");
                    }
                }
                flip(&path, at, bit);
            }
        }
        sample.is_clean();
    }
}

#[test]
fn what_is_damaged_is_repaired_from_redundancy() {
    for geometry in &GEOMETRIES[1..] {
        let sample = Sample::new(*geometry);
        for (round, path) in sample.devices().iter().flat_map(|directory| files(directory)).enumerate() {
            let size = fs::metadata(&path).unwrap().len() as usize;
            if size == 0
                || !(path.to_string_lossy().contains("segments/") || path.to_string_lossy().contains("extents/"))
            {
                continue;
            }
            for at in [0, size / 3, size - 1] {
                flip(&path, at, (round % 8) as u8);
            }
            if round % 2 == 0 {
                let store = Store::open(&sample.home()).unwrap();
                let mut repaired = Vec::new();
                let report = store
                    .scrub(
                        ScrubOptions::default(),
                        &mut |problem, is_repaired| repaired.push((problem.to_string(), is_repaired)),
                        &mut go_on,
                    )
                    .unwrap();
                assert!(
                    report.is_complete && report.found > 0 && report.found == report.repaired,
                    "{path:?}: {repaired:?}"
                );
                let status = store.last_scrub().unwrap();
                assert_eq!((status.report.found, status.finished_nanoseconds.is_some()), (report.found, true));
            } else {
                let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
                assert!(!plan.is_empty() && plan.lost.is_empty(), "{plan:?}");
                let report = repair(
                    &sample.home(),
                    &OpenOptions::default(),
                    &plan,
                    RepairOptions::default(),
                    &mut |_, _| {},
                    &mut go_on,
                )
                .unwrap();
                assert!(report.is_complete && report.check.problems() == 0, "{path:?}: {report:?}");
            }
            sample.is_clean();
        }
        sample.is_whole();
    }
}

#[test]
fn missing_and_short_files_are_explained_and_made_anew() {
    let sample = Sample::new(GEOMETRIES[2]);
    let segment = files(&sample.devices()[0].join("segments")).remove(0);
    let whole = fs::read(&segment).unwrap();
    let extent = files(&sample.devices()[2].join("extents")).remove(0);
    fs::write(&segment, &whole[..whole.len() / 2]).unwrap();
    fs::remove_file(&extent).unwrap();
    let store = Store::open_read_only(&sample.home()).unwrap();
    assert_eq!(sample.unreadable(&store), 0);
    let (_, problems) = check(&store, false);
    let said = problems.join("\n");
    assert!(
        said.contains("the segment is cut off: it has") && said.contains("granulo store repair makes it good"),
        "{said}"
    );
    assert!(said.contains("the extent file is missing"), "{said}");
    drop(store);
    fs::remove_file(&segment).unwrap();
    let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
    assert!(problems.join("\n").contains("the segment is missing"), "{problems:?}");
    let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
    repair(&sample.home(), &OpenOptions::default(), &plan, RepairOptions::default(), &mut |_, _| {}, &mut go_on)
        .unwrap();
    assert_eq!(fs::read(&segment).unwrap(), whole);
    sample.is_clean();
}

/// The log of a store with one segment, and the position of some bytes of an object in it.
fn in_log(sample: &Sample, content: &[u8]) -> (PathBuf, usize) {
    let segment = files(&sample.devices()[0].join("segments")).remove(0);
    let log = fs::read(&segment).unwrap();
    let at = log.windows(content.len()).position(|window| window == content).unwrap();
    (segment, at)
}

#[test]
fn without_redundancy_what_is_lost_is_named_and_given_up_only_on_demand() {
    let mut sample = Sample::new(GEOMETRIES[0]);
    let (segment, at) = in_log(&sample, &sample.content["d0/e/3"][100..164]);
    flip(&segment, at, 3);
    // The map of a large object, and the record of a directory.
    let (_, at) = in_log(&sample, &sample.content["d0/e/6"][..64]);
    flip(&segment, at, 7);
    let (_, at) = in_log(&sample, &sample.content["d1/first"][..64]);
    flip(&segment, at, 0);
    let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
    let said: Vec<String> = plan.lost.iter().map(Problem::to_string).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    for object in ["it concerns d0/e/3", "it concerns d0/e/6", "it concerns shared file"] {
        assert!(said.iter().any(|said| said.contains(object) && said.contains("backup")), "{said:?}");
    }
    let kept =
        repair(&sample.home(), &OpenOptions::default(), &plan, RepairOptions::default(), &mut |_, _| {}, &mut go_on)
            .unwrap();
    assert_eq!((kept.dropped, kept.lost.len(), kept.given_back), (0, 3, 0));
    assert_eq!(sample.unreadable(&Store::open_read_only(&sample.home()).unwrap()), 4);
    let options = RepairOptions { drop_lost: true, ..RepairOptions::default() };
    let dropped = repair(&sample.home(), &OpenOptions::default(), &plan, options, &mut |_, _| {}, &mut go_on).unwrap();
    assert_eq!((dropped.dropped, dropped.given_back, dropped.check.problems()), (4, 1, 0), "{dropped:?}");
    for name in ["d0/e/3", "d0/e/6", "d1/first", "d2/second"] {
        let store = Store::open_read_only(&sample.home()).unwrap();
        assert_eq!(store.get(&key(name)).unwrap(), None);
        sample.content.remove(name);
    }
    sample.is_whole();
    assert_eq!(check(&Store::open_read_only(&sample.home()).unwrap(), true).1, Vec::<String>::new());
    let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
    assert_eq!(sample.unreadable(&rebuilt), 0);
    assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
}

#[test]
fn damage_where_no_object_is_in_use_costs_nothing() {
    // The record of a removed object, and the header of the segment.
    for damage in [0, 1] {
        let sample = Sample::new(GEOMETRIES[0]);
        let (segment, at) = in_log(&sample, &bytes(1007, 2000)[..64]);
        flip(&segment, if damage == 0 { at } else { 60 }, 1);
        let store = Store::open_read_only(&sample.home()).unwrap();
        let (report, problems) = check(&store, true);
        assert!(report.harmless > 0 && report.problems() == report.harmless, "{problems:?}");
        drop(store);
        let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
        let report = repair(
            &sample.home(),
            &OpenOptions::default(),
            &plan,
            RepairOptions::default(),
            &mut |_, _| {},
            &mut go_on,
        )
        .unwrap();
        assert_eq!((report.given_back, report.check.problems()), (1, 0), "{report:?}");
        assert!(!segment.exists());
        sample.is_whole();
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(sample.unreadable(&rebuilt), 0);
        assert_eq!(rebuilt.get(&key("gone")).unwrap(), None);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
    }
}

#[test]
fn a_rebuild_that_is_interrupted_goes_on_and_readers_read_meanwhile() {
    for onto in [true, false] {
        let sample = Sample::new((3, 5, 2, 1));
        for number in [1usize, 5] {
            let directory = sample.devices()[number].clone();
            fs::remove_dir_all(&directory).unwrap();
            let options =
                RebuildOptions { device: number as u16, onto: onto.then_some(directory), bytes_per_second: None };
            let mut sessions = 0;
            loop {
                let store = Store::open(&sample.home()).unwrap();
                let reader = Store::open_read_only(&sample.home()).unwrap();
                let mut steps = 0;
                let report = store.rebuild(&options, &mut |_| {
                    steps += 1;
                    if steps % 3 == 0 {
                        assert_eq!(sample.unreadable(&reader), 0);
                    }
                    steps < 1 + 4 * sessions
                });
                let report = report.unwrap();
                sessions += 1;
                if report.is_complete {
                    break;
                }
                assert!(sessions < 100);
            }
            assert!(sessions > 1, "it was never interrupted");
            sample.is_whole();
            sample.is_clean();
        }
    }
}

#[test]
fn any_device_may_be_lost_and_is_rebuilt_onto_a_new_one_and_then_another_may_be() {
    for geometry in &GEOMETRIES[1..] {
        let sample = Sample::new(*geometry);
        let devices = sample.devices();
        for (number, directory) in devices.iter().enumerate() {
            let away = sample.sandbox.path().join("away");
            fs::rename(directory, &away).unwrap();
            sample.is_whole();
            let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
            let said = problems.join("\n");
            assert!(said.contains(&format!("device {number} is missing: there is no such directory")), "{said}");
            assert!(said.contains("granulo store rebuild"), "{said}");
            let lost = OpenOptions { lost: Some(number as u16), ..OpenOptions::default() };
            let store = Store::open_with(&sample.home(), &lost).unwrap();
            assert_eq!(sample.unreadable(&store), 0);
            let options =
                RebuildOptions { device: number as u16, onto: Some(directory.clone()), bytes_per_second: None };
            let plan = store.plan_rebuild(&options).unwrap();
            assert_eq!((plan.lost_segments, plan.without_place), (0, 0));
            let report = store.rebuild(&options, &mut go_on).unwrap();
            assert!(report.is_complete && report.lost == 0, "{report:?}");
            assert!(report.bytes <= plan.total_bytes() + 200, "{report:?} {plan:?}");
            drop(store);
            fs::remove_dir_all(&away).unwrap();
            sample.is_clean();
        }
    }
}

#[test]
fn with_two_of_parity_and_three_copies_any_two_devices_may_be_lost() {
    let sample = Sample::new(GEOMETRIES[3]);
    let devices = sample.devices();
    let away = |number: usize| sample.sandbox.path().join(format!("away{number}"));
    for first in 0..devices.len() {
        for second in first + 1..devices.len() {
            for number in [first, second] {
                fs::rename(&devices[number], away(number)).unwrap();
            }
            sample.is_whole();
            for number in [first, second] {
                fs::rename(away(number), &devices[number]).unwrap();
            }
        }
    }
}

#[test]
fn a_lost_device_is_rebuilt_into_spare_space_and_leaves_the_store() {
    for (geometry, lost) in [((3, 5, 2, 1), [0usize, 4]), ((3, 6, 2, 1), [1, 3])] {
        let sample = Sample::new(geometry);
        let devices = sample.devices();
        for number in lost {
            fs::remove_dir_all(&devices[number]).unwrap();
            let store = Store::open(&sample.home()).unwrap();
            let options = RebuildOptions { device: number as u16, ..RebuildOptions::default() };
            let plan = store.plan_rebuild(&options).unwrap();
            if plan.without_place > 0 {
                panic!("{geometry:?}: device {number} has no spare space: {plan:?}");
            }
            let report = store.rebuild(&options, &mut go_on).unwrap();
            assert!(report.is_complete, "{report:?}");
            assert_eq!(sample.unreadable(&store), 0);
            drop(store);
            sample.is_clean();
        }
        // It survives a second loss of each class afterwards.
        for number in (0..devices.len()).filter(|number| !lost.contains(number)) {
            let away = sample.sandbox.path().join("away");
            fs::rename(&devices[number], &away).unwrap();
            sample.is_whole();
            fs::rename(&away, &devices[number]).unwrap();
        }
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(sample.unreadable(&rebuilt), 0);
        assert_eq!(check(&rebuilt, true).1, Vec::<String>::new());
    }
}

#[test]
fn swapped_emptied_and_old_devices_are_told_apart() {
    let mut sample = Sample::new(GEOMETRIES[2]);
    let devices = sample.devices();
    let said = |sample: &Sample| check(&Store::open_read_only(&sample.home()).unwrap(), false).1.join("\n");
    let swap = |a: &Path, b: &Path| {
        let between = sample.sandbox.path().join("between");
        fs::rename(a, &between).unwrap();
        fs::rename(b, a).unwrap();
        fs::rename(&between, b).unwrap();
    };
    swap(&devices[3], &devices[4]);
    let words = said(&sample);
    assert!(words.contains("device 3 should be there, and it is device 4: directories were swapped"), "{words}");
    swap(&devices[3], &devices[4]);
    sample.is_clean();

    let away = sample.sandbox.path().join("away");
    fs::rename(&devices[5], &away).unwrap();
    fs::create_dir(&devices[5]).unwrap();
    sample.is_whole();
    assert!(said(&sample).contains("device 5 has an empty directory"), "{}", said(&sample));
    fs::remove_dir(&devices[5]).unwrap();
    fs::rename(&away, &devices[5]).unwrap();

    // An old copy: the store is written to while the device is missing.
    fs::rename(&devices[1], &away).unwrap();
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "meanwhile", bytes(77, 6000));
    sample.put(&store, "meanwhile-large", bytes(78, 60_000));
    drop(store);
    drop(Store::open(&sample.home()).unwrap());
    fs::rename(&away, &devices[1]).unwrap();
    let words = said(&sample);
    assert!(words.contains("device 1 is old: it was away") && words.contains("restored from a copy"), "{words}");
    sample.is_whole();
    let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
    let report =
        repair(&sample.home(), &OpenOptions::default(), &plan, RepairOptions::default(), &mut |_, _| {}, &mut go_on)
            .unwrap();
    assert_eq!(report.admitted, [1]);
    sample.is_clean();
    for number in [0, 1] {
        fs::rename(&devices[number], &away).unwrap();
        sample.is_whole();
        fs::rename(&away, &devices[number]).unwrap();
    }
}

#[test]
fn a_lost_home_is_made_again_by_naming_a_device() {
    let mut sample = Sample::new(GEOMETRIES[2]);
    let devices = sample.devices();
    for is_emptied in [false, true] {
        fs::remove_dir_all(sample.home()).unwrap();
        if is_emptied {
            fs::create_dir(sample.home()).unwrap();
        }
        for said in [
            Store::open_read_only(&sample.home()).unwrap_err().to_string(),
            Store::open(&sample.home()).unwrap_err().to_string(),
        ] {
            assert!(said.contains("name any of its devices") && !said.contains("store init"), "{said}");
        }
        let store = Store::open_read_only(&devices[4]).unwrap();
        assert_eq!(sample.unreadable(&store), 0);
        let (_, problems) = check(&store, false);
        assert!(problems.len() == 1 && problems[0].contains("the home has no superblock"), "{problems:?}");
        drop(store);
        let plan = plan_repair(&devices[1], &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
        let report =
            repair(&devices[1], &OpenOptions::default(), &plan, RepairOptions::default(), &mut |_, _| {}, &mut go_on)
                .unwrap();
        assert!(report.is_complete);
        sample.is_clean();
    }
    // Writing recreates it too.
    fs::remove_dir_all(sample.home()).unwrap();
    let store = Store::open(&devices[3]).unwrap();
    sample.put(&store, "without a home", bytes(71, 9000));
    drop(store);
    sample.is_clean();
    sample.is_whole();
    // A store that somebody created there meanwhile is left alone.
    fs::remove_dir_all(sample.home()).unwrap();
    drop(Store::create(&sample.home(), &Plan::default()).unwrap());
    let said = Store::open(&devices[3]).unwrap_err().to_string();
    assert!(said.contains("another store has its home there"), "{said}");
    assert_eq!(sample.unreadable(&Store::open_read_only(&devices[3]).unwrap()), 0);
    assert_eq!(Store::open(&sample.home()).unwrap().get(&key("d0/e/0")).unwrap(), None);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).unwrap(),
        }
    }
}

/// A store whose device 0 is in the state before objects were removed and replaced, and segments freed.
fn with_an_old_device(geometry: (usize, usize, u8, u8)) -> Sample {
    let mut sample = Sample::new(geometry);
    let store = Store::open(&sample.home()).unwrap();
    store.put(&key("victim"), &file(), &bytes(61, 3000)).unwrap();
    sample.put(&store, "replaced", bytes(62, 3000));
    drop(store);
    let (device, copy) = (sample.devices()[0].clone(), sample.sandbox.path().join("copy"));
    copy_tree(&device, &copy);
    let store = Store::open(&sample.home()).unwrap();
    assert!(store.remove(&key("victim")).unwrap());
    sample.put(&store, "replaced", bytes(63, 3000));
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    store.compact(&all, &mut |_| true).unwrap();
    drop(store);
    fs::remove_dir_all(&device).unwrap();
    fs::rename(&copy, &device).unwrap();
    sample
}

#[test]
fn an_old_device_brings_nothing_back_that_others_gave_back() {
    for geometry in [GEOMETRIES[1], GEOMETRIES[3]] {
        let sample = with_an_old_device(geometry);
        // The index was on that device: readers build a private one, the next writer one for all.
        for is_writer in [false, true, false] {
            let store = match is_writer {
                false => Store::open_read_only(&sample.home()).unwrap(),
                true => rebuild_index(&sample.home(), &OpenOptions::default()).unwrap(),
            };
            assert_eq!(sample.unreadable(&store), 0);
            assert_eq!(store.get(&key("victim")).unwrap(), None);
        }
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert!(rebuilt.completeness().is_complete());
        drop(rebuilt);
        let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
        let report = repair(
            &sample.home(),
            &OpenOptions::default(),
            &plan,
            RepairOptions::default(),
            &mut |_, _| {},
            &mut go_on,
        )
        .unwrap();
        assert_eq!(report.admitted, [0]);
        // The index on the old device is not used for the store.
        for _ in 0..2 {
            let store = Store::open(&sample.home()).unwrap();
            assert_eq!(store.get(&key("victim")).unwrap(), None);
            assert_eq!(sample.unreadable(&store), 0);
        }
        sample.is_clean();
        let rebuilt = rebuild_index(&sample.home(), &OpenOptions::default()).unwrap();
        assert_eq!(rebuilt.get(&key("victim")).unwrap(), None);
        assert!(rebuilt.completeness().is_complete());
    }
}

#[test]
fn a_superblock_is_made_anew_from_the_others() {
    for number in [0, 1, 3] {
        let sample = Sample::new(GEOMETRIES[2]);
        let superblock = sample.devices()[number].join("superblock");
        let length = fs::metadata(&superblock).unwrap().len() as usize;
        fs::write(&superblock, vec![0x55; length]).unwrap();
        let (_, problems) = check(&Store::open_read_only(&sample.home()).unwrap(), false);
        assert!(problems.join("\n").contains(&format!("device {number} has a damaged superblock")), "{problems:?}");
        let plan = plan_repair(&sample.home(), &OpenOptions::default(), None, &mut |_| {}, &mut go_on).unwrap();
        let report = repair(
            &sample.home(),
            &OpenOptions::default(),
            &plan,
            RepairOptions::default(),
            &mut |_, _| {},
            &mut go_on,
        )
        .unwrap();
        assert_eq!(report.admitted, [number as u16]);
        sample.is_clean();
    }
}

#[test]
fn an_old_copy_of_the_log_is_explained() {
    let mut sample = Sample::new(GEOMETRIES[1]);
    let old: Vec<Vec<(PathBuf, Vec<u8>)>> = sample
        .devices()
        .iter()
        .map(|device| {
            files(&device.join("segments")).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
        })
        .collect();
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "newest", bytes(5, 500));
    drop(store);
    for (path, content) in old.into_iter().flatten() {
        fs::write(path, content).unwrap();
    }
    let is_told = |store: &Store, batches: (u64, u64)| {
        let missing = &store.completeness().missing;
        assert!(!missing.is_empty() && missing.iter().all(|one| one.cause == Cause::EndsBeforeMark), "{missing:?}");
        assert!(missing.iter().any(|one| one.batches == Some(batches)), "{missing:?}");
        assert_eq!(store.get(&key("newest")).unwrap(), None);
    };
    let acknowledged = sample.content.remove("newest");
    // A reader reports it, and so do the next writer and everyone after it.
    let reader = Store::open_read_only(&sample.home()).unwrap();
    let batches = reader.completeness().missing.iter().find_map(|one| one.batches).unwrap();
    for store in [reader, Store::open(&sample.home()).unwrap(), Store::open_read_only(&sample.home()).unwrap()] {
        is_told(&store, batches);
        assert_eq!(sample.unreadable(&store), 0);
    }
    let listed = Ran::from(granulo().args(["store", "ls"]).arg(sample.home()).output().unwrap());
    assert!(listed.ended(1).said().contains("the log ends before batch"));
    // New writes are accepted as they are, and the store continues to report what it lacks.
    let store = Store::open(&sample.home()).unwrap();
    sample.put(&store, "newest", acknowledged.unwrap());
    drop(store);
    let store = Store::open_read_only(&sample.home()).unwrap();
    assert_eq!((sample.unreadable(&store), store.completeness().is_complete()), (0, false));
}

#[test]
fn a_check_beside_a_writer_gives_no_false_alarm() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let store = Store::open(&home).unwrap();
            for round in 0..150u64 {
                let name = format!("w{}/{}", round % 5, round % 37);
                store.put(&key(&name), &file(), &bytes(round, (round as usize * 911) % 40_000)).unwrap();
                if round % 7 == 0 {
                    store.remove(&key(&format!("w{}/{}", (round + 3) % 5, (round + 11) % 37))).unwrap();
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut checks = 0;
        while !ended.load(std::sync::atomic::Ordering::Relaxed) || checks == 0 {
            let store = Store::open_read_only(&home).unwrap();
            let (_, problems) = check(&store, checks % 2 == 0);
            assert_eq!(problems, Vec::<String>::new());
            checks += 1;
        }
    });
    sample.is_clean();
}

#[test]
fn a_reader_finds_no_device_old_while_writers_open() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Every open advances the superblocks by two steps, device by device.
            for _ in 0..300 {
                drop(Store::open(&home).unwrap());
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(Store::open_read_only(&home).unwrap().troubles(), []);
        }
    });
}

#[test]
fn a_scrub_goes_on_where_it_was_and_keeps_to_its_rate() {
    let sample = Sample::new(GEOMETRIES[1]);
    let store = Store::open(&sample.home()).unwrap();
    for number in 0..40u64 {
        store.put(&key(&format!("more/{number}")), &file(), &bytes(number, 8000)).unwrap();
    }
    let stored: u64 = sample
        .devices()
        .iter()
        .flat_map(|device| files(&device.join("segments")))
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    let started = std::time::Instant::now();
    let rated = ScrubOptions { bytes_per_second: Some(stored), resume: false };
    let report = store.scrub(rated, &mut |_, _| {}, &mut go_on).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert!(report.is_complete && (0.9..1.6).contains(&seconds), "{seconds} s for what a second should take");
    // Interrupted in the second half.
    let options = ScrubOptions::default();
    let report = store.scrub(options, &mut |_, _| {}, &mut |progress| progress.done_bytes < stored / 2).unwrap();
    assert!(!report.is_complete);
    drop(store);
    let store = Store::open(&sample.home()).unwrap();
    let report = store.scrub(options, &mut |_, _| {}, &mut go_on).unwrap();
    assert!(report.is_complete && report.found == 0);
    assert!(store.last_scrub().unwrap().finished_nanoseconds.is_some());
}

#[test]
fn what_has_no_place_is_not_rebuilt_into_it() {
    let sample = Sample::new(GEOMETRIES[2]);
    fs::remove_dir_all(&sample.devices()[0]).unwrap();
    let store = Store::open(&sample.home()).unwrap();
    let options = RebuildOptions { device: 0, ..RebuildOptions::default() };
    assert!(store.plan_rebuild(&options).unwrap().without_place > 0);
    let error = store.rebuild(&options, &mut go_on).unwrap_err().to_string();
    assert!(error.contains("have no other device to go to (name a directory on a new disk with --onto)"), "{error}");
    let options = RebuildOptions { device: 1, ..RebuildOptions::default() };
    let error = store.plan_rebuild(&options).unwrap_err().to_string();
    assert!(error.contains("device 1 is in service at"), "{error}");
}

#[test]
fn commands_say_what_they_found_and_end_so() {
    let sample = Sample::new(GEOMETRIES[2]);
    let home = sample.home();
    let store = |arguments: &[&str]| {
        let mut all = vec!["store", arguments[0], home.to_str().unwrap()];
        all.extend(&arguments[1..]);
        Ran::from(granulo().args(all).output().unwrap())
    };
    assert!(store(&["check"]).ended(0).text().contains("metadata: no problems"));
    assert!(store(&["check", "--deep"]).ended(0).text().contains("every byte of"));
    assert_eq!(store(&["scrub", "--json"]).ended(0).json()["found"], 0);
    assert!(store(&["repair"]).ended(0).text().contains("There is nothing to repair."));
    let segment = files(&sample.devices()[1].join("segments")).remove(0);
    flip(&segment, 500, 2);
    let found = store(&["check", "--deep", "--json"]).ended(1).json();
    assert_eq!(
        (&found["schema"], &found["repairable"], &found["lost"]),
        (&"granulo/store-check/1".into(), &1.into(), &0.into())
    );
    assert_eq!((&found["problems"][0]["kind"], &found["problems"][0]["device"]), (&"record".into(), &1.into()));
    let plan = store(&["repair", "--dry-run"]).ended(1).text();
    assert!(plan.contains("Would do:") && plan.contains("repairable"), "{plan}");
    let done = store(&["repair", "--json"]).ended(0).json();
    assert_eq!((&done["repaired"], &done["problems_left"], &done["done"]), (&1.into(), &0.into(), &true.into()));
    fs::remove_dir_all(&sample.devices()[3]).unwrap();
    assert!(store(&["check"]).ended(1).text().contains("device 3 is missing"));
    let onto = sample.sandbox.path().join("new");
    let said = store(&["rebuild", "--onto", onto.to_str().unwrap(), "--dry-run"]).ended(0).text();
    assert!(said.contains("Would rebuild what was on device 3: 0 segments"), "{said}");
    assert!(!onto.exists());
    assert_eq!(
        store(&["rebuild", "--device", "3", "--onto", onto.to_str().unwrap(), "--json"]).ended(0).json()["complete"],
        true
    );
    let refused = store(&["rebuild"]).ended(2).said();
    assert!(refused.contains("no device is lost (see granulo store status)"), "{refused}");
    assert!(store(&["check", "--rebuild-index"]).ended(0).said().contains("rebuilt the index from"));
    sample.is_clean();
    sample.is_whole();
}
