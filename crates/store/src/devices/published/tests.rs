//! Writers and readers on a bucket in memory: what each is told, and what the bucket then contains.
//! `simulation::bucket` tests faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::devices::objects::{Expected, Memory, ObjectError, Objects};
use crate::error::ErrorKind;
use crate::format::geometry::Class;

fn machine() -> Arc<Machine> {
    Arc::new(Machine { attempts: 3, first_wait: std::time::Duration::ZERO, ..Machine::default() })
}

fn create() -> (Arc<Memory>, Writer) {
    let bucket = Arc::new(Memory::with_pages_of(2));
    let writer = Writer::create(bucket.clone(), machine()).unwrap();
    (bucket, writer)
}

fn contents(bucket: &Arc<Memory>) -> Vec<Vec<u8>> {
    let reader = Reader::open(bucket.clone(), machine()).unwrap();
    reader.manifest().objects().map(|object| reader.read(object).unwrap()).collect()
}

fn names(bucket: &Memory) -> Vec<String> {
    let (mut names, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let page = bucket.list("", after.as_deref()).unwrap();
        after = page.objects.last().map(|listed| listed.name.clone());
        names.extend(page.objects.into_iter().map(|listed| listed.name).filter(|name| name != MANIFEST));
        if page.is_last {
            return names;
        }
    }
}

#[test]
fn a_store_is_made_once_and_opened_if_it_is_there() {
    let bucket = Arc::new(Memory::default());
    let kind = |error: WriteError| error.error().kind();
    assert_eq!(kind(Writer::open(bucket.clone(), machine()).unwrap_err()), ErrorKind::NotFound);
    assert_eq!(Reader::open(bucket.clone(), machine()).unwrap_err().kind(), ErrorKind::NotFound);
    let writer = Writer::create(bucket.clone(), machine()).unwrap();
    assert_eq!((writer.manifest().version(), writer.manifest().parent()), (1, None));
    assert_eq!(kind(Writer::create(bucket.clone(), machine()).unwrap_err()), ErrorKind::Exists);
    let second = Writer::open(bucket, machine()).unwrap();
    assert_eq!(second.manifest().parent(), Some(writer.manifest().epoch()));
    assert_eq!(second.manifest().store(), writer.manifest().store());
    assert!(second.manifest().began_nanoseconds() >= writer.manifest().began_nanoseconds());
}

#[test]
fn batches_come_in_order_and_replace_others_at_once() {
    let (bucket, mut writer) = create();
    assert_eq!(writer.publish(&[b"one", b"two"], &[]).unwrap(), 2);
    assert_eq!(writer.publish(&[b""], &[]).unwrap(), 3);
    let versions: Vec<_> = writer.manifest().objects().map(|object| (object.number(), object.version())).collect();
    assert_eq!(versions, [(1, 2), (2, 2), (3, 3)]);
    writer.publish(&[b"three"], &[1, 3]).unwrap();
    assert_eq!(contents(&bucket), [&b"two"[..], b"three"]);
    let refused = writer.publish(&[b"four"], &[1]).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Usage);
    assert_eq!(contents(&bucket).len(), 2);
}

#[test]
fn a_fenced_writer_writes_nothing_and_its_garbage_goes() {
    let (bucket, mut first) = create();
    first.publish(&[b"kept"], &[]).unwrap();
    let mut second = Writer::open(bucket.clone(), machine()).unwrap();
    for _ in 0..2 {
        assert!(matches!(first.publish(&[b"late"], &[]), Err(WriteError::Fenced(_))));
        assert!(matches!(first.collect(), Err(WriteError::Fenced(_))));
        assert!(matches!(first.pin("a"), Err(WriteError::Fenced(_))));
    }
    assert_eq!(contents(&bucket), [b"kept"]);
    assert_eq!(names(&bucket).len(), 2);
    bucket.put("slow/of somebody else", b"").unwrap();
    let collected = Collected { deleted_objects: 1, left_objects: 0, foreign_objects: 1 };
    assert_eq!(second.collect().unwrap(), collected);
    assert_eq!(names(&bucket).len(), 2);
}

#[test]
fn what_is_pinned_stays_until_the_last_pin_goes() {
    let (bucket, mut writer) = create();
    writer.publish(&[b"one", b"two"], &[]).unwrap();
    let kept = writer.pin("a").unwrap();
    writer.publish(&[b"three"], &[1]).unwrap();
    writer.pin("b").unwrap();
    writer.publish(&[], &[2]).unwrap();
    assert_eq!(writer.collect().unwrap().deleted_objects, 0);
    // Another writer preserves them too.
    let mut writer = Writer::open(bucket.clone(), machine()).unwrap();
    assert_eq!(writer.collect().unwrap().deleted_objects, 0);
    let reader = Reader::open(bucket.clone(), machine()).unwrap();
    let pinned: Vec<_> = reader.manifest().at(kept).map(|object| reader.read(object).unwrap()).collect();
    assert_eq!(pinned, [b"one", b"two"]);
    assert!(writer.unpin("a").unwrap() && !writer.unpin("a").unwrap());
    assert_eq!(writer.collect().unwrap().deleted_objects, 1);
    // The pin moves, and nothing needs the second version any more.
    writer.pin("b").unwrap();
    assert_eq!(writer.collect().unwrap().deleted_objects, 1);
    assert_eq!(contents(&bucket), [b"three"]);
    assert_eq!(names(&bucket).len(), 1);
    for name in ["", &"x".repeat(65_536)] {
        assert_eq!(writer.pin(name).unwrap_err().error().kind(), ErrorKind::Usage);
    }
}

