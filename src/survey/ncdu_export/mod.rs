//! Every entry of a walk as a file that ncdu and gdu can browse: ncdu's JSON, format 1.2
//! (<https://dev.yorhel.nl/ncdu/jsonfmt>), with the fields of its extended mode.
//!
//! The format nests directories, but a walk with several threads meets them in any order. So each thread encodes what
//! it meets as rows with the path as their key ([`row`]), one thread sorts them in bounded memory, with an unnamed
//! scratch file ([`sorted`]), and at the end they are written in order ([`nested`]). The result depends neither on
//! threads nor on the order of directories.
//!
//! The document has one root, and real paths: that of the only directory, or the nearest directory that contains all
//! roots. Directories between it and a root have a name only. A root inside another is where it belongs.

mod nested;
mod row;
mod sorted;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::io::write_atomically;
use crate::scan::{Batch, Directory, Skipped, Stat};
use row::{Block, Known, Row};
use sorted::Sorter;

/// Blocks that may wait for the thread that sorts before the walk blocks.
const QUEUE: usize = 16;

/// Where to write an export, and where to keep what does not fit into memory until then.
#[derive(Debug, Clone)]
pub struct NcduTarget {
    /// The file.
    pub path: PathBuf,
    /// A directory for an unnamed file.
    pub scratch: PathBuf,
}

/// An export in progress. Dropped without [`complete`](Self::complete), it leaves nothing behind.
#[derive(Debug)]
pub(super) struct NcduExport {
    target: NcduTarget,
    timestamp: i64,
    /// The keys of the roots, by their paths as specified, without trailing slashes.
    roots: HashMap<Vec<u8>, Vec<u8>>,
    /// The key of the directory that the document describes.
    base: Vec<u8>,
    queue: Option<SyncSender<Block>>,
    sorter: Option<JoinHandle<std::io::Result<Sorter>>>,
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Sorter")
    }
}

impl NcduExport {
    /// Begins an export of walks from `roots` at `timestamp`.
    ///
    /// # Errors
    /// When the current directory cannot be found, which relative roots need.
    pub(super) fn begin(target: NcduTarget, roots: &[PathBuf], timestamp: i64) -> Result<NcduExport> {
        let mut keys = HashMap::new();
        let mut base: Option<Vec<u8>> = None;
        for root in roots {
            let real = root.canonicalize().or_else(|_| std::path::absolute(root));
            let real = real.map_err(|error| Error::io("find the path of", root, error))?;
            let key = key_of(&real);
            let directory = if real.is_dir() { key.clone() } else { parent_of(&key).to_vec() };
            base = Some(base.map_or(directory.clone(), |base| common(&base, &directory).to_vec()));
            keys.insert(trimmed(root.as_os_str().as_bytes()).to_vec(), key);
        }
        let (queue, blocks) = sync_channel::<Block>(QUEUE);
        let mut sorter = Sorter::new(target.scratch.clone());
        let sorter = std::thread::spawn(move || {
            blocks.into_iter().try_for_each(|block| sorter.add(&block))?;
            Ok(sorter)
        });
        Ok(NcduExport {
            target,
            timestamp,
            roots: keys,
            base: base.unwrap_or_default(),
            queue: Some(queue),
            sorter: Some(sorter),
        })
    }

    /// Adds a root.
    pub(super) fn root(&self, path: &[u8], stat: &Stat) {
        if let Some(key) = self.roots.get(trimmed(path)) {
            self.one(key, None, &Row::from(stat));
        }
    }

    /// Adds entries of a directory.
    pub(super) fn entries(&self, directory: Directory<'_>, batch: &Batch) {
        let Some(key) = self.key(directory) else { return };
        let mut block = Block::default();
        batch.iter().for_each(|(name, stat)| block.push(&key, Some(name), &Row::from(stat)));
        self.send(block);
    }

