//! What a writer was told about how objects are put: the next one does the same without being told, whichever program
//! it is. It is in the manifest (docs/FORMAT.md, section 12.1).

use std::time::Duration;

use super::options::BucketOptions;

/// How long an object outlives the last version with it, if nobody has said.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// What was said, last. By default, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Storage class of the objects for what is read at random.
    pub(crate) fast_class: Option<String>,
    /// Storage class of the objects for large files.
    pub(crate) slow_class: Option<String>,
    /// How long an object outlives the last version with it, in whole seconds.
    pub(crate) grace_seconds: Option<u64>,
}

impl Remembered {
    /// With what these options say. An empty class is that of the bucket again.
    pub(super) fn with(&self, options: &BucketOptions) -> Remembered {
        let grace_seconds = options.grace.map(|grace| grace.as_secs());
        let class = |said: &Option<String>, before: &Option<String>| {
            said.as_ref().or(before.as_ref()).filter(|class| !class.is_empty()).cloned()
        };
        Remembered {
            fast_class: class(&options.fast_class, &self.fast_class),
            slow_class: class(&options.slow_class, &self.slow_class),
            grace_seconds: grace_seconds.or(self.grace_seconds),
        }
    }

    /// How long an object outlives the last version with it.
    pub(super) fn grace(&self) -> Duration {
        self.grace_seconds.map_or(GRACE, Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::devices::bucket::platform::BucketPlatform;
    use crate::devices::bucket::tests::machine;
    use crate::devices::bucket::volume::Volume;
    use crate::devices::device::Mode;
    use crate::devices::objects::{Expected, Head, Memory, ObjectError, Objects, Page, Piece, Tag};
    use crate::devices::platform::Platform;
    use crate::format::geometry::Class;
    use crate::locks::lock;

    /// What a process is told about classes.
    #[derive(Debug)]
    struct Classed {
        bucket: Memory,
        told: Mutex<[Option<String>; 2]>,
    }

    impl Objects for Classed {
        fn place(&self) -> PathBuf {
            self.bucket.place()
        }

        fn set_classes(&self, fast: Option<&str>, slow: Option<&str>) {
            *lock(&self.told) = [fast, slow].map(|class| class.map(str::to_owned));
        }

        fn put_as(&self, class: Class, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
            let [fast, slow] = lock(&self.told).clone();
            match if class == Class::Fast { fast } else { slow } {
                Some(name) if name == "UNKNOWN" => Err(ObjectError::Failed(io::ErrorKind::InvalidInput.into())),
                _ => self.put(name, bytes),
            }
        }

        fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
            self.bucket.replace(name, bytes, expected)
        }

        fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
            self.bucket.read(name, range)
        }

        fn head(&self, name: &str) -> Result<Head, ObjectError> {
            self.bucket.head(name)
        }

        fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
            self.bucket.list(prefix, after)
        }

        fn delete(&self, name: &str) -> Result<(), ObjectError> {
            self.bucket.delete(name)
        }
    }

    fn options(fast: Option<&str>, slow: Option<&str>, grace_seconds: Option<u64>) -> BucketOptions {
        BucketOptions {
            fast_class: fast.map(str::to_owned),
            slow_class: slow.map(str::to_owned),
            grace: grace_seconds.map(Duration::from_secs),
            ..BucketOptions::default()
        }
    }

    #[test]
    fn what_one_writer_was_told_the_next_one_does() {
        let (bucket, home) = (Memory::default(), Path::new("memory://home"));
        let volume = |options: BucketOptions| {
            let objects = Arc::new(Classed { bucket: bucket.clone(), told: Mutex::default() });
            (Arc::clone(&objects), Volume::open(objects, machine(), options).unwrap())
        };
        let created = BucketPlatform::new(home, volume(options(None, Some("COLD"), None)).1);
        let lock_of = |platform: &BucketPlatform| platform.lock(home).unwrap().unwrap();
        let held = lock_of(&created);
        created.device(home).open("superblock", Mode::Create).unwrap().write_at(b"1", 0).unwrap();
        drop(held);
        // What a writer is told, which writes nothing, and what it does then.
        for (fast, slow, grace_seconds, classes, expected_seconds) in [
            (None, None, None, [None, Some("COLD")], 24 * 60 * 60),
            (Some("STANDARD"), None, Some(3), [Some("STANDARD"), Some("COLD")], 3),
            (None, None, None, [Some("STANDARD"), Some("COLD")], 3),
            (None, Some("STANDARD"), Some(0), [Some("STANDARD"), Some("STANDARD")], 0),
            (None, None, None, [Some("STANDARD"), Some("STANDARD")], 0),
            (Some(""), None, None, [None, Some("STANDARD")], 0),
            (None, Some(""), None, [None, None], 0),
        ] {
            let (objects, volume) = volume(options(fast, slow, grace_seconds));
            let platform = BucketPlatform::new(home, volume);
            let held = lock_of(&platform);
            assert_eq!(lock(&objects.told).each_ref().map(Option::as_deref), classes);
            let grace = lock(&platform.volume().files).remembered.grace();
            assert_eq!(grace, Duration::from_secs(expected_seconds));
            drop(held);
        }
        let (_, refused) = volume(options(None, Some("UNKNOWN"), Some(7)));
        let error = BucketPlatform::new(home, refused).lock(home).unwrap_err();
        assert!(error.to_string().contains("cannot put into the storage class UNKNOWN"), "{error}");
        assert!(bucket.list("probe/", None).unwrap().objects.is_empty());
        let (objects, reader) = volume(options(Some("OTHER"), None, Some(9)));
        assert_eq!(lock(&reader.files).remembered.grace(), Duration::ZERO, "a reader changes nothing");
        assert_eq!(*lock(&objects.told), [None, None]);
    }
}