#[test]
fn what_is_staged_waits_for_its_batch_in_any_order() {
    let (bucket, mut writer) = create();
    let first = writer.stage(Class::Slow, b"first").unwrap();
    let second = writer.stage(Class::Fast, b"second").unwrap();
    let third = writer.stage(Class::Fast, b"third").unwrap();
    assert!(first.number() < second.number() && contents(&bucket).is_empty());
    // Its own garbage collection leaves them.
    assert_eq!(writer.collect().unwrap(), Collected::default());
    writer.publish_staged(std::slice::from_ref(&second), &[], b"a body".to_vec()).unwrap();
    writer.publish_staged(std::slice::from_ref(&first), &[second.number()], b"another".to_vec()).unwrap();
    for misused in [vec![first.clone()], vec![third.clone(), third.clone()]] {
        let refused = writer.publish_staged(&misused, &[], Vec::new()).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Usage);
    }
    writer.pin("keeps the body").unwrap();
    let reader = Reader::open(bucket.clone(), machine()).unwrap();
    assert_eq!(reader.manifest().body(), b"another");
    let objects: Vec<_> = reader.manifest().objects().map(|object| (object.class(), object.version())).collect();
    assert_eq!((objects, contents(&bucket)), (vec![(Class::Slow, 3)], vec![b"first".to_vec()]));
    writer.abandon(&first);
    writer.abandon(&third);
    assert_eq!(writer.collect().unwrap().deleted_objects, 1, "the second: a copy of the writer may publish the third");
    assert_eq!(contents(&bucket), [b"first"]);
    // What it leaves behind when it dies is garbage of its epoch.
    writer.stage(Class::Slow, b"left").unwrap();
    let mut next = Writer::open(bucket.clone(), machine()).unwrap();
    assert_eq!((next.collect().unwrap().deleted_objects, next.manifest().body()), (2, &b"another"[..]));
    assert_eq!(names(&bucket).len(), 1);
}

#[test]
fn whoever_decides_by_a_manifest_replaces_that_one() {
    let bucket = Arc::new(Memory::default());
    let writer = Writer::create_with(bucket.clone(), machine(), b"free".to_vec()).unwrap();
    let early = Reader::open(bucket.clone(), machine()).unwrap();
    let taken = Writer::open_if(&early, b"taken".to_vec()).unwrap().unwrap();
    assert_eq!(taken.manifest().body(), b"taken");
    assert!(Writer::open_if(&early, b"taken by another".to_vec()).unwrap().is_none());
    assert_eq!(Reader::open(bucket.clone(), machine()).unwrap().manifest(), taken.manifest());
    let mut back = taken.into_reader();
    assert!(!back.refresh().unwrap() && back.manifest().parent() == Some(writer.manifest().epoch()));
}

#[test]
fn damage_is_told_and_never_returned() {
    let (bucket, mut writer) = create();
    writer.publish(&[b"content"], &[]).unwrap();
    let mut reader = Reader::open(bucket.clone(), machine()).unwrap();
    let object = reader.manifest().objects().next().unwrap().clone();
    let path = object.path();
    for bytes in [&b"cOntent"[..], b"conten", b"content.", b""] {
        bucket.delete(&path).unwrap();
        bucket.put(&path, bytes).unwrap();
        assert_eq!(reader.read(&object).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    bucket.delete(&path).unwrap();
    assert_eq!(reader.read(&object).unwrap_err().kind(), ErrorKind::Lost);
    writer.publish(&[], &[1]).unwrap();
    assert_eq!(reader.read(&object).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(reader.refresh().unwrap() && !reader.refresh().unwrap());

    // The manifest itself: an older one, then none.
    let tag = bucket.head(MANIFEST).unwrap().tag;
    let newest = bucket.read(MANIFEST, 0..u64::MAX).unwrap().bytes;
    let mut older = Manifest::decode(&newest).unwrap();
    older.version -= 1;
    let tag = bucket.replace(MANIFEST, &older.encode(), &Expected::Tagged(tag)).unwrap();
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Lost);
    let tag = bucket.replace(MANIFEST, &newest[1..], &Expected::Tagged(tag)).unwrap();
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Corrupt);
    let refused = Writer::open(bucket.clone(), machine()).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Corrupt);
    let mut newer = newest;
    newer[16] += 1;
    bucket.replace(MANIFEST, &newer, &Expected::Tagged(tag)).unwrap();
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::NewerVersion);
}

