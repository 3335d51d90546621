//! Kinds of file systems that a bench can create, their programs, and their options.

use std::fmt;
use std::fs::{self, Metadata};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::str::FromStr;

use super::emulate::Emulation;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{KIB, MIB, format_size};

/// A kind of file system that can be created for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileSystemKind {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// NTFS.
    Ntfs,
    /// FAT.
    Fat,
    /// exFAT.
    Exfat,
}

/// A program outside the kernel that serves a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fuse {
    pub program: &'static str,
    /// Options that it always gets, after `-o`.
    pub options: &'static [&'static str],
    /// Argument that keeps it in the foreground; `None` if it would then also print every operation.
    pub foreground: Option<&'static str>,
}

impl FileSystemKind {
    /// All kinds.
    pub const ALL: [FileSystemKind; 8] = [
        FileSystemKind::Ext2,
        FileSystemKind::Ext3,
        FileSystemKind::Ext4,
        FileSystemKind::Xfs,
        FileSystemKind::Btrfs,
        FileSystemKind::Ntfs,
        FileSystemKind::Fat,
        FileSystemKind::Exfat,
    ];

    /// Its name here.
    pub fn name(self) -> &'static str {
        match self {
            FileSystemKind::Ext2 => "ext2",
            FileSystemKind::Ext3 => "ext3",
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "xfs",
            FileSystemKind::Btrfs => "btrfs",
            FileSystemKind::Ntfs => "ntfs",
            FileSystemKind::Fat => "fat",
            FileSystemKind::Exfat => "exfat",
        }
    }

    /// The program that creates it.
    pub(super) fn maker(self) -> String {
        format!("mkfs.{}", self.name())
    }

    /// Arguments that the program always gets: to work on a file, to ask no questions.
    pub(super) fn maker_arguments(self) -> &'static [&'static str] {
        match self {
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => &["-q", "-F"],
            FileSystemKind::Xfs | FileSystemKind::Btrfs => &["-q", "-f"],
            FileSystemKind::Ntfs => &["-q", "-F", "-Q"],
            FileSystemKind::Fat | FileSystemKind::Exfat => &[],
        }
    }

    /// Arguments that set a block (cluster) size.
    pub(super) fn block_arguments(self, block_bytes: u64) -> Vec<String> {
        match self {
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => {
                vec!["-b".to_owned(), block_bytes.to_string()]
            }
            FileSystemKind::Xfs => vec!["-b".to_owned(), format!("size={block_bytes}")],
            FileSystemKind::Btrfs => vec!["-s".to_owned(), block_bytes.to_string()],
            FileSystemKind::Ntfs | FileSystemKind::Exfat => vec!["-c".to_owned(), block_bytes.to_string()],
            FileSystemKind::Fat => vec!["-s".to_owned(), (block_bytes / 512).to_string()],
        }
    }

    /// The kernel's name for it.
    pub(super) fn kernel_type(self) -> &'static str {
        match self {
            FileSystemKind::Ntfs => "ntfs3",
            FileSystemKind::Fat => "vfat",
            other => other.name(),
        }
    }

    /// The program that serves it where the kernel does not; `None` if only the kernel can.
    pub(super) fn fuse(self) -> Option<Fuse> {
        match self {
            FileSystemKind::Ntfs => Some(Fuse { program: "ntfs-3g", options: &[], foreground: Some("-ono_detach") }),
            FileSystemKind::Fat => Some(Fuse { program: "fusefat", options: &["rw+"], foreground: Some("-f") }),
            FileSystemKind::Exfat => Some(Fuse { program: "mount.exfat-fuse", options: &[], foreground: None }),
            _ => None,
        }
    }

    /// The smallest and the largest block (cluster) size that Linux can use.
    pub(in crate::bench) fn possible_block_bytes(self) -> RangeInclusive<u64> {
        match self {
            FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4 => KIB..=4 * KIB,
            FileSystemKind::Xfs => KIB..=64 * KIB,
            FileSystemKind::Btrfs => 4 * KIB..=64 * KIB,
            FileSystemKind::Ntfs | FileSystemKind::Fat => 512..=64 * KIB,
            FileSystemKind::Exfat => 512..=32 * MIB,
        }
    }

    /// The smallest image that the program accepts, with space for a few files.
    pub(super) fn least_bytes(self) -> u64 {
        match self {
            FileSystemKind::Xfs => 300 << 20,
            FileSystemKind::Btrfs => 128 << 20,
            _ => 16 << 20,
        }
    }
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FileSystemKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<FileSystemKind, String> {
        let names = || FileSystemKind::ALL.map(FileSystemKind::name).join(", ");
        let found = FileSystemKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a supported file system; use one of {}", names()))
    }
}

