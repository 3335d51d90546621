//! The names of a listing: a file without a name on disk, in blocks of 1,024, so that no memory is resident for them.
//!
//! In a block each name is stored as what it shares with the one before and what follows: two varints and the rest. The
//! first name of a block is whole, so a name is found by reading one block, and a key by binary search over the blocks,
//! as names are in the order of keys. The file is gone when the last process that holds it has closed it.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use twox_hash::XxHash3_64;

use crate::rows::{BLOCK, Rows};

fn write_varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes names in the order of keys.
pub(crate) struct NamesWriter {
    out: BufWriter<File>,
    before: Vec<u8>,
    encoded: Vec<u8>,
    count: usize,
    offset: u64,
    /// Of all names, each with a slash behind it: however they are stored.
    digest: XxHash3_64,
}

/// What was written.
pub(crate) struct NamesWritten {
    pub(crate) file: File,
    /// Length of the names in the file.
    pub(crate) length_bytes: u64,
    /// Checksum of the names in their order.
    pub(crate) checksum: u64,
}

impl NamesWriter {
    /// # Errors
    /// Those of creating a file in the directory for temporary files.
    pub(crate) fn new() -> io::Result<NamesWriter> {
        let out = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
        let digest = XxHash3_64::new();
        Ok(NamesWriter { out, before: Vec::new(), encoded: Vec::new(), count: 0, offset: 0, digest })
    }

    /// Where a block begins, if the next name is the first of one.
    pub(crate) fn begins_block(&mut self) -> Option<u64> {
        let begins = self.count.is_multiple_of(BLOCK);
        if begins {
            self.before.clear();
        }
        begins.then_some(self.offset)
    }

    /// # Errors
    /// Those of writing.
    pub(crate) fn push(&mut self, name: &[u8]) -> io::Result<()> {
        let shared = self.before.iter().zip(name).take_while(|(one, other)| one == other).count();
        self.encoded.clear();
        write_varint(shared, &mut self.encoded);
        write_varint(name.len() - shared, &mut self.encoded);
        self.encoded.extend_from_slice(&name[shared..]);
        self.out.write_all(&self.encoded)?;
        self.before.truncate(shared);
        self.before.extend_from_slice(&name[shared..]);
        self.digest.write(name);
        // No name has one.
        self.digest.write(b"/");
        self.count += 1;
        self.offset += self.encoded.len() as u64;
        Ok(())
    }

    /// # Errors
    /// Those of writing.
    pub(crate) fn finish(self) -> io::Result<NamesWritten> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(NamesWritten { file, length_bytes: self.offset, checksum: self.digest.finish() })
    }
}

/// Names as they are stored: components separated by zero bytes.
#[derive(Debug)]
pub(crate) struct Names {
    file: File,
}

/// The names of a block, one after the other.
struct Block {
    bytes: Vec<u8>,
    at: usize,
    name: Vec<u8>,
}

impl Block {
    fn varint(&mut self) -> Option<usize> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    /// Advances to the next name; `None` at the end.
    fn step(&mut self) -> Option<&[u8]> {
        let shared = self.varint()?;
        let length = self.varint()?;
        self.name.truncate(shared);
        self.name.extend_from_slice(self.bytes.get(self.at..self.at + length)?);
        self.at += length;
        Some(&self.name)
    }
}

impl Names {
    pub(crate) fn new(file: File) -> Names {
        Names { file }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn block(&self, rows: &Rows, block: usize) -> io::Result<Block> {
        let Range { start, end } = rows.block(block);
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(Block { bytes, at: 0, name: Vec::new() })
    }

    /// Calls `take` with the names of some rows, in order.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` if a name is missing.
    pub(crate) fn each(&self, rows: &Rows, range: Range<usize>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let number = at / BLOCK;
            let mut block = self.block(rows, number)?;
            for row in number * BLOCK..range.end.min((number + 1) * BLOCK) {
                let name = block.step().ok_or(io::ErrorKind::InvalidData)?;
                if row >= at {
                    take(name);
                }
            }
            at = range.end.min((number + 1) * BLOCK);
        }
        Ok(())
    }

    /// The name of a row, as stored.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub(crate) fn get(&self, rows: &Rows, row: usize) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        self.each(rows, row..row + 1, |name| found = name.to_vec())?;
        Ok(found)
    }

    /// The row with a name, as stored.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub(crate) fn find(&self, rows: &Rows, wanted: &[u8]) -> io::Result<Option<usize>> {
        // The last block whose first name is not behind it.
        let (mut low, mut high) = (0, rows.count().div_ceil(BLOCK));
        while low < high {
            let middle = (low + high) / 2;
            let is_behind = self.block(rows, middle)?.step().is_none_or(|first| first > wanted);
            if is_behind { high = middle } else { low = middle + 1 }
        }
        let Some(number) = low.checked_sub(1) else { return Ok(None) };
        let (mut block, mut row) = (self.block(rows, number)?, number * BLOCK);
        while let Some(name) = block.step() {
            if name == wanted {
                return Ok(Some(row));
            }
            row += 1;
        }
        Ok(None)
    }
}