#[test]
fn objects_larger_than_a_piece_are_read_whole() {
    let (bucket, mut writer) = create();
    let large: Vec<u8> = (0..(17 << 20) + 5).map(|at: u32| (at % 251) as u8).collect();
    writer.publish(&[&large], &[]).unwrap();
    assert_eq!(contents(&bucket), [large]);
}

#[test]
fn epochs_are_forgotten_and_nothing_else() {
    let (bucket, mut writer) = create();
    writer.publish(&[b"one"], &[]).unwrap();
    for _ in 0..300 {
        writer = Writer::open(bucket.clone(), machine()).unwrap();
    }
    assert_eq!(writer.manifest().epochs.len(), manifest::MOST_EPOCHS);
    assert_eq!(writer.manifest().version(), 302);
    assert_eq!(contents(&bucket), [b"one"]);
}

/// Any order in which threads arrive, in addition to those that the simulation generates.
#[test]
fn of_writers_that_race_each_batch_that_was_acknowledged_is_there_in_order() {
    let (bucket, _) = create();
    let acknowledged = std::sync::Mutex::new(Vec::new());
    let count = AtomicU64::new(0);
    let write = || {
        while count.load(Ordering::Relaxed) < 200 {
            let Ok(mut writer) = Writer::open(bucket.clone(), machine()) else { continue };
            for _ in 0..10 {
                let content = count.fetch_add(1, Ordering::Relaxed).to_le_bytes();
                match writer.publish(&[&content], &[]) {
                    Ok(version) => acknowledged.lock().unwrap().push((version, content.to_vec())),
                    Err(error) => {
                        assert!(matches!(error, WriteError::Fenced(_)), "{error}");
                        break;
                    }
                }
            }
            _ = writer.collect();
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| _ = scope.spawn(write));
    });
    let mut acknowledged = acknowledged.into_inner().unwrap();
    acknowledged.sort();
    let expected: Vec<Vec<u8>> = acknowledged.into_iter().map(|(_, content)| content).collect();
    assert_eq!(contents(&bucket), expected);
    let mut last = Writer::open(bucket.clone(), machine()).unwrap();
    last.collect().unwrap();
    assert_eq!(names(&bucket).len(), expected.len());
    assert!(matches!(bucket.head("fast/none"), Err(ObjectError::NotFound)));
}

#[test]
fn a_manifest_that_could_not_be_read_is_not_written() {
    let (bucket, mut writer) = create();
    writer.publish(&[b"one"], &[]).unwrap();
    // Each needs 53 bytes in the manifest; some are left for another epoch, and for pins.
    let many = vec![&b""[..]; (960 << 10) / 53 + 1];
    let WriteError::Failed(error) = writer.publish(&many, &[]).unwrap_err() else { panic!("nothing was sent") };
    assert!(error.kind() == ErrorKind::NoSpace && error.to_string().contains("longer than 960 KiB"), "{error}");
    assert_eq!((contents(&bucket), names(&bucket).len()), (vec![b"one".to_vec()], 1));
    writer.publish(&many[..(950 << 10) / 53], &[]).unwrap();
    let mut writer = Writer::open(bucket.clone(), machine()).unwrap();
    writer.publish(&[], &(2..writer.manifest().objects().count() as u64 + 1).collect::<Vec<_>>()).unwrap();
    writer.publish(&[b"two"], &[]).unwrap();
    assert_eq!(contents(&bucket), [b"one", b"two"]);
}

#[test]
fn a_version_that_is_refused_is_looked_at_again() {
    let (bucket, mut writer) = create();
    let mut reader = Reader::open(bucket, machine()).unwrap();
    writer.publish(&[b"one"], &[]).unwrap();
    let refuse = |_: &Manifest| Err::<(), _>(crate::error::Error::new(ErrorKind::Corrupt, "take it", "it is odd"));
    for _ in 0..2 {
        assert_eq!(reader.refresh_to(refuse).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(reader.manifest().objects().count(), 0);
    }
    assert_eq!(reader.refresh_to(|manifest| Ok(manifest.objects().count())).unwrap(), Some(1));
    assert_eq!(reader.refresh_to(refuse).unwrap(), None);
}

#[test]
fn a_bucket_that_was_rolled_back_and_went_on_is_not_what_was_read() {
    let (bucket, mut writer) = create();
    writer.publish(&[b"one"], &[]).unwrap();
    let saved = bucket.read(MANIFEST, 0..u64::MAX).unwrap().bytes;
    writer.publish(&[b"two"], &[]).unwrap();
    let mut reader = Reader::open(bucket.clone(), machine()).unwrap();
    let tag = bucket.head(MANIFEST).unwrap().tag;
    bucket.replace(MANIFEST, &saved, &Expected::Tagged(tag)).unwrap();
    // Opening it makes another version of the number that was read, and publishing one that follows.
    let mut other = Writer::open(bucket.clone(), machine()).unwrap();
    assert_eq!(other.manifest().version(), reader.manifest().version());
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Lost);
    other.publish(&[b"three"], &[]).unwrap();
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Lost);
}
