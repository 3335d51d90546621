//! Blocks of a sorted table: keys with shared prefixes, a restart every 16 entries, a checksum of everything
//! (docs/FORMAT.md, section 10).
//!
//! What follows a key depends on the level: [`super::leaf`] for leaves, the page of a block below for others. A block
//! is one page of 4 KiB, unless a long key makes it longer; a leaf then has one entry, another block two, so that
//! levels always shrink. Decoding is bounds-checked: `None` means that the block is inconsistent although its checksum
//! is valid.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use std::cmp::Ordering;

use crate::format::record;
use crate::io::varint;

/// Bytes of a page; blocks are whole pages, numbered by their first.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes before the entries.
pub(crate) const HEADER_BYTES: usize = 16;
/// Entries from one restart to the next.
const RESTART_INTERVAL: usize = 16;
/// Maximum number of pages of a block: two of the longest keys of the index, one after the other.
pub(crate) const MOST_PAGES: usize = 33;

/// A block being built.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    level: u8,
    /// Entries that a block accepts whatever their length.
    least: usize,
    entries: Vec<u8>,
    restarts: Vec<u16>,
    count: usize,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// An empty block of `level`, 0 for leaves.
    pub(crate) fn new(level: u8) -> BlockBuilder {
        BlockBuilder {
            level,
            least: if level == 0 { 1 } else { 2 },
            entries: Vec::with_capacity(PAGE_BYTES),
            restarts: Vec::new(),
            count: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Whether the next entry is a restart: its value must not refer to the entry before.
    pub(crate) fn at_restart(&self) -> bool {
        self.count.is_multiple_of(RESTART_INTERVAL)
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends an entry, whose key must be above all others, if it fits; returns whether it did. An empty block accepts
    /// any entry.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let restart = self.at_restart();
        let shared = if restart { 0 } else { common_prefix(&self.last_key, key) };
        let before = self.entries.len();
        varint::put(&mut self.entries, shared as u64);
        varint::put(&mut self.entries, (key.len() - shared) as u64);
        let suffix = key.get(shared..).unwrap_or_default();
        self.entries.extend_from_slice(suffix);
        self.entries.extend_from_slice(value);
        let restarts = self.restarts.len() + usize::from(restart);
        if self.count >= self.least && HEADER_BYTES + self.entries.len() + 2 * restarts > PAGE_BYTES {
            self.entries.truncate(before);
            return false;
        }
        if restart {
            // Only the first entry of a block can exceed 64 KiB, and it is at 0.
            self.restarts.push(before as u16);
        }
        if self.count == 0 {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
        self.count += 1;
        true
    }

    /// The first key.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    /// Appends the finished block to `out`, returns its checksum, and starts over.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        let used = HEADER_BYTES + self.entries.len() + 2 * self.restarts.len();
        let pages = used.div_ceil(PAGE_BYTES);
        let end = start + pages * PAGE_BYTES;
        out.reserve(end - start);
        out.extend_from_slice(&header(self.level, pages, self.count, self.entries.len()));
        out.extend_from_slice(&self.entries);
        out.resize(end - 2 * self.restarts.len(), 0);
        self.restarts.iter().rev().for_each(|restart| out.extend_from_slice(&restart.to_le_bytes()));
        let checksum = seal(out.split_at_mut(start).1);
        self.entries.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.count = 0;
        checksum
    }
}

/// The header of a block of so many pages, entries and bytes of entries, not sealed.
pub(super) fn header(level: u8, pages: usize, count: usize, length: usize) -> [u8; HEADER_BYTES] {
    let [count_low, count_high] = (count as u16).to_le_bytes();
    let [a, b, c, d] = (length as u32).to_le_bytes();
    [0, 0, 0, 0, 0, 0, 0, 0, level, (pages - 1) as u8, count_low, count_high, a, b, c, d]
}

/// Writes the checksum of a block or footer at its beginning, and returns it.
pub(crate) fn seal(block: &mut [u8]) -> u64 {
    record::put_checksum(block)
}

/// The checksum of a block or footer, if it is valid.
pub(crate) fn checksum(block: &[u8]) -> Option<u64> {
    let (stored, rest) = block.split_first_chunk()?;
    let stored = u64::from_le_bytes(*stored);
    (stored == record::checksum(rest)).then_some(stored)
}

/// Length of the common prefix of `a` and `b`.
#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(|(a, b)| a == b).count() * 8;
    let (a, b) = (a.get(words..).unwrap_or_default(), b.get(words..).unwrap_or_default());
    words + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Number of pages of the block that begins with `header`; not verified yet.
pub(crate) fn pages_of(header: &[u8]) -> usize {
    1 + header.get(9).copied().map_or(0, usize::from)
}

/// A block with a valid checksum.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Box<[u8]>,
    level: u8,
    count: usize,
    /// Offset of the end of the entries.
    end: usize,
}

impl Block {
    /// Verifies a block of whole pages; `None` if it is invalid.
    pub(crate) fn parse(bytes: impl Into<Box<[u8]>>) -> Option<Block> {
        let bytes = bytes.into();
        checksum(&bytes)?;
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let pages = pages_of(header);
        let count = usize::from(u16::from_le_bytes([header[10], header[11]]));
        let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
        let end = HEADER_BYTES.checked_add(length)?;
        let fits = end.checked_add(2 * count.div_ceil(RESTART_INTERVAL))? <= bytes.len();
        let sound = pages <= MOST_PAGES && bytes.len() == pages * PAGE_BYTES && fits;
        sound.then_some(Block { level: header[8], count, end, bytes })
    }

