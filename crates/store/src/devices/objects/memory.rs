//! Objects in memory: what a bucket guarantees and no more, for programs and tests without a bucket.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Expected, Head, ListedObject, ObjectError, Objects, Page, Piece, Tag};
use crate::locks::lock;

/// Objects per page of a listing, as on S3.
const PAGE_OBJECTS: usize = 1000;

/// A bucket in memory. Clones are the same bucket; threads may share it.
///
/// ```
/// use granulo_store::objects::{Memory, Objects};
///
/// let bucket = Memory::with_pages_of(2);
/// for name in ["b", "a", "c"] {
///     bucket.clone().put(name, b"")?;
/// }
/// let page = bucket.list("", None)?;
/// assert_eq!((page.objects[1].name.as_str(), page.is_last), ("b", false));
/// assert_eq!(bucket.list("", Some("b"))?.objects[0].name, "c");
/// # Ok::<(), granulo_store::objects::ObjectError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
    page_objects: usize,
}

#[derive(Debug, Default)]
struct Shared {
    objects: BTreeMap<String, StoredObject>,
    /// Number of puts so far; each object gets it as its tag.
    puts: u64,
}

#[derive(Debug, Clone)]
struct StoredObject {
    bytes: Arc<[u8]>,
    /// Number of the put that stored it.
    put_number: u64,
}

impl StoredObject {
    fn head(&self) -> Head {
        Head { size_bytes: self.bytes.len() as u64, tag: Tag(self.put_number.to_string()) }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::with_pages_of(PAGE_OBJECTS)
    }
}

impl Memory {
    /// An empty bucket whose listings have pages of `objects` objects (at least one).
    pub fn with_pages_of(objects: usize) -> Memory {
        Memory { shared: Arc::default(), page_objects: objects.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No operation leaves this inconsistent.
        lock(&self.shared)
    }

    fn stored(&self, name: &str) -> Result<StoredObject, ObjectError> {
        self.lock().objects.get(name).cloned().ok_or(ObjectError::NotFound)
    }
}

impl Objects for Memory {
    fn place(&self) -> PathBuf {
        PathBuf::from("memory")
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        let bytes: Arc<[u8]> = bytes.into();
        let mut shared = self.lock();
        let found = shared.objects.get(name).map_or(Expected::Absent, |stored| Expected::Tagged(stored.head().tag));
        if found != *expected {
            return Err(ObjectError::Refused);
        }
        shared.puts += 1;
        let stored = StoredObject { bytes, put_number: shared.puts };
        let tag = stored.head().tag;
        shared.objects.insert(name.to_owned(), stored);
        Ok(tag)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        let stored = self.stored(name)?;
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(stored.bytes.len());
        let bytes = stored.bytes.get(within(range.start)..within(range.end)).unwrap_or_default();
        Ok(Piece { bytes: bytes.to_vec(), head: stored.head() })
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Result<Option<Piece>, ObjectError> {
        let piece = self.read(name, range)?;
        Ok(Some(piece).filter(|piece| piece.head.tag != *tag))
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        Ok(self.stored(name)?.head())
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let shared = self.lock();
        let mut found = shared
            .objects
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, stored)| ListedObject { name: name.clone(), size_bytes: stored.bytes.len() as u64 });
        let objects = found.by_ref().take(self.page_objects).collect();
        Ok(Page { objects, is_last: found.next().is_none() })
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.lock().objects.remove(name).map(drop).ok_or(ObjectError::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_put_once_and_replaced_by_whoever_knows_what_is_there() {
        let bucket = Memory::default();
        let tag = bucket.put("a", b"one").unwrap();
        assert!(matches!(bucket.put("a", b"two"), Err(ObjectError::Refused)));
        assert!(matches!(bucket.replace("b", b"", &Expected::Tagged(tag.clone())), Err(ObjectError::Refused)));
        let next = bucket.replace("a", b"two", &Expected::Tagged(tag.clone())).unwrap();
        assert_ne!(next, tag);
        // The same bytes put again have another tag.
        bucket.delete("a").unwrap();
        assert_ne!(bucket.put("a", b"one").unwrap(), tag);
        assert!(matches!(bucket.delete("b"), Err(ObjectError::NotFound)));
    }

    #[test]
    fn a_range_has_what_there_is_of_it() {
        let bucket = Memory::default();
        bucket.put("a", b"0123456789").unwrap();
        let read = |range| bucket.read("a", range).unwrap().bytes;
        assert_eq!(read(2..5), b"234");
        assert_eq!(read(8..u64::MAX), b"89");
        assert_eq!(read(10..11), b"");
        assert_eq!(read(u64::MAX - 1..u64::MAX), b"");
        let head = bucket.head("a").unwrap();
        assert_eq!(head, bucket.read("a", 0..0).unwrap().head);
        assert_eq!(bucket.read_if_changed("a", 0..9, &head.tag).unwrap(), None);
        let changed = bucket.read_if_changed("a", 1..3, &Tag("of others".to_owned())).unwrap().unwrap();
        assert_eq!((changed.bytes, changed.head), (b"12".to_vec(), head));
        let answers = bucket.delete_many(&["b".to_owned(), "a".to_owned()]);
        assert!(matches!(answers[..], [Err(ObjectError::NotFound), Ok(())]));
    }

    #[test]
    fn pages_follow_each_other_and_end_with_the_prefix() {
        let bucket = Memory::with_pages_of(2);
        for name in ["p/1", "p/2", "p/3", "p/4", "o", "q", "p"] {
            bucket.put(name, name.as_bytes()).unwrap();
        }
        let (mut names, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let page = bucket.list("p/", after.as_deref()).unwrap();
            assert!(page.objects.len() <= 2 && page.objects.iter().all(|listed| listed.size_bytes == 3));
            names.extend(page.objects.into_iter().map(|listed| listed.name));
            if page.is_last {
                break;
            }
            after = names.last().cloned();
        }
        assert_eq!(names, ["p/1", "p/2", "p/3", "p/4"]);
        // A name before the prefix skips nothing; one after it skips everything.
        assert_eq!(bucket.list("p/", Some("a")).unwrap().objects.len(), 2);
        assert!(bucket.list("p/", Some("q")).unwrap().objects.is_empty());
    }

    #[test]
    fn of_many_who_replace_at_once_each_sees_the_one_before() {
        let bucket = Memory::default();
        bucket.put("count", b"0").unwrap();
        let add = || {
            for _ in 0..50 {
                loop {
                    let piece = bucket.read("count", 0..10).unwrap();
                    let count: u64 = std::str::from_utf8(&piece.bytes).unwrap().parse().unwrap();
                    let next = (count + 1).to_string();
                    match bucket.replace("count", next.as_bytes(), &Expected::Tagged(piece.head.tag)) {
                        Ok(_) => break,
                        Err(error) => assert!(matches!(error, ObjectError::Refused)),
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| _ = scope.spawn(add));
        });
        assert_eq!(bucket.read("count", 0..10).unwrap().bytes, b"200");
    }
}
