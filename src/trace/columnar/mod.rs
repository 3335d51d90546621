//! granulo's own format for traces: blocks of columns, compressed and checksummed, written and read as a stream.
//! docs/TRACE.md specifies the bytes.
//!
//! Invariants: a block depends on earlier ones only for names, and records how many operations and names precede it; so
//! a damaged block costs only its content, and a truncated file still returns every complete block. Reading never
//! panics and never holds more than 64 MiB of a block packed and as much unpacked, whatever the bytes are.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod fuzzing;
mod read;
mod write;

pub use read::Reader;
pub use write::Writer;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{Origin, Problems};

/// Magic bytes of a file.
pub const MAGIC: &[u8; 16] = b"granulo trace 1\n";
/// Magic bytes of any version.
pub const MAGIC_ANY_VERSION: &[u8] = b"granulo trace ";

/// Largest number of operations in a block.
const MOST_OPERATIONS: usize = 1 << 16;
/// Bytes of names that make a block full.
const MOST_NAME_BYTES: usize = 4 << 20;
/// Largest size of a block, uncompressed.
const MOST_RAW_BYTES: usize = 64 << 20;
const ZSTD_LEVEL: i32 = 3;

/// Magic bytes of the kinds of blocks.
const HEAD: [u8; 4] = *b"HEAD";
const BLOCK: [u8; 4] = *b"BLCK";
const FOOT: [u8; 4] = *b"FOOT";

const FRAME_BYTES: usize = 48;
const COLUMNS: usize = 9;

/// Bits of the column that tells which fields an operation has.
mod has {
    pub(super) const FILE: u8 = 1;
    pub(super) const OPENING: u8 = 2;
    pub(super) const OFFSET: u8 = 4;
    pub(super) const FILE_SIZE: u8 = 8;
    pub(super) const DURATION: u8 = 16;
    pub(super) const FAILED: u8 = 32;
    pub(super) const ALL: u8 = 63;
}

/// The frame before the body of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    kind: [u8; 4],
    packed_bytes: u32,
    raw_bytes: u32,
    operations: u32,
    operations_before: u64,
    files_before: u32,
    processes_before: u32,
    hash: u64,
}

impl Frame {
    fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&self.kind);
        bytes[4..8].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.operations.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.operations_before.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.files_before.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.processes_before.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.hash.to_le_bytes());
        let own = XxHash3_64::oneshot(&bytes[..40]);
        bytes[40..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// `None` if the checksum or the content is invalid.
    fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Frame> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if u64_at(40)? != XxHash3_64::oneshot(&bytes[..40]) {
            return None;
        }
        let frame = Frame {
            kind: bytes.first_chunk().copied()?,
            packed_bytes: u32_at(4)?,
            raw_bytes: u32_at(8)?,
            operations: u32_at(12)?,
            operations_before: u64_at(16)?,
            files_before: u32_at(24)?,
            processes_before: u32_at(28)?,
            hash: u64_at(32)?,
        };
        let sound = [HEAD, BLOCK, FOOT].contains(&frame.kind)
            && frame.packed_bytes as usize <= zstd::zstd_safe::compress_bound(MOST_RAW_BYTES)
            && frame.raw_bytes as usize <= MOST_RAW_BYTES
            && frame.operations as usize <= MOST_OPERATIONS;
        sound.then_some(frame)
    }
}

/// Content of the last block: everything that is known only at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// Operations in the file.
    pub operations: u64,
    /// Names of files in it.
    pub files: u64,
    /// Names of processes in it.
    pub processes: u64,
    /// Origin of the operations, with everything learnt while reading.
    pub origin: Origin,
    /// Problems of the original trace.
    pub problems: Problems,
}

#[cfg(test)]
mod tests;
