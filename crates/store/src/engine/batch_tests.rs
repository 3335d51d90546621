//! What a batch looks up once and remembers: the result is as if it looked it up each time.

use tempfile::TempDir;

use crate::devices::threads::without_threads;
use crate::engine::sync::RECENT_LIMIT;
use crate::error::ErrorKind;
use crate::{Attributes, Batch, Durability, Key, Plan, Store, Time};

fn key(path: &str) -> Key {
    Key::parse(path).unwrap()
}

fn file() -> Attributes {
    Attributes::of_file(Time { seconds: 5, nanoseconds: 6 })
}

fn new(sandbox: &TempDir) -> Store {
    Store::create(&sandbox.path().join("store"), &Plan::default()).unwrap()
}

fn names(store: &Store) -> Vec<String> {
    let mut walk = store.walk(&Key::root()).unwrap();
    let mut names = Vec::new();
    while let Some(lent) = walk.lend().unwrap() {
        names.push(lent.key.to_string());
    }
    let kept: Vec<String> = store.walk(&Key::root()).unwrap().map(|listed| listed.unwrap().key.to_string()).collect();
    assert_eq!(names, kept, "lent and to keep");
    names
}

#[test]
fn a_directory_that_was_known_and_is_gone_is_made_again() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["d/e/1", "d/e/2"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    for name in ["d/e/1", "d/e/2", "d/e"] {
        assert!(store.remove(&key(name)).unwrap());
    }
    assert_eq!(names(&store), ["d"]);
    store.put(&key("d/e/3"), &file(), b"x").unwrap();
    assert_eq!(names(&store), ["d", "d/e", "d/e/3"]);
    store.remove_tree(&key("d")).unwrap();
    store.put(&key("d/e/4"), &file(), b"x").unwrap();
    assert_eq!(names(&store), ["d", "d/e", "d/e/4"]);
}

#[test]
fn what_a_batch_removes_is_no_directory_for_what_follows_in_it() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["d/1", "d/2"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    let mut batch = store.batch(Durability::None);
    batch.put(&key("d/3"), &file(), b"x").unwrap();
    assert!(batch.remove_tree(&key("d")).unwrap());
    batch.put(&key("d/4"), &file(), b"x").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), ["d", "d/4"]);
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove(&key("d/4")).unwrap());
    assert!(!batch.remove(&key("d/4")).unwrap(), "removed by this batch");
    assert!(batch.remove(&key("d")).unwrap(), "empty by now");
    batch.put(&key("d"), &file(), b"x").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), ["d"]);
    let error = store.put(&key("d/5"), &file(), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
}

/// If another batch came first, the state that a removal found when it was requested is not what is removed.
#[test]
fn what_another_batch_changes_meanwhile_is_seen() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    store.put(&key("a"), &file(), b"old").unwrap();
    let mut batch = store.batch(Durability::None);
    assert!(batch.remove(&key("a")).unwrap());
    store.put(&key("a"), &file(), b"newer and longer").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
    let live: u64 = store.engine().view().state.segments.values().map(|row| row.live_bytes).sum();
    assert_eq!(live, 0, "the record that was there last is the one that is not any more");
    let mut batch = store.batch(Durability::None);
    store.put(&key("b"), &file(), b"x").unwrap();
    assert!(batch.remove(&key("b")).unwrap());
    assert!(store.remove(&key("b")).unwrap());
    batch.commit().unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
}

#[test]
fn removals_in_any_order_see_what_waits() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    for name in ["a/1", "b/1", "c/1"] {
        store.put(&key(name), &file(), b"x").unwrap();
    }
    let mut batch = store.batch(Durability::None);
    for (name, was_there) in
        [("c/1", true), ("a/1", true), ("b/1", true), ("a/1", false), ("b", true), ("c", true), ("b", false)]
    {
        assert_eq!(batch.remove(&key(name)).unwrap(), was_there, "{name}");
    }
    batch.put(&key("a/2"), &file(), b"x").unwrap();
    assert!(batch.remove(&key("a/2")).unwrap(), "put by this batch");
    batch.commit().unwrap();
    assert_eq!(names(&store), ["a"]);
}

#[test]
fn a_batch_of_any_length_leaves_little_in_memory_and_what_it_wrote_is_whole() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    let content = vec![7; 60 << 10];
    let mut batch = store.batch(Durability::None);
    for number in 0..600 {
        batch.put(&key(&format!("d/{number:03}")), &file(), &content).unwrap();
    }
    {
        let view = store.engine().view();
        assert!(!view.tables.is_empty(), "tables are written while it goes on");
        assert!(view.state.recent.len() < 4 * RECENT_LIMIT, "{} entries wait", view.state.recent.len());
    }
    drop(batch);
    let found = names(&store);
    assert!(found.len() > 400, "pieces that are committed stay: {}", found.len());
    for name in &found[1..] {
        assert_eq!(store.get(&key(name)).unwrap().as_deref(), Some(&content[..]));
    }
    drop(store);
    assert_eq!(names(&Store::open(&sandbox.path().join("store")).unwrap()), found);
}

