//! One byte of any file of a store is another one: stores of several geometries on real directories, each byte hit
//! once, then everything that a user would do: list, read all, check every byte, write on, repair.
//!
//! What must hold: no byte that is read is wrong; no object is absent without somebody saying why; nothing panics; and
//! where there is redundancy nothing is lost, a writer goes on, and repair leaves nothing to find.
//!
//! `GRANULO_DAMAGES` is how many bytes are hit (240), `GRANULO_DAMAGE_SEED` where the randomness begins. What fails is
//! told with the seed, and is repeated by it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use granulo_core::error::ErrorKind;
use granulo_core::random::Random;
use granulo_store::geometry::Alignment;
use granulo_store::{
    Attributes, CheckOptions, Choice, CompactOptions, Durability, Key, OpenOptions, Plan, Problem, Progress,
    RepairOptions, Store, plan_repair, repair,
};
use tempfile::TempDir;

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

fn file() -> Attributes {
    Attributes { mode: 0o100_644, ..Attributes::default() }
}

/// A store as it was made, in memory, and where it lies.
struct Sample {
    sandbox: TempDir,
    has_redundancy: bool,
    objects: BTreeMap<String, Vec<u8>>,
    pristine: BTreeMap<PathBuf, Vec<u8>>,
    directories: Vec<PathBuf>,
}

impl Sample {
    fn new(fast: usize, slow: usize, alignment: Alignment) -> Sample {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let sandbox = tempfile::tempdir_in(parent).unwrap();
        let directories = |class: &str, count: usize| {
            (0..count).map(|number| sandbox.path().join(format!("{class}{number}"))).collect::<Vec<_>>()
        };
        let plan = Plan {
            fast: directories("fast", fast),
            slow: directories("slow", slow),
            cutoff_bytes: 8192,
            stripe_unit_bytes: 4096,
            segment_bytes: 1 << 20,
            alignment,
            ..Plan::default()
        };
        let store = Store::create(&sandbox.path().join("home"), &plan).unwrap();
        let mut objects = BTreeMap::new();
        for round in 0..5 {
            let mut batch = store.batch(Durability::Batch);
            for number in 0..8u64 {
                let name = format!("d{}/{round}-{number}", number % 3);
                let length = if number == 5 { 30_000 } else { 300 * number as usize };
                let content = bytes(round << 8 | number, length);
                batch.put(&key(&name), &file(), &content).unwrap();
                objects.insert(name, content);
            }
            batch.commit().unwrap();
            if round == 2 {
                // Leaves a sorted table.
                let all = CompactOptions { choice: Choice::All, ..CompactOptions::default() };
                store.compact(&all, &Progress::default()).unwrap();
            }
        }
        store.put(&key("gone/a"), &file(), b"a").unwrap();
        assert!(store.remove_tree(&key("gone")).unwrap());
        drop(store);
        let mut sample = Sample {
            has_redundancy: fast + slow > 0,
            objects,
            pristine: BTreeMap::new(),
            directories: fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().path()).collect(),
            sandbox,
        };
        sample.pristine = files(sample.sandbox.path());
        sample
    }

    fn home(&self) -> PathBuf {
        self.sandbox.path().join("home")
    }

    /// Everything as it was made, but for what lies on the devices' directories themselves.
    fn restore(&self) {
        for directory in &self.directories {
            for path in files(directory).into_keys().filter(|path| !self.pristine.contains_key(path)) {
                fs::remove_file(path).unwrap();
            }
        }
        for (path, content) in &self.pristine {
            if fs::read(path).ok().as_ref() != Some(content) {
                fs::write(path, content).unwrap();
            }
        }
    }

    /// Reads everything: no byte is wrong. Gives what cannot be read, and what is not there.
    fn read(&self, store: &Store, what: &str) -> (usize, Vec<&String>) {
        let (mut unreadable, mut absent) = (0, Vec::new());
        for (name, content) in &self.objects {
            match store.get(&key(name)) {
                Ok(Some(read)) => assert!(read == *content, "{what}: {name} has other bytes"),
                Ok(None) => absent.push(name),
                Err(_) => unreadable += 1,
            }
        }
        (unreadable, absent)
    }

    /// What a listing of everything gives; `None` if it ends in an error.
    fn listed(&self, store: &Store) -> Option<usize> {
        let walk = store.walk(&Key::root()).ok()?;
        let mut found = 0;
        for listed in walk {
            found += usize::from(self.objects.contains_key(&listed.ok()?.key.to_string()));
        }
        Some(found)
    }

    fn is_whole(&self, store: &Store, what: &str) {
        assert_eq!(self.read(store, what), (0, Vec::new()), "{what}");
        assert_eq!(self.listed(store), Some(self.objects.len()), "{what}");
    }

    /// One byte is hit, and then all that a user would do.
    fn suffer(&self, what: &str) {
        match Store::open_read_only(&self.home()) {
            Ok(store) => {
                let (unreadable, absent) = self.read(&store, what);
                let listed = self.listed(&store);
                let problems = problems(&store);
                let is_said = problems > 0 || is_said(&store);
                assert!(absent.is_empty() || is_said, "{what}: {absent:?} are absent, and nothing says why");
                assert!(listed.is_none_or(|found| found == self.objects.len()) || is_said, "{what}: {listed:?} listed");
                if self.has_redundancy {
                    assert_eq!((unreadable, absent), (0, Vec::new()), "{what}");
                    assert_eq!(listed, Some(self.objects.len()), "{what}");
                }
            }
            Err(error) => assert!(!self.has_redundancy, "{what}: it cannot be opened: {error}"),
        }
        let content = bytes(1, 20_000);
        let put = Store::open(&self.home()).and_then(|store| {
            store.put(&key("later"), &file(), &content)?;
            Ok(store)
        });
        match put {
            Ok(store) => {
                assert!(store.get(&key("later")).unwrap().as_ref() == Some(&content), "{what}: what was put just now");
                let (_, absent) = self.read(&store, what);
                assert!(absent.is_empty() || is_said(&store) || problems(&store) > 0, "{what}: {absent:?} after a put");
                assert!(!self.has_redundancy || absent.is_empty(), "{what}: {absent:?} after a put");
            }
            Err(error) => {
                assert!(!self.has_redundancy, "{what}: nothing can be put: {error}");
                assert!(error.kind() != ErrorKind::Usage, "{what}: {error}");
            }
        }
        let repaired = plan_repair(&self.home(), &OpenOptions::default(), None, &mut |_| {}, &Progress::default())
            .and_then(|plan| {
                repair(
                    &self.home(),
                    &OpenOptions::default(),
                    &plan,
                    RepairOptions::default(),
                    &mut |_, _| {},
                    &Progress::default(),
                )
            });
        if self.has_redundancy {
            repaired.unwrap_or_else(|error| panic!("{what}: it cannot be repaired: {error}"));
            let store = Store::open_read_only(&self.home()).unwrap_or_else(|error| panic!("{what}: {error}"));
            self.is_whole(&store, what);
            assert_eq!(problems(&store), 0, "{what}: after a repair");
        } else if let Ok(store) = Store::open_read_only(&self.home()) {
            let (_, absent) = self.read(&store, what);
            assert!(absent.is_empty() || is_said(&store) || problems(&store) > 0, "{what}: {absent:?} after a repair");
        }
    }
}

