//! A device that is written to remains the directory that was opened.
//!
//! While a store is open, paths may come to lead elsewhere: another file system is mounted, or two directories are
//! swapped. Open files are unaffected; but whatever is created, opened for writing, renamed or removed by name would be
//! so on another device, where the same name may belong to live units. So each of these operations first checks that
//! the path still leads to the same directory.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::device::{Device, DeviceFile, Mode, NotAFile, Room};

/// Identifies the directory that was at a path.
pub(crate) trait Anchor: Send + Sync + Debug {
    /// Whether the path still leads to it.
    fn is_in_place(&self) -> bool;
}

/// A device that refuses changes by name once its path leads elsewhere.
#[derive(Debug)]
pub(crate) struct Anchored {
    device: Arc<dyn Device>,
    anchor: Box<dyn Anchor>,
}

impl Anchored {
    pub(crate) fn new(device: Arc<dyn Device>, anchor: Box<dyn Anchor>) -> Anchored {
        Anchored { device, anchor }
    }

    fn in_place(&self) -> io::Result<&dyn Device> {
        match self.anchor.is_in_place() {
            true => Ok(&*self.device),
            false => Err(io::Error::other("another directory has replaced the one that was opened")),
        }
    }
}

impl Device for Anchored {
    fn place(&self) -> PathBuf {
        self.device.place()
    }

    fn open(&self, path: &str, mode: Mode) -> io::Result<Arc<dyn DeviceFile>> {
        match mode {
            Mode::Read => self.device.open(path, mode),
            Mode::Write | Mode::Create => self.in_place()?.open(path, mode),
        }
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.device.list(directory)
    }

    fn list_names(&self, directory: &str) -> io::Result<Vec<String>> {
        self.device.list_names(directory)
    }

    fn list_others(&self, directory: &str) -> io::Result<Vec<(String, NotAFile)>> {
        self.device.list_others(directory)
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.in_place()?.create_directory(directory)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.in_place()?.sync_directory(directory)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.in_place()?.remove(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.in_place()?.rename(from, to)
    }

    fn room(&self) -> io::Result<Room> {
        self.device.room()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::devices::host::Host;
    use crate::devices::platform::Platform;

    fn anchored(path: &Path) -> Anchored {
        Anchored::new(Host.device(path), Host.anchor(path).expect("it is there"))
    }

    #[test]
    fn two_directories_change_places_and_nothing_is_made_or_removed_in_the_wrong_one() {
        let sandbox = tempfile::tempdir().unwrap();
        let [one, other, aside] = ["one", "other", "aside"].map(|name| sandbox.path().join(name));
        for path in [&one, &other] {
            fs::create_dir_all(path.join("extents")).unwrap();
        }
        let device = anchored(&one);
        let open = device.open("extents/0", Mode::Create).unwrap();
        open.write_at(b"one", 0).unwrap();
        fs::write(other.join("extents/0"), "other").unwrap();
        for (from, to) in [(&one, &aside), (&other, &one), (&aside, &other)] {
            fs::rename(from, to).unwrap();
        }
        assert!(device.open("extents/0", Mode::Write).is_err());
        assert!(device.open("extents/1", Mode::Create).is_err());
        assert!(device.remove("extents/0").is_err() && device.rename("extents/0", "extents/1").is_err());
        assert!(device.sync_directory("extents").is_err() && device.create_directory("more").is_err());
        open.write_at(b"two", 3).unwrap();
        assert_eq!(fs::read(one.join("extents/0")).unwrap(), b"other");
        assert_eq!(fs::read(other.join("extents/0")).unwrap(), b"onetwo");
        for (from, to) in [(&one, &aside), (&other, &one), (&aside, &other)] {
            fs::rename(from, to).unwrap();
        }
        assert!(device.open("extents/1", Mode::Create).is_ok());
    }

    #[test]
    fn a_directory_that_is_gone_is_not_made_again() {
        let sandbox = tempfile::tempdir().unwrap();
        let path = sandbox.path().join("device");
        assert!(Host.anchor(&path).is_none());
        fs::create_dir(&path).unwrap();
        let device = anchored(&path);
        fs::remove_dir(&path).unwrap();
        assert!(device.create_directory("segments").is_err() && !path.exists());
    }
}
