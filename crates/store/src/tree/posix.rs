//! One file of the operating system: its attributes, its data map, and how it is opened.
//!
//! Everything is relative to an open directory, by a name that is one component; symlinks are never followed. Where the
//! kernel has no call for that (extended attributes of what cannot be opened), the directory is named through
//! `/proc/self/fd`, which is the open directory itself and not a path to it; without `/proc` such attributes are
//! omitted.
//!
//! Survives: file systems without extended attributes, attributes that may not be read (counted), files that were
//! replaced between `stat` and `open` (detected by [`FileStatus::identity`]), sparse maps of any length (after
//! [`MOST_RUNS`] runs the rest counts as data: its holes are read as zeroes).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags, fgetxattr, flistxattr, lgetxattr, llistxattr,
    openat, seek, statx,
};
use rustix::io::Errno;

use crate::format::attributes::{Attributes, Holes, Xattrs};
use crate::format::entry::Time;

/// Most runs of data that are distinguished in a sparse file.
pub const MOST_RUNS: usize = 1 << 16;

/// Size of the largest extended attribute, and of the longest list of their names, on Linux.
pub(super) const LARGEST_XATTR_BYTES: usize = 1 << 16;

/// Most seconds in a record: five bytes, signed (docs/FORMAT.md, section 6).
const MOST_SECONDS: i64 = (1 << 39) - 1;

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    // What was a file a moment ago may be a fifo or a terminal now.
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Device and inode: the identity of a file.
pub type Identity = (u64, u64);

/// The result of `statx` for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// Its identity.
    pub identity: Identity,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Number of its names.
    pub link_count: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes allocated for it.
    pub allocated_bytes: u64,
    /// Modification time.
    pub mtime: Time,
    /// Access time.
    pub atime: Time,
    /// Change time, of content or attributes.
    pub ctime: Time,
    /// When it was created, in nanoseconds since 1970; 0 if the file system does not say.
    pub birth_nanoseconds: i64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl FileStatus {
    fn of(found: &Statx) -> FileStatus {
        let time = |time: rustix::fs::StatxTimestamp| Time {
            seconds: time.tv_sec.clamp(-MOST_SECONDS - 1, MOST_SECONDS),
            nanoseconds: time.tv_nsec,
        };
        FileStatus {
            identity: (u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor), found.stx_ino),
            mode: found.stx_mode,
            uid: found.stx_uid,
            gid: found.stx_gid,
            link_count: found.stx_nlink,
            size_bytes: found.stx_size,
            allocated_bytes: found.stx_blocks.saturating_mul(512),
            mtime: time(found.stx_mtime),
            atime: time(found.stx_atime),
            ctime: time(found.stx_ctime),
            birth_nanoseconds: match found.stx_mask & StatxFlags::BTIME.bits() {
                0 => 0,
                _ => {
                    found.stx_btime.tv_sec.saturating_mul(1_000_000_000).saturating_add(found.stx_btime.tv_nsec.into())
                }
            },
            device: (found.stx_rdev_major, found.stx_rdev_minor),
        }
    }

    /// Which file it is, among all that were there in one run: an inode number may be that of another file later.
    pub(super) fn file(&self) -> (Identity, i64) {
        (self.identity, self.birth_nanoseconds)
    }

    /// What kind of file it is.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode.into())
    }

    /// Whether content or attributes changed between `self` and `later`, two results for the same file.
    pub fn has_changed(&self, later: &FileStatus) -> bool {
        (self.identity, self.size_bytes, self.mtime, self.ctime, self.mode)
            != (later.identity, later.size_bytes, later.mtime, later.ctime, later.mode)
    }

    /// The attributes that `statx` returns: without extended ones and holes, and without change and birth time, which
    /// belong to the file and not to a copy.
    pub fn attributes(&self, with_access_time: bool) -> Attributes {
        Attributes {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime,
            ctime: None,
            btime: None,
            atime: with_access_time.then_some(self.atime),
            xattrs: Vec::new(),
            holes: None,
        }
    }
}

/// The status of an open file.
///
/// # Errors
/// Errors of `statx`.
pub fn status(file: impl AsFd) -> Result<FileStatus, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, WANTED).map(|found| FileStatus::of(&found))
}

/// The status of the entry `name` of a directory.
///
/// # Errors
/// Errors of `statx`.
pub fn status_at(directory: impl AsFd, name: &CStr) -> Result<FileStatus, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags, WANTED).map(|found| FileStatus::of(&found))
}

