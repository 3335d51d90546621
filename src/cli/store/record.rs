//! An object in JSON, the same in every result (docs/SCHEMA.md, "Objects of a store").

use serde::Serialize;

use crate::report::store::ObjectType;
use crate::store::ids::ObjectNumber;
use crate::store::{Entry, Kind};

/// The entry of an object in the index.
#[derive(Debug, Serialize)]
pub(super) struct ObjectRecord {
    /// Escaped.
    pub key: String,
    #[serde(rename = "type")]
    pub object_type: ObjectType,
    pub size_bytes: u64,
    /// Like `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime_seconds: i64,
    pub mtime_nanoseconds: u32,
    /// Number of the object, which never changes.
    pub number: u64,
    /// Whether the content is in stripes, not in the record.
    pub striped: bool,
    /// Number of the file, where the key is one of several names.
    pub shared: Option<u64>,
}

impl ObjectRecord {
    pub(super) fn new(key: String, entry: &Entry, shared: Option<ObjectNumber>) -> ObjectRecord {
        ObjectRecord {
            key,
            object_type: ObjectType::of(entry),
            size_bytes: entry.size_bytes,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime_seconds: entry.mtime.seconds,
            mtime_nanoseconds: entry.mtime.nanoseconds,
            number: entry.number.0,
            striped: entry.kind == Kind::Large,
            shared: shared.map(|number| number.0),
        }
    }
}

/// Major and minor number of a device, from the content of its record (docs/FORMAT.md, section 6).
pub(super) fn device_numbers(content: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = content.split_at_checked(4)?;
    Some((u32::from_le_bytes(major.try_into().ok()?), u32::from_le_bytes(minor.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::device_numbers;

    #[test]
    fn device_numbers_are_two_words() {
        assert_eq!(device_numbers(&[1, 0, 0, 0, 3, 1, 0, 0]), Some((1, 259)));
        assert_eq!(device_numbers(&[1, 0, 0]), None);
        assert_eq!(device_numbers(&[0; 9]), None);
    }
}
