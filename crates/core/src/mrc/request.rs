//! The requests of a trace, checked and split into blocks.
//!
//! The key of a block is a one-to-one function of its file and its place in it. For a write it is known whether the
//! rest of a block must be read first: if the write does not cover what the file has there.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// An event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A read or write.
    Request(Request),
    /// A file is known to have this size.
    Size {
        /// Which file.
        file: u64,
        /// Its size.
        size_bytes: u64,
    },
    /// A file is truncated or removed: its blocks after that leave all caches, and are never written back.
    Cut {
        /// Which file.
        file: u64,
        /// Its remaining size; 0 for none.
        size_bytes: u64,
    },
}

/// A read or write of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of the file.
    pub file: u64,
    /// Its offset.
    pub offset_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
    /// Whether it is a write.
    pub is_write: bool,
}

/// The content of a trace, and what could not be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Reads that were followed.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes that were followed.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Files that were read or written.
    pub files: u64,
    /// Requests of 0 bytes, omitted.
    pub empty: u64,
    /// Requests longer than the limit, omitted.
    pub too_long: u64,
    /// The longest of these.
    pub longest_bytes: u64,
    /// Requests that end beyond 2^64 bytes, omitted.
    pub beyond_end: u64,
    /// Times that a file was truncated or removed while it had blocks.
    pub cuts: u64,
}

/// What happens to the blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// They are referenced.
    Refer {
        /// By this request.
        request: Request,
        /// Size of the file before it.
        size_bytes: u64,
    },
    /// They are removed.
    Forget {
        /// Which file.
        file: u64,
        /// Its remaining size.
        from_bytes: u64,
        /// Its former size.
        size_bytes: u64,
    },
}

/// How a block is referenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Written in part: if it is not in the cache, it is read first.
    PartialWrite,
    /// Overwritten completely.
    WholeWrite,
}

impl Kind {
    /// Whether it is a write.
    pub fn is_write(self) -> bool {
        self != Kind::Read
    }

    /// Whether the block is fetched from the device if it is not in the cache.
    pub fn fetches(self) -> bool {
        self != Kind::WholeWrite
    }
}

/// The files of a trace, as far as they are known.
#[derive(Debug)]
pub struct Files {
    known: HashMap<u64, KnownFile>,
    longest_bytes: u64,
    seen: Seen,
}

#[derive(Debug, Default)]
struct KnownFile {
    size_bytes: u64,
    is_used: bool,
}

impl Files {
    /// No files yet. Requests longer than `longest_bytes` will be omitted.
    pub fn new(longest_bytes: u64) -> Files {
        Files { known: HashMap::new(), longest_bytes, seen: Seen::default() }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The effect of an event on blocks; `None` if it has none.
    pub fn take(&mut self, event: Event) -> Option<Step> {
        match event {
            Event::Request(request) => self.request(request),
            Event::Size { file, size_bytes } => {
                let known = self.known.entry(file).or_default();
                known.size_bytes = known.size_bytes.max(size_bytes);
                None
            }
            Event::Cut { file, size_bytes } => {
                let known = self.known.get_mut(&file)?;
                let before = known.size_bytes;
                known.size_bytes = before.min(size_bytes);
                (known.is_used && before > size_bytes).then(|| {
                    self.seen.cuts += 1;
                    Step::Forget { file, from_bytes: size_bytes, size_bytes: before }
                })
            }
        }
    }

    fn request(&mut self, request: Request) -> Option<Step> {
        let Request { file, offset_bytes, length_bytes, is_write } = request;
        if length_bytes == 0 {
            self.seen.empty += 1;
            return None;
        }
        if length_bytes > self.longest_bytes {
            self.seen.too_long += 1;
            self.seen.longest_bytes = self.seen.longest_bytes.max(length_bytes);
            return None;
        }
        let Some(end) = offset_bytes.checked_add(length_bytes) else {
            self.seen.beyond_end += 1;
            return None;
        };
        let (count, bytes) = match is_write {
            true => (&mut self.seen.writes, &mut self.seen.written_bytes),
            false => (&mut self.seen.reads, &mut self.seen.read_bytes),
        };
        *count += 1;
        *bytes = bytes.saturating_add(length_bytes);
        let known = self.known.entry(file).or_default();
        let size_bytes = known.size_bytes;
        self.seen.files += u64::from(!known.is_used);
        *known = KnownFile { size_bytes: size_bytes.max(end), is_used: true };
        Some(Step::Refer { request, size_bytes })
    }
}

/// Keys of blocks: those of the first 2^31 files and of their first 2^32 blocks combine file and place, others are
/// looked up.
#[derive(Debug, Default)]
pub(super) struct Keys {
    far: HashMap<(u64, u64), u64>,
}

const PLACE_BITS: u32 = 32;
const FAR: u64 = 1 << 31;

impl Keys {
    /// The common upper part of the keys of 2^32 neighbouring blocks of a file.
    fn begin(&mut self, file: u64, high: u64) -> u64 {
        if file < FAR && high == 0 {
            return file << PLACE_BITS;
        }
        let next = FAR | self.far.len() as u64;
        *self.far.entry((file, high)).or_insert(next) << PLACE_BITS
    }

