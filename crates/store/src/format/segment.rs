//! Segments: append-only files of records, each with a header; and commits, the records that end batches
//! (docs/FORMAT.md, sections 5 and 8).

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use super::VERSION;
use super::decode::Decoder;
use super::geometry::Class;
use super::ids::{BatchSequence, Epoch, LogOffset, SegmentId, SegmentNumber};
use super::record::{ListedRecord, checksum, put_checksum};
use crate::layout::granulo::{
    Alignment, COMMIT_HEADER_BYTES, LISTED_BYTES, RECORD_ALIGNMENT_BYTES, SEGMENT_HEADER_BYTES as HEADER,
};

/// Length of the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = HEADER;
/// Where the first batch of a segment begins.
pub(crate) const FIRST_BATCH_AT: LogOffset = LogOffset(SEGMENT_HEADER_BYTES);
const MAGIC: &[u8; 8] = b"granseg\0";
const RESERVED_BYTES: usize = 24;

/// The position in the log at which a segment continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Continued {
    /// 0 for the first segment of all.
    pub(crate) segment: SegmentNumber,
    /// End of the part of that segment that belongs to the log.
    pub(crate) offset: LogOffset,
    /// Sequence number of the last commit before it.
    pub(crate) sequence: BatchSequence,
    /// Chain after that commit.
    pub(crate) chain: u64,
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) class: Class,
    pub(crate) copies: u8,
    /// Where the content of files begins in it.
    pub(crate) alignment: Alignment,
    pub(crate) store: [u8; 16],
    pub(crate) id: SegmentId,
    pub(crate) created_nanoseconds: i64,
    pub(crate) continues: Continued,
    /// Highest id of a record before it.
    pub(crate) highest_id: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[self.class as u8, self.copies, self.alignment.shift(), 0, 0, 0]);
        bytes.extend_from_slice(&self.store);
        let Continued { segment, offset, sequence, chain } = self.continues;
        for field in [
            self.id.epoch.0,
            self.id.number.0,
            self.created_nanoseconds as u64,
            segment.0,
            offset.0,
            sequence.0,
            chain,
            self.highest_id,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; RESERVED_BYTES]);
        put_checksum(&mut bytes);
        bytes
    }

    /// Decodes the header at the beginning of `bytes`; `None` if there is no valid one of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let mut at = Decoder::new(bytes.get(..SEGMENT_HEADER_BYTES as usize)?);
        at.u64().filter(|&sum| sum == checksum(at.rest()))?;
        at.take(8).filter(|&magic| magic == MAGIC)?;
        at.u16().filter(|&version| version == VERSION)?;
        let class = match at.u8()? {
            1 => Class::Fast,
            2 => Class::Slow,
            _ => return None,
        };
        let copies = at.u8()?;
        let alignment = Alignment::of_shift(at.u8()?)?;
        at.take(3).filter(|zeroes| *zeroes == [0; 3])?;
        let store = at.identity()?;
        let (epoch, number) = (Epoch(at.u64()?), SegmentNumber(at.u64()?));
        let header = SegmentHeader {
            class,
            copies,
            alignment,
            store,
            id: SegmentId { number, epoch },
            created_nanoseconds: at.u64()? as i64,
            continues: Continued {
                segment: SegmentNumber(at.u64()?),
                offset: LogOffset(at.u64()?),
                sequence: BatchSequence(at.u64()?),
                chain: at.u64()?,
            },
            highest_id: at.u64()?,
        };
        at.rest().iter().all(|&byte| byte == 0).then_some(header)
    }
}

/// The end of a batch: content of a commit record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) sequence: BatchSequence,
    /// Every batch up to this one was durable when the commit was written.
    pub(crate) mark: BatchSequence,
    /// Where in the segment the batch begins.
    pub(crate) begin: LogOffset,
    pub(crate) chain_before: u64,
    pub(crate) time_nanoseconds: i64,
    /// Highest id of a record so far.
    pub(crate) highest_id: u64,
    pub(crate) epoch: Epoch,
    /// The store was closed here.
    pub(crate) is_close: bool,
    /// The records of the batch, in their order.
    pub(crate) list: Vec<ListedRecord>,
}

const CLOSE: u32 = 1;

