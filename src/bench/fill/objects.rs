//! Fills and tests granulo's store: objects and directories instead of files. Each object that fills it is a commit
//! of its own, each test one batch; both are durable at the next sync.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::level::Extents;
use super::{FILE_NUMBER, FILL_WIDTHS, FillTarget, KeepGoing, TEST_WIDTHS, misread};
use crate::bench::content::{Content, PIECE_BYTES};
use crate::bench::numbered::NumberedPath;
use crate::error::{ErrorKind, Result};
use crate::progress::Progress;
use crate::store::{Attributes, Batch, Choice, CompactOptions, Durability, Key, Kind, Plan, Store, Time};

const DIRECTORIES: &str = "directories";
const FILES: &str = "files";
const FILE: &str = "file";
/// Percentage of dead bytes above which segments and extent files are compacted, when a level is reached and after each
/// test. Space is freed by whole files only, and the bytes of a test are a small part of the last file: with a higher
/// value they would stay, and the level would rise from test to test.
const DEAD_PERCENT: u8 = 1;

/// A store that is filled and tested.
pub(super) struct Objects<'c> {
    content: &'c Content,
    home: PathBuf,
    store: Option<Store>,
    attributes: Attributes,
    directory_attributes: Attributes,
}

impl<'c> Objects<'c> {
    pub(super) fn new(directory: &Path, content: &'c Content) -> Result<Objects<'c>> {
        let home = directory.join("store");
        let store = Store::create(&home, &Plan::default())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Time { seconds: now.as_secs() as i64, nanoseconds: 0 };
        Ok(Objects {
            content,
            home,
            store: Some(store),
            attributes: Attributes::of_file(now),
            directory_attributes: Attributes::of_directory(now),
        })
    }

    /// The store, reopened if it was closed.
    fn open(&mut self) -> Result<Store> {
        let store = match self.store.take() {
            Some(store) => store,
            None => Store::open(&self.home)?,
        };
        Ok(self.store.insert(store).clone())
    }

    fn put(&self, batch: &mut Batch<'_>, key: &Key, number: u64, size_bytes: u64) -> Result<()> {
        if size_bytes <= PIECE_BYTES as u64 {
            return batch.put(key, &self.attributes, self.content.piece(number, 0, size_bytes));
        }
        let mut stream = self.content.reader(number, size_bytes);
        batch.put_from(key, &self.attributes, &mut stream, Some(size_bytes)).map(|_| ())
    }
}

/// The key of a number in a directory, or that of the directory above it.
fn key(above: &str, path: &NumberedPath) -> Result<Key> {
    Key::parse([above.as_bytes(), b"/", path.as_bytes()].concat())
}

fn fill_key(number: u64) -> Result<Key> {
    let mut path = NumberedPath::new(&FILL_WIDTHS);
    path.set(number);
    key("fill", &path)
}

impl FillTarget for Objects<'_> {
    fn create(&mut self, number: u64, size_bytes: u64) -> Result<()> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        self.put(&mut batch, &fill_key(number)?, number, size_bytes)?;
        batch.commit()
    }

    fn delete(&mut self, number: u64) -> Result<Option<u64>> {
        let store = self.open()?;
        let key = fill_key(number)?;
        let Some(found) = store.entry(&key)? else { return Ok(None) };
        let mut batch = store.batch(Durability::None);
        batch.remove(&key)?;
        batch.commit()?;
        Ok(Some(found.entry.size_bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), Store::sync)
    }

    fn close(&mut self) {
        self.store = None;
    }

    fn extents(&mut self, _number: u64) -> Result<Extents> {
        Ok(Extents::Unknown)
    }

    fn make_directories(&mut self, count: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        batch.directory(&Key::parse(DIRECTORIES)?, &self.directory_attributes)?;
        let mut path = NumberedPath::new(&TEST_WIDTHS);
        for number in 0..count {
            if !go_on() {
                return Ok(false);
            }
            path.set_nested(number);
            batch.directory(&key(DIRECTORIES, &path)?, &self.directory_attributes)?;
        }
        batch.commit()?;
        Ok(true)
    }

    fn find_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        let top = Key::parse(DIRECTORIES)?;
        let mut found = 0;
        for listed in self.open()?.walk(&top)? {
            let listed = listed?;
            if !go_on() {
                break;
            }
            found += u64::from(listed.entry.kind == Kind::Directory && listed.key != top);
        }
        Ok(found)
    }

    fn remove_directories(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        let store = self.open()?;
        let top = Key::parse(DIRECTORIES)?;
        let mut batch = store.batch(Durability::None);
        // A directory is created before its contents, and removed after them.
        let mut holder: Option<Key> = None;
        let mut removed = 0;
        for listed in store.walk(&top)? {
            let listed = listed?;
            if !go_on() {
                return Ok(removed);
            }
            if listed.key == top {
                continue;
            }
            if listed.key.parent().as_ref() == Some(&top) {
                if let Some(holder) = holder.replace(listed.key) {
                    removed += u64::from(batch.remove(&holder)?);
                }
            } else {
                removed += u64::from(batch.remove(&listed.key)?);
            }
        }
        if let Some(holder) = holder {
            removed += u64::from(batch.remove(&holder)?);
        }
        batch.commit()?;
        Ok(removed)
    }

    fn write(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        let mut stream = Watched { inner: self.content.reader(FILE_NUMBER, size_bytes), go_on, stopped: false };
        let put = batch.put_from(&Key::parse(FILE)?, &self.attributes, &mut stream, Some(size_bytes));
        if stream.stopped {
            return Ok(false);
        }
        put?;
        batch.commit()?;
        Ok(true)
    }

    fn read(&mut self, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let store = self.open()?;
        let key = Key::parse(FILE)?;
        let mut buffer = Vec::with_capacity(PIECE_BYTES);
        let mut at = 0;
        loop {
            if !go_on() {
                return Ok(false);
            }
            buffer.clear();
            let read = store.read_range(&key, at..at + PIECE_BYTES as u64, &mut buffer)?;
            match read {
                Some(0) => break,
                Some(read) if self.content.is(FILE_NUMBER, at, &buffer) => at += read,
                _ => return Err(misread(&self.home)),
            }
        }
        if at == size_bytes { Ok(true) } else { Err(misread(&self.home)) }
    }

    fn prepare_files(&mut self, _count: u64) -> Result<()> {
        Ok(())
    }

    fn make_files(&mut self, count: u64, size_bytes: u64, go_on: &mut KeepGoing<'_>) -> Result<bool> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        let mut path = NumberedPath::new(&TEST_WIDTHS);
        for number in 0..count {
            if !go_on() {
                return Ok(false);
            }
            path.set(number);
            self.put(&mut batch, &key(FILES, &path)?, number, size_bytes)?;
        }
        batch.commit()?;
        Ok(true)
    }

    fn remove_files(&mut self, go_on: &mut KeepGoing<'_>) -> Result<u64> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        let mut removed = 0;
        for listed in store.walk(&Key::parse(FILES)?)? {
            let listed = listed?;
            if !go_on() {
                // The batch is dropped, and the number means nothing.
                return Ok(removed);
            }
            if listed.entry.kind != Kind::Directory {
                removed += u64::from(batch.remove(&listed.key)?);
            }
        }
        batch.commit()?;
        Ok(removed)
    }

    fn settle(&mut self) -> Result<()> {
        let store = self.open()?;
        let options =
            CompactOptions { choice: Choice::Dead(DEAD_PERCENT), is_alone: true, ..CompactOptions::default() };
        let compacted = store.sync().and_then(|()| store.compact(&options, &Progress::default())).map(drop);
        // A store that is too full to free anything is as full as was asked for.
        match compacted.and_then(|()| store.sync()) {
            Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
            _ => Ok(()),
        }
    }

    fn clear(&mut self) -> Result<()> {
        let store = self.open()?;
        let mut batch = store.batch(Durability::None);
        for name in [DIRECTORIES, FILES, FILE] {
            batch.remove_tree(&Key::parse(name)?)?;
        }
        batch.commit()?;
        self.settle()
    }
}

/// A stream that fails when it is asked to stop.
struct Watched<'s, 'g, R> {
    inner: R,
    go_on: &'s mut KeepGoing<'g>,
    stopped: bool,
}

impl<R: std::io::Read> std::io::Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !(self.go_on)() {
            self.stopped = true;
            return Err(std::io::Error::other("it was interrupted"));
        }
        self.inner.read(buffer)
    }
}
