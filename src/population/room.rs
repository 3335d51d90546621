//! Whether a tree fits, determined before the first file is made.

use std::os::fd::AsFd;

use rustix::fs::{fstatfs, fstatvfs};

use super::content::Content;
use super::design::Design;
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Model};
use crate::units::{format_count, format_share, format_size};

/// Unit of allocation of file systems that do not report theirs.
const USUAL_UNIT_BYTES: u64 = 4096;
/// Metadata per file on an unknown file system: an inode and some more.
const INODE_BYTES: u128 = 512;
/// Sizes that represent a cell when space is summed.
const SAMPLES: u64 = 16;

/// Space of a file system.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Room {
    /// Its kind: `ext4`, `xfs`, `btrfs`, `tmpfs`, `zfs`, `nfs`, `ceph`; `other` for any kind that is not distinguished
    /// here.
    pub file_system: &'static str,
    /// Its block size, as `statvfs` reports it; see [`unit_bytes`](Self::unit_bytes).
    pub block_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that can still be allocated.
    pub available_bytes: u64,
    /// What is in use.
    pub used_bytes: u64,
    /// Inodes that can still be created; `None` where they are not limited.
    pub available_inodes: Option<u64>,
    /// The longest name.
    pub name_limit: u64,
}

/// How much of a file system may be filled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowed {
    /// At most this many bytes.
    pub limit_bytes: Option<u64>,
    /// This share of the file system stays free.
    pub keep_free: f64,
}

/// The space that a tree needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Needed {
    /// Inodes.
    pub inodes: u64,
    /// Approximate bytes allocated for files, directories and metadata.
    pub bytes: u128,
}

/// The space that single files need on a file system.
#[derive(Debug)]
pub(crate) struct Tariff {
    layout: Box<dyn Layout>,
    inode: u128,
    written: f64,
}

impl Tariff {
    /// The space that a file of a size needs, with its metadata.
    pub(crate) fn bytes(&self, size: u64) -> u64 {
        // Not what `stat` shows as allocated: an inline file is in its metadata alone.
        let data = self.layout.data_bytes(size);
        let data = if self.written == 1.0 { data } else { (data as f64 * self.written) as u128 };
        let metadata = self.layout.file(size).metadata_bytes + self.inode;
        u64::try_from(data.saturating_add(metadata)).unwrap_or(u64::MAX)
    }

    /// The mean over the files of a distribution.
    pub(crate) fn mean_bytes(&self, sizes: &Distribution) -> f64 {
        let (mut bytes, mut count) = (0.0, 0.0);
        for cell in sizes.cells() {
            bytes += self.bytes(cell.mean()) as f64 * cell.count as f64;
            count += cell.count as f64;
        }
        if count > 0.0 { bytes / count } else { 0.0 }
    }
}

impl Room {
    /// Space of the file system of an open directory.
    ///
    /// # Errors
    /// Any error of `statfs`.
    pub fn of(directory: impl AsFd) -> rustix::io::Result<Room> {
        let said = fstatvfs(&directory)?;
        let kind = match fstatfs(&directory)?.f_type as u64 & 0xffff_ffff {
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs",
            0x2fc1_2fc1 => "zfs",
            0x6969 => "nfs",
            0x00c3_6400 => "ceph",
            _ => "other",
        };
        let block_bytes = said.f_frsize.max(1);
        Ok(Room {
            file_system: kind,
            block_bytes,
            size_bytes: said.f_blocks.saturating_mul(block_bytes),
            available_bytes: said.f_bavail.saturating_mul(block_bytes),
            used_bytes: said.f_blocks.saturating_sub(said.f_bfree).saturating_mul(block_bytes),
            available_inodes: (said.f_files > 0).then_some(said.f_favail),
            name_limit: said.f_namemax,
        })
    }

    /// Used share, as `df` computes it: `used / (used + available)`.
    pub fn fill_fraction(&self) -> f64 {
        let whole = self.used_bytes as f64 + self.available_bytes as f64;
        if whole > 0.0 { self.used_bytes as f64 / whole } else { 0.0 }
    }

    /// Bytes that must stay available.
    pub fn kept_bytes(&self, allowed: &Allowed) -> u64 {
        (self.size_bytes as f64 * allowed.keep_free) as u64
    }

