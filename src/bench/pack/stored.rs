//! The same files as objects in granulo's store: put in one batch, loaded by the store's own loader, which verifies
//! every record.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::population::Population;
use super::{Going, Tally, wrong};
use crate::bench::content::{Content, PIECE_BYTES};
use crate::bench::numbered::number_of;
use crate::error::{Error, Result};
use crate::locks::{lock, unpoisoned};
use crate::progress::Progress;
use crate::store::{Attributes, Durability, Key, Kind, LoadedObject, Plan, Store, Time};

/// Creates a store and puts all files, through one batch, which commits in pieces; does not sync it. `None` if it was
/// asked to stop: what was put until then remains.
pub(super) fn put(
    home: &Path,
    population: &Population,
    content: &Content,
    go_on: &mut Going<'_>,
) -> Result<Option<Store>> {
    let store = Store::create(home, &Plan::default())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let attributes = Attributes::of_file(Time { seconds: now.as_secs() as i64, nanoseconds: 0 });
    let mut path = population.path();
    let mut batch = store.batch(Durability::None);
    for number in 0..population.files {
        if !go_on(number) {
            return Ok(None);
        }
        path.set(number);
        let key = Key::parse(path.as_bytes())?;
        match population.size(number) {
            size_bytes if size_bytes <= PIECE_BYTES as u64 => {
                batch.put(&key, &attributes, content.piece(number, 0, size_bytes))?;
            }
            size_bytes => {
                let mut stream = content.reader(number, size_bytes);
                batch.put_from(&key, &attributes, &mut stream, Some(size_bytes))?;
            }
        }
    }
    batch.commit()?;
    Ok(Some(store))
}

/// Combined result of several threads.
#[derive(Debug, Default)]
struct Combined {
    files: AtomicU64,
    bytes: AtomicU64,
    mixed: AtomicU64,
    failed: Mutex<Option<Error>>,
}

impl Combined {
    fn add(&self, tally: Tally) {
        self.files.fetch_add(tally.files, Ordering::Relaxed);
        self.bytes.fetch_add(tally.bytes, Ordering::Relaxed);
        self.mixed.fetch_add(tally.mixed, Ordering::Relaxed);
    }

    fn fail(&self, error: Error) -> bool {
        lock(&self.failed).get_or_insert(error);
        false
    }
}

/// Opens the store, loads all objects with one thread per processor, and compares the content; returns whether it
/// finished.
pub(super) fn load(home: &Path, population: &Population, content: &Content, progress: &Progress) -> Result<bool> {
    let store = Store::open_read_only(home)?;
    let combined = Combined::default();
    store.load_with(&Key::root(), 0, |object| match object {
        Ok(object) => match compare(object, content) {
            Some(tally) => {
                combined.add(tally);
                !progress.should_stop()
            }
            None => combined.fail(wrong(home)),
        },
        Err(error) => combined.fail(error),
    })?;
    let Combined { files, bytes, mixed, failed } = combined;
    if let Some(error) = unpoisoned(failed.into_inner()) {
        return Err(error);
    }
    if progress.should_stop() {
        return Ok(false);
    }
    let tally = Tally { files: files.into_inner(), bytes: bytes.into_inner(), mixed: mixed.into_inner() };
    tally.check(population, home)?;
    Ok(true)
}

/// Contribution of an object, or of a part of a large one; `None` if the content differs.
fn compare(object: LoadedObject<'_>, content: &Content) -> Option<Tally> {
    if object.kind() == Kind::Directory {
        return Some(Tally::default());
    }
    let key = object.key().ok().flatten()?;
    let number = number_of(key.stored(), 0)?;
    if !content.is(number, object.offset(), object.content()) {
        return None;
    }
    let mut tally = Tally { bytes: object.content().len() as u64, ..Tally::default() };
    if object.offset() == 0 {
        tally.add(number, 0);
    }
    Some(tally)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::distribution::published;
    use crate::error::ErrorKind;

    #[test]
    fn what_was_put_is_loaded_large_ones_too() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("store");
        let sizes = published::find("vu-2005").unwrap().distribution();
        let population = Population::stratified("vu-2005", sizes, 2000, 1).unwrap();
        assert!((0..2000).any(|file| population.size(file) > PIECE_BYTES as u64));
        let content = Content::random(1);
        let store = put(&home, &population, &content, &mut |_| true).unwrap().unwrap();
        store.sync().unwrap();
        drop(store);
        let progress = &Progress::default();
        assert!(load(&home, &population, &content, progress).unwrap());
        let other = load(&home, &population, &Content::random(2), progress).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Corrupt);
        let more = Population::stratified("vu-2005", sizes, 2001, 1).unwrap();
        assert!(load(&home, &more, &content, progress).is_err());
        progress.stop();
        assert!(!load(&home, &population, &content, progress).unwrap());
        assert!(put(&directory.path().join("other"), &population, &content, &mut |done| done < 5).unwrap().is_none());
    }
}
