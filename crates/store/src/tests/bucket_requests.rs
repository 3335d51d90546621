//! What a store in a bucket costs in requests, exactly; and what readers see when.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ALL, bytes, file, key};
use crate::bucket::{BucketOptions, Requests, register};
use crate::devices::bucket::platform::BucketPlatform;
use crate::devices::bucket::tests::machine;
use crate::devices::bucket::volume::Volume;
use crate::devices::device::Mode;
use crate::devices::objects::counts::Counted;
use crate::objects::{Memory, Objects};
use crate::*;

/// Long enough that nothing becomes old.
const FOREVER: Duration = Duration::from_secs(3600);
const HOME: &str = "memory://home";

/// A bucket with an address, that counts what all processes ask.
struct Counting {
    memory: Memory,
    counted: Arc<Counted>,
    before: Requests,
    /// Whether no store was made there yet, for which objects are listed.
    is_empty: bool,
    home: PathBuf,
}

impl Counting {
    fn new() -> Counting {
        static BUCKETS: AtomicU64 = AtomicU64::new(0);
        let scheme = format!("counting{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let memory = Memory::default();
        let counted = Arc::new(Counted::new(Arc::new(memory.clone())));
        let shared = Arc::clone(&counted);
        register(&scheme, Arc::new(move |_, _| Ok(shared.clone())));
        Counting {
            memory,
            counted,
            before: Requests::default(),
            is_empty: true,
            home: format!("{scheme}://bucket/store").into(),
        }
    }

    /// Since this was last asked: objects put, manifests replaced, reads; nothing else is ever asked.
    fn asked(&mut self) -> [u64; 3] {
        let now = self.counted.requests();
        let since = now.since(&self.before);
        self.before = now;
        let most_lists = u64::from(std::mem::take(&mut self.is_empty));
        assert!(since.heads == 0 && since.lists <= most_lists && since.deletes == 0, "{since:?}");
        [since.puts, since.replaces, since.reads]
    }
}

fn options(object_bytes: u64) -> OpenOptions {
    let bucket = BucketOptions { object_bytes, poll: FOREVER, ..BucketOptions::default() };
    OpenOptions { bucket, ..OpenOptions::default() }
}

/// With a cache on disk.
fn cached(options: &OpenOptions, cache: &Path) -> OpenOptions {
    let mut options = options.clone();
    options.bucket.cache = Some(cache.to_owned());
    options
}

/// Puts files of a length, in one batch.
fn put_all(store: &Store, numbers: std::ops::Range<u64>, length: usize) {
    let mut batch = store.batch(Durability::Batch);
    for number in numbers {
        batch.put(&key(&format!("d{}/{number}", number % 7)), &file(), &bytes(number, length)).unwrap();
    }
    batch.commit().unwrap();
}

fn get(store: &Store, number: u64, length: usize) {
    let found = store.get(&key(&format!("d{}/{number}", number % 7))).unwrap().unwrap();
    assert!(found == bytes(number, length), "{number}");
}

#[test]
fn a_get_costs_one_request_and_an_index_that_nobody_has_read_one_for_each_object() {
    let (mut bucket, cache) = (Counting::new(), tempfile::tempdir().unwrap());
    let options = options(1 << 20);
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    put_all(&store, 0..3000, 4000);
    drop(store);
    bucket.asked();
    for (cache, index_reads) in [(None, 3), (Some(cache.path()), 3), (Some(cache.path()), 0)] {
        let options = cache.map_or_else(|| options.clone(), |cache| cached(&options, cache));
        let reader = Store::open_read_only_with(&bucket.home, &options).unwrap();
        get(&reader, 123, 4000);
        let opened = 1 + index_reads + 2;
        assert_eq!(bucket.asked(), [0, 0, opened], "the manifest, the index, the last segment's header, the record");
        // Whatever else: the index is in memory.
        (1..20).rev().for_each(|number| get(&reader, number * 150, 4000));
        assert_eq!(bucket.asked(), [0, 0, 19]);
        assert!(reader.get(&key("d1/absent")).unwrap().is_none());
        assert_eq!(reader.list(&key("d3")).unwrap().count(), 429);
        assert_eq!(bucket.asked(), [0, 0, 0]);
        let status = reader.status(false).unwrap().bucket.unwrap();
        assert_eq!(status.requests.reads, opened + 19);
        assert!(status.fast.objects >= 2 && status.slow.objects == 0 && status.manifest_bytes > 500);
    }
}

#[test]
fn what_writers_have_asked_is_in_the_status_that_everybody_reads() {
    let bucket = Counting::new();
    let options = options(1 << 20);
    let spent = |store: &Store| store.status(false).unwrap().bucket.unwrap().spent;
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    put_all(&store, 0..3000, 4000);
    let mut before = spent(&store);
    assert!(before.puts > 3 && before.replaces > 0);
    drop(store);
    for round in 1..4 {
        let store = Store::open_with(&bucket.home, &options).unwrap();
        put_all(&store, round * 3000..round * 3000 + 100, 4000);
        drop(store);
        let writers = bucket.counted.requests();
        let reader = Store::open_read_only_with(&bucket.home, &options).unwrap();
        get(&reader, round * 3000, 4000);
        let found = spent(&reader);
        assert_eq!((found.puts, found.replaces), (writers.puts, writers.replaces), "round {round}");
        assert!(before.reads < found.reads && found.reads <= writers.reads);
        // All but the last manifest of each.
        let manifest_bytes = reader.status(false).unwrap().bucket.unwrap().manifest_bytes;
        let missing_bytes = writers.put_bytes - found.put_bytes;
        assert!(missing_bytes <= (round + 1) * 2 * manifest_bytes, "{missing_bytes} of {}", writers.put_bytes);
        before = found;
    }
}

#[test]
fn a_small_put_costs_four_requests_with_opening_and_closing() {
    let (mut bucket, cache) = (Counting::new(), tempfile::tempdir().unwrap());
    let options = cached(&options(1 << 20), cache.path());
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    assert_eq!(bucket.asked(), [0, 1, 2], "is there one, twice; the first version");
    put_all(&store, 0..5000, 100);
    drop(store);
    // The index of the second process.
    drop(Store::open_with(&bucket.home, &options).unwrap());
    bucket.asked();
    let store = Store::open_with(&bucket.home, &options).unwrap();
    store.put(&key("one/more"), &file(), b"content").unwrap();
    drop(store);
    assert_eq!(bucket.asked(), [0, 3, 2], "the manifest, and the header of the last segment");
}

#[test]
fn an_import_costs_a_request_for_each_object_and_few_others() {
    const FILES: u64 = 2000;
    let mut bucket = Counting::new();
    let options = options(1 << 20);
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    bucket.asked();
    put_all(&store, 0..FILES, 20_000);
    drop(store);
    let [puts, replaces, reads] = bucket.asked();
    let objects = FILES * 20_000 / (1 << 20);
    // Of a cut there may be a rest; and in tests there is one for every 64 entries.
    assert!((objects..objects * 2).contains(&puts) && replaces < FILES / 64, "{puts} {replaces}");
    assert_eq!(reads, 0, "nothing is read to write");
    // And little to read all of it.
    let reader = Store::open_read_only_with(&bucket.home, &options).unwrap();
    let mut found = 0;
    for piece in reader.load(&Key::root()).unwrap() {
        found += piece.unwrap().objects().filter(|object| object.kind() == Kind::File).count() as u64;
    }
    assert_eq!(found, FILES);
    let reads = bucket.asked()[2];
    assert!(reads < FILES / 8, "{reads}");
}

#[test]
fn many_are_read_in_fewer_requests_than_they_are() {
    let mut bucket = Counting::new();
    let options = options(1 << 20);
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    put_all(&store, 0..1000, 3000);
    drop(store);
    let reader = Store::open_read_only_with(&bucket.home, &options).unwrap();
    get(&reader, 0, 3000);
    bucket.asked();
    // One of ten: what lies between them is less than a request is worth.
    let keys: Vec<Key> = (0..100_u64).map(|at| key(&format!("d{}/{}", at * 10 % 7, at * 10))).collect();
    let found = AtomicU64::new(0);
    reader.get_many(&keys, 32, |at, object| {
        assert!(object.unwrap().unwrap().content == bytes(at as u64 * 10, 3000));
        found.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(found.into_inner(), 100);
    // A run of bytes that is read at once may end in an object, and threads that overtake each other may have some of
    // it read ahead as well.
    let (reads, objects) = (bucket.asked()[2], reader.status(false).unwrap().bucket.unwrap().fast.objects);
    let runs = 1 + 1000 * 3000 / (1 << 20);
    assert!(reads <= 2 * (objects + runs) && reads < 25, "{reads} of {objects}");
}

fn platform(memory: &Memory) -> BucketPlatform {
    let options = BucketOptions { object_bytes: 1 << 20, poll: FOREVER, ..BucketOptions::default() };
    BucketPlatform::new(Path::new(HOME), Volume::open(Arc::new(memory.clone()), machine(), options).unwrap())
}

fn requests(platform: &BucketPlatform) -> Requests {
    platform.volume().settle();
    platform.bucket().unwrap().requests
}

#[test]
fn a_reader_asks_for_a_newer_version_once_in_a_while_and_sees_what_was_committed_within_a_second() {
    assert!(BucketOptions::default().poll <= Duration::from_millis(500));
    let memory = Memory::default();
    let writer = platform(&memory);
    let device = writer.device(Path::new(HOME));
    device.create_directory("segments").unwrap();
    writer.hold().publish().unwrap();
    let lock = writer.lock(Path::new(HOME)).unwrap();
    let reader = platform(&memory);
    let seen = reader.device(Path::new(HOME));
    let file = device.open("segments/1", Mode::Create).unwrap();
    for round in 1..4 {
        file.write_at(&[7; 100], round * 100 - 100).unwrap();
        file.sync().unwrap();
        let before = requests(&reader);
        // Not yet old enough to ask.
        (0..20).for_each(|_| assert_eq!(seen.list("segments").unwrap().len(), usize::from(round > 1)));
        assert_eq!(requests(&reader), before);
        reader.volume().let_pass(FOREVER);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(seen.list("segments").unwrap(), [("1".to_owned(), round * 100)]));
            }
        });
        assert_eq!(requests(&reader).since(&before).reads, 1, "one of them asks");
        reader.volume().let_pass(FOREVER);
        let before = requests(&reader);
        assert_eq!(seen.open("segments/1", Mode::Read).unwrap().size().unwrap(), round * 100);
        let since = requests(&reader).since(&before);
        assert_eq!((since.reads, since.read_bytes), (1, 0), "nothing has changed");
        // What is known is read without asking.
        let open = seen.open("segments/1", Mode::Read).unwrap();
        reader.volume().let_pass(FOREVER);
        let before = requests(&reader);
        let mut bytes = Vec::new();
        open.read_onto(&mut bytes, 1000, 0).unwrap();
        assert_eq!((bytes.len() as u64, requests(&reader)), (round * 100, before));
        seen.list("segments").unwrap();
    }
    drop(lock);
}

