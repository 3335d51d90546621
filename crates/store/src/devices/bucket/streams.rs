//! Which files are read from front to back, and how far ahead: read-ahead by what is read.
//!
//! - The third read in a row is a **stream**: each begins where the one before ended, about, also if several threads
//!   take turns and overtake each other. Reads that leave out more than they read are none.
//! - What is read ahead of a stream begins with a few reads, and doubles whenever half of it is used up.
//! - A file may have several streams; those used longest ago are forgotten.

use std::ops::Range;

use super::table::FileNumber;

/// Streams that are followed at a time.
const MOST_STREAMS: usize = 64;
/// Reads in a row that are a stream.
const LEAST_READS: u32 = 3;
/// A gap that is no longer than this may be left out, however short the reads.
const NEAR_BYTES: u64 = 64 << 10;
/// Reads by which a thread may be behind another.
const BEHIND_READS: u64 = 16;
/// Least and most bytes that are read ahead.
const LEAST_AHEAD_BYTES: u64 = 512 << 10;
const MOST_AHEAD_BYTES: u64 = 24 << 20;
/// How many reads are read ahead at first.
const FIRST_AHEAD_READS: u64 = 4;

#[derive(Debug)]
struct Stream {
    file: FileNumber,
    /// End of what was read.
    front: u64,
    reads: u32,
    /// End of what is read ahead, and how many bytes that may be.
    ahead: u64,
    ahead_bytes: u64,
    used: u64,
}

impl Stream {
    fn continues(&self, range: &Range<u64>) -> bool {
        let length = range.end - range.start;
        range.start <= self.front + length.max(NEAR_BYTES)
            && range.start + BEHIND_READS.saturating_mul(length) >= self.front
    }

    /// What is to be read ahead now.
    fn next(&mut self, length: u64) -> Option<Range<u64>> {
        let ahead = self.ahead.max(self.front);
        if self.reads < LEAST_READS || ahead - self.front > self.ahead_bytes / 2 {
            return None;
        }
        self.ahead_bytes = match self.ahead_bytes {
            0 => (FIRST_AHEAD_READS.saturating_mul(length)).max(LEAST_AHEAD_BYTES),
            bytes => bytes * 2,
        }
        .min(MOST_AHEAD_BYTES);
        self.ahead = self.front + self.ahead_bytes;
        Some(ahead..self.ahead)
    }
}

/// The streams of a volume.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    uses: u64,
}

impl Streams {
    /// Notes a read of a file; returns the range that is to be read ahead, if any. The file may end before.
    pub(super) fn note(&mut self, file: FileNumber, range: Range<u64>) -> Option<Range<u64>> {
        self.uses += 1;
        let uses = self.uses;
        let length = range.end - range.start;
        let found = self.streams.iter_mut().find(|stream| stream.file == file && stream.continues(&range));
        if let Some(stream) = found {
            (stream.used, stream.reads) = (uses, stream.reads.saturating_add(1));
            stream.front = stream.front.max(range.end);
            return stream.next(length);
        }
        if self.streams.len() >= MOST_STREAMS {
            let oldest = (0..).zip(&self.streams).min_by_key(|(_, stream)| stream.used).map_or(0, |(at, _)| at);
            self.streams.swap_remove(oldest);
        }
        self.streams.push(Stream { file, front: range.end, reads: 1, ahead: 0, ahead_bytes: 0, used: uses });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FILE: FileNumber = FileNumber(3);

    /// What is read ahead for reads of a length at these offsets.
    fn ahead(reads: &[u64], length: u64) -> Vec<Option<Range<u64>>> {
        let mut streams = Streams::default();
        reads.iter().map(|at| streams.note(FILE, *at..at + length)).collect()
    }

    #[test]
    fn the_third_read_in_a_row_is_a_stream_and_it_grows() {
        let mib = |range: Range<u64>| Some(range.start * MIB..range.end * MIB);
        let reads: Vec<u64> = (0..20).map(|read| read * MIB).collect();
        let found = ahead(&reads, MIB);
        let expected: Vec<Option<Range<u64>>> =
            vec![None, None, mib(3..7), None, mib(7..13), None, None, None, mib(13..25)];
        assert_eq!(found[..9], expected);
        let all: u64 = found.iter().flatten().map(|range| range.end - range.start).sum();
        assert!(all <= 20 * MIB + MOST_AHEAD_BYTES);
        let ends: Vec<u64> = found.iter().flatten().map(|range| range.end).collect();
        let begins: Vec<u64> = found.iter().flatten().map(|range| range.start).collect();
        assert_eq!(ends[..ends.len() - 1], begins[1..], "each begins where the one before ended");
    }

    #[test]
    fn threads_that_overtake_each_other_read_one_stream_and_random_reads_are_none() {
        let overtaking: Vec<u64> = [1, 0, 3, 2, 5, 4].map(|read| read * MIB).to_vec();
        assert!(ahead(&overtaking, MIB).iter().any(Option::is_some));
        let random: Vec<u64> = (0..100_u64).map(|read| (read * 7919 % 100) * MIB).collect();
        assert_eq!(ahead(&random, 20_000), vec![None; 100]);
        // In order, but little of it.
        let sparse: Vec<u64> = (0..100).map(|read| read * 200_000).collect();
        assert_eq!(ahead(&sparse, 20_000), vec![None; 100]);
        let most: Vec<u64> = (0..100).map(|read| read * 50_000).collect();
        assert!(ahead(&most, 20_000).iter().any(Option::is_some));
    }

    #[test]
    fn streams_beside_each_other_are_followed_and_there_are_not_too_many() {
        let mut streams = Streams::default();
        let mut found = [0; 2];
        for read in 0..6 {
            for (stream, found) in found.iter_mut().enumerate() {
                let at = stream as u64 * (1 << 40) + read * MIB;
                *found += usize::from(streams.note(FILE, at..at + MIB).is_some());
            }
        }
        assert_eq!(found, [2, 2]);
        assert_eq!(streams.note(FileNumber(4), 6 * MIB..7 * MIB), None, "it is another file");
        (0..1000).for_each(|file| assert_eq!(streams.note(FileNumber(100 + file), 0..MIB), None));
        assert_eq!(streams.streams.len(), MOST_STREAMS);
    }
}
