//! Runs: what one process does with one file from opening to closing. They are the whole-file operations of Tanenbaum, Herder and Bos,
//! where a copy of 10 MB is one read and one write; and where the pattern of requests is seen.
//!
//! Where a trace knows no openings, a process and a file stand for one, until a pause or until it starts at the beginning again.

use hashbrown::HashMap;

use super::{ReadWrite, Side, Use, row_of};
use crate::trace::Operation;

/// Where a request lies, seen from the one before it in the same run and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The first.
    First,
    /// It begins where the last one ended.
    Sequential,
    /// It is as far from the last one as that was from the one before.
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

    /// What people call it.
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

/// Some of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u128,
}

/// Which run an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Opening(u32),
    Loose(u32, Option<u32>),
}

impl Key {
    fn of(operation: &Operation) -> Key {
        match operation.opening {
            Some(opening) => Key::Opening(opening),
            None => Key::Loose(operation.process, operation.file),
        }
    }
}

/// How much a run moved in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub bytes: u64,
    pub requests: u64,
}

/// One direction of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    moved: Moved,
    /// Offset and end of the last request, and how far it was from the one before.
    last: Option<(u64, u64)>,
    stride: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Run {
    file: Option<u32>,
    size_bytes: Option<u64>,
    last_ns: u64,
    ways: [Way; 2],
}

/// Runs that have not ended.
#[derive(Debug, Default)]
pub(super) struct Runs {
    open: HashMap<Key, Run>,
    /// Loose runs at which those that have paused too long are looked for.
    purge_at: usize,
}

/// Loose runs before any are looked for.
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
    pub fn transfer(
        &mut self,
        operation: &Operation,
        writes: bool,
        gap_ns: u64,
        sides: &mut ReadWrite<Side>,
        uses: &mut [Use],
    ) {
        let key = Key::of(operation);
        let loose = operation.opening.is_none();
        if loose {
            self.part(&key, operation, writes, gap_ns, sides, uses);
            self.purge(operation.time_ns, gap_ns, sides, uses);
        }
        let run = self.open.entry(key).or_default();
        run.file = operation.file;
        run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
        run.last_ns = run.last_ns.max(operation.time_ns);
        let pattern = run.ways[usize::from(writes)].see(operation);
        let share = &mut sides.of(writes).patterns[pattern as usize];
        share.count += 1;
        share.bytes += u128::from(operation.length_bytes);
    }

    /// Ends a run without an opening, where another begins.
    fn part(
        &mut self,
        key: &Key,
        operation: &Operation,
        writes: bool,
        gap_ns: u64,
        sides: &mut ReadWrite<Side>,
        uses: &mut [Use],
    ) {
        let Some(run) = self.open.get(key) else { return };
        let paused = operation.time_ns > run.last_ns.saturating_add(gap_ns);
        let way = run.ways[usize::from(writes)];
        let again = operation.offset_bytes == Some(0) && way.last.is_some_and(|(_, end)| end > 0);
        if paused || again {
            let run = self.open.remove(key).unwrap_or_default();
            // Reading again does not end what is being written.
            let kept = usize::from(!writes);
            if !paused && run.ways[kept].moved.requests > 0 {
                let mut rest = run;
                rest.ways[usize::from(writes)] = Way::default();
                self.open.insert(*key, rest);
                return end_way(&run, writes, sides, uses);
            }
            end(&run, sides, uses);
        }
    }

    fn purge(&mut self, now_ns: u64, gap_ns: u64, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
        if self.open.len() < self.purge_at.max(FIRST_PURGE) {
            return;
        }
        let old = |key: &Key, run: &Run| matches!(key, Key::Loose(..)) && now_ns > run.last_ns.saturating_add(gap_ns);
        for (_, run) in self.open.extract_if(|key, run| old(key, run)) {
            end(&run, sides, uses);
        }
        self.purge_at = 2 * self.open.len();
    }

    /// The size that an operation says of a file that is being read or written.
    pub fn see_size(&mut self, operation: &Operation) {
        if let Some(run) = self.open.get_mut(&Key::of(operation)) {
            run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
        }
    }

    pub fn close(&mut self, operation: &Operation, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
        if let Some(mut run) = self.open.remove(&Key::of(operation)) {
            run.size_bytes = operation.file_size_bytes.or(run.size_bytes);
            end(&run, sides, uses);
        }
    }

    pub fn finish(&mut self, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
        for (_, run) in self.open.drain() {
            end(&run, sides, uses);
        }
    }
}

fn end(run: &Run, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
    end_way(run, false, sides, uses);
    end_way(run, true, sides, uses);
}

fn end_way(run: &Run, writes: bool, sides: &mut ReadWrite<Side>, uses: &mut [Use]) {
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
