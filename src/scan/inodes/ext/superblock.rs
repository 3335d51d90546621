//! The superblock of an ext file system, at offset 1,024 and in copies.

use std::time::Duration;

use twox_hash::XxHash3_64;

use crate::error::{Error, ErrorKind, Result};
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::fields::{LittleEndian, Record};
use crate::scan::inodes::medium::Medium;

/// Offset of the first superblock.
const OFFSET: u64 = 1024;
const BYTES: usize = 1024;
const MAGIC: u16 = 0xef53;
/// A superblock or descriptor with a wrong checksum is read again this often, after this time.
pub(super) const MOST_RETRIES: usize = 3;
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(1);
/// Largest block size: 64 KiB.
const MOST_LOG_BLOCK: u32 = 6;
/// Largest cluster size: 1 GiB.
const MOST_LOG_CLUSTER: u32 = 20;
/// Compatible features.
const DIR_INDEX: u32 = 0x20;
const SPARSE_SUPER2: u32 = 0x200;
/// Features that a reader need not know.
const RO_SPARSE_SUPER: u32 = 0x1;
const RO_HUGE_FILE: u32 = 0x8;
const RO_GDT_CSUM: u32 = 0x10;
const RO_BIGALLOC: u32 = 0x200;
const RO_METADATA_CSUM: u32 = 0x400;
/// Incompatible features: a reader that does not know one misreads the file system.
const COMPRESSION: u32 = 0x1;
const RECOVER: u32 = 0x4;
const JOURNAL_DEVICE: u32 = 0x8;
const META_BG: u32 = 0x10;
const WIDE: u32 = 0x80;
const CSUM_SEED: u32 = 0x2000;
const LARGE_DIRECTORIES: u32 = 0x4000;
const ENCRYPT: u32 = 0x1_0000;
const CASEFOLD: u32 = 0x2_0000;
/// The only algorithm of metadata checksums: CRC-32C.
const CRC32C: u8 = 1;
/// File types in entries, recovery, meta_bg, extents, 64 bits, multiple mount protection, flex_bg, attributes in
/// inodes, data in entries, a seed for checksums, large directories, inline data, encryption, case-insensitive names.
const KNOWN: u32 = 0x2
    | RECOVER
    | META_BG
    | 0x40
    | WIDE
    | 0x100
    | 0x200
    | 0x400
    | 0x1000
    | CSUM_SEED
    | LARGE_DIRECTORIES
    | 0x8000
    | ENCRYPT
    | CASEFOLD;

/// The fields of a superblock that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) block_bytes: u32,
    pub(super) blocks: u64,
    pub(super) first_data_block: u32,
    pub(super) blocks_per_group: u32,
    pub(super) groups: u32,
    pub(super) inodes: u32,
    pub(super) free_inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_bytes: u32,
    pub(super) first_inode: u32,
    /// Unnamed inodes beyond the reserved ones.
    pub(super) hidden: [u32; 6],
    pub(super) descriptor_bytes: u32,
    pub(super) first_meta_bg: u32,
    pub(super) has_meta_bg: bool,
    pub(super) huge_files: bool,
    /// Sectors that a separate block of attributes needs.
    pub(super) cluster_sectors: u64,
    pub(super) large_directories: bool,
    /// Whether directories may be indexed; then those of one block are read as if they were.
    pub(super) indexes: bool,
    pub(super) casefold: bool,
    /// Whether directories may be encrypted.
    pub(super) encrypt: bool,
    /// The seed of metadata checksums, if there are any.
    pub(super) seed: Option<u32>,
    /// The same for those of inodes, which have them only where Linux created the file system.
    pub(super) inode_seed: Option<u32>,
    /// Whether descriptors have the older CRC-16 checksums.
    pub(super) crc16: bool,
    pub(super) uuid: [u8; 16],
    /// A hash of the identifier, the time of creation and the time of the last check: a check may make changes that no
    /// other time shows.
    pub(super) identity: u64,
    sparse: bool,
    sparse2: Option<[u32; 2]>,
    /// Whether the journal has changes that were not written back yet.
    pub(super) needs_recovery: bool,
    /// The group of this superblock; not 0 in a copy.
    pub(super) group: u32,
}