/// Opens the directory `name`; fails for a symlink to one.
///
/// # Errors
/// Errors of `openat`.
pub fn open_directory(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

/// Reopens the parent of an open directory, if it is still the one with `identity`.
///
/// # Errors
/// Errors of `openat`; `ESTALE` if the directory was moved.
pub fn open_parent(directory: impl AsFd, identity: Identity) -> Result<OwnedFd, Errno> {
    let parent = openat(directory, c"..", DIRECTORY, Mode::empty())?;
    if status(&parent)?.identity == identity { Ok(parent) } else { Err(Errno::STALE) }
}

/// Opens the file `name` for reading, without changing its access time where that is allowed.
///
/// # Errors
/// Errors of `openat`.
pub fn open_file(directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    match openat(&directory, name, FILE | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may request that.
        Err(Errno::PERM) => openat(&directory, name, FILE, Mode::empty()),
        opened => opened,
    }
}

/// Names of the entries of a directory, sorted by bytes, without `.` and `..`.
///
/// # Errors
/// Errors of reading the directory.
pub fn sorted_names(directory: impl AsFd) -> Result<Vec<Box<CStr>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if ![c".", c".."].contains(&name) {
            names.push(Box::from(name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads extended attributes; reuses its memory.
#[derive(Debug)]
pub struct XattrReader {
    names: Vec<u8>,
    value: Vec<u8>,
    /// Existing attributes that may not be read.
    pub unreadable: u64,
}

impl Default for XattrReader {
    fn default() -> XattrReader {
        XattrReader {
            names: Vec::with_capacity(LARGEST_XATTR_BYTES),
            value: Vec::with_capacity(LARGEST_XATTR_BYTES),
            unreadable: 0,
        }
    }
}

impl XattrReader {
    /// Names and values of an open file, by name.
    ///
    /// # Errors
    /// Errors of `flistxattr` and `fgetxattr`.
    pub fn of_file(&mut self, file: impl AsFd) -> Result<Xattrs, Errno> {
        let file = file.as_fd();
        self.read(|names| flistxattr(file, names), |name, value| fgetxattr(file, name, value))
    }

    /// Names and values of the entry `name` of a directory, by name; of a symlink itself, not of its target.
    ///
    /// # Errors
    /// Errors of `llistxattr` and `lgetxattr`.
    pub fn of_entry(&mut self, directory: impl AsFd, name: &CStr) -> Result<Xattrs, Errno> {
        let path = entry_path(directory, name);
        let path = path.as_c_str();
        self.read(
            |names| llistxattr(path, names).or_else(|errno| if errno == Errno::NOENT { Ok(0) } else { Err(errno) }),
            |name, value| lgetxattr(path, name, value),
        )
    }

    fn read(
        &mut self,
        list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
        get: impl Fn(&CStr, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Xattrs, Errno> {
        self.names.resize(LARGEST_XATTR_BYTES, 0);
        let length = match list(&mut self.names) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
            length => length?,
        };
        let mut xattrs = Vec::new();
        for name in self.names[..length].split_inclusive(|&byte| byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            self.value.resize(LARGEST_XATTR_BYTES, 0);
            match get(name, &mut self.value) {
                Ok(length) => xattrs.push((name.to_bytes().to_vec(), self.value[..length].to_vec())),
                // It was removed after it was listed.
                Err(Errno::NODATA) => {}
                Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => self.unreadable += 1,
                Err(errno) => return Err(errno),
            }
        }
        xattrs.sort_unstable();
        xattrs.dedup_by(|later, earlier| later.0 == earlier.0);
        Ok(xattrs)
    }
}

/// A path to an entry of an open directory, for calls that take no descriptor.
pub fn entry_path(directory: impl AsFd, name: &CStr) -> CString {
    let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    // A `CStr` has no NUL inside, and digits neither.
    CString::new(path).unwrap_or_default()
}

/// The data map of an open file that is not empty; `None` if it has no holes, or its file system does not report them.
///
/// # Errors
/// Errors of `lseek`.
pub fn holes(file: impl AsFd, size_bytes: u64) -> io::Result<Option<Holes>> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let begin = match seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin.min(size_bytes),
            // Only a hole up to the end.
            Err(Errno::NXIO) => break,
            // The file system does not report holes.
            Err(Errno::INVAL) if at == 0 => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if begin == size_bytes {
            break;
        }
        let end = if data.len() + 1 == MOST_RUNS {
            size_bytes
        } else {
            match seek(&file, SeekFrom::Hole(begin)) {
                Ok(end) => end.min(size_bytes),
                // It was truncated meanwhile.
                Err(Errno::NXIO) => size_bytes,
                Err(errno) => return Err(errno.into()),
            }
        };
        match data.last_mut() {
            // A file that changes meanwhile may show adjacent runs, and empty ones.
            Some((last, length)) if *last + *length == begin => *length += end.saturating_sub(begin),
            _ if end > begin => data.push((begin, end - begin)),
            _ => {}
        }
        at = end.max(begin + 1);
    }
    Ok((data != [(0, size_bytes)]).then_some(Holes { size_bytes, data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt, symlink};

    fn directory() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(File::open(directory.path()).unwrap());
        (directory, opened)
    }

    #[test]
    fn names_are_sorted_by_bytes() {
        let (path, opened) = directory();
        for name in ["b", "a.b", "a", "B", "-", "\u{e9}"] {
            File::create(path.path().join(name)).unwrap();
        }
        let names = sorted_names(&opened).unwrap();
        let names: Vec<&str> = names.iter().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["-", "B", "a", "a.b", "b", "\u{e9}"]);
    }

    #[test]
    fn a_symlink_is_opened_neither_as_directory_nor_as_file() {
        let (path, opened) = directory();
        symlink("/", path.path().join("link")).unwrap();
        assert!(open_directory(&opened, c"link").is_err());
        assert!(open_file(&opened, c"link").is_err());
        let status = status_at(&opened, c"link").unwrap();
        assert_eq!((status.file_type(), status.size_bytes), (FileType::Symlink, 1));
    }

    #[test]
    fn a_parent_that_is_another_is_refused() {
        let (path, opened) = directory();
        fs::create_dir_all(path.path().join("a/b")).unwrap();
        fs::create_dir(path.path().join("c")).unwrap();
        let a = open_directory(&opened, c"a").unwrap();
        let b = open_directory(&a, c"b").unwrap();
        let identity = status(&a).unwrap().identity;
        assert_eq!(status(open_parent(&b, identity).unwrap()).unwrap().identity, identity);
        fs::rename(path.path().join("a/b"), path.path().join("c/b")).unwrap();
        assert_eq!(open_parent(&b, identity).unwrap_err(), Errno::STALE);
    }

    #[test]
    fn holes_are_where_nothing_was_written() {
        let (path, opened) = directory();
        let file = File::create(path.path().join("sparse")).unwrap();
        file.set_len(10 << 20).unwrap();
        let empty = Holes { size_bytes: 10 << 20, data: Vec::new() };
        let reopened = || open_file(&opened, c"sparse").unwrap();
        let found = holes(reopened(), 10 << 20).unwrap();
        if found.is_none() {
            return; // This file system does not report holes.
        }
        assert_eq!(found, Some(empty));
        file.write_all_at(b"x", 1 << 20).unwrap();
        file.write_all_at(b"y", (10 << 20) - 1).unwrap();
        file.sync_all().unwrap();
        let found = holes(reopened(), 10 << 20).unwrap().unwrap();
        assert_eq!(found.data.len(), 2, "{found:?}");
        assert!(found.data.iter().all(|&(_, length)| length <= 1 << 16), "{found:?}");
        assert!(found.data[0].0 <= 1 << 20 && found.data[1].0 + found.data[1].1 == 10 << 20, "{found:?}");
        fs::write(path.path().join("full"), [1; 5000]).unwrap();
        assert_eq!(holes(open_file(&opened, c"full").unwrap(), 5000).unwrap(), None);
    }

    #[test]
    fn a_status_is_that_of_the_file() {
        let (path, opened) = directory();
        fs::write(path.path().join("file"), b"content").unwrap();
        let (before, known) = (status_at(&opened, c"file").unwrap(), fs::metadata(path.path().join("file")).unwrap());
        assert_eq!((before.size_bytes, u32::from(before.mode)), (7, known.mode()));
        assert_eq!((before.mtime.seconds, i64::from(before.mtime.nanoseconds)), (known.mtime(), known.mtime_nsec()));
        assert_eq!(before.allocated_bytes, known.blocks() * 512);
        assert!(!before.has_changed(&status(open_file(&opened, c"file").unwrap()).unwrap()));
        fs::write(path.path().join("file"), b"longer content").unwrap();
        assert!(before.has_changed(&status_at(&opened, c"file").unwrap()));
    }
}
