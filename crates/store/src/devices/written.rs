//! Whether something was written in an epoch, as far as one device shows: commits name the epoch of their writer.
//!
//! A writer that begins an epoch and ends before its first batch leaves nothing in the log. One that wrote may have
//! been killed before its mark reached the superblocks, so only the log itself tells.

use super::device::{Device, Mode};
use super::names;
use super::slot::header_of;
use crate::format::entry::Kind;
use crate::format::history::EpochEntry;
use crate::format::ids::{Epoch, LogOffset, SegmentId};
use crate::format::names::{SEGMENTS, SegmentName, segment_path};
use crate::format::record::{HEADER_BYTES, Lengths, Record, kind_of};
use crate::format::segment::{Commit, FIRST_BATCH_AT};
use crate::format::superblock::LogMark;

/// Whether the log on a device has a batch of the epoch of `entry`. The segment of `mark` is read from there on, the
/// others from their first batch, each up to the first damage: what is behind that counts as not there. `store` is the
/// identity of the store. `None` if the log, or one of these segments, cannot be read.
pub(super) fn has_batch(
    device: &dyn Device,
    store: &[u8; 16],
    entry: &EpochEntry,
    mark: Option<LogMark>,
) -> Option<bool> {
    let listed = names::list(device, SEGMENTS).ok()?;
    let mut segments: Vec<SegmentName> = listed.iter().filter_map(|(name, _)| SegmentName::parse(name)).collect();
    // The writer of the epoch continued the last segment that was begun before, or began others.
    segments.retain(|name| name.number.0 >= entry.segments_begun);
    for name in segments {
        let from = mark.filter(|mark| mark.segment == name.number).map_or(FIRST_BATCH_AT, |mark| mark.offset);
        if has_commit(device, store, name, from, &|commit| commit.epoch == entry.epoch)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether a segment has a commit that `is_sought`, between `from`, where a batch begins, and the first damage; `None`
/// if it cannot be read.
pub(crate) fn has_commit(
    device: &dyn Device,
    store: &[u8; 16],
    name: SegmentName,
    from: LogOffset,
    is_sought: &dyn Fn(&Commit) -> bool,
) -> Option<bool> {
    let id = SegmentId { number: name.number, epoch: Epoch(name.epoch_low_half.into()) };
    let file = names::open(device, &segment_path(id), Mode::Read).ok()?;
    let Some(header) = header_of(&*file, name, store).ok()? else { return Some(false) };
    let seed = header.id.seed(store);
    let (mut bytes, mut at) = (Vec::new(), from);
    loop {
        bytes.clear();
        file.read_onto(&mut bytes, HEADER_BYTES, at.0).ok()?;
        let Some(lengths) = Lengths::peek(&bytes) else { return Some(false) };
        if kind_of(&bytes) == Some(Kind::Commit) {
            bytes.clear();
            file.read_onto(&mut bytes, lengths.record_bytes(), at.0).ok()?;
            let commit = Record::decode(&bytes, seed.at(at)).and_then(|record| Commit::decode(record.content));
            if commit.is_some_and(|commit| is_sought(&commit)) {
                return Some(true);
            }
        }
        at += lengths.record_bytes() as u64;
    }
}
