//! An on-disk inode as it is stored: its parts and how much of it is in use.

use crate::scan::Timestamp;
use crate::scan::inodes::fields::{LittleEndian, Record};

/// Offset of the 60 bytes of block numbers, extents, a short target or small data.
pub(super) const BLOCK: usize = 0x28;
pub(super) const BLOCK_BYTES: usize = 60;
/// Size of the part that exists in all file systems.
pub(super) const FIRST_BYTES: usize = 128;
/// Smallest size of an inode that is larger.
pub(super) const WIDE_BYTES: usize = 256;
/// Size of the fields beyond the first part that are defined today.
const NAMED_EXTRA_BYTES: usize = 32;

/// An inode as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    /// The part that exists in all file systems.
    pub(super) first: &'a [u8; FIRST_BYTES],
    /// That part, and all other fields, where inodes are larger.
    pub(super) wide: Option<&'a [u8; WIDE_BYTES]>,
    /// All of it.
    pub(super) all: &'a [u8],
}

impl<'a> Raw<'a> {
    /// `all` has the inode size of the file system; `None` if no file system has that size.
    #[inline(always)]
    pub(super) fn new(all: &'a [u8]) -> Option<Raw<'a>> {
        Some(Raw { first: all.first_chunk()?, wide: all.first_chunk(), all })
    }

    /// The block numbers, extents, short target or small data.
    pub(super) fn block(self) -> &'a [u8; BLOCK_BYTES] {
        self.first.field::<BLOCK, BLOCK_BYTES>()
    }

    /// Bytes beyond the first part that the inode states to be in use.
    pub(super) fn stated_extra_bytes(self) -> usize {
        self.wide.map_or(0, |wide| wide.u16::<0x80>().into())
    }

    /// Bytes in use beyond the first part.
    pub(super) fn extra_bytes(self) -> usize {
        let most = self.all.len() - FIRST_BYTES;
        match self.stated_extra_bytes() {
            // The kernel uses space that was never claimed as its own.
            0 => NAMED_EXTRA_BYTES.min(most),
            extra => extra.min(most),
        }
    }

    /// A time: signed 32 bits and, where there is space, two more bits of seconds and the nanoseconds.
    #[inline]
    pub(super) fn time<const LOW: usize, const HIGH: usize>(self, extra: usize) -> Timestamp {
        let wide = self.wide.filter(|_| HIGH + 4 <= FIRST_BYTES + extra);
        let more = wide.map_or(0, |wide| wide.u32::<HIGH>());
        let seconds = i64::from(self.first.u32::<LOW>() as i32);
        Timestamp { seconds: seconds + (i64::from(more & 3) << 32), nanoseconds: more >> 2 }
    }
}
