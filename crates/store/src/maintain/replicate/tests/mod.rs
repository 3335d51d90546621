//! Copies of stores: what they have, when they are refused, and what an end at any moment leaves.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::error::{ErrorKind, Result};
use crate::tests::{ALL, bytes, file, key};
use crate::{Buffer, CheckOptions, Copied, CopyOptions, Durability, HandleOptions, Key, Peer, Plan, Progress, Store};

mod buckets;
mod resumed;
mod surroundings;

/// Small files, files above the cutoff, and what is removed and replaced, by round.
fn write(store: &Store, round: u64) {
    let mut batch = store.batch(Durability::Batch);
    for number in 0..20 {
        batch.put(&key(&format!("r{round}/f{number}")), &file(), &bytes(round * 100 + number, 3000)).unwrap();
    }
    batch.put(&key("same"), &file(), &bytes(round, 5000)).unwrap();
    batch.put(&key(&format!("large{}", round % 3)), &file(), &bytes(round + 7, 200_000)).unwrap();
    batch.commit().unwrap();
    if round > 1 {
        store.remove_tree(&key(&format!("r{}", round - 2))).unwrap();
    }
}

/// Contents by key, now and in each snapshot.
fn content(store: &Store) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut buffer = Buffer::default();
    for found in store.walk(&Key::root()).unwrap() {
        let key = found.unwrap().key;
        let object = store.read(&key, &mut buffer).unwrap().unwrap();
        all.insert(key.to_string(), object.content.to_vec());
    }
    for row in store.snapshots().unwrap() {
        let name = String::from_utf8(row.name).unwrap();
        let then = store.snapshot_named(&name).unwrap().unwrap();
        for found in then.walk(&Key::root(), &Key::root()).unwrap() {
            let key = found.unwrap().key;
            let object = then.read(&key, &mut buffer).unwrap().unwrap();
            all.insert(format!("{name}: {key}"), object.content.to_vec());
        }
    }
    all
}

fn of(home: &Path) -> BTreeMap<String, Vec<u8>> {
    let store = Store::open_read_only(home).unwrap();
    assert!(store.completeness().is_complete() && store.completeness().tail.is_none());
    content(&store)
}

