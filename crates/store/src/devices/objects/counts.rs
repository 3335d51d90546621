//! What a bucket is asked: each request that is sent, and the bytes of objects that go each way.
//!
//! Every request is counted, whatever becomes of it: a bucket charges for those that fail, too.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Expected, Head, ObjectError, Objects, Page, Piece, Tag};
use crate::format::geometry::Class;

/// Numbers of requests, by kind, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Objects put.
    pub puts: u64,
    /// Manifests put: conditional replacements.
    pub replaces: u64,
    /// Objects and manifests read, whole or in ranges; also a question whether one has changed.
    pub reads: u64,
    /// Objects whose size or tag was asked for.
    pub heads: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Objects deleted. Most buckets delete many in one request, and charge nothing.
    pub deletes: u64,
    /// Bytes that were put.
    pub put_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

impl Requests {
    /// The numbers, in the order in which they are written.
    pub(crate) const NUMBERS: usize = 8;

    pub(crate) fn numbers(&self) -> [u64; Requests::NUMBERS] {
        let Requests { puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes } = *self;
        [puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes]
    }

    pub(crate) fn of_numbers(numbers: [u64; Requests::NUMBERS]) -> Requests {
        let [puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes] = numbers;
        Requests { puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes }
    }

    /// Both together. Counts that no bucket can have reached end at the largest number.
    #[must_use]
    pub fn and(&self, other: &Requests) -> Requests {
        let (one, other) = (self.numbers(), other.numbers());
        Requests::of_numbers(std::array::from_fn(|at| one[at].saturating_add(other[at])))
    }

    /// Those since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Requests) -> Requests {
        let (now, earlier) = (self.numbers(), earlier.numbers());
        Requests::of_numbers(std::array::from_fn(|at| now[at] - earlier[at]))
    }
}

/// Objects of one class that a store has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredObjects {
    /// Their number.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a store has in its bucket, and what a process has asked it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketStatus {
    /// Where the objects are.
    pub place: PathBuf,
    /// Number of the version that is known: of publications since the store was created.
    pub version: u64,
    /// Bytes of the manifest, which each publication puts.
    pub manifest_bytes: u64,
    /// Objects of the class for what is read at random.
    pub fast: StoredObjects,
    /// Objects of the cheap class.
    pub slow: StoredObjects,
    /// Requests of this process since it opened the store.
    pub requests: Requests,
    /// Requests of all writers since the store was created, as of that version: of each, those until its last
    /// publication. Readers cannot note theirs.
    pub spent: Requests,
}

#[derive(Debug, Default)]
struct Counts {
    puts: AtomicU64,
    replaces: AtomicU64,
    reads: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    put_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

fn add(count: &AtomicU64, number: usize) {
    count.fetch_add(number as u64, Ordering::Relaxed);
}

/// Objects behind which requests are counted.
#[derive(Debug)]
pub(crate) struct Counted {
    objects: Arc<dyn Objects>,
    counts: Counts,
    /// What was read.
    #[cfg(test)]
    pub(crate) reads: std::sync::Mutex<Vec<(String, Range<u64>)>>,
}

impl Counted {
    pub(crate) fn new(objects: Arc<dyn Objects>) -> Counted {
        Counted {
            objects,
            counts: Counts::default(),
            #[cfg(test)]
            reads: std::sync::Mutex::default(),
        }
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> Requests {
        let Counts { puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes } = &self.counts;
        let counts = [puts, replaces, reads, heads, lists, deletes, put_bytes, read_bytes];
        Requests::of_numbers(counts.map(|count| count.load(Ordering::Relaxed)))
    }

    fn put_one(&self, bytes: &[u8]) {
        add(&self.counts.puts, 1);
        add(&self.counts.put_bytes, bytes.len());
    }

    fn read_one(&self, piece: Option<&Piece>) {
        add(&self.counts.reads, 1);
        add(&self.counts.read_bytes, piece.map_or(0, |piece| piece.bytes.len()));
    }
}

impl Objects for Counted {
    fn place(&self) -> PathBuf {
        self.objects.place()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.put_one(bytes);
        self.objects.put(name, bytes)
    }

    fn set_classes(&self, fast: Option<&str>, slow: Option<&str>) {
        self.objects.set_classes(fast, slow);
    }

    fn put_as(&self, class: Class, name: &str, bytes: &[u8]) -> Result<Tag, ObjectError> {
        self.put_one(bytes);
        self.objects.put_as(class, name, bytes)
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Result<Tag, ObjectError> {
        add(&self.counts.replaces, 1);
        add(&self.counts.put_bytes, bytes.len());
        self.objects.replace(name, bytes, expected)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Piece, ObjectError> {
        #[cfg(test)]
        crate::locks::lock(&self.reads).push((name.to_owned(), range.clone()));
        let read = self.objects.read(name, range);
        self.read_one(read.as_ref().ok());
        read
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Result<Option<Piece>, ObjectError> {
        let read = self.objects.read_if_changed(name, range, tag);
        self.read_one(read.as_ref().ok().and_then(Option::as_ref));
        read
    }

    fn head(&self, name: &str) -> Result<Head, ObjectError> {
        add(&self.counts.heads, 1);
        self.objects.head(name)
    }

    fn age(&self, name: &str) -> Result<Option<Duration>, ObjectError> {
        add(&self.counts.heads, 1);
        self.objects.age(name)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        add(&self.counts.lists, 1);
        self.objects.list(prefix, after)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        add(&self.counts.deletes, 1);
        self.objects.delete(name)
    }

    fn delete_many(&self, names: &[String]) -> Vec<Result<(), ObjectError>> {
        add(&self.counts.deletes, names.len());
        self.objects.delete_many(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::objects::Memory;

    #[test]
    fn each_request_is_counted_once_whatever_becomes_of_it() {
        let objects = Counted::new(Arc::new(Memory::default()));
        let tag = objects.put("a", b"four").unwrap();
        objects.put_as(Class::Slow, "b", b"fives").unwrap();
        objects.put("a", b"again").unwrap_err();
        let tag = objects.replace("a", b"other", &Expected::Tagged(tag)).unwrap();
        objects.read("a", 1..3).unwrap();
        assert_eq!(objects.read_if_changed("a", 0..9, &tag).unwrap(), None);
        objects.read_if_changed("b", 0..9, &tag).unwrap().unwrap();
        objects.read("c", 0..9).unwrap_err();
        let before = objects.requests();
        objects.head("a").unwrap();
        objects.list("", None).unwrap();
        objects.delete("c").unwrap_err();
        assert!(objects.delete_many(&["a".to_owned(), "b".to_owned()]).iter().all(Result::is_ok));
        let requests = Requests {
            puts: 3,
            replaces: 1,
            reads: 4,
            heads: 1,
            lists: 1,
            deletes: 3,
            put_bytes: 4 + 5 + 5 + 5,
            read_bytes: 2 + 5,
        };
        assert_eq!(objects.requests(), requests);
        let since = Requests { heads: 1, lists: 1, deletes: 3, ..Requests::default() };
        assert_eq!(objects.requests().since(&before), since);
    }
}