    /// Adds an entry that was left out.
    pub(super) fn left_out(&self, directory: Directory<'_>, name: &[u8], what: Skipped) {
        let known = match what {
            Skipped::Excluded | Skipped::SnapshotDirectory => Known::Excluded,
            Skipped::MountPoint => Known::OtherFileSystem,
            // A root has a row of its own; what is gone has none.
            Skipped::Root | Skipped::Vanished => return,
        };
        if let Some(key) = self.key(directory) {
            self.one(&key, Some(name), &Row::of(known));
        }
    }

    /// Remarks that an entry of a directory could not be read, or the directory itself.
    pub(super) fn unreadable(&self, directory: Directory<'_>, name: Option<&[u8]>) {
        if let Some(key) = self.key(directory) {
            self.one(&key, name, &if name.is_some() { Row::of(Known::Unreadable) } else { Row::unlisted() });
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The first error of the scratch file, or one of writing; the target is then unchanged.
    pub(super) fn complete(mut self) -> Result<()> {
        self.queue = None;
        let scratch = |error| {
            Error::io("write a scratch file in", &self.target.scratch, error)
                .advise("name another directory with --scratch")
        };
        let mut sorted = match self.sorter.take().map(JoinHandle::join) {
            Some(Ok(sorter)) => sorter.and_then(Sorter::finish).map_err(scratch)?,
            _ => {
                let cause = "its thread ended unexpectedly";
                return Err(Error::new(ErrorKind::Io, "write the export", cause).at(&self.target.path));
            }
        };
        write_atomically(&self.target.path, |out| nested::write(&mut sorted, &self.base, self.timestamp, out))
    }

    /// The key of a directory of the walk: that of its root, and the names below it.
    fn key(&self, directory: Directory<'_>) -> Option<Vec<u8>> {
        let path = directory.path();
        let mut end = path.len();
        for _ in 0..directory.depth() {
            end = path[..end].iter().rposition(|&byte| byte == b'/')?;
        }
        let mut key = self.roots.get(trimmed(&path[..end]))?.clone();
        key.extend(path[end..].iter().map(|&byte| if byte == b'/' { 0 } else { byte }));
        Some(key)
    }

    fn one(&self, directory: &[u8], name: Option<&[u8]>, row: &Row) {
        let mut block = Block::default();
        block.push(directory, name, row);
        self.send(block);
    }

    fn send(&self, block: Block) {
        if let Some(queue) = &self.queue {
            // A thread that failed has closed its end; joining it returns the error.
            let _ = queue.send(block);
        }
    }
}

/// A path without trailing slashes; `/` is empty.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// The key of an absolute path.
fn key_of(path: &Path) -> Vec<u8> {
    let mut key = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                key.push(0);
                key.extend_from_slice(name.as_bytes());
            }
            Component::ParentDir => key.truncate(parent_of(&key).len()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    key
}

fn parent_of(key: &[u8]) -> &[u8] {
    &key[..key.iter().rposition(|&byte| byte == 0).unwrap_or(0)]
}

/// The key of the nearest directory that contains both.
fn common<'k>(one: &'k [u8], other: &[u8]) -> &'k [u8] {
    let mut end = 0;
    for (here, there) in one.split(|&byte| byte == 0).zip(other.split(|&byte| byte == 0)).skip(1) {
        if here != there {
            break;
        }
        end += 1 + here.len();
    }
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_nearest_common_directory() {
        let key = |path: &str| key_of(Path::new(path));
        for (one, other, shared) in
            [("/a/b", "/a/c", "/a"), ("/a", "/a/b", "/a"), ("/a/bc", "/a/b", "/a"), ("/", "/a", "/"), ("/x", "/y", "/")]
        {
            assert_eq!(common(&key(one), &key(other)), key(shared), "{one} {other}");
            assert_eq!(common(&key(other), &key(one)), key(shared), "{other} {one}");
        }
        assert_eq!(key("/a/../b/./c"), key("/b/c"));
        assert_eq!((trimmed(b"//"), trimmed(b"/a//"), trimmed(b"a")), (&b""[..], &b"/a"[..], &b"a"[..]));
    }
}
