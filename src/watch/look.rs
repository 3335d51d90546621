//! The truth: what the file system says now about a name, an inode or a directory, as a walk would see it.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ioctl_getflags, openat};
use rustix::io::Errno;

use super::tree::{Entry, Odd, Trouble};
use crate::scan::walk::{LISTING_BYTES, is_gone, look_at, stat_at, stat_open, stat_path};
use crate::scan::{Kind, Stat};
use crate::sys::{Handle, handle_of, open_handle};

/// The flag of a directory that finds names however they are written (`FS_CASEFOLD_FL` in Linux
/// `include/uapi/linux/fs.h`).
const FOLDS_NAMES: u32 = 0x4000_0000;

/// A file system, through the root of its mount.
#[derive(Debug)]
pub(super) struct Truth {
    mount: OwnedFd,
    device: u64,
}

/// What is at a name.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing any more.
    Gone,
    /// Something; for a directory to be listed with its handle.
    There(Entry, Option<Handle>),
}

/// The content of a directory.
#[derive(Debug)]
pub(super) struct Listing {
    /// The directory itself.
    pub(super) stat: Stat,
    /// Names, what they lead to, and the handles of directories.
    pub(super) entries: Vec<(Box<[u8]>, Entry, Option<Handle>)>,
    /// Why it is not complete.
    pub(super) trouble: Option<Trouble>,
}

impl Truth {
    /// The file system that is mounted at `mount`, an open directory.
    pub(super) fn of(mount: OwnedFd, device: u64) -> Truth {
        Truth { mount, device }
    }

    /// The root of the mount.
    pub(super) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Opens an inode without access to its content. `None` if it is gone.
    pub(super) fn open(&self, handle: &[u8]) -> Option<OwnedFd> {
        open_handle(self.mount(), handle, OFlags::PATH).ok()
    }

    /// The attributes of an inode on this file system; `None` if it is gone.
    pub(super) fn inode(&self, handle: &[u8]) -> Option<Stat> {
        self.stat(self.open(handle)?.as_fd())
    }

    /// The attributes of an open inode, if it is one of this file system.
    pub(super) fn stat(&self, inode: BorrowedFd<'_>) -> Option<Stat> {
        stat_open(inode).ok().filter(|stat| stat.device == self.device)
    }

    /// Opens the directory at a path below the root, to look at its entries.
    pub(super) fn directory(&self, path: &CStr) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.mount(), path, flags, Mode::empty()).ok()
    }

    /// Whether a directory finds names however they are written; also if it does not say.
    pub(super) fn folds_names(&self, directory: &[u8]) -> bool {
        let opened = open_handle(self.mount(), directory, OFlags::RDONLY | OFlags::DIRECTORY);
        // One that is gone has no names.
        opened.is_ok_and(|opened| ioctl_getflags(&opened).map_or(true, |flags| flags.bits() & FOLDS_NAMES != 0))
    }

    /// The attributes of what is at a path below an open directory, if it is an inode of this file system.
    pub(super) fn path(&self, directory: BorrowedFd<'_>, path: &CStr) -> Option<Stat> {
        stat_path(directory, path).ok().filter(|stat| stat.device == self.device)
    }

    /// The attributes of what is at a path below the root, if it is an inode of this file system, and neither a
    /// symbolic link nor a mount point.
    pub(super) fn plain(&self, path: &CStr) -> Option<Stat> {
        let (stat, is_mount) = stat_at(self.mount(), path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_plain = is_mount == Some(false) && !matches!(stat.kind, Kind::Symlink { .. });
        (is_plain && stat.device == self.device).then_some(stat)
    }

    /// The handle of what is at a path below the root.
    pub(super) fn handle(&self, path: &CStr) -> Option<Handle> {
        handle_of(self.mount(), path).ok()
    }

    /// What is at a name in an open directory.
    pub(super) fn name(&self, directory: BorrowedFd<'_>, name: &CStr) -> Seen {
        match look_at(directory, name) {
            Err(errno) if is_gone(errno) => Seen::Gone,
            Err(errno) => Seen::There(Entry::Odd(Odd::Unreadable(trouble("read the inode of", errno))), None),
            Ok((stat, is_mount)) => {
                if stat.device != self.device || is_mount == Some(true) {
                    return Seen::There(Entry::Odd(Odd::MountPoint), None);
                }
                // A directory that vanishes between the two calls is reported again.
                let handle = (stat.kind == Kind::Directory).then(|| handle_of(directory, name).ok()).flatten();
                Seen::There(Entry::Inode(stat), handle)
            }
        }
    }

    /// The content of a directory; `Err` if it cannot be opened, with `None` if it is gone.
    pub(super) fn list(&self, handle: &Handle, buffer: &mut Vec<u8>) -> Result<Listing, Option<Trouble>> {
        let directory = open_handle(self.mount(), handle.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = directory.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::STALE) => None,
            errno => Some(trouble("open the directory", errno.unwrap_or(Errno::IO))),
        })?;
        let stat = self.stat(directory.as_fd()).ok_or(None)?;
        let mut listing = Listing { stat, entries: Vec::new(), trouble: None };
        buffer.reserve(LISTING_BYTES);
        let mut names = RawDir::new(&directory, spare(buffer));
        while let Some(entry) = names.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // Removed while it was listed: it is empty.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    listing.trouble = Some(trouble("list the directory", errno));
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Seen::There(entry, handle) = self.name(directory.as_fd(), name) {
                listing.entries.push((name.to_bytes().into(), entry, handle));
            }
        }
        Ok(listing)
    }
}

fn spare(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.spare_capacity_mut()
}

fn trouble(operation: &'static str, errno: Errno) -> Trouble {
    (operation, errno.raw_os_error())
}
