//! Copies in buckets.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use super::*;
use crate::devices::bucket::BucketOptions;
use crate::devices::platforms::register;
use crate::locks::lock;
use crate::objects::{Memory, Objects};

/// A bucket in memory, and the address of a store in it.
pub(super) fn a_bucket() -> PathBuf {
    static BUCKETS: AtomicU64 = AtomicU64::new(0);
    let scheme = format!("replica{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
    let bucket = Arc::new(Memory::default());
    register(&scheme, Arc::new(move |_, _| Ok(bucket.clone())));
    PathBuf::from(format!("{scheme}://bucket/store"))
}

#[test]
fn a_copy_in_a_bucket_is_made_and_brought_up_to_date_both_ways() {
    let sandbox = TempDir::new().unwrap();
    for (home, copy) in stores(sandbox.path()) {
        let bucket = a_bucket();
        assert!(clone(&home, &bucket).unwrap().is_new);
        assert_eq!(clone(&home, &bucket).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(of(&bucket), of(&home));
        assert_sound(&bucket);
        clone(&bucket, &copy).unwrap();
        for round in 1..5 {
            let store = Store::open(&home).unwrap();
            store.create_snapshot(&format!("s{round}")).unwrap();
            write(&store, round);
            if round == 3 {
                store.compact(&ALL, &Progress::default()).unwrap();
            }
            drop(store);
            let done = push(&home, &bucket).unwrap();
            assert!(done.bytes > 0 && done.kept_bytes > 0 || round == 3, "{done:?}");
            assert!(push(&home, &bucket).unwrap().is_unchanged);
            push(&bucket, &copy).unwrap();
            for copy in [&bucket, &copy] {
                assert_eq!(of(copy), of(&home));
                assert_sound(copy);
            }
        }
        // One of several devices can only be read.
        if home.file_name().is_some_and(|name| name != "one") {
            assert_eq!(Store::open(&bucket).unwrap_err().kind(), ErrorKind::Busy);
            continue;
        }
        Store::open(&bucket).unwrap().put(&key("mine"), &file(), b"alone").unwrap();
        write(&Store::open(&home).unwrap(), 5);
        assert_eq!(push(&home, &bucket).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(Store::open_read_only(&bucket).unwrap().get(&key("mine")).unwrap().unwrap(), b"alone");
    }
}

#[test]
fn a_copy_in_a_bucket_that_is_killed_is_the_old_or_the_new_state_and_goes_on() {
    let (_sandbox, home, before) = one_store();
    clone(&home, &before).unwrap();
    let store = Store::open(&home).unwrap();
    write(&store, 1);
    write(&store, 2);
    store.compact(&ALL, &Progress::default()).unwrap();
    drop(store);
    let (old, new) = (of(&before), of(&home));
    for step in 1.. {
        let bucket = a_bucket();
        clone(&before, &bucket).unwrap();
        let (progress, _) = dying(step);
        let push_to = || Store::open_read_only(&home).unwrap().push_to(&bucket, &CopyOptions::default(), &progress);
        let is_done = catch_unwind(AssertUnwindSafe(push_to)).is_ok();
        let found = of(&bucket);
        assert!(found == new || found == old && !is_done, "step {step}");
        if is_done {
            assert!(step > 10, "{step} steps");
            break;
        }
        push(&home, &bucket).unwrap();
        assert_eq!(of(&bucket), new);
        assert_sound(&bucket);
    }
}

#[test]
fn units_that_were_written_later_come_into_a_bucket_with_their_record() {
    let (_sandbox, home, _) = one_store();
    let (bucket, store) = (a_bucket(), Store::open(&home).unwrap());
    let mut early = store.batch(Durability::Batch);
    early.put(&key("early"), &file(), &bytes(1, 400_000)).unwrap();
    let mut late = store.batch(Durability::Batch);
    late.put(&key("late"), &file(), &bytes(2, 400_000)).unwrap();
    late.commit().unwrap();
    store.clone_to(&bucket, &CopyOptions::default(), &Progress::default()).unwrap();
    assert_eq!(of(&bucket), content(&store));
    early.commit().unwrap();
    store.push_to(&bucket, &CopyOptions::default(), &Progress::default()).unwrap();
    assert_eq!(of(&bucket), content(&store));
    assert_sound(&bucket);
}

/// Makes a copy in a bucket; at the `at`-th report, a writer that was there before commits what it had written, and
/// ends.
/// `None` if there are fewer reports.
fn copied_beside(home: &Path, bucket: &Path, at: u64, is_killed: bool) -> Option<bool> {
    let ((ready, is_ready), (go, may_go), (done, is_done)) = (channel(), channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let store = Store::open(home).unwrap();
            let mut early = store.batch(Durability::Batch);
            early.put(&key("early"), &file(), &bytes(1, 400_000)).unwrap();
            let mut late = store.batch(Durability::Batch);
            late.put(&key("late"), &file(), &bytes(2, 400_000)).unwrap();
            late.commit().unwrap();
            ready.send(()).unwrap();
            may_go.recv().unwrap();
            early.commit().unwrap();
            drop(store);
            // Nobody waits for the end of one that the copy did not.
            _ = done.send(());
        });
        is_ready.recv().unwrap();
        let (count, is_done) = (AtomicU64::new(0), Mutex::new(is_done));
        let reached = Arc::new(AtomicBool::new(false));
        let (has_reached, let_go) = (Arc::clone(&reached), go.clone());
        let progress = Progress::observed(move |_| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == at {
                has_reached.store(true, Ordering::Relaxed);
                let_go.send(()).unwrap();
                lock(&is_done).recv().unwrap();
                if is_killed {
                    std::panic::resume_unwind(Box::new("killed"));
                }
            }
        });
        let work = || Store::open_read_only(home).unwrap().clone_to(bucket, &CopyOptions::default(), &progress);
        let is_made = catch_unwind(AssertUnwindSafe(work)).is_ok_and(|made| made.is_ok());
        let is_reached = reached.load(Ordering::Relaxed);
        if !is_reached {
            go.send(()).unwrap();
        }
        is_reached.then_some(is_made)
    })
}

