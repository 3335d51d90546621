//! One file for each object, in the directories that its key names, on the file system of the target.
//!
//! Its best settings: names relative to an open directory, one `syncfs` at the end instead of an `fsync` for each file;
//! files of a directory are opened, deleted and queried for attributes in the order of their inodes.

use super::{Engine, Piece, Reader, Result, Session, Writer};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

pub struct Files;

impl Engine for Files {
    fn create(&self, place: &Path, _objects: u64, _total_bytes: u64) -> Result<Box<dyn Writer>> {
        let root = directory(CWD, place)?;
        Ok(Box::new(Making { directory: root.try_clone()?, root, inside: String::new() }))
    }

    fn open(&self, place: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Tree::open(place)?))
    }

    fn delete(&self, place: &Path, _keys: &[String]) -> Result<bool> {
        let root = directory(CWD, place)?;
        remove_below(&root)?;
        rustix::fs::syncfs(&root)?;
        Ok(true)
    }

    fn set_modes(&self, place: &Path, keys: &[String]) -> Result<bool> {
        let root = directory(CWD, place)?;
        for key in keys {
            rustix::fs::chmodat(&root, key, Mode::from_raw_mode(0o640), AtFlags::empty())?;
        }
        rustix::fs::syncfs(&root)?;
        Ok(true)
    }
}

fn directory(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

struct Making {
    root: OwnedFd,
    directory: OwnedFd,
    inside: String,
}

impl Making {
    fn enter(&mut self, inside: &str) -> Result<()> {
        for (at, _) in inside.match_indices('/').chain([(inside.len(), "")]) {
            match rustix::fs::mkdirat(&self.root, &inside[..at], Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.directory = directory(&self.root, inside)?;
        self.inside = inside.to_owned();
        Ok(())
    }
}

impl Writer for Making {
    fn put(&mut self, key: &str, content: &[u8]) -> Result<()> {
        let (inside, name) = key.rsplit_once('/').ok_or("a key without a directory")?;
        if inside != self.inside {
            self.enter(inside)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::from_raw_mode(0o644))?;
        let mut rest = content;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = &rest[written..];
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }
}

/// A tree to read from; also a mounted squashfs.
pub struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub fn open(place: &Path) -> Result<Self> {
        Ok(Self { root: directory(CWD, place)? })
    }
}

impl Reader for Tree {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Reading { tree: self, buffer: Vec::new() }))
    }

    fn load(&self, visit: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let mut buffer = Vec::new();
        walk(&self.root, &mut Vec::new(), &mut |directory, name, key| {
            let size = read_whole(directory, name, &mut buffer)?;
            visit(Piece { key, size, start: 0, bytes: &buffer[..size] });
            Ok(())
        })
    }

    fn list(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        walk(&self.root, &mut Vec::new(), &mut |_, _, key| {
            visit(key);
            Ok(())
        })
    }

    fn list_attributes(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<bool> {
        walk(&self.root, &mut Vec::new(), &mut |directory, name, key| {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            visit(key, stat.st_size as u64);
            Ok(())
        })?;
        Ok(true)
    }
}

struct Reading<'a> {
    tree: &'a Tree,
    buffer: Vec<u8>,
}

impl Session for Reading<'_> {
    fn read(&mut self, key: &str, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let size = read_whole(&self.tree.root, key, &mut self.buffer)?;
        visit(&self.buffer[..size]);
        Ok(())
    }
}

/// Reads a file into a buffer that only grows, so that no byte is zeroed twice.
fn read_whole(at: &OwnedFd, name: impl rustix::path::Arg, buffer: &mut Vec<u8>) -> Result<usize> {
    let file = rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = rustix::fs::fstat(&file)?.st_size as usize;
    if buffer.len() < size {
        buffer.resize(size.next_power_of_two(), 0);
    }
    let mut filled = 0;
    while filled < size {
        match rustix::io::read(&file, &mut buffer[filled..size])? {
            0 => return Err("a file became shorter".into()),
            read => filled += read,
        }
    }
    Ok(size)
}

/// Names in a directory in the order of their inodes, and whether each is a directory.
fn names(directory: &OwnedFd) -> Result<Vec<(u64, CString, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && name != c"lost+found" {
            found.push((entry.ino(), name.to_owned(), entry.file_type() == FileType::Directory));
        }
    }
    found.sort();
    Ok(found)
}

type Visit<'a> = dyn FnMut(&OwnedFd, &CString, &[u8]) -> Result<()> + 'a;

fn walk(at: &OwnedFd, key: &mut Vec<u8>, visit: &mut Visit<'_>) -> Result<()> {
    for (_, name, is_directory) in names(at)? {
        let above = key.len();
        if above > 0 {
            key.push(b'/');
        }
        key.extend_from_slice(name.to_bytes());
        if is_directory {
            walk(&directory(at, &name)?, key, visit)?;
        } else {
            visit(at, &name, key)?;
        }
        key.truncate(above);
    }
    Ok(())
}

fn remove_below(at: &OwnedFd) -> Result<()> {
    for (_, name, is_directory) in names(at)? {
        if is_directory {
            remove_below(&directory(at, &name)?)?;
        }
        rustix::fs::unlinkat(at, &name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
    }
    Ok(())
}
