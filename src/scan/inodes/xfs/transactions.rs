//! Transactions, assembled from the operations in records, and the changes that their items make.
//!
//! Items are in the byte order of the machine that wrote them, little-endian; data copied from blocks is as on the
//! device.

use std::collections::HashMap;
use std::io;

use super::changes::{Changes, Fork, Logged, PIECE_BYTES};
use super::inode::{LARGE_TIMES, V3_CORE_BYTES};
use crate::scan::inodes::damaged;
use crate::scan::inodes::fields::{self, LittleEndian};

const OPERATION_BYTES: usize = 12;
/// Flags of operations.
const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
const WAS_CONTINUED: u8 = 0x08;
const UNMOUNT: u8 = 0x20;
/// Types of items.
const BUFFER: u16 = 0x123c;
const INODE: u16 = 0x123b;
/// Flags of buffers: one of inodes, for which only lists of deleted ones are logged; one that was freed.
const OF_INODES: u16 = 0x1;
const FREED: u16 = 0x2;
/// Logged parts of an inode: its data fork in one of three formats.
const DATA: u32 = 0x2;
const EXTENTS: u32 = 0x4;
const ROOT: u32 = 0x8;
/// Size of the first region of an item: of a buffer, without the bitmap; of an inode.
const BUFFER_ITEM_BYTES: usize = 20;
const INODE_ITEM_BYTES: usize = 56;
const SECTOR_BYTES: u64 = 512;

/// Uncommitted transactions, by number.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: HashMap<u32, Vec<Vec<u8>>>,
}

impl Transactions {
    /// Processes the operations in a record, and applies committed transactions.
    pub(super) fn take(&mut self, record: &[u8], operations: u32, changes: &mut Changes) -> io::Result<()> {
        let mut rest = record;
        for _ in 0..operations {
            let (header, behind) = rest.split_first_chunk::<OPERATION_BYTES>().ok_or_else(cut)?;
            // Headers of operations are as on the device.
            let (number, length) = (fields::BigEndian::u32::<0>(header), fields::BigEndian::u32::<4>(header));
            let flags = header[9];
            let (body, behind) = behind.split_at_checked(length as usize).ok_or_else(cut)?;
            rest = behind;
            if flags & START != 0 {
                self.open.insert(number, Vec::new());
            } else if flags & COMMIT != 0 {
                if let Some(regions) = self.open.remove(&number) {
                    commit(&regions, changes)?;
                }
            } else if flags & UNMOUNT == 0 {
                // A transaction that began before the tail does not matter.
                let Some(regions) = self.open.get_mut(&number) else { continue };
                match regions.last_mut().filter(|_| flags & WAS_CONTINUED != 0) {
                    Some(last) => last.extend_from_slice(body),
                    None if length > 0 => regions.push(body.to_vec()),
                    None => {}
                }
            }
        }
        Ok(())
    }
}

fn cut() -> io::Error {
    damaged("a record of the log is truncated")
}

/// Applies the items of a transaction: those that free blocks last. The first region is its header.
fn commit(regions: &[Vec<u8>], changes: &mut Changes) -> io::Result<()> {
    let mut rest = regions.get(1..).unwrap_or_default();
    let mut freed = Vec::new();
    while let Some(format) = rest.first() {
        // It begins with the kind and the number of its regions, itself included.
        let start = format.first_chunk::<4>();
        let (kind, count) = start.map_or((0, 0), |start| (start.u16::<0>(), start.u16::<2>()));
        let (item, behind) = rest.split_at_checked(usize::from(count).max(1)).ok_or_else(cut)?;
        rest = behind;
        match kind {
            BUFFER => apply_buffer(item, &mut freed, changes),
            INODE => apply_inode(item, changes)?,
            _ => {}
        }
    }
    for (place, length) in freed {
        changes.forget(place, length);
    }
    Ok(())
}

/// Changed pieces of a block: a bitmap of them, and one region per run. One that was freed is added to `freed`.
fn apply_buffer(item: &[Vec<u8>], freed: &mut Vec<(u64, u64)>, changes: &mut Changes) {
    let Some((format, regions)) = item.split_first() else { return };
    let Some((format, map)) = format.split_first_chunk::<BUFFER_ITEM_BYTES>() else { return };
    let (flags, place) = (format.u16::<4>(), format.u64::<8>().saturating_mul(SECTOR_BYTES));
    if flags & FREED != 0 {
        return freed.push((place, u64::from(format.u16::<6>()) * SECTOR_BYTES));
    }
    if place >= 1 << 60 || flags & OF_INODES != 0 {
        return;
    }
    let words = map.as_chunks().0.iter().take(format.u32::<16>() as usize).map(|&word| u32::from_le_bytes(word));
    let bits = words.flat_map(|word| (0..u32::BITS).map(move |bit| word >> bit & 1 == 1));
    let (mut regions, mut region, mut before) = (regions.iter(), &[][..], false);
    for (number, is_set) in (0u64..).zip(bits) {
        if is_set && !before {
            region = regions.next().map_or(&[][..], |region| &region[..]);
        }
        before = is_set;
        if let Some((piece, rest)) = region.split_first_chunk::<{ PIECE_BYTES as usize }>().filter(|_| is_set) {
            changes.set_piece(place + number * PIECE_BYTES, *piece);
            region = rest;
        }
    }
}

