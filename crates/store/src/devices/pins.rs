//! Pins of readers on this machine: a file for each epoch in `index/pins`, which its readers hold locked.
//!
//! A reader need not be the user who writes. Whoever may read the index may pin it: a writer makes the directory for
//! them. What a reader makes there belongs to whom the index belongs to, as far as it may give it away: a writer must
//! be able to look at it. What a writer cannot look at may be held: nothing that it could protect is freed, and people
//! are told. A reader that ends removes its file, unless another holds it; the writer removes those of readers that
//! were killed.
//!
//! Everything is opened relative to the directory of the index, and through no link: whoever may write to a store
//! cannot lead another user to other files.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, accessat, fchown, flock, mkdirat, openat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Gid, Uid, geteuid};

use super::locked::{Held, try_lock};
use super::platform::{Lock, UnknownPin};
use crate::error::os_message;
use crate::format::names::number_of;

/// The directory, in that of the index.
const PINS: &str = "pins";

/// Until it is given permissions.
const PRIVATE: Mode = Mode::RWXU;

/// The directory of pins, open.
#[derive(Debug)]
struct Pins {
    directory: File,
    /// The attributes of the directory of the index.
    index: Metadata,
}

/// A pin that is held. Removed when dropped, unless others hold it.
#[derive(Debug)]
struct Pin {
    pins: Pins,
    name: String,
    held: Held,
}

impl Lock for Pin {}

impl Drop for Pin {
    fn drop(&mut self) {
        if flock(&self.held.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.pins.remove(&self.name, &self.held);
        }
    }
}

/// Makes the directory, if other users may read the index: they may not.
pub(super) fn share(index: &Path) {
    let is_shared = open_index(index).and_then(|index| index.metadata()).is_ok_and(|found| found.mode() & 0o077 != 0);
    if is_shared {
        // Readers go on without.
        let _ = Pins::open_or_make(index);
    }
}

/// Pins an epoch; `None` if this user cannot.
pub(super) fn pin(index: &Path, epoch: u64) -> io::Result<Option<Box<dyn Lock>>> {
    match Pins::open_or_make(index).and_then(|pins| pins.hold(epoch)) {
        Err(error) if is_refusal(&error) => Ok(None),
        held => held.map(|pin| Some(Box::new(pin) as Box<dyn Lock>)),
    }
}

/// The lowest epoch below `below` that is or may be pinned, else `below`. Files that nobody holds are removed.
pub(super) fn lowest(index: &Path, below: u64) -> u64 {
    let found = Pins::open(index).and_then(|pins| {
        pins.adopt();
        pins.lowest(below)
    });
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => below,
        found => found.unwrap_or(0),
    }
}

/// What this user cannot look at, though it may change the index; changes nothing.
pub(super) fn unknown(index: &Path) -> Vec<UnknownPin> {
    if accessat(CWD, index, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
        return Vec::new();
    }
    let directory = index.join(PINS);
    let of_all = |error: &io::Error| UnknownPin { path: directory.clone(), cause: os_message(error) };
    let of_one = |pins: &Pins, epoch: u64| {
        let error = pins.open_pin(&name_of(epoch)).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
        Some(UnknownPin { path: directory.join(name_of(epoch)), cause: os_message(&error) })
    };
    match Pins::open(index).and_then(|pins| pins.epochs().map(|epochs| (pins, epochs))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![of_all(&error)],
        Ok((pins, epochs)) => epochs.into_iter().filter_map(|epoch| of_one(&pins, epoch)).collect(),
    }
}

/// The error of something else in the place of a pin.
fn not_a_pin() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it is no regular file")
}

