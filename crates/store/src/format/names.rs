//! Names of the directories and files of the log and of large objects on a device.

use super::ids::{SegmentId, SegmentNumber};

/// Directory of segments on a device.
pub(crate) const SEGMENTS: &str = "segments";
/// Directory of the extent files on a device.
pub(crate) const EXTENTS: &str = "extents";
/// Suffix of a file that is not complete: nobody reads it before it has another name.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Directory of the index on its device.
pub(crate) const INDEX_DIRECTORY: &str = "index";

/// Path of a segment on its devices.
pub(crate) fn segment_path(segment: SegmentId) -> String {
    format!("{SEGMENTS}/{:016x}-{:08x}", segment.number.0, segment.epoch.low_half())
}

/// A file in the segment directory, as its name describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentName {
    pub(crate) number: SegmentNumber,
    pub(crate) epoch_low_half: u32,
}

impl SegmentName {
    /// `None` if this is not the name of a segment.
    pub(crate) fn parse(name: &str) -> Option<SegmentName> {
        let (number, epoch) = name.split_once('-')?;
        let epoch_low_half = lower_hex(epoch, 8).and_then(|epoch| u32::try_from(epoch).ok())?;
        Some(SegmentName { number: SegmentNumber(number_of(number)?), epoch_low_half })
    }
}

impl From<SegmentId> for SegmentName {
    fn from(id: SegmentId) -> SegmentName {
        SegmentName { number: id.number, epoch_low_half: id.epoch.low_half() }
    }
}

/// The number in the name of an extent file or a table (without the suffix).
pub(crate) fn number_of(name: &str) -> Option<u64> {
    lower_hex(name, 16)
}

fn lower_hex(name: &str, digits: usize) -> Option<u64> {
    let sound = name.len() == digits && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    sound.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::Epoch;

    #[test]
    fn names_have_number_and_epoch() {
        let path = segment_path(SegmentId::new(SegmentNumber(3), Epoch(0x1122_3344_5566_7788)));
        assert_eq!(path, "segments/0000000000000003-55667788");
        let name = SegmentName::parse(path.strip_prefix("segments/").unwrap());
        assert_eq!(name, Some(SegmentId::new(SegmentNumber(3), Epoch(0x1122_3344_5566_7788)).into()));
        for wrong in ["3-55667788", "0000000000000003", "0000000000000003-5566778G", "0000000000000003-55667788.new"] {
            assert_eq!(SegmentName::parse(wrong), None);
        }
        assert_eq!(number_of("00000000000000ff"), Some(255));
        for wrong in ["ff", "00000000000000FF", "+0000000000000ff", "00000000000000ff.table"] {
            assert_eq!(number_of(wrong), None);
        }
    }
}