fn assert_sound(home: &Path) {
    let store = Store::open_read_only(home).unwrap();
    let mut problems = Vec::new();
    let options = CheckOptions { is_deep: true, bytes_per_second: None };
    store.check(options, &mut |problem| problems.push(problem.to_string()), &Progress::default()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

/// Every file below a directory, but the locks, which say who has them.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.ends_with("lock") => {}
            false => _ = all.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    all
}

fn clone(from: &Path, to: &Path) -> Result<Copied> {
    Store::open_read_only(from)?.clone_to(to, &CopyOptions::default(), &Progress::default())
}

fn push(from: &Path, to: &Path) -> Result<Copied> {
    Store::open_read_only(from)?.push_to(to, &CopyOptions::default(), &Progress::default())
}

/// A store of each kind, its home, and where its copy goes.
fn stores(sandbox: &Path) -> Vec<(PathBuf, PathBuf)> {
    let below =
        |kind: &str, class: &str, count| (0..count).map(|at| sandbox.join(format!("{kind}-{class}{at}"))).collect();
    let small = Plan { segment_bytes: 1 << 20, ..Plan::default() };
    let plans = [
        ("one", small.clone()),
        ("mirror", Plan { fast: below("mirror", "fast", 2), ..small.clone() }),
        ("hybrid", Plan { fast: below("hybrid", "fast", 2), slow: below("hybrid", "slow", 4), ..small }),
    ];
    let make = |(name, plan): (&str, Plan)| {
        let home = sandbox.join(name);
        write(&Store::create(&home, &plan).unwrap(), 0);
        (home, sandbox.join(format!("{name}-copy")))
    };
    plans.into_iter().map(make).collect()
}

/// One store with a copy of its first state.
fn cloned(sandbox: &TempDir) -> (PathBuf, PathBuf) {
    let (home, copy) = stores(sandbox.path()).swap_remove(0);
    clone(&home, &copy).unwrap();
    (home, copy)
}

#[test]
fn a_copy_is_its_source_and_stays_so() {
    let sandbox = TempDir::new().unwrap();
    for (home, copy) in stores(sandbox.path()) {
        let done = clone(&home, &copy).unwrap();
        assert!(done.is_new && done.files > 0 && done.kept_files == 0, "{done:?}");
        assert_eq!(of(&copy), of(&home));
        assert_sound(&copy);
        for round in 1..6 {
            let store = Store::open(&home).unwrap();
            store.create_snapshot(&format!("s{round}")).unwrap();
            write(&store, round);
            if round == 3 {
                store.compact(&ALL, &Progress::default()).unwrap();
            }
            if round == 4 {
                store.remove_snapshot("s1").unwrap();
            }
            drop(store);
            let done = push(&home, &copy).unwrap();
            assert!(!done.is_new && !done.is_unchanged && done.bytes > 0, "{done:?}");
            assert_eq!(of(&copy), of(&home), "round {round} of {}", home.display());
            assert_sound(&copy);
            assert!(push(&home, &copy).unwrap().is_unchanged);
        }
        assert!(!copy.with_extension("incoming").exists());
        let left = fs::read_dir(sandbox.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".incoming"));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn what_the_copy_has_is_not_transferred_again() {
    let sandbox = TempDir::new().unwrap();
    let home = sandbox.path().join("home");
    let store = Store::create(&home, &Plan { segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
    for number in 0..200 {
        store.put(&key(&format!("d/{number}")), &file(), &bytes(number, 40_000)).unwrap();
    }
    store.put(&key("large"), &file(), &bytes(1, 3_000_000)).unwrap();
    drop(store);
    let copy = sandbox.path().join("copy");
    let all = clone(&home, &copy).unwrap();
    Store::open(&home).unwrap().put(&key("one more"), &file(), &bytes(9, 1000)).unwrap();
    let one = push(&home, &copy).unwrap();
    assert!(one.bytes < 20_000 && one.files <= 3, "{one:?}");
    assert!(one.kept_bytes + 20_000 > all.bytes, "{one:?} after {all:?}");
}

#[test]
fn a_copy_beside_a_writer_is_what_was_acknowledged() {
    let sandbox = TempDir::new().unwrap();
    for (home, copy) in stores(sandbox.path()) {
        let store = Store::open(&home).unwrap();
        write(&store, 1);
        clone(&home, &copy).unwrap();
        for round in 2..5 {
            write(&store, round);
            store.put(&key("small"), &file(), &bytes(round, 10)).unwrap();
            push(&home, &copy).unwrap();
            assert_eq!(of(&copy), content(&store));
            assert_sound(&copy);
        }
        // The writer itself may copy.
        write(&store, 5);
        store
            .push_to(&copy, &CopyOptions { is_verified: true, ..CopyOptions::default() }, &Progress::default())
            .unwrap();
        assert_eq!(of(&copy), content(&store));
    }
}

/// Also if there is nothing to copy.
#[test]
fn what_is_asked_to_be_verified_is() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let options = CopyOptions { is_verified: true, ..CopyOptions::default() };
    let push = || Store::open_read_only(&home).unwrap().push_to(&copy, &options, &Progress::default());
    assert!(push().unwrap().is_unchanged);
    let (path, _) = files(&copy).into_iter().find(|(path, _)| path.to_string_lossy().contains("segments/")).unwrap();
    let path = copy.join(path);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(push().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_copy_that_was_written_to_is_refused_and_stays_as_it_is() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    // What nothing was written to may be opened for writing.
    drop(Store::open(&copy).unwrap());
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    Store::open(&copy).unwrap().put(&key("mine"), &file(), b"alone").unwrap();
    let before = files(&copy);
    // It is ahead of the source, then beside it.
    for round in 2..4 {
        let error = push(&home, &copy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.to_string().contains("written to"), "{error}");
        assert!(files(&copy) == before && !sandbox.path().join("one-copy.incoming").exists());
        write(&Store::open(&home).unwrap(), round);
    }
    assert_eq!(Store::open_read_only(&copy).unwrap().get(&key("mine")).unwrap().unwrap(), b"alone");
}

#[test]
fn a_source_takes_over_what_was_written_to_its_copy() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    Store::open(&copy).unwrap().put(&key("mine"), &file(), b"alone").unwrap();
    push(&copy, &home).unwrap();
    assert_eq!(of(&home), of(&copy));
    assert_sound(&home);
    // And the other way again.
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    assert_eq!(of(&home), of(&copy));
}

#[test]
fn a_copy_of_what_was_lost_by_its_source_is_refused() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let backup = sandbox.path().join("backup");
    clone(&home, &backup).unwrap();
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    // The source is put back from the backup, and goes on.
    fs::remove_dir_all(&home).unwrap();
    fs::rename(&backup, &home).unwrap();
    for round in 2..5 {
        let store = Store::open(&home).unwrap();
        write(&store, round);
        store.compact(&ALL, &Progress::default()).unwrap();
        drop(store);
        let before = files(&copy);
        assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Exists);
        assert!(files(&copy) == before);
    }
}

#[test]
fn a_source_that_has_forgotten_the_writer_of_the_copy_is_no_proof() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let often = |home: &Path| {
        for round in 1..262 {
            let store = Store::open(home).unwrap();
            store.put(&key("often"), &file(), &bytes(round, 100)).unwrap();
        }
    };
    // The log has the last batch of the copy.
    often(&home);
    push(&home, &copy).unwrap();
    assert_eq!(of(&home), of(&copy));
    assert_sound(&copy);
    // It is freed; and the source might have been put back from a backup, without what the copy has.
    let (backup, _) = (sandbox.path().join("backup"), clone(&home, &sandbox.path().join("backup")).unwrap());
    Store::open(&home).unwrap().put(&key("precious"), &file(), b"only here").unwrap();
    push(&home, &copy).unwrap();
    often(&backup);
    Store::open(&backup).unwrap().compact(&ALL, &Progress::default()).unwrap();
    let before = files(&copy);
    let refused = push(&backup, &copy).unwrap_err();
    assert!(refused.kind() == ErrorKind::Exists && refused.to_string().contains("opened so often"), "{refused}");
    assert!(files(&copy) == before);
}

