//! What the index knows of a key: which record it is, where that lies, and what a listing shows.

/// The kind of a record (docs/FORMAT.md, section 5).
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
    /// A name of a shared object.
    Link = 6,
    /// A key that is no more.
    Removal = 7,
    /// A directory that is no more, with all below it.
    TreeRemoval = 8,
    /// The end of a batch.
    Commit = 9,
    /// What was superseded and may be gone.
    Release = 10,
    /// A state that is kept by name, or not any more.
    Snapshot = 11,
}

impl Kind {
    /// The kind that a byte of a record stands for.
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

    /// Whether a key with such a record is in use.
    pub fn is_used(self) -> bool {
        self < Kind::Removal
    }
}

/// A point in time: whole seconds since 1970, and nanoseconds on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Time {
    /// So many nanoseconds after 1970.
    pub(crate) fn of_nanoseconds(nanoseconds: i64) -> Time {
        const SECOND: i64 = 1_000_000_000;
        Time { seconds: nanoseconds.div_euclid(SECOND), nanoseconds: nanoseconds.rem_euclid(SECOND) as u32 }
    }
}

/// Where a record lies: the same on every copy of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the record's header, in bytes.
    pub offset: u64,
    /// Length of the record with header and padding, in bytes.
    pub record_bytes: u64,
}

/// What the index has for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// [`Kind::File`] to [`Kind::Removal`].
    pub kind: Kind,
    /// Id of the record; higher is newer.
    pub id: u64,
    /// Number of the object, which it has for life, whatever is written to it; 0 of a removal. It is the id of the first record that it ever had, so that no two
    /// objects have the same.
    pub number: u64,
    /// Where the record lies. Of a removal in a sorted table, nothing (all zero).
    pub location: Location,
    /// Size of the object in bytes, holes included; the target's length of a symlink, 0 of directories; **of a link, the number of the shared object**.
    pub size_bytes: u64,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Modification time.
    pub mtime: Time,
    /// Change time; of a link that of nothing, like its other attributes.
    pub ctime: Time,
}

impl Entry {
    /// A name of a shared file, without id and place.
    pub(crate) fn link(number: u64) -> Entry {
        let location = Location { segment: 0, offset: 0, record_bytes: 0 };
        Entry { kind: Kind::Link, number, size_bytes: number, ..Entry::removal(0, location) }
    }

    /// An entry that says that the key is no more.
    pub fn removal(id: u64, location: Location) -> Entry {
        Entry {
            kind: Kind::Removal,
            id,
            number: 0,
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