/// Whether an error says that this user may not write there, or that something else is there, as a link.
fn is_refusal(error: &io::Error) -> bool {
    let others = [Errno::LOOP, Errno::NOTDIR, Errno::ISDIR];
    let is_other = others.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    is_other || matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The permissions of the directory: whoever may read the index may pin it, and nobody removes the pins of others who
/// could not remove the index.
fn mode_in(index: &Metadata) -> u32 {
    const STICKY: u32 = 0o1000;
    let own = index.mode() & 0o777;
    let shared = own | (own & 0o444) >> 1;
    if shared == own { own } else { shared | STICKY }
}

fn name_of(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Opens what a path within a directory leads to, without following a link.
fn open_at(directory: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let opened = retry_on_intr(|| openat(&directory, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode));
    Ok(File::from(opened?))
}

fn open_index(index: &Path) -> io::Result<File> {
    open_at(CWD, index, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

impl Pins {
    fn open(index: &Path) -> io::Result<Pins> {
        let index = open_index(index)?;
        let directory = open_at(&index, Path::new(PINS), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Pins { directory, index: index.metadata()? })
    }

    fn open_or_make(index: &Path) -> io::Result<Pins> {
        let opened = match Pins::open(index) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match mkdirat(open_index(index)?, PINS, PRIVATE) {
                Err(error) if error != Errno::EXIST => return Err(error.into()),
                _ => Pins::open(index),
            },
            opened => opened,
        };
        opened.inspect(Pins::adopt)
    }

    /// Gives the directory away if this user made it, or an earlier process of the same user did.
    fn adopt(&self) {
        if self.directory.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw()) {
            self.give(&self.directory, mode_in(&self.index));
        }
    }

    /// Gives what this user made to whom the index belongs to, as far as it may, with these permissions, whatever the
    /// umask.
    fn give(&self, made: &File, mode: u32) {
        let Ok(found) = made.metadata() else { return };
        if (found.uid(), found.gid()) != (self.index.uid(), self.index.gid()) {
            let (owner, group) = (Uid::from_raw(self.index.uid()), Gid::from_raw(self.index.gid()));
            // Only root gives away; others may share the group.
            let _ = fchown(made, Some(owner), Some(group)).or_else(|_| fchown(made, None, Some(group)));
        }
        if found.mode() & 0o7777 != mode {
            let _ = made.set_permissions(Permissions::from_mode(mode));
        }
    }

    /// Opens the file of an epoch, for writing if this user may: NFS and SMB lock no other file exclusively.
    fn open_pin(&self, name: &str) -> io::Result<File> {
        let open = |access| {
            let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY;
            open_at(&self.directory, Path::new(name), flags, Mode::empty())
        };
        let file = match open(OFlags::RDWR) {
            Err(error) if is_refusal(&error) => open(OFlags::RDONLY)?,
            opened => opened?,
        };
        if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_pin()) }
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = open_at(&self.directory, Path::new(name), flags, PRIVATE & !Mode::XUSR)?;
        // Only what is new is given away: an existing file may be a link to one that is no pin.
        self.give(&file, mode_in(&self.index) & 0o666);
        Ok(file)
    }

    fn open_or_create(&self, name: &str) -> io::Result<File> {
        loop {
            match self.open_pin(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
            match self.create(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Holds the pin of an epoch.
    fn hold(self, epoch: u64) -> io::Result<Pin> {
        let name = name_of(epoch);
        loop {
            let file = self.open_or_create(&name)?;
            retry_on_intr(|| flock(&file, FlockOperation::LockShared))?;
            let held = Held { file };
            // Another reader that ended, or a writer, may have removed it in between: nobody would find it.
            if self.leads_to(&name, &held)? {
                return Ok(Pin { pins: self, name, held });
            }
        }
    }

    /// Whether a name is that of the open file.
    fn leads_to(&self, name: &str, held: &Held) -> io::Result<bool> {
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(found) => {
                let opened = held.file.metadata()?;
                Ok((found.st_dev, found.st_ino) == (opened.dev(), opened.ino()))
            }
        }
    }

    /// Removes a file that this process has locked exclusively, so that nobody else removes it meanwhile.
    fn remove(&self, name: &str, held: &Held) {
        if self.leads_to(name, held).unwrap_or(false) {
            // One that stays is held by nobody.
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }

    fn epochs(&self) -> io::Result<Vec<u64>> {
        let mut epochs = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            epochs.extend(entry?.file_name().to_str().ok().and_then(number_of));
        }
        Ok(epochs)
    }

    fn lowest(&self, below: u64) -> io::Result<u64> {
        let mut lowest = below;
        for epoch in self.epochs()?.into_iter().filter(|&epoch| epoch < below) {
            if !self.is_gone(&name_of(epoch)).unwrap_or(false) {
                lowest = lowest.min(epoch);
            }
        }
        Ok(lowest)
    }

    /// Whether nobody holds a pin; then it is removed.
    fn is_gone(&self, name: &str) -> io::Result<bool> {
        let file = match self.open_pin(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        let Some(held) = try_lock(file, FlockOperation::NonBlockingLockExclusive)? else { return Ok(false) };
        self.remove(name, &held);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rustix::fs::fcntl_getfl;

    use super::*;
    use crate::devices::device::Device;
    use crate::devices::directory::Directory;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn index() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        Directory::new(place.path()).create_directory("index").unwrap();
        let index = place.path().join("index");
        (place, index)
    }

    fn count(index: &Path) -> usize {
        fs::read_dir(index.join(PINS)).unwrap().count()
    }

    #[test]
    fn pins_have_the_permissions_of_the_index_whatever_the_umask() {
        for (of_store, of_index, of_pins, of_pin) in [
            (0o600, 0o700, 0o700, 0o600),
            (0o640, 0o750, 0o1770, 0o660),
            (0o660, 0o770, 0o770, 0o660),
            (0o644, 0o755, 0o1777, 0o666),
            (0o666, 0o777, 0o777, 0o666),
        ] {
            let place = tempfile::tempdir().unwrap();
            let index = place.path().join("index");
            Directory::with_mode(place.path(), of_store).create_directory("index").unwrap();
            let pins = index.join(PINS);
            share(&index);
            assert_eq!(pins.exists(), of_store != 0o600);
            let held = pin(&index, 7).unwrap();
            assert!(held.is_some());
            assert_eq!((mode(&index), mode(&pins), mode(&pins.join(name_of(7)))), (of_index, of_pins, of_pin));
            assert_eq!(lowest(&index, 9), 7);
            drop(held);
            // As made by an earlier version.
            fs::set_permissions(&pins, Permissions::from_mode(0o755)).unwrap();
            assert_eq!(lowest(&index, 9), 9);
            assert_eq!((mode(&pins), count(&index)), (of_pins, 0));
        }
    }

    #[test]
    fn a_reader_that_ends_leaves_nothing_and_others_keep_theirs() {
        let (_place, index) = index();
        let (one, other, newer) = (pin(&index, 7).unwrap(), pin(&index, 7).unwrap(), pin(&index, 8).unwrap());
        assert!(one.is_some() && other.is_some() && newer.is_some());
        drop(one);
        assert_eq!((count(&index), lowest(&index, 9)), (2, 7));
        drop(other);
        assert_eq!((count(&index), lowest(&index, 9)), (1, 8));
        drop(newer);
        assert_eq!((count(&index), lowest(&index, 9)), (0, 9));
        // Of one that was killed.
        fs::write(index.join(PINS).join(name_of(7)), "").unwrap();
        assert_eq!((lowest(&index, 9), count(&index)), (9, 0));
    }

    #[test]
    fn pins_are_opened_for_writing_as_not_every_file_system_locks_others() {
        let (_place, index) = index();
        let _held = pin(&index, 7).unwrap();
        let pins = Pins::open(&index).unwrap();
        let access = || fcntl_getfl(pins.open_pin(&name_of(7)).unwrap()).unwrap() & OFlags::RWMODE;
        assert_eq!(access(), OFlags::RDWR);
        // As made by an earlier version for another user.
        fs::set_permissions(index.join(PINS).join(name_of(7)), Permissions::from_mode(0o400)).unwrap();
        assert_eq!(access(), if geteuid().is_root() { OFlags::RDWR } else { OFlags::RDONLY });
        assert_eq!((lowest(&index, 9), unknown(&index).len()), (7, 0));
    }

    #[test]
    fn what_was_removed_between_opening_and_locking_is_no_pin() {
        let (_place, index) = index();
        let pins = Pins::open_or_make(&index).unwrap();
        let held = Held { file: pins.open_or_create(&name_of(7)).unwrap() };
        assert!(pins.leads_to(&name_of(7), &held).unwrap());
        fs::remove_file(index.join(PINS).join(name_of(7))).unwrap();
        assert!(!pins.leads_to(&name_of(7), &held).unwrap());
        let newer = Pins::open(&index).unwrap().hold(7).unwrap();
        assert!(!pins.leads_to(&name_of(7), &held).unwrap());
        pins.remove(&name_of(7), &held);
        assert_eq!(lowest(&index, 9), 7, "that of another reader stays");
        drop(newer);
        assert_eq!(lowest(&index, 9), 9);
    }

    #[test]
    fn what_cannot_be_looked_at_may_be_pinned_and_is_told() {
        let (place, index) = index();
        assert_eq!((lowest(&index, 9), unknown(&index).len()), (9, 0));
        let path = index.join(PINS).join(name_of(7));
        fs::create_dir_all(&path).unwrap();
        let told = |index: &Path| unknown(index).into_iter().map(|pin| pin.path).collect::<Vec<_>>();
        assert_eq!((lowest(&index, 9), lowest(&index, 7), told(&index)), (7, 7, vec![path.clone()]));
        assert!(pin(&index, 7).unwrap().is_none(), "a reader goes on without");
        fs::remove_dir_all(index.join(PINS)).unwrap();
        // Nothing is made or removed through a link, and a reader goes on without a pin.
        let elsewhere = place.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join(name_of(7)), "").unwrap();
        symlink(&elsewhere, index.join(PINS)).unwrap();
        assert_eq!((lowest(&index, 9), told(&index)), (0, vec![index.join(PINS)]));
        assert!(pin(&index, 8).unwrap().is_none());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    }
}