#[test]
fn units_that_are_written_while_a_bucket_gets_a_copy_come_with_the_next_one() {
    for is_killed in [false, true] {
        for step in 1.. {
            let (_sandbox, home, _) = one_store();
            let bucket = a_bucket();
            let Some(is_made) = copied_beside(&home, &bucket, step, is_killed) else {
                assert!(step > 10, "{step} steps");
                break;
            };
            assert!(is_made != is_killed, "step {step}");
            match is_made {
                true => push(&home, &bucket).unwrap(),
                false => clone(&home, &bucket).or_else(|_| push(&home, &bucket)).unwrap(),
            };
            assert_eq!(of(&bucket), of(&home), "step {step}");
            assert_sound(&bucket);
        }
    }
}

#[test]
fn a_copy_in_a_bucket_has_objects_of_the_size_that_is_asked_for() {
    const OBJECT_BYTES: u64 = 64 << 10;
    let (_sandbox, home, _) = one_store();
    let memory = Arc::new(Memory::default());
    let shared = Arc::clone(&memory);
    register("sized", Arc::new(move |_, _| Ok(shared.clone())));
    let bucket = BucketOptions { object_bytes: OBJECT_BYTES, ..BucketOptions::default() };
    let options = CopyOptions { bucket, ..CopyOptions::default() };
    let home_of_copy = Path::new("sized://bucket/store");
    Store::open_read_only(&home).unwrap().clone_to(home_of_copy, &options, &Progress::default()).unwrap();
    let objects = memory.list("", None).unwrap().objects;
    let sizes: Vec<u64> =
        objects.iter().filter(|object| object.name.contains('/')).map(|object| object.size_bytes).collect();
    assert!(sizes.len() > 3 && sizes.iter().all(|&size| size <= OBJECT_BYTES), "{sizes:?}");
    assert_eq!(of(home_of_copy), of(&home));
}