#[test]
fn removals_in_order_find_what_look_ups_find() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    let name = |number: u32| key(&format!("d/{number:04}"));
    let put = |numbers: &mut dyn Iterator<Item = u32>| {
        let mut batch = store.batch(Durability::None);
        numbers.for_each(|number| batch.put(&name(number), &file(), b"x").unwrap());
        batch.commit().unwrap();
        store.sync().unwrap();
    };
    // Several tables, and recent changes; one number of three exists, and others far behind them.
    put(&mut (0..600).filter(|number| number % 3 == 0));
    put(&mut (0..600).filter(|number| number % 3 == 1));
    put(&mut (9000..9200));
    put(&mut [9_990, 9_991].into_iter());
    let mut there: std::collections::BTreeSet<u32> = (0..600).filter(|number| number % 3 < 2).collect();
    there.extend((9000..9200).chain([9_990, 9_991]));
    // In order, in order again, backwards, and with gaps.
    let (rising, falling) = ((100..300), (250..350).rev());
    let far = (0..200).map(|step| step * 50).chain(9_000..9_100).chain(300..330);
    for numbers in [rising.clone().collect(), rising.collect(), falling.collect(), far.collect::<Vec<u32>>()] {
        let mut batch = store.batch(Durability::None);
        for number in numbers {
            assert_eq!(batch.remove(&name(number)).unwrap(), there.remove(&number), "{number}");
        }
        batch.commit().unwrap();
    }
    let left = std::iter::once("d".to_owned()).chain(there.iter().map(|number| format!("d/{number:04}")));
    assert_eq!(names(&store), left.collect::<Vec<String>>());
}

/// Two pieces of objects and some more: so one was handed over and may not be committed yet.
const OF_TWO_PIECES: usize = 300;

fn content(number: usize) -> Vec<u8> {
    (0..60_000 + number).map(|at| (at / 5 + number * 7) as u8).collect()
}

fn fill(batch: &mut Batch<'_>) {
    for number in 0..OF_TWO_PIECES {
        batch.put(&key(&format!("d/{number:03}")), &file(), &content(number)).unwrap();
    }
}

#[test]
fn what_was_handed_over_is_there_for_what_follows_in_the_batch() {
    let sandbox = TempDir::new().unwrap();
    let store = new(&sandbox);
    let long = || {
        let mut batch = store.batch(Durability::Batch);
        fill(&mut batch);
        for name in ["d/000", "d/140", "d/299"] {
            assert!(batch.remove(&key(name)).unwrap(), "{name}");
            assert!(!batch.remove(&key(name)).unwrap(), "{name}, removed by this batch");
        }
        batch.commit().unwrap();
        let found = names(&store);
        assert_eq!(found.len(), 1 + OF_TWO_PIECES - 3);
        for name in &found[1..] {
            let number = name[2..].parse().unwrap();
            assert!(store.get(&key(name)).unwrap() == Some(content(number)), "{name}");
        }
        let mut batch = store.batch(Durability::Batch);
        fill(&mut batch);
        assert!(batch.remove_tree(&key("d")).unwrap());
        batch.commit().unwrap();
        assert_eq!(names(&store), Vec::<String>::new());
    };
    long();
    without_threads(long);
}

#[test]
fn copies_of_long_batches_are_alike_and_beside_the_writer_they_are_read() {
    let sandbox = TempDir::new().unwrap();
    let devices = ["1", "2"].map(|name| sandbox.path().join(name));
    let plan = Plan { fast: devices.to_vec(), ..Plan::default() };
    let home = sandbox.path().join("store");
    let store = Store::create(&home, &plan).unwrap();
    store.put(&key("d/first"), &file(), b"x").unwrap();
    let reader = Store::open_read_only(&home).unwrap();
    for round in 0..3 {
        let mut batch = store.batch(Durability::Batch);
        fill(&mut batch);
        batch.commit().unwrap();
        reader.refresh().unwrap();
        for number in (round..OF_TWO_PIECES).step_by(3) {
            let read = reader.get(&key(&format!("d/{number:03}"))).unwrap();
            assert!(read == Some(content(number)), "{number} in round {round}");
        }
    }
    drop((store, reader));
    let files = |device: &std::path::Path| {
        let listed = std::fs::read_dir(device.join("segments")).unwrap();
        let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    let [first, second] = devices.map(|device| files(&device));
    assert!(!first.is_empty() && first == second);
    let store = Store::open(&home).unwrap();
    assert!(store.completeness().is_complete());
    assert_eq!(names(&store).len(), 2 + OF_TWO_PIECES);
}

#[test]
fn a_large_object_that_cannot_be_added_gives_up_its_units() {
    let sandbox = TempDir::new().unwrap();
    let store = Store::create(&sandbox.path().join("s"), &Plan { cutoff_bytes: 16 << 20, ..Plan::default() }).unwrap();
    store.put(&key("d/f"), &file(), b"content").unwrap();
    let large = vec![7; 17 << 20];
    let mut batch = store.batch(Durability::Batch);
    // The piece with this fails, which is known when the next one begins.
    batch.put(&key("d"), &file(), b"no directory").unwrap();
    batch.put(&key("filler"), &file(), &large[..8 << 20]).unwrap();
    assert_eq!(batch.put(&key("large"), &file(), &large).unwrap_err().kind(), ErrorKind::Exists);
    drop(batch);
    let too_late = Time { seconds: i64::MAX, nanoseconds: 0 };
    let outcome = store.put(&key("large"), &Attributes::of_file(too_late), &large);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Usage);
    store.put(&key("large"), &file(), &large).unwrap();
    let entry = store.entry(&key("large")).unwrap().unwrap().entry;
    let runs = store.engine().descriptor(&entry).unwrap();
    assert_eq!(runs.runs().next().map(|run| (run.file, run.offset_bytes)), Some((0, 0)));
}