    /// Calls `each` with the keys of blocks `first` to `last` of a file, and their places.
    pub(super) fn of(&mut self, file: u64, first: u64, last: u64, mut each: impl FnMut(u64, u64)) {
        let mut from = first;
        loop {
            let high = from >> PLACE_BITS;
            let end = last.min(high << PLACE_BITS | (u32::MAX as u64));
            let begin = self.begin(file, high);
            (from..=end).for_each(|place| each(begin | (place & u64::from(u32::MAX)), place));
            if end == last {
                return;
            }
            from = end + 1;
        }
    }

    /// The ranges of keys of blocks `first` to `last` of a file that may have been used.
    pub(super) fn ranges(&mut self, file: u64, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut ranges, low) = (Vec::new(), u64::from(u32::MAX));
        let mut highs: Vec<u64> = self.far.keys().filter(|(of, _)| *of == file).map(|(_, high)| *high).collect();
        if file < FAR {
            highs.push(0);
        }
        for high in highs.into_iter().filter(|high| (first >> PLACE_BITS..=last >> PLACE_BITS).contains(high)) {
            let begin = self.begin(file, high);
            let from = if first >> PLACE_BITS == high { first & low } else { 0 };
            let to = if last >> PLACE_BITS == high { last & low } else { low };
            ranges.push((begin | from, begin | to));
        }
        ranges
    }
}

/// The keys in `ranges` of those that are kept: `count` of them, each in `kept`, and `has` finds one. Goes through the
/// ranges or through all that is kept, whichever is shorter.
pub(super) fn kept_within(
    ranges: &[(u64, u64)],
    count: usize,
    kept: impl Iterator<Item = u64>,
    has: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let in_ranges = ranges.iter().fold(0u64, |sum, (first, last)| sum.saturating_add(last - first + 1));
    if in_ranges <= count as u64 {
        return ranges.iter().flat_map(|&(first, last)| first..=last).filter(|&key| has(key)).collect();
    }
    kept.filter(|key| ranges.iter().any(|&(first, last)| (first..=last).contains(key))).collect()
}