#[test]
fn an_object_that_is_gone_is_looked_for_in_the_newest_version_and_lost_if_that_names_it() {
    const LENGTH: usize = 300_000;
    let memory = Memory::default();
    let writer = platform(&memory);
    let device = writer.device(Path::new(HOME));
    device.create_directory("segments").unwrap();
    writer.hold().publish().unwrap();
    let lock = writer.lock(Path::new(HOME)).unwrap();
    let file = device.open("segments/1", Mode::Create).unwrap();
    file.write_at(&[1; LENGTH], 0).unwrap();
    file.sync().unwrap();
    let names = || -> Vec<String> {
        memory.list("fast/", None).unwrap().objects.into_iter().map(|object| object.name).collect()
    };
    let first = names();
    let reader = platform(&memory);
    let open = reader.device(Path::new(HOME)).open("segments/1", Mode::Read).unwrap();
    file.write_at(&[2; LENGTH], 0).unwrap();
    file.sync().unwrap();
    first.iter().for_each(|name| memory.delete(name).unwrap());
    let (before, mut bytes) = (requests(&reader), Vec::new());
    open.read_onto(&mut bytes, LENGTH, 0).unwrap();
    assert!(bytes == [2; LENGTH]);
    assert_eq!(requests(&reader).since(&before).reads, 3, "it is gone; what is there now; and that");
    // The newest version has it: it is lost, for a writer too.
    names().iter().for_each(|name| memory.delete(name).unwrap());
    let before = requests(&reader);
    let lost = open.read_at(&mut [0; 10], 100).unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_eq!(requests(&reader).since(&before).reads, 2);
    assert!(file.read_at(&mut [0; 10], 100).is_err());
    drop(lock);
}

