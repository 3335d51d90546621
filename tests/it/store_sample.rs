//! A store of any geometry with known contents, what it must return, and damage to its files: for `store_integrity` and
//! `store_lost_devices`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use granulo::store::{
    Attributes, CheckOptions, CheckReport, Durability, Key, OpenOptions, Plan, Problem, Progress, RepairOptions,
    RepairPlan, RepairReport, Store, plan_repair, repair,
};
use tempfile::TempDir;

use crate::harness::sandbox_for_many;
pub use crate::store_place::{bytes, files};

/// Numbers of fast and slow devices; copies, parity.
pub const GEOMETRIES: [(usize, usize, u8, u8); 4] = [(0, 0, 1, 0), (2, 0, 2, 0), (2, 4, 2, 1), (3, 5, 3, 2)];

/// A store and its expected contents.
pub struct Sample {
    pub sandbox: TempDir,
    pub fast: usize,
    pub slow: usize,
    pub content: BTreeMap<String, Vec<u8>>,
    /// Blocks with units of live objects.
    pub units: Blocks,
}

pub fn key(path: &str) -> Key {
    Key::parse(path.as_bytes()).unwrap()
}

pub fn file() -> Attributes {
    Attributes { mode: 0o100_644, ..Attributes::default() }
}

impl Sample {
    pub fn new((fast, slow, copies, parity): (usize, usize, u8, u8)) -> Sample {
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

    pub fn put(&mut self, store: &Store, name: &str, content: Vec<u8>) {
        store.put(&key(name), &file(), &content).unwrap();
        self.content.insert(name.to_owned(), content);
    }

    pub fn home(&self) -> PathBuf {
        self.sandbox.path().join("home")
    }

    /// Directories of the devices, by number.
    pub fn devices(&self) -> Vec<PathBuf> {
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
    pub fn unreadable(&self, store: &Store) -> usize {
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
    pub fn is_whole(&self) {
        let store = Store::open_read_only(&self.home()).unwrap();
        assert_eq!(self.unreadable(&store), 0);
        assert_eq!(store.get(&key("gone")).unwrap(), None);
        assert_eq!(store.get(&key("tree/b/c")).unwrap(), None);
    }

    /// Asserts that every byte is intact.
    #[track_caller]
    pub fn is_clean(&self) {
        let (report, problems) = check(&Store::open_read_only(&self.home()).unwrap(), true);
        assert!(problems.is_empty(), "{problems:#?}");
        assert!(report.is_complete && report.keys as usize >= self.content.len() && report.verified_bytes > 100_000);
    }
}

pub fn check(store: &Store, is_deep: bool) -> (CheckReport, Vec<String>) {
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep, ..CheckOptions::default() };
    let report =
        store.check(options, &mut |problem: Problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert_eq!(report.problems() as usize, problems.len());
    (report, problems)
}

/// What a repair of the store at `directory`, its home or a device, would do.
#[track_caller]
pub fn planned(directory: &Path) -> RepairPlan {
    plan_repair(directory, &OpenOptions::default(), None, &mut |_| {}, &Progress::default()).unwrap()
}

/// Carries out the plan of a repair.
#[track_caller]
pub fn repaired_with(directory: &Path, plan: &RepairPlan, options: RepairOptions) -> RepairReport {
    repair(directory, &OpenOptions::default(), plan, options, &mut |_, _| {}, &Progress::default()).unwrap()
}

/// Plans a repair and carries it out.
#[track_caller]
pub fn repaired(directory: &Path) -> RepairReport {
    repaired_with(directory, &planned(directory), RepairOptions::default())
}

/// Flips one bit of a file.
pub fn flip(path: &Path, at: usize, bit: u8) {
    let mut content = fs::read(path).unwrap();
    content[at] ^= 1 << bit;
    // In place: the same file as before, as real damage would leave it.
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&content[at..=at], at as u64).unwrap();
}

/// Blocks of extent files.
pub type Blocks = BTreeSet<(PathBuf, usize)>;

/// Blocks of 4 KiB in extent files that have data.
pub fn written_blocks(devices: &[PathBuf]) -> Blocks {
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
    pub fn is_always_found(&self, path: &Path, at: usize) -> bool {
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

/// The log of a store with one segment, and the position of some bytes of an object in it.
pub fn in_log(sample: &Sample, content: &[u8]) -> (PathBuf, usize) {
    let segment = files(&sample.devices()[0].join("segments")).remove(0);
    let log = fs::read(&segment).unwrap();
    let at = log.windows(content.len()).position(|window| window == content).unwrap();
    (segment, at)
}
