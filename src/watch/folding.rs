//! Directories that find a name however its letters are written: `chattr +F` on ext4 and F2FS, and all of FAT.
//!
//! An event there has the name as the program wrote it that came first, because the kernel keeps it so in its cache of
//! names; the directory may have another spelling, which only a listing tells. So after an event on any name in such a
//! directory it is listed again. XFS (`-n version=ci`) reports the spelling of the directory.

use std::path::Path;
use std::time::Instant;

use super::Watch;
use super::look::Truth;
use super::scan::{Unlisted, to_list};
use crate::error::{Error, Result};
use crate::scan::inodes::ext;
use crate::scan::inodes::medium::Device;
use crate::scan::inodes::target::ScanTarget;
use crate::sys::Handle;

/// Which directories of a file system find names however they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folding {
    /// None.
    Nowhere,
    /// Those with a flag, which an empty directory may get and lose.
    WhereFlagged,
    /// All.
    Everywhere,
}

impl Folding {
    /// That of a file system of this kind, which is mounted at `path`.
    pub(super) fn of(kind: &str, path: &Path) -> Folding {
        match kind {
            // Of a superblock that cannot be read nothing is known.
            "ext4" if folds_in_ext4(path).unwrap_or(true) => Folding::WhereFlagged,
            "f2fs" | "bcachefs" => Folding::WhereFlagged,
            "vfat" | "msdos" | "exfat" | "ntfs3" | "hfs" | "hfsplus" => Folding::Everywhere,
            _ => Folding::Nowhere,
        }
    }

    /// Whether it is so in this directory.
    fn is_in(self, truth: &Truth, directory: &[u8]) -> bool {
        match self {
            Folding::Nowhere => false,
            Folding::WhereFlagged => truth.folds_names(directory),
            Folding::Everywhere => true,
        }
    }
}

fn folds_in_ext4(path: &Path) -> Result<bool> {
    let target = ScanTarget::of(path)?;
    let device = Device::open(&target.device_path);
    ext::folds_names(&device.map_err(|error| Error::io("read the superblock of", &target.device_path, error))?)
}

impl Watch<'_> {
    /// Whether events do not tell the names in a directory, which is then to be listed again: a known one at once,
    /// another when its own name is looked at.
    pub(super) fn is_folded(&mut self, directory: &[u8], now: Instant, unlisted: &mut Vec<Unlisted>) -> bool {
        if !self.folding.is_in(&self.truth, directory) {
            return false;
        }
        if let Some((_, slot)) = self.open_known(directory) {
            let number = self.tree.number(slot);
            unlisted.extend(to_list(&mut self.tree, number, Handle::from_bytes(directory)));
            self.written_back.add(directory, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::sys::handle_of;

    #[test]
    fn a_directory_without_the_flag_tells_names_as_they_are() {
        let place = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(std::fs::File::open(place.path()).unwrap());
        let truth = Truth::of(opened, 1);
        let Ok(handle) = handle_of(truth.mount(), c"") else { return };
        let is_in = |folding: Folding| folding.is_in(&truth, handle.as_bytes());
        assert_eq!([Folding::Nowhere, Folding::WhereFlagged, Folding::Everywhere].map(is_in), [false, false, true]);
    }

    #[test]
    fn what_is_not_known_of_a_file_system_is_asked_of_its_directories() {
        let of = |kind| Folding::of(kind, Path::new("/no/such/place"));
        assert_eq!(["ext4", "f2fs"].map(of), [Folding::WhereFlagged; 2]);
        assert_eq!(["ext3", "xfs", "btrfs", "tmpfs"].map(of), [Folding::Nowhere; 4]);
        assert_eq!(of("vfat"), Folding::Everywhere);
    }
}
