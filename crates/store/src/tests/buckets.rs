//! A store in a bucket: what a store in a directory can do, and what each part of it costs in requests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{bytes, file, key};
use crate::bucket::{BucketOptions, register};
use crate::devices::bucket::platform::BucketPlatform;
use crate::devices::bucket::tests::{Breaking, Fate, machine};
use crate::devices::bucket::volume::Volume;
use crate::error::ErrorKind;
use crate::locks::lock;
use crate::objects::{Expected, Head, Memory, ObjectError, Objects, Page, Piece, Tag};
use crate::*;

/// A bucket that counts requests.
#[derive(Debug, Default)]
struct Counting {
    bucket: Memory,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Objects whose names begin so are not given out.
    refused: Mutex<Option<&'static str>>,
}

impl Counting {
    fn ask<T>(&self, what: &'static str, ask: impl FnOnce() -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        *lock(&self.counts).entry(what).or_default() += 1;
        ask()
    }

    /// Requests since this was last asked.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut *lock(&self.counts)).into_iter().collect()
    }
}

type Result<T, E> = std::result::Result<T, E>;

impl Objects for Counting {
    fn place(&self) -> PathBuf {
        self.bucket.place()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.ask("put", || self.bucket.put(name, bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        self.ask("replace", || self.bucket.replace(name, bytes, expected))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        if lock(&self.refused).is_some_and(|refused| name.starts_with(refused)) {
            return Err(ObjectError::Failed(std::io::Error::new(
                std::io::ErrorKind::PermissionDenied,
                "it is archived",
            )));
        }
        self.ask("read", || self.bucket.read(name, range))
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Result<Option<Piece>, ObjectError> {
        self.ask("read if changed", || self.bucket.read_if_changed(name, range, tag))
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        self.ask("head", || self.bucket.head(name))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.ask("list", || self.bucket.list(prefix, after))
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.ask("delete", || self.bucket.delete(name))
    }
}

/// A bucket, and the address of a store in it.
fn a_bucket() -> (Arc<Counting>, PathBuf) {
    static BUCKETS: AtomicU64 = AtomicU64::new(0);
    let scheme = format!("test{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
    let bucket = Arc::new(Counting::default());
    let shared = Arc::clone(&bucket);
    register(&scheme, Arc::new(move |_, _| Ok(shared.clone())));
    (bucket, PathBuf::from(format!("{scheme}://bucket/store")))
}

/// Readers that always ask, and small objects.
fn options() -> OpenOptions {
    let bucket = BucketOptions { object_bytes: 128 << 10, poll: Duration::ZERO, ..BucketOptions::default() };
    OpenOptions { bucket, ..OpenOptions::default() }
}

fn plan() -> Plan {
    Plan { segment_bytes: 1 << 20, cutoff_bytes: 64 << 10, ..Plan::default() }
}

fn create(home: &Path) -> Store {
    Store::create_with(home, &plan(), &options()).unwrap()
}

fn is_sound(store: &Store) {
    let mut problems = Vec::new();
    let deep = CheckOptions { is_deep: true, ..CheckOptions::default() };
    let report = store.check(deep, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(problems.is_empty() && report.is_complete, "{problems:#?}");
}

/// What a process leaves that is killed.
fn kill(store: Store) {
    std::mem::forget(store);
}

#[test]
fn the_tour_of_the_library_leads_through_a_bucket() {
    let (_, home) = a_bucket();
    let store = create(&home);
    let attributes = file();
    let mut batch = store.batch(Durability::Batch);
    for cat in 0..100 {
        batch.put(&key(&format!("cats/{cat}.jpg")), &attributes, b"a picture").unwrap();
    }
    batch.commit().unwrap();
    let (mut buffer, cat) = (Buffer::default(), key("cats/7.jpg"));
    assert_eq!(store.read(&cat, &mut buffer).unwrap().unwrap().content, b"a picture");
    assert_eq!(store.list(&key("cats")).unwrap().count(), 100);
    store.create_snapshot("before").unwrap();
    store.rename(&key("cats"), &key("felines"), Existing::Refuse).unwrap();
    store.hard_link(&key("felines/7.jpg"), &key("favourite.jpg")).unwrap();
    let handle = store.open_object(&key("favourite.jpg"), &HandleOptions::write()).unwrap();
    handle.write_at(b"the", 0).unwrap();
    handle.commit(Durability::Batch).unwrap();
    handle.close().unwrap();
    assert_eq!(store.get(&key("felines/7.jpg")).unwrap().unwrap(), b"theicture");
    let reader = Store::open_read_only_with(&home, &options()).unwrap();
    let before = reader.snapshot_named("before").unwrap().unwrap();
    assert_eq!(before.read(&cat, &mut buffer).unwrap().unwrap().content, b"a picture");
    is_sound(&store);
    is_sound(&reader);
}

#[test]
fn what_was_acknowledged_is_there_after_the_process_was_killed_and_after_it_ended() {
    let (bucket, home) = a_bucket();
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    kill(create(&home));
    let _ = bucket.counted();
    for round in 0..12_u64 {
        let store = Store::open_with(&home, &options()).unwrap();
        for number in 0..20 {
            // Small ones, and some above the cutoff.
            let (name, content) =
                (format!("d{}/{number}", round % 5), bytes(round * 100 + number, 300 << (number % 11)));
            store.put(&key(&name), &file(), &content).unwrap();
            expected.insert(name, content);
        }
        // Lost with the process, unless it is closed.
        let mut batch = store.batch(Durability::None);
        batch.put(&key("unsynced"), &file(), &[round as u8]).unwrap();
        batch.commit().unwrap();
        if round % 3 == 0 {
            drop(store)
        } else {
            kill(store)
        }
        let reader = Store::open_read_only_with(&home, &options()).unwrap();
        for (name, content) in &expected {
            assert!(reader.get(&key(name)).unwrap().as_ref() == Some(content), "{name} in round {round}");
        }
        let unsynced = reader.get(&key("unsynced")).unwrap();
        assert_eq!(unsynced, Some(vec![(round / 3 * 3) as u8]), "round {round}");
    }
    let store = Store::open_with(&home, &options()).unwrap();
    is_sound(&store);
    let scrubbed = store.scrub(ScrubOptions::default(), &mut |_, _| (), &Progress::default()).unwrap();
    assert!(scrubbed.is_complete && scrubbed.found == 0, "{scrubbed:?}");
    drop(store);
    let objects = bucket.bucket.list("fast/", None).unwrap().objects.len();
    assert!(objects > 10 && bucket.counted().iter().all(|(what, _)| *what != "list"), "nothing is listed on the way");
}

#[test]
fn a_compacted_store_names_fewer_objects_and_readers_go_on() {
    let (bucket, home) = a_bucket();
    let store = create(&home);
    for number in 0..60 {
        store.put(&key(&format!("a/{number}")), &file(), &bytes(number, 50_000)).unwrap();
    }
    let reader = Store::open_read_only_with(&home, &options()).unwrap();
    let named = || published::Reader::open(bucket.clone(), Arc::new(published::Machine::default())).unwrap();
    let bytes_of =
        |reader: published::Reader| -> u64 { reader.manifest().objects().map(|object| object.length_bytes()).sum() };
    let before = bytes_of(named());
    for number in 0..50 {
        store.remove(&key(&format!("a/{number}"))).unwrap();
    }
    let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
    for _ in 0..2 {
        store.compact(&all, &Progress::default()).unwrap();
    }
    store.sync().unwrap();
    let after = bytes_of(named());
    assert!(after < before / 2, "{after} of {before}");
    reader.refresh().unwrap();
    for store in [&store, &reader] {
        for number in 50..60 {
            assert!(store.get(&key(&format!("a/{number}"))).unwrap().unwrap() == bytes(number, 50_000));
        }
        is_sound(store);
    }
}

#[test]
fn readers_see_what_a_writer_commits_and_nothing_before() {
    let (_, home) = a_bucket();
    let store = create(&home);
    let reader = Store::open_read_only_with(&home, &options()).unwrap();
    for number in 0..200_u64 {
        let mut batch = store.batch(Durability::Batch);
        batch.put(&key("counter"), &file(), &number.to_le_bytes()).unwrap();
        batch.put(&key(&format!("n/{number}")), &file(), &bytes(number, 2000)).unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.get(&key(&format!("n/{number}"))).unwrap(), None);
        batch.commit().unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.get(&key("counter")).unwrap().unwrap(), number.to_le_bytes());
        assert!(reader.get(&key(&format!("n/{number}"))).unwrap().unwrap() == bytes(number, 2000));
    }
    drop(store);
    reader.refresh().unwrap();
    assert_eq!(reader.list(&key("n")).unwrap().count(), 200);
}

#[test]
fn threads_that_commit_at_once_lose_nothing() {
    let (bucket, home) = a_bucket();
    let store = create(&home);
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..10 {
                    let content = bytes(thread * 10 + number, 3000);
                    store.put(&key(&format!("{thread}/{number}")), &file(), &content).unwrap();
                }
            });
        }
    });
    kill(store);
    let replaced = bucket.counted().into_iter().find(|(what, _)| *what == "replace").unwrap().1;
    assert!(replaced < 70, "one each at most, and few others: {replaced}");
    let reader = Store::open_read_only_with(&home, &options()).unwrap();
    for (thread, number) in (0..6).flat_map(|thread| (0..10).map(move |number| (thread, number))) {
        let found = reader.get(&key(&format!("{thread}/{number}"))).unwrap().unwrap();
        assert!(found == bytes(thread * 10 + number, 3000), "{thread}/{number}");
    }
}

