//! What handles have written to an open file but not committed: bytes over the content, a size, attributes. And the
//! combination of both.
//!
//! Bytes are kept as ascending, separate runs. Where a hole was punched, the content does not show; bytes that are
//! written there later do. A size is kept from the first time that it is set; until then the file
//! ends with the content or the last write, whichever is later. Beyond a truncation, none of the content shows, even if
//! the file grows again: so the state remains right over any content that replaces the original.
//!
//! A [`WritePlan`] says what to store: consecutive runs of data, each of retained content, of written bytes, or of
//! zeroes. Holes remain holes, except those of less than 4 KiB beside what was written, and larger ones if the file
//! would have more runs than attributes should list.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::devices::extents::{Edit, Filling};
use crate::engine::content::Base;
use crate::error::{Error, ErrorKind, Result};
use crate::format::attributes::{Attributes, Holes};
use crate::format::entry::Time;
use crate::layout::granulo::SECTOR_BYTES;

/// Approximate memory of a run besides its bytes.
const RUN_BYTES: usize = 64;
/// Runs are joined up to this length, so that bytes are rarely copied.
const JOINED_BYTES: usize = 1 << 20;
/// Maximum number of runs of data in the attributes of a file that was written to; attributes have room for more than
/// ten times that.
const MOST_RUNS: usize = 1 << 16;

/// Holes that are stored as zeroes.
#[derive(Debug, Clone, Copy)]
struct Filled {
    /// Those that are shorter than this.
    below_bytes: u64,
    /// So many of exactly that length, between runs of data.
    ties: usize,
    /// Not only those beside what was written.
    is_anywhere: bool,
}

impl Filled {
    /// Whether a hole is one of the last that are filled.
    fn takes_tie(&mut self, length: u64) -> bool {
        let is_one = length == self.below_bytes && self.ties > 0;
        self.ties -= usize::from(is_one);
        is_one
    }
}

/// The shortest holes between runs, as many as must go for [`MOST_RUNS`] to be left.
fn shortest(runs: &[(u64, u64)]) -> Filled {
    let mut lengths: Vec<u64> = runs.windows(2).map(|two| two[1].0 - (two[0].0 + two[0].1)).collect();
    let last = runs.len() - MOST_RUNS - 1;
    let (shorter, &mut below_bytes, _) = lengths.select_nth_unstable(last);
    let ties = last + 1 - shorter.iter().filter(|&&length| length < below_bytes).count();
    Filled { below_bytes, ties, is_anywhere: true }
}

/// What waits to be committed.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The size, once it was set.
    size_bytes: Option<u64>,
    /// Content from here on is gone.
    cut_bytes: u64,
    runs: BTreeMap<u64, Vec<u8>>,
    /// Punched ranges of the content, separate: begin and end.
    punched: BTreeMap<u64, u64>,
    memory_bytes: usize,
    attributes: Option<Attributes>,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending {
            size_bytes: None,
            cut_bytes: u64::MAX,
            runs: BTreeMap::new(),
            punched: BTreeMap::new(),
            memory_bytes: 0,
            attributes: None,
        }
    }
}

/// A part of what is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredPiece<'p> {
    /// Bytes that are already stored, by their range in the stored content.
    Kept(Range<u64>),
    New(&'p [u8]),
    Zeroes(u64),
}

impl StoredPiece<'_> {
    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            StoredPiece::Kept(range) => range.end - range.start,
            StoredPiece::New(bytes) => bytes.len() as u64,
            StoredPiece::Zeroes(length) => *length,
        }
    }
}

/// What is to be stored of a file.
#[derive(Debug)]
pub(crate) struct WritePlan<'p> {
    pub(crate) size_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) holes: Option<Holes>,
    /// Consecutive.
    pub(crate) pieces: Vec<StoredPiece<'p>>,
}

