//! Converts an on-disk inode to the values that `stat` reports.

use super::raw::{BLOCK_BYTES, FIRST_BYTES, Raw};
use super::superblock::Superblock;
use super::{blocks, checksum};
use crate::scan::inodes::fields::LittleEndian;
use crate::scan::inodes::remember::version_of;
use crate::scan::{Kind, Stat};

const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;
pub(super) const ENCRYPTED: u32 = 0x800;
pub(super) const INDEXED: u32 = 0x1000;
const HUGE: u32 = 0x4_0000;
pub(super) const EXTENTS: u32 = 0x8_0000;
const ATTRIBUTE: u32 = 0x20_0000;
pub(super) const INLINE: u32 = 0x1000_0000;
const CASEFOLDED: u32 = 0x4000_0000;

const SECTOR_BYTES: u64 = 512;

/// Content of a slot in a table.
pub(super) enum Decoded<'a> {
    /// No inode with a name: free, deleted, unlinked and still open, or internal to the file system.
    None,
    /// An inode. The target of a symlink is read later, to tell whether it is absolute.
    Inode { raw: Raw<'a>, stat: Stat, flags: u32 },
    /// Invalid data.
    Damaged(&'static str),
}

/// Why something with a wrong checksum is unusable.
pub(super) const CHECKSUM_WRONG: &str = "its checksum is wrong";

/// Whether the inode of this number is internal to the file system.
fn is_reserved(superblock: &Superblock, number: u32) -> bool {
    number != ROOT && (number < superblock.first_inode || superblock.hidden.contains(&number))
}

/// The inode of the root directory.
pub(super) const ROOT: u32 = 2;

/// Decodes an inode. `bytes` has the inode size of the file system.
#[inline(always)]
pub(super) fn decode<'a>(superblock: &Superblock, number: u32, bytes: &'a [u8], device: u64) -> Decoded<'a> {
    let Some(raw) = Raw::new(bytes) else { return Decoded::None };
    let first = raw.first;
    let (mode, link_count) = (first.u16::<0>(), first.u16::<0x1a>());
    // Free, or deleted: then it has the time of that. Damage to either does not matter.
    let is_free = link_count == 0 && (mode == 0 || first.u32::<0x14>() != 0);
    if is_free || is_reserved(superblock, number) {
        return Decoded::None;
    }
    if superblock.inode_seed.is_some_and(|seed| !checksum::inode_is_intact(seed, number, raw)) {
        return Decoded::Damaged(CHECKSUM_WRONG);
    }
    let flags = first.u32::<0x20>();
    if link_count == 0 || flags & ATTRIBUTE != 0 {
        return Decoded::None;
    }
    let Some(kind) = Kind::of_mode(mode) else {
        return Decoded::Damaged("its kind is unknown");
    };
    let high =
        if kind == Kind::File || superblock.large_directories { u64::from(first.u32::<0x6c>()) << 32 } else { 0 };
    let size_bytes = high | u64::from(first.u32::<0x4>());
    let mut sectors = u64::from(first.u32::<0x1c>());
    if superblock.huge_files {
        sectors |= u64::from(first.u16::<0x74>()) << 32;
        if flags & HUGE != 0 {
            sectors = sectors.saturating_mul(u64::from(superblock.block_bytes) / SECTOR_BYTES);
        }
    }
    if let Some(cause) = impossible(superblock, kind, size_bytes, sectors, flags, raw) {
        return Decoded::Damaged(cause);
    }
    if kind == Kind::File && flags & INLINE != 0 {
        // The kernel reports this for data that occupies no block, so that the file does not look empty.
        sectors += size_bytes.div_ceil(SECTOR_BYTES);
    }
    let owner = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let extra = raw.extra_bytes();
    let stat = Stat {
        kind,
        size_bytes,
        allocated_bytes: sectors.saturating_mul(SECTOR_BYTES),
        link_count: link_count.into(),
        uid: owner(first.u16::<0x2>(), first.u16::<0x78>()),
        gid: owner(first.u16::<0x18>(), first.u16::<0x7a>()),
        mode,
        device,
        inode: number.into(),
        mtime: raw.time::<0x10, 0x88>(extra),
        ctime: raw.time::<0xc, 0x84>(extra),
        atime: raw.time::<0x8, 0x8c>(extra),
    };
    Decoded::Inode { raw, stat, flags }
}

