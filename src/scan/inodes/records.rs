//! Records of inodes until their names are read: twelve bytes each, for millions of inodes.
//!
//! Eight of them have the kind, whether a name was found, and the size and allocation of a file up to 16 GiB; four have
//! the day of its last change and the number of its owner among those of its part. Larger files, those with several
//! names, and damaged inodes are stored separately. The record of a directory has its position among the directories.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use allocator_api2::vec::Vec as SpilledVec;
use hashbrown::HashMap;

use super::{Damage, Slot};
use crate::scan::{Kind, Stat};
use crate::sys::spill::Spill;

const KIND_BITS: u64 = 0b111;
const FREE: u64 = 0;
const FILE: u64 = 1;
const DIRECTORY: u64 = 2;
const OTHER: u64 = 3;
/// A file that is stored in `aside`.
const ASIDE: u64 = 4;
/// An inode in `damaged`.
const DAMAGED: u64 = 5;
/// A name was found.
const MET: u64 = 1 << 3;
const SIZE_SHIFT: u32 = 4;
const SIZE_BITS: u32 = 35;
const SECTORS_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
const SECTORS_BITS: u32 = u64::BITS - SECTORS_SHIFT;
const SECTOR_BYTES: u64 = 512;
/// Owners that a part numbers; the files of further ones are stored separately.
const MOST_OWNERS: usize = 64;

/// A file whose attributes need more than eight bytes.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) link_count: u32,
    uid: u32,
    day: u16,
    names: AtomicU32,
}

/// The records of a part while it is being read.
pub(super) struct PartRecords {
    packed: SpilledVec<AtomicU64, Spill>,
    /// Of each file that is not in `aside`: its day, and above it the number of its owner.
    traits: SpilledVec<u32, Spill>,
    owners: Vec<u32>,
    aside: HashMap<u32, Aside>,
    damaged: HashMap<u32, Damage>,
}

/// The records of all inodes, by part.
pub(super) struct Records {
    parts: Vec<OnceLock<PartRecords>>,
}

/// What is known of an inode that a name leads to.
pub(super) enum Known {
    Free,
    File {
        size_bytes: u64,
        allocated_bytes: u64,
        link_count: u32,
        uid: u32,
        /// Day of the last change of its content, since 1970.
        day: u16,
    },
    /// The position among the directories.
    Directory(u32),
    Other,
    /// It is in use, and unreadable.
    Damaged,
}

#[inline]
fn known(part: &PartRecords, slot: Slot, record: u64) -> Known {
    match record & KIND_BITS {
        FILE => {
            let traits = part.traits.get(slot.offset).copied().unwrap_or_default();
            Known::File {
                size_bytes: record >> SIZE_SHIFT & ((1 << SIZE_BITS) - 1),
                allocated_bytes: (record >> SECTORS_SHIFT) * SECTOR_BYTES,
                link_count: 1,
                uid: part.owners.get((traits >> u16::BITS) as usize).copied().unwrap_or_default(),
                day: traits as u16,
            }
        }
        DIRECTORY => Known::Directory((record >> SIZE_SHIFT) as u32),
        OTHER => Known::Other,
        DAMAGED => Known::Damaged,
        // This combination, which no file in `aside` has, marks an inode with several names that is not a file.
        ASIDE if record & MET != 0 => Known::Other,
        ASIDE => part.aside.get(&(slot.offset as u32)).map_or(Known::Free, |aside| Known::File {
            size_bytes: aside.size_bytes,
            allocated_bytes: aside.allocated_bytes,
            link_count: aside.link_count,
            uid: aside.uid,
            day: aside.day,
        }),
        _ => Known::Free,
    }
}

impl PartRecords {
    pub(super) fn new(slots: usize, spill: &Spill) -> PartRecords {
        let mut packed = SpilledVec::with_capacity_in(slots, spill.clone());
        packed.resize_with(slots, || AtomicU64::new(FREE));
        let mut traits = SpilledVec::with_capacity_in(slots, spill.clone());
        traits.resize(slots, 0);
        PartRecords { packed, traits, owners: Vec::new(), aside: HashMap::new(), damaged: HashMap::new() }
    }

    /// Records an inode that is unreadable.
    pub(super) fn put_damaged(&mut self, offset: usize, damage: Damage) {
        if let Some(place) = self.packed.get_mut(offset) {
            *place.get_mut() = DAMAGED;
            self.damaged.insert(offset as u32, damage);
        }
    }

