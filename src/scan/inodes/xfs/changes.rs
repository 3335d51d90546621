//! The changes of a log, in memory: pieces of blocks, and inodes, laid over what is read from the device.

use std::collections::{BTreeMap, HashMap};

use super::inode::V3_CORE_BYTES;
use super::tree::node;
use crate::scan::inodes::fields::BigEndian;

/// Length of the pieces in which blocks are logged.
pub(super) const PIECE_BYTES: u64 = 128;

/// Committed changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Pieces of blocks, by device offset.
    pieces: BTreeMap<u64, [u8; PIECE_BYTES as usize]>,
    inodes: HashMap<u64, Logged>,
}

/// An inode in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// In the on-disk format; for version 2, only the first 96 bytes.
    pub(super) core: [u8; V3_CORE_BYTES],
    pub(super) core_bytes: usize,
    pub(super) data: Option<Fork>,
}

/// The data fork of an inode in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fork {
    /// In the on-disk format.
    Bytes(Box<[u8]>),
    /// The root of a tree in the in-memory format: with a block header.
    Root(Box<[u8]>),
}

impl Changes {
    /// Whether there are none.
    pub(super) fn is_clean(&self) -> bool {
        self.inodes.is_empty() && self.pieces.is_empty()
    }

    /// The logged state of an inode.
    pub(super) fn inode(&self, inode: u64) -> Option<&Logged> {
        self.inodes.get(&inode)
    }

    pub(super) fn inode_mut(&mut self, inode: u64) -> &mut Logged {
        self.inodes.entry(inode).or_insert_with(|| Logged { core: [0; V3_CORE_BYTES], core_bytes: 0, data: None })
    }

    pub(super) fn set_piece(&mut self, place: u64, piece: [u8; PIECE_BYTES as usize]) {
        self.pieces.insert(place, piece);
    }

    /// Forgets the changes of blocks that were freed.
    pub(super) fn forget(&mut self, place: u64, length: u64) {
        while let Some((&piece, _)) = self.pieces.range(place..place.saturating_add(length)).next() {
            self.pieces.remove(&piece);
        }
    }

    /// Applies the changes to bytes read from `place`; returns whether there were any.
    pub(super) fn lay_over(&self, place: u64, bytes: &mut [u8]) -> bool {
        let mut any = false;
        let end = place + bytes.len() as u64;
        for (&start, piece) in self.pieces.range(place.saturating_sub(PIECE_BYTES - 1)..end) {
            let (before, within) = (start.saturating_sub(place), place.saturating_sub(start));
            overwrite(bytes.iter_mut().skip(before as usize), piece.iter().skip(within as usize));
            any = true;
        }
        any
    }

    /// Whether these are the same inodes as `before`.
    pub(super) fn has_same_inodes(&self, before: &Changes) -> bool {
        self.inodes.iter().all(|(number, inode)| before.inodes.get(number) == Some(inode))
    }
}

impl Logged {
    /// Replaces the logged parts in `raw`, the inode on the device.
    pub(super) fn merge(&self, is_v5: bool, raw: &mut [u8]) {
        overwrite(raw.iter_mut(), self.core.iter().take(self.core_bytes));
        let start = super::inode::core_bytes(raw);
        let end = start + super::inode::data_fork(raw).1.len();
        match (&self.data, raw.get_mut(start..end)) {
            (Some(Fork::Bytes(bytes)), Some(fork)) => overwrite(fork.iter_mut(), bytes.iter()),
            (Some(Fork::Root(root)), Some(fork)) => set_root(is_v5, root, fork),
            _ => {}
        }
    }
}

/// Replaces as much as both have.
fn overwrite<'a, T: Copy + 'a>(target: impl Iterator<Item = &'a mut T>, source: impl Iterator<Item = &'a T>) {
    target.zip(source).for_each(|(target, source)| *target = *source);
}

/// In memory, the root of a tree has the header of a block, and space for more entries.
fn set_root(is_v5: bool, root: &[u8], fork: &mut [u8]) {
    let Some((header, entries)) = node(root, &[], if is_v5 { 72 } else { 24 }) else { return };
    fork.fill(0);
    let Some((start, target)) = fork.split_first_chunk_mut::<4>() else { return };
    let (room, most) = (entries.len() / 16, target.len() / 16);
    let count = usize::from(header.u16::<6>()).min(room).min(most);
    let [count_high, count_low] = (count as u16).to_be_bytes();
    *start = [header[4], header[5], count_high, count_low];
    let (entries, target) = (entries.as_chunks::<8>().0, target.as_chunks_mut::<8>().0);
    // Keys, and the children after all keys.
    for (room, most) in [(0, 0), (room, most)] {
        overwrite(target.iter_mut().skip(most).take(count), entries.iter().skip(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_trees_get_less_room() {
        let mut root = vec![0; 72 + 16 * 5];
        root[5] = 1;
        root[7] = 2;
        root[72 + 15] = 7;
        root[72 + 40 + 7] = 9;
        let mut fork = vec![0xff; 4 + 16 * 3];
        set_root(true, &root, &mut fork);
        assert_eq!((&fork[..4], fork[4 + 15], fork[4 + 24 + 7]), (&[0, 1, 0, 2][..], 7, 9));
    }
}
