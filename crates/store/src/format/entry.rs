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
    /// Attributes of a file that were changed alone: newer than those in its record.
    Attributes = 12,
}

impl Kind {
    /// The kind that a byte in a record denotes.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        const KINDS: [Kind; 12] = [
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
            Kind::Attributes,
        ];
        KINDS.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Whether a key with such a record exists.
    pub fn is_used(self) -> bool {
        self < Kind::Removal || self == Kind::Attributes
    }

    /// What an index stores for one without other attributes than its entry shows; `None` for kinds of which it is not
    /// said.
    pub(crate) fn plain_code(self) -> Option<u8> {
        PLAIN_KINDS.iter().find(|(kind, _)| *kind == self).map(|&(_, code)| code)
    }

    /// Whether its attributes may be in a record of their own.
    pub(crate) fn is_file(self) -> bool {
        matches!(self, Kind::File | Kind::Large)
    }
}

/// Kinds in an index of files whose attributes were changed alone.
const FILE_WITH_ATTRIBUTES_ID: u8 = 13;
const LARGE_WITH_ATTRIBUTES_ID: u8 = 14;
/// Kinds in an index of objects without other attributes than the entry shows, by the codes of kinds that are in none.
const PLAIN_KINDS: [(Kind, u8); 4] = [(Kind::File, 8), (Kind::Directory, 9), (Kind::Symlink, 10), (Kind::Special, 11)];

/// What an index stores in place of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKind {
    /// The kind.
    pub(crate) kind: Kind,
    /// The id of a record with its attributes follows.
    pub(crate) has_attributes_id: bool,
    /// See [`Entry::is_plain`].
    pub(crate) is_plain: bool,
}

impl StoredKind {
    /// Inverse of [`Entry::stored_kind`].
    pub(crate) fn of(byte: u8) -> Option<StoredKind> {
        if let Some(&(kind, _)) = PLAIN_KINDS.iter().find(|(_, stored)| *stored == byte) {
            return Some(StoredKind { kind, has_attributes_id: false, is_plain: true });
        }
        let (kind, has_attributes_id) = match byte {
            FILE_WITH_ATTRIBUTES_ID => (Kind::File, true),
            LARGE_WITH_ATTRIBUTES_ID => (Kind::Large, true),
            byte => (Kind::from_byte(byte)?, false),
        };
        Some(StoredKind { kind, has_attributes_id, is_plain: false })
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
    pub fn of_nanoseconds(nanoseconds: i64) -> Time {
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
    /// [`Kind::File`] to [`Kind::Removal`], or [`Kind::Attributes`].
    pub kind: Kind,
    /// Id of the record; higher is newer.
    pub id: u64,
    /// Number of the object, for life, whatever is written to it; none for a removal; for a link, that of the shared
    /// object, which `size_bytes` repeats. It is the id of the object's very first record, so no two objects share one.
    pub number: ObjectNumber,
    /// Id of the record with its attributes, if they were changed alone since; else 0.
    pub attributes_id: u64,
    /// Its record is known to have no attributes but those shown here: the time of birth is the change time, and there
    /// are no others. Never set if they were changed alone, or for a large file, whose record is needed in any case.
    pub is_plain: bool,
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

    /// The kind as an index stores it: one that says which attributes are elsewhere.
    pub(crate) fn stored_kind(&self) -> u8 {
        match (self.kind, self.attributes_id) {
            (Kind::File, 1..) => FILE_WITH_ATTRIBUTES_ID,
            (Kind::Large, 1..) => LARGE_WITH_ATTRIBUTES_ID,
            (kind, _) => kind.plain_code().filter(|_| self.is_plain).unwrap_or(kind as u8),
        }
    }

    /// The same object with the attributes of a record of their own.
    pub(crate) fn with_attributes(self, of: &Entry) -> Entry {
        assert_eq!((of.kind, of.number), (Kind::Attributes, self.number), "they are those of this object");
        Entry { attributes_id: of.id, ..self.showing(of) }
    }

    /// The same record, found again at another place, of an object whose attributes may have been changed alone.
    pub(crate) fn with_attributes_as(self, known: &Entry) -> Entry {
        match known.attributes_id {
            0 => self,
            id => Entry { attributes_id: id, ..self.showing(known) },
        }
    }

    /// The same with what a listing shows of another's attributes, and whether those are all.
    pub(crate) fn showing(self, of: &Entry) -> Entry {
        let Entry { is_plain, mode, uid, gid, mtime, ctime, .. } = *of;
        Entry { is_plain, mode, uid, gid, mtime, ctime, ..self }
    }

    /// A tombstone of a key.
    pub fn removal(id: u64, location: Location) -> Entry {
        Entry {
            kind: Kind::Removal,
            id,
            number: ObjectNumber::NONE,
            attributes_id: 0,
            is_plain: false,
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
