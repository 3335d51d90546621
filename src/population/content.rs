//! Contents of files: bytes that are functions of a seed and their position, generated faster than a device writes
//! them.
//!
//! - `zero`: zero bytes, written.
//! - `random`: SplitMix64 by position; incompressible.
//! - `compressible:R`: chunks that begin with random bytes and end with zeros, in proportions for which zstd reaches
//!   the ratio R.
//! - `sparse:SHARE`: holes for that share of the blocks, random bytes in the others. The size is set first, then the
//!   data is written: no file system then preallocates space beyond the end that would fill the holes.
//! - `none`: the size is set and nothing written.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, pwrite, write};

use super::streams::draw;
use crate::random::{STEP, mix};
use crate::units::parse_percent;

/// Largest number of bytes that one call writes; the size of a worker's buffer.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Bytes that one pattern of random bytes and zeros spans, where the ratio allows it.
const CHUNK_BYTES: u64 = 4096;
/// Bytes that zstd needs to describe the zeros of a chunk.
const SEQUENCE_BYTES: f64 = 4.0;
/// Blocks in which holes are grouped, so that a sparse file does not consist of extents of one block only.
const HOLE_GROUP: u64 = 16;

/// The contents of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Zero bytes.
    Zero,
    /// Random bytes.
    Random,
    /// Bytes that compress by a ratio.
    Compressible(f64),
    /// Holes for a share of the blocks, random bytes in the rest.
    Sparse(f64),
    /// No data: sizes alone.
    None,
}

impl Content {
    /// Reads `zero`, `random`, `compressible:2.5`, `sparse`, `sparse:75%` or `none`.
    ///
    /// # Errors
    /// A sentence that names the fault, for the argument parser to print.
    pub fn parse(text: &str) -> Result<Content, String> {
        let (name, option) = match text.split_once(':') {
            Some((name, option)) => (name, Some(option)),
            None => (text, None),
        };
        match (name, option) {
            ("zero", None) => Ok(Content::Zero),
            ("random", None) => Ok(Content::Random),
            ("none", None) => Ok(Content::None),
            ("compressible", Some(ratio)) => match ratio.parse::<f64>() {
                Ok(ratio) if (1.0..=1000.0).contains(&ratio) => Ok(Content::Compressible(ratio)),
                _ => Err(format!("'{ratio}' is not a ratio from 1 to 1000; write, for example, compressible:2.5")),
            },
            ("compressible", None) => Err("a ratio is missing; write, for example, compressible:2.5".to_owned()),
            ("sparse", share) => match parse_percent(share.unwrap_or("50%"))? {
                share if share <= 1.0 => Ok(Content::Sparse(share)),
                _ => Err("at most 100% of the blocks can be holes".to_owned()),
            },
            _ => Err(format!("'{text}' is not one of zero, random, compressible:RATIO, sparse[:PERCENT], none")),
        }
    }

    /// Share of the blocks that are written.
    pub fn written_fraction(self) -> f64 {
        match self {
            Content::Zero | Content::Random | Content::Compressible(_) => 1.0,
            Content::Sparse(share) => 1.0 - share,
            Content::None => 0.0,
        }
    }

    /// Writes the content of a file of `size` bytes into an empty file; `buffer` has [`PIECE_BYTES`]. Holes are whole
    /// blocks of `block_bytes`. Ends with `ECANCELED` between two pieces once `stop` is set.
    pub(super) fn write_to(
        self,
        file: BorrowedFd<'_>,
        size: u64,
        seed: u64,
        block_bytes: u64,
        stop: &AtomicBool,
        buffer: &mut Buffer,
    ) -> Result<(), Errno> {
        if size == 0 {
            return Ok(());
        }
        let go_on = || if stop.load(Ordering::Relaxed) { Err(Errno::CANCELED) } else { Ok(()) };
        match self {
            Content::None => rustix::fs::ftruncate(file, size),
            Content::Sparse(share) => {
                rustix::fs::ftruncate(file, size)?;
                let holes = Holes { share, phase: (mix(seed) >> 11) as f64 / (1u64 << 53) as f64 };
                holes.runs(size, block_bytes, |from, to| {
                    go_on()?;
                    write_run(file, from, to, seed, buffer)
                })
            }
            Content::Zero | Content::Random | Content::Compressible(_) => {
                let mut at = 0;
                while at < size {
                    go_on()?;
                    let length = (size - at).min(PIECE_BYTES as u64) as usize;
                    let piece = match self {
                        Content::Zero => buffer.zeros(length),
                        _ => buffer.filled(length, |bytes| self.fill(bytes, seed, at)),
                    };
                    write_whole(piece, |rest| write(file, rest))?;
                    at += length as u64;
                }
                Ok(())
            }
        }
    }