/// A file system to create for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystemSpec {
    /// Kind.
    pub kind: FileSystemKind,
    /// Size of its device.
    pub size_bytes: u64,
    /// Block size (NTFS, FAT and exFAT: cluster size); `None` for the default of the program.
    pub block_bytes: Option<u64>,
    /// Further arguments of the program that creates it.
    pub make_options: Vec<String>,
    /// Mount options, separated by commas; empty for none.
    pub mount_options: String,
    /// Limits that slow down its device.
    pub emulation: Option<Emulation>,
}

impl FileSystemSpec {
    /// A file system with the defaults of its program.
    pub fn new(kind: FileSystemKind, size_bytes: u64) -> FileSystemSpec {
        FileSystemSpec {
            kind,
            size_bytes,
            block_bytes: None,
            make_options: Vec::new(),
            mount_options: String::new(),
            emulation: None,
        }
    }

    /// Same, with options as they are typed: `-o` and its value are for mounting, as in `mount`; all others are for the
    /// program that creates it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for `-o` without a value, and for an argument that would be taken as the device.
    pub fn with_options(mut self, options: &str) -> Result<FileSystemSpec> {
        let wrong = |cause: String| Error::new(ErrorKind::Usage, "create a file system", cause);
        let mut words = options.split_whitespace();
        let mut mount: Vec<&str> = self.mount_options.split(',').filter(|option| !option.is_empty()).collect();
        let mut takes_value = false;
        while let Some(word) = words.next() {
            match word.strip_prefix("-o") {
                Some("") => {
                    mount.push(words.next().ok_or_else(|| wrong(format!("option -o of {} has no value", self.kind)))?)
                }
                Some(value) => mount.push(value),
                // Not every option takes a value, and mkfs would then overwrite this instead.
                None if !word.starts_with('-') && may_be_overwritten(self.kind, word) => {
                    return Err(wrong(format!("'{word}' in the options of {} is a device or a file", self.kind)));
                }
                None if !word.starts_with('-') && !takes_value => {
                    let cause = format!("'{word}' in the options of {} does not belong to an option", self.kind);
                    return Err(wrong(cause));
                }
                None => {
                    self.make_options.push(word.to_owned());
                    takes_value = word.starts_with('-');
                }
            }
        }
        self.mount_options = mount.join(",");
        Ok(self)
    }

    /// A short name: `ext4`, `xfs -m crc=0`, `ext4 -o noatime`, `ext4 1 KiB`.
    pub fn name(&self) -> String {
        let mut name = self.kind.name().to_owned();
        if let Some(block_bytes) = self.block_bytes {
            name.push_str(&format!(" {}", format_size(block_bytes.into())));
        }
        for option in &self.make_options {
            name.push_str(&format!(" {option}"));
        }
        if !self.mount_options.is_empty() {
            name.push_str(&format!(" -o {}", self.mount_options));
        }
        name
    }

