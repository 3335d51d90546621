//! Uploads: long runs of bytes are put while more is written.
//!
//! - An object has its name, and files refer to it, from the moment when it is complete; until it is in the bucket, its
//!   bytes are read from here. No version names one before: a publication waits for all of them.
//! - **Memory is bounded**: so many are on their way, and whoever has another one waits until one of them has arrived.
//! - One that failed stays, and is put again by the next that needs room here, or by the publication. If that fails,
//!   too, so does the write or the publication.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::pieces::{Piece, Source};
use crate::devices::published::{Bucket, ObjectName, PublishedObject, Staged};
use crate::devices::threads;
use crate::error::Result;
use crate::locks::{lock, unpoisoned};

/// An object that is not yet known to be in the bucket.
#[derive(Debug, Clone)]
struct Upload {
    staged: Staged,
    bytes: Arc<Vec<u8>>,
    is_on_its_way: bool,
    has_failed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    uploads: Mutex<BTreeMap<ObjectName, Upload>>,
    has_ended: Condvar,
}

/// The uploads of a volume.
#[derive(Debug)]
pub(super) struct Uploads {
    shared: Arc<Shared>,
    bucket: Bucket,
    /// How many may be on their way; 0: each is put by whoever begins it.
    most: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Upload>> {
        lock(&self.uploads)
    }

    /// Puts an object, and notes what became of it.
    fn put(&self, bucket: &Bucket, object: ObjectName, upload: &Upload) -> Result<()> {
        let put = bucket.upload(&upload.staged, &upload.bytes);
        let mut uploads = self.lock();
        match (&put, uploads.get_mut(&object)) {
            (Ok(()), _) => drop(uploads.remove(&object)),
            (Err(_), Some(upload)) => (upload.is_on_its_way, upload.has_failed) = (false, true),
            (Err(_), None) => {}
        }
        drop(uploads);
        self.has_ended.notify_all();
        put
    }
}

impl Uploads {
    pub(super) fn new(bucket: Bucket, most: usize) -> Uploads {
        Uploads { shared: Arc::default(), bucket, most }
    }

    /// Keeps the bytes of an object, which may be read from here on.
    pub(super) fn keep(&self, object: &PublishedObject, staged: &Staged, bytes: Vec<u8>) {
        let (staged, bytes) = (staged.clone(), Arc::new(bytes));
        let upload = Upload { staged, bytes, is_on_its_way: false, has_failed: false };
        self.shared.lock().insert(object.name(), upload);
    }

    /// Begins to put what is kept, as soon as there is room; puts what failed before. What fails meanwhile is left to
    /// the next call.
    ///
    /// # Errors
    /// One cannot be put.
    pub(super) fn begin(&self) -> Result<()> {
        let failed: BTreeSet<ObjectName> =
            self.shared.lock().iter().filter(|(_, upload)| upload.has_failed).map(|(object, _)| *object).collect();
        while let Some((object, upload)) = self.next(&failed) {
            let (shared, bucket, sent) = (Arc::clone(&self.shared), self.bucket.clone(), upload.clone());
            let work = move || drop(shared.put(&bucket, object, &sent));
            // What has failed is put here, where somebody hears of it.
            if self.most == 0 || upload.has_failed || threads::spawn(work).is_err() {
                self.shared.put(&self.bucket, object, &upload)?;
            }
        }
        Ok(())
    }

    /// The next one that is kept and not on its way, and has not failed or is one of `failed`, once there is room: it
    /// is on its way from here on.
    fn next(&self, failed: &BTreeSet<ObjectName>) -> Option<(ObjectName, Upload)> {
        let mut uploads = self.shared.lock();
        loop {
            let on_their_way = uploads.values().filter(|upload| upload.is_on_its_way).count();
            let is_due = |object: &ObjectName, upload: &Upload| {
                !upload.is_on_its_way && (!upload.has_failed || failed.contains(object))
            };
            let (object, upload) = uploads.iter_mut().find(|(object, upload)| is_due(object, upload))?;
            if on_their_way < self.most.max(1) {
                upload.is_on_its_way = true;
                return Some((*object, upload.clone()));
            }
            uploads = unpoisoned(self.shared.has_ended.wait(uploads));
        }
    }