#[test]
fn a_store_that_was_opened_often_and_not_written_to_is_copied() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    (0..260).for_each(|_| drop(Store::open(&home).unwrap()));
    assert!(push(&home, &copy).unwrap().is_unchanged);
    clone(&home, &sandbox.path().join("another")).unwrap();
}

#[test]
fn a_store_where_a_copy_would_be_made_is_not_removed_for_what_it_has() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let place = copy.with_extension("incoming");
    assert_eq!(clone(&home, &place).unwrap_err().kind(), ErrorKind::Usage);
    let other = sandbox.path().join("other");
    clone(&home, &other).unwrap();
    Store::open(&other).unwrap().put(&key("precious"), &file(), b"only here").unwrap();
    fs::rename(&other, copy.with_file_name("one-copy.incoming")).unwrap();
    let there = files(&copy.with_file_name("one-copy.incoming"));
    for round in 1..3 {
        _ = push(&home, &copy);
        assert!(files(&copy.with_file_name("one-copy.incoming")) == there, "round {round}");
        write(&Store::open(&home).unwrap(), round);
        assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Exists);
    }
}

#[test]
fn readers_of_a_copy_keep_what_they_read_through_two_exchanges() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let reader = Store::open_read_only(&copy).unwrap();
    let then = reader.snapshot().unwrap();
    // Nothing goes: the copy is exchanged beside the reader.
    write(&Store::open(&home).unwrap(), 1);
    push(&home, &copy).unwrap();
    // All of it would go.
    let store = Store::open(&home).unwrap();
    write(&store, 2);
    store.compact(&ALL, &Progress::default()).unwrap();
    drop(store);
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Busy);
    let keys: Vec<_> = then.walk(&Key::root(), &Key::root()).unwrap().map(|found| found.unwrap().key).collect();
    let mut buffer = Buffer::default();
    assert!(keys.len() > 20);
    keys.iter().for_each(|key| _ = then.read(key, &mut buffer).unwrap().unwrap());
    drop((then, reader));
    push(&home, &copy).unwrap();
    assert_eq!(of(&copy), of(&home));
    assert_sound(&copy);
}

