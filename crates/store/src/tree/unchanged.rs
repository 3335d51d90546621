//! Whether the store has what a source has, so that it need not be stored again.
//!
//! A listing shows kind, size, modification time, mode and owner ([`is_same`]). The rest is compared only where those
//! are the same: extended attributes, with them access control lists, the target of a symlink, the numbers of a device.
//! A record is read for that, unless the index says that it has nothing else ([`Entry`](crate::Entry::is_plain)).
//!
//! Not compared: access times, as reading a file is no change of it; where the holes of a file are; attributes that are
//! hidden from this user, which the store may have from another; and content, which has not changed if size and
//! modification time have not.
//!
//! Survives: damaged records ([`Comparison::Damaged`]), and sources that cannot be read, which are for whoever stores
//! them to report.

use rustix::fs::{FileType, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::posix::{FileStatus, XattrReader};
use super::walk::SourceEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::Xattrs;
use crate::format::entry::Kind;
use crate::{Buffer, Listed, Store};

/// What a listing does not show of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unlisted {
    /// Extended attributes, by name.
    pub xattrs: Xattrs,
    /// The target of a symlink, or the numbers of a special file; nothing of others.
    pub content: Vec<u8>,
}

impl Unlisted {
    /// Whether the store has this, and nothing else but what may be hidden from this user: that is no reason to forget
    /// it.
    fn is_in(&self, stored: &Unlisted, may_be_hidden: impl Fn(&[u8]) -> bool) -> bool {
        self.content == stored.content
            && self.xattrs.iter().all(|xattr| stored.xattrs.contains(xattr))
            && stored.xattrs.iter().all(|xattr| self.xattrs.contains(xattr) || may_be_hidden(&xattr.0))
    }
}

/// What the store has of an object that is the same as far as a listing shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Same,
    Other,
    /// It cannot be read.
    Damaged,
}

/// Whether the store has the same file, as far as a listing shows.
pub(super) fn is_same(status: &FileStatus, listed: &Listed) -> bool {
    let entry = &listed.entry;
    let has_size = |kinds: &[Kind]| kinds.contains(&entry.kind) && entry.size_bytes == status.size_bytes;
    let alike = match status.file_type() {
        FileType::RegularFile => has_size(&[Kind::File, Kind::Large, Kind::Link]),
        FileType::Symlink => has_size(&[Kind::Symlink]),
        FileType::Directory => entry.kind == Kind::Directory,
        _ => entry.kind == Kind::Special,
    };
    alike && (entry.mtime, entry.mode, entry.uid, entry.gid) == (status.mtime, status.mode, status.uid, status.gid)
}

/// Compares a file of a source with what the store has and [`is_same`]; with `verify` also whether that can be read.
///
/// # Errors
/// Errors of the store that are no damage of the object.
pub(super) fn compare(
    store: &Store,
    found: &SourceEntry,
    listed: &Listed,
    xattrs: &mut XattrReader,
    verify: bool,
) -> Result<Comparison> {
    let unreadable = xattrs.unreadable;
    let compared = match unlisted_of(found, xattrs) {
        Ok(unlisted) => {
            let is_blind = xattrs.unreadable > unreadable;
            let may_be_hidden = |name: &[u8]| is_blind || is_for_root(name) && !geteuid().is_root();
            compare_unlisted(store, &unlisted, listed, verify, may_be_hidden)?
        }
        // Storing it says why.
        Err(_) => Comparison::Other,
    };
    if compared != Comparison::Same {
        // Storing it counts them once more.
        xattrs.unreadable = unreadable;
    }
    Ok(compared)
}

/// Compares what a listing does not show, all of it, with what the store has.
///
/// # Errors
/// As [`compare`].
pub(super) fn compare_with(store: &Store, unlisted: &Unlisted, listed: &Listed, verify: bool) -> Result<Comparison> {
    compare_unlisted(store, unlisted, listed, verify, |_| false)
}