/// Why bytes are not a usable superblock.
enum Refused {
    /// They are not a superblock.
    Other,
    /// They contradict themselves.
    Damaged(&'static str),
    /// They require features that this reader does not know.
    Unknown(String),
}

impl Superblock {
    /// Reads the first superblock, or the first intact copy if it is damaged.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] if it is not ext, or has unknown features, [`ErrorKind::Corrupt`] if no superblock
    /// is intact.
    pub(super) fn read(medium: &impl Medium) -> Result<Superblock> {
        let mut first = at(medium, OFFSET);
        for _ in 0..MOST_RETRIES {
            // The kernel may be writing it.
            if matches!(first, Err(Refused::Damaged(_))) {
                std::thread::sleep(RETRY_AFTER);
                first = at(medium, OFFSET);
            }
        }
        let first = match first {
            Ok(found) => return Ok(found),
            Err(Refused::Unknown(what)) => return Err(unknown(what)),
            Err(refused) => refused,
        };
        for log_block in [2, 0, 1, 4, 3, 5, 6] {
            for group in [1u64, 3, 5, 7] {
                let block_bytes = 1024u64 << log_block;
                let block = u64::from(log_block == 0) + 8 * block_bytes * group;
                if let Ok(copy) = at(medium, block * block_bytes)
                    && u64::from(copy.block_bytes) == block_bytes
                    && u64::from(copy.group) == group
                {
                    return Ok(copy);
                }
            }
        }
        match first {
            Refused::Damaged(cause) => {
                let error =
                    Error::new(ErrorKind::Corrupt, "read the superblock", format!("{cause}, and no copy is intact"));
                Err(error.advise("check it with e2fsck"))
            }
            _ => Err(Error::new(
                ErrorKind::NotRecognised,
                "read the superblock",
                "it is not an ext2, ext3 or ext4 file system",
            )),
        }
    }

    /// The first block of a group.
    pub(super) fn first_block(&self, group: u64) -> u64 {
        u64::from(self.first_data_block) + group * u64::from(self.blocks_per_group)
    }

    /// Whether a group has a copy of the superblock.
    pub(super) fn has_copy(&self, group: u64) -> bool {
        let power = |base: u64| {
            std::iter::successors(Some(base), |p| p.checked_mul(base)).take_while(|&p| p <= group).any(|p| p == group)
        };
        match self.sparse2 {
            _ if group == 0 => true,
            Some(groups) => groups.iter().any(|&copy| u64::from(copy) == group),
            None => !self.sparse || group == 1 || power(3) || power(5) || power(7),
        }
    }

    /// Size of the file system.
    pub(super) fn length_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }
}