    /// Waits until all that is kept is in the bucket.
    ///
    /// # Errors
    /// One cannot be put.
    pub(super) fn finish(&self) -> Result<()> {
        loop {
            self.begin()?;
            let uploads = self.shared.lock();
            if uploads.is_empty() {
                return Ok(());
            }
            if uploads.values().all(|upload| upload.is_on_its_way) {
                drop(unpoisoned(self.shared.has_ended.wait(uploads)));
            }
        }
    }

    /// Has pieces of objects that may not be in the bucket yet point at their bytes.
    pub(super) fn find(&self, pieces: &mut [Piece]) {
        let uploads = self.shared.lock();
        if uploads.is_empty() {
            return;
        }
        for piece in pieces {
            if let Source::Object { object, offset } = &piece.source
                && let Some(upload) = uploads.get(&object.name())
            {
                piece.source = Source::Bytes { bytes: Arc::clone(&upload.bytes), offset: *offset as usize };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::devices::bucket::BucketOptions;
    use crate::devices::bucket::platform::BucketPlatform;
    use crate::devices::bucket::tests::machine;
    use crate::devices::bucket::volume::Volume;
    use crate::devices::device::{DeviceFile, Mode};
    use crate::devices::objects::{Expected, Head, Memory, ObjectError, Objects, Page, Piece as Read, Tag};
    use crate::devices::platform::{Lock, Platform};
    use crate::format::geometry::Class;

    const HOME: &str = "memory://home";
    const OBJECT_BYTES: u64 = 2000;

    #[derive(Debug, Default)]
    struct Gate {
        is_closed: bool,
        fails: bool,
        inside: usize,
        most_inside: usize,
        /// Objects put, and manifests.
        done: Vec<&'static str>,
    }

    /// A bucket into which nothing is put while its gate is closed.
    #[derive(Debug, Default)]
    struct Gated {
        bucket: Memory,
        gate: Mutex<Gate>,
        has_opened: Condvar,
    }

    impl Gated {
        fn set(&self, is_closed: bool, fails: bool) {
            let mut gate = lock(&self.gate);
            (gate.is_closed, gate.fails) = (is_closed, fails);
            drop(gate);
            self.has_opened.notify_all();
        }
    }

    impl Objects for Gated {
        fn place(&self) -> PathBuf {
            self.bucket.place()
        }

        fn put_as(&self, class: Class, name: &str, bytes: &[u8]) -> std::result::Result<Tag, ObjectError> {
            let mut gate = lock(&self.gate);
            gate.inside += 1;
            gate.most_inside = gate.most_inside.max(gate.inside);
            while gate.is_closed {
                gate = unpoisoned(self.has_opened.wait(gate));
            }
            gate.inside -= 1;
            if gate.fails {
                return Err(ObjectError::Failed(io::ErrorKind::ConnectionRefused.into()));
            }
            gate.done.push("object");
            self.bucket.put_as(class, name, bytes)
        }

        fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> std::result::Result<Tag, ObjectError> {
            lock(&self.gate).done.push("manifest");
            self.bucket.replace(name, bytes, expected)
        }

        fn read(&self, name: &str, range: Range<u64>) -> std::result::Result<Read, ObjectError> {
            self.bucket.read(name, range)
        }

        fn head(&self, name: &str) -> std::result::Result<Head, ObjectError> {
            self.bucket.head(name)
        }

        fn list(&self, prefix: &str, after: Option<&str>) -> std::result::Result<Page, ObjectError> {
            self.bucket.list(prefix, after)
        }

        fn delete(&self, name: &str) -> std::result::Result<(), ObjectError> {
            self.bucket.delete(name)
        }
    }

    fn platform(bucket: &Arc<Gated>) -> BucketPlatform {
        let options = BucketOptions { object_bytes: OBJECT_BYTES, uploads: 2, ..BucketOptions::default() };
        BucketPlatform::new(Path::new(HOME), Volume::open(bucket.clone(), machine(), options).unwrap())
    }

    /// A writer with a file.
    fn writer(bucket: &Arc<Gated>) -> (BucketPlatform, Box<dyn Lock>, Arc<dyn DeviceFile>) {
        let writer = platform(bucket);
        let device = writer.device(Path::new(HOME));
        device.create_directory("segments").unwrap();
        writer.hold().publish().unwrap();
        let lock = writer.lock(Path::new(HOME)).unwrap().unwrap();
        let file = device.open("segments/1", Mode::Create).unwrap();
        take_done(bucket);
        (writer, lock, file)
    }

    fn take_done(bucket: &Gated) -> Vec<&'static str> {
        std::mem::take(&mut lock(&bucket.gate).done)
    }

    fn chunk(number: u64) -> Vec<u8> {
        (0..OBJECT_BYTES).map(|at| (number * 31 + at) as u8).collect()
    }

    fn is_read(file: &dyn DeviceFile, chunks: u64) {
        let mut bytes = Vec::new();
        file.read_onto(&mut bytes, 1 << 20, 0).unwrap();
        assert!(bytes == (0..chunks).flat_map(chunk).collect::<Vec<u8>>());
    }

    /// Waits until none is on its way.
    fn settle(writer: &BucketPlatform) {
        let shared = &writer.volume().uploads.shared;
        let mut uploads = shared.lock();
        while uploads.values().any(|upload| upload.is_on_its_way) {
            uploads = unpoisoned(shared.has_ended.wait(uploads));
        }
    }

    #[test]
    fn writing_goes_on_while_objects_are_put_and_not_many_are_at_once() {
        let bucket = Arc::new(Gated::default());
        let (_writer, lock_held, file) = writer(&bucket);
        bucket.set(true, false);
        // Nothing arrives, and yet these return, and are read.
        (0..2).for_each(|number| file.write_at(&chunk(number), number * OBJECT_BYTES).unwrap());
        is_read(&*file, 2);
        assert!(bucket.bucket.list("fast/", None).unwrap().objects.is_empty());
        std::thread::scope(|scope| {
            let rest = scope.spawn(|| {
                (2..6).for_each(|number| file.write_at(&chunk(number), number * OBJECT_BYTES).unwrap());
                file.sync().unwrap();
            });
            bucket.set(false, false);
            rest.join().unwrap();
        });
        let gate = lock(&bucket.gate);
        assert_eq!(gate.done, ["object", "object", "object", "object", "object", "object", "manifest"]);
        assert!(gate.most_inside <= 2, "{}", gate.most_inside);
        drop(gate);
        let reader = platform(&bucket);
        is_read(&*reader.device(Path::new(HOME)).open("segments/1", Mode::Read).unwrap(), 6);
        is_read(&*file, 6);
        drop(lock_held);
    }

    #[test]
    fn what_failed_is_put_again_by_the_next_or_by_the_publication() {
        let bucket = Arc::new(Gated::default());
        let (machine, lock_held, file) = writer(&bucket);
        bucket.set(false, true);
        file.write_at(&chunk(0), 0).unwrap();
        settle(&machine);
        is_read(&*file, 1);
        // It fails again, and somebody hears of it.
        let failed = file.write_at(&chunk(1), OBJECT_BYTES).unwrap_err();
        assert!(failed.to_string().contains("cannot put"), "{failed}");
        is_read(&*file, 2);
        bucket.set(false, false);
        file.write_at(&chunk(2), 2 * OBJECT_BYTES).unwrap();
        file.sync().unwrap();
        assert_eq!(take_done(&bucket), ["object", "object", "object", "manifest"]);
        is_read(&*platform(&bucket).device(Path::new(HOME)).open("segments/1", Mode::Read).unwrap(), 3);
        // What cannot be put is in no version, and nothing is afterwards.
        bucket.set(false, true);
        file.write_at(&chunk(3), 3 * OBJECT_BYTES).unwrap();
        settle(&machine);
        file.sync().unwrap_err();
        bucket.set(false, false);
        file.sync().unwrap_err();
        drop(lock_held);
        assert_eq!(take_done(&bucket), [] as [&str; 0]);
        is_read(&*platform(&bucket).device(Path::new(HOME)).open("segments/1", Mode::Read).unwrap(), 3);
    }

    #[test]
    fn without_threads_each_is_put_by_who_writes_it() {
        let bucket = Arc::new(Gated::default());
        let (_writer, lock_held, file) = writer(&bucket);
        threads::without_threads(|| {
            for number in 0..3 {
                file.write_at(&chunk(number), number * OBJECT_BYTES).unwrap();
                assert_eq!(take_done(&bucket), ["object"]);
            }
        });
        is_read(&*file, 3);
        drop(lock_held);
    }
}