#[test]
fn only_copies_of_a_store_are_brought_up_to_date() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let other = sandbox.path().join("other");
    drop(Store::create(&other, &Plan::default()).unwrap());
    write(&Store::open(&home).unwrap(), 1);
    assert_eq!(push(&home, &other).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(push(&home, &home).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(push(&home, &sandbox.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(clone(&home, &copy).unwrap_err().kind(), ErrorKind::Exists);
    // What is not of the store would go with it.
    fs::write(copy.join("notes"), "mine").unwrap();
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Usage);
    fs::remove_file(copy.join("notes")).unwrap();
    fs::create_dir(sandbox.path().join("one-copy.incoming")).unwrap();
    fs::write(sandbox.path().join("one-copy.incoming/mine"), "mine").unwrap();
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Exists);
    fs::remove_dir_all(sandbox.path().join("one-copy.incoming")).unwrap();
    push(&home, &copy).unwrap();
}

#[test]
fn a_copy_that_another_process_writes_or_reads_is_refused() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let store = Store::open(&home).unwrap();
    write(&store, 1);
    store.compact(&ALL, &Progress::default()).unwrap();
    drop(store);
    let writer = Store::open(&copy).unwrap();
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Busy);
    drop(writer);
    let reader = Store::open_read_only(&copy).unwrap();
    let pinned = reader.snapshot().unwrap();
    assert_eq!(push(&home, &copy).unwrap_err().kind(), ErrorKind::Busy);
    drop(pinned);
    push(&home, &copy).unwrap();
    // A reader without a pin goes on in the new state.
    assert!(reader.refresh().unwrap());
    assert_eq!(content(&reader), of(&home));
}

/// Progress that dies, like a killed process, with the `at`-th report; counts them if that never comes.
fn dying(at: u64) -> (Progress, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let progress = Progress::observed(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 == at {
            std::panic::resume_unwind(Box::new("killed"));
        }
    });
    (progress, count)
}

/// Does `work` with a process killed at each of its steps; after each, `look` sees what is left, then the same is done
/// again without a kill.
fn killed_everywhere(
    prepare: impl Fn() -> (TempDir, PathBuf, PathBuf),
    work: impl Fn(&Path, &Path, &Progress) -> Result<Copied>,
    look: impl Fn(&Path, &Path),
) {
    let (_sandbox, home, copy) = prepare();
    let (progress, count) = dying(u64::MAX);
    work(&home, &copy, &progress).unwrap();
    let steps = count.load(Ordering::Relaxed);
    assert!(steps > 10, "{steps} steps");
    // All of the last ones, where the copy takes its place, and some of those where files are made.
    for step in (1..=steps).filter(|step| step % 5 == 1 || steps - step < 12) {
        let (_sandbox, home, copy) = prepare();
        let (progress, _) = dying(step);
        assert!(catch_unwind(AssertUnwindSafe(|| work(&home, &copy, &progress))).is_err(), "step {step}");
        look(&home, &copy);
        work(&home, &copy, &Progress::default()).or_else(|error| push(&home, &copy).map_err(|_| error)).unwrap();
        assert_eq!(of(&copy), of(&home), "after step {step}");
        assert_sound(&copy);
        assert_eq!(fs::read_dir(home.parent().unwrap()).unwrap().count(), 2, "nothing is left after step {step}");
    }
}

fn one_store() -> (TempDir, PathBuf, PathBuf) {
    // In memory, if it can be: many are made.
    let sandbox = tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let home = sandbox.path().join("home");
    let store = Store::create(&home, &Plan { segment_bytes: 1 << 20, ..Plan::default() }).unwrap();
    write(&store, 0);
    drop(store);
    let copy = sandbox.path().join("copy");
    (sandbox, home, copy)
}

#[test]
fn a_clone_that_is_killed_leaves_nothing_or_all_and_goes_on() {
    let work = |home: &Path, copy: &Path, progress: &Progress| {
        Store::open_read_only(home)?.clone_to(copy, &CopyOptions::default(), progress)
    };
    killed_everywhere(one_store, work, |home, copy| {
        if copy.exists() {
            assert_eq!(of(copy), of(home));
        }
    });
}

