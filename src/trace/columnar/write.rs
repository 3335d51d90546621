//! Writing: operations are collected in columns until a block is full.

use std::io::{self, Write};

use twox_hash::XxHash3_64;

use super::{
    BLOCK, COLUMNS, FOOT, Footer, Frame, HEAD, MAGIC, MOST_NAME_BYTES, MOST_OPERATIONS, MOST_RAW_BYTES, ZSTD_LEVEL, has,
};
use crate::io::varint::{put, zigzag};
use crate::trace::{Names, Operation, Origin, Source};

/// Writes a trace as a stream.
pub struct Writer<W: Write> {
    out: W,
    packer: zstd::bulk::Compressor<'static>,
    columns: [Vec<u8>; COLUMNS],
    before: Operation,
    in_block: usize,
    operations: u64,
    /// Names of files and of processes that were written.
    files: usize,
    processes: usize,
    raw: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("operations", &self.operations).finish_non_exhaustive()
    }
}

/// The operation that the first one of a block is compared with.
pub(super) fn nothing_before() -> Operation {
    let mut operation = Operation::new(0, 0, crate::trace::Kind::Other);
    operation.file = Some(0);
    operation.opening = Some(0);
    operation.offset_bytes = Some(0);
    operation.file_size_bytes = Some(0);
    operation
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Errors from writing.
    pub fn new(mut out: W, origin: &Origin) -> io::Result<Writer<W>> {
        out.write_all(MAGIC)?;
        let mut writer = Writer {
            out,
            packer: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            columns: Default::default(),
            before: nothing_before(),
            in_block: 0,
            operations: 0,
            files: 0,
            processes: 0,
            raw: Vec::new(),
        };
        writer.raw = serde_json::to_vec(origin)?;
        writer.write_block(HEAD, 0, 0, 0)?;
        Ok(writer)
    }

    /// Adds the operation that `source` has just returned. After an error the writer is of no more use.
    ///
    /// # Errors
    /// Errors from writing; a name that does not fit into a block.
    pub fn push(&mut self, operation: &Operation, source: &dyn Source) -> io::Result<()> {
        self.put(operation);
        if self.in_block == MOST_OPERATIONS || self.name_bytes(source) >= MOST_NAME_BYTES {
            self.flush_block(source)?;
        }
        Ok(())
    }

    fn name_bytes(&self, source: &dyn Source) -> usize {
        source.files().bytes_from(self.files) + source.processes().bytes_from(self.processes)
    }

    fn put(&mut self, operation: &Operation) {
        let [times, flags, kinds, processes, files, openings, offsets, lengths, rest] = &mut self.columns;
        let before = &mut self.before;
        put(times, zigzag(operation.time_ns.wrapping_sub(before.time_ns) as i64));
        let mut present = if operation.failed { has::FAILED } else { 0 };
        kinds.push(operation.kind as u8);
        put(processes, zigzag(i64::from(operation.process) - i64::from(before.process)));
        if let Some(file) = operation.file {
            present |= has::FILE;
            put(files, zigzag(i64::from(file) - i64::from(before.file.unwrap_or(0))));
            before.file = Some(file);
        }
        if let Some(opening) = operation.opening {
            present |= has::OPENING;
            put(openings, zigzag(i64::from(opening) - i64::from(before.opening.unwrap_or(0))));
            before.opening = Some(opening);
        }
        if let Some(offset) = operation.offset_bytes {
            present |= has::OFFSET;
            put(offsets, zigzag(offset.wrapping_sub(before.offset_bytes.unwrap_or(0)) as i64));
            before.offset_bytes = Some(offset.wrapping_add(operation.length_bytes));
        }
        put(lengths, operation.length_bytes);
        if let Some(size) = operation.file_size_bytes {
            present |= has::FILE_SIZE;
            put(rest, zigzag(size.wrapping_sub(before.file_size_bytes.unwrap_or(0)) as i64));
            before.file_size_bytes = Some(size);
        }
        if let Some(duration) = operation.duration_ns {
            present |= has::DURATION;
            put(rest, duration);
        }
        flags.push(present);
        before.time_ns = operation.time_ns;
        before.process = operation.process;
        self.in_block += 1;
    }

    /// Writes the operations that wait, after all names that are new: most often in one block, else in several, of
    /// which all but the last have only names.
    fn flush_block(&mut self, source: &dyn Source) -> io::Result<()> {
        loop {
            self.raw.clear();
            let (files_before, processes_before) = (self.files, self.processes);
            self.files = put_names(&mut self.raw, source.files(), files_before);
            self.processes = put_names(&mut self.raw, source.processes(), processes_before);
            if self.files < source.files().len() || self.processes < source.processes().len() {
                // The columns are empty: each is its length, 0, in one byte.
                self.raw.resize(self.raw.len() + COLUMNS, 0);
                self.write_block(BLOCK, 0, files_before, processes_before)?;
                continue;
            }
            for column in &mut self.columns {
                put(&mut self.raw, column.len() as u64);
                self.raw.append(column);
            }
            self.write_block(BLOCK, self.in_block, files_before, processes_before)?;
            self.operations += self.in_block as u64;
            self.in_block = 0;
            self.before = nothing_before();
            return Ok(());
        }
    }

    /// Writes the content of `raw` as a block.
    fn write_block(
        &mut self,
        kind: [u8; 4],
        operations: usize,
        files_before: usize,
        processes_before: usize,
    ) -> io::Result<()> {
        let too_long = || io::Error::other("a name in the trace is too long");
        if self.raw.len() > MOST_RAW_BYTES {
            return Err(too_long());
        }
        let packed = self.packer.compress(&self.raw)?;
        let frame = Frame {
            kind,
            packed_bytes: u32::try_from(packed.len()).map_err(|_| too_long())?,
            raw_bytes: self.raw.len() as u32,
            operations: operations as u32,
            operations_before: self.operations,
            files_before: files_before as u32,
            processes_before: processes_before as u32,
            hash: XxHash3_64::oneshot(&packed),
        };
        self.out.write_all(&frame.encode())?;
        self.out.write_all(&packed)
    }

    /// Writes the rest and the totals; returns the total number of operations.
    ///
    /// # Errors
    /// Errors from writing.
    pub fn finish(mut self, source: &dyn Source) -> io::Result<u64> {
        if self.in_block > 0 || source.files().len() > self.files || source.processes().len() > self.processes {
            self.flush_block(source)?;
        }
        let footer = Footer {
            operations: self.operations,
            files: self.files as u64,
            processes: self.processes as u64,
            origin: source.origin().clone(),
            problems: source.problems().clone(),
        };
        self.raw = serde_json::to_vec(&footer)?;
        self.write_block(FOOT, 0, self.files, self.processes)?;
        self.out.flush()?;
        Ok(self.operations)
    }
}

/// Appends their count and the names from number `from` on, which is at most their number: as many as fit into
/// [`MOST_NAME_BYTES`], but at least one if there is one. Returns the number of the next.
fn put_names(raw: &mut Vec<u8>, names: &Names, from: usize) -> usize {
    let all_bytes = names.bytes_from(from);
    let fits = |&end: &usize| all_bytes - names.bytes_from(end) <= MOST_NAME_BYTES;
    let least_end = (from + 1).min(names.len());
    let end = (least_end..=names.len()).take_while(|end| *end == least_end || fits(end)).last().unwrap_or(least_end);
    put(raw, (end - from) as u64);
    for number in from..end {
        let name = names.get(number as u32).unwrap_or_default();
        put(raw, name.len() as u64);
        raw.extend_from_slice(name);
    }
    end
}
