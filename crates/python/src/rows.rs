//! The table of a listing: one row of 28 bytes a file, in memory that all processes share and none can change.
//!
//! ```text
//! header   64 bytes: magic, number of files, length of the names, whether the rows are in the order of their places;
//!          from 40 on the checksum of the names, and that of `places` (0 if they are absent)
//! rows     28 bytes each, in the order of keys: place (segment << 34 | offset) 8, id 6, record bytes 5, size 7, mode 2
//! places   4 bytes each: the rows in the order of their places; absent if that is the order of the rows
//! names    8 bytes each: where a block of 1,024 names begins in the file of names, and where the last one ends
//! ```
//!
//! All numbers are little-endian. **Invariants**: the rows are those of one state of the store; a place occurs as often
//! as the file has names in the listing; `places` is a permutation. With both orders that makes 32 bytes a file and 8
//! bytes for each 1,024. The bytes come from a sealed memfd: of this program, as the magic says, and unchanged since.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use granulo_core::error::{Error, ErrorKind, Result};
use granulo_store::ids::{LogOffset, SegmentNumber};
use granulo_store::{Entry, Location, RecordPlace};
use granulo_sys::sealed::{SealedMemory, memory_file};
use twox_hash::XxHash3_64;

/// Names in a block.
pub(crate) const BLOCK: usize = 1024;
const MAGIC: &[u8; 16] = b"granulo listing1";
const HEADER: usize = 64;
const CHECKSUMS_AT: usize = 40;
const ROW: usize = 28;
const OFFSET_BITS: u32 = 34;

/// What a row says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) place: RecordPlace,
    pub(crate) size_bytes: u64,
    pub(crate) mode: u16,
}

/// A number in the first bytes of `from`.
fn number(from: &[u8], bytes: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes].copy_from_slice(&from[..bytes]);
    u64::from_le_bytes(wide)
}

impl Row {
    fn decode(row: &[u8]) -> Row {
        let place = number(row, 8);
        let location = Location {
            segment: SegmentNumber(place >> OFFSET_BITS),
            offset: LogOffset(place & ((1 << OFFSET_BITS) - 1)),
            record_bytes: number(&row[14..], 5),
        };
        Row {
            place: RecordPlace { location, id: number(&row[8..], 6) },
            size_bytes: number(&row[19..], 7),
            mode: number(&row[26..], 2) as u16,
        }
    }

    fn encode(entry: &Entry) -> Result<(u64, [u8; ROW])> {
        let Location { segment, offset, record_bytes } = entry.location;
        let fits = segment.0 < 1 << (64 - OFFSET_BITS)
            && offset.0 < 1 << OFFSET_BITS
            && entry.id < 1 << 48
            && record_bytes < 1 << 40
            && entry.size_bytes < 1 << 56;
        if !fits {
            return Err(Error::new(ErrorKind::Usage, "list the store", "a file has more than 64 PiB"));
        }
        let (mut row, place) = ([0; ROW], segment.0 << OFFSET_BITS | offset.0);
        row[..8].copy_from_slice(&place.to_le_bytes());
        row[8..14].copy_from_slice(&entry.id.to_le_bytes()[..6]);
        row[14..19].copy_from_slice(&record_bytes.to_le_bytes()[..5]);
        row[19..26].copy_from_slice(&entry.size_bytes.to_le_bytes()[..7]);
        row[26..].copy_from_slice(&entry.mode.to_le_bytes());
        Ok((place, row))
    }
}

/// The table, from any process.
#[derive(Debug)]
pub(crate) struct Rows {
    memory: SealedMemory,
    count: usize,
    names_bytes: u64,
    /// Where the order of places begins; `None` if it is that of the rows.
    places_at: Option<usize>,
    blocks_at: usize,
}