#[test]
fn a_push_that_is_killed_leaves_the_old_or_the_new_state_and_goes_on() {
    let prepare = || {
        let (sandbox, home, copy) = one_store();
        clone(&home, &copy).unwrap();
        let store = Store::open(&home).unwrap();
        store.create_snapshot("then").unwrap();
        write(&store, 1);
        write(&store, 2);
        store.compact(&ALL, &Progress::default()).unwrap();
        (sandbox, home, copy)
    };
    let (_sandbox, before, _) = one_store();
    let old = of(&before);
    let work = |home: &Path, copy: &Path, progress: &Progress| {
        Store::open_read_only(home)?.push_to(copy, &CopyOptions::default(), progress)
    };
    killed_everywhere(prepare, work, |home, copy| {
        let found = of(copy);
        assert!(found == old || found == of(home), "the old or the new state");
        assert_sound(copy);
    });
}

#[test]
fn a_push_that_is_interrupted_goes_on_where_it_was() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let store = Store::open(&home).unwrap();
    let options = CopyOptions::default();
    let was = store.push_to(&copy, &options, &Progress::default()).unwrap();
    for round in 1..5 {
        write(&store, round);
    }
    let before = files(&copy);
    let progress = Progress::observed(|progress| {
        let now = progress.snapshot();
        if now.bytes > now.skipped_bytes.into() {
            progress.stop();
        }
    });
    let done = store.push_to(&copy, &options, &progress).unwrap();
    assert!(done.is_interrupted && files(&copy) == before, "{done:?}");
    assert_eq!((done.batch, done.segments), (was.batch, was.segments), "of the state that it has");
    assert!(sandbox.path().join("one-copy.incoming").exists());
    // The source goes on meanwhile.
    write(&store, 5);
    store.push_to(&copy, &options, &Progress::default()).unwrap();
    assert_eq!(of(&copy), content(&store));
    assert_sound(&copy);
    assert!(!sandbox.path().join("one-copy.incoming").exists());
}

#[test]
fn a_file_that_grows_after_an_interruption_does_not_grow_in_the_copy() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let store = Store::open(&home).unwrap();
    let before = files(&copy);
    for large in [0, 1_000_000] {
        // Its extent file is linked first, then grows.
        store.put(&key(&format!("file{large}")), &file(), &bytes(1, 1000 + large)).unwrap();
        let progress = Progress::observed(|progress| {
            let now = progress.snapshot();
            if now.bytes > now.skipped_bytes.into() {
                progress.stop();
            }
        });
        assert!(store.push_to(&copy, &CopyOptions::default(), &progress).unwrap().is_interrupted);
        assert!(files(&copy) == before);
    }
    store.push_to(&copy, &CopyOptions::default(), &Progress::default()).unwrap();
    assert_eq!(of(&copy), content(&store));
    assert_sound(&copy);
}

#[test]
fn damage_of_the_source_does_not_reach_the_copy() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    write(&Store::open(&home).unwrap(), 1);
    let before = files(&copy);
    for directory in ["segments", "extents"] {
        let path = fs::read_dir(home.join(directory)).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let sound = fs::read(&path).unwrap();
        let mut damaged = sound.clone();
        // In what the copy lacks.
        let at = damaged.len() - 10_000;
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        let error = push(&home, &copy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{directory}: {error}");
        assert!(files(&copy) == before);
        fs::write(&path, sound).unwrap();
    }
    push(&home, &copy).unwrap();
    assert_sound(&copy);
}

#[test]
fn units_that_were_written_after_those_behind_them_come_with_their_record() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let store = Store::open(&home).unwrap();
    // Space is given out to one batch, and another one behind it is committed first.
    let handle = store.open_object(&key("open"), &HandleOptions::write().create(file())).unwrap();
    handle.write_at(&bytes(3, 500_000), 0).unwrap();
    let mut early = store.batch(Durability::Batch);
    early.put(&key("early"), &file(), &bytes(1, 400_000)).unwrap();
    let mut late = store.batch(Durability::Batch);
    late.put(&key("late"), &file(), &bytes(2, 400_000)).unwrap();
    late.commit().unwrap();
    push(&home, &copy).unwrap();
    assert_eq!(of(&copy), content(&store));
    early.commit().unwrap();
    handle.commit(Durability::Batch).unwrap();
    push(&home, &copy).unwrap();
    assert_eq!(of(&copy), content(&store));
    assert_sound(&copy);
}

