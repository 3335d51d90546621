//! The journal: changes since the manifest was written, one frame per transaction (docs/FORMAT.md, section 10).
//!
//! A frame is appended with one write and not synced, unless a transaction requires it. So the end may be torn or
//! missing: frames are read up to the first invalid one. The checksum is seeded with a random number in the manifest
//! and the frame's offset, and a frame states the version of the resulting state, one more than the frame before: no
//! frame of another journal or offset is valid. Nothing is ever appended after invalid bytes; the manifest is replaced
//! instead, and with it the journal.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::io;

use twox_hash::XxHash3_64;

use super::Change;
use super::encoding::{self, DecodeError};
use crate::devices::device::DeviceFile;
use crate::index::table::INDEX_DIRECTORY;

const LENGTH_AT: usize = 0;
const ZERO_AT: usize = LENGTH_AT + 4;
const CHECKSUM_AT: usize = ZERO_AT + 4;
/// Length of a frame before its content, in bytes.
const HEAD_BYTES: usize = CHECKSUM_AT + 8;

/// Maximum length of a frame's content: a larger transaction writes a manifest.
pub(crate) const LONGEST_CONTENT_BYTES: usize = 16 << 20;

const PREFIX: &str = "journal-";

/// The name of journal `number` in the directory of the index.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The path of journal `number` on its device.
pub(crate) fn path(number: u64) -> String {
    format!("{INDEX_DIRECTORY}/{}", name(number))
}

/// The number of a journal, from its file name in the index directory; `None` for other files.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_sound = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_sound.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// A frame for `offset` of the journal with `seed`.
pub(crate) fn frame(seed: u64, offset: u64, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + content.len());
    frame.extend_from_slice(&(content.len() as u32).to_le_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&checksum(seed, offset, content).to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

fn checksum(seed: u64, offset: u64, content: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed.wrapping_add(offset), content)
}

/// The content of the frame at the beginning of `bytes`, which begin at `offset` of the journal, and what follows it;
/// `None` if there is no valid frame.
fn first(seed: u64, offset: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (length, head) = head.split_first_chunk::<4>()?;
    let (zero, expected) = head.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let expected = u64::from_le_bytes(expected.try_into().ok()?);
    let is_whole = *zero == [0; 4] && content.len() <= LONGEST_CONTENT_BYTES;
    (is_whole && checksum(seed, offset, content) == expected).then_some((content, rest))
}

/// Frames as read.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Their changes, in order.
    pub(crate) changes: Vec<Change>,
    /// Offset of the next frame, in bytes.
    pub(crate) end: u64,
    /// Whether invalid bytes follow.
    pub(crate) has_rest: bool,
}

/// Reads the frames in `bytes`, which begin at `offset`, after a state of `version`.
///
/// # Errors
/// [`DecodeError::Unknown`] for a frame of a later version of the format.
pub(crate) fn frames(seed: u64, offset: u64, mut version: u64, mut bytes: &[u8]) -> Result<Frames, DecodeError> {
    let mut frames = Frames { changes: Vec::new(), end: offset, has_rest: false };
    while let Some((content, rest)) = first(seed, frames.end, bytes) {
        match encoding::decode(content) {
            Ok((next, change)) if Some(next) == version.checked_add(1) => {
                version = next;
                frames.changes.push(change);
            }
            Err(DecodeError::Unknown(tag)) => return Err(DecodeError::Unknown(tag)),
            _ => break,
        }
        bytes = rest;
        frames.end += (HEAD_BYTES + content.len()) as u64;
    }
    frames.has_rest = !bytes.is_empty();
    Ok(frames)
}

/// The content of a journal from `offset` on.
pub(crate) fn read(file: &dyn DeviceFile, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let there = file.size()?.saturating_sub(offset);
    if there > 0 {
        let length = usize::try_from(there).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        file.read_onto(&mut bytes, length, offset)?;
    }
    Ok(bytes)
}
