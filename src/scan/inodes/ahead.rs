//! Reads directories ahead once they prove not to be in memory; otherwise a thread would wait for each in turn.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::InodeSource;

/// Directories that a thread takes at a time: a chunk.
pub(super) const CHUNK: usize = 64;
/// Chunks of directories that are in memory are faster than this.
const SLOW_CHUNK: Duration = Duration::from_millis(1);
/// Chunks to read ahead.
const CHUNKS_AHEAD: usize = 64;
/// Gaps between two directories up to this size are read ahead with them.
const GAP_BYTES: u64 = 64 << 10;

/// What was requested.
#[derive(Default)]
pub(super) struct Ahead {
    is_slow: AtomicBool,
    /// Number of chunks that were requested.
    asked: AtomicUsize,
}

impl Ahead {
    /// Called when `chunk` of `count` directories was read, with the time that it took. `listing` returns the location
    /// of a directory's names.
    pub(super) fn ask<'d, S: InodeSource>(
        &self,
        source: &S,
        count: usize,
        listing: impl Fn(usize) -> Option<&'d S::Listing>,
        chunk: usize,
        taken: Duration,
    ) where
        S::Listing: 'd,
    {
        if taken > SLOW_CHUNK {
            self.is_slow.store(true, Relaxed);
        }
        if !self.is_slow.load(Relaxed) {
            return;
        }
        let until = chunk + 1 + CHUNKS_AHEAD;
        let from = self.asked.fetch_max(until, Relaxed).max(chunk + 1);
        let part = count.min(from * CHUNK)..count.min(until.max(from) * CHUNK);
        let mut range: Option<(u64, u64)> = None;
        for (offset, length) in part.filter_map(|position| source.extent(listing(position)?)) {
            match &mut range {
                Some((start, end)) if offset >= *start && offset <= *end + GAP_BYTES => {
                    *end = (*end).max(offset + length)
                }
                _ => {
                    if let Some((start, end)) = range.replace((offset, offset + length)) {
                        source.will_need(start, end - start);
                    }
                }
            }
        }
        if let Some((start, end)) = range {
            source.will_need(start, end - start);
        }
    }
}
