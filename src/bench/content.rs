//! Content of files and objects: written, then compared when read back. The number of a file determines every byte of
//! it.
//!
//! All content is a slice of one ring of random bytes (or of zeros), filled once; the number of a file determines where
//! it begins. Writing then only hands over a slice, and checking compares every byte at memory speed, in pieces of any
//! size and order, against a ring that stays in the processor's cache.

use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, ErrorKind};
use crate::population;
use crate::random::{Random, mix};

/// Size of the ring, in bytes: larger than the window of compressing file systems, smaller than a processor's cache.
const RING_BYTES: usize = 256 << 10;
/// Largest piece, in bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The error of an operation that read other bytes than were written.
pub(crate) fn misread(operation: &'static str, path: &Path) -> Error {
    let cause = "the data read differs from the data written";
    let advice = "do not trust this device, file system or memory until you know the cause";
    Error::new(ErrorKind::Corrupt, operation, cause).at(path).advise(advice)
}

/// Content of files by their number.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// The ring, followed by a repetition as long as a piece.
    ring: Vec<u8>,
    is_zero: bool,
}

impl Content {
    /// Random bytes of a seed.
    pub(crate) fn random(seed: u64) -> Content {
        let mut ring = vec![0; RING_BYTES];
        population::Content::Random.fill(&mut ring, seed, 0);
        while ring.len() < RING_BYTES + PIECE_BYTES {
            ring.extend_from_within(..RING_BYTES);
        }
        Content { ring, is_zero: false }
    }

    /// Zeros.
    pub(crate) fn zero() -> Content {
        Content { ring: vec![0; RING_BYTES + PIECE_BYTES], is_zero: true }
    }

    /// Returns `length` bytes of a file from `offset`, at most [`PIECE_BYTES`].
    #[inline]
    pub(crate) fn piece(&self, file: u64, offset: u64, length: u64) -> &[u8] {
        let start = self.start(file, offset);
        &self.ring[start..start + length.min(PIECE_BYTES as u64) as usize]
    }

    /// Whether `bytes` are those of a file from `offset`.
    pub(crate) fn is(&self, file: u64, offset: u64, bytes: &[u8]) -> bool {
        let start = self.start(file, offset);
        // Up to the end of the ring, then repeatedly from its beginning.
        let (first, rest) = bytes.split_at(bytes.len().min(RING_BYTES - start));
        first == &self.ring[start..start + first.len()]
            && rest.chunks(RING_BYTES).all(|chunk| chunk == &self.ring[..chunk.len()])
    }

    fn start(&self, file: u64, offset: u64) -> usize {
        let begin = if self.is_zero { 0 } else { Random::new(mix(file)).any() };
        (begin.wrapping_add(offset) % RING_BYTES as u64) as usize
    }

    /// A reader of the content of a file of `size_bytes`.
    pub(crate) fn reader(&self, file: u64, size_bytes: u64) -> ContentReader<'_> {
        ContentReader { content: self, file, at: 0, size_bytes }
    }
}

/// The content of one file as a stream.
#[derive(Debug)]
pub(crate) struct ContentReader<'c> {
    content: &'c Content,
    file: u64,
    at: u64,
    size_bytes: u64,
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = (self.size_bytes - self.at).min(buffer.len() as u64);
        let piece = self.content.piece(self.file, self.at, length);
        buffer[..piece.len()].copy_from_slice(piece);
        self.at += piece.len() as u64;
        Ok(piece.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_differ_and_zeros_are_zeros() {
        let content = Content::random(1);
        assert_ne!(content.piece(1, 0, 4096), content.piece(2, 0, 4096));
        assert_ne!(content.piece(1, 0, 4096), Content::random(2).piece(1, 0, 4096));
        assert!(zstd::bulk::compress(content.piece(1, 0, 128 << 10), 3).unwrap().len() > 128 << 10);
        let zero = Content::zero();
        assert!(zero.is_zero && zero.piece(7, 9, 4096) == [0; 4096] && !zero.is(7, 9, &[0, 0, 1]));
    }

    proptest! {
        #[test]
        fn content_does_not_depend_on_how_it_is_cut(file: u64, size in 0u64..3 << 20, cut in 1usize..2 << 20) {
            let content = Content::random(3);
            let mut whole = Vec::new();
            content.reader(file, size).read_to_end(&mut whole).unwrap();
            prop_assert_eq!(whole.len() as u64, size);
            let mut offset = 0;
            for piece in whole.chunks(cut) {
                prop_assert!(content.is(file, offset, piece));
                offset += piece.len() as u64;
            }
            if let Some(middle) = whole.get_mut(size as usize / 2) {
                *middle ^= 1;
                prop_assert!(!content.is(file, 0, &whole));
            }
        }
    }
}
