//! Records: the bytes of one object, or of its removal, in the log (docs/FORMAT.md, section 5).
//!
//! A record is decoded in two steps, each with a checksum: the head (header, key and attributes), and the content. Bytes that
//! are no record, torn, or flipped anywhere are told from records in both.

use twox_hash::XxHash3_64;

use super::entry::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::granulo::{RECORD_ALIGNMENT_BYTES, RECORD_HEADER_BYTES};

/// Length of a record's header.
pub(crate) const HEADER_BYTES: usize = RECORD_HEADER_BYTES as usize;
/// Where the id is in it.
const ID_AT: usize = 8;
/// Ids and timestamps have six bytes.
pub(crate) const LARGEST_ID: u64 = (1 << 48) - 1;
/// The last byte of a header.
const MARK: u8 = 0xb7;
const USED: u8 = 1;
const ZSTD: u8 = 2;
const MOVED: u8 = 4;
const LARGEST_ATTRIBUTES_BYTES: usize = (1 << 24) - 1;

/// The hash that every checksum of the store is.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Rounded up to where the next record begins.
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(RECORD_ALIGNMENT_BYTES)
}

/// A record that is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: Kind,
    pub(crate) is_zstd: bool,
    pub(crate) is_moved: bool,
    pub(crate) id: u64,
    pub(crate) timestamp_milliseconds: u64,
    /// Stored form.
    pub(crate) key: &'a [u8],
    /// Stored form.
    pub(crate) attributes: &'a [u8],
    /// As stored.
    pub(crate) content: &'a [u8],
}

impl NewRecord<'_> {
    /// Appends the record, padded.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if a part is too long for its length.
    pub(crate) fn encode(&self, onto: &mut Vec<u8>) -> Result<()> {
        let too_long =
            || Error::new(ErrorKind::Usage, "write the record", "the key, the attributes or the content is too long");
        let key_length = u16::try_from(self.key.len()).map_err(|_| too_long())?;
        let content_length = u32::try_from(self.content.len()).map_err(|_| too_long())?;
        if self.attributes.len() > LARGEST_ATTRIBUTES_BYTES {
            return Err(too_long());
        }
        let start = onto.len();
        let flags = if self.kind.is_used() { USED } else { 0 }
            | if self.is_zstd { ZSTD } else { 0 }
            | if self.is_moved { MOVED } else { 0 };
        onto.extend_from_slice(&[0; 4]);
        onto.extend_from_slice(&[self.kind as u8, flags]);
        onto.extend_from_slice(&key_length.to_le_bytes());
        onto.extend_from_slice(&self.id.to_le_bytes()[..6]);
        onto.extend_from_slice(&self.timestamp_milliseconds.to_le_bytes()[..6]);
        onto.extend_from_slice(&group(self.key).to_le_bytes());
        onto.extend_from_slice(&checksum(self.content).to_le_bytes());
        onto.extend_from_slice(&content_length.to_le_bytes());
        onto.extend_from_slice(&(self.attributes.len() as u32).to_le_bytes()[..3]);
        onto.push(MARK);
        onto.extend_from_slice(self.key);
        onto.extend_from_slice(self.attributes);
        seal_head(&mut onto[start..]);
        onto.extend_from_slice(self.content);
        onto.resize(start + aligned((onto.len() - start) as u64) as usize, 0);
        Ok(())
    }
}

/// Gives an encoded record its id, once that is known. `head` is header, key and attributes.
pub(crate) fn give_id(head: &mut [u8], id: u64) {
    head[ID_AT..ID_AT + 6].copy_from_slice(&id.to_le_bytes()[..6]);
    seal_head(head);
}

fn seal_head(head: &mut [u8]) {
    let sum = checksum(&head[4..]) as u32;
    head[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Low half of the hash of the directory that a key is in.
fn group(key: &[u8]) -> u32 {
    let parent = key.iter().rposition(|&byte| byte == 0).unwrap_or(0);
    checksum(&key[..parent]) as u32
}

/// The lengths in a header, before anything is verified: enough to know how much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) key: usize,
    pub(crate) attributes: usize,
    pub(crate) content: usize,
}

impl Lengths {
    /// What the first [`HEADER_BYTES`] say; `None` if they are no header at all.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Lengths> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let lengths = Lengths {
            key: u16::from_le_bytes([header[6], header[7]]).into(),
            content: u32::from_le_bytes([header[32], header[33], header[34], header[35]]) as usize,
            attributes: u32::from_le_bytes([header[36], header[37], header[38], 0]) as usize,
        };
        (header[39] == MARK && Kind::from_byte(header[4]).is_some()).then_some(lengths)
    }

    /// Header, key and attributes.
    pub(crate) fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.key + self.attributes
    }

    /// The whole record with padding.
    pub(crate) fn record_bytes(&self) -> usize {
        aligned((self.head_bytes() + self.content) as u64) as usize
    }
}

