//! Reads tree blocks by logical address, from whichever copy is intact.

use std::io;

use super::CHUNK_ITEM;
use super::chunks::{Chunk, Chunks};
use super::node::{HEADER_BYTES, Key, LEVEL, MOST_LEVELS, Pointer, fits, items, pointers};
use super::superblock::{Superblock, is_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::{LittleEndian, Record as _};
use crate::scan::inodes::medium::Medium;

/// Largest number of copies of a block.
const MOST_COPIES: usize = 4;
/// Adjacent blocks are read together up to this size.
const RUN_BYTES: usize = 1 << 20;

/// A leaf on a device: the device's number, the offset there, its index in the request, and the pointer to it.
type Placed = (u64, u64, usize, Pointer);

/// The devices of a file system, and the mapping of addresses to them.
#[derive(Debug)]
pub(super) struct Volume<M> {
    /// Devices with the numbers that the file system assigns.
    devices: Vec<(u64, M)>,
    pub(super) superblock: Superblock,
    chunks: Chunks,
    checked: bool,
}

impl<M: Medium> Volume<M> {
    /// Reads the superblocks and the tree of chunks; returns warnings about them.
    pub(super) fn open(media: Vec<M>, checked: bool) -> Result<(Volume<M>, Vec<String>)> {
        let (mut devices, mut newest, mut warnings) = (Vec::new(), None::<Superblock>, Vec::new());
        for medium in media {
            let (found, copied) = Superblock::read(&medium, checked)?;
            if newest.as_ref().is_some_and(|newest| newest.identifier != found.identifier) {
                return Err(refuse("its devices belong to different file systems"));
            }
            if copied {
                warnings.push("the first superblock is damaged; a copy was read".to_owned());
            }
            if medium.length_bytes() < found.device_bytes {
                let missing = found.device_bytes - medium.length_bytes();
                let cause = format!("it is {missing} bytes shorter than its superblock states");
                return Err(refuse(cause).advise("check whether the image is complete"));
            }
            devices.push((found.device, medium));
            if newest.as_ref().is_none_or(|newest| newest.generation < found.generation) {
                newest = Some(found);
            }
        }
        let superblock = newest.ok_or_else(|| refuse("it has no device"))?;
        if superblock.devices != devices.len() as u64 {
            let cause = format!("it has {} devices, but only {} could be read", superblock.devices, devices.len());
            return Err(refuse(cause).advise("mount it, so that all of them are found"));
        }
        let chunks = Chunks::new(superblock.chunks.clone());
        let mut volume = Volume { devices, superblock, chunks, checked };
        let mut chunks = volume.superblock.chunks.clone();
        let (root, level) = (volume.superblock.chunk_root, volume.superblock.chunk_root_level);
        volume
            .each_item(root, level, Key::default(), Key::LAST, &mut |key, data| {
                if key.kind == CHUNK_ITEM {
                    chunks.extend(Chunk::parse(data).map(|(chunk, _)| (key.offset, chunk)));
                }
            })
            .map_err(|error| refuse(format!("its chunk tree cannot be read: {error}")))?;
        volume.chunks = Chunks::new(chunks);
        Ok((volume, warnings))
    }

    /// The current superblock, if more transactions were committed meanwhile.
    pub(super) fn superblock_now(&self) -> Option<Superblock> {
        Superblock::read(&self.devices.first()?.1, self.checked).ok().map(|(found, _)| found)
    }

    pub(super) fn node_bytes(&self) -> usize {
        self.superblock.node_bytes as usize
    }

    /// Upper bound of the number of blocks.
    pub(super) fn most_blocks(&self) -> u64 {
        let bytes: u64 = self.devices.iter().map(|(_, medium)| medium.length_bytes()).sum();
        bytes / u64::from(self.superblock.node_bytes)
    }

    /// Whether a block is the expected one.
    fn is_it(&self, block: &[u8], pointer: Pointer, at_level: u8) -> bool {
        let is_of_pointer = |header: &[u8; HEADER_BYTES]| {
            *header.field::<0x20, 16>() == self.superblock.metadata_identifier
                && header.u64::<0x30>() == pointer.block
                && header.u64::<0x50>() == pointer.generation
                && header[LEVEL] == at_level
        };
        (!self.checked || is_whole(self.superblock.checksum, block))
            && block.first_chunk().is_some_and(is_of_pointer)
            && fits(block, pointer.first)
    }

    fn device(&self, number: u64) -> Option<&M> {
        self.devices.iter().find(|(device, _)| *device == number).map(|(_, medium)| medium)
    }

    /// Reads a block into `bytes` from the first intact copy.
    pub(super) fn read(&self, pointer: Pointer, at_level: u8, bytes: &mut [u8]) -> io::Result<()> {
        let mut last = damaged("a tree block is on no device");
        for copy in 0..MOST_COPIES {
            let Some((number, offset)) = self.chunks.place(pointer.block, copy) else { break };
            let Some(medium) = self.device(number) else { continue };
            match medium.read_at(bytes, offset) {
                Ok(()) if self.is_it(bytes, pointer, at_level) => return Ok(()),
                Ok(()) => last = damaged("a tree block is damaged or was replaced"),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reads leaves into `bytes`, one after another, in device order; `failed` receives those that cannot be read.
    pub(super) fn read_leaves(
        &self,
        leaves: impl ExactSizeIterator<Item = Pointer>,
        bytes: &mut Vec<u8>,
        run: &mut Vec<u8>,
        mut failed: impl FnMut(usize, io::Error, &mut [u8]),
    ) {
        let node_bytes = self.node_bytes();
        bytes.resize(leaves.len() * node_bytes, 0);
        self.each_run(leaves, |device, start, together| {
            run.resize(together.len() * node_bytes, 0);
            let whole = self.device(device).is_some_and(|medium| medium.read_since_opened(run, start).is_ok());
            for (&(_, _, at, leaf), found) in together.iter().zip(run.chunks_exact(node_bytes)) {
                let Some(target) = bytes.chunks_exact_mut(node_bytes).nth(at) else { continue };
                if whole && self.is_it(found, leaf, 0) {
                    target.copy_from_slice(found);
                } else if let Err(error) = self.read(leaf, 0, target) {
                    failed(at, error, target);
                }
            }
        });
    }

    /// Announces that leaves will be read soon.
    pub(super) fn will_need(&self, leaves: impl ExactSizeIterator<Item = Pointer>) {
        self.each_run(leaves, |device, start, together| {
            if let Some(medium) = self.device(device) {
                medium.will_need(start, (together.len() * self.node_bytes()) as u64);
            }
        });
    }

    /// Visits leaves in adjacent runs on a device: its number, the offset there, and each leaf with its index.
    fn each_run(&self, leaves: impl ExactSizeIterator<Item = Pointer>, mut run: impl FnMut(u64, u64, &[Placed])) {
        let node_bytes = self.node_bytes();
        let mut places: Vec<Placed> = Vec::with_capacity(leaves.len());
        for (at, leaf) in leaves.enumerate() {
            let (device, offset) = self.chunks.place(leaf.block, 0).unwrap_or((u64::MAX, u64::MAX));
            places.push((device, offset, at, leaf));
        }
        places.sort_unstable_by_key(|&(device, offset, at, _)| (device, offset, at));
        let follows =
            |before: &Placed, next: &Placed| before.0 == next.0 && next.1.wrapping_sub(before.1) == node_bytes as u64;
        let runs = places.chunk_by(follows).flat_map(|adjacent| adjacent.chunks(RUN_BYTES / node_bytes));
        for together in runs {
            if let [(device, start, ..), ..] = *together {
                run(device, start, together);
            }
        }
    }

    /// Reports the leaves of a tree that may have keys from `from` to `to`, in order. Unreadable ones are reported as
    /// such.
    pub(super) fn each_leaf(
        &self,
        root: Pointer,
        root_level: u8,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(std::result::Result<Pointer, io::Error>) -> bool,
    ) {
        if root_level > MOST_LEVELS {
            visit(Err(damaged("a tree has too many levels")));
            return;
        }
        if root_level == 0 {
            visit(Ok(root));
            return;
        }
        self.descend(root, root_level, (from, to), Key::default(), Key::LAST, visit);
    }

    /// Returns `false` to stop.
    fn descend(
        &self,
        node: Pointer,
        level: u8,
        range: (Key, Key),
        low: Key,
        high: Key,
        visit: &mut dyn FnMut(std::result::Result<Pointer, io::Error>) -> bool,
    ) -> bool {
        let mut block = vec![0; self.node_bytes()];
        if let Err(error) = self.read(node, level, &mut block) {
            return visit(Err(error));
        }
        // Keys ascend and every child begins with the key of its pointer, so no block is visited twice.
        let mut before = None;
        let mut children = pointers(&block).peekable();
        while let Some(child) = children.next() {
            let first = child.first.unwrap_or_default();
            let next = children.peek().and_then(|next| next.first).unwrap_or(high);
            if first < low || first > high || before.is_some_and(|before| before >= first) {
                return visit(Err(damaged("the keys of a tree are out of order")));
            }
            before = Some(first);
            if next <= range.0 && next != high || first > range.1 {
                continue;
            }
            let go_on =
                if level == 1 { visit(Ok(child)) } else { self.descend(child, level - 1, range, first, next, visit) };
            if !go_on {
                return false;
            }
        }
        true
    }

    /// Calls `visit` with each item of a tree whose key is in `from..=to`, in order.
    ///
    /// # Errors
    /// If a block of it cannot be read, or there are more leaves than the devices have blocks; the items before were
    /// passed.
    pub(super) fn each_item(
        &self,
        root: Pointer,
        root_level: u8,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) -> io::Result<()> {
        let mut block = vec![0; self.node_bytes()];
        let (mut result, mut leaves_left) = (Ok(()), self.most_blocks().max(1));
        self.each_leaf(root, root_level, from, to, &mut |leaf| {
            let Some(left) = leaves_left.checked_sub(1) else {
                result = Err(io::Error::new(io::ErrorKind::InvalidData, "it has more leaves than there are blocks"));
                return false;
            };
            leaves_left = left;
            let read = leaf.and_then(|leaf| self.read(leaf, 0, &mut block));
            if let Err(error) = read {
                result = Err(error);
                return false;
            }
            items(&block).filter(|(key, _)| (from..=to).contains(key)).for_each(|(key, data)| visit(key, data));
            true
        });
        result
    }
}

pub(super) fn refuse(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "read the file system", cause).advise("use --method walk")
}