/// An inode: its format, its core, and the changed parts of its forks.
fn apply_inode(item: &[Vec<u8>], changes: &mut Changes) -> io::Result<()> {
    let [format, core, forks @ ..] = item else { return Err(cut()) };
    let format = format.first_chunk::<INODE_ITEM_BYTES>();
    let format = format.ok_or_else(|| damaged("the log was written by another type of machine"))?;
    let fields = format.u32::<4>();
    let logged = changes.inode_mut(format.u64::<16>());
    set_core(logged, core);
    if let Some(data) = forks.first() {
        let fork = data.clone().into_boxed_slice();
        if fields & ROOT != 0 {
            logged.data = Some(Fork::Root(fork));
        } else if fields & (DATA | EXTENTS) != 0 {
            logged.data = Some(Fork::Bytes(fork));
        }
    }
    Ok(())
}

/// The fields of a core and their lengths; other bytes are as on the device.
const FIELDS: [(usize, usize); 25] = [
    (0, 2),
    (2, 2),
    (4, 1),
    (5, 1),
    (6, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (24, 8),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 2),
    (82, 1),
    (83, 1),
    (84, 4),
    (88, 2),
    (90, 2),
    (92, 4),
    (104, 8),
    (120, 8),
    (128, 4),
];

fn set_core(logged: &mut Logged, core: &[u8]) {
    let mut turned = [0; V3_CORE_BYTES];
    let mut turn = |at: usize, length: usize| {
        if let (Some(target), Some(field)) = (turned.get_mut(at..at + length), core.get(at..at + length)) {
            target.copy_from_slice(field);
            target.reverse();
        }
    };
    FIELDS.iter().for_each(|&(at, length)| turn(at, length));
    let is_v3 = core.get(4) == Some(&3);
    let large = is_v3 && core.first_chunk::<128>().is_some_and(|core| core.u64::<120>() & LARGE_TIMES != 0);
    for at in [32, 40, 48, 144] {
        if large {
            turn(at, 8);
        } else {
            turn(at, 4);
            turn(at + 4, 4);
        }
    }
    if is_v3 {
        // The number of the inode, and the identifier, which has no byte order.
        turn(152, 8);
        turned[160..].copy_from_slice(core.get(160..V3_CORE_BYTES).unwrap_or(&[0; 16]));
    }
    logged.core = turned;
    logged.core_bytes = if is_v3 { V3_CORE_BYTES } else { 96 };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(number: u32, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = [number.to_be_bytes(), (body.len() as u32).to_be_bytes()].concat();
        bytes.extend([0x69, flags, 0, 0]);
        bytes.extend(body);
        bytes
    }

    fn buffer_item(place: u64, flags: u16, map: u32) -> Vec<u8> {
        let mut format = Vec::new();
        let pieces = u16::try_from(map.count_ones().min(1) + 1).unwrap();
        [BUFFER, pieces, flags, 8].iter().for_each(|field| format.extend(field.to_le_bytes()));
        format.extend((place / 512).to_le_bytes());
        format.extend(1u32.to_le_bytes());
        format.extend(map.to_le_bytes());
        format
    }

    #[test]
    fn pieces_are_laid_over_in_the_order_of_commits() {
        let (mut transactions, mut changes) = (Transactions::default(), Changes::default());
        let first = [
            operation(1, START, &[]),
            operation(1, 0, &[0; 16]),
            operation(1, 0, &buffer_item(8192, 0, 0b110)),
            operation(1, 0x4, &[1; 100]),
        ];
        transactions.take(&first.concat(), 4, &mut changes).unwrap();
        let mut bytes = [0; 1024];
        assert!(!changes.lay_over(8192, &mut bytes));
        // The rest of the region is in the next record.
        let second = [operation(1, WAS_CONTINUED | 0x10, &[2; 156]), operation(1, COMMIT, &[])];
        transactions.take(&second.concat(), 2, &mut changes).unwrap();
        assert!(changes.lay_over(8192, &mut bytes));
        assert_eq!((bytes[127], bytes[128], bytes[227], bytes[228], bytes[383], bytes[384]), (0, 1, 1, 2, 2, 0));
        let mut part = [9; 4];
        assert!(changes.lay_over(8192 + 226, &mut part));
        assert_eq!(part, [1, 1, 2, 2]);
        let third = [
            operation(2, START, &[]),
            operation(2, 0, &[0; 16]),
            operation(2, 0, &buffer_item(8192, FREED, 0)[..]),
            operation(2, COMMIT, &[]),
        ];
        let mut third = third.concat();
        // An item of one region.
        third[OPERATION_BYTES + OPERATION_BYTES + 16 + OPERATION_BYTES + 2] = 1;
        transactions.take(&third, 4, &mut changes).unwrap();
        assert!(changes.is_clean());
        assert!(transactions.take(&third, 9, &mut changes).is_err());
    }
}
