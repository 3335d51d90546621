//! The real device: a directory of a file system, accessed by system calls. Symbolic links in it are not followed: in a
//! store that several users share, or that root writes to for somebody, they would lead to anybody's files. Nor is
//! anything opened that is no regular file: opening a pipe waits for its other end.
//!
//! Every call goes straight to the kernel; nothing is buffered here. Interrupted calls are repeated, short reads and
//! writes continued. Errors are those of the kernel, with their number. The store decides whether a file must exist,
//! and whether it is complete and valid.
//!
//! After a failed `fdatasync`, Linux marks the pages that it could not write as clean: a later call succeeds and says
//! nothing about them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). So it is
//! never repeated here.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, OFlags, fadvise, statvfs};
use rustix::io::Errno;

use super::device::{Device, DeviceFile, Mode, NotAFile, Room};
use super::direct::DirectWrites;
use crate::format::geometry::PRIVATE_MODE;

/// Longer reads are limited to the file's size before memory is allocated for them.
const TRUSTED_LENGTH_BYTES: usize = 1 << 20;

/// Directories that the umask can only narrow.
const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// A directory of a file system.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    root: PathBuf,
    /// Permission bits of created files.
    file_mode: u16,
    direct: Arc<DirectWrites>,
}

impl Directory {
    /// The directory at `path`, which need not exist yet: [`create_directory`](Device::create_directory) of the empty
    /// path creates it.
    #[cfg(test)]
    pub(crate) fn new(path: impl Into<PathBuf>) -> Directory {
        Directory::with_mode(path, PRIVATE_MODE)
    }

    /// The same; files created in it get these permission bits, and directories the same plus search permission,
    /// whatever the umask.
    pub(crate) fn with_mode(path: impl Into<PathBuf>, file_mode: u16) -> Directory {
        Directory { root: path.into(), file_mode, direct: Arc::default() }
    }

    /// Whoever may read a directory may search it.
    fn directory_mode(&self) -> u32 {
        u32::from(self.file_mode | (self.file_mode & 0o444) >> 2)
    }

    /// Everything in a directory, by its kind: nothing is asked about each name.
    fn kinds(&self, directory: &str) -> io::Result<Vec<(String, fs::FileType)>> {
        let entries = match fs::read_dir(self.at(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut kinds = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                kinds.push((name, entry.file_type()?));
            }
        }
        Ok(kinds)
    }

    /// Fails if a directory between this one and a file is a link.
    fn refuse_links_above(&self, path: &str) -> io::Result<()> {
        let above = Path::new(path).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        above.map(|above| self.root.join(above)).try_for_each(|above| refuse_link(&above))
    }

    fn at(&self, path: &str) -> PathBuf {
        debug_assert!(
            path.is_empty() || path.split('/').all(|name| !matches!(name, "" | "." | "..")),
            "paths on a device are made by the store: {path}"
        );
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

/// For opening files of a store: follows no link, and waits for nobody at the other end of a pipe.
const CAREFULLY: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// Opens a file of a store.
///
/// # Errors
/// Something else is in its place; any error of opening it.
pub(super) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options.custom_flags(CAREFULLY).open(path);
    let found = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => return opened,
        Err(_) => match fs::symlink_metadata(path) {
            Ok(found) => found.file_type(),
            Err(_) => return opened,
        },
    };
    if found.is_file() { opened } else { Err(NotAFile(kind_of(found)).into()) }
}

/// What a name leads to that is no regular file.
fn kind_of(found: fs::FileType) -> &'static str {
    match () {
        () if found.is_symlink() => "a symbolic link",
        () if found.is_dir() => "a directory",
        () if found.is_fifo() => "a named pipe",
        () if found.is_socket() => "a socket",
        () => "a device",
    }
}

/// Of a mode: what is created in the directory gets its group.
const SET_GROUP_ID: u32 = 0o2000;

/// Fails if there is a link with this path.
fn refuse_link(path: &Path) -> io::Result<()> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link { Err(Errno::LOOP.into()) } else { Ok(()) }
}

/// Makes the names in a directory durable. Uses `fsync`: not every file system has `fdatasync` for directories.
fn sync_names(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(path)?.sync_all()
}