    /// Records an inode.
    pub(super) fn put(&mut self, offset: usize, stat: &Stat) {
        let record = match stat.kind {
            Kind::Directory => DIRECTORY,
            Kind::File => self.file(offset, stat),
            _ if stat.link_count > 1 => self.set_aside(offset, stat) | MET,
            _ => OTHER,
        };
        if let Some(place) = self.packed.get_mut(offset) {
            *place.get_mut() = record;
        }
    }

    fn file(&mut self, offset: usize, stat: &Stat) -> u64 {
        let sectors = stat.allocated_bytes / SECTOR_BYTES;
        let whole = stat.allocated_bytes.is_multiple_of(SECTOR_BYTES);
        if !whole || stat.link_count != 1 || stat.size_bytes >> SIZE_BITS != 0 || sectors >> SECTORS_BITS != 0 {
            return self.set_aside(offset, stat);
        }
        let owner = self.owner(stat.uid).and_then(|owner| u16::try_from(owner).ok());
        let (Some(owner), Some(traits)) = (owner, self.traits.get_mut(offset)) else {
            return self.set_aside(offset, stat);
        };
        *traits = u32::from(owner) << u16::BITS | u32::from(stat.modified_day());
        FILE | stat.size_bytes << SIZE_SHIFT | sectors << SECTORS_SHIFT
    }

    /// The number of an owner among those of this part, unless there are too many to look through.
    fn owner(&mut self, uid: u32) -> Option<usize> {
        let known = self.owners.iter().position(|&known| known == uid);
        known.or_else(|| {
            (self.owners.len() < MOST_OWNERS).then(|| {
                self.owners.push(uid);
                self.owners.len() - 1
            })
        })
    }

    fn set_aside(&mut self, offset: usize, stat: &Stat) -> u64 {
        let Stat { size_bytes, allocated_bytes, link_count, uid, .. } = *stat;
        let (day, names) = (stat.modified_day(), AtomicU32::new(0));
        self.aside.insert(offset as u32, Aside { size_bytes, allocated_bytes, link_count, uid, day, names });
        ASIDE
    }
}

impl Records {
    pub(super) fn new(parts: usize) -> Records {
        Records { parts: (0..parts).map(|_| OnceLock::new()).collect() }
    }

    /// Stores the records of a part that was read.
    pub(super) fn set(&self, part: usize, mut records: PartRecords) {
        let used = records.packed.iter_mut().rposition(|place| *place.get_mut() != FREE).map_or(0, |last| last + 1);
        records.packed.truncate(used);
        records.packed.shrink_to_fit();
        records.traits.truncate(used);
        records.traits.shrink_to_fit();
        if let Some(place) = self.parts.get(part) {
            // Every part is read once.
            let _ = place.set(records);
        }
    }

    fn place(&self, slot: Slot) -> Option<(&PartRecords, &AtomicU64)> {
        let part = self.parts.get(slot.part)?.get()?;
        Some((part, part.packed.get(slot.offset)?))
    }

    /// Why an inode is unreadable.
    pub(super) fn damage(&self, slot: Slot) -> Option<&Damage> {
        self.place(slot)?.0.damaged.get(&(slot.offset as u32))
    }

    /// Sets the position of a directory.
    pub(super) fn set_position(&self, slot: Slot, position: u32) {
        if let Some((_, place)) = self.place(slot) {
            place.store(DIRECTORY | u64::from(position) << SIZE_SHIFT, Relaxed);
        }
    }

    /// Returns what is known of an inode.
    pub(super) fn get(&self, slot: Slot) -> Known {
        self.place(slot).map_or(Known::Free, |(part, place)| known(part, slot, place.load(Relaxed)))
    }

    /// Returns what is known of an inode, and marks it as having a name.
    #[inline]
    pub(super) fn meet(&self, slot: Slot) -> Known {
        let Some((part, place)) = self.place(slot) else { return Known::Free };
        let record = place.load(Relaxed);
        match record & KIND_BITS {
            ASIDE => {
                if let Some(aside) = part.aside.get(&(slot.offset as u32)) {
                    aside.names.fetch_add(1, Relaxed);
                }
            }
            // An inode with one name is found once, by one thread.
            FILE | OTHER => place.store(record | MET, Relaxed),
            _ => {}
        }
        known(part, slot, record)
    }

    /// Number of names found for the inode; 0 for a directory.
    pub(super) fn names(&self, slot: Slot) -> u32 {
        let Some((part, place)) = self.place(slot) else { return 0 };
        let record = place.load(Relaxed);
        match record & KIND_BITS {
            ASIDE => part.aside.get(&(slot.offset as u32)).map_or(0, |aside| aside.names.load(Relaxed)),
            FILE | OTHER if record & MET != 0 => 1,
            _ => 0,
        }
    }