    /// The bytes of a file from `offset`, a multiple of 8 and of the chunk.
    pub fn fill(self, bytes: &mut [u8], seed: u64, offset: u64) {
        match self {
            Content::Random | Content::Sparse(_) => fill_random(bytes, seed, offset),
            Content::Compressible(ratio) => {
                let chunk = chunk_bytes(ratio);
                for (index, chunk_of) in (0u64..).zip(bytes.chunks_mut(chunk as usize)) {
                    let random = random_bytes(chunk_of.len() as u64, ratio) as usize;
                    let (head, tail) = chunk_of.split_at_mut(random);
                    fill_random(head, seed, offset + index * chunk);
                    tail.fill(0);
                }
            }
            Content::Zero | Content::None => bytes.fill(0),
        }
    }
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Zero => f.write_str("zero"),
            Content::Random => f.write_str("random"),
            Content::Compressible(ratio) => write!(f, "compressible:{ratio}"),
            // Rounded, because the last digits of the product are not those that were asked for.
            Content::Sparse(share) => write!(f, "sparse:{}%", (share * 1e8).round() / 1e6),
            Content::None => f.write_str("none"),
        }
    }
}

/// A worker's buffer for the bytes that it writes.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    are_zero: bool,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer { bytes: vec![0; PIECE_BYTES], are_zero: true }
    }
}

impl Buffer {
    fn zeros(&mut self, length: usize) -> &[u8] {
        if !self.are_zero {
            self.bytes.fill(0);
            self.are_zero = true;
        }
        &self.bytes[..length]
    }

