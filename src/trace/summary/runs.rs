//! Runs: what one process does with one file from open to close. They are the whole-file operations of Tanenbaum,
//! Herder and Bos, where a copy of 10 MB is one read and one write; request patterns are determined within a run.
//!
//! If a trace has no opens, [`crate::trace::whole`] combines requests.

use hashbrown::HashMap;

use super::{ReadWrite, Side, Use, row_of};
use crate::trace::whole::{Rule, Whole};
use crate::trace::{Kind, Operation};

/// Position of a request relative to the previous one of the same run and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The first.
    First,
    /// It begins where the previous one ended.
    Sequential,
    /// Its distance from the previous one equals the one before.
    Strided,
    /// Anywhere else.
    Random,
    /// The offset is not known.
    Unknown,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Pattern; 5] =
        [Pattern::First, Pattern::Sequential, Pattern::Strided, Pattern::Random, Pattern::Unknown];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::First => "first",
            Pattern::Sequential => "sequential",
            Pattern::Strided => "strided",
            Pattern::Random => "random",
            Pattern::Unknown => "unknown",
        }
    }
}

/// A set of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of requests.
    pub count: u64,
    /// Their bytes.
    pub bytes: u128,
}

/// Amount moved by a run in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub bytes: u64,
    pub requests: u64,
}

/// One direction of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    moved: Moved,
    /// Offset and end of the previous request, and its distance from the one before.
    last: Option<(u64, u64)>,
    stride: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct AccessRun {
    file: Option<u32>,
    size_bytes: Option<u64>,
    ways: [Way; 2],
}

/// Key of an operation without an open: process, file, and whether it writes.
type Loose = (u32, Option<u32>, bool);

/// Runs that are still open.
#[derive(Debug)]
pub(super) struct Runs {
    open: HashMap<u32, AccessRun>,
    loose: Whole,
    /// State and time of the last request without an open.
    ways: HashMap<Loose, (Way, u64)>,
    gap_ns: u64,
    /// Number of these at which old ones are removed.
    purge_at: usize,
}

/// Initial number of entries that triggers a removal.
const FIRST_PURGE: usize = 1 << 16;

impl Way {
    fn see(&mut self, operation: &Operation) -> Pattern {
        self.moved.bytes = self.moved.bytes.saturating_add(operation.length_bytes);
        self.moved.requests += 1;
        let Some(offset) = operation.offset_bytes else {
            (self.last, self.stride) = (None, None);
            return Pattern::Unknown;
        };
        let before = self.last.replace((offset, offset.saturating_add(operation.length_bytes)));
        let Some((last_offset, last_end)) = before else { return Pattern::First };
        let stride = offset.wrapping_sub(last_offset) as i64;
        let same = self.stride.replace(stride) == Some(stride);
        match () {
            _ if offset == last_end => Pattern::Sequential,
            _ if same => Pattern::Strided,
            _ => Pattern::Random,
        }
    }
}

impl Runs {
    pub(super) fn new(gap_ns: u64) -> Runs {
        let loose = Whole::new(Rule { gap_ns, ..Rule::default() });
        Runs { open: HashMap::new(), loose, ways: HashMap::new(), gap_ns, purge_at: 0 }
    }

    pub(super) fn transfer(
        &mut self,
        operation: &Operation,
        writes: bool,
        sides: &mut ReadWrite<Side>,
        uses: &mut [Use],
    ) {
        let pattern = match operation.opening {
            Some(opening) => {
                let run = self.open.entry(opening).or_default();
                run.file = operation.file;
                run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
                run.ways[usize::from(writes)].see(operation)
            }
            None => {
                let kind = if writes { Kind::Write } else { Kind::Read };
                let begun = self.loose.add(&Operation { kind, ..*operation }, &mut |whole, requests| {
                    end_whole(&whole, requests, sides, uses)
                });
                self.purge(operation.time_ns);
                let way = self.ways.entry((operation.process, operation.file, writes)).or_default();
                // A seek within a file does not begin another use of it; reading from the start, or a pause, does.
                if begun && (operation.offset_bytes == Some(0) || operation.time_ns > way.1.saturating_add(self.gap_ns))
                {
                    way.0 = Way::default();
                }
                way.1 = way.1.max(operation.time_ns);
                way.0.see(operation)
            }
        };
        let share = &mut sides.of(writes).patterns[pattern as usize];
        share.count += 1;
        share.bytes += u128::from(operation.length_bytes);
    }

    /// Removes positions that no request can follow any more.
    fn purge(&mut self, now_ns: u64) {
        if self.ways.len() < self.purge_at.max(FIRST_PURGE) {
            return;
        }
        self.ways.retain(|_, (_, last_ns)| now_ns <= last_ns.saturating_add(self.gap_ns));
        self.purge_at = 2 * self.ways.len();
    }

    /// Updates the size of a file that is being read or written.
    pub(super) fn see_size(&mut self, operation: &Operation) {
        match operation.opening {
            None => self.loose.see_size(operation),
            Some(opening) => {
                if let Some(run) = self.open.get_mut(&opening) {
                    run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
                }
            }
        }
    }

    pub(super) fn close(&mut self, operation: &Operation, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
        let Some(opening) = operation.opening else {
            self.loose.add(operation, &mut |whole, requests| end_whole(&whole, requests, sides, uses));
            return;
        };
        if let Some(mut run) = self.open.remove(&opening) {
            run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
            end(&run, sides, uses);
        }
    }

    pub(super) fn finish(&mut self, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
        for (_, run) in self.open.drain() {
            end(&run, sides, uses);
        }
        self.loose.finish(&mut |whole, requests| end_whole(&whole, requests, sides, uses));
    }
}

/// Counts an operation combined from requests without an open.
fn end_whole(whole: &Operation, requests: u64, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
    let writes = whole.kind == Kind::Write;
    if writes || whole.kind == Kind::Read {
        let moved = Moved { bytes: whole.length_bytes, requests };
        end_run(sides.of(writes), writes, moved, whole.file_size_bytes, whole.file, uses);
    }
}

fn end(run: &AccessRun, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
    end_way(run, false, sides, uses);
    end_way(run, true, sides, uses);
}

fn end_way(run: &AccessRun, writes: bool, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
    let way = run.ways[usize::from(writes)];
    if way.moved.requests > 0 {
        end_run(sides.of(writes), writes, way.moved, run.size_bytes, run.file, uses);
    }
}

/// Counts a whole-file operation.
pub(super) fn end_run(
    side: &mut Side,
    writes: bool,
    moved: Moved,
    size_bytes: Option<u64>,
    file: Option<u32>,
    uses: &mut [Use],
) {
    side.whole.record(moved.bytes);
    if let Some(size) = size_bytes {
        side.file_sizes.record(size);
    }
    let row = &mut side.by_file_size[row_of(size_bytes)];
    row.whole += 1;
    row.requests += moved.requests;
    row.bytes += u128::from(moved.bytes);
    if let Some(used) = file.and_then(|file| uses.get_mut(file as usize)) {
        let times = if writes { &mut used.writes } else { &mut used.reads };
        *times = times.saturating_add(1);
    }
}
