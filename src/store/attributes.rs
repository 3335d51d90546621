//! Attributes of an object, and how a record has them (docs/FORMAT.md, section 5).

use super::entry::Time;

/// Permissions of files and directories that come without any.
pub const DEFAULT_FILE_MODE: u16 = 0o100_644;
/// As [`DEFAULT_FILE_MODE`], of directories.
pub const DEFAULT_DIRECTORY_MODE: u16 = 0o040_755;

/// What a file system would keep of a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Modification time.
    pub mtime: Time,
    /// Access time, if it is to be kept.
    pub atime: Option<Time>,
    /// Extended attributes: names and values, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data of a sparse file lie.
    pub holes: Option<Holes>,
}

/// Holes of a sparse file, by what is between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holes {
    /// Size of the file in bytes, holes included.
    pub size_bytes: u64,
    /// Offset and length of each run of data in bytes, rising and apart, none empty.
    pub data: Vec<(u64, u64)>,
}