#[test]
fn the_next_writer_fences_off_the_one_before() {
    let (_, home) = a_bucket();
    let first = create(&home);
    first.put(&key("a"), &file(), b"acknowledged").unwrap();
    let second = Store::open_with(&home, &options()).unwrap();
    second.put(&key("b"), &file(), b"goes on").unwrap();
    for _ in 0..2 {
        let refused = first.put(&key("a"), &file(), b"late").unwrap_err();
        assert!([ErrorKind::Io, ErrorKind::ReadOnly].contains(&refused.kind()), "{refused:?}");
    }
    drop(first);
    drop(second);
    let store = Store::open_with(&home, &options()).unwrap();
    assert_eq!(store.get(&key("a")).unwrap().unwrap(), b"acknowledged");
    assert_eq!(store.get(&key("b")).unwrap().unwrap(), b"goes on");
    is_sound(&store);
}

#[test]
fn a_small_put_costs_four_requests() {
    let (bucket, home) = a_bucket();
    drop(create(&home));
    // Is there one, or anything else? The store, and its end.
    assert_eq!(bucket.counted(), [("list", 1), ("read", 2), ("replace", 2)]);
    // Nothing becomes too old.
    let mut options = options();
    options.bucket.poll = Duration::from_secs(3600);
    let store = Store::open_with(&home, &options).unwrap();
    assert_eq!(bucket.counted(), [("read", 1), ("replace", 1)], "opened");
    store.put(&key("a"), &file(), b"content").unwrap();
    assert_eq!(bucket.counted(), [("replace", 1)], "in the body");
    for number in 0..10 {
        store.put(&key(&format!("b/{number}")), &file(), &[number; 100]).unwrap();
    }
    let puts: u64 = bucket.counted().iter().map(|(_, count)| count).sum();
    assert!((10..14).contains(&puts), "{puts}");
    drop(store);
    assert_eq!(bucket.counted(), [("replace", 1)], "closed");

    let reader = Store::open_read_only_with(&home, &options).unwrap();
    assert_eq!(reader.get(&key("a")).unwrap().unwrap(), b"content");
    assert_eq!(bucket.counted(), [("read", 1)], "all of it is in the body");
}