#[test]
fn a_file_that_is_read_in_order_is_read_ahead_and_each_byte_once() {
    const LENGTH: u64 = 40 << 20;
    let memory = Memory::default();
    let platform = || {
        let options = BucketOptions { poll: FOREVER, ..BucketOptions::default() };
        BucketPlatform::new(Path::new(HOME), Volume::open(Arc::new(memory.clone()), machine(), options).unwrap())
    };
    let writer = platform();
    let device = writer.device(Path::new(HOME));
    device.create_directory("segments").unwrap();
    writer.hold().publish().unwrap();
    let lock = writer.lock(Path::new(HOME)).unwrap();
    let file = device.open("segments/1", Mode::Create).unwrap();
    let content = |at: u64| -> Vec<u8> { (at..at + (256 << 10)).map(|at| (at >> 9) as u8).collect() };
    (0..LENGTH).step_by(256 << 10).for_each(|at| file.write_at(&content(at), at).unwrap());
    file.sync().unwrap();
    let reader = platform();
    let open = reader.device(Path::new(HOME)).open("segments/1", Mode::Read).unwrap();
    let before = requests(&reader);
    let mut bytes = Vec::new();
    for at in (0..LENGTH).step_by(256 << 10) {
        bytes.clear();
        open.read_onto(&mut bytes, 256 << 10, at).unwrap();
        assert!(bytes == content(at), "{at}");
        // However slow threads are.
        reader.volume().settle();
    }
    let since = requests(&reader).since(&before);
    // Three by themselves, then parts that grow.
    assert_eq!((since.read_bytes, since.reads), (LENGTH, 18));
    drop(lock);
}