    fn filled(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> &[u8] {
        self.are_zero = false;
        fill(&mut self.bytes[..length]);
        &self.bytes[..length]
    }
}

/// Bytes of a chunk: more for high ratios, so that each has a random part of useful length.
fn chunk_bytes(ratio: f64) -> u64 {
    ((ratio * 256.0) as u64).next_power_of_two().clamp(CHUNK_BYTES, PIECE_BYTES as u64)
}

/// Random bytes of a chunk of `length`.
fn random_bytes(length: u64, ratio: f64) -> u64 {
    if ratio <= 1.0 {
        return length;
    }
    (length as f64 / ratio - SEQUENCE_BYTES).round().clamp(1.0, length as f64) as u64
}

/// Word n of a file is number n of the sequence that begins at its seed.
fn fill_random(bytes: &mut [u8], seed: u64, offset: u64) {
    let mut state = seed.wrapping_add((offset / 8).wrapping_mul(STEP));
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        state = state.wrapping_add(STEP);
        word.copy_from_slice(&mix(state).to_le_bytes());
    }
    let rest = words.into_remainder();
    let last = mix(state.wrapping_add(STEP)).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Which blocks of a file are holes.
struct Holes {
    share: f64,
    /// From 0 to 1, different for each file, so that the right share of many small files are holes.
    phase: f64,
}

impl Holes {
    /// Calls `data` for each run of bytes that is data.
    fn runs(
        &self,
        size: u64,
        block_bytes: u64,
        mut data: impl FnMut(u64, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let blocks = size.div_ceil(block_bytes);
        let holes_until = |blocks: u64| (blocks as f64 * self.share + self.phase).floor() as u64;
        let mut at = 0;
        while at < blocks {
            let end = (at + HOLE_GROUP).min(blocks);
            // A hole may not exceed the group, whatever the phase.
            let holes = (holes_until(end) - holes_until(at)).min(end - at);
            let data_end = end - holes;
            if data_end > at {
                data(at * block_bytes, (data_end * block_bytes).min(size))?;
            }
            at = end;
        }
        Ok(())
    }
}

fn write_run(file: BorrowedFd<'_>, from: u64, to: u64, seed: u64, buffer: &mut Buffer) -> Result<(), Errno> {
    let mut at = from;
    while at < to {
        let length = (to - at).min(PIECE_BYTES as u64) as usize;
        let piece = buffer.filled(length, |bytes| fill_random(bytes, seed, at));
        let mut written = at;
        write_whole(piece, |rest| {
            let count = pwrite(file, rest, written)?;
            written += count as u64;
            Ok(count)
        })?;
        at += length as u64;
    }
    Ok(())
}

/// Writes all of `bytes`: a call may write fewer, and may be interrupted.
fn write_whole(mut bytes: &[u8], mut write: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The seed of the content of file `index`.
pub(super) fn seed_of(start: u64, index: u64) -> u64 {
    draw(start, index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    fn written(content: Content, size: u64, seed: u64) -> (Vec<u8>, u64) {
        let mut file = tempfile::tempfile().unwrap();
        let stop = AtomicBool::new(false);
        content.write_to(file.as_fd(), size, seed, 4096, &stop, &mut Buffer::default()).unwrap();
        file.sync_all().unwrap();
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        (bytes, file.metadata().unwrap().blocks() * 512)
    }

    #[test]
    fn a_compressible_file_compresses_by_its_ratio_within_5_per_cent() {
        for ratio in [1.0, 1.2, 1.5, 2.0, 2.5, 4.0, 8.0, 20.0, 50.0] {
            for size in [32_768u64, 131_072, 1_000_003, 5 << 20] {
                let (bytes, _) = written(Content::Compressible(ratio), size, 9);
                let compressed = zstd::bulk::compress(&bytes, 3).unwrap().len();
                let found = size as f64 / compressed as f64;
                assert!((found / ratio - 1.0).abs() <= 0.05, "{found:.3} for {ratio} of {size} bytes");
            }
        }
    }

    #[test]
    fn random_bytes_do_not_compress_and_files_differ() {
        let (one, _) = written(Content::Random, 300_001, 1);
        let (other, _) = written(Content::Random, 300_001, 2);
        assert!(zstd::bulk::compress(&one, 3).unwrap().len() > one.len());
        assert_ne!(one, other);
        assert_eq!(one, written(Content::Random, 300_001, 1).0);
        let (zeros, _) = written(Content::Zero, 70_000, 1);
        assert!(zeros.len() == 70_000 && zeros.iter().all(|&byte| byte == 0));
        assert_eq!(written(Content::None, 12_345, 1), (vec![0; 12_345], 0));
    }

    #[test]
    fn holes_take_their_share() {
        for (share, size) in [(0.5, 10 << 20), (0.75, 4 << 20), (0.0, 1 << 20), (1.0, 1 << 20)] {
            let (bytes, allocated) = written(Content::Sparse(share), size, 5);
            let want = size as f64 * (1.0 - share);
            assert!((allocated as f64 - want).abs() <= 65_536.0 + 4096.0, "{allocated} for {want}");
            let data = bytes.chunks(4096).filter(|block| block.iter().any(|&byte| byte != 0)).count() * 4096;
            assert!((data as f64 - want).abs() <= 4096.0);
        }
        // A share of the small files is one hole each.
        let data = (0..400).filter(|&seed| written(Content::Sparse(0.25), 3000, mix(seed)).0.iter().any(|&b| b != 0));
        assert!((270..330).contains(&data.count()));
    }

    proptest! {
        #[test]
        fn contents_do_not_depend_on_how_they_are_cut(ratio in 1.0f64..100.0, pieces in 1u64..8) {
            for content in [Content::Random, Content::Compressible(ratio)] {
                let mut whole = vec![0; 1 << 20];
                content.fill(&mut whole, 3, 0);
                let mut cut = vec![0; 1 << 20];
                let length = (1usize << 20) >> pieces.min(3);
                for (index, part) in cut.chunks_mut(length).enumerate() {
                    content.fill(part, 3, (index * length) as u64);
                }
                prop_assert!(whole == cut);
            }
        }
    }

    #[test]
    fn contents_are_read_as_they_are_written() {
        for content in [
            Content::Zero,
            Content::Random,
            Content::Compressible(2.5),
            Content::Sparse(0.0004),
            Content::Sparse(0.1234),
            Content::Sparse(0.5),
            Content::Sparse(1.0),
            Content::None,
        ] {
            assert_eq!(Content::parse(&content.to_string()), Ok(content));
        }
        assert_eq!(Content::parse("sparse"), Ok(Content::Sparse(0.5)));
        for text in
            ["", "text", "compressible", "compressible:0.5", "compressible:x", "sparse:200%", "zero:1", "random:"]
        {
            assert!(Content::parse(text).is_err(), "{text}");
        }
    }
}