impl<'p> WritePlan<'p> {
    /// The edits of the stored content, if everything retained stays in place.
    pub(crate) fn edits(&self) -> Option<Vec<Edit<'p>>> {
        let (mut at, mut edits) = (0, Vec::new());
        for piece in &self.pieces {
            match piece {
                StoredPiece::Kept(range) if range.start != at => return None,
                StoredPiece::Kept(_) => {}
                StoredPiece::New(bytes) => edits.push(Edit { at, filling: Filling::Bytes(bytes) }),
                StoredPiece::Zeroes(length) => edits.push(Edit { at, filling: Filling::Zeroes(*length) }),
            }
            at += piece.length_bytes();
        }
        Some(edits)
    }
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.has_no_bytes() && self.attributes.is_none()
    }

    /// Whether only attributes were set.
    pub(crate) fn has_only_attributes(&self) -> bool {
        self.has_no_bytes() && self.attributes.is_some()
    }

    fn has_no_bytes(&self) -> bool {
        self.size_bytes.is_none() && self.runs.is_empty() && self.punched.is_empty()
    }

    /// Approximate memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Maximum memory for another `length` bytes.
    pub(crate) fn needed_bytes(length: usize) -> usize {
        // Written within a run, it becomes three.
        length + 3 * RUN_BYTES
    }

    /// Size of the file over content of this size.
    pub(crate) fn size_over(&self, content_bytes: u64) -> u64 {
        let written = self.runs.last_key_value().map_or(0, |(at, bytes)| at + bytes.len() as u64);
        self.size_bytes.unwrap_or_else(|| content_bytes.max(written))
    }

    /// End of the visible part of content of this size.
    pub(crate) fn shown_bytes(&self, content_bytes: u64) -> u64 {
        content_bytes.min(self.cut_bytes)
    }

    /// Sets attributes; an earlier birth time is kept if there is no new one.
    pub(crate) fn set_attributes(&mut self, attributes: Attributes) {
        let before = self.attributes.as_ref().and_then(|before| before.btime);
        self.attributes = Some(Attributes { btime: attributes.btime.or(before), ..attributes });
    }

    /// The change time set with attributes.
    pub(crate) fn given_ctime(&self) -> Option<Time> {
        self.attributes.as_ref().and_then(|attributes| attributes.ctime)
    }

    /// Sets the size, which was `before_bytes`.
    pub(crate) fn set_size(&mut self, size_bytes: u64, before_bytes: u64) {
        self.size_bytes = Some(size_bytes);
        // This also hides content that may replace it later: the size was set with this content in view.
        self.cut_bytes = self.cut_bytes.min(size_bytes);
        if size_bytes < before_bytes {
            self.clear(size_bytes..u64::MAX);
        }
    }

    /// Writes bytes that do not extend past the largest offset.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        self.size_bytes = self.size_bytes.map(|size| size.max(end));
        if let Some((&begin, run)) = self.runs.range_mut(..=at).next_back()
            && let Some(place) = run.get_mut((at - begin) as usize..).and_then(|run| run.get_mut(..bytes.len()))
        {
            place.copy_from_slice(bytes);
            return;
        }
        self.clear(at..end);
        if let Some((&begin, run)) = self.runs.range_mut(..at).next_back()
            && begin + run.len() as u64 == at
            && run.len() + bytes.len() <= JOINED_BYTES
        {
            run.extend_from_slice(bytes);
            self.memory_bytes += bytes.len();
            return;
        }
        self.insert(at, bytes.to_vec());
    }

    /// Punches a hole: nothing of what is there shows any more.
    pub(crate) fn punch(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.clear(range.clone());
        let (mut begin, mut end) = (range.start, range.end);
        let met: Vec<(u64, u64)> = self
            .punched
            .range(..=end)
            .rev()
            .map(|(&from, &to)| (from, to))
            .take_while(|(_, to)| *to >= begin)
            .collect();
        for (from, to) in met {
            self.punched.remove(&from);
            self.memory_bytes -= RUN_BYTES;
            (begin, end) = (begin.min(from), end.max(to));
        }
        self.punched.insert(begin, end);
        self.memory_bytes += RUN_BYTES;
    }

    /// Punched parts of a range.
    fn punched_within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.punched.range(..range.start).next_back().filter(|(_, end)| **end > range.start);
        let from = before.map_or(range.start, |(&from, _)| from);
        let within = self.punched.range(from..range.end.max(from));
        within.map(move |(&from, &to)| from.max(range.start)..to.min(range.end))
    }

    fn insert(&mut self, at: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.memory_bytes += bytes.len() + RUN_BYTES;
            self.runs.insert(at, bytes);
        }
    }

    /// Drops what was written to a range.
    fn clear(&mut self, range: Range<u64>) {
        let before = self.runs.range(..range.start).next_back().map(|(&at, bytes)| (at, bytes.len() as u64));
        let first = before.filter(|(at, length)| at + length > range.start).map_or(range.start, |(at, _)| at);
        let met: Vec<u64> = self.runs.range(first..range.end).map(|(&at, _)| at).collect();
        for at in met {
            let Some(mut bytes) = self.runs.remove(&at) else { continue };
            self.memory_bytes -= bytes.len() + RUN_BYTES;
            let end = at + bytes.len() as u64;
            if end > range.end {
                self.insert(range.end, bytes[(range.end - at) as usize..].to_vec());
            }
            if at < range.start {
                bytes.truncate((range.start - at) as usize);
                self.insert(at, bytes);
            }
        }
    }

    /// Runs that overlap a range.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let before = self.runs.range(..range.start).next_back();
        let before = before.filter(|(at, bytes)| *at + bytes.len() as u64 > range.start);
        let from = before.map_or(range.start, |(&at, _)| at);
        self.runs.range(from..range.end.max(from)).map(|(&at, bytes)| (at, &bytes[..]))
    }

    /// Overlays what was written on a buffer with the file's content from an offset on.
    pub(crate) fn lay_over(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        for hole in self.punched_within(offset..end) {
            buffer[(hole.start - offset) as usize..(hole.end - offset) as usize].fill(0);
        }
        for (at, bytes) in self.within(offset..end) {
            let (from, to) = (at.max(offset), (at + bytes.len() as u64).min(end));
            let new = &bytes[(from - at) as usize..(to - at) as usize];
            buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(new);
        }
    }

    /// The attributes over those of the content, with these holes. The type of the file is kept, and so are unset
    /// times.
    pub(crate) fn attributes_over(&self, content: &Attributes, holes: Option<Holes>) -> Attributes {
        /// The file type in a mode.
        const TYPE: u16 = 0o170_000;
        let attributes = self.attributes.as_ref().unwrap_or(content);
        let mode = content.mode & TYPE | attributes.mode & !TYPE;
        let (ctime, btime) = (attributes.ctime.or(content.ctime), attributes.btime.or(content.btime));
        Attributes { mode, ctime, btime, holes, ..attributes.clone() }
    }

    /// What is to be stored.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the content has less than its holes say.
    pub(crate) fn plan(&self, base: &Base) -> Result<WritePlan<'_>> {
        let data = self.data(base);
        let stored = base.stored_bytes();
        if data.iter().any(|(_, piece)| matches!(piece, StoredPiece::Kept(range) if range.end > stored)) {
            let cause = "the object has less data than its list of holes states";
            return Err(Error::new(ErrorKind::Corrupt, "write to an object", cause));
        }
        let plan = self.plan_filling(base, &data, Filled { below_bytes: SECTOR_BYTES, ties: 0, is_anywhere: false });
        match plan.holes.as_ref().map(|holes| holes.data.as_slice()) {
            Some(runs) if runs.len() > MOST_RUNS => Ok(self.plan_filling(base, &data, shortest(runs))),
            _ => Ok(plan),
        }
    }

    /// Data of the file, by their offset.
    fn data(&self, base: &Base) -> Vec<(u64, StoredPiece<'_>)> {
        let mut data = Vec::new();
        let mut stored = 0;
        for (offset, length) in base.runs() {
            let (mut at, end) = (offset, (offset + length).min(self.cut_bytes));
            let mut keep = |mut at: u64, to: u64| {
                let behind = std::iter::once(to..to);
                for hole in self.punched_within(at..to.max(at)).chain(behind) {
                    if at < hole.start {
                        data.push((at, StoredPiece::Kept(stored + at - offset..stored + hole.start - offset)));
                    }
                    at = hole.end;
                }
            };
            if at < end {
                for (over, bytes) in self.within(at..end) {
                    keep(at, over);
                    at = over + bytes.len() as u64;
                }
                keep(at, end);
            }
            stored += length;
        }
        data.extend(self.runs.iter().map(|(&at, bytes)| (at, StoredPiece::New(bytes))));
        data.sort_unstable_by_key(|(at, _)| *at);
        data
    }

    /// The plan with zeroes in place of these holes.
    fn plan_filling<'p>(&self, base: &Base, data: &[(u64, StoredPiece<'p>)], mut filled: Filled) -> WritePlan<'p> {
        let size_bytes = self.size_over(base.size_bytes);
        let (mut pieces, mut runs): (Vec<StoredPiece<'p>>, Vec<(u64, u64)>) = (Vec::new(), Vec::new());
        let mut add = |at: u64, piece: StoredPiece<'p>| {
            let length = piece.length_bytes();
            match runs.last_mut().filter(|(offset, so_far)| offset + so_far == at) {
                Some((_, so_far)) => *so_far += length,
                None => runs.push((at, length)),
            }
            match (pieces.last_mut(), piece) {
                (Some(StoredPiece::Kept(last)), StoredPiece::Kept(next)) if last.end == next.start => {
                    last.end = next.end
                }
                (_, piece) => pieces.push(piece),
            }
        };
        let Filled { below_bytes, is_anywhere, .. } = filled;
        let (mut end, mut was_new) = (0, false);
        for (at, piece) in data {
            let is_new = matches!(piece, StoredPiece::New(_));
            let is_beside = is_new || was_new || is_anywhere;
            if end < *at && is_beside && (at - end < below_bytes || end > 0 && filled.takes_tie(at - end)) {
                add(end, StoredPiece::Zeroes(at - end));
            }
            add(*at, piece.clone());
            (end, was_new) = (at + piece.length_bytes(), is_new);
        }
        let is_beside = was_new || is_anywhere || size_bytes != base.size_bytes;
        if end < size_bytes && size_bytes - end < below_bytes && is_beside {
            add(end, StoredPiece::Zeroes(size_bytes - end));
        }
        let stored_bytes = pieces.iter().map(StoredPiece::length_bytes).sum();
        let holes = (stored_bytes < size_bytes).then_some(Holes { size_bytes, data: runs });
        WritePlan { size_bytes, stored_bytes, holes, pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::content::StoredContent;

    fn base(holes: Option<Holes>, content: &[u8]) -> Base {
        let size_bytes = holes.as_ref().map_or(content.len() as u64, |holes| holes.size_bytes);
        let attributes = Attributes { holes, ..Attributes::default() };
        Base { attributes, size_bytes, content: StoredContent::Whole(content.to_vec()) }
    }

    fn runs(plan: &WritePlan<'_>) -> Vec<(u64, u64)> {
        plan.holes.as_ref().map_or(vec![(0, plan.size_bytes)], |holes| holes.data.clone())
    }

    #[test]
    fn writes_lie_over_each_other() {
        let mut pending = Pending::default();
        pending.write(10, &[1; 10]);
        pending.write(30, &[2; 10]);
        pending.write(15, &[3; 20]);
        pending.write(12, &[4; 2]);
        let mut buffer = [0; 45];
        pending.lay_over(0, &mut buffer);
        let expected: Vec<u8> =
            [vec![0; 10], vec![1; 2], vec![4; 2], vec![1], vec![3; 20], vec![2; 5], vec![0; 5]].concat();
        assert_eq!(buffer[..], expected);
        assert_eq!(pending.size_over(5), 40);
        pending.set_size(13, 40);
        pending.set_size(20, 13);
        pending.lay_over(0, buffer[..20].as_mut());
        assert_eq!((pending.size_over(100), pending.shown_bytes(100)), (20, 13));
        pending.clear(0..u64::MAX);
        assert_eq!(pending.memory_bytes(), 0);
    }

    #[test]
    fn what_is_written_within_data_or_behind_it_leaves_all_else_where_it_is() {
        let base = base(Some(Holes { size_bytes: 30_000, data: vec![(0, 100), (10_000, 100)] }), &[9; 200]);
        let mut pending = Pending::default();
        pending.write(10, b"abc");
        pending.write(10_050, &[1; 100]);
        let plan = pending.plan(&base).unwrap();
        assert_eq!(runs(&plan), [(0, 100), (10_000, 150)]);
        assert_eq!(plan.edits().unwrap().iter().map(|edit| edit.at).collect::<Vec<_>>(), [10, 150]);
        // Into the hole: what follows it moves.
        pending.write(5000, b"x");
        let plan = pending.plan(&base).unwrap();
        assert_eq!(runs(&plan), [(0, 100), (5000, 1), (10_000, 150)]);
        assert!(plan.edits().is_none());
        // Small holes beside what was written are filled.
        pending.write(200, b"y");
        assert_eq!(runs(&pending.plan(&base).unwrap()), [(0, 201), (5000, 1), (10_000, 150)]);
        pending.set_size(10_010, 30_000);
        pending.set_size(40_000, 10_010);
        let plan = pending.plan(&base).unwrap();
        assert_eq!((runs(&plan), plan.size_bytes), (vec![(0, 201), (5000, 1), (10_000, 10)], 40_000));
    }

    #[test]
    fn nothing_shows_where_a_hole_was_punched_but_what_is_written_later() {
        let base = base(None, &[9; 20_000]);
        let mut pending = Pending::default();
        pending.write(5000, b"abc");
        pending.punch(4096..8192);
        pending.punch(12_288..16_384);
        pending.punch(8192..8192);
        assert!(!pending.is_empty());
        let mut buffer = [9; 20_000];
        pending.lay_over(0, &mut buffer);
        let is_zero = |buffer: &[u8]| buffer.iter().all(|&byte| byte == 0);
        assert!(is_zero(&buffer[4096..8192]) && is_zero(&buffer[12_288..16_384]));
        assert!(buffer[..4096].iter().chain(&buffer[8192..12_288]).chain(&buffer[16_384..]).all(|&byte| byte == 9));
        let plan = pending.plan(&base).unwrap();
        assert_eq!(runs(&plan), [(0, 4096), (8192, 4096), (16_384, 3616)]);
        assert_eq!((plan.size_bytes, plan.stored_bytes), (20_000, 4096 + 4096 + 3616));
        // Joined with both; then a part of it is written.
        pending.punch(8000..12_300);
        assert_eq!((pending.punched.len(), pending.memory_bytes), (1, RUN_BYTES));
        pending.write(6000, &[1; 100]);
        let plan = pending.plan(&base).unwrap();
        assert_eq!(runs(&plan), [(0, 6100), (16_384, 3616)]);
        let mut buffer = [9; 300];
        pending.lay_over(5900, &mut buffer);
        assert!(is_zero(&buffer[..100]) && is_zero(&buffer[200..]) && buffer[100..200] == [1; 100]);
    }

    #[test]
    fn holes_are_filled_where_there_are_too_many() {
        let base = base(None, b"");
        let mut pending = Pending::default();
        for at in 0..MOST_RUNS as u64 + 10 {
            pending.write(at * 5000, b"x");
        }
        let plan = pending.plan(&base).unwrap();
        // The first ones, as all are as long.
        assert_eq!(plan.holes.as_ref().map(|holes| holes.data.len()), Some(MOST_RUNS));
        assert_eq!(plan.stored_bytes, MOST_RUNS as u64 + 10 * 5000);
        // Shorter ones, wherever they are.
        (0..9).for_each(|at| pending.write((1000 + 50 * at) * 5000 + 100, b"y"));
        let plan = pending.plan(&base).unwrap();
        assert_eq!(plan.holes.as_ref().map(|holes| holes.data.len()), Some(MOST_RUNS));
        assert_eq!(plan.stored_bytes, MOST_RUNS as u64 + 10 * 5000);
        assert!(runs(&plan).contains(&(1400 * 5000, 5001)));
    }
}