/// Returns what is impossible in an inode.
fn impossible(
    superblock: &Superblock,
    kind: Kind,
    size_bytes: u64,
    sectors: u64,
    flags: u32,
    raw: Raw<'_>,
) -> Option<&'static str> {
    if size_bytes > i64::MAX as u64 {
        return Some("its size is impossible");
    }
    if sectors.saturating_mul(SECTOR_BYTES) > superblock.length_bytes() {
        return Some("it has more blocks than the file system");
    }
    if kind == Kind::Directory && size_bytes > superblock.length_bytes() {
        return Some("it is a directory larger than the file system");
    }
    let extra = raw.stated_extra_bytes();
    if FIRST_BYTES + extra > raw.all.len() || !extra.is_multiple_of(4) {
        return Some("its length is impossible");
    }
    let unindexed = !superblock.indexes && superblock.seed.is_some();
    if flags & INDEXED != 0 && unindexed || flags & CASEFOLDED != 0 && !superblock.casefold {
        return Some("it has a feature that the file system lacks");
    }
    let high = if superblock.descriptor_bytes > 32 { u64::from(raw.first.u16::<0x76>()) << 32 } else { 0 };
    let attributes = high | u64::from(raw.first.u32::<0x68>());
    let is_inside = attributes > superblock.first_data_block.into() && attributes < superblock.blocks;
    if attributes != 0 && !is_inside {
        return Some("its attributes are outside the file system");
    }
    let is_symlink = matches!(kind, Kind::Symlink { .. });
    if is_symlink && flags & (IMMUTABLE | APPEND_ONLY) != 0 {
        return Some("it is a symlink with flags that no symlink has");
    }
    let attribute_sectors = if attributes != 0 { superblock.cluster_sectors } else { 0 };
    let map = raw.block();
    let is_inline = flags & INLINE != 0;
    if is_symlink && !is_inline && sectors == attribute_sectors {
        let length = map.iter().position(|&byte| byte == 0).unwrap_or(BLOCK_BYTES);
        let is_whole = flags & ENCRYPTED != 0 || length > 0 && length as u64 == size_bytes;
        return (!is_whole).then_some("its target is damaged");
    }
    let is_mapped = is_symlink || matches!(kind, Kind::Directory | Kind::File);
    let is_valid = || blocks::is_valid(map, flags & EXTENTS != 0, superblock.first_data_block, superblock.blocks);
    (is_mapped && !is_inline && !is_valid()).then_some("the location of its blocks is damaged")
}

/// A number that differs after every change of a directory: a hash of the times of change of inode and content,
/// generation and version, size, links, flags and blocks, and of names in the inode. The time of the last read does not
/// matter.
pub(super) fn version(raw: Raw<'_>) -> u64 {
    // The excluded fields are the time of the last read, and a checksum over the whole inode.
    version_of(raw.first.u32::<0x4>().into(), raw.all, [0xc..0x74, 0x84..0x8c, 0x90..raw.all.len()])
}

/// The part of inline data beyond the block numbers: the attribute `system.data`.
pub(super) fn inline_rest(raw: Raw<'_>) -> Option<&[u8]> {
    const ATTRIBUTES_MAGIC: [u8; 4] = 0xea02_0000u32.to_le_bytes();
    const SYSTEM: u8 = 7;
    const ENTRY_BYTES: usize = 16;
    let area = raw.all.get(FIRST_BYTES + raw.extra_bytes()..)?;
    let (_, entries) = area.split_first_chunk().filter(|(magic, _)| **magic == ATTRIBUTES_MAGIC)?;
    let mut rest = entries;
    loop {
        let (entry, behind) = rest.split_first_chunk::<ENTRY_BYTES>().filter(|(entry, _)| entry.u32::<0>() != 0)?;
        let name = behind.get(..entry[0].into())?;
        if entry[1] == SYSTEM && name == b"data" {
            let (start, length) = (usize::from(entry.u16::<2>()), entry.u32::<8>() as usize);
            return entries.get(start..start.checked_add(length)?);
        }
        rest = rest.get((ENTRY_BYTES + name.len()).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Timestamp;

    fn raw(length: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut raw = vec![0; length];
        for (at, bytes) in fields {
            raw[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        raw
    }

    #[test]
    fn times_go_on_after_2038_where_there_is_room() {
        let fields: &[(usize, &[u8])] =
            &[(0x80, &28u16.to_le_bytes()), (0x10, &(-1i32).to_le_bytes()), (0x88, &(5u32 << 2 | 1).to_le_bytes())];
        let mtime = |bytes: &[u8]| {
            let raw = Raw::new(bytes).unwrap();
            raw.time::<0x10, 0x88>(raw.extra_bytes())
        };
        let wide = raw(256, fields);
        let expected = Timestamp { seconds: (1 << 32) - 1, nanoseconds: 5 };
        assert_eq!(mtime(&wide), expected);
        let narrow = raw(256, &[(0x80, &8u16.to_le_bytes()), fields[1], fields[2]]);
        assert_eq!(mtime(&narrow), Timestamp { seconds: -1, nanoseconds: 0 });
        let extra_bytes = |raw: Vec<u8>| Raw::new(&raw).map(Raw::extra_bytes);
        assert_eq!(extra_bytes(raw(127, &[])), None);
        assert_eq!(extra_bytes(raw(128, &[])), Some(0));
        assert_eq!(extra_bytes(raw(256, &[])), Some(32));
        assert_eq!(extra_bytes(raw(256, &[(0x80, &[0xff, 0xff])])), Some(128));
    }

    #[test]
    fn attributes_that_lead_out_of_the_inode_lead_nowhere() {
        let start = 128 + 32;
        let entry = |offset: u16, length: u32| {
            let mut entry = vec![4, 7];
            entry.extend(offset.to_le_bytes());
            entry.extend([0; 4]);
            entry.extend(length.to_le_bytes());
            entry.extend([0; 4]);
            entry.extend(b"data");
            entry
        };
        let with = |entry: &[u8]| {
            raw(256, &[(0x80, &32u16.to_le_bytes()), (start, &0xea02_0000u32.to_le_bytes()), (start + 4, entry)])
        };
        let rest = |raw: Vec<u8>| inline_rest(Raw::new(&raw).unwrap()).map(<[u8]>::len);
        assert_eq!(rest(with(&entry(60, 8))), Some(8));
        assert_eq!(rest(with(&entry(90, 8))), None);
        assert_eq!(rest(with(&entry(u16::MAX, u32::MAX))), None);
        assert_eq!(rest(raw(256, &[])), None);
        assert_eq!(rest(raw(128, &[])), None);
    }
}