/// Creates `path` and its missing ancestors, and syncs the parents of those that it created.
fn create_synced(path: &Path, mode: u32) -> io::Result<()> {
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    let make = || fs::DirBuilder::new().mode(mode).create(path);
    let made = match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_synced(above.ok_or(error)?, mode)?;
            make()
        }
        made => made,
    };
    if made.is_ok() && mode != PRIVATE_DIRECTORY_MODE {
        // The umask may have removed bits for others, which a private mode does not have; and what is created inside
        // must get the group of the directory, if that was inherited.
        let inherited = fs::metadata(path)?.permissions().mode() & SET_GROUP_ID;
        fs::set_permissions(path, fs::Permissions::from_mode(mode | inherited))?;
    }
    match made {
        Ok(()) => above.map_or(Ok(()), sync_names),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

impl Device for Directory {
    fn place(&self) -> PathBuf {
        self.root.clone()
    }

    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read).create_new(mode == Mode::Create).mode(self.file_mode.into());
        if mode != Mode::Read {
            self.refuse_links_above(path)?;
        }
        let file = open_regular(&mut options, &self.at(path))?;
        if mode == Mode::Create && self.file_mode != PRIVATE_MODE {
            // The umask may have removed bits that the store's group should have.
            file.set_permissions(fs::Permissions::from_mode(self.file_mode.into()))?;
        }
        Ok(Arc::new(HostFile { file, direct: Arc::clone(&self.direct) }))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(self.at(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                // Removed since its name was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            // The store creates no names that are not UTF-8.
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn list_names(&self, directory: &str) -> io::Result<Vec<String>> {
        let files = self.kinds(directory)?.into_iter().filter(|(_, kind)| kind.is_file());
        Ok(files.map(|(name, _)| name).collect())
    }

    fn list_others(&self, directory: &str) -> io::Result<Vec<(String, NotAFile)>> {
        let others = self.kinds(directory)?.into_iter().filter(|(_, kind)| !kind.is_file());
        Ok(others.map(|(name, kind)| (name, NotAFile(kind_of(kind)))).collect())
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        create_synced(&self.root, self.directory_mode())?;
        let mut path = self.root.clone();
        for name in directory.split('/').filter(|name| !name.is_empty()) {
            path.push(name);
            refuse_link(&path)?;
            create_synced(&path, self.directory_mode())?;
            // An existing one may be from a process that was killed before it synced the name.
            sync_names(path.parent().unwrap_or(&self.root))?;
        }
        Ok(())
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        sync_names(&self.at(directory))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn room(&self) -> io::Result<Room> {
        let room = statvfs(&self.root)?;
        // As df counts: what is reserved for root is neither taken nor available.
        let blocks = room.f_blocks.saturating_sub(room.f_bfree).saturating_add(room.f_bavail);
        Ok(Room {
            total_bytes: blocks.saturating_mul(room.f_frsize),
            available_bytes: room.f_bavail.saturating_mul(room.f_frsize),
        })
    }
}

/// An open file. Its file offset is not used, so any number of threads may read and write it.
#[derive(Debug)]
struct HostFile {
    file: File,
    direct: Arc<DirectWrites>,
}

impl DeviceFile for HostFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_onto(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> io::Result<usize> {
        let length = if length > TRUSTED_LENGTH_BYTES {
            let there = self.size()?.saturating_sub(offset);
            length.min(usize::try_from(there).unwrap_or(usize::MAX))
        } else {
            length
        };
        let start = buffer.len();
        let reserved = if start == 0 { buffer.try_reserve_exact(length) } else { buffer.try_reserve(length) };
        reserved.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let end = start + length;
        // The kernel fills the whole capacity. If that is much more than requested, clearing is cheaper than the
        // surplus read.
        if buffer.capacity() - end > length / 8 {
            buffer.resize(end, 0);
            let read = self.read_at(&mut buffer[start..], offset);
            buffer.truncate(start + *read.as_ref().unwrap_or(&0));
            return read;
        }
        while buffer.len() < end {
            let at = offset.saturating_add((buffer.len() - start) as u64);
            match rustix::io::pread(&self.file, spare_capacity(buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    buffer.truncate(start);
                    return Err(error.into());
                }
            }
        }
        buffer.truncate(end);
        Ok(buffer.len() - start)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn append_at(&self, piece: &[u8], offset: u64) -> io::Result<()> {
        self.direct.write(&self.file, piece, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.file.set_len(size_bytes)
    }

    /// `sync_file_range` is not available without `unsafe`. On Linux, `POSIX_FADV_DONTNEED` begins with the same call
    /// in the kernel (`filemap_flush_range` in mm/filemap.c), and then drops clean pages, which those under write-back
    /// are not. Measured on ext4 and Linux 6.18, with a hint every 8 MiB: as fast as `sync_file_range`, and the whole
    /// file stays in the page cache.
    fn start_writeback(&self, offset: u64, length: u64) {
        if let Some(length) = NonZeroU64::new(length) {
            let _ = fadvise(&self.file, offset, Some(length), Advice::DontNeed);
        }
    }

    fn drop_cache(&self) {
        // Whether it fails or not, what is then read is on the device.
        let _ = self.file.sync_data();
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn will_read(&self, offset: u64, length: u64) {
        if let Some(length) = NonZeroU64::new(length) {
            let _ = fadvise(&self.file, offset, Some(length), Advice::WillNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn device() -> (tempfile::TempDir, Directory) {
        let directory = tempfile::tempdir().unwrap();
        let device = Directory::new(directory.path());
        (directory, device)
    }

    #[test]
    fn reads_give_what_was_written_and_stop_at_the_end() {
        let (_directory, device) = device();
        let file = device.open("f", Mode::Create).unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        file.write_at(&content[5..], 5).unwrap();
        file.write_at(&content[..5], 0).unwrap();
        file.start_writeback(0, 1 << 20);
        file.sync().unwrap();
        assert_eq!(file.size().unwrap(), 3_000_000);

        let mut part = vec![0; 1000];
        assert_eq!(file.read_at(&mut part, 2_999_900).unwrap(), 100);
        assert_eq!(part[..100], content[2_999_900..]);
        assert_eq!(file.read_at(&mut part, 4_000_000).unwrap(), 0);

        // With exactly the capacity needed, with far more, after other bytes, and past the end.
        for (start, capacity, length, offset) in [
            (0, 0, 20_000, 0),
            (0, 1 << 20, 20_000, 77),
            (3, 0, 2_000_000, 1),
            (3, 70_000, 70_000, 2_999_000),
            (0, 0, usize::MAX, 10),
            (9, 0, usize::MAX, u64::MAX),
        ] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.resize(start, 0xEE);
            let read = file.read_onto(&mut buffer, length, offset).unwrap();
            let from = content.len().min(usize::try_from(offset).unwrap());
            assert_eq!(read, length.min(content.len() - from), "{length} from {offset}");
            assert!(buffer[..start].iter().all(|&byte| byte == 0xEE));
            assert!(buffer[start..] == content[from..from + read], "{length} from {offset}");
        }
    }

    #[test]
    fn a_read_that_fails_leaves_the_buffer_as_it_was() {
        let (directory, _) = device();
        let file = File::create(directory.path().join("f")).unwrap();
        let file = HostFile { file, direct: Arc::default() };
        for capacity in [0, 1 << 16] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.extend_from_slice(b"before");
            let error = file.read_onto(&mut buffer, 4096, 0).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
            assert_eq!(buffer, b"before");
        }
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let (directory, device) = device();
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().join("victim");
        fs::write(&victim, "content").unwrap();
        symlink(&victim, directory.path().join("f")).unwrap();
        symlink(elsewhere.path(), directory.path().join("d")).unwrap();
        for mode in [Mode::Read, Mode::Write] {
            assert!(device.open("f", mode).unwrap_err().to_string().contains("symbolic link"));
        }
        assert_eq!(device.open("f", Mode::Create).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(device.open("d/f", Mode::Create).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(device.create_directory("d").unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "content");
    }

    #[test]
    fn what_is_no_file_is_not_opened_and_nobody_waits_for_the_other_end_of_a_pipe() {
        let (directory, device) = device();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("d")).unwrap();
        let fifo = rustix::fs::mknodat(rustix::fs::CWD, path("p"), rustix::fs::FileType::Fifo, 0o600.into(), 0);
        fifo.unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("s")).unwrap();
        symlink("nowhere", path("l")).unwrap();
        fs::write(path("f"), "").unwrap();
        for (name, kind) in [("d", "a directory"), ("p", "a named pipe"), ("s", "a socket"), ("l", "a symbolic link")] {
            for mode in [Mode::Read, Mode::Write] {
                let said = device.open(name, mode).unwrap_err().to_string();
                assert!(said.contains(kind), "{name}: {said}");
            }
        }
        let mut others: Vec<String> = device.list_others("").unwrap().into_iter().map(|(name, _)| name).collect();
        others.sort();
        assert_eq!(others, ["d", "l", "p", "s"]);
        assert!(device.list_others("none").unwrap().is_empty());
    }

    #[test]
    fn modes_are_kept_to() {
        let (_directory, device) = device();
        assert_eq!(device.open("f", Mode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(device.open("f", Mode::Write).unwrap_err().kind(), io::ErrorKind::NotFound);
        device.open("f", Mode::Create).unwrap().write_at(b"x", 0).unwrap();
        assert_eq!(device.open("f", Mode::Create).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let error = device.open("f", Mode::Read).unwrap().write_at(b"y", 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        device.open("f", Mode::Write).unwrap().write_at(b"z", 1).unwrap();
        assert_eq!(device.list("").unwrap(), [("f".to_owned(), 2)]);
    }

    #[test]
    fn files_are_listed_renamed_and_removed() {
        let (directory, _) = device();
        let device = Directory::new(directory.path().join("not/yet"));
        assert_eq!(device.list("segments").unwrap(), []);
        device.create_directory("segments").unwrap();
        device.create_directory("segments").unwrap();
        assert!(device.root.join("segments").is_dir());
        for (name, content) in [("a", "1"), ("b", "22"), ("c", "333")] {
            let file = device.open(&format!("segments/{name}"), Mode::Create).unwrap();
            file.write_at(content.as_bytes(), 0).unwrap();
        }
        device.create_directory("segments/below").unwrap();
        let open = device.open("segments/b", Mode::Read).unwrap();
        device.rename("segments/a", "segments/b").unwrap();
        device.remove("segments/c").unwrap();
        device.sync_directory("segments").unwrap();
        assert_eq!(device.list("segments").unwrap(), [("b".to_owned(), 1)]);
        // An open handle refers to the file, not to the name.
        let mut buffer = Vec::new();
        assert_eq!(open.read_onto(&mut buffer, 10, 0).unwrap(), 2);
        assert_eq!(buffer, b"22");
        assert_eq!(device.remove("segments/c").unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(Directory::new(directory.path().join("file")).create_directory("").is_err());
    }

    #[test]
    fn what_is_behind_an_end_that_was_set_is_gone() {
        let (_directory, device) = device();
        let file = device.open("f", Mode::Create).unwrap();
        file.write_at(&[7; 5000], 0).unwrap();
        file.set_size(10).unwrap();
        file.set_size(20).unwrap();
        let mut part = [1; 30];
        assert_eq!(file.read_at(&mut part, 0).unwrap(), 20);
        assert_eq!(part[..20], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_group_of_a_shared_directory_is_inherited() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o2750)).unwrap();
        let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for (name, file_mode, expected) in [("shared", 0o640, 0o2750), ("private", PRIVATE_MODE, 0o2700)] {
            let device = Directory::with_mode(directory.path().join(name), file_mode);
            device.create_directory("segments").unwrap();
            for path in [device.at(""), device.at("segments")] {
                assert_eq!(mode_of(&path), expected, "{}", path.display());
            }
        }
    }

    #[test]
    fn room_is_that_of_the_file_system() {
        let (directory, device) = device();
        let room = device.room().unwrap();
        assert!(room.available_bytes <= room.total_bytes && room.total_bytes > 0, "{room:?}");
        let missing = Directory::new(directory.path().join("none"));
        assert_eq!(missing.room().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