    /// Checks its size and its block size, before anything is done.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |cause: String| Err(Error::new(ErrorKind::Usage, "create a file system", cause));
        let least = self.kind.least_bytes();
        if self.size_bytes < least {
            let cause = format!("{} needs at least {}", self.kind, format_size(least.into()));
            let error = Error::new(ErrorKind::Usage, "create a file system", cause);
            return Err(error.advise("increase --fs-size"));
        }
        match self.block_bytes {
            Some(bytes) if !bytes.is_power_of_two() || !self.kind.possible_block_bytes().contains(&bytes) => {
                wrong(format!("{} does not support blocks of {}", self.kind, format_size(bytes.into())))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a program that creates this kind might take a word as a device: only mkfs.btrfs takes several, and images
/// too.
fn may_be_overwritten(kind: FileSystemKind, word: &str) -> bool {
    let is_device = |found: &Metadata| found.file_type().is_block_device();
    fs::metadata(word).is_ok_and(|found| is_device(&found) || (kind == FileSystemKind::Btrfs && found.is_file()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn kinds_are_read_by_their_names() {
        for kind in FileSystemKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("zfs".parse::<FileSystemKind>().unwrap_err().contains("btrfs"));
    }

    #[test]
    fn options_go_where_they_belong() {
        let plain = FileSystemSpec::new(FileSystemKind::Ext4, 1 << 30);
        assert_eq!(plain.name(), "ext4");
        let spec = plain.clone().with_options("-O ^has_journal -o noatime -onodelalloc -b 1024").unwrap();
        assert_eq!(spec.make_options, ["-O", "^has_journal", "-b", "1024"]);
        assert_eq!(spec.mount_options, "noatime,nodelalloc");
        assert_eq!(spec.name(), "ext4 -O ^has_journal -b 1024 -o noatime,nodelalloc");
        assert_eq!(plain.clone().with_options("").unwrap(), plain);
        for wrong in ["-o", "/dev/sda", "-b 1024 /dev/sda", "-q -F x y"] {
            assert_eq!(plain.clone().with_options(wrong).unwrap_err().kind(), ErrorKind::Usage, "{wrong}");
        }
    }

    #[test]
    fn what_would_be_overwritten_is_no_option() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let options = format!("-K {}", image.path().display());
        let btrfs = FileSystemSpec::new(FileSystemKind::Btrfs, 1 << 30);
        assert_eq!(btrfs.clone().with_options(&options).unwrap_err().kind(), ErrorKind::Usage);
        assert!(btrfs.with_options(&format!("{options}.none")).is_ok());
        // An option of mkfs.ext4 may name a file.
        assert!(FileSystemSpec::new(FileSystemKind::Ext4, 1 << 30).with_options(&options).is_ok());
        let blocks = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        for device in blocks.map(|entry| Path::new("/dev").join(entry.file_name())).filter(|device| device.exists()) {
            let options = format!("-K {}", device.display());
            let ext4 = FileSystemSpec::new(FileSystemKind::Ext4, 1 << 30).with_options(&options);
            // Another test may have removed it meanwhile.
            let is_refused = ext4.is_err_and(|error| error.kind() == ErrorKind::Usage);
            assert!(is_refused || !device.exists(), "{options}");
        }
    }

    #[test]
    fn what_cannot_be_made_is_said_before() {
        assert!(FileSystemSpec::new(FileSystemKind::Xfs, 64 << 20).check().is_err());
        let odd = FileSystemSpec { block_bytes: Some(3000), ..FileSystemSpec::new(FileSystemKind::Ext4, 1 << 30) };
        assert!(odd.check().is_err());
        assert!(FileSystemSpec { block_bytes: Some(1024), ..odd.clone() }.check().is_ok());
        assert!(FileSystemSpec { block_bytes: Some(8192), ..odd }.check().is_err());
        let exfat = FileSystemSpec::new(FileSystemKind::Exfat, 1 << 30);
        assert!(FileSystemSpec { block_bytes: Some(32 << 20), ..exfat }.check().is_ok());
    }
}