/// Gives the first superblock of an image the checksum that it should have.
#[cfg(feature = "testing")]
pub(super) fn seal(image: &mut [u8]) {
    let bytes = image.get_mut(OFFSET as usize..).and_then(<[u8]>::first_chunk_mut::<BYTES>);
    let Some(bytes) = bytes else { return };
    if bytes.u32::<0x64>() & RO_METADATA_CSUM != 0 {
        let crc = crc32c(!0, &bytes[..0x3fc]);
        bytes[0x3fc..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn unknown(what: String) -> Error {
    Error::new(ErrorKind::NotRecognised, "read the superblock", what).advise("use --method walk")
}

fn at(medium: &impl Medium, offset: u64) -> std::result::Result<Superblock, Refused> {
    let mut bytes = [0; BYTES];
    medium.read_at(&mut bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Refused::Other,
        _ => Refused::Damaged("it cannot be read"),
    })?;
    parse(&bytes)
}

fn parse(bytes: &[u8; BYTES]) -> std::result::Result<Superblock, Refused> {
    if bytes.u16::<0x38>() != MAGIC {
        return Err(Refused::Other);
    }
    let (compatible, incompatible, read_only) = match bytes.u32::<0x4c>() {
        0 => (0, 0, 0),
        _ => (bytes.u32::<0x5c>(), bytes.u32::<0x60>(), bytes.u32::<0x64>()),
    };
    let uuid = *bytes.field::<0x68, 16>();
    let checksummed = read_only & RO_METADATA_CSUM != 0;
    if checksummed && crc32c(!0, &bytes[..0x3fc]) != bytes.u32::<0x3fc>() {
        return Err(Refused::Damaged("its checksum is wrong"));
    }
    if checksummed && bytes[0x175] != CRC32C {
        return Err(Refused::Unknown(format!("its checksums have an unsupported type: {}", bytes[0x175])));
    }
    if incompatible & JOURNAL_DEVICE != 0 {
        return Err(Refused::Unknown("it is the journal of another file system".to_owned()));
    }
    let not_known = incompatible & !KNOWN;
    if not_known != 0 {
        let bit = 1 << not_known.trailing_zeros();
        let name = if bit == COMPRESSION { "compression".to_owned() } else { format!("incompat {bit:#x}") };
        return Err(Refused::Unknown(format!("it has an unsupported feature: {name}")));
    }
    if bytes.u32::<0x48>() == 1 {
        return Err(Refused::Unknown("it was created by GNU Hurd, which has its own inode format".to_owned()));
    }
    let refuse = |wrong: bool, what| if wrong { Err(Refused::Damaged(what)) } else { Ok(()) };
    refuse(bytes.u32::<0x18>() > MOST_LOG_BLOCK, "its block size is impossible")?;
    let block_bytes = 1024 << bytes.u32::<0x18>();
    let revised = bytes.u32::<0x4c>() > 0;
    let inode_bytes = if revised { u32::from(bytes.u16::<0x58>()) } else { 128 };
    let fits = inode_bytes >= 128 && inode_bytes.is_power_of_two() && inode_bytes <= block_bytes;
    refuse(!fits, "its inode size is impossible")?;
    let wide = incompatible & WIDE != 0;
    let descriptor_bytes = if wide { u32::from(bytes.u16::<0xfe>()) } else { 32 };
    let fits = descriptor_bytes >= if wide { 64 } else { 32 }
        && descriptor_bytes.is_power_of_two()
        && descriptor_bytes <= 1024;
    refuse(!fits, "its descriptor size is impossible")?;
    let high = if wide { u64::from(bytes.u32::<0x150>()) << 32 } else { 0 };
    let blocks = high | u64::from(bytes.u32::<0x4>());
    let (first_data_block, blocks_per_group) = (bytes.u32::<0x14>(), bytes.u32::<0x20>());
    let (inodes, inodes_per_group) = (bytes.u32::<0x0>(), bytes.u32::<0x28>());
    refuse(
        first_data_block > 1 || blocks <= first_data_block.into() || blocks >> 48 != 0,
        "its number of blocks is impossible",
    )?;
    refuse(blocks_per_group == 0, "its groups have no blocks")?;
    let whole = u64::from(inodes_per_group) * u64::from(inode_bytes) >= u64::from(block_bytes);
    refuse(!whole || inodes_per_group > 8 * block_bytes, "its groups have an impossible number of inodes")?;
    let groups = (blocks - u64::from(first_data_block)).div_ceil(blocks_per_group.into());
    let all = groups * u64::from(inodes_per_group);
    refuse(all != u64::from(inodes), "its number of inodes does not match its groups")?;
    let tables = all.saturating_mul(inode_bytes.into());
    refuse(tables > blocks * u64::from(block_bytes), "it is smaller than its inode tables")?;
    let first_inode = if revised { bytes.u32::<0x54>() } else { 11 };
    refuse(first_inode < 3 || first_inode > inodes, "its first inode is impossible")?;
    let seed = if incompatible & CSUM_SEED != 0 { bytes.u32::<0x270>() } else { crc32c(!0, &uuid) };
    let log_cluster = if read_only & RO_BIGALLOC != 0 { bytes.u32::<0x1c>() } else { bytes.u32::<0x18>() };
    let by_linux = bytes.u32::<0x48>() == 0;
    Ok(Superblock {
        block_bytes,
        blocks,
        first_data_block,
        blocks_per_group,
        groups: groups as u32,
        inodes,
        free_inodes: bytes.u32::<0x10>(),
        inodes_per_group,
        inode_bytes,
        first_inode,
        // The journal, quotas of users, groups and projects, orphans, and the snapshots of a fork of ext4.
        hidden: [
            bytes.u32::<0xe0>(),
            bytes.u32::<0x240>(),
            bytes.u32::<0x244>(),
            bytes.u32::<0x26c>(),
            bytes.u32::<0x280>(),
            bytes.u32::<0x180>(),
        ],
        descriptor_bytes,
        first_meta_bg: bytes.u32::<0x104>(),
        has_meta_bg: incompatible & META_BG != 0,
        huge_files: read_only & RO_HUGE_FILE != 0,
        cluster_sectors: (1024u64 << log_cluster.min(MOST_LOG_CLUSTER)) / 512,
        large_directories: incompatible & LARGE_DIRECTORIES != 0,
        indexes: compatible & DIR_INDEX != 0,
        casefold: incompatible & CASEFOLD != 0,
        encrypt: incompatible & ENCRYPT != 0,
        seed: checksummed.then_some(seed),
        inode_seed: (checksummed && by_linux).then_some(seed),
        crc16: !checksummed && read_only & RO_GDT_CSUM != 0,
        uuid,
        identity: XxHash3_64::oneshot(&[&uuid, &bytes[0x108..0x10c], &bytes[0x40..0x44]].concat()),
        sparse: read_only & RO_SPARSE_SUPER != 0,
        sparse2: (compatible & SPARSE_SUPER2 != 0).then(|| [bytes.u32::<0x24c>(), bytes.u32::<0x250>()]),
        needs_recovery: incompatible & RECOVER != 0,
        group: bytes.u16::<0x5a>().into(),
    })
}
