//! Verifies that a bucket does what a store relies on, before anything relies on it: conditional puts.
//!
//! A bucket that ignores the condition of a put lets two writers overwrite each other, and lets none of them see it. So
//! a store is created, and a machine writes to a bucket for the first time, only after five requests for an object of
//! their own have shown what it does. Readers need none of this.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use granulo_store::Class;
use granulo_store::objects::{Expected, Head, ObjectError, Objects, Page, Piece, Tag};
use granulo_store::published::{Machine, Surroundings};
use twox_hash::XxHash3_64;

use crate::variables::Variables;

type Outcome<T> = Result<T, ObjectError>;

/// Objects of a bucket whose conditions are verified before the first conditional put.
#[derive(Debug)]
pub(crate) struct Probed<O> {
    objects: O,
    is_verified: AtomicBool,
    /// Exists once this machine has verified the bucket.
    verified: Option<PathBuf>,
}

impl<O: Objects> Probed<O> {
    pub(crate) fn new(objects: O, verified: Option<PathBuf>) -> Probed<O> {
        Probed { objects, is_verified: AtomicBool::new(false), verified }
    }

    fn verify(&self, expected: &Expected) -> Outcome<()> {
        let is_known = || self.verified.as_ref().is_some_and(|path| path.exists());
        if self.is_verified.load(Ordering::Relaxed) {
            return Ok(());
        }
        if *expected != Expected::Absent && is_known() {
            // What this process creates later are heartbeats, not a store.
            self.is_verified.store(true, Ordering::Relaxed);
            return Ok(());
        }
        probe(&self.objects)?;
        self.is_verified.store(true, Ordering::Relaxed);
        // Otherwise it is verified again the next time.
        self.verified.iter().for_each(|path| drop(remember(path)));
        Ok(())
    }
}

fn remember(path: &PathBuf) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, b"")
}

/// Where a machine remembers that it has verified a bucket.
pub(crate) fn verified_path(variables: &Variables, identity: String) -> Option<PathBuf> {
    let caches = variables.path("XDG_CACHE_HOME").or_else(|| Some(variables.path("HOME")?.join(".cache")))?;
    let mut hasher = XxHash3_64::new();
    hasher.write(identity.as_bytes());
    Some(caches.join("granulo/verified").join(format!("{:016x}", hasher.finish())))
}

/// # Errors
/// [`ObjectError::Failed`] with the reason, if the bucket ignores conditions or misunderstands them, or a request
/// fails: nothing has been sent then for which this is done.
fn probe(objects: &dyn Objects) -> Outcome<()> {
    let nonce =
        Machine::default().random().map_err(|error| ObjectError::Failed(io::Error::other(error.to_string())))?;
    let name = format!("probe/{nonce:016x}");
    let probed = probe_with(objects, &name);
    // Whatever it has shown; one that stays is in nobody's way.
    let _ = objects.delete(&name);
    probed
}

fn probe_with(objects: &dyn Objects, name: &str) -> Outcome<()> {
    let first = objects.replace(name, b"1", &Expected::Absent).map_err(as_failed)?;
    refused(objects.replace(name, b"2", &Expected::Absent), "If-None-Match")?;
    let second = match objects.replace(name, b"3", &Expected::Tagged(first.clone())) {
        Err(ObjectError::Refused) => return Err(unfit("it refuses If-Match with the right tag")),
        other => other.map_err(as_failed)?,
    };
    if second == first {
        return Err(unfit("the tag of an object stays when its bytes change"));
    }
    refused(objects.replace(name, b"4", &Expected::Tagged(first)), "If-Match")
}

/// # Errors
/// The put was not refused.
fn refused(put: Outcome<Tag>, condition: &str) -> Outcome<()> {
    match put {
        Err(ObjectError::Refused) => Ok(()),
        Err(error) => Err(as_failed(error)),
        Ok(_) => Err(unfit(&format!("it ignores {condition}"))),
    }
}

/// An outcome of the probe that is unknown says nothing about what it is made for.
fn as_failed(error: ObjectError) -> ObjectError {
    match error {
        ObjectError::Unknown(error) | ObjectError::Failed(error) => ObjectError::Failed(error),
        other => ObjectError::Failed(io::Error::other(other.to_string())),
    }
}

fn unfit(cause: &str) -> ObjectError {
    let text = format!(
        "the bucket does not do conditional puts, so two writers could destroy the store: {cause} (on Ceph, switch \
         versioning off for the bucket)"
    );
    ObjectError::Failed(io::Error::new(io::ErrorKind::Unsupported, text))
}

impl<O: Objects> Objects for Probed<O> {
    fn place(&self) -> PathBuf {
        self.objects.place()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Outcome<Tag> {
        self.objects.put(name, bytes)
    }

    fn set_classes(&self, fast: Option<&str>, slow: Option<&str>) {
        self.objects.set_classes(fast, slow);
    }

    fn put_as(&self, class: Class, name: &str, bytes: &[u8]) -> Outcome<Tag> {
        self.objects.put_as(class, name, bytes)
    }

    fn replace(&self, name: &str, bytes: &[u8], expected: &Expected) -> Outcome<Tag> {
        self.verify(expected)?;
        self.objects.replace(name, bytes, expected)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Outcome<Piece> {
        self.objects.read(name, range)
    }

    fn read_if_changed(&self, name: &str, range: Range<u64>, tag: &Tag) -> Outcome<Option<Piece>> {
        self.objects.read_if_changed(name, range, tag)
    }

    fn head(&self, name: &str) -> Outcome<Head> {
        self.objects.head(name)
    }

    fn age(&self, name: &str) -> Outcome<Option<Duration>> {
        self.objects.age(name)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Outcome<Page> {
        self.objects.list(prefix, after)
    }

    fn delete(&self, name: &str) -> Outcome<()> {
        self.objects.delete(name)
    }

    fn delete_many(&self, names: &[String]) -> Vec<Outcome<()>> {
        self.objects.delete_many(names)
    }
}