    /// The unit of allocation. Network file systems report the size of a transfer as their block size.
    pub fn unit_bytes(&self) -> u64 {
        if matches!(self.file_system, "nfs" | "ceph") { USUAL_UNIT_BYTES } else { self.block_bytes }
    }

    /// How a file of a size is allocated here.
    fn layout(&self) -> Box<dyn Layout> {
        let named = match self.file_system {
            "ext4" | "xfs" => Model::parse(&format!("{}:block={}", self.file_system, self.block_bytes)),
            "btrfs" => Model::parse("btrfs"),
            // Its free space is reported without the parity of the pool.
            "zfs" => Model::parse("zfs:vdev=single"),
            _ => Model::parse(&format!("block:size={}", self.unit_bytes())),
        };
        let model = named.or_else(|_| Model::parse("block"));
        model.map(|model| model.layout).unwrap_or_else(|_| unreachable!("block is a model"))
    }

    /// The space that files need here when this share of their blocks is written.
    pub(crate) fn tariff(&self, written: f64) -> Tariff {
        let layout = self.layout();
        let inode = if layout.file(0).metadata_bytes > 0 { 0 } else { INODE_BYTES };
        Tariff { layout, inode, written }
    }

    /// The space that a design needs here.
    pub fn needed(&self, design: &Design, content: Content) -> Needed {
        let tariff = self.tariff(content.written_fraction());
        let mut files = 0u128;
        design.sizes.for_samples(SAMPLES, |size, count| {
            files = files.saturating_add(u128::from(tariff.bytes(size)).saturating_mul(count.into()));
        });
        let layout = self.layout();
        let entries = design.files() + design.tree.directories() - 1;
        let name_length = (design.name_bytes() / u128::from(entries.max(1))) as u64;
        let mut directories = 0u128;
        for cell in design.tree.entries().cells() {
            let entries_bytes = layout.entry_bytes(name_length).max(name_length + 16).saturating_mul(cell.mean());
            let space = match layout.directory(cell.mean(), entries_bytes) {
                Some(space) => space.allocated_bytes + space.metadata_bytes,
                None => u128::from(entries_bytes.next_multiple_of(self.unit_bytes())) + INODE_BYTES,
            };
            directories = directories.saturating_add(space.saturating_mul(cell.count));
        }
        let inodes = design.files() + design.tree.directories() - 1;
        Needed { inodes, bytes: files.saturating_add(directories) }
    }

    /// A lower bound of its space, known before there is a design: to refuse absurd requests.
    pub fn least_needed(&self, files: u64, directories: u64, size_bytes: f64, content: Content) -> Needed {
        let inodes = files.saturating_add(directories);
        // Less than half of it where a file system packs or compresses; names and inodes need some space everywhere.
        let data = size_bytes * content.written_fraction() * 0.4;
        Needed { inodes, bytes: data as u128 + u128::from(inodes) * 32 }
    }

