//! A damaged directory by its index, as Linux lists it: in the order of hashes, up to the first damaged block.
//!
//! The index is a tree of at most three levels; its root is the first block of the directory. Its entries have the
//! lowest hash of a block and its number. An odd hash says that the names of one hash continue from the block before:
//! such blocks are read together. What was read before damage is listed too, except by the first such step, which then
//! lists nothing.

use std::io;

use super::listing::{BLOCK_WRONG, Lister};
use super::{checksum, directory};
use crate::scan::inodes::fields::LittleEndian;
use crate::scan::inodes::medium::Medium;
use crate::scan::inodes::{Listed, damaged};

/// Versions of the hash: three, and the one of encrypted names that ignore case.
const HASH_VERSIONS: [u8; 4] = [0, 1, 2, 6];
/// Levels of nodes, with `large_dir` and without.
const MOST_LEVELS_LARGE: u8 = 3;
const MOST_LEVELS: u8 = 2;
const ENTRY_BYTES: usize = 8;
/// The upper bits of a block number have no meaning yet.
const BLOCK_BITS: u32 = 0x0fff_ffff;

/// Why a listing ended early.
pub(super) enum Ended {
    /// Something is damaged.
    Damaged(io::Error),
    /// It has no index that Linux would use.
    NoIndex,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Damaged(error)
    }
}

/// Reports the names of a directory whose blocks have checksums.
pub(super) fn list<M: Medium>(lister: &Lister<'_, M>, listed: &mut dyn FnMut(Listed<'_>)) -> Result<(), Ended> {
    let root = node(lister, 0)?;
    let header = root.first_chunk::<32>().ok_or(Ended::NoIndex)?;
    let (version, flags, levels) = (header[28], header[31], header[30]);
    let most_levels = if lister.has_large_directories() { MOST_LEVELS_LARGE } else { MOST_LEVELS };
    let entries = entries(&root).filter(|_| HASH_VERSIONS.contains(&version) && flags & 1 == 0 && levels < most_levels);
    let mut names = Names { lister, listed, group: Vec::new(), is_first: true, left: lister.blocks() };
    let ended = names.below(entries.ok_or(Ended::NoIndex)?, levels, 0);
    if ended.is_ok() || !names.is_first {
        names.report();
    }
    ended
}

/// Reads an index block.
fn node<M: Medium>(lister: &Lister<'_, M>, logical: u64) -> io::Result<Vec<u8>> {
    let block = lister.block(logical)?;
    if logical != 0 && !directory::is_index_node(&block) {
        return Err(damaged("its index refers to a block that is no part of it"));
    }
    if !checksum::is_stored(checksum::index(lister.seed(), &block), &block) {
        return Err(damaged("the checksum of a block of its index is wrong"));
    }
    Ok(block)
}

/// The entries of an index block.
fn entries(block: &[u8]) -> Option<&[[u8; ENTRY_BYTES]]> {
    let (start, limit, count) = checksum::index_entries(block)?;
    if count == 0 || count > limit {
        return None;
    }
    block.get(start..)?.as_chunks().0.get(..count)
}

/// Reports names in the order of their hashes.
struct Names<'n, 'f, M> {
    lister: &'n Lister<'n, M>,
    listed: &'n mut (dyn FnMut(Listed<'_>) + 'f),
    /// Blocks that are read together.
    group: Vec<Vec<u8>>,
    /// Whether nothing was reported yet.
    is_first: bool,
    /// Blocks that may still be read: an index refers to each once.
    left: u64,
}

impl<M: Medium> Names<'_, '_, M> {
    /// Follows the entries of an index block, `levels` above the last level of the index. `hash`: the lowest one.
    fn below(&mut self, entries: &[[u8; ENTRY_BYTES]], levels: u8, hash: u32) -> Result<(), Ended> {
        for (number, entry) in entries.iter().enumerate() {
            self.left = self.left.checked_sub(1).ok_or_else(|| damaged("its index refers to a block twice"))?;
            // The first entry has the limit and the count in place of a hash.
            let hash = if number == 0 { hash } else { entry.u32::<0>() };
            let logical = (entry.u32::<4>() & BLOCK_BITS).into();
            if levels > 0 {
                let block = node(self.lister, logical)?;
                let entries = self::entries(&block).ok_or_else(|| damaged("a block of its index is damaged"))?;
                self.below(entries, levels - 1, hash)?;
                continue;
            }
            if hash & 1 == 0 && !self.group.is_empty() {
                self.report();
                self.is_first = false;
            }
            let block = self.lister.block(logical)?;
            // Linux does not verify what could be a node.
            if !directory::is_index_node(&block)
                && !checksum::is_stored(checksum::names(self.lister.seed(), &block), &block)
            {
                return Err(Ended::Damaged(damaged(BLOCK_WRONG)));
            }
            self.group.push(block);
        }
        Ok(())
    }

    fn report(&mut self) {
        for block in std::mem::take(&mut self.group) {
            self.lister.report_names(&block, self.listed);
        }
    }
}