    /// Its checksum.
    pub(crate) fn checksum(&self) -> u64 {
        self.bytes.first_chunk().map_or(0, |checksum| u64::from_le_bytes(*checksum))
    }

    /// Its level: 0 for a leaf.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The number of pages.
    pub(crate) fn pages(&self) -> u64 {
        (self.bytes.len() / PAGE_BYTES) as u64
    }

    /// The whole block as written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that it needs, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Its entries, from offset 0 of the block; offsets of values refer to this.
    #[inline]
    fn entries(&self) -> Option<&[u8]> {
        self.bytes.get(..self.end)
    }

    /// What follows the header, unparsed.
    pub(crate) fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// Offset of the restart's entry. The offsets are at the end of the block, the first one last.
    #[inline]
    fn restart(&self, index: usize) -> Option<usize> {
        let restart = self.bytes.as_chunks().0.iter().nth_back(index)?;
        Some(HEADER_BYTES + usize::from(u16::from_le_bytes(*restart)))
    }

    /// The key at a restart, and the offset of its value.
    #[inline]
    fn restart_key(&self, index: usize) -> Option<(&[u8], usize)> {
        let entries = self.entries()?;
        let mut at = self.restart(index)?;
        let shared = varint::take(entries, &mut at)?;
        let length = varint::take(entries, &mut at)?;
        let key = varint::take_bytes(entries, &mut at, length)?;
        (shared == 0).then_some((key, at))
    }

    /// The last restart whose key is not above `key`; 0 if all are above.
    #[inline]
    fn restart_before(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count.div_ceil(RESTART_INTERVAL));
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.restart_key(middle)?.0 <= key { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Finds `key`, or else the last key below it: its value, and whether it is `key` itself. `step` reads the value at
    /// an offset and advances the offset; it is called for every entry from a restart to the one found, or the first
    /// above. Outer `None`: damage.
    #[inline]
    pub(crate) fn find<V>(
        &self,
        key: &[u8],
        mut step: impl FnMut(&[u8], &mut usize) -> Option<V>,
    ) -> Option<Option<(V, bool)>> {
        if self.count == 0 {
            return Some(None);
        }
        let restart = self.restart_before(key)?;
        let entries = self.entries()?;
        let mut at = self.restart(restart)?;
        // Number of bytes that `key` shares with the key of the previous entry. Since keys ascend and share as much as
        // possible, this decides most comparisons.
        let mut matched = 0;
        let mut found = None;
        let left = (self.count - restart * RESTART_INTERVAL).min(RESTART_INTERVAL);
        for index in 0..left {
            let shared = usize::try_from(varint::take(entries, &mut at)?).ok()?;
            let length = varint::take(entries, &mut at)?;
            let suffix = varint::take_bytes(entries, &mut at, length)?;
            if index == 0 && shared != 0 {
                return None;
            }
            let ordering = match shared.cmp(&matched) {
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => {
                    let rest = key.get(matched..)?;
                    let common = common_prefix(suffix, rest);
                    matched += common;
                    suffix.get(common).cmp(&rest.get(common))
                }
            };
            match ordering {
                Ordering::Less => found = Some((step(entries, &mut at)?, false)),
                Ordering::Equal => return Some(Some((step(entries, &mut at)?, true))),
                Ordering::Greater => break,
            }
        }
        Some(found)
    }

    /// The page that this block, which is not a leaf, has for `key`; inner `None` if all keys are above it.
    #[inline]
    pub(crate) fn child(&self, key: &[u8]) -> Option<Option<u64>> {
        Some(self.find(key, varint::take)?.map(|(page, _)| page))
    }

    /// Where a cursor for the first key not below `key` begins: the entry at a restart.
    pub(crate) fn start_before(&self, key: &[u8]) -> Option<BlockCursor> {
        if self.count == 0 {
            return Some(self.start());
        }
        let restart = self.restart_before(key)?;
        Some(BlockCursor { at: self.restart(restart)?, index: restart * RESTART_INTERVAL })
    }

    /// A cursor before the first entry.
    pub(crate) fn start(&self) -> BlockCursor {
        BlockCursor { at: HEADER_BYTES, index: 0 }
    }
}

/// A position between two entries of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockCursor {
    at: usize,
    index: usize,
}

impl BlockCursor {
    /// Whether the next entry is a restart.
    pub(crate) fn at_restart(&self) -> bool {
        self.index.is_multiple_of(RESTART_INTERVAL)
    }

    /// Whether there are no more entries.
    pub(crate) fn at_end(&self, block: &Block) -> bool {
        self.index >= block.count
    }

    /// Whether it is past everything that the block claims to have.
    pub(crate) fn used_all(&self, block: &Block) -> bool {
        self.at == block.end
    }

    /// Reads the next entry: its key into `key`, which must contain the previous one, its value with `step`. `None`:
    /// damage.
    #[inline(always)]
    pub(crate) fn next<V>(
        &mut self,
        block: &Block,
        key: &mut Vec<u8>,
        step: impl FnOnce(&[u8], &mut usize) -> Option<V>,
    ) -> Option<V> {
        let entries = block.entries()?;
        let shared = usize::try_from(varint::take(entries, &mut self.at)?).ok()?;
        let length = varint::take(entries, &mut self.at)?;
        let suffix = varint::take_bytes(entries, &mut self.at, length)?;
        if shared > key.len() || (shared != 0 && self.at_restart()) {
            return None;
        }
        key.truncate(shared);
        key.extend_from_slice(suffix);
        let value = step(entries, &mut self.at)?;
        self.index += 1;
        Some(value)
    }
}
