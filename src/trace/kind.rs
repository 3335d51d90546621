//! Kinds of operations on files, whatever the recorder calls them.

use serde::{Deserialize, Serialize};

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// Opens a file or directory.
    Open = 0,
    /// Opens a file and creates or truncates it.
    Create = 1,
    /// Drops the last reference to an open.
    Close = 2,
    /// Reads bytes.
    Read = 3,
    /// Writes bytes.
    Write = 4,
    /// Maps a part of a file; how much of it is accessed later is unknown.
    Map = 5,
    /// Runs a file as a program.
    Execute = 6,
    /// Reads attributes.
    Stat = 7,
    /// Resolves a name or a symbolic link, or checks permission.
    Lookup = 8,
    /// Lists a directory.
    ReadDirectory = 9,
    /// Creates a directory.
    MakeDirectory = 10,
    /// Removes a name: of a file, or of a directory.
    Unlink = 11,
    /// Renames a file.
    Rename = 12,
    /// Creates another name, or a symbolic link.
    Link = 13,
    /// Changes a file's size; the length is the new one.
    Truncate = 14,
    /// Changes other attributes: permissions, owner, times.
    SetAttributes = 15,
    /// Makes data durable.
    Sync = 16,
    /// Reserves or frees space.
    Allocate = 17,
    /// Anything else that names a file.
    Other = 18,
}

impl Kind {
    /// Every kind, by its number.
    pub const ALL: [Kind; 19] = [
        Kind::Open,
        Kind::Create,
        Kind::Close,
        Kind::Read,
        Kind::Write,
        Kind::Map,
        Kind::Execute,
        Kind::Stat,
        Kind::Lookup,
        Kind::ReadDirectory,
        Kind::MakeDirectory,
        Kind::Unlink,
        Kind::Rename,
        Kind::Link,
        Kind::Truncate,
        Kind::SetAttributes,
        Kind::Sync,
        Kind::Allocate,
        Kind::Other,
    ];

    /// The kind with a number.
    pub fn of(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Open => "open",
            Kind::Create => "create",
            Kind::Close => "close",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Map => "map",
            Kind::Execute => "execute",
            Kind::Stat => "stat",
            Kind::Lookup => "look up",
            Kind::ReadDirectory => "list directory",
            Kind::MakeDirectory => "make directory",
            Kind::Unlink => "remove",
            Kind::Rename => "rename",
            Kind::Link => "link",
            Kind::Truncate => "truncate",
            Kind::SetAttributes => "set attributes",
            Kind::Sync => "sync",
            Kind::Allocate => "allocate",
            Kind::Other => "other",
        }
    }

    /// Whether its length counts bytes that are moved.
    pub fn moves_bytes(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_are_the_same() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(Kind::of(number as u8), Some(kind));
        }
        assert_eq!(Kind::of(Kind::ALL.len() as u8), None);
    }
}
