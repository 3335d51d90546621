//! Restoring one object of a store as an entry of an open directory: content, holes, owner, permissions, extended
//! attributes, times.
//!
//! A file is created (`O_EXCL`, `O_NOFOLLOW`), filled, and then gets owner, extended attributes, permissions and times,
//! in this order: a change of owner resets set-user-ID and capabilities, permissions may forbid extended attributes,
//! and everything else changes times. As the modification time is set last, a file that has it is complete: resuming an
//! interrupted export relies on that. A file that could not be completed is removed. What a resumed export replaces
//! stays until its replacement is complete under another name.
//!
//! A default ACL of the target does not apply: what the store has no ACL for gets none.
//!
//! Survives: objects removed or replaced while they are read, users that may not set owners, privileged attributes or
//! create devices (counted), file systems without extended attributes, names that are too long for the target
//! (reported).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmod, chownat, fchmod,
    fchown, fremovexattr, fsetxattr, futimens, linkat, lremovexattr, lsetxattr, makedev, mknodat, openat, renameat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::names::Handover;
use super::posix::{entry_path, status, status_at};
use super::target::{Export, ExportSummary};
use super::unchanged::is_same;
use crate::error::{Error, ErrorKind};
use crate::format::attributes::Attributes;
use crate::format::entry::Kind;
use crate::format::key::Key;
use crate::format::record::checksum;
use crate::locks::lock;
use crate::units::MIB;
use crate::{Buffer, Listed};

/// Extended attributes with the access control lists of an entry, and of what is created in a directory.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// Largest object that is read in one call.
const SMALL_BYTES: u64 = MIB;
/// Memory of each thread for a larger one.
const PIECE_BYTES: u64 = MIB;

/// A directory of the target in use. It gets its attributes when it is dropped.
pub(super) struct TargetDirectory<'e> {
    pub handle: OwnedFd,
    key: Key,
    export: &'e Export<'e>,
    /// Whether the store has its attributes.
    is_stored: bool,
    /// Whether it was opened before: what its attributes lack was counted then.
    is_again: bool,
}

impl<'e> TargetDirectory<'e> {
    pub(super) fn new(
        export: &'e Export<'e>,
        key: Key,
        handle: OwnedFd,
        is_stored: bool,
        is_again: bool,
    ) -> Arc<TargetDirectory<'e>> {
        export.opened();
        Arc::new(TargetDirectory { handle, key, export, is_stored, is_again })
    }
}

impl Drop for TargetDirectory<'_> {
    fn drop(&mut self) {
        if self.is_stored && !self.export.ledger.is_over() {
            let mut restorer = Restorer::new(self.export);
            restorer.is_again = self.is_again;
            restorer.finish_directory(&self.handle, &self.key, false);
        }
        self.export.closed();
    }
}

/// An object to be created.
pub(super) struct RestoreTask<'e> {
    pub directory: Arc<TargetDirectory<'e>>,
    pub listed: Listed,
    /// Only for a file with several names.
    pub shared: Option<Arc<LinkTo>>,
    /// Whether this is a later name of it.
    pub is_link: bool,
}

/// The first name of a file with several names.
pub(super) struct LinkTo {
    pub key: Key,
    /// Set when it is created.
    pub made: Handover<()>,
}