impl Commit {
    /// Chain after this commit: it covers only lists, so damage in a record does not break it.
    pub(crate) fn chain(&self) -> u64 {
        let mut bytes = Vec::with_capacity(16 + self.list.len() * LISTED_BYTES as usize);
        bytes.extend_from_slice(&self.chain_before.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.0.to_le_bytes());
        self.encode_list(&mut bytes);
        checksum(&bytes)
    }

    /// Length of the records of the batch, from its beginning to the commit.
    pub(crate) fn listed_bytes(&self) -> u64 {
        self.list.iter().map(|listed| listed.record_bytes).sum()
    }

    fn encode_list(&self, onto: &mut Vec<u8>) {
        for listed in &self.list {
            onto.extend_from_slice(&((listed.record_bytes / RECORD_ALIGNMENT_BYTES) as u32).to_le_bytes());
            onto.extend_from_slice(&listed.checksum.to_le_bytes());
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((COMMIT_HEADER_BYTES + self.list.len() as u64 * LISTED_BYTES) as usize);
        for field in [
            self.sequence.0,
            self.mark.0,
            self.begin.0,
            self.chain_before,
            self.chain(),
            self.time_nanoseconds as u64,
            self.highest_id,
            self.epoch.0,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.list.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&if self.is_close { CLOSE } else { 0 }.to_le_bytes());
        self.encode_list(&mut bytes);
        bytes
    }

    /// Decodes the content of a commit record that was verified. `None` if it has an unknown flag, its list another
    /// length than stated, or its chain does not match; the scan checks whether the list fits where the commit is.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Commit> {
        let mut at = Decoder::new(bytes);
        let (sequence, mark) = (BatchSequence(at.u64()?), BatchSequence(at.u64()?));
        let (begin, chain_before, chain) = (LogOffset(at.u64()?), at.u64()?, at.u64()?);
        let (time_nanoseconds, highest_id, epoch) = (at.u64()? as i64, at.u64()?, Epoch(at.u64()?));
        let (record_count, flags) = (at.u32()?, at.u32()?);
        let list = at.rest();
        if list.len() as u64 != u64::from(record_count) * LISTED_BYTES || flags & !CLOSE != 0 {
            return None;
        }
        let decode_listed = |bytes: &[u8]| {
            let mut at = Decoder::new(bytes);
            Some(ListedRecord { record_bytes: u64::from(at.u32()?) * RECORD_ALIGNMENT_BYTES, checksum: at.u32()? })
        };
        let list = list.chunks(LISTED_BYTES as usize).map(decode_listed).collect::<Option<Vec<_>>>()?;
        let is_close = flags & CLOSE != 0;
        let commit =
            Commit { sequence, mark, begin, chain_before, time_nanoseconds, highest_id, epoch, is_close, list };
        (commit.chain() == chain).then_some(commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        class: Class::Slow,
        copies: 2,
        alignment: Alignment::Page,
        store: [7; 16],
        id: SegmentId { number: SegmentNumber(3), epoch: Epoch(0x1122_3344_5566_7788) },
        created_nanoseconds: -4,
        continues: Continued {
            segment: SegmentNumber(2),
            offset: LogOffset(128),
            sequence: BatchSequence(5),
            chain: 6,
        },
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
    fn a_commit_is_what_was_written_or_nothing() {
        let listed = |record_bytes| ListedRecord { record_bytes, checksum: 0x8070_6050 };
        let commit = Commit {
            sequence: BatchSequence(1),
            mark: BatchSequence(2),
            begin: LogOffset(3),
            chain_before: 4,
            time_nanoseconds: -5,
            highest_id: 6,
            epoch: Epoch(7),
            is_close: true,
            list: vec![listed(48), listed(1 << 33)],
        };
        let bytes = commit.encode();
        assert_eq!(bytes.len() as u64, COMMIT_HEADER_BYTES + 2 * LISTED_BYTES);
        assert_eq!(Commit::decode(&bytes), Some(commit.clone()));
        assert_eq!(Commit::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Commit::decode(&[&bytes[..], &[0; 8]].concat()), None);
        assert_eq!(commit.listed_bytes(), 48 + (1 << 33));
        // The chain covers the list.
        let mut damaged = bytes;
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(Commit::decode(&damaged), None);
    }
}
