//! Converts an on-disk inode to the values that `stat` reports.

use super::superblock::{Superblock, is_sealed};
use crate::scan::inodes::fields::BigEndian;
use crate::scan::inodes::remember::version_of;
use crate::scan::{Kind, Stat, Timestamp};

pub(super) const MAGIC: u16 = 0x494e;
const CHECKSUM: usize = 100;
const V2_CORE_BYTES: usize = 100;
pub(super) const V3_CORE_BYTES: usize = 176;
/// Offset of the field for the length of the data fork.
pub(super) const FORK_OFFSET: usize = 82;
/// Bits of the second flags field.
pub(super) const LARGE_TIMES: u64 = 0x8;
pub(super) const LARGE_COUNTS: u64 = 0x10;
const INTERNAL: u64 = 0x20;
/// Large times count nanoseconds from the smallest 32-bit time.
const LARGE_EPOCH: i64 = -(1 << 31);

/// Storage format of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Device,
    Local,
    Extents,
    Tree,
    Other,
}

/// Content of an inode slot.
pub(super) enum Decoded {
    /// No inode that a name leads to.
    None,
    /// An inode. The target of a symlink is read later, to tell whether it is absolute.
    Inode(Stat),
    /// Invalid data.
    Damaged(&'static str),
}

/// Decodes an inode. `sealed`: whether its checksum must be valid; inodes from the log have none.
pub(super) fn decode(superblock: &Superblock, inode: u64, raw: &[u8], sealed: bool, device: u64) -> Decoded {
    let Some(core) = raw.first_chunk::<V3_CORE_BYTES>().filter(|core| core.u16::<0>() == MAGIC) else {
        return Decoded::Damaged("it has no inode header");
    };
    let version = core[4];
    if superblock.is_v5 != (version == 3) || !(1..=3).contains(&version) {
        return Decoded::Damaged("its version is impossible");
    }
    if superblock.is_v5 && (core.u64::<152>() != inode || sealed && !is_sealed(raw, CHECKSUM)) {
        return Decoded::Damaged("its checksum is wrong, or it is another inode");
    }
    let mode = core.u16::<2>();
    let link_count = if version == 1 { core.u16::<6>().into() } else { core.u32::<16>() };
    let flags = if version == 3 { core.u64::<120>() } else { 0 };
    if mode == 0 || link_count == 0 || flags & INTERNAL != 0 || superblock.internal.contains(&inode) {
        return Decoded::None;
    }
    let Some(kind) = Kind::of_mode(mode) else {
        return Decoded::Damaged("its kind is unknown");
    };
    let (size_bytes, blocks) = (core.u64::<56>(), core.u64::<64>());
    if size_bytes > i64::MAX as u64 || blocks > i64::MAX as u64 / u64::from(superblock.block_bytes) {
        return Decoded::Damaged("its size is impossible");
    }
    let time = |stored| time(stored, flags & LARGE_TIMES != 0);
    Decoded::Inode(Stat {
        kind,
        size_bytes,
        allocated_bytes: blocks * u64::from(superblock.block_bytes),
        link_count,
        uid: core.u32::<8>(),
        gid: core.u32::<12>(),
        mode,
        device,
        inode,
        mtime: time(core.u64::<40>()),
        ctime: time(core.u64::<48>()),
        atime: time(core.u64::<32>()),
    })
}

fn time(stored: u64, large: bool) -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    if large {
        return Timestamp { seconds: (stored / SECOND) as i64 + LARGE_EPOCH, nanoseconds: (stored % SECOND) as u32 };
    }
    Timestamp { seconds: i64::from((stored >> 32) as i32), nanoseconds: stored as u32 }
}

/// A number that differs after every change of a directory: a hash of the inode with its times and counter of changes,
/// and of what is in it. The time of the last read, the position of the last change in the log, and the checksum over
/// everything do not matter.
pub(super) fn version(raw: &[u8]) -> u64 {
    // Between the checksum and the position in the log, version 3 has the counter of changes.
    let behind = match raw.get(4) {
        Some(&3) => [104..112, 120..raw.len()],
        _ => [V2_CORE_BYTES..raw.len(), raw.len()..raw.len()],
    };
    version_of(raw.len() as u64, raw, [0..32, 40..96].into_iter().chain(behind))
}

/// Bytes before the data fork.
pub(super) fn core_bytes(raw: &[u8]) -> usize {
    if raw.get(4) == Some(&3) { V3_CORE_BYTES } else { V2_CORE_BYTES }
}

/// The data fork: its format and bytes.
pub(super) fn data_fork(raw: &[u8]) -> (Format, &[u8]) {
    let format = match raw.get(5) {
        Some(0) => Format::Device,
        Some(1) => Format::Local,
        Some(2) => Format::Extents,
        Some(3) => Format::Tree,
        _ => Format::Other,
    };
    let rest = raw.get(core_bytes(raw)..).unwrap_or_default();
    let fork =
        raw.get(FORK_OFFSET).filter(|&&offset| offset > 0).and_then(|&offset| rest.get(..8 * usize::from(offset)));
    (format, fork.unwrap_or(rest))
}

/// Number of extents in the data fork.
pub(super) fn extents(raw: &[u8]) -> u64 {
    let Some(core) = raw.first_chunk::<V3_CORE_BYTES>() else { return 0 };
    let has_large_counts = core[4] == 3 && core.u64::<120>() & LARGE_COUNTS != 0;
    if has_large_counts { core.u64::<24>() } else { core.u32::<76>().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let small = (u64::from((-5i32) as u32)) << 32 | 7;
        assert_eq!(time(small, false), Timestamp { seconds: -5, nanoseconds: 7 });
        assert_eq!(time(3, true), Timestamp { seconds: -(1 << 31), nanoseconds: 3 });
        assert_eq!(time(((1 << 31) + 9_000_000_000) * 1_000_000_000, true).seconds, 9_000_000_000);
    }

    #[test]
    fn every_change_of_a_directory_is_another_version() {
        for (format, ignored) in [(3, [32..40, 96..104, 112..120]), (2, [32..40, 96..100, 96..100])] {
            let mut raw = vec![0x5a; 512];
            raw[4] = format;
            let before = version(&raw);
            for at in (0..512).filter(|at| *at != 4) {
                raw[at] ^= 1;
                let is_ignored = ignored.iter().any(|part| part.contains(&at));
                assert_eq!(version(&raw) == before, is_ignored, "byte {at} of version {format}");
                raw[at] ^= 1;
            }
        }
    }

    #[test]
    fn forks_end_where_attributes_begin() {
        let mut raw = vec![0; 512];
        raw[4] = 3;
        raw[5] = 1;
        assert_eq!(data_fork(&raw).1.len(), 512 - 176);
        raw[FORK_OFFSET] = 2;
        assert_eq!(data_fork(&raw), (Format::Local, &[0; 16][..]));
        raw[FORK_OFFSET] = 255;
        assert_eq!(data_fork(&raw).1.len(), 512 - 176);
        raw[4] = 2;
        assert_eq!(data_fork(&raw).1.len(), 512 - 100);
    }
}
