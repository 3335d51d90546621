//! The superblock: the roots of the trees, and what a reader has to know. It is at 64 KiB, with copies.

use super::chunks::Chunk;
use super::node::{Key, Pointer};
use super::{CHECKSUM_BYTES, CHUNK_ITEM};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::inodes::checksum::crc32c;
use crate::scan::inodes::fields::{LittleEndian, Record as _};
use crate::scan::inodes::medium::Medium;

/// Offsets of the superblock and its copies.
const OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"_BHRfS_M";
/// The list of chunks that hold the tree of chunks.
const CHUNKS: usize = 0x32b;
const MOST_CHUNKS_BYTES: usize = 2048;
const METADATA_UUID: u64 = 0x400;
/// Mixed references, a default subvolume, mixed groups, lzo, zstd, large blocks, extended references, raid56, short
/// references, no holes, a separate metadata identifier, raid1c34, a tree of stripes (of data), simple quotas.
const KNOWN: u64 = 0x7ff | 0x800 | 0x4000 | 0x1_0000;
const ZONED: u64 = 0x1000;

/// Checksum algorithm of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Crc32c,
    XxHash64,
    /// Not computed here: SHA-256 or BLAKE2. Address, generation and keys of a block are checked all the same.
    Other,
}

/// The fields of a superblock that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) generation: u64,
    pub(super) root: Pointer,
    pub(super) root_level: u8,
    pub(super) chunk_root: Pointer,
    pub(super) chunk_root_level: u8,
    /// Whether a log holds changes that became durable after the last transaction.
    pub(super) has_log: bool,
    pub(super) devices: u64,
    pub(super) device: u64,
    pub(super) sector_bytes: u32,
    pub(super) node_bytes: u32,
    pub(super) checksum: Checksum,
    /// The identifier of the file system.
    pub(super) identifier: [u8; 16],
    /// The identifier of its metadata.
    pub(super) metadata_identifier: [u8; 16],
    /// The chunks that hold the tree of chunks.
    pub(super) chunks: Vec<(u64, Chunk)>,
    /// Expected size of the device.
    pub(super) device_bytes: u64,
}

/// Why bytes are not a usable superblock.
enum Refused {
    Other,
    Damaged(&'static str),
    Unknown(String),
}

impl Superblock {
    /// Reads the superblock, or the newest copy if it is damaged; returns whether a copy was used.
    ///
    /// # Errors
    /// [`ErrorKind::NotRecognised`] if it is not btrfs, or has unknown features, [`ErrorKind::Corrupt`] if no
    /// superblock is intact.
    pub(super) fn read(medium: &impl Medium, checked: bool) -> Result<(Superblock, bool)> {
        let first = match at(medium, OFFSETS[0], checked) {
            Ok(found) => return Ok((found, false)),
            Err(Refused::Unknown(what)) => {
                let error = Error::new(ErrorKind::NotRecognised, "read the superblock", what);
                return Err(error.advise("use --method walk"));
            }
            Err(refused) => refused,
        };
        let copies = OFFSETS[1..].iter().filter_map(|&offset| at(medium, offset, checked).ok());
        if let Some(copy) = copies.max_by_key(|copy| copy.generation) {
            return Ok((copy, true));
        }
        Err(match first {
            Refused::Damaged(cause) => {
                Error::new(ErrorKind::Corrupt, "read the superblock", format!("{cause}, and no copy is intact"))
                    .advise("check it with btrfs check")
            }
            _ => Error::new(ErrorKind::NotRecognised, "read the superblock", "it is not btrfs"),
        })
    }
}

fn at(medium: &impl Medium, offset: u64, checked: bool) -> std::result::Result<Superblock, Refused> {
    let mut bytes = [0; BYTES];
    medium.read_at(&mut bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Refused::Other,
        _ => Refused::Damaged("it cannot be read"),
    })?;
    let found = parse(&bytes, checked)?;
    if bytes.u64::<0x30>() != offset {
        return Err(Refused::Damaged("its location is not the one it states"));
    }
    Ok(found)
}

fn parse(bytes: &[u8; BYTES], checked: bool) -> std::result::Result<Superblock, Refused> {
    if bytes.field::<0x40, 8>() != MAGIC {
        return Err(Refused::Other);
    }
    let checksum = match bytes.u16::<0xc4>() {
        0 => Checksum::Crc32c,
        1 => Checksum::XxHash64,
        2 | 3 => Checksum::Other,
        other => return Err(Refused::Unknown(format!("its checksum type is unsupported: {other}"))),
    };
    if checked && !is_whole(checksum, bytes) {
        return Err(Refused::Damaged("its checksum is wrong"));
    }
    let incompatible = bytes.u64::<0xbc>();
    let not_known = incompatible & !KNOWN;
    if not_known != 0 {
        let bit = 1u64 << not_known.trailing_zeros();
        let name = if bit == ZONED { "zones".to_owned() } else { format!("incompat {bit:#x}") };
        return Err(Refused::Unknown(format!("it has an unsupported feature: {name}")));
    }
    let (sector_bytes, node_bytes) = (bytes.u32::<0x90>(), bytes.u32::<0x94>());
    let fits = |bytes: u32| bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes);
    if !fits(sector_bytes) || !fits(node_bytes) || node_bytes < 4096 {
        return Err(Refused::Damaged("its block size is impossible"));
    }
    let identifier = *bytes.field::<0x20, 16>();
    let has_other = incompatible & METADATA_UUID != 0;
    let root = |block: u64, generation: u64| Pointer { block, generation, first: None };
    let chunks = bytes.field::<CHUNKS, MOST_CHUNKS_BYTES>().get(..bytes.u32::<0xa0>() as usize);
    let chunks = chunks.ok_or(Refused::Damaged("its chunk list is too long"))?;
    Ok(Superblock {
        generation: bytes.u64::<0x48>(),
        root: root(bytes.u64::<0x50>(), bytes.u64::<0x48>()),
        root_level: bytes[0xc6],
        chunk_root: root(bytes.u64::<0x58>(), bytes.u64::<0xa4>()),
        chunk_root_level: bytes[0xc7],
        has_log: bytes.u64::<0x60>() != 0,
        devices: bytes.u64::<0x88>(),
        device: bytes.u64::<0xc9>(),
        sector_bytes,
        node_bytes,
        checksum,
        identifier,
        metadata_identifier: if has_other { *bytes.field::<0x23b, 16>() } else { identifier },
        chunks: system_chunks(chunks),
        device_bytes: bytes.u64::<0xd1>(),
    })
}

fn system_chunks(mut rest: &[u8]) -> Vec<(u64, Chunk)> {
    let mut chunks = Vec::new();
    while let Some((key, item)) = rest.split_first_chunk() {
        let key = Key::parse(key);
        let Some((chunk, behind)) = Chunk::parse(item).filter(|_| key.kind == CHUNK_ITEM) else { break };
        chunks.push((key.offset, chunk));
        rest = behind;
    }
    chunks
}

/// Whether the checksum at the beginning of a block matches the rest of it.
pub(super) fn is_whole(checksum: Checksum, block: &[u8]) -> bool {
    let Some((stored, rest)) = block.split_first_chunk::<CHECKSUM_BYTES>() else { return false };
    match checksum {
        Checksum::Crc32c => !crc32c(!0, rest) == stored.u32::<0>(),
        Checksum::XxHash64 => twox_hash::XxHash64::oneshot(0, rest) == stored.u64::<0>(),
        Checksum::Other => true,
    }
}