#[test]
fn what_is_damaged_in_a_cache_is_read_from_the_bucket() {
    let (mut bucket, cache) = (Counting::new(), tempfile::tempdir().unwrap());
    let options = options(1 << 20);
    let store = Store::create_with(&bucket.home, &Plan::default(), &options).unwrap();
    put_all(&store, 0..5000, 100);
    store.compact(&ALL, &Progress::default()).unwrap();
    drop(store);
    let options = cached(&options, cache.path());
    // A compaction looks for garbage, too.
    bucket.before = bucket.counted.requests();
    get(&Store::open_read_only_with(&bucket.home, &options).unwrap(), 4321, 100);
    let cold = bucket.asked();
    let store = std::fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
    let mut blocks = 0;
    for block in std::fs::read_dir(&store).unwrap() {
        let path = block.unwrap().path();
        std::fs::write(&path, &std::fs::read(&path).unwrap()[8..]).unwrap();
        blocks += 1;
    }
    assert!(blocks > 0);
    let reader = Store::open_read_only_with(&bucket.home, &options).unwrap();
    get(&reader, 1234, 100);
    assert_eq!(bucket.asked(), cold, "all of it again");
    let mut problems = Vec::new();
    let deep = CheckOptions { is_deep: true, ..CheckOptions::default() };
    reader.check(deep, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    // And is sound again in the cache.
    bucket.asked();
    get(&Store::open_read_only_with(&bucket.home, &options).unwrap(), 77, 100);
    assert_eq!(bucket.asked(), [0, 0, 3], "the manifest, a header, the record");
    assert!(bucket.memory.list("", None).unwrap().is_last);
}