impl Rows {
    /// # Errors
    /// `InvalidData` if it is not such a table.
    pub(crate) fn open(memory: SealedMemory) -> io::Result<Rows> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it is not the table of a listing");
        if memory.len() < HEADER || memory[..16] != MAGIC[..] {
            return Err(wrong());
        }
        let count = number(&memory[16..], 8) as usize;
        let rows_end = HEADER + count * ROW;
        let places_at = (memory[32] == 0).then_some(rows_end);
        let blocks_at = places_at.map_or(rows_end, |at| at + 4 * count);
        if memory.len() != blocks_at + 8 * (count.div_ceil(BLOCK) + 1) {
            return Err(wrong());
        }
        Ok(Rows { count, names_bytes: number(&memory[24..], 8), places_at, blocks_at, memory })
    }

    pub(crate) fn memory(&self) -> &SealedMemory {
        &self.memory
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn names_bytes(&self) -> u64 {
        self.names_bytes
    }

    /// Checksums of the names in their order, and of the order of the places.
    pub(crate) fn checksums(&self) -> (u64, u64) {
        (number(&self.memory[CHECKSUMS_AT..], 8), number(&self.memory[CHECKSUMS_AT + 8..], 8))
    }

    /// A row; `None` if there are fewer.
    pub(crate) fn get(&self, index: usize) -> Option<Row> {
        (index < self.count).then(|| Row::decode(&self.memory[HEADER + index * ROW..]))
    }

    /// The size of a file; 0 if there is none.
    pub(crate) fn size_bytes(&self, index: usize) -> u64 {
        self.get(index).map_or(0, |row| row.size_bytes)
    }

    /// The row whose record is the `at`-th in the order of places.
    pub(crate) fn by_place(&self, at: usize) -> u32 {
        match self.places_at {
            Some(start) => number(&self.memory[start + 4 * at..], 4) as u32,
            None => at as u32,
        }
    }

    /// Where a block of names lies in their file.
    pub(crate) fn block(&self, block: usize) -> std::ops::Range<u64> {
        let at = self.blocks_at + 8 * block;
        number(&self.memory[at..], 8)..number(&self.memory[at + 8..], 8)
    }
}

/// Writes a table, row by row.
pub(crate) struct RowsWriter {
    out: BufWriter<File>,
    /// Their places: segment and offset in one number.
    places: Vec<u64>,
    is_in_place_order: bool,
    blocks: Vec<u64>,
}

impl RowsWriter {
    /// # Errors
    /// Those of creating a memfd.
    pub(crate) fn new() -> io::Result<RowsWriter> {
        let mut out = BufWriter::with_capacity(1 << 20, memory_file("granulo listing")?);
        out.write_all(&[0; HEADER])?;
        Ok(RowsWriter { out, places: Vec::new(), is_in_place_order: true, blocks: Vec::new() })
    }

    /// Notes that a block of names begins at `offset`.
    pub(crate) fn begin_block(&mut self, offset: u64) {
        self.blocks.push(offset);
    }

    /// # Errors
    /// A row that does not fit; too many of them; errors of writing.
    pub(crate) fn push(&mut self, entry: &Entry) -> Result<()> {
        if self.places.len() == u32::MAX as usize {
            return Err(Error::new(ErrorKind::Usage, "list the store", "more than 4,294,967,295 files")
                .advise("list its directories one by one"));
        }
        let (place, row) = Row::encode(entry)?;
        self.is_in_place_order &= self.places.last().is_none_or(|&before| before <= place);
        self.places.push(place);
        self.out.write_all(&row).map_err(no_memory)
    }

    /// Writes the rows in the order of their places; returns the checksum of that order.
    fn write_places(&mut self) -> io::Result<u64> {
        let mut order: Vec<(u64, u32)> = self.places.drain(..).zip(0u32..).collect();
        // Keys that lie together were mostly written together: this sort takes runs as they are.
        order.sort();
        let mut digest = XxHash3_64::new();
        for (_, row) in order {
            digest.write(&row.to_le_bytes());
            self.out.write_all(&row.to_le_bytes())?;
        }
        Ok(digest.finish())
    }

    /// # Errors
    /// Those of writing, sealing and mapping.
    pub(crate) fn finish(mut self, names_bytes: u64, names_checksum: u64) -> io::Result<Rows> {
        let count = self.places.len();
        let places_checksum = if self.is_in_place_order { 0 } else { self.write_places()? };
        self.blocks.push(names_bytes);
        self.blocks.iter().try_for_each(|at| self.out.write_all(&at.to_le_bytes()))?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..24].copy_from_slice(&(count as u64).to_le_bytes());
        header[24..32].copy_from_slice(&names_bytes.to_le_bytes());
        header[32] = u8::from(self.is_in_place_order);
        header[CHECKSUMS_AT..CHECKSUMS_AT + 8].copy_from_slice(&names_checksum.to_le_bytes());
        header[CHECKSUMS_AT + 8..CHECKSUMS_AT + 16].copy_from_slice(&places_checksum.to_le_bytes());
        file.write_all_at(&header, 0)?;
        Rows::open(SealedMemory::seal(file)?)
    }
}

/// The error of shared memory that cannot be had.
pub(crate) fn no_memory(error: io::Error) -> Error {
    Error::new(ErrorKind::of(&error), "list the store", error.to_string()).advise("make more shared memory available")
}