#[test]
fn what_a_bucket_cannot_have_is_refused() {
    let (_, home) = a_bucket();
    assert!(!is_store(&home));
    let absent = Store::open_with(&home, &options()).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    let apart = Plan { fast: vec!["/elsewhere".into()], ..plan() };
    let refused = Store::create_with(&home, &apart, &options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage);
    let sandbox = tempfile::tempdir().unwrap();
    let apart = Plan { slow: vec![home.clone()], ..plan() };
    assert_eq!(Store::create(&sandbox.path().join("s"), &apart).unwrap_err().kind(), ErrorKind::Usage);
    drop(create(&home));
    assert!(is_store(&home));
    let again = Store::create_with(&home, &plan(), &options()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Exists);
    let unknown = Store::open(Path::new("nowhere://bucket/store")).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Usage);
    assert!(unknown.to_string().contains("nowhere://"), "{unknown}");
}

#[test]
fn no_store_is_made_where_one_has_lost_its_manifest() {
    let (bucket, home) = a_bucket();
    for left in ["fast/1-1", "leases/1"] {
        bucket.put(left, b"of a store").unwrap();
        let refused = Store::create_with(&home, &plan(), &options()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
        let local = tempfile::tempdir().unwrap();
        let source = Store::create(&local.path().join("s"), &plan()).unwrap();
        let refused = source.clone_to(&home, &CopyOptions::default(), &Progress::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
        assert_eq!(bucket.read(left, 0..20).unwrap().bytes, b"of a store");
        bucket.delete(left).unwrap();
    }
    // What a probe of the bucket may leave is nobody's.
    bucket.put("probe/1", b"1").unwrap();
    drop(create(&home));
}

#[test]
fn a_rebuilt_index_and_a_second_process_find_the_same() {
    let (_, home) = a_bucket();
    let store = create(&home);
    for number in 0..150 {
        store.put(&key(&format!("a/{number}")), &file(), &bytes(number, 1000)).unwrap();
    }
    kill(store);
    let store = rebuild_index(&home, &options()).unwrap();
    is_sound(&store);
    assert_eq!(store.list(&key("a")).unwrap().count(), 150);
    drop(store);
    let reader = Store::open_read_only_with(&home, &options()).unwrap();
    assert!(reader.get(&key("a/149")).unwrap().unwrap() == bytes(149, 1000));
    assert!(reader.put(&key("b"), &file(), b"").is_err(), "it was opened for reading");
}

type State = BTreeMap<String, Vec<u8>>;

/// What a store should have after each step, and how many of these were acknowledged.
struct Told {
    states: Vec<State>,
    acknowledged: usize,
}

impl Told {
    /// Takes a step, which leads to another state.
    fn step(&mut self, change: impl FnOnce(&mut State), step: impl FnOnce() -> error::Result<()>) -> error::Result<()> {
        let mut state = self.states[self.states.len() - 1].clone();
        change(&mut state);
        self.states.push(state);
        step()?;
        self.acknowledged = self.states.len();
        Ok(())
    }
}

/// The work of a store on objects that may break, some of it in several publications.
fn work(objects: Arc<dyn Objects>, told: &mut Told) -> error::Result<()> {
    let home = Path::new("breaking://home");
    let volume = Volume::open(objects, machine(), options().bucket)?;
    let platform: Arc<dyn Platform> = Arc::new(BucketPlatform::new(home, volume));
    told.step(
        |_| (),
        || {
            let hold = platform.hold();
            open::create(&*platform, home, &plan())?;
            hold.publish().map_err(|error| Error::io("create the store", home, error))
        },
    )?;
    for round in 0..2_u64 {
        // The first time without an index, which is published with the first batch.
        let store = Store::open_on(Arc::clone(&platform), home, Access::Write, &options())?;
        for number in 0..8_u64 {
            let (name, content) = (format!("a/{number}"), bytes(round * 10 + number, 500 << number));
            let put = |state: &mut State| drop(state.insert(name.clone(), content.clone()));
            told.step(put, || store.put(&key(&name), &file(), &content))?;
        }
        let several = |state: &mut State| {
            state.remove("a/1");
            (0..70).for_each(|number| drop(state.insert(format!("b/{number}"), vec![round as u8; 50])));
        };
        told.step(several, || {
            let mut batch = store.batch(Durability::Batch);
            batch.remove(&key("a/1"))?;
            (0..70).try_for_each(|number| batch.put(&key(&format!("b/{number}")), &file(), &[round as u8; 50]))?;
            batch.commit()
        })?;
        let write = |state: &mut State| {
            let content = state.get_mut("a/3").unwrap();
            content[100..103].copy_from_slice(b"new");
        };
        told.step(write, || {
            let handle = store.open_object(&key("a/3"), &HandleOptions::write())?;
            handle.write_at(b"new", 100)?;
            handle.commit(Durability::Batch)?;
            handle.close()
        })?;
        told.step(|_| (), || store.pin("pin"))?;
        let all = CompactOptions { choice: Choice::All, is_alone: true, ..CompactOptions::default() };
        told.step(|_| (), || store.compact(&all, &Progress::default()).map(drop))?;
        told.step(|_| (), || store.unpin("pin").map(drop))?;
        told.step(|_| (), || store.compact(&all, &Progress::default()).map(drop))?;
        told.step(|_| (), || store.sync())?;
    }
    Ok(())
}

fn state_of(store: &Store) -> State {
    let files = store.walk(&Key::root()).unwrap().map(std::result::Result::unwrap);
    let files = files.filter(|listed| listed.entry.kind != Kind::Directory);
    files.map(|listed| (listed.key.to_string(), store.get(&listed.key).unwrap().unwrap())).collect()
}

/// For each request that changes something: nothing that was acknowledged is lost, and what was not is there as a whole
/// or not at all. `GRANULO_CRASH_POINTS` such requests, spread over all; 60 without.
#[test]
fn whatever_request_breaks_what_was_acknowledged_is_there() {
    let most = std::env::var("GRANULO_CRASH_POINTS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let run = |requests: u64, fate: Fate| {
        let (bucket, mut told) = (Memory::default(), Told { states: vec![State::new()], acknowledged: 1 });
        let worked = work(Arc::new(Breaking::after(&bucket, requests, fate)), &mut told);
        (bucket, told, worked)
    };
    let is_whole = |requests: u64| run(requests, Fate::Lost).2.is_ok();
    let requests = (1..).map(|power| 1_u64 << power).find(|requests| is_whole(*requests)).unwrap();
    let step = (requests as usize * 3 / usize::max(most, 1)).max(1);
    let mut random = crate::random::Random::new(1);
    for begin in (1..=requests).step_by(step) {
        let at = begin + random.below(step as u64);
        for fate in [Fate::Fails, Fate::AnswerLost, Fate::Lost] {
            let (bucket, told, worked) = run(at, fate);
            let objects = Arc::new(bucket);
            let home = Path::new("breaking://home");
            let open = |access| {
                let volume = Volume::open(objects.clone(), machine(), options().bucket)?;
                Store::open_on(Arc::new(BucketPlatform::new(home, volume)), home, access, &options())
            };
            let what = format!("{fate:?} at request {at}, which was told as {:?}", worked.map_err(|e| e.to_string()));
            let reader = match open(Access::Read) {
                Ok(reader) => reader,
                Err(error) => {
                    let is_absent = error.kind() == ErrorKind::NotFound && told.acknowledged == 1;
                    assert!(is_absent, "{what}: {error}");
                    continue;
                }
            };
            let seen = state_of(&reader);
            let possible = &told.states[told.acknowledged - 1..];
            assert!(possible.contains(&seen), "{what}: a reader sees {:?}", seen.keys());
            let store = open(Access::Write).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = state_of(&store);
            assert!(possible.contains(&found), "{what}: a writer finds {:?}", found.keys());
            assert_eq!(store.recovered().completeness, Completeness::default(), "{what}");
            store.put(&key("afterwards"), &file(), b"more").unwrap();
            is_sound(&store);
        }
    }
}

#[test]
fn a_bucket_that_does_not_give_out_objects_has_lost_none() {
    let (bucket, home) = a_bucket();
    let store = create(&home);
    for number in 0..30 {
        store.put(&key(&format!("small{number}")), &file(), &bytes(number, 20_000)).unwrap();
    }
    store.put(&key("large"), &file(), &bytes(100, 1 << 20)).unwrap();
    drop(store);
    for refused in ["slow/", "fast/"] {
        *lock(&bucket.refused) = Some(refused);
        let quiet = Progress::default();
        if let Ok(store) = Store::open_read_only_with(&home, &options()) {
            let (mut remedies, deep) = (Vec::new(), CheckOptions { is_deep: true, ..CheckOptions::default() });
            _ = store.check(deep, &mut |problem| remedies.push(problem.remedy), &quiet);
            assert!(!remedies.is_empty() && !remedies.contains(&Remedy::Lost), "{refused}: {remedies:?}");
        }
        if let Ok(plan) = plan_repair(&home, &options(), None, &mut |_| {}, &quiet) {
            let how = RepairOptions { drop_lost: true, ..RepairOptions::default() };
            let report = repair(&home, &options(), &plan, how, &mut |_, _| {}, &quiet);
            assert!(report.as_ref().map_or(0, |report| report.dropped) == 0, "{refused}: {report:?}");
        }
        *lock(&bucket.refused) = None;
        let store = Store::open_with(&home, &options()).unwrap();
        assert!(store.get(&key("large")).unwrap().unwrap() == bytes(100, 1 << 20), "{refused}");
        (0..30).for_each(|number| {
            assert!(store.get(&key(&format!("small{number}"))).unwrap().unwrap() == bytes(number, 20_000));
        });
        is_sound(&store);
    }
}

#[test]
fn a_compaction_deletes_no_objects_of_others_among_the_leases() {
    let (bucket, home) = a_bucket();
    let store = create(&home);
    let others =
        ["leases/manifest", "leases/fast/0000000000000001-0123456789abcdef-01234567", "leases/0123456789ABCDEF"];
    others.iter().for_each(|name| _ = bucket.bucket.put(name, b"of others").unwrap());
    bucket.bucket.put("leases/0123456789abcdef", b"of a writer that is gone").unwrap();
    store.compact(&super::ALL, &Progress::default()).unwrap();
    others.iter().for_each(|name| _ = bucket.bucket.head(name).unwrap());
    assert!(matches!(bucket.bucket.head("leases/0123456789abcdef"), Err(ObjectError::NotFound)));
}
