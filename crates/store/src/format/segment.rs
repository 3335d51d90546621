//! Segments: files of records, append-only, each with a header (docs/FORMAT.md, section 4).

use super::decode::Decoder;
use super::geometry::Class;
use super::record::checksum;
use super::superblock::VERSION;

/// Directory of segments on a device.
pub(crate) const SEGMENTS: &str = "segments";
/// Length of the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 80;
const MAGIC: &[u8; 8] = b"granseg\0";

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) class: Class,
    pub(crate) copies: u8,
    pub(crate) store: [u8; 16],
    pub(crate) number: u64,
    pub(crate) created_nanoseconds: i64,
    /// Sequence number of the last commit before it.
    pub(crate) sequence: u64,
    /// Chain after that commit.
    pub(crate) chain: u64,
    /// Highest id given before it.
    pub(crate) highest_id: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[self.class as u8, self.copies, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.store);
        for field in [self.number, self.created_nanoseconds as u64, self.sequence, self.chain, self.highest_id] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header at the beginning of `bytes`; `None` if there is no sound one of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES as usize)?;
        let mut at = Decoder::new(bytes);
        at.u64().filter(|&sum| sum == checksum(&bytes[8..]))?;
        at.take(8).filter(|&magic| magic == MAGIC)?;
        at.u16().filter(|&version| version <= VERSION)?;
        let class = match at.u8()? {
            1 => Class::Fast,
            2 => Class::Slow,
            _ => return None,
        };
        let copies = at.u8()?;
        at.u32().filter(|&zero| zero == 0)?;
        Some(SegmentHeader {
            class,
            copies,
            store: at.identity()?,
            number: at.u64()?,
            created_nanoseconds: at.u64()? as i64,
            sequence: at.u64()?,
            chain: at.u64()?,
            highest_id: at.u64()?,
        })
    }
}

/// Path of a segment on its devices.
pub(crate) fn segment_path(number: u64) -> String {
    format!("{SEGMENTS}/{number:016x}")
}

/// The number in the name of a file of segments, extents or tables (without its ending).
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let sound = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    sound.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

/// The end of a batch: content of a commit record (section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) sequence: u64,
    /// Records in the batch, the commit not counted.
    pub(crate) records: u32,
    /// Where in the segment the batch begins.
    pub(crate) begin: u64,
    /// The highest sequence number known to be durable when this was written.
    pub(crate) durable_sequence: u64,
    pub(crate) highest_id: u64,
    pub(crate) chain: u64,
}

impl Commit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(44);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        for field in [self.begin, self.durable_sequence, self.highest_id, self.chain] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Commit> {
        let mut at = Decoder::new(bytes);
        let commit = Commit {
            sequence: at.u64()?,
            records: at.u32()?,
            begin: at.u64()?,
            durable_sequence: at.u64()?,
            highest_id: at.u64()?,
            chain: at.u64()?,
        };
        at.rest().is_empty().then_some(commit)
    }
}

/// The chain after one more record: what a torn, lost or stale record breaks.
pub(crate) fn chained(chain: u64, head_checksum: u32, content_checksum: u64) -> u64 {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&chain.to_le_bytes());
    bytes[8..12].copy_from_slice(&head_checksum.to_le_bytes());
    bytes[12..].copy_from_slice(&content_checksum.to_le_bytes());
    checksum(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        class: Class::Slow,
        copies: 2,
        store: [7; 16],
        number: 3,
        created_nanoseconds: -4,
        sequence: 5,
        chain: 6,
        highest_id: 7,
    };

    #[test]
    fn a_header_is_what_was_written_or_nothing() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len() as u64, SEGMENT_HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Some(HEADER));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_commit_is_44_bytes() {
        let commit = Commit { sequence: 1, records: 2, begin: 3, durable_sequence: 4, highest_id: 5, chain: 6 };
        assert_eq!(commit.encode().len(), 44);
        assert_eq!(Commit::decode(&commit.encode()), Some(commit));
        assert_eq!(Commit::decode(&commit.encode()[..43]), None);
    }

    #[test]
    fn names_are_sixteen_lower_case_digits() {
        assert_eq!(number_of("00000000000000ff"), Some(255));
        for wrong in ["ff", "00000000000000FF", "+0000000000000ff", "00000000000000ff.table"] {
            assert_eq!(number_of(wrong), None);
        }
    }
}