/// Whether the store itself says that something is amiss.
fn is_said(store: &Store) -> bool {
    !store.completeness().is_complete() || !store.troubles().is_empty()
}

fn problems(store: &Store) -> u64 {
    let options = CheckOptions { is_deep: true, ..CheckOptions::default() };
    // A check that ends in an error says so too.
    store.check(options, &mut |_: Problem| {}, &Progress::default()).map_or(1, |report| report.problems())
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

/// What kind of file it is, by where it lies.
fn kind(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let above = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    match above.as_str() {
        "segments" | "extents" => above,
        "index" => name.trim_matches(|c: char| c.is_ascii_digit()).to_owned(),
        _ => name,
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn a_byte_of_any_file_that_is_another_one_is_found_or_harmless() {
    let none = Alignment::None;
    let samples = [(0, 0, none), (2, 3, none), (4, 0, none), (4, 0, Alignment::Sector)];
    let samples = samples.map(|(fast, slow, alignment)| Sample::new(fast, slow, alignment));
    let seed = number("GRANULO_DAMAGE_SEED", 1);
    // Every kind of file as often as any other: tables and segments are many times as large as a manifest.
    let kinds: Vec<BTreeMap<String, Vec<&PathBuf>>> = samples
        .iter()
        .map(|sample| {
            let mut kinds: BTreeMap<String, Vec<&PathBuf>> = BTreeMap::new();
            for (path, _) in sample.pristine.iter().filter(|(_, content)| !content.is_empty()) {
                kinds.entry(kind(path)).or_default().push(path);
            }
            kinds
        })
        .collect();
    assert!(kinds.iter().all(|kinds| kinds.contains_key(".table")), "{kinds:?}");
    for round in 0..number("GRANULO_DAMAGES", 240) {
        let mut random = Random::new(seed << 32 | round);
        let at = (round % samples.len() as u64) as usize;
        let (sample, kinds) = (&samples[at], &kinds[at]);
        let (_, paths) = kinds.iter().nth(random.below(kinds.len() as u64) as usize).unwrap();
        let path = paths[random.below(paths.len() as u64) as usize];
        let content = &sample.pristine[path];
        // Half of them near the beginning, where the headers are.
        let end = if random.below(2) == 0 { content.len().min(512) } else { content.len() };
        let offset = random.below(end as u64);
        let value = content[offset as usize] ^ (1 + random.below(255)) as u8;
        let opened = fs::OpenOptions::new().write(true).open(path).unwrap();
        opened.write_all_at(&[value], offset).unwrap();
        let what = format!(
            "GRANULO_DAMAGE_SEED={seed}, round {round}: byte {offset} of {} is {value}",
            path.strip_prefix(sample.sandbox.path()).unwrap().display()
        );
        sample.suffer(&what);
        sample.restore();
    }
    for sample in &samples {
        let store = Store::open_read_only(&sample.home()).unwrap();
        sample.is_whole(&store, "at the end");
        assert_eq!(problems(&store), 0);
    }
}