fn compare_unlisted(
    store: &Store,
    unlisted: &Unlisted,
    listed: &Listed,
    verify: bool,
    may_be_hidden: impl Fn(&[u8]) -> bool,
) -> Result<Comparison> {
    match stored(store, listed) {
        Err(error) if is_damage(&error) => Ok(Comparison::Damaged),
        Err(error) => Err(error),
        Ok(Some(stored)) if !unlisted.is_in(&stored, may_be_hidden) => Ok(Comparison::Other),
        Ok(None) => Ok(Comparison::Other),
        Ok(_) if verify && !is_intact(store, listed)? => Ok(Comparison::Damaged),
        Ok(_) => Ok(Comparison::Same),
    }
}

/// Whether only root sees an extended attribute with this name.
fn is_for_root(name: &[u8]) -> bool {
    name.starts_with(b"trusted.")
}

/// What a listing does not show of a file of the source.
///
/// # Errors
/// Errors of `readlinkat` and of reading extended attributes.
pub(super) fn unlisted_of(found: &SourceEntry, xattrs: &mut XattrReader) -> std::result::Result<Unlisted, Errno> {
    let (directory, name) = (&found.directory, &*found.name);
    let xattrs = match name.to_bytes() {
        b"." => xattrs.of_file(directory)?,
        _ => xattrs.of_entry(directory, name)?,
    };
    let content = match found.status.file_type() {
        FileType::RegularFile | FileType::Directory => Vec::new(),
        FileType::Symlink => readlinkat(directory, name, Vec::new())?.into_bytes(),
        _ => device_numbers(found.status.device),
    };
    Ok(Unlisted { xattrs, content })
}

/// The content of a special file: major and minor number of the device.
pub(super) fn device_numbers((major, minor): (u32, u32)) -> Vec<u8> {
    [major.to_le_bytes(), minor.to_le_bytes()].concat()
}

/// What a listing of the store does not show; `None` if it is gone.
fn stored(store: &Store, listed: &Listed) -> Result<Option<Unlisted>> {
    match listed.entry.kind {
        Kind::Symlink | Kind::Special => {
            let mut buffer = Buffer::default();
            let read = store.read(&listed.key, &mut buffer)?;
            Ok(read.map(|object| Unlisted { xattrs: object.attributes.xattrs, content: object.content.to_vec() }))
        }
        _ if listed.entry.is_plain => Ok(Some(Unlisted::default())),
        _ => {
            let status = store.stat(&listed.key)?;
            Ok(status.map(|status| Unlisted { xattrs: status.attributes.xattrs, content: Vec::new() }))
        }
    }
}

/// Whether an object that the store lists can be read; the content of a file with several names through one of them.
fn is_intact(store: &Store, listed: &Listed) -> Result<bool> {
    let read = || match listed.entry.kind {
        Kind::Directory | Kind::Symlink | Kind::Special => {
            let mut buffer = Buffer::default();
            store.read(&listed.key, &mut buffer).map(drop)
        }
        _ => {
            let Some(mut content) = store.content(&listed.key)? else { return Ok(()) };
            while content.next_piece()?.is_some() {}
            Ok(())
        }
    };
    match read() {
        Ok(()) => Ok(true),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_from_a_user_is_not_forgotten() {
        let unlisted = |xattrs: &[(&str, &str)]| {
            let bytes = |&(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
            Unlisted { xattrs: xattrs.iter().map(bytes).collect(), content: Vec::new() }
        };
        let stored = unlisted(&[("trusted.a", "1"), ("user.b", "2")]);
        let seen = unlisted(&[("user.b", "2")]);
        assert!(seen.is_in(&stored, is_for_root) && !seen.is_in(&stored, |_| false));
        assert!(stored.is_in(&stored, |_| false));
        for other in [unlisted(&[]), unlisted(&[("user.b", "3")]), unlisted(&[("user.b", "2"), ("user.c", "4")])] {
            assert!(!other.is_in(&stored, is_for_root));
        }
        // One of which the value may not be read is as good as hidden, and a new one is not.
        assert!(unlisted(&[]).is_in(&stored, |_| true));
        assert!(!unlisted(&[("user.c", "4")]).is_in(&stored, |_| true));
        let elsewhere = Unlisted { content: b"/elsewhere".to_vec(), ..seen };
        assert!(!elsewhere.is_in(&stored, |_| true));
    }
}