    /// Number of files and other inodes whose names found differ from their link count.
    pub(super) fn miscounted(&self) -> u64 {
        let parts = self.parts.iter().filter_map(OnceLock::get);
        let of_part = |part: &PartRecords| {
            part.packed.allocator().relieve();
            let single = part.packed.iter().map(|place| place.load(Relaxed));
            let unmet = single.filter(|record| matches!(record & KIND_BITS, FILE | OTHER) && record & MET == 0).count();
            let aside = part.aside.values().filter(|aside| aside.names.load(Relaxed) != aside.link_count).count();
            (unmet + aside) as u64
        };
        parts.map(of_part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Timestamp;

    fn stat(kind: Kind, size_bytes: u64, allocated_bytes: u64, link_count: u32) -> Stat {
        let time = Timestamp { seconds: 0, nanoseconds: 0 };
        let (uid, gid, mode, device, inode) = (0, 0, 0, 0, 0);
        let (mtime, ctime, atime) = (time, time, time);
        Stat { kind, size_bytes, allocated_bytes, link_count, uid, gid, mode, device, inode, mtime, ctime, atime }
    }

    #[test]
    fn files_of_every_size_come_back() {
        let sizes = [0, 1, 4096, (1 << 35) - 1, 1 << 35, u64::from(u32::MAX), 1 << 62];
        let allocated = [0, 512, 8192, ((1 << 25) - 1) * 512, (1 << 25) * 512];
        let cases: Vec<(u64, u64, u32)> = sizes
            .iter()
            .flat_map(|&size| allocated.iter().flat_map(move |&a| [1, 2, 70_000].map(|links| (size, a, links))))
            .collect();
        let mut part = PartRecords::new(cases.len(), &Spill::default());
        for (offset, &(size, allocated, links)) in cases.iter().enumerate() {
            part.put(offset, &stat(Kind::File, size, allocated, links));
        }
        let records = Records::new(2);
        records.set(1, part);
        for (offset, &(size, allocated, links)) in cases.iter().enumerate() {
            let slot = Slot { part: 1, offset };
            let Known::File { size_bytes, allocated_bytes, link_count, .. } = records.get(slot) else { panic!() };
            assert_eq!((size_bytes, allocated_bytes, link_count), (size, allocated, links));
            assert_eq!(records.names(slot), 0);
            records.meet(slot);
            assert_eq!(records.names(slot), 1);
        }
        assert_eq!(records.miscounted(), 2 * cases.len() as u64 / 3);
        assert!(matches!(records.get(Slot { part: 0, offset: 0 }), Known::Free));
        assert!(matches!(records.get(Slot { part: 2, offset: 0 }), Known::Free));
        assert!(matches!(records.get(Slot { part: 1, offset: cases.len() }), Known::Free));
    }

    #[test]
    fn what_is_damaged_keeps_its_reason() {
        let mut part = PartRecords::new(2, &Spill::default());
        let (operation, error) = ("read the inode", crate::scan::inodes::damaged("its checksum is wrong"));
        part.put_damaged(1, Damage { operation, inode: Some(2), error });
        let records = Records::new(1);
        records.set(0, part);
        let slot = |offset| Slot { part: 0, offset };
        assert!(matches!(records.meet(slot(1)), Known::Damaged));
        assert!(records.damage(slot(0)).is_none());
        assert_eq!(records.damage(slot(1)).map(|damage| damage.inode), Some(Some(2)));
        assert_eq!((records.names(slot(1)), records.miscounted()), (0, 0));
    }

    #[test]
    fn others_may_have_several_names_too() {
        let mut part = PartRecords::new(3, &Spill::default());
        part.put(0, &stat(Kind::Fifo, 0, 0, 2));
        part.put(1, &stat(Kind::Symlink { absolute: true }, 3, 0, 1));
        part.put(2, &stat(Kind::Directory, 4096, 4096, 7));
        let records = Records::new(1);
        records.set(0, part);
        let slot = |offset| Slot { part: 0, offset };
        assert!(matches!(records.get(slot(0)), Known::Other));
        assert!(matches!(records.get(slot(1)), Known::Other));
        records.set_position(slot(2), 1234);
        assert!(matches!(records.get(slot(2)), Known::Directory(1234)));
        assert_eq!(records.miscounted(), 2);
        for offset in [0, 0, 1] {
            records.meet(slot(offset));
        }
        assert_eq!((records.names(slot(0)), records.names(slot(1)), records.miscounted()), (2, 1, 0));
    }
}