/// Why an object was not created.
enum RestoreFailure {
    Target(Errno),
    Store(Error),
    /// It changed before the export came to it.
    Gone(&'static str),
    /// Its content contradicts its kind or its attributes.
    Malformed(&'static str),
    /// Only root may create it.
    NotAllowed,
    /// The export is over.
    Over,
}

impl From<Errno> for RestoreFailure {
    fn from(errno: Errno) -> RestoreFailure {
        RestoreFailure::Target(errno)
    }
}

impl From<Error> for RestoreFailure {
    fn from(error: Error) -> RestoreFailure {
        RestoreFailure::Store(error)
    }
}

impl From<io::Error> for RestoreFailure {
    fn from(error: io::Error) -> RestoreFailure {
        RestoreFailure::Target(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

type Result<T> = std::result::Result<T, RestoreFailure>;

/// Creates objects; one per thread.
pub(super) struct Restorer<'e> {
    export: &'e Export<'e>,
    buffer: Buffer,
    done: ExportSummary,
    /// Whether attributes are set once more: those that cannot be set were counted.
    is_again: bool,
}

impl Drop for Restorer<'_> {
    fn drop(&mut self) {
        let mut total = lock(&self.export.done);
        let done = &self.done;
        total.files += done.files;
        total.links += done.links;
        total.symlinks += done.symlinks;
        total.specials += done.specials;
        total.content_bytes += done.content_bytes;
        total.unchanged += done.unchanged;
        total.owners_not_set += done.owners_not_set;
        total.xattrs_not_set += done.xattrs_not_set;
        total.specials_not_made += done.specials_not_made;
    }
}

impl<'e> Restorer<'e> {
    pub(super) fn new(export: &'e Export<'e>) -> Restorer<'e> {
        Restorer { export, buffer: Buffer::default(), done: ExportSummary::default(), is_again: false }
    }

    /// Creates an object, or reports why not.
    pub(super) fn take(&mut self, job: RestoreTask<'_>) {
        let made = if self.export.ledger.is_over() { Err(RestoreFailure::Over) } else { self.make(&job) };
        if let Some(shared) = job.shared.as_ref().filter(|_| !job.is_link) {
            shared.made.set(made.is_ok().then_some(()));
        }
        let path = || self.export.path_of(&job.listed.key);
        let report = |error: Error| self.export.ledger.report(error);
        match made {
            Ok(()) => {}
            Err(RestoreFailure::Over) => return,
            Err(RestoreFailure::NotAllowed) => self.done.specials_not_made += 1,
            Err(RestoreFailure::Target(errno)) => report(Error::io("export to", &path(), errno.into())),
            Err(RestoreFailure::Malformed(why)) => report(Error::new(ErrorKind::Corrupt, "export", why).at(&path())),
            Err(RestoreFailure::Gone(why)) => report(Error::new(ErrorKind::NotFound, "export", why).at(&path())),
            // A lost object does not end the export of the others.
            Err(RestoreFailure::Store(error)) => report(error.affecting(&job.listed.key)),
        }
        self.export.ledger.advance(1, 0);
    }

    fn make(&mut self, job: &RestoreTask<'_>) -> Result<()> {
        let name = c_name(&job.listed.key);
        let directory = job.directory.handle.as_fd();
        if let Some(first) = job.shared.as_ref().filter(|_| job.is_link) {
            return self.make_link(job, directory, &name, first);
        }
        match self.found(job, directory, &name)? {
            Found::Object => {
                self.done.unchanged += 1;
                self.export.ledger.skip(job.listed.entry.size_bytes);
                Ok(())
            }
            Found::Nothing => self.make_as(job, directory, &name),
            Found::Other => replace(directory, &name, |temporary| self.make_as(job, directory, temporary)),
        }
    }

    fn make_as(&mut self, job: &RestoreTask<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        match job.listed.entry.kind {
            Kind::Symlink => self.make_symlink(job, directory, name),
            Kind::Special => self.make_special(job, directory, name),
            _ => self.make_file(job, directory, name),
        }
    }

    /// What has the name of an object. Only an export that is resumed looks.
    fn found(&self, job: &RestoreTask<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<Found> {
        if !self.export.options.resume {
            return Ok(Found::Nothing);
        }
        let found = match status_at(directory, name) {
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            found => found?,
        };
        let is_alone = job.shared.is_some() || found.link_count < 2;
        // Owners are not compared if they cannot be set.
        let mut listed = job.listed.clone();
        (listed.entry.uid, listed.entry.gid, listed.entry.mode) = (found.uid, found.gid, found.mode);
        Ok(match found.file_type() {
            _ if is_alone && is_same(&found, &listed) => Found::Object,
            // It stays, and creation fails.
            FileType::Directory => Found::Nothing,
            _ => Found::Other,
        })
    }

    fn make_file(&mut self, job: &RestoreTask<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        let filled = self.fill(job, &file);
        if filled.is_err() {
            // The cause is reported; failing to remove the partial file adds nothing.
            let _ = unlinkat(directory, name, AtFlags::empty());
        }
        let written = filled?;
        self.export.ledger.skip(job.listed.entry.size_bytes.saturating_sub(written));
        self.done.content_bytes += written;
        self.done.files += 1;
        Ok(())
    }

    /// Writes content and attributes; returns how many bytes were written.
    fn fill(&mut self, job: &RestoreTask<'_>, file: &File) -> Result<u64> {
        let export = self.export;
        let key = &job.listed.key;
        if job.listed.entry.size_bytes <= SMALL_BYTES {
            let mut buffer = std::mem::take(&mut self.buffer);
            let filled = match export.store.read(key, &mut buffer)? {
                Some(object) if matches!(object.entry.kind, Kind::File | Kind::Large) => {
                    let written = write_runs(file, &object.attributes, object.content)?;
                    export.ledger.advance(0, written);
                    sync_if_sparse(file, &object.attributes)?;
                    self.finish_file(file, &object.attributes, key)?;
                    Ok(written)
                }
                _ => Err(RestoreFailure::Gone("it was removed or replaced meanwhile")),
            };
            self.buffer = buffer;
            return filled;
        }
        let mut content = match export.store.content(key)? {
            Some(content) if matches!(content.entry().kind, Kind::File | Kind::Large) => {
                content.in_pieces_of(PIECE_BYTES)
            }
            _ => return Err(RestoreFailure::Gone("it was removed or replaced meanwhile")),
        };
        if content.attributes().holes.is_some() {
            file.set_len(content.entry().size_bytes)?;
        }
        let mut written = 0;
        while let Some((at, piece)) = content.next_piece()? {
            file.write_all_at(piece, at)?;
            written += piece.len() as u64;
            if !export.ledger.advance(0, piece.len() as u64) {
                return Err(RestoreFailure::Over);
            }
        }
        sync_if_sparse(file, content.attributes())?;
        self.finish_file(file, content.attributes(), key)?;
        Ok(written)
    }

    fn make_symlink(&mut self, job: &RestoreTask<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let (target, attributes) = self.content(job)?;
        let target = CString::new(target).map_err(|_| RestoreFailure::Target(Errno::INVAL))?;
        symlinkat(&target, directory, name)?;
        self.set_owner_and_xattrs(directory, name, &attributes, &job.listed.key)?;
        utimensat(directory, name, &times(&attributes), AtFlags::SYMLINK_NOFOLLOW)?;
        self.done.symlinks += 1;
        Ok(())
    }

    /// Makes a device, fifo or socket; its content is the major and the minor number of the device.
    fn make_special(&mut self, job: &RestoreTask<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let (content, attributes) = self.content(job)?;
        let device_part = |at: usize| {
            let bytes = content.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(RestoreFailure::Malformed("it has no device number"))
        };
        let (major, minor) = (device_part(0)?, device_part(4)?);
        let (file_type, private) = (FileType::from_raw_mode(attributes.mode.into()), Mode::RUSR | Mode::WUSR);
        match mknodat(directory, name, file_type, private, makedev(major, minor)) {
            Err(Errno::PERM) if !self.export.is_root_user => return Err(RestoreFailure::NotAllowed),
            made => made?,
        }
        let finished = self.finish_special(directory, name, &attributes, &job.listed.key);
        if finished.is_err() {
            // The cause is reported; failing to remove what is incomplete adds nothing.
            let _ = unlinkat(directory, name, AtFlags::empty());
        }
        finished?;
        self.done.specials += 1;
        Ok(())
    }

    /// Sets the attributes of a device, fifo or socket, the times last.
    fn finish_special(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        attributes: &Attributes,
        key: &Key,
    ) -> Result<()> {
        let owned = self.set_owner_and_xattrs(directory, name, attributes, key)?;
        // chmod by name follows a symlink that somebody put here meanwhile, and opening a device may have effects:
        // O_PATH opens the entry itself, and /proc names it for chmod.
        let entry = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if status(&entry)?.file_type() != FileType::Symlink {
            chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), permissions(attributes, owned))?;
        }
        Ok(utimensat(directory, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn content(&mut self, job: &RestoreTask<'_>) -> Result<(Vec<u8>, Attributes)> {
        match self.export.store.read(&job.listed.key, &mut self.buffer)? {
            Some(object) if object.entry.kind == job.listed.entry.kind => {
                Ok((object.content.to_vec(), object.attributes))
            }
            _ => Err(RestoreFailure::Gone("it was removed or replaced meanwhile")),
        }
    }

    fn make_link(
        &mut self,
        job: &RestoreTask<'_>,
        directory: BorrowedFd<'_>,
        name: &CStr,
        first: &LinkTo,
    ) -> Result<()> {
        if first.made.wait().is_none() {
            return Err(if self.export.ledger.is_over() {
                RestoreFailure::Over
            } else {
                RestoreFailure::Gone("the first name of the same file could not be created")
            });
        }
        let first_name = c_name(&first.key);
        let opened;
        let from = if first.key.parent() == job.listed.key.parent() {
            directory
        } else {
            opened = self.open_below_root(&first.key.parent().unwrap_or_default())?;
            opened.as_fd()
        };
        if self.export.options.resume {
            match status_at(directory, name) {
                Err(Errno::NOENT) => {}
                Ok(found) if found.identity == status_at(from, &first_name)?.identity => {
                    self.done.unchanged += 1;
                    return Ok(());
                }
                Ok(_) => {
                    replace(directory, name, |temporary| {
                        Ok(linkat(from, &first_name, directory, temporary, AtFlags::empty())?)
                    })?;
                    self.done.links += 1;
                    return Ok(());
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        linkat(from, &first_name, directory, name, AtFlags::empty())?;
        self.done.links += 1;
        Ok(())
    }

    /// Opens a directory of the target by its key, one component at a time.
    pub(super) fn open_below_root(&self, key: &Key) -> std::result::Result<OwnedFd, Errno> {
        let below = key.below(&self.export.options.prefix).unwrap_or_default();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut opened = openat(&self.export.root, c".", flags, Mode::empty())?;
        for component in below.components() {
            opened = openat(&opened, component, flags, Mode::empty())?;
        }
        Ok(opened)
    }

    /// Sets the attributes of a directory, or leaves that to the end if nothing could be created in it afterwards.
    pub(super) fn finish_directory(&mut self, directory: &OwnedFd, key: &Key, is_end: bool) {
        let attributes = match self.export.store.stat(key) {
            Ok(Some(status)) => status.attributes,
            Ok(None) => return,
            Err(error) => return self.export.ledger.report(error.affecting(key)),
        };
        if !is_end && !self.export.is_root_user && attributes.mode & 0o700 != 0o700 {
            return self.export.finish_later(key.clone());
        }
        if let Err(RestoreFailure::Target(errno)) = self.finish_file(directory, &attributes, key) {
            self.export.ledger.report_io("set the attributes of", &self.export.path_of(key), errno);
        }
    }

    /// Sets the attributes of an open file.
    fn finish_file(&mut self, file: impl AsFd, attributes: &Attributes, key: &Key) -> Result<()> {
        let file = file.as_fd();
        let owner = fchown(file, Some(Uid::from_raw(attributes.uid)), Some(Gid::from_raw(attributes.gid)));
        let owned = self.check_owner(owner, key)?;
        for acl in inherited(attributes) {
            self.check_acl(fremovexattr(file, acl), acl, key);
        }
        for (name, value) in &attributes.xattrs {
            let set = fsetxattr(file, &name[..], value, XattrFlags::empty());
            self.check_xattr(set, name, key);
        }
        fchmod(file, permissions(attributes, owned))?;
        futimens(file, &times(attributes))?;
        Ok(())
    }

    /// Sets owner and extended attributes of what cannot be opened; returns whether it has its owner.
    fn set_owner_and_xattrs(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        attributes: &Attributes,
        key: &Key,
    ) -> Result<bool> {
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        let owner = chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        let owned = self.check_owner(owner, key)?;
        let path = entry_path(directory, name);
        for acl in inherited(attributes) {
            self.check_acl(lremovexattr(&path, acl), acl, key);
        }
        for (xattr, value) in &attributes.xattrs {
            let set = lsetxattr(&path, &xattr[..], value, XattrFlags::empty());
            self.check_xattr(set, xattr, key);
        }
        Ok(owned)
    }

    /// Whether the owner was set. A missing permission is counted, and reported only if requested.
    fn check_owner(&mut self, set: std::result::Result<(), Errno>, key: &Key) -> Result<bool> {
        match set {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL) if self.is_again => Ok(false),
            // A user namespace without such an owner reports an invalid argument.
            Err(errno @ (Errno::PERM | Errno::INVAL)) => {
                self.done.owners_not_set += 1;
                if self.export.options.require_owners {
                    self.export.ledger.report_io("set the owner of", &self.export.path_of(key), errno);
                }
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Checks the removal of an ACL that an object may have inherited, or not.
    fn check_acl(&mut self, removed: std::result::Result<(), Errno>, acl: &[u8], key: &Key) {
        if !matches!(removed, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            self.check_xattr(removed, acl, key);
        }
    }

    fn check_xattr(&mut self, set: std::result::Result<(), Errno>, name: &[u8], key: &Key) {
        match set {
            Ok(()) => {}
            Err(_) if self.is_again => {}
            Err(Errno::OPNOTSUPP) => self.done.xattrs_not_set += 1,
            Err(Errno::PERM) if !self.export.is_root_user => self.done.xattrs_not_set += 1,
            Err(errno) => {
                self.done.xattrs_not_set += 1;
                let error = Error::io("set an extended attribute of", &self.export.path_of(key), errno.into());
                let name = crate::units::escape(name);
                self.export
                    .ledger
                    .report(error.advise(format!("the attribute is {name}; the rest of the file was written")));
            }
        }
    }
}

/// What has the name of an object that is to be restored.
enum Found {
    Nothing,
    /// The object itself, as far as metadata show.
    Object,
    Other,
}

/// Replaces what has a name by what `make` makes under another one in the same directory. If that fails, it stays.
fn replace(directory: BorrowedFd<'_>, name: &CStr, make: impl FnOnce(&CStr) -> Result<()>) -> Result<()> {
    // The same each time, so that an export that is resumed again removes what a killed one left.
    let temporary = format!(".granulo-export-{:016x}", checksum(name.to_bytes()));
    let temporary = CString::new(temporary).map_err(|_| RestoreFailure::Target(Errno::INVAL))?;
    match unlinkat(directory, &temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let made = make(&temporary).and_then(|()| Ok(renameat(directory, &temporary, directory, name)?));
    if made.is_err() {
        // The cause is reported; failing to remove what is incomplete adds nothing.
        let _ = unlinkat(directory, &temporary, AtFlags::empty());
    }
    made
}

/// The access control lists that an object may have inherited from the directory it is restored in, and not from the
/// store.
fn inherited(attributes: &Attributes) -> impl Iterator<Item = &'static [u8]> {
    let is_stored = |acl: &[u8]| attributes.xattrs.iter().any(|(name, _)| name[..] == *acl);
    let is_directory = FileType::from_raw_mode(attributes.mode.into()) == FileType::Directory;
    let access = (!is_stored(ACCESS_ACL)).then_some(ACCESS_ACL);
    access.into_iter().chain((is_directory && !is_stored(DEFAULT_ACL)).then_some(DEFAULT_ACL))
}

/// The last component of a key, for the kernel. A component contains no NUL, and only the root has none.
pub(super) fn c_name(key: &Key) -> CString {
    CString::new(key.name().unwrap_or(b".")).unwrap_or_default()
}

/// Writes the data of a small file, without its holes; returns how many bytes these are.
fn write_runs(file: &File, attributes: &Attributes, content: &[u8]) -> Result<u64> {
    let Some(holes) = &attributes.holes else {
        file.write_all_at(content, 0)?;
        return Ok(content.len() as u64);
    };
    file.set_len(holes.size_bytes)?;
    let mut written = 0;
    for &(offset, length) in &holes.data {
        let run =
            usize::try_from(offset).ok().and_then(|offset| content.get(offset..)?.get(..usize::try_from(length).ok()?));
        file.write_all_at(run.ok_or(RestoreFailure::Malformed("its holes contradict its size"))?, offset)?;
        written += length;
    }
    Ok(written)
}

/// Makes the data of a sparse file durable before its time is set. After a power failure a file that has its size and
/// its time is taken for complete, and a sparse one would have both without its data; others get their size with that.
fn sync_if_sparse(file: &File, attributes: &Attributes) -> Result<()> {
    if attributes.holes.is_some() {
        file.sync_data()?;
    }
    Ok(())
}

/// Permissions; for a file with another owner than it should have, without those that would let others act as that
/// user.
fn permissions(attributes: &Attributes, owned: bool) -> Mode {
    let kept = if owned { 0o7777 } else { 0o1777 };
    Mode::from_raw_mode(u32::from(attributes.mode & kept))
}

fn times(attributes: &Attributes) -> Timestamps {
    let time = |time: crate::format::entry::Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let as_it_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: attributes.atime.map_or(as_it_is, time), last_modification: time(attributes.mtime) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::attributes::Holes;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn runs_are_written_where_they_were_and_holes_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let mut content = vec![0; 1 << 20];
        content[4096..8192].fill(7);
        let holes = Some(Holes { size_bytes: 1 << 20, data: vec![(4096, 4096)] });
        let attributes = Attributes { holes, ..Attributes::default() };
        assert_eq!(write_runs(&file, &attributes, &content).ok(), Some(4096));
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 19);
    }

    #[test]
    fn holes_that_contradict_the_content_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        let holes = Some(Holes { size_bytes: 10, data: vec![(8, u64::MAX)] });
        let attributes = Attributes { holes, ..Attributes::default() };
        assert!(write_runs(&file, &attributes, &[0; 10]).is_err());
    }

    #[test]
    fn what_is_not_its_owners_acts_for_nobody_else() {
        let attributes = Attributes { mode: 0o106_755, ..Attributes::default() };
        assert_eq!(permissions(&attributes, true).as_raw_mode(), 0o6755);
        assert_eq!(permissions(&attributes, false).as_raw_mode(), 0o755);
    }

    #[test]
    fn an_access_time_that_is_not_kept_stays_as_it_is() {
        let times = times(&Attributes::default());
        assert_eq!(times.last_access.tv_nsec, UTIME_OMIT);
    }
}
