//! The changes of a log, in memory: pieces of blocks, and inodes, laid over what is read from the device.

use std::collections::{BTreeMap, HashMap};

use super::inode::V3_CORE_BYTES;
use super::u16_at;

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
            let (from, to) = (start.max(place), (start + PIECE_BYTES).min(end));
            let piece = &piece[(from - start) as usize..(to - start) as usize];
            bytes[(from - place) as usize..(to - place) as usize].copy_from_slice(piece);
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
        raw[..self.core_bytes].copy_from_slice(&self.core[..self.core_bytes]);
        let start = super::inode::core_bytes(raw);
        let end = start + super::inode::data_fork(raw).1.len();
        let fork = &mut raw[start..end];
        match &self.data {
            Some(Fork::Bytes(bytes)) => {
                let length = bytes.len().min(fork.len());
                fork[..length].copy_from_slice(&bytes[..length]);
            }
            Some(Fork::Root(root)) => set_root(is_v5, root, fork),
            None => {}
        }
    }
}

/// In memory, the root of a tree has the header of a block, and space for more entries.
fn set_root(is_v5: bool, root: &[u8], fork: &mut [u8]) {
    let Some(entries) = root.get(if is_v5 { 72.. } else { 24.. }).filter(|_| fork.len() > 4) else { return };
    let (room, most) = (entries.len() / 16, (fork.len() - 4) / 16);
    let count = usize::from(u16_at(root, 6)).min(room).min(most);
    fork.fill(0);
    fork[..2].copy_from_slice(&root[4..6]);
    fork[2..4].copy_from_slice(&(count as u16).to_be_bytes());
    for (from, to) in [(0, 4), (8 * room, 4 + 8 * most)] {
        fork[to..to + 8 * count].copy_from_slice(&entries[from..from + 8 * count]);
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
        assert_eq!((u16_at(&fork, 0), u16_at(&fork, 2), fork[4 + 15], fork[4 + 24 + 7]), (1, 2, 7, 9));
    }
}
