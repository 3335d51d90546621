//! The file of an image while a mount is made, and what ended mounts left in a store.
//!
//! The image is `mount-RANDOM.erofs` in the home of the store. Its maker holds it locked (`flock`) until the kernel has
//! it open, and then removes its name: an image whose lock is free is that of a mount that was killed.
//!
//! The pin of the same name is made when the mount is there. Only the writer of a store makes and releases pins, and
//! there is one at a time: a pin that no mount has is not one of a mount that is being made, but of one that ended
//! without `granulo unmount`, by umount(8) or with the system. On a file system that machines share it may be that of
//! a mount on another one, and stays. (A mount in another namespace needs no pin: the kernel has its files open.)

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::KIND;
use crate::error::{Error, Result};
use crate::mounts::{Mount, mount_of, mounts};
use crate::store::Store;

const PREFIX: &str = "mount-";
const SUFFIX: &str = ".erofs";
/// Hexadecimal digits behind the prefix.
const DIGITS: usize = 16;
/// File systems of one machine: no other can have mounted a store that is on them.
const OF_ONE_MACHINE: [&str; 10] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "overlay"];

/// The file of an image. Dropping it removes it.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) name: String,
    pub(super) path: PathBuf,
    file: File,
}

/// What ended mounts had left, and is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOvers {
    /// Images of mounts that were killed.
    pub(crate) images: Vec<PathBuf>,
    /// Names of pins that no mount has.
    pub(crate) pins: Vec<String>,
}

impl ImageFile {
    /// Creates one in the home of a store, for its owner alone: it has the names of all files.
    ///
    /// # Errors
    /// Errors of creating or locking it, and of the random number generator of the system.
    pub(super) fn create(home: &Path) -> Result<ImageFile> {
        loop {
            let name = new_name()?;
            let path = home.join(format!("{name}{SUFFIX}"));
            let fail = |error: io::Error| Error::io("create", &path, error);
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = file.map_err(fail)?;
            flock(&file, FlockOperation::LockExclusive).map_err(|errno| fail(errno.into()))?;
            // Until it was locked, another mount could take it for a left-over.
            if file.metadata().map_err(fail)?.nlink() > 0 {
                return Ok(ImageFile { name, path, file });
            }
        }
    }

    /// The open file.
    ///
    /// # Errors
    /// The process has too many.
    pub(super) fn file(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| Error::io("write", &self.path, error))
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        // Otherwise, the next mount clears it away.
        let _ = fs::remove_file(&self.path);
    }
}

/// A new name for a mount: that of its image, and of the pin that keeps what it shows.
fn new_name() -> Result<String> {
    let mut bytes = [0; DIGITS / 2];
    let path = Path::new("/dev/urandom");
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Error::io("read", path, error))?;
    Ok(format!("{PREFIX}{:0DIGITS$x}", u64::from_ne_bytes(bytes)))
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The home and the name of the mount whose image was at this path.
pub(crate) fn home_and_name(source: &Path) -> Option<(&Path, &str)> {
    let name = source.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    is_name(name).then_some((source.parent()?, name))
}

/// Clears away what ended mounts left in a store: images, and the pins if it is open for writing.
///
/// # Errors
/// Errors of reading the mounts of the system, and of writing to the store.
pub(crate) fn clear_left_overs(store: &Store, home: &Path, is_writer: bool) -> Result<LeftOvers> {
    let pins = if is_writer { release_pins(store, home)? } else { Vec::new() };
    Ok(LeftOvers { images: clear_images(home), pins })
}

fn release_pins(store: &Store, home: &Path) -> Result<Vec<String>> {
    let pins: Vec<String> = store.pins()?.into_iter().map(|(name, _)| name).filter(|name| is_name(name)).collect();
    if pins.is_empty() {
        return Ok(pins);
    }
    let released = without_mount(pins, &mount_of(home)?.kind, &mounts()?);
    released.iter().try_for_each(|name| store.unpin(name).map(drop))?;
    Ok(released)
}

/// The images in a home that nobody makes any more: they are removed, except where that is not possible.
fn clear_images(home: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| home_and_name(path).is_some() && remove_if_left(path).is_ok()).collect()
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::remove_file(path)
}

/// Those of the pins of a store, on a file system of this kind, that none of these mounts has.
fn without_mount(mut pins: Vec<String>, kind: &str, mounts: &[Mount]) -> Vec<String> {
    if !OF_ONE_MACHINE.contains(&kind) {
        return Vec::new();
    }
    let mounted = mounts.iter().filter(|mount| mount.kind == KIND).map(|mount| Path::new(&mount.source));
    // Names are random: that of the home may have changed since.
    let mounted: Vec<&str> = mounted.filter_map(|source| Some(home_and_name(source)?.1)).collect();
    pins.retain(|name| !mounted.contains(&&name[..]));
    pins
}

#[cfg(test)]
mod tests {
    use crate::mounts::parse;
    use crate::store::Plan;

    use super::*;

    const DEAD: &str = "mount-0123456789abcdef";

    #[test]
    fn images_of_killed_mounts_are_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let being_made = ImageFile::create(home.path()).unwrap();
        let dead = home.path().join(format!("{DEAD}.erofs"));
        let others = ["mount-0123456789abcdef", "mount-0.erofs", "mount-0123456789abcdeg.erofs", "index"];
        [&dead].into_iter().cloned().chain(others.map(|name| home.path().join(name))).for_each(|path| {
            fs::write(path, "x").unwrap();
        });
        fs::create_dir(home.path().join("mount-00000000000000d0.erofs")).unwrap();
        std::os::unix::fs::symlink("index", home.path().join("mount-0000000000000011.erofs")).unwrap();
        assert_eq!(clear_images(home.path()), [dead]);
        assert!(being_made.path.exists() && clear_images(home.path()).is_empty());
        drop(being_made);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), others.len() + 2);
    }

    #[test]
    fn pins_without_a_mount_are_found_where_no_other_machine_can_have_it() {
        let alive = new_name().unwrap();
        let pins = || vec![DEAD.to_owned(), alive.clone()];
        let rows = format!(
            "36 35 0:41 / /mnt/a ro - erofs /former/home/{alive}.erofs ro\n\
             37 35 0:42 / /mnt/b ro - ext4 /home/{DEAD}.erofs ro\n"
        );
        let mounts = parse(rows.as_bytes());
        assert_eq!(mounts.len(), 2);
        assert_eq!(without_mount(pins(), "ext4", &mounts), [DEAD]);
        assert_eq!(without_mount(pins(), "ext4", &[]), pins());
        assert_eq!(without_mount(pins(), "nfs4", &mounts), [""; 0]);
    }

    #[test]
    fn only_a_writer_releases_pins_and_only_those_of_mounts() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let store = Store::create(&home, &Plan::default()).unwrap();
        for name in [DEAD, "mount-of-mine", "nightly"] {
            store.pin(name).unwrap();
        }
        assert_eq!(clear_left_overs(&store, &home, false).unwrap(), LeftOvers::default());
        let is_of_one_machine = OF_ONE_MACHINE.contains(&&mount_of(&home).unwrap().kind[..]);
        let released = if is_of_one_machine { vec![DEAD.to_owned()] } else { Vec::new() };
        assert_eq!(clear_left_overs(&store, &home, true).unwrap().pins, released);
        assert_eq!(store.pins().unwrap().len(), 3 - released.len());
    }
}
