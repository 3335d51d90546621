//! Direct writes: large pieces bypass the page cache if the file system declares support.
//!
//! A write through the page cache allocates every page, copies into it and writes it back later. That does not pay for
//! a piece of [`LEAST_BYTES`] or more. The blocks that such a piece covers completely are written directly, its parts
//! of the first and the last block through the page cache. Pieces are appended, or go where no live bytes are (units of
//! large objects), so a live block is written in one of the two ways and never in both. Nothing is padded, so the size
//! of a file is what was written.
//!
//! A file system qualifies if it declares support (`STATX_DIOALIGN`, Linux 6.1 and later: ext4, xfs) and refuses
//! no piece in the directory. All others (tmpfs, ZFS, NFS, FUSE) are written through the page cache. That is not
//! reported: it is slower, but no less safe.
//!
//! On file systems that qualify, the kernel writes back and drops the pages of a range before a direct write to it, and
//! again after it, so readers of the file see what was written.

use crate::locks::lock;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;

/// Shorter pieces are written through the page cache.
pub(super) const LEAST_BYTES: usize = 1 << 20;
/// The largest page of Linux on any machine, and the largest block of xfs: direct and other writes never share one.
const BLOCK_BYTES: u64 = 64 << 10;
/// Data that is not aligned in memory as the device requires is copied in pieces of this length.
const LANDING_BYTES: usize = 4 << 20;
/// Number of buffers for this that are kept, one per concurrent write.
const MOST_LANDINGS: usize = 2;

/// Requirements of a file system for direct writes, in bytes; powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Alignment {
    memory: usize,
    offset: u64,
}

impl Alignment {
    /// The file system's requirements for a file; `None` if it states none, or has no support.
    fn of(file: &File) -> Option<Alignment> {
        let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let said = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
        let alignment =
            Alignment { memory: found.stx_dio_mem_align as usize, offset: u64::from(found.stx_dio_offset_align) };
        let serves = alignment.memory.is_power_of_two()
            && alignment.memory as u64 <= BLOCK_BYTES
            && alignment.offset.is_power_of_two()
            && alignment.offset <= BLOCK_BYTES;
        (said && serves).then_some(alignment)
    }
}

/// The direct writes of one directory.
#[derive(Debug, Default)]
pub(super) struct DirectWrites {
    /// The file system has refused a direct write.
    is_refused: AtomicBool,
    /// Buffers into which pieces were copied.
    landings: Mutex<Vec<Vec<u8>>>,
}

/// The whole blocks of a piece at `offset`, as a range of the piece; empty if it is too short.
fn whole_blocks(offset: u64, length: usize) -> Range<usize> {
    let head = (offset.wrapping_neg() % BLOCK_BYTES) as usize;
    if length < LEAST_BYTES {
        return 0..0;
    }
    let tail = ((offset + length as u64) % BLOCK_BYTES) as usize;
    head..length - tail
}

impl DirectWrites {
    /// Writes a piece at `offset`: directly if supported, else through the page cache.
    ///
    /// # Errors
    /// Any error of writing, except that the file system does not support direct writes.
    pub(super) fn write(&self, file: &File, piece: &[u8], offset: u64) -> io::Result<()> {
        let whole = whole_blocks(offset, piece.len());
        let direct = if whole.is_empty() || self.is_refused.load(Ordering::Relaxed) { None } else { self.open(file) };
        let Some((direct, alignment)) = direct else { return file.write_all_at(piece, offset) };
        file.write_all_at(&piece[..whole.start], offset)?;
        let done = self.write_blocks(&direct, alignment, &piece[whole.clone()], offset + whole.start as u64)?;
        let rest = whole.start + done;
        file.write_all_at(&piece[rest..], offset + rest as u64)
    }

    /// Opens the file again, for direct writes; `None` if that fails.
    fn open(&self, file: &File) -> Option<(File, Alignment)> {
        let Some(alignment) = Alignment::of(file) else {
            self.refuse();
            return None;
        };
        // By its descriptor: the name may lead to another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()?;
        Some((direct, alignment))
    }

    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Writes whole blocks, as far as direct writes go; returns how many bytes, a multiple of [`BLOCK_BYTES`]. The
    /// caller writes the rest.
    fn write_blocks(&self, file: &File, alignment: Alignment, blocks: &[u8], offset: u64) -> io::Result<usize> {
        let is_aligned = (blocks.as_ptr() as usize).is_multiple_of(alignment.memory);
        let mut landing = if is_aligned { Vec::new() } else { self.landing() };
        let mut done = 0;
        while done < blocks.len() {
            let written = if is_aligned {
                file.write_at(&blocks[done..], offset + done as u64)
            } else {
                let part = &blocks[done..blocks.len().min(done + LANDING_BYTES)];
                let begin = (landing.as_ptr() as usize).wrapping_neg() % BLOCK_BYTES as usize;
                let place = &mut landing[begin..begin + part.len()];
                place.copy_from_slice(part);
                file.write_at(place, offset + done as u64)
            };
            match written {
                // The rest of a truncated block is written again.
                Ok(written) if written as u64 >= BLOCK_BYTES => done += written - written % BLOCK_BYTES as usize,
                // A write without progress is left to the page cache, which reports the cause.
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_refusal(&error) => {
                    self.refuse();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !is_aligned {
            let mut landings = lock(&self.landings);
            if landings.len() < MOST_LANDINGS {
                landings.push(landing);
            }
        }
        Ok(done)
    }

    /// A buffer of [`LANDING_BYTES`], aligned to [`BLOCK_BYTES`].
    fn landing(&self) -> Vec<u8> {
        let spare = lock(&self.landings).pop();
        spare.unwrap_or_else(|| vec![0; LANDING_BYTES + BLOCK_BYTES as usize])
    }
}

/// Whether an error means that direct writes are not supported here.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP];
    refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

#[cfg(test)]
mod tests;