/// Calls `each` with the key, the kind, and whether the preceding block was its neighbour, for all blocks of a request.
pub(super) fn split(
    request: &Request,
    size_bytes: u64,
    block_bytes: u64,
    keys: &mut Keys,
    mut each: impl FnMut(u64, Kind, bool),
) {
    let Request { file, offset_bytes, length_bytes, is_write } = *request;
    let end = offset_bytes + length_bytes;
    let (first, last) = (offset_bytes / block_bytes, (end - 1) / block_bytes);
    keys.of(file, first, last, |key, place| {
        // The part of this block that the file has.
        let begins = place * block_bytes;
        let ends = begins.saturating_add(block_bytes).min(size_bytes);
        let kind = match () {
            _ if !is_write => Kind::Read,
            _ if begins < offset_bytes.min(size_bytes) || end < ends => Kind::PartialWrite,
            _ => Kind::WholeWrite,
        };
        each(key, kind, place > first);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(request: Request, size_bytes: u64, block_bytes: u64) -> Vec<(u64, Kind, bool)> {
        let mut all = Vec::new();
        split(&request, size_bytes, block_bytes, &mut Keys::default(), |key, kind, joins| all.push((key, kind, joins)));
        all
    }

    fn request(offset_bytes: u64, length_bytes: u64, is_write: bool) -> Request {
        Request { file: 1, offset_bytes, length_bytes, is_write }
    }

    #[test]
    fn requests_cover_their_blocks() {
        let key = |place: u64| (1 << 32) | place;
        let all = blocks(request(1000, 3000, false), 0, 1024);
        assert_eq!(
            all,
            [
                (key(0), Kind::Read, false),
                (key(1), Kind::Read, true),
                (key(2), Kind::Read, true),
                (key(3), Kind::Read, true)
            ]
        );
        assert_eq!(blocks(request(1024, 1024, false), 0, 1024), [(key(1), Kind::Read, false)]);
    }

    #[test]
    fn what_a_write_does_not_cover_is_read_first() {
        let kinds = |offset, length, size| {
            blocks(request(offset, length, true), size, 100).iter().map(|b| b.1).collect::<Vec<_>>()
        };
        use Kind::{PartialWrite, WholeWrite};
        // A new file, and one that grows.
        assert_eq!(kinds(0, 30, 0), [WholeWrite]);
        assert_eq!(kinds(30, 30, 30), [PartialWrite]);
        assert_eq!(kinds(100, 30, 100), [WholeWrite]);
        // In the middle: first and last in part; up to the end: only the first.
        assert_eq!(kinds(50, 200, 1000), [PartialWrite, WholeWrite, PartialWrite]);
        assert_eq!(kinds(50, 200, 250), [PartialWrite, WholeWrite, WholeWrite]);
        // Beyond the end there is nothing to read.
        assert_eq!(kinds(350, 20, 250), [WholeWrite]);
    }

    #[test]
    fn no_two_blocks_have_one_key() {
        let mut keys = Keys::default();
        let mut seen = std::collections::HashSet::new();
        let places = [0, 1, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 54, (1 << 54) - 1];
        for file in [0, 1, FAR - 1, FAR, FAR + 1, u64::MAX] {
            for place in places {
                keys.of(file, place, place, |key, _| assert!(seen.insert(key), "{file} {place}"));
            }
        }
        let mut again = 0;
        keys.of(1, (1 << 32) - 1, (1 << 32) + 1, |key, _| again += usize::from(seen.contains(&key)));
        assert_eq!(again, 3);
        assert_eq!(keys.ranges(1, 0, u64::MAX >> 10).len(), 3);
    }

    #[test]
    fn what_cannot_be_followed_is_counted() {
        let mut files = Files::new(1 << 20);
        assert_eq!(files.take(Event::Request(request(0, 0, false))), None);
        assert_eq!(files.take(Event::Request(request(0, 2 << 20, false))), None);
        assert_eq!(files.take(Event::Request(request(u64::MAX, 2, true))), None);
        assert!(files.take(Event::Request(request(u64::MAX - 2, 2, true))).is_some());
        let seen = files.seen();
        assert_eq!(
            (seen.empty, seen.too_long, seen.longest_bytes, seen.beyond_end, seen.writes),
            (1, 1, 2 << 20, 1, 1)
        );
    }

    #[test]
    fn files_are_known_by_what_was_read_and_written() {
        let mut files = Files::new(1 << 20);
        let size = |step| match step {
            Some(Step::Refer { size_bytes, .. }) => size_bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(size(files.take(Event::Request(request(0, 100, true)))), 0);
        assert_eq!(size(files.take(Event::Request(request(0, 10, true)))), 100);
        files.take(Event::Size { file: 1, size_bytes: 500 });
        assert_eq!(size(files.take(Event::Request(request(0, 10, true)))), 500);
        let cut = files.take(Event::Cut { file: 1, size_bytes: 50 });
        assert_eq!(cut, Some(Step::Forget { file: 1, from_bytes: 50, size_bytes: 500 }));
        assert_eq!(files.take(Event::Cut { file: 1, size_bytes: 50 }), None);
        assert_eq!(files.take(Event::Cut { file: 2, size_bytes: 0 }), None);
        assert_eq!(files.seen().cuts, 1);
    }
}