#[test]
fn a_source_that_lacks_something_is_refused() {
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = stores(sandbox.path()).swap_remove(1);
    fs::rename(sandbox.path().join("mirror-fast1"), sandbox.path().join("away")).unwrap();
    assert_eq!(clone(&home, &copy).unwrap_err().kind(), ErrorKind::Lost);
    assert!(!copy.exists());
}

/// The beginning of what comes from a stream.
struct Most {
    from: UnixStream,
    left: u64,
}

impl Read for Most {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = (&self.from).take(self.left).read(buffer)?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl AsFd for Most {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}

/// Talks to a granulo in another thread that serves `home`; the connection breaks after so many bytes have come from
/// here.
fn with_peer<T>(home: &Path, most_bytes: u64, work: impl FnOnce(Peer<'_>) -> T) -> T {
    let (here, there) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut from, mut to) = (Most { from: there.try_clone().unwrap(), left: most_bytes }, there);
            let peer = Peer { from: &mut from, to: &mut to, place: "here".into() };
            let _ = Store::serve_peer(home, peer, &Progress::default());
        });
        let (mut from, mut to) = (here.try_clone().unwrap(), here);
        work(Peer { from: &mut from, to: &mut to, place: "there".into() })
    })
}

#[test]
fn a_copy_on_another_machine_is_made_and_brought_up_to_date_both_ways() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let sandbox = TempDir::new().unwrap();
    for (home, copy) in stores(sandbox.path()) {
        let open = || Store::open_read_only(&home).unwrap();
        let away = copy.with_extension("away");
        let made = with_peer(&copy, u64::MAX, |peer| open().clone_to_peer(peer, &options, &progress)).unwrap();
        assert!(made.is_new && made.bytes > 0, "{made:?}");
        with_peer(&home, u64::MAX, |peer| Store::clone_from_peer(peer, &away, &options, &progress)).unwrap();
        let store = Store::open(&home).unwrap();
        store.create_snapshot("then").unwrap();
        write(&store, 1);
        drop(store);
        let pushed = with_peer(&copy, u64::MAX, |peer| open().push_to_peer(peer, &options, &progress)).unwrap();
        assert!(!pushed.is_new && pushed.bytes > 0 && pushed.snapshots == 1, "{pushed:?}");
        with_peer(&home, u64::MAX, |peer| Store::pull_from_peer(peer, &away, &options, &progress)).unwrap();
        for copy in [&copy, &away] {
            assert_eq!(of(copy), of(&home));
            assert_sound(copy);
        }
        let again = with_peer(&copy, u64::MAX, |peer| open().push_to_peer(peer, &options, &progress)).unwrap();
        assert!(again.is_unchanged);
        // The other side says what is wrong.
        Store::open(&copy).unwrap().put(&key("mine"), &file(), b"alone").unwrap();
        write(&Store::open(&home).unwrap(), 2);
        let refused = with_peer(&copy, u64::MAX, |peer| open().push_to_peer(peer, &options, &progress)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists);
        assert!(refused.to_string().contains("written to"), "{refused}");
        // Also when the pipe breaks because of it.
        let none = sandbox.path().join("none");
        let refused = with_peer(&none, u64::MAX, |peer| Store::pull_from_peer(peer, &away, &options, &progress));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_connection_that_breaks_leaves_the_old_state_and_the_rest_for_the_next() {
    let (options, progress) = (CopyOptions::default(), Progress::default());
    let sandbox = TempDir::new().unwrap();
    let (home, copy) = cloned(&sandbox);
    let store = Store::open(&home).unwrap();
    write(&store, 1);
    let before = files(&copy);
    for most_bytes in [0, 5, 100, 5000, 50_000, 150_000] {
        let broken = with_peer(&copy, most_bytes, |peer| store.push_to_peer(peer, &options, &progress));
        assert!(broken.is_err(), "{most_bytes}: {broken:?}");
        assert!(files(&copy) == before);
    }
    with_peer(&copy, u64::MAX, |peer| store.push_to_peer(peer, &options, &progress)).unwrap();
    assert_eq!(of(&copy), content(&store));
    assert_sound(&copy);
}