    /// Refuses a tree that does not fit.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] with what is missing; [`ErrorKind::Usage`] where the limit was the user's own.
    pub fn refuse(&self, needed: &Needed, allowed: &Allowed) -> Result<()> {
        let fail = |kind, cause: String| Error::new(kind, "generate", cause);
        if let Some(inodes) = self.available_inodes.filter(|&inodes| needed.inodes > inodes) {
            let cause = format!(
                "it needs {} inodes, but the file system has {} left",
                format_count(needed.inodes.into()),
                format_count(inodes.into())
            );
            return Err(fail(ErrorKind::NoSpace, cause).advise("use fewer files, or choose another file system"));
        }
        if let Some(limit) = allowed.limit_bytes.filter(|&limit| needed.bytes > u128::from(limit)) {
            let cause =
                format!("it needs about {}, but the limit is {}", format_size(needed.bytes), format_size(limit.into()));
            return Err(fail(ErrorKind::Usage, cause).advise("use fewer files, or raise --limit"));
        }
        let kept = self.kept_bytes(allowed);
        if needed.bytes.saturating_add(kept.into()) > u128::from(self.available_bytes) {
            let mut cause = format!(
                "it needs about {}, but {} are available",
                format_size(needed.bytes),
                format_size(self.available_bytes.into())
            );
            if kept > 0 {
                let share = format_share(allowed.keep_free);
                cause.push_str(&format!(
                    ", of which {} ({share} of the file system) must stay free",
                    format_size(kept.into())
                ));
            }
            let advice = "use fewer files, omit the data with --metadata-only, or lower --keep-free";
            return Err(fail(ErrorKind::NoSpace, cause).advise(advice));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Recipe;
    use super::*;
    use crate::distribution::published;

    fn room() -> Room {
        Room {
            file_system: "ext4",
            block_bytes: 4096,
            size_bytes: 100 << 30,
            available_bytes: 60 << 30,
            used_bytes: 35 << 30,
            available_inodes: Some(1_000_000),
            name_limit: 255,
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let room = room();
        let allowed = Allowed { limit_bytes: Some(40 << 30), keep_free: 0.05 };
        let said = |inodes, gib: u128, allowed: &Allowed| {
            room.refuse(&Needed { inodes, bytes: gib << 30 }, allowed).err().map(|error| error.to_string())
        };
        assert_eq!(said(1_000_000, 40, &allowed), None);
        assert!(said(1_000_001, 1, &allowed).unwrap().contains("1,000,001 inodes"));
        assert!(said(1, 41, &allowed).unwrap().contains("the limit is 40 GiB"));
        let allowed = Allowed { limit_bytes: None, keep_free: 0.05 };
        assert_eq!(said(1, 55, &allowed), None);
        assert!(said(1, 56, &allowed).unwrap().contains("5.0 % of the file system"));
        assert_eq!(said(1, 60, &Allowed { limit_bytes: None, keep_free: 0.0 }), None);
        let absurd = room.least_needed(1 << 48, 1 << 40, 1e19, Content::None);
        assert!(Room { available_inodes: None, ..room }.refuse(&absurd, &allowed).is_err());
    }

    #[test]
    fn what_is_needed_is_the_sum_of_the_layout() {
        let recipe = Recipe::of_sizes(published::find("vu-1984").unwrap().distribution().clone());
        let design = Design::new(&recipe, 10_000, 1.0, 1, None, 255);
        let needed = room().needed(&design, Content::Random);
        let blocks: u128 = (0..10_000).map(|file| u128::from(design.size(file).next_multiple_of(4096))).sum();
        assert_eq!(needed.inodes, 10_099);
        // Inodes of 256 bytes, and 100 directories of two blocks.
        let metadata = 10_099 * 256 + 100 * 8192;
        assert!(needed.bytes.abs_diff(blocks + metadata) < 2 << 20, "{needed:?} {blocks}");
        let bare = room().needed(&design, Content::None);
        assert!(bare.bytes < needed.bytes / 4);
    }

    #[test]
    fn the_size_of_a_transfer_is_no_unit_of_allocation() {
        let recipe = Recipe::of_sizes(published::find("vu-1984").unwrap().distribution().clone());
        let design = Design::new(&recipe, 10_000, 1.0, 1, None, 255);
        let bytes = |file_system, block_bytes| {
            let room = Room { file_system, block_bytes, ..room() };
            room.needed(&design, Content::Random).bytes
        };
        let usual = bytes("other", 4096);
        for (file_system, block_bytes) in [("nfs", 1 << 20), ("ceph", 4 << 20)] {
            assert_eq!(bytes(file_system, block_bytes), usual, "{file_system}");
        }
        assert!(bytes("other", 1 << 20) > 10 * usual);
    }

    #[test]
    fn zfs_reports_free_space_without_parity() {
        let bytes = Room { file_system: "zfs", ..room() }.tariff(1.0).bytes(1 << 20);
        assert!(((1 << 20)..(1 << 20) * 11 / 10).contains(&bytes), "{bytes}");
    }

    #[test]
    fn an_inline_file_is_counted_once() {
        let tariff = Room { file_system: "btrfs", ..room() }.tariff(1.0);
        let space = Model::parse("btrfs").unwrap().layout.file(1024);
        assert_eq!(u128::from(tariff.bytes(1024)), space.metadata_bytes);
        assert!(tariff.bytes(4096) > 4096);
    }
}