/// The head of a record whose checksum holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) kind: Kind,
    pub(crate) is_zstd: bool,
    pub(crate) id: u64,
    pub(crate) timestamp_milliseconds: u64,
    pub(crate) lengths: Lengths,
    pub(crate) head_checksum: u32,
    pub(crate) content_checksum: u64,
    /// Stored form.
    pub(crate) key: &'a [u8],
    /// Stored form.
    pub(crate) attributes: &'a [u8],
}

impl<'a> Head<'a> {
    /// The head at the beginning of `bytes`; `None` if it is not whole and sound.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Head<'a>> {
        let lengths = Lengths::peek(bytes)?;
        let head = bytes.get(..lengths.head_bytes())?;
        let (stored, rest) = head.split_first_chunk::<4>()?;
        let head_checksum = u32::from_le_bytes(*stored);
        if head_checksum != checksum(rest) as u32 {
            return None;
        }
        let six = |at: usize| {
            u64::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3], head[at + 4], head[at + 5], 0, 0])
        };
        let kind = Kind::from_byte(head[4])?;
        let (flags, key) = (head[5], &head[HEADER_BYTES..HEADER_BYTES + lengths.key]);
        let sound = flags & !(USED | ZSTD | MOVED) == 0
            && (flags & USED != 0) == kind.is_used()
            && u32::from_le_bytes([head[20], head[21], head[22], head[23]]) == group(key);
        let head = Head {
            kind,
            is_zstd: flags & ZSTD != 0,
            id: six(ID_AT),
            timestamp_milliseconds: six(14),
            lengths,
            head_checksum,
            content_checksum: u64::from_le_bytes(*head[24..].first_chunk()?),
            key,
            attributes: &head[HEADER_BYTES + lengths.key..],
        };
        sound.then_some(head)
    }
}

/// A record that holds: head and content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head<'a>,
    /// As stored.
    pub(crate) content: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`; `None` if it is not whole, or a checksum or the padding is wrong.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let head = Head::decode(bytes)?;
        let record = bytes.get(..head.lengths.record_bytes())?;
        let (content, padding) = record[head.lengths.head_bytes()..].split_at(head.lengths.content);
        let sound = checksum(content) == head.content_checksum && padding.iter().all(|&byte| byte == 0);
        sound.then_some(Record { head, content })
    }

    /// The record at the beginning of `bytes` that [`decode`](Self::decode) has found whole: its content is not verified a second time.
    pub(crate) fn verified(bytes: &'a [u8]) -> Option<Record<'a>> {
        let head = Head::decode(bytes)?;
        let start = head.lengths.head_bytes();
        Some(Record { head, content: bytes.get(start..start + head.lengths.content)? })
    }

    /// Length with padding, in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.head.lengths.record_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::granulo::record_bytes;
    use proptest::prelude::*;

    fn encode(kind: Kind, key: &[u8], attributes: &[u8], content: &[u8]) -> Vec<u8> {
        let record = NewRecord {
            kind,
            is_zstd: false,
            is_moved: true,
            id: 0x0605_0403_0201,
            timestamp_milliseconds: 7,
            key,
            attributes,
            content,
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_as_long_as_the_layout_says(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            attributes in proptest::collection::vec(any::<u8>(), 0..100),
            content in proptest::collection::vec(any::<u8>(), 0..3000),
        ) {
            let bytes = encode(Kind::File, &key, &attributes, &content);
            prop_assert_eq!(bytes.len() as u128, record_bytes(key.len() as u64, attributes.len() as u64, content.len() as u64));
            let record = Record::decode(&bytes).unwrap();
            prop_assert_eq!((record.head.key, record.head.attributes, record.content), (&key[..], &attributes[..], &content[..]));
            prop_assert_eq!((record.head.id, record.head.timestamp_milliseconds), (0x0605_0403_0201, 7));
            prop_assert!(!record.head.is_zstd);
            let again = Record::verified(&bytes).unwrap();
            prop_assert_eq!((again.head.key, again.content), (record.head.key, record.content));
        }

        #[test]
        fn any_bytes_are_a_record_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Record::decode(&bytes).is_none());
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = encode(Kind::File, b"a\0b", &[1; 19], b"content");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Record::decode(&bytes[..length]).is_none(), "{length} bytes");
            let again = Record::verified(&bytes[..length]);
            assert!(again.is_none_or(|record| record.content == b"content"), "{length} bytes");
        }
    }

    #[test]
    fn an_id_can_be_given_later() {
        let mut bytes = encode(Kind::Removal, b"key", &[], b"");
        give_id(&mut bytes[..43], 9);
        assert_eq!(Record::decode(&bytes).unwrap().head.id, 9);
    }
}
