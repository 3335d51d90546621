//! What the index knows about a key: its record, the record's location, and what a listing shows.

use std::ops::Range;

use super::ids::{LogOffset, ObjectNumber, SegmentNumber};

/// The kind of a record (docs/FORMAT.md, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A file whose content is in the record.
    File = 1,
    /// A file whose content is striped; the record is its descriptor.
    Large = 2,
    /// A directory.
    Directory = 3,
    /// A symbolic link.
    Symlink = 4,
    /// A fifo, a socket or a device.
    Special = 5,
    /// A name of an object that has several.
    Link = 6,
    /// Tombstone of a key.
    Removal = 7,
    /// Tombstone of a directory and everything below it.
    TreeRemoval = 8,
    /// The end of a batch.
    Commit = 9,
    /// What was superseded and may be gone.
    Release = 10,
    /// A snapshot: a state preserved by name, or its removal.
    Snapshot = 11,
}

impl Kind {
    /// The kind that a byte in a record denotes.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        const KINDS: [Kind; 11] = [
            Kind::File,
            Kind::Large,
            Kind::Directory,
            Kind::Symlink,
            Kind::Special,
            Kind::Link,
            Kind::Removal,
            Kind::TreeRemoval,
            Kind::Commit,
            Kind::Release,
            Kind::Snapshot,
        ];
        KINDS.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Whether a key with such a record exists.
    pub fn is_used(self) -> bool {
        self < Kind::Removal
    }
}

/// A point in time: whole seconds since 1970 plus nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Time {
    /// The time `nanoseconds` after 1970.
    pub(crate) fn of_nanoseconds(nanoseconds: i64) -> Time {
        const SECOND: i64 = 1_000_000_000;
        Time { seconds: nanoseconds.div_euclid(SECOND), nanoseconds: nanoseconds.rem_euclid(SECOND) as u32 }
    }
}

/// Location of a record, the same on every copy of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Number of the segment.
    pub segment: SegmentNumber,
    /// Offset of the record's header.
    pub offset: LogOffset,
    /// Length of the record with header and padding, in bytes.
    pub record_bytes: u64,
}

impl Location {
    /// The location of a record of an entry that has none.
    pub(crate) const NONE: Location = Location { segment: SegmentNumber(0), offset: LogOffset::START, record_bytes: 0 };

    /// The offsets of its bytes.
    pub fn range(&self) -> Range<LogOffset> {
        self.offset..self.offset + self.record_bytes
    }
}

/// What the index stores for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// [`Kind::File`] to [`Kind::Removal`].
    pub kind: Kind,
    /// Id of the record; higher is newer.
    pub id: u64,
    /// Number of the object, for life, whatever is written to it; none for a removal. It is the id of the object's very
    /// first record, so no two objects share one.
    pub number: ObjectNumber,
    /// Location of the record. For a removal in a sorted table it is unknown (all zero).
    pub location: Location,
    /// Size of the object in bytes, holes included; the length of the target for a symlink, 0 for a directory; **for a
    /// link, the number of the shared object**.
    pub size_bytes: u64,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Modification time.
    pub mtime: Time,
    /// Change time; unset for a link, like its other attributes.
    pub ctime: Time,
}

impl Entry {
    /// A name of a shared object, without id and location.
    pub(crate) fn link(number: ObjectNumber) -> Entry {
        Entry { kind: Kind::Link, number, size_bytes: number.0, ..Entry::removal(0, Location::NONE) }
    }

    /// The shared object that a link is a name of.
    pub(crate) fn linked(&self) -> ObjectNumber {
        ObjectNumber(self.size_bytes)
    }

    /// A tombstone of a key.
    pub fn removal(id: u64, location: Location) -> Entry {
        Entry {
            kind: Kind::Removal,
            id,
            number: ObjectNumber::NONE,
            location,
            size_bytes: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }
}
